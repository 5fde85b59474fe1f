//! What a long command tells, and what it listens to.

use crate::signals::EndSignals;
use anyhow::{Result, bail};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io;
use std::time::Duration;

/// A progress bar, if one is wanted, and the signals that end a command.
pub struct Watch {
    signals: EndSignals,
    bar: ProgressBar,
}

impl Watch {
    /// From now on, signals are caught. With `shows_progress`, a bar of `length_bytes` is drawn on stderr, if that is a terminal.
    ///
    /// # Errors
    /// When the system does not let us.
    pub fn new(shows_progress: bool, length_bytes: u64) -> Result<Self> {
        let signals = EndSignals::catch()?;
        let bar = ProgressBar::with_draw_target(Some(length_bytes), ProgressDrawTarget::hidden());
        if shows_progress {
            let style = "{bar:40} {percent:>3} %  {bytes}/{total_bytes}  {bytes_per_sec}  {eta} left";
            bar.set_style(ProgressStyle::with_template(style)?);
            bar.set_draw_target(ProgressDrawTarget::stderr());
            bar.enable_steady_tick(Duration::from_millis(500));
        }
        Ok(Self { signals, bar })
    }

    /// Takes note of how far it is; false when the command is to end.
    pub fn goes_on(&self, done_bytes: u64) -> bool {
        self.bar.set_position(done_bytes);
        self.signals.name().is_none()
    }

    /// Why something that asked [`Watch::goes_on`] has failed: the signal, if it was told to end; else `failed`, and `error`.
    pub fn why(&self, error: io::Error, failed: String) -> anyhow::Error {
        match error.kind() {
            io::ErrorKind::Interrupted => self.check().err().unwrap_or_else(|| error.into()),
            _ => anyhow::Error::from(error).context(failed),
        }
    }

    /// Fails when the command is to end.
    ///
    /// # Errors
    /// The signal's name.
    pub fn check(&self) -> Result<()> {
        match self.signals.name() {
            Some(signal) => bail!("stopped by {signal}"),
            None => Ok(()),
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
