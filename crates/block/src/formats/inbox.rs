//! Jobs that queues leave for threads of an image's own.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Taken in the order in which they came, until it is closed.
pub(super) struct Inbox<J> {
    state: Mutex<State<J>>,
    arrived: Condvar,
}

struct State<J> {
    jobs: VecDeque<J>,
    is_closed: bool,
    is_woken: bool,
}

impl<J> Default for Inbox<J> {
    fn default() -> Self {
        Self {
            state: Mutex::new(State { jobs: VecDeque::new(), is_closed: false, is_woken: false }),
            arrived: Condvar::new(),
        }
    }
}

impl<J> fmt::Debug for Inbox<J> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Inbox of {} jobs", self.state().jobs.len())
    }
}

impl<J> Inbox<J> {
    pub(super) fn put(&self, job: J) {
        self.state().jobs.push_back(job);
        self.arrived.notify_one();
    }

    /// What is there is still taken, and nothing comes any more.
    pub(super) fn close(&self) {
        self.state().is_closed = true;
        self.arrived.notify_all();
    }

    /// Has whoever waits for [some](Inbox::some) jobs, or does next, go on without.
    pub(super) fn wake(&self) {
        self.state().is_woken = true;
        self.arrived.notify_one();
    }

    /// Waits for a job; `None` when there will be none.
    pub(super) fn next(&self) -> Option<J> {
        self.wait(None).jobs.pop_front()
    }

    /// Takes the jobs that are there, at most so many, or waits for some, if `pause` is given only that long. `None`
    /// when there will be none.
    pub(super) fn some(&self, most: usize, pause: Option<Duration>, batch: &mut Vec<J>) -> Option<()> {
        let mut state = self.wait(pause);
        if state.jobs.is_empty() && state.is_closed {
            return None;
        }
        state.is_woken = false;
        let count = state.jobs.len().min(most);
        batch.extend(state.jobs.drain(..count));
        Some(())
    }

    fn wait(&self, pause: Option<Duration>) -> MutexGuard<'_, State<J>> {
        let is_idle = |state: &mut State<J>| state.jobs.is_empty() && !state.is_closed && !state.is_woken;
        let state = self.state();
        match pause {
            None => self.arrived.wait_while(state, is_idle).unwrap_or_else(PoisonError::into_inner),
            Some(pause) => {
                let waited = self.arrived.wait_timeout_while(state, pause, is_idle);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State<J>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
