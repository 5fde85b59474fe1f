//! What a command's error came of.

use crate::terminal::OutputError;
use anyhow::anyhow;
use blockyard_block::ReplacementError;
use blockyard_image::{ApplianceError, Error, Needs};
use std::io;

/// The library's error that an error is, or came of.
fn of_image(error: &anyhow::Error) -> Option<&Error> {
    error.chain().find_map(|cause| cause.downcast_ref())
}

/// Whether whoever was to have the output has gone, which needs no word: it had enough.
pub fn is_unwanted(error: &anyhow::Error) -> bool {
    match of_image(error).map(Error::cause) {
        Some(Error::Output(error)) => error.kind() == io::ErrorKind::BrokenPipe,
        _ => error.downcast_ref().is_some_and(OutputError::is_unwanted),
    }
}

/// Whether what was asked for makes no sense.
pub fn is_usage(error: &anyhow::Error) -> bool {
    matches!(of_image(error).map(Error::cause), Some(Error::Usage(_)))
}

/// Why a file of the host's could not be made or replaced, if that is what it was.
pub fn replacement(error: &anyhow::Error) -> Option<&ReplacementError> {
    match error.downcast_ref() {
        Some(Error::Replacement(error)) => Some(error),
        _ => error.downcast_ref(),
    }
}

/// An error of a command with -n: says that what cannot be replaced can be written in place.
pub fn suggest_in_place(error: impl Into<anyhow::Error>) -> anyhow::Error {
    let error = error.into();
    match replacement(&error) {
        Some(ReplacementError::MountPoint(_) | ReplacementError::Sticky(_)) => {
            anyhow!("{error}, or write into it as it is, with -n")
        }
        _ => error,
    }
}

/// What ended an appliance, if that is what it was.
pub fn appliance(error: &anyhow::Error) -> Option<&ApplianceError> {
    of_image(error)?.appliance()
}

/// What the appliance has to have, if that is what it was.
pub fn needs(error: &anyhow::Error) -> Option<Needs> {
    of_image(error)?.needs()
}
