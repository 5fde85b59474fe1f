//! What goes wrong while a request is carried out.

use blockyard_protocol::appliance::{FRAME_BYTES_MAX, Failure};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Failures that a response has room for.
const REPORTED: usize = 16;
/// Longest path in a failure, and longest sentence: all of them fit a frame.
const PATH_BYTES: usize = 1024;
const SENTENCE_BYTES: usize = 2048;

const _: () = assert!(REPORTED * (PATH_BYTES + SENTENCE_BYTES + 64) < FRAME_BYTES_MAX);

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
            self.first.push(cut(failure));
        }
    }

    /// Remembers that something could not be done with the file at `path`, which is asked for only if there is room for
    /// it.
    pub(crate) fn note_at(&mut self, path: impl FnOnce() -> PathBuf, what: &str, error: &io::Error) {
        if self.first.len() < REPORTED {
            self.add(failure(&path(), what, error));
        } else {
            self.count += 1;
        }
    }

    /// Remembers that something could not be done with a file.
    pub(crate) fn note(&mut self, path: &Path, what: &str, result: io::Result<()>) {
        if let Err(error) = result {
            self.add(failure(path, what, &error));
        }
    }
}

/// A failure as short as it has to be: names in it are the image's.
fn cut(mut failure: Failure) -> Failure {
    failure.path.truncate(PATH_BYTES);
    failure.sentence.truncate(failure.sentence.floor_char_boundary(SENTENCE_BYTES));
    failure
}

/// `what` could not be done with the file at `path`.
pub(crate) fn failure(path: &Path, what: &str, error: &io::Error) -> Failure {
    let path = path.as_os_str().as_bytes().to_vec();
    cut(match error.raw_os_error() {
        Some(errno) => Failure { errno: errno as u32, path, sentence: what.to_owned() },
        None => Failure { errno: 0, path, sentence: format!("{what}: {error}") },
    })
}

/// A request cannot be carried out at all.
pub(crate) fn refusal(sentence: impl Into<String>) -> Failure {
    Failure { errno: 0, path: Vec::new(), sentence: sentence.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_fit_a_frame_whatever_the_images_names_are() {
        let mut failures = Failures::default();
        for _ in 0..100 {
            let (path, sentence) = (vec![b'x'; 100_000], "ü".repeat(100_000));
            failures.add(Failure { errno: 0, path, sentence });
        }
        let response = blockyard_protocol::appliance::Response {
            failures: failures.first,
            failed: failures.count,
            ..Default::default()
        };
        let mut buffer = vec![0; FRAME_BYTES_MAX];
        assert!(blockyard_protocol::appliance::encode(&response, &mut buffer).is_ok());
        assert_eq!((response.failed, response.failures.len()), (100, REPORTED));
    }
}
