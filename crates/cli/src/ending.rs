//! How the process ends: exit status 0 for success, 1 for failure with one sentence on stderr, 2 for usage, 130 for
//! Ctrl-C.

use crate::image::NotComparable;
use blockyard_command_line::usage_error::{UsageError, UsageLines};
use blockyard_command_line::verdict::{EndsWith, Verdict};
use blockyard_command_line::{disk, failures, signals, terminal};

/// What a shell makes of a program that SIGPIPE has ended, as most are whose reader goes.
const READER_GONE: u8 = 128 + 13;

/// Says what went wrong, and how the process ends.
pub fn end(error: &anyhow::Error) -> u8 {
    if let Some(&Verdict(status)) = error.downcast_ref() {
        return status;
    }
    if failures::is_unwanted(error) {
        return READER_GONE;
    }
    terminal::say(&disk::failure(error));
    if is_usage(error) {
        terminal::tell("For more information, try '--help'.");
    }
    match error.downcast_ref() {
        Some(&EndsWith { status, .. }) => status,
        None => signals::exit_status().unwrap_or(if is_two(error) { 2 } else { 1 }),
    }
}

/// Whether the exit status is 2: wrong usage, and what `image compare` could not compare.
fn is_two(error: &anyhow::Error) -> bool {
    is_usage(error) || error.is::<NotComparable>()
}

fn is_usage(error: &anyhow::Error) -> bool {
    error.is::<UsageError>() || error.is::<UsageLines>() || failures::is_usage(error)
}
