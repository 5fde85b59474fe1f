//! The time that a machine may take (`--timeout`): from the command's beginning, which may have to look for a kernel
//! first, to its end.

use crate::Audience;
use anyhow::{Error, Result, bail};
use blockyard_image::{self as image, Key, Progress, Watch};
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// When a machine is stopped, if it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    timeout: Duration,
    /// `None`: never, or after the end of time.
    at: Option<Instant>,
}

impl Deadline {
    pub(crate) fn from_now(timeout: Option<Duration>) -> Self {
        let at = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        Self { timeout: timeout.unwrap_or_default(), at }
    }

    fn is_over(&self) -> bool {
        self.at.is_some_and(|at| Instant::now() >= at)
    }

    fn sentence(&self) -> String {
        format!("the machine was stopped after {} s, as --timeout says", self.timeout.as_secs_f64())
    }
}

/// An audience, and the time that it has.
pub(crate) struct Timed<'audience> {
    audience: &'audience dyn Audience,
    deadline: Deadline,
    /// Whether something was interrupted as the time was over.
    has_interrupted: Arc<AtomicBool>,
}

impl<'audience> Timed<'audience> {
    pub(crate) fn new(audience: &'audience dyn Audience, timeout: Option<Duration>) -> Self {
        Self { audience, deadline: Deadline::from_now(timeout), has_interrupted: Arc::default() }
    }

    /// Looks whether the machine is to go on.
    ///
    /// # Errors
    /// When a signal asks it to end, or its time is over.
    pub(crate) fn lets_go_on(&self) -> Result<()> {
        if let Some(signal) = self.audience.asks_to_end() {
            bail!("stopped by {signal}");
        }
        if self.deadline.is_over() {
            bail!(self.deadline.sentence());
        }
        Ok(())
    }

    /// What is to be said of a failure: of what was interrupted, why.
    pub(crate) fn explained(&self, error: Error) -> Error {
        if self.has_interrupted.load(Ordering::Relaxed) { Error::msg(self.deadline.sentence()) } else { error }
    }
}

impl Audience for Timed<'_> {
    fn asks_to_end(&self) -> Option<String> {
        self.audience.asks_to_end()
    }

    /// Whose time is over wants to end, too.
    fn watch(&self) -> Arc<dyn Watch> {
        let has_interrupted = Arc::clone(&self.has_interrupted);
        Arc::new(TimedWatch { watch: self.audience.watch(), deadline: self.deadline, has_interrupted })
    }

    fn kernel_argument(&self) -> &'static str {
        self.audience.kernel_argument()
    }
}

/// A watch, and the time that it has.
struct TimedWatch {
    watch: Arc<dyn Watch>,
    deadline: Deadline,
    has_interrupted: Arc<AtomicBool>,
}

impl Watch for TimedWatch {
    fn note(&self, sentence: &str) {
        self.watch.note(sentence);
    }

    fn ends(&self) -> Option<String> {
        self.watch.ends().or_else(|| {
            let is_over = self.deadline.is_over();
            self.has_interrupted.fetch_or(is_over, Ordering::Relaxed);
            is_over.then(|| "--timeout".to_owned())
        })
    }

    fn progress(&self, progress: &Progress) {
        self.watch.progress(progress);
    }

    fn can_ask(&self) -> bool {
        self.watch.can_ask()
    }

    fn passphrase(&self, question: &str) -> image::Result<Option<Key>> {
        self.watch.passphrase(question)
    }

    fn console(&self) -> Option<Box<dyn Write + Send>> {
        self.watch.console()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use blockyard_image::Nobody;

    struct Nowhere;

    impl Audience for Nowhere {
        fn asks_to_end(&self) -> Option<String> {
            None
        }

        fn watch(&self) -> Arc<dyn Watch> {
            Arc::new(Nobody)
        }

        fn kernel_argument(&self) -> &'static str {
            ""
        }
    }

    #[test]
    fn what_is_interrupted_at_the_end_of_the_time_says_so() {
        const SENTENCE: &str = "the machine was stopped after 0 s, as --timeout says";
        let explained = |timed: &Timed<'_>| timed.explained(Error::msg("interrupted")).to_string();
        let timed = Timed::new(&Nowhere, Some(Duration::ZERO));
        assert_eq!(timed.lets_go_on().unwrap_err().to_string(), SENTENCE);
        assert_eq!(explained(&timed), "interrupted");
        assert_eq!(timed.watch().ends().as_deref(), Some("--timeout"));
        assert_eq!(explained(&timed), SENTENCE);
        for timeout in [None, Some(Duration::MAX)] {
            let timed = Timed::new(&Nowhere, timeout);
            assert!(timed.lets_go_on().is_ok() && timed.watch().ends().is_none(), "{timeout:?}");
        }
    }
}
