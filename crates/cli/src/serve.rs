//! `blockyard serve`: a disk, or partitions of it, for virtual machines and for programs that only know files.
//!
//! The processes are [`blockyard_serve`]'s; what is here is how they are started, stopped and seen.

pub mod args;
mod child;
mod screen;
mod signals;
mod view;

pub use child::ChildArgs;

use anyhow::Result;
use args::ServeArgs;
use blockyard_command_line::disk;
use blockyard_command_line::usage_error::UsageError;
use blockyard_serve::stand_at_the_door;
use screen::Screen;
use std::process;

/// Runs the command.
///
/// # Errors
/// When the disk cannot be had or served.
pub fn run(args: &ServeArgs) -> Result<()> {
    let options = args.options()?;
    finished(blockyard_serve::serve(options, &disk::to_write(&args.allow_dir), &Screen::new(args.stats)))
}

/// Runs the process at the door, which `serve` starts.
///
/// # Errors
/// When it cannot begin or go on; the driver was told.
pub fn run_child(args: &ChildArgs) -> Result<()> {
    if args.partition.is_empty() {
        return Err(UsageError("this command is for `blockyard serve` to run".into()).into());
    }
    finished(stand_at_the_door(args.options(), &Screen::new(false)))
}

/// What was said is written before this process ends. Where nobody reads it, nobody waits: then no reason for the end
/// is said either.
fn finished(done: Result<()>) -> Result<()> {
    if !Screen::flush() {
        process::exit(disk::exit_status(done.is_err().into()).into());
    }
    done
}
