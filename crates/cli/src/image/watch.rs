//! What a long command tells, and what it listens to.

use crate::progress::Line;
use crate::signals::EndSignals;
use anyhow::{Result, bail};
use std::io;

/// A progress bar, if one is wanted, and the signals that end a command.
pub struct Watch {
    signals: EndSignals,
    line: Line,
    length_bytes: u64,
}

impl Watch {
    /// From now on, signals are caught. With `shows_progress`, a bar of `length_bytes` is drawn on stderr, if that is a terminal.
    ///
    /// # Errors
    /// When the system does not let us.
    pub fn new(shows_progress: bool, length_bytes: u64) -> Result<Self> {
        let (signals, line) = (EndSignals::catch()?, Line::new());
        if shows_progress {
            line.show();
        }
        Ok(Self { signals, line, length_bytes })
    }

    /// Takes note of how far it is, and how much of what is done was data; false when the command is to end.
    pub fn goes_on(&self, done_bytes: u64, data_bytes: u64) -> bool {
        self.line.set_bytes(done_bytes, self.length_bytes, data_bytes);
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
