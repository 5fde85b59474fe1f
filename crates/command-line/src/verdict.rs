//! What a command found, where that is its exit status.

/// It was said, and this is the exit status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("exit status {0}")]
pub struct Verdict(pub u8);

/// An error with an exit status of its own.
#[derive(Debug, thiserror::Error)]
#[error("{error:#}")]
pub struct EndsWith {
    /// The exit status.
    pub status: u8,
    /// What went wrong.
    pub error: anyhow::Error,
}
