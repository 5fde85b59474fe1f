//! What goes wrong while a request is carried out.

use blockyard_protocol::appliance::Failure;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Failures that a response has room for.
const REPORTED: usize = 16;
/// Longest path in a failure.
const PATH_BYTES: usize = 1024;

/// The failures of a request: the first few, and how many.
#[derive(Default)]
pub(crate) struct Failures {
    pub(crate) first: Vec<Failure>,
    pub(crate) count: u64,
}

impl Failures {
    pub(crate) fn add(&mut self, failure: Failure) {
        self.count += 1;
        if self.first.len() < REPORTED {
            self.first.push(failure);
        }
    }

    /// Remembers that something could not be done with a file.
    pub(crate) fn note(&mut self, path: &Path, what: &str, result: io::Result<()>) {
        if let Err(error) = result {
            self.add(failure(path, what, &error));
        }
    }
}

/// `what` could not be done with the file at `path`.
pub(crate) fn failure(path: &Path, what: &str, error: &io::Error) -> Failure {
    let bytes = path.as_os_str().as_bytes();
    let path = bytes[..bytes.len().min(PATH_BYTES)].to_vec();
    match error.raw_os_error() {
        Some(errno) => Failure { errno: errno as u32, path, sentence: what.to_owned() },
        None => Failure { errno: 0, path, sentence: format!("{what}: {error}") },
    }
}

/// A request cannot be carried out at all.
pub(crate) fn refusal(sentence: impl Into<String>) -> Failure {
    Failure { errno: 0, path: Vec::new(), sentence: sentence.into() }
}
