//! A queue of a session on a virtqueue that others use, too.
//!
//! It has memory and an event of its own, and no thread. What it pushes waits with it until it submits: a batch takes
//! the lock of the virtqueue once, and nothing is allocated.

use super::error::SessionError;
use super::keeper::Keeper;
use super::link::LentMemory;
use super::queue::drain_for_drop;
use super::shared_vring::{SharedVring, User, Waiting};
use blockyard_block::{Completion, MemoryMap, Queue, QueueError, Request, one_event, wait_readable};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// A user of a [`SharedVring`].
pub(super) struct SharedQueue {
    vring: Arc<SharedVring>,
    index: usize,
    depth: usize,
    in_flight: usize,
    /// What was pushed and not submitted, and what the next requests are put in.
    pushed: Vec<Waiting>,
    spare: Vec<Waiting>,
    /// Readable when the virtqueue's event is, or the user's own.
    event: OwnedFd,
    memory: Option<LentMemory>,
    // Last: it may be the last that keeps the session.
    keeper: Arc<Keeper>,
}

impl SharedQueue {
    /// Another user of the virtqueue, which is open. Its door is held.
    pub(super) fn join(
        vring: &Arc<SharedVring>,
        keeper: &Arc<Keeper>,
        memory: &MemoryMap,
        depth: usize,
    ) -> Result<Self, SessionError> {
        let os = |error| SessionError::Os { socket: Arc::clone(&keeper.link.name), error };
        let user = User::new(depth).map_err(os)?;
        // The door is held: it stays open.
        let gone = || SessionError::Away(Arc::clone(&keeper.link.name));
        let event = {
            let state = vring.state();
            let inner = state.as_ref().ok_or_else(gone)?.queue().completion_event();
            one_event([user.event().as_fd()].into_iter().chain(inner)).map_err(os)?
        };
        // Others go on meanwhile.
        let lent = keeper.link.lend_memory(memory)?;
        let mut state = vring.state();
        let shared = state.as_mut().ok_or_else(gone)?;
        let index = shared.transfers().add_memory(memory, lent.addresses.as_deref());
        shared.insert(index, user);
        drop(state);
        Ok(Self {
            vring: Arc::clone(vring),
            index,
            depth,
            in_flight: 0,
            pushed: Vec::with_capacity(depth),
            spare: (0..depth).map(|_| Waiting::new()).collect(),
            event,
            memory: Some(lent),
            keeper: Arc::clone(keeper),
        })
    }
}

impl Queue for SharedQueue {
    fn depth(&self) -> usize {
        self.depth
    }

    fn in_flight(&self) -> usize {
        self.in_flight
    }

    fn push(&mut self, request: &Request<'_>) -> Result<(), QueueError> {
        if self.in_flight == self.depth {
            return Err(QueueError::Full);
        }
        self.in_flight += 1;
        // There are as many as requests can be in flight.
        let mut waiting = self.spare.pop().unwrap_or_else(Waiting::new);
        waiting.set(request);
        self.pushed.push(waiting);
        Ok(())
    }

    fn submit(&mut self) -> io::Result<()> {
        let mut state = self.vring.state();
        let Some(shared) = state.as_mut() else { return Ok(()) };
        if let Some(user) = shared.user(self.index) {
            user.backlog.extend(self.pushed.drain(..));
        }
        let handed_over = shared.hand_over();
        if let Some(user) = shared.user(self.index) {
            self.spare.append(&mut user.used_up);
        }
        handed_over
    }

    fn reap(&mut self, completions: &mut Vec<Completion>) {
        let before = completions.len();
        let mut state = self.vring.state();
        let Some(shared) = state.as_mut() else { return };
        shared.reap(self.index, completions);
        self.in_flight -= completions.len() - before;
        if let Some(user) = shared.user(self.index) {
            self.spare.append(&mut user.used_up);
        }
    }

    fn completion_event(&self) -> Option<BorrowedFd<'_>> {
        if let Some(shared) = self.vring.state().as_mut() {
            shared.ask(self.index);
        }
        Some(self.event.as_fd())
    }

    /// Sleeps at once: looking at the virtqueue would keep others from it.
    fn wait(&mut self, events: &[BorrowedFd<'_>], timeout: Option<Duration>) -> io::Result<()> {
        match self.vring.state().as_mut() {
            Some(shared) if !shared.is_ready(self.index) => shared.ask(self.index),
            _ => return Ok(()),
        }
        self.keeper.link.options.count_calls(1);
        wait_readable(Some(self.event.as_fd()), events, timeout).map(drop)
    }
}

impl Drop for SharedQueue {
    fn drop(&mut self) {
        let keeper = Arc::clone(&self.keeper);
        drain_for_drop(self, &keeper.link);
        let _door = self.vring.door();
        let mut state = self.vring.state();
        let (mut is_drained, mut is_last) = (true, true);
        if let Some(shared) = state.as_mut() {
            // A ring of the next server's that was not heard of yet is one in which nothing of this queue is.
            is_drained = shared.leave(self.index) || self.keeper.link.connection().is_none();
            is_last = shared.is_unused();
        }
        // It drains what it owes to others that are gone, which may take a while.
        let last = state.take_if(|_| is_last);
        drop(state);
        if let Some(memory) = self.memory.take() {
            self.keeper.link.take_memory(memory, is_drained);
        }
        drop(last);
    }
}
