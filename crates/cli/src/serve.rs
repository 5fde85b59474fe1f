//! `blockyard serve`: a disk, or partitions of it, for virtual machines and for programs that only know files.
//!
//! One process, the driver, has the disk. Where partitions are served, a second one stands at the door: the mediator
//! passes clients on and is then out of the road, or the copier stays on it. Each opens what it needs, gives up the
//! rest, and serves.

pub mod args;
mod child;
mod clients;
mod file;
mod gate;
mod metrics;
mod notices;
mod partitions;
mod screen;
mod serving;
mod view;

pub use child::ChildArgs;

use anyhow::Result;
use args::{Front, ServeArgs};
use screen::Screen;
use std::process;

/// Runs the command.
///
/// # Errors
/// When the disk cannot be had or served.
pub fn run(args: &ServeArgs) -> Result<()> {
    let options = args.options()?;
    finished(match &options.front {
        Front::Socket { path, once } => gate::serve_disk(&options, path, *once),
        Front::Partitions { exports, copying: false, table } => partitions::mediate(&options, exports, *table),
        Front::Partitions { exports, copying: true, table } => partitions::copy(&options, exports, *table),
        Front::Fuse(path) => file::serve(&options, path),
    })
}

/// Runs the process at the door, which `serve` starts.
///
/// # Errors
/// When it cannot begin or go on; the driver was told.
pub fn run_child(args: &ChildArgs) -> Result<()> {
    finished(child::run(args))
}

/// What was said is written before this process ends. Where nobody reads it, nobody waits: then no reason for the end
/// is said either.
fn finished(done: Result<()>) -> Result<()> {
    if !Screen::flush() {
        process::exit(i32::from(done.is_err()));
    }
    done
}
