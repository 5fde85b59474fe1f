//! Requests that a program does not wait for (POSIX AIO), of one process on one disk.
//!
//! Nobody works for them in the background: whoever asks how they stand, waits for one or makes another, takes back
//! what the disk has done. A thread of this library's own does so only for as long as somebody wants to be told.
//!
//! The program's control block has the result, as glibc's has: so it is there for whoever looks, and it does not matter
//! which library a request was made with.

mod state;

use crate::connection::Connection;
use crate::control_block::{ControlBlock, Notice};
use crate::errno::Errno;
use crate::signals::is_one_waiting;
use crate::users::UnderWay;
use blockyard_block::EventFd;
use libc::c_int;
use state::State;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Instant;

/// Requests of a descriptor that are under way, at most.
pub(crate) const JOBS_MAX: usize = 1024;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Read,
    Write {
        stable: bool,
        /// Behind the end, wherever the block says.
        appends: bool,
    },
    /// Once all that was asked for before is done, it is stable.
    Flush,
}

/// A request.
pub(crate) struct Wanted {
    pub(crate) block: ControlBlock,
    pub(crate) kind: Kind,
    pub(crate) descriptor: c_int,
    /// Until it is done.
    pub(crate) under_way: UnderWay,
}

/// Requests of a list, after which somebody wants to be told.
pub(crate) struct Group {
    left: AtomicUsize,
    notice: Notice,
}

impl Group {
    /// One of so many requests.
    pub(crate) fn new(count: usize, notice: Notice) -> Self {
        Self { left: AtomicUsize::new(count), notice }
    }

    /// One of them is done, or was never made.
    pub(crate) fn one_less(&self) {
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.notice.give();
        }
    }
}

/// A disk's requests.
pub(crate) struct Requests {
    state: Mutex<State>,
    /// As the state has them.
    under_way: AtomicUsize,
    told: AtomicUsize,
    /// Threads that are about to make such after which somebody is told.
    expected: AtomicUsize,
    /// Threads that want the state while another waits with it, and what wakes that.
    wanted: AtomicUsize,
    interrupt: EventFd,
}

impl Requests {
    pub(crate) fn new(connection: &Connection) -> std::io::Result<Self> {
        let state = State::new(connection)?;
        let (under_way, told, expected, wanted) = Default::default();
        Ok(Self { state: Mutex::new(state), under_way, told, expected, wanted, interrupt: EventFd::guarded()? })
    }

    /// The state, from whoever waits with it.
    fn state(&self) -> MutexGuard<'_, State> {
        match self.state.try_lock() {
            Ok(state) => return state,
            Err(TryLockError::Poisoned(error)) => return error.into_inner(),
            Err(TryLockError::WouldBlock) => {}
        }
        self.wanted.fetch_add(1, Ordering::AcqRel);
        self.interrupt.ring();
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if self.wanted.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.interrupt.take();
        }
        state
    }

    /// Makes requests, all of which the disk is told of at once. Those that there is no room for are not made, and end
    /// with EAGAIN: how many.
    pub(crate) fn make(
        &self,
        connection: &Connection,
        requests: impl Iterator<Item = Wanted>,
        group: Option<&Arc<Group>>,
    ) -> usize {
        let mut state = self.state();
        let mut refused = 0;
        for wanted in requests {
            let block = wanted.block;
            if state.free_slots.is_empty() || !state.has_room_for(wanted.descriptor) {
                state.take_back(connection);
            }
            match state.begin(connection, wanted, group) {
                Ok(true) => {}
                // It is done already.
                Ok(false) => group.into_iter().for_each(|group| group.one_less()),
                Err(error) => {
                    block.refuse(error);
                    refused += 1;
                }
            }
        }
        state.go_on(connection);
        let _ = state.queue.submit();
        self.tell(&state);
        refused
    }

    /// Takes back what is done, unless another thread is at it.
    pub(crate) fn look(&self, connection: &Connection) {
        if self.under_way.load(Ordering::Relaxed) > 0
            && let Ok(mut state) = self.state.try_lock()
        {
            state.take_back(connection);
            self.tell(&state);
        }
    }

    /// Tells those who have not the state how much is under way.
    fn tell(&self, state: &State) {
        self.under_way.store(state.under_way(), Ordering::Release);
        self.told.store(state.told, Ordering::Release);
    }

    /// Waits until `is_done`, which is asked whenever something was taken back, or `deadline`. Whether it is.
    pub(crate) fn wait(
        &self,
        connection: &Connection,
        deadline: Option<Instant>,
        is_done: impl Fn() -> bool,
    ) -> Result<bool, Errno> {
        loop {
            let mut state = self.state();
            state.take_back(connection);
            self.tell(&state);
            if is_done() {
                return Ok(true);
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(false);
            }
            if self.wanted.load(Ordering::Acquire) == 0 {
                let events: [BorrowedFd<'_>; 1] = [self.interrupt.as_fd()];
                state.queue.wait(&events, left)?;
            }
            drop(state);
            if is_one_waiting() {
                return Err(Errno(libc::EINTR));
            }
            // Whoever wants it gets it.
            while self.wanted.load(Ordering::Acquire) > 0 {
                std::thread::yield_now();
            }
        }
    }

    /// Whether anything is under way.
    pub(crate) fn is_busy(&self) -> bool {
        self.under_way.load(Ordering::Acquire) > 0
    }

    /// Whether somebody wants to be told of a request that is under way, or about to be.
    pub(crate) fn tells(&self) -> bool {
        self.told.load(Ordering::Acquire) + self.expected.load(Ordering::Acquire) > 0
    }

    /// Until it is dropped, requests are about to be made.
    pub(crate) fn expect(&self) -> Expected<'_> {
        self.expected.fetch_add(1, Ordering::AcqRel);
        Expected(self)
    }

    /// Whether a request of a descriptor's is under way.
    pub(crate) fn has_of(&self, descriptor: c_int) -> bool {
        self.state().has_of(descriptor)
    }
}

/// Requests after which somebody is to be told, until they are made.
pub(crate) struct Expected<'requests>(&'requests Requests);

impl Drop for Expected<'_> {
    fn drop(&mut self) {
        self.0.expected.fetch_sub(1, Ordering::AcqRel);
        if !self.0.tells() {
            // Whoever waits to tell looks whether there is anything to be told at all.
            drop(self.0.state());
        }
    }
}
