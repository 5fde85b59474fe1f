//! One of the shell's commands on an image, as a command line: `blockyard image upload IMAGE FILE PATH`.

use crate::commands::{self, Understood};
use crate::program::{OwnCommand, Program};
use crate::verb::{Subject, Verb};
use crate::workbench::Workbench;
use anyhow::{Result, bail};
use blockyard_command_line::image::misplaced;
use blockyard_command_line::image::named_image;
use blockyard_command_line::image::on_image::run_on;
use blockyard_command_line::image::open_image::{ImageArgs, shown_for};
use blockyard_command_line::terminal::print;
use blockyard_command_line::usage_error::UsageError;
use blockyard_image::Access;
use clap::error::ErrorKind;
use clap::{Args, FromArgMatches};
use std::ffi::OsString;

/// A command of the shell, with the image that it is for.
pub struct VerbLine {
    verb: &'static Verb,
    name: &'static str,
    arguments: VerbArgs,
}

#[derive(Args)]
struct VerbArgs {
    /// The image: a disk specification.
    #[arg(value_name = "IMAGE")]
    image: String,
    /// The command's arguments.
    #[arg(value_name = "ARGUMENT", allow_negative_numbers = true)]
    words: Vec<OsString>,
    #[command(flatten, next_help_heading = "Options of the image")]
    how: ImageArgs,
}

fn find(name: &str) -> Option<&'static Verb> {
    commands::verbs().find(|verb| verb.names.contains(&name))
}

/// Whether `blockyard image` understands that word as a command of the shell's.
pub fn is_verb(name: &str) -> bool {
    find(name).is_some_and(|verb| verb.subject != Subject::Shell)
}

/// Reads the command line `words`, whose first is the program, if it begins with one of the shell's commands.
///
/// # Errors
/// What is wrong with it, or help.
pub fn verb_line(words: &[OsString]) -> Option<Result<VerbLine, clap::Error>> {
    let [_, image, name, ..] = words else { return None };
    let verb = find(name.to_str().filter(|_| image == "image")?)?;
    let name = *verb.names.iter().find(|own| name == **own)?;
    let mut command = VerbArgs::augment_args(clap::Command::new(name))
        .bin_name(format!("blockyard image {name}"))
        .about(verb.summary)
        .override_usage(verb.command_line(name, "[OPTIONS] "))
        .max_term_width(100);
    if let Subject::Disks(access) | Subject::Files(access) = verb.subject {
        command = command.mut_args(|arg| shown_for(access, arg));
    }
    if !is_verb(name) {
        let sentence =
            format!("{name} is for a session: `blockyard image shell IMAGE` has it, `blockyard image script` too");
        return Some(Err(command.error(ErrorKind::InvalidSubcommand, sentence)));
    }
    let matches = command.try_get_matches_from_mut(&words[2..]);
    let arguments = matches.and_then(|matches| VerbArgs::from_arg_matches(&matches));
    Some(arguments.map(|arguments| VerbLine { verb, name, arguments }))
}

/// Does it.
///
/// # Errors
/// [`UsageError`] when its arguments make no sense; when the image cannot be had, or it fails.
pub fn run_verb(line: VerbLine, program: Program) -> Result<()> {
    let VerbLine { verb, name, arguments: VerbArgs { image, words, how } } = line;
    let understood = match verb.takes(words.len()) {
        true => commands::understand(&program, &[&[name.into()], &words[..]].concat()),
        false => Err(UsageError(format!("{name}: it is `{}`", verb.command_line(name, ""))).into()),
    };
    match understood.map_err(|error| misplaced::explain(error, &image))? {
        Understood::Own(OwnCommand::OnFiles(command)) => run_on(&image, &how, &*command, program.resources),
        Understood::Own(OwnCommand::OnItsOwn(_)) => bail!("{}: it has an image of its own", verb.names[0]),
        Understood::Verb(call, words) => {
            let ImageArgs { add, mut how } = how;
            how.ro |= matches!(verb.subject, Subject::Disks(Access::Read) | Subject::Files(Access::Read));
            let points = how.mount_points()?;
            let mut workbench = Workbench::new(how, program, commands::perform_words)?;
            let mut begin = || {
                let mut add = [&image].into_iter().chain(&add);
                add.try_for_each(|image| workbench.add(image, named_image::parse(image, None)?, None, false))?;
                if matches!(verb.subject, Subject::Files(_)) || !points.is_empty() {
                    workbench.mount_as_found(points.clone())
                } else {
                    Ok(())
                }
            };
            let done = begin().map_err(|error| misplaced::explain(error, &image));
            let done = done.and_then(|()| call(&mut workbench, &words));
            workbench.finish(done)
        }
        Understood::Text(text) => print(text.trim_end()),
    }
}

impl Verb {
    /// How it is called on a command line.
    fn command_line(&self, name: &str, options: &str) -> String {
        format!("blockyard image {name} {options}IMAGE {}", self.arguments).trim_end().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::ffi::OsStr;

    /// Commands on the shell itself, and nothing without one.
    const OF_A_SHELL: [&str; 25] = [
        "help",
        "exit",
        "abort",
        "lcd",
        "echo",
        "time",
        "glob",
        "setenv",
        "version",
        "set-verbose",
        "set-trace",
        "add",
        "add-ro",
        "sparse",
        "alloc",
        "disk-create",
        "run",
        "shutdown",
        "smp",
        "memsize",
        "mount",
        "mount-ro",
        "umount",
        "umount-all",
        "cryptsetup-open",
    ];

    #[test]
    fn what_is_not_of_the_shell_itself_is_a_command_line_too() {
        for name in OF_A_SHELL {
            assert_eq!(find(name).unwrap().names[0], name, "it goes by its first name");
        }
        let of_a_shell = commands::verbs().filter(|verb| verb.subject == Subject::Shell).map(|verb| verb.names[0]);
        assert_eq!(of_a_shell.collect::<BTreeSet<_>>(), OF_A_SHELL.into_iter().collect());
        let read = |line: &str| {
            let words: Vec<OsString> = line.split(' ').map(|word| OsStr::new(word).to_owned()).collect();
            verb_line(&words)
        };
        let line = read("blockyard image truncate-size disk.img /x 5M -m sda1").unwrap().ok().unwrap();
        assert_eq!((line.arguments.image.as_str(), line.arguments.words.len()), ("disk.img", 2));
        assert!(read("blockyard image no-such-verb disk.img").is_none() && read("blockyard upload disk.img").is_none());
        let error = read("blockyard image mount disk.img sda1 /").unwrap().err().unwrap().to_string();
        assert!(error.contains("image shell"), "{error}");
    }

    #[test]
    fn looking_does_not_write_and_devices_are_not_mounted() {
        let subject = |name| find(name).unwrap().subject;
        let access = |name| match subject(name) {
            Subject::Shell => None,
            Subject::Disks(access) | Subject::Files(access) => Some(access),
        };
        for name in ["vfs-type", "part-list", "checksum", "head", "exists", "lstat", "egrep", "lgetxattrs", "copy-out"]
        {
            assert_eq!(access(name), Some(Access::Read), "{name}");
        }
        for name in ["write", "part-set-bootable", "part-set-gpt-type", "upload", "zero", "lvcreate", "fill-pattern"] {
            assert_eq!(access(name), Some(Access::Write), "{name}");
        }
        for (name, is_for_files) in [("write", true), ("checksum", true), ("vfs-type", false), ("part-disk", false)] {
            assert_eq!(matches!(subject(name), Subject::Files(_)), is_for_files, "{name}");
        }
    }
}
