//! What a command found, where that is its exit status.

/// It was said, and this is the exit status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("exit status {0}")]
pub struct Verdict(pub u8);

impl Verdict {
    /// That of a program which a signal has ended, as shells have it.
    pub fn of_signal(signal: u32) -> Self {
        Self(u8::try_from(signal).unwrap_or(127).saturating_add(128))
    }
}

/// An error with an exit status of its own.
#[derive(Debug, thiserror::Error)]
#[error("{error:#}")]
pub struct EndsWith {
    /// The exit status.
    pub status: u8,
    /// What went wrong.
    pub error: anyhow::Error,
}
