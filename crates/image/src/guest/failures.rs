//! What could not be done, as sentences.

use crate::error::{Error, Result};
use blockyard_block::{Remedy, printable};
use blockyard_protocol::appliance::{Failure, MAY_BE_DAMAGED, MAY_BE_DAMAGED_FSCK};
use rustix::io::Errno;
use std::io;

/// What numbers errors have (linux/err.h): the appliance may say others.
const ERRNOS: std::ops::RangeInclusive<i32> = 1..=4095;

/// Failures as sentences, one a line.
pub fn sentences(failures: &[Failure]) -> String {
    failures.iter().map(sentence).collect::<Vec<_>>().join("\nblockyard: ")
}

/// Failures that are told one by one.
const TOLD_MAX: usize = 16;

/// The first few of `lines`, and how many more of all `count` there are.
pub(crate) fn first_few(lines: impl IntoIterator<Item = String>, count: u64) -> Vec<String> {
    let mut told: Vec<_> = lines.into_iter().take(TOLD_MAX).collect();
    let more = count.saturating_sub(told.len() as u64);
    if more > 0 {
        told.push(format!("{more} more failures"));
    }
    told
}

/// Does something with each, also when it failed with one before, unless the appliance is of no more use.
///
/// # Errors
/// A line for each of the first few failures.
pub(crate) fn each<T>(items: impl IntoIterator<Item = T>, mut act: impl FnMut(T) -> Result<()>) -> Result<()> {
    let mut failed: Vec<Error> = Vec::new();
    for item in items {
        if let Err(error) = act(item) {
            let is_the_end = error.appliance().is_some();
            failed.push(error);
            if is_the_end {
                break;
            }
        }
    }
    let Some(last) = failed.pop() else { return Ok(()) };
    if failed.is_empty() {
        return Err(last);
    }
    let lines = first_few(failed.iter().map(Error::in_one_line), failed.len() as u64);
    // What it is the context of comes after a colon, in a line of its own.
    Err(last.context(format!("{}\nblockyard", lines.join("\nblockyard: "))))
}

/// A failure as a sentence.
pub(crate) fn sentence(failure: &Failure) -> String {
    let path = printable(&String::from_utf8_lossy(&failure.path));
    let what = printable(&failure.sentence);
    let subject = if path.is_empty() { what } else { format!("{path}: {what}") };
    match errno(failure) {
        None => subject,
        Some(errno @ Errno::NOMEM) => {
            format!("{subject}: {} ({})", error_text(errno.raw_os_error()), Remedy::MoreMemory)
        }
        Some(errno @ (Errno::NOSPC | Errno::DQUOT)) => {
            let text = error_text(errno.raw_os_error());
            format!("{subject}: {text} (in the image's file system: free some there, or make it larger)")
        }
        Some(errno) => format!("{subject}: {}", error_text(errno.raw_os_error())),
    }
}

/// A failure that came of a disk's own, as a sentence: nothing has to be damaged for that.
pub(crate) fn consequence(failure: &Failure) -> String {
    let said = sentence(failure);
    [MAY_BE_DAMAGED_FSCK, MAY_BE_DAMAGED].iter().fold(said, |said, suspicion| said.replacen(suspicion, "", 1))
}

/// A failure's error number, if it has one: the appliance may say anything.
pub fn errno(failure: &Failure) -> Option<Errno> {
    let number = i32::try_from(failure.errno).ok().filter(|number| ERRNOS.contains(number))?;
    Some(Errno::from_raw_os_error(number))
}

/// What an error's number means.
pub fn error_text(errno: i32) -> String {
    let text = io::Error::from_raw_os_error(errno).to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}
