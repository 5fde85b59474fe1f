//! Whom the work on an image tells and asks.

use crate::Key;
use crate::error::Result;
use std::io::Write;

/// Whom the work on an image tells what is no failure, asks for what only people know, and who may end it. Whoever does
/// not care has nothing to implement: nobody is told, nobody is asked, nothing ends.
pub trait Watch: Send + Sync {
    /// Something is worth knowing, though all goes on: a sentence. What an image has put into it is made harmless for a
    /// terminal.
    fn note(&self, sentence: &str) {
        let _ = sentence;
    }

    /// Why what is under way shall end, if it shall: in words such as `Ctrl-C (SIGINT)`. It is asked all the time.
    fn ends(&self) -> Option<String> {
        None
    }

    /// How far something has come that is done to an image as a whole ([`crate::whole`]): when it is converted,
    /// compared, committed or rebased. What is done with files in an image does not say how far it has come.
    fn progress(&self, progress: &Progress) {
        let _ = progress;
    }

    /// Whether there is somebody to ask for a passphrase.
    fn can_ask(&self) -> bool {
        false
    }

    /// A passphrase, in answer to `question`; an empty one leaves the volume closed. `None`: there is nobody to ask.
    ///
    /// # Errors
    /// When asking fails, or somebody wants the end.
    fn passphrase(&self, question: &str) -> Result<Option<Key>> {
        let _ = question;
        Ok(None)
    }

    /// Where the appliance's kernel writes what it says; `None`: nowhere.
    fn console(&self) -> Option<Box<dyn Write + Send>> {
        None
    }
}

/// How far something has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes that are done.
    pub done_bytes: u64,
    /// Those of them that were data.
    pub data_bytes: u64,
    /// Bytes in all.
    pub length_bytes: u64,
}

/// Nobody: nothing is told, nothing asked, nothing ended.
#[derive(Clone, Copy, Debug, Default)]
pub struct Nobody;

impl Watch for Nobody {}
