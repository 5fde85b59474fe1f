//! The engine without an engine: the caller's own thread.

use super::backing::Backing;
use super::job::Job;
use crate::wait::wait_readable;
use crate::{Completion, MemoryMap, Queue, QueueError, Request};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

/// Carries one request, and does it inside `submit`.
pub(super) struct SyncQueue {
    backing: Arc<Backing>,
    job: Job,
    state: State,
}

enum State {
    Free,
    Pushed,
    Done(Completion),
}

impl SyncQueue {
    pub(super) fn boxed(backing: &Arc<Backing>, memory: &MemoryMap) -> Box<dyn Queue> {
        let job = Job::new(&Arc::new(memory.clone()));
        Box::new(Self { backing: Arc::clone(backing), job, state: State::Free })
    }
}

impl Queue for SyncQueue {
    fn depth(&self) -> usize {
        1
    }

    fn in_flight(&self) -> usize {
        match self.state {
            State::Free => 0,
            State::Pushed | State::Done(_) => 1,
        }
    }

    fn push(&mut self, request: &Request<'_>) -> Result<(), QueueError> {
        if self.in_flight() > 0 {
            return Err(QueueError::Full);
        }
        self.job.begin(request, &self.backing);
        self.state = State::Pushed;
        Ok(())
    }

    fn submit(&mut self) -> io::Result<()> {
        if matches!(self.state, State::Pushed) {
            let result = self.job.run(&self.backing);
            self.state = State::Done(Completion { token: self.job.token, result });
        }
        Ok(())
    }

    fn reap(&mut self, completions: &mut Vec<Completion>) {
        if let State::Done(completion) = self.state {
            completions.push(completion);
            self.state = State::Free;
        }
    }

    fn completion_event(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn wait(&mut self, events: &[BorrowedFd<'_>], timeout: Option<Duration>) -> io::Result<()> {
        if matches!(self.state, State::Done(_)) {
            return Ok(());
        }
        wait_readable(None, events, timeout).map(drop)
    }
}

impl Drop for SyncQueue {
    fn drop(&mut self) {
        // Dropping a queue drains it; there is nobody left to tell how it went.
        let _ = self.submit();
    }
}
