//! `blockyard image`: disk images, and the files in them.
//!
//! This file lists the subcommands. Those on images as a whole ([`whole`]) work on them in this process, shut in; those
//! on files ([`file_commands`]) boot an appliance, which has the kernel that reads file systems.

mod appliance_kernel;
mod boot_files;
mod file_commands;
mod files;
mod inspect;
mod own_commands;
mod volumes;
mod whole;

use anyhow::Result;
pub use appliance_kernel::{KERNEL_COMMAND, KernelArgs, run_kernel, try_appliance};
use blockyard_shell::{ScriptArgs, ShellArgs, VerbLine, run_script, run_shell};
use clap::{Args, Subcommand};
use file_commands::OnImageCommand;
use own_commands::PROGRAM;
pub use whole::NotComparable;
use whole::WholeCommand;
pub use whole::dd::own_words as own_dd_words;

/// Make disk images, convert them, look into them and fill them, without root, mounts or KVM.
///
/// IMAGE is a disk specification, [KIND:]PATH[,KEY=VALUE...], such as disk.img or disk.qcow2.
///
/// create, info, check, convert, commit, rebase, amend, resize, snapshot, bitmap, map, measure, compare, dd and bench
/// have qemu-img's words and options; without -f, the name's ending says an image's format. New images appear under
/// their names when they are complete.
///
/// The others are for the files in an image. Its root file system is found by looking, and what its /etc/fstab says is
/// mounted too; -m PART[:DIR] overrides. A Linux guest does the work (User-Mode Linux: `blockyard doctor`), so that
/// neither this program nor the host's kernel reads an untrusted file system. Success means that what was changed is on
/// stable storage.
///
/// Exit status: 0 for success, 1 on failure, 2 on wrong usage, 130 when Ctrl-C ended it.
#[derive(Args)]
#[command(version)]
pub struct ImageCommandArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
#[command(defer = true)]
enum Command {
    #[command(flatten)]
    Whole(WholeCommand),
    #[command(flatten)]
    Files(OnImageCommand),
    Shell(ShellArgs),
    Script(ScriptArgs),
}

/// Runs the command.
///
/// # Errors
/// When the image cannot be had, or something on it failed.
pub fn run(args: ImageCommandArgs) -> Result<()> {
    match args.command {
        Command::Whole(command) => command.run(),
        Command::Files(command) => command.run(),
        Command::Shell(args) => run_shell(args, PROGRAM),
        Command::Script(args) => run_script(args, PROGRAM),
    }
}

/// Runs a command of the shell's on an image.
///
/// # Errors
/// As [`blockyard_shell::run_verb`].
pub fn run_verb(line: VerbLine) -> Result<()> {
    blockyard_shell::run_verb(line, PROGRAM)
}
