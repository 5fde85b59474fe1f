//! `blockyard image shell` and `script`: many commands on the files of images, with one boot.
//!
//! `line.rs` reads a line, `commands.rs` knows what its first word means, `workbench.rs` has the disks and the
//! appliance that it works on. The commands are those of the [`Program`] that this is a part of, without the image, and
//! guestfish's everyday ones with its arguments, in tables, each beside what it calls (`verbs/`).
//!
//! A command of these tables is a command line too, if it is not on the shell itself: [`verb_line`].
#![forbid(unsafe_code)]

mod arguments;
mod commands;
mod completion;
mod devices;
mod editor;
mod host_shell;
mod image_verb;
mod keys;
mod line;
mod pipe;
mod program;
mod script;
mod theirs;
mod verb;
mod verbs;
mod workbench;

use anyhow::Result;
use blockyard_command_line::image::open_image::OpenArgs;
use blockyard_command_line::image::{misplaced, named_image};
use blockyard_command_line::usage_error::UsageError;
use clap::Args;
pub use commands::check_stand_ins;
pub use image_verb::{VerbLine, is_verb, run_verb, verb_line};
pub use program::{OnHost, OwnCommand, OwnWords, Program};
use std::io::IsTerminal;
use std::path::PathBuf;
use workbench::Workbench;

/// What a shell or a script begins with.
#[derive(Args)]
struct Beginning {
    /// Images, whose file systems are mounted as found: disk specifications.
    #[arg(value_name = "IMAGE")]
    images: Vec<String>,
    /// Add an image, and mount nothing unless -i or -m says so; may be repeated.
    #[arg(short, long, value_name = "IMAGE")]
    add: Vec<String>,
    /// Mount what is found on the images that were added.
    #[arg(short, long)]
    inspector: bool,
    #[command(flatten, next_help_heading = "Options of the images")]
    how: OpenArgs,
}

impl Beginning {
    fn into_workbench(self, program: Program) -> Result<Workbench> {
        let mounts = self.inspector || !self.images.is_empty();
        let points = self.how.mount_points()?;
        if mounts && self.images.is_empty() && self.add.is_empty() {
            return Err(UsageError("-i is for images: name one".to_owned()).into());
        }
        let mut workbench = Workbench::new(self.how, program, commands::perform_words)?;
        for image in self.images.iter().chain(&self.add) {
            workbench.add(image, named_image::parse(image, None)?, None, false)?;
        }
        if mounts || !points.is_empty() {
            workbench.mount_as_found(points)?;
        }
        Ok(workbench)
    }
}

/// Work on images, command after command, with one boot.
///
/// Commands are those of `image`, without the image, and guestfish's everyday ones: `help` lists them. !COMMAND is for
/// the host's shell; a command that begins with - may fail. When stdin is no terminal, each line that comes from it is
/// done at once, up to the first that fails. What was changed is on stable storage after `sync`, `umount`, or the end.
/// Ctrl-C ends a command, Ctrl-D the shell.
#[derive(Args)]
pub struct ShellArgs {
    #[command(flatten)]
    beginning: Beginning,
}

/// Run a script of commands on images, with one boot.
///
/// The commands are those of `image shell`. The first that fails ends the script, unless it begins with -. The script
/// is read up to its end and looked through for mistakes before anything is done; whoever writes commands one by one,
/// and reads what each says, gives them to `image shell`.
#[derive(Args)]
pub struct ScriptArgs {
    /// The script; - for stdin.
    #[arg(value_name = "FILE|-")]
    script: PathBuf,
    #[command(flatten)]
    beginning: Beginning,
}

/// Runs `shell`.
///
/// # Errors
/// When the images cannot be had; in a script, when a command failed.
pub fn run_shell(args: ShellArgs, program: Program) -> Result<()> {
    let interactive = std::io::stdin().is_terminal();
    let workbench = args.beginning.into_workbench(program)?;
    if interactive { editor::run(workbench) } else { script::run_stdin(workbench) }
}

/// Runs `script`.
///
/// # Errors
/// When the images cannot be had, the script is not well formed, or a command failed.
pub fn run_script(args: ScriptArgs, program: Program) -> Result<()> {
    if args.script.as_os_str() != "-" {
        let script = script::Script::read(&args.script, program);
        let script = script.map_err(|error| misplaced::explain_script(error, &args.script))?;
        return script.run(args.beginning.into_workbench(program)?);
    }
    if std::io::stdin().is_terminal() {
        return script::run_stdin(args.beginning.into_workbench(program)?);
    }
    let script = script::Script::read_stdin(program)?;
    let mut workbench = args.beginning.into_workbench(program)?;
    workbench.commands_come_from_stdin();
    script.run(workbench)
}
