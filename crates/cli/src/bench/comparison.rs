//! What the measurements beside guestfish share: their options, their bar.

use anyhow::{Context, Result, bail};
use blockyard_bench::guestfish::Guestfish;
use blockyard_command_line::progress::Line;
use blockyard_command_line::signals::EndSignals;
use blockyard_command_line::terminal::print;
use blockyard_vmm::backend;
use clap::Args;
use std::ops::ControlFlow;
use std::path::PathBuf;

/// Options of every measurement beside guestfish.
#[derive(Args, Debug)]
pub struct ComparisonArgs {
    /// Directory for images and data.
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub directory: PathBuf,
    /// Leave guestfish out, though it is installed.
    #[arg(long)]
    no_guestfish: bool,
    /// Print one JSON object, every measurement in it, instead of a table.
    #[arg(long)]
    pub json: bool,
}

impl ComparisonArgs {
    /// guestfish, if it is installed and wanted.
    pub fn guestfish(&self) -> Option<Guestfish> {
        // What `auto` takes is what executes guest code natively.
        let has_kvm = || backend::report().iter().any(|report| report.name == "kvm" && report.chosen);
        if self.no_guestfish { None } else { Guestfish::find(has_kvm()) }
    }
}

/// This program's own file.
///
/// # Errors
/// When the system does not say.
pub fn this_program() -> Result<PathBuf> {
    std::env::current_exe().context("finding this program's own file")
}

/// A bar on stderr, if that is a terminal, and the signals that end a measurement.
pub struct Progress {
    line: Line,
    signals: EndSignals,
    /// What is drawn.
    shown: Option<(usize, String)>,
}

impl Progress {
    /// Nothing is done yet.
    ///
    /// # Errors
    /// When signals cannot be caught.
    pub fn start() -> Result<Self> {
        let line = Line::hidden();
        line.show();
        Ok(Self { line, signals: EndSignals::catch()?, shown: None })
    }

    /// So much is done, and this is next; whether to go on. May be asked often: what is drawn is not drawn again, which
    /// would take time from what is measured.
    pub fn show(&mut self, done: usize, count: usize, next: &str) -> ControlFlow<()> {
        if self.shown.as_ref().is_none_or(|(drawn, name)| (*drawn, &**name) != (done, next)) {
            self.line.set_count(done, count, next);
            self.shown = Some((done, next.to_owned()));
        }
        if self.signals.name().is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// Prints what was measured.
    ///
    /// # Errors
    /// When stdout takes no more, or a signal has ended it.
    pub fn finish(self, text: &str) -> Result<()> {
        self.line.clear();
        print(text.trim_end())?;
        match self.signals.name() {
            Some(name) => bail!("stopped by {name}"),
            None => Ok(()),
        }
    }
}
