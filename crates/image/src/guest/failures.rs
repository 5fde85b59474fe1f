//! What could not be done, as sentences.

use blockyard_block::printable;
use blockyard_protocol::appliance::Failure;
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
pub fn first_few(lines: impl IntoIterator<Item = String>, count: u64) -> Vec<String> {
    let mut told: Vec<_> = lines.into_iter().take(TOLD_MAX).collect();
    let more = count.saturating_sub(told.len() as u64);
    if more > 0 {
        told.push(format!("{more} more failures"));
    }
    told
}

/// A failure as a sentence.
pub(crate) fn sentence(failure: &Failure) -> String {
    let path = printable(&String::from_utf8_lossy(&failure.path));
    let what = printable(&failure.sentence);
    let subject = if path.is_empty() { what } else { format!("{path}: {what}") };
    match errno(failure) {
        None => subject,
        Some(errno @ Errno::NOMEM) => {
            format!("{subject}: {} (--memory gives the appliance more)", error_text(errno.raw_os_error()))
        }
        Some(errno) => format!("{subject}: {}", error_text(errno.raw_os_error())),
    }
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
