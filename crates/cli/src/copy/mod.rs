//! `blockyard copy`: a disk goes through a virtual machine.
//!
//! [`args`] says what is wanted, [`source`] and [`destination`] open both ends, [`job`] builds the machine and runs it, [`conversation`] is
//! what is said over COM1, [`watch`] follows the guest, [`report`] says what it cost.

pub mod args;
mod conversation;
mod destination;
mod disk_end;
mod job;
mod report;
mod source;
mod watch;

use crate::print;
use anyhow::Result;
use args::CopyArgs;
use std::io::{self, Write};

/// Runs the command.
///
/// # Errors
/// When the destination is not what it should be; it is what it was then, unless it is written in place.
pub fn run(args: &CopyArgs) -> Result<()> {
    let mut options = args.options()?;
    let report = job::copy(&mut options)?;
    if options.json {
        print(&serde_json::to_string(&report)?)?;
    } else {
        print(&report.summary(&options))?;
    }
    if options.stats {
        // Nobody is there to be told that stderr is closed.
        let _ = io::stderr().write_all(report.statistics().as_bytes());
    }
    Ok(())
}
