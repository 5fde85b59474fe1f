//! A queue whose requests are carried out where they are pushed.

use crate::limits::checked_depth;
use crate::wait::wait_readable;
use crate::{Completion, Queue, QueueError, Request, RequestError};
use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// Carries each request out where it is pushed, and shows its completion once it is submitted.
pub(crate) struct ImmediateQueue<P> {
    perform: P,
    depth: usize,
    /// How many of `completions`, from the front, may be reaped.
    submitted: usize,
    completions: Vec<Completion>,
}

impl<P: FnMut(&Request<'_>) -> Result<(), RequestError> + Send + 'static> ImmediateQueue<P> {
    /// One that carries at most `depth` requests, and has `perform` carry them out.
    ///
    /// # Errors
    /// When it is to carry none.
    pub(crate) fn boxed(depth: usize, perform: P) -> io::Result<Box<dyn Queue>> {
        let depth = checked_depth(depth)?;
        Ok(Box::new(Self { perform, depth, submitted: 0, completions: Vec::with_capacity(depth) }))
    }
}

impl<P: FnMut(&Request<'_>) -> Result<(), RequestError> + Send> Queue for ImmediateQueue<P> {
    fn depth(&self) -> usize {
        self.depth
    }

    fn in_flight(&self) -> usize {
        self.completions.len()
    }

    fn push(&mut self, request: &Request<'_>) -> Result<(), QueueError> {
        if self.completions.len() == self.depth {
            return Err(QueueError::Full);
        }
        let result = (self.perform)(request);
        self.completions.push(Completion { token: request.token, result });
        Ok(())
    }

    fn submit(&mut self) -> io::Result<()> {
        self.submitted = self.completions.len();
        Ok(())
    }

    fn reap(&mut self, completions: &mut Vec<Completion>) {
        completions.extend(self.completions.drain(..self.submitted));
        self.submitted = 0;
    }

    fn completion_event(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn wait(&mut self, events: &[BorrowedFd<'_>], timeout: Option<Duration>) -> io::Result<()> {
        if self.submitted > 0 {
            return Ok(());
        }
        wait_readable(None, events, timeout).map(drop)
    }
}
