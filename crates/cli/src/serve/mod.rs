//! `blockyard serve`: a disk, or partitions of it, for virtual machines and for programs that only know files.
//!
//! One process, the driver, has the disk. Where partitions are served, a second one stands at the door: the mediator
//! passes clients on and is then out of the road, or the copier stays on it. Each opens what it needs, gives up the rest, and
//! serves.

pub mod args;
mod child;
mod clients;
mod file;
mod gate;
mod metrics;
mod partitions;
mod screen;
mod serving;
mod view;

pub use child::{ChildArgs, run_child};

use anyhow::Result;
use args::{Front, ServeArgs};

/// Runs the command.
///
/// # Errors
/// When the disk cannot be had or served.
pub fn run(args: &ServeArgs) -> Result<()> {
    let options = args.options()?;
    match &options.front {
        Front::Socket { path, once } => gate::serve_disk(&options, path, *once),
        Front::Partitions { exports, copying: false, table } => partitions::mediate(&options, exports, *table),
        Front::Partitions { exports, copying: true, table } => partitions::copy(&options, exports, *table),
        Front::Fuse(path) => file::serve(&options, path),
    }
}
