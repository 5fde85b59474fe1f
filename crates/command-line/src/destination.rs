//! What is said of a destination that cannot be written.

use crate::failures;
use anyhow::anyhow;
use blockyard_block::ReplacementError;

/// An error of a command with -n: says that a mount point can be written in place.
pub fn suggest_in_place(error: impl Into<anyhow::Error>) -> anyhow::Error {
    let error = error.into();
    match failures::replacement(&error) {
        Some(ReplacementError::MountPoint(_)) => anyhow!("{error}, or write into it as it is, with -n"),
        _ => error,
    }
}
