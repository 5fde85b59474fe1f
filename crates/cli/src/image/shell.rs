//! `blockyard image shell` and `script`: many commands on the files of images, with one boot.
//!
//! [`line`] reads a line, [`commands`] knows what its first word means, [`workbench`] has the disks and the appliance
//! that it works on. The commands are `image`'s own, without the image ([`own_command`]), and guestfish's everyday ones
//! with its arguments: each file of these ([`disks`], [`files`] and so on) begins with the table of what it has, of
//! [`verb::Verb`]s.

mod arguments;
mod commands;
mod completion;
mod contents;
mod control;
mod devices;
mod disks;
mod editor;
mod file_systems;
mod files;
mod image_verb;
mod line;
mod mounts;
mod own_command;
mod partition_plan;
mod partitions;
mod pipe;
mod queries;
mod script;
mod systems;
mod theirs;
mod verb;
mod volumes;
mod workbench;

use anyhow::Result;
use blockyard_command_line::image::named_image;
use blockyard_command_line::image::open_image::OpenArgs;
use blockyard_command_line::usage_error::UsageError;
use clap::Args;
pub use image_verb::{VerbLine, is_verb, run_verb, verb_line};
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
    fn into_workbench(self) -> Result<Workbench> {
        let mounts = self.inspector || !self.images.is_empty();
        let points = self.how.mount_points()?;
        if mounts && self.images.is_empty() && self.add.is_empty() {
            return Err(UsageError("-i is for images: name one".to_owned()).into());
        }
        let mut workbench = Workbench::new(self.how, commands::perform_words)?;
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
pub fn run_shell(args: ShellArgs) -> Result<()> {
    let interactive = std::io::stdin().is_terminal();
    let workbench = args.beginning.into_workbench()?;
    if interactive { editor::run(workbench) } else { script::run_stdin(workbench) }
}

/// Runs `script`.
///
/// # Errors
/// When the images cannot be had, the script is not well formed, or a command failed.
pub fn run_script(args: ScriptArgs) -> Result<()> {
    if args.script.as_os_str() != "-" {
        let script = script::Script::read(&args.script)?;
        return script.run(args.beginning.into_workbench()?);
    }
    if std::io::stdin().is_terminal() {
        return script::run_stdin(args.beginning.into_workbench()?);
    }
    let script = script::Script::read_stdin()?;
    let mut workbench = args.beginning.into_workbench()?;
    workbench.commands_come_from_stdin();
    script.run(workbench)
}
