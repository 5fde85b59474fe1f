//! What a command found, where that is its exit status.

/// It was said, and this is the exit status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("exit status {0}")]
pub struct Verdict(pub u8);
