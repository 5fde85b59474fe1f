//! Errors as sentences.
//!
//! In this project a message never repeats its source: whoever shows an error to a person shows its sources too, each
//! once. The command does so for whatever ends it; [`explain`] is for an error that goes into another message.

use crate::shown;
use std::error::Error;
use std::fmt::Write;
use std::io;
use std::path::Path;

/// The same error, said of the file at `path`, for what says only what the system said.
pub fn error_at(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", shown(path)))
}

/// What an error says, and each of its sources, with colons between.
pub fn explain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        // A string takes everything.
        let _ = write!(text, ": {source}");
        next = source.source();
    }
    text
}
