//! How the process ends: exit status 0 for success, 1 for failure with one sentence on stderr, 2 for usage, 130 for
//! Ctrl-C.

use crate::usage_error::{UsageError, UsageLines};
use crate::{image, signals, terminal};

/// What a shell makes of a program that SIGPIPE has ended, as most are whose reader goes.
const READER_GONE: u8 = 128 + 13;

/// Says what went wrong, and how the process ends.
pub fn end(error: &anyhow::Error) -> u8 {
    if let Some(&image::Verdict(status)) = error.downcast_ref() {
        return status;
    }
    if image::failures::is_unwanted(error) {
        return READER_GONE;
    }
    terminal::say(&format!("{error:#}"));
    if is_usage(error) {
        terminal::tell("For more information, try '--help'.");
    }
    match error.downcast_ref() {
        Some(&image::EndsWith { status, .. }) => status,
        None => signals::exit_status().unwrap_or(if is_two(error) { 2 } else { 1 }),
    }
}

/// Whether the exit status is 2: wrong usage, and what `image compare` could not compare.
fn is_two(error: &anyhow::Error) -> bool {
    is_usage(error) || error.is::<image::NotComparable>()
}

fn is_usage(error: &anyhow::Error) -> bool {
    error.is::<UsageError>() || error.is::<UsageLines>() || image::failures::is_usage(error)
}
