//! `blockyard copy`: a disk goes through a virtual machine.
//!
//! [`args`] says what is wanted, [`source`] and [`destination`] open both ends, [`job`] builds the machine and runs it,
//! [`conversation`] is what is said over COM1, [`watch`] follows the guest, [`report`] says what it cost.

pub mod args;
mod conversation;
mod destination;
mod disk_end;
mod job;
mod report;
mod source;
mod watch;

use anyhow::Result;
use args::CopyArgs;
use blockyard_command_line::terminal::{self, print};

/// Runs the command.
///
/// # Errors
/// When the destination is not what it should be; it is what it was then, unless it is written in place.
pub fn run(args: &CopyArgs) -> Result<()> {
    let mut options = args.options()?;
    let report = job::copy(&mut options)?;
    if options.json {
        print(&terminal::json(&report)?)?;
    } else {
        print(&report.summary(&options))?;
    }
    if options.stats {
        terminal::tell(report.statistics().trim_end());
    }
    Ok(())
}
