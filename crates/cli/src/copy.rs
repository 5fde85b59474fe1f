//! `blockyard copy`: a disk goes through a virtual machine.
//!
//! [`args`] says what is wanted, [`report`] what it cost; the copy itself is `blockyard-copy`'s.

pub mod args;
mod report;

use anyhow::Result;
use args::CopyArgs;
use blockyard_command_line::disk;
use blockyard_command_line::failures::suggest_in_place;
use blockyard_command_line::progress::LateLine;
use blockyard_command_line::signals::EndSignals;
use blockyard_command_line::terminal::{self, print};
use blockyard_copy::Audience;
use std::cell::OnceCell;

/// Runs the command.
///
/// # Errors
/// When the destination is not what it should be; it is what it was then, unless it is written in place.
pub fn run(args: &CopyArgs) -> Result<()> {
    let options = args.options()?;
    let audience = AtTerminal { signals: EndSignals::catch()?, before: LateLine::new(), line: OnceCell::new() };
    let progress = |done_bytes, length_bytes| audience.before.set_bytes(done_bytes, length_bytes, done_bytes);
    let opens = options.open_options(&progress);
    disk::keep_unreadable();
    let report = blockyard_copy::copy(&options.plan, &opens, &audience).map_err(suggest_in_place)?;
    if options.json {
        print(&terminal::json(&report)?)?;
    } else {
        print(&report::summary(&report, &options.plan))?;
    }
    if options.stats {
        terminal::tell(report::statistics(&report).trim_end());
    }
    Ok(())
}

/// Somebody at a terminal.
struct AtTerminal {
    signals: EndSignals,
    /// While a compressed disk is read for its length, or unpacked.
    before: LateLine,
    /// Measures speed from when the guest begins.
    line: OnceCell<LateLine>,
}

impl AtTerminal {
    fn line(&self) -> &LateLine {
        self.line.get_or_init(|| {
            self.before.clear();
            LateLine::new()
        })
    }
}

impl Audience for AtTerminal {
    fn asks_to_end(&self) -> Option<String> {
        self.signals.name()
    }

    fn progress(&self, done_bytes: u64, length_bytes: u64, data_bytes: u64) {
        self.line().set_bytes(done_bytes, length_bytes, data_bytes);
    }

    fn debug(&self, line: &str) {
        self.line().suspend(|| terminal::tell(line));
    }

    fn is_done(&self) {
        self.line().clear();
    }
}
