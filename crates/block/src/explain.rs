//! Errors as sentences.
//!
//! In this project a message never repeats its source: whoever shows an error to a person shows its sources too, each
//! once. The command does so for whatever ends it; [`explain`] is for an error that goes into another message.

use std::error::Error;
use std::fmt::Write;

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
