//! A virtqueue that several queues use, where the server has too few: whose requests go next, and whose completion is
//! whose.
//!
//! Nobody waits in here: whoever has the lock hands requests over, takes completions back, and goes. Completions of
//! others are put where they find them, so a user that does not reap is in nobody's way, and costs no more than its own
//! depth.

use super::queue::SessionQueue;
use super::transfers::Transfers;
use super::vring::lock;
use blockyard_block::{Completion, EventFd, Operation, Queue, Request, Segment};
use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd;
use std::sync::{Mutex, MutexGuard};

/// Requests that a shared virtqueue carries at once. The others wait with whoever they are of, and take turns.
pub(super) const SHARED_DEPTH: usize = 256;

/// How often a reap goes on while something comes. Whoever sleeps is woken for what is left.
const ROUNDS_MAX: u32 = 16;

/// The virtqueue of a session that is shared, if there is one.
#[derive(Default)]
pub(super) struct SharedVring {
    /// Held by those that come and go. Before the other, where both are.
    door: Mutex<()>,
    state: Mutex<Option<Shared>>,
}

impl SharedVring {
    /// Nobody else comes or goes meanwhile.
    pub(super) fn door(&self) -> MutexGuard<'_, ()> {
        lock(&self.door)
    }

    /// What there is. Not to be had while waiting for anything.
    pub(super) fn state(&self) -> MutexGuard<'_, Option<Shared>> {
        lock(&self.state)
    }
}

/// A request that has not been handed over yet.
pub(super) struct Waiting {
    operation: Operation,
    offset_bytes: u64,
    token: u64,
    segments: Vec<Segment>,
}

impl Waiting {
    pub(super) fn new() -> Self {
        Self { operation: Operation::Flush, offset_bytes: 0, token: 0, segments: Vec::with_capacity(8) }
    }

    pub(super) fn set(&mut self, request: &Request<'_>) {
        let Request { operation, offset_bytes, segments, token } = *request;
        self.segments.clear();
        self.segments.extend_from_slice(segments);
        *self = Self { operation, offset_bytes, token, segments: std::mem::take(&mut self.segments) };
    }
}

/// One that uses the virtqueue. It has as many requests as its depth says, so nothing of it grows.
pub(super) struct User {
    /// Submitted, and not handed over.
    pub(super) backlog: VecDeque<Waiting>,
    /// Those that were.
    pub(super) used_up: Vec<Waiting>,
    /// What it calls the requests that are on their way, by their numbers there, and which numbers are free.
    tokens: Box<[u64]>,
    free: Vec<u32>,
    mailbox: Vec<Completion>,
    /// Readable when something is in the mailbox that came while it slept, or may have.
    event: EventFd,
    is_rung: bool,
    /// Its last reap brought nothing: it may sleep.
    may_sleep: bool,
    /// It waits no longer for what the server owes it.
    is_gone: bool,
}

impl User {
    pub(super) fn new(depth: usize) -> io::Result<Self> {
        Ok(Self {
            backlog: VecDeque::with_capacity(depth),
            used_up: Vec::with_capacity(depth),
            tokens: vec![0; depth].into(),
            free: (0..depth as u32).rev().collect(),
            mailbox: Vec::with_capacity(depth),
            event: EventFd::new()?,
            is_rung: false,
            may_sleep: false,
            is_gone: false,
        })
    }

    pub(super) fn event(&self) -> impl AsFd {
        &self.event
    }

    /// Whether a request of it has not ended.
    fn is_owed(&self) -> bool {
        self.free.len() < self.tokens.len() || !self.backlog.is_empty()
    }

    fn wake(&mut self) {
        if !std::mem::replace(&mut self.is_rung, true) {
            self.event.ring();
        }
    }
}

/// A virtqueue and who uses it.
pub(super) struct Shared {
    queue: SessionQueue,
    /// By the numbers of their memory in [`Transfers`].
    users: Vec<Option<User>>,
    /// Who is next to hand a request over.
    turn: usize,
    completions: Vec<Completion>,
}

impl Shared {
    pub(super) fn new(queue: SessionQueue) -> Self {
        Self { queue, users: Vec::new(), turn: 0, completions: Vec::with_capacity(SHARED_DEPTH) }
    }

    pub(super) fn queue(&self) -> &SessionQueue {
        &self.queue
    }

    pub(super) fn transfers(&mut self) -> &mut Transfers {
        &mut self.queue.transfers
    }

    pub(super) fn insert(&mut self, index: usize, user: User) {
        if self.users.len() <= index {
            self.users.resize_with(index + 1, || None);
        }
        self.users[index] = Some(user);
    }

    pub(super) fn user(&mut self, index: usize) -> Option<&mut User> {
        self.users.get_mut(index)?.as_mut()
    }

    /// Whether nobody uses it any more.
    pub(super) fn is_unused(&self) -> bool {
        self.users.iter().flatten().all(|user| user.is_gone)
    }

    /// Hands over what was submitted, one request of each in turn, as long as there is room.
    pub(super) fn hand_over(&mut self) -> io::Result<()> {
        let (mut passed, mut has_any) = (0, false);
        while passed < self.users.len() && self.queue.in_flight() < self.queue.depth() {
            let index = self.turn % self.users.len();
            self.turn = index + 1;
            passed += 1;
            let Some(user) = &mut self.users[index] else { continue };
            let Some(number) = user.free.last().copied().filter(|_| !user.backlog.is_empty()) else { continue };
            let Some(waiting) = user.backlog.pop_front() else { continue };
            let Waiting { operation, offset_bytes, token, ref segments } = waiting;
            let known_as = (index as u64) << 32 | u64::from(number);
            // There is room.
            let _ = self.queue.push_of(index, &Request { operation, offset_bytes, segments, token: known_as });
            user.free.pop();
            user.tokens[number as usize] = token;
            user.used_up.push(waiting);
            (passed, has_any) = (0, true);
        }
        if has_any { self.queue.submit() } else { Ok(()) }
    }

    /// Puts completions where they belong.
    fn deliver(&mut self) {
        for Completion { token, result } in self.completions.drain(..) {
            let (index, number) = ((token >> 32) as usize, token as u32);
            let Some(user) = self.users.get_mut(index).and_then(Option::as_mut) else { continue };
            user.free.push(number);
            if !user.is_gone {
                user.mailbox.push(Completion { token: user.tokens[number as usize], result });
                if user.may_sleep {
                    user.wake();
                }
            } else if !user.is_owed() {
                self.queue.transfers.remove_memory(index);
                self.users[index] = None;
            }
        }
    }

    /// Appends the completions of a user.
    pub(super) fn reap(&mut self, index: usize, completions: &mut Vec<Completion>) {
        let before = completions.len();
        if let Some(user) = self.user(index) {
            user.may_sleep = false;
        }
        // While something comes, the server was not asked to ring, as others may need that.
        let is_for_others = (self.users.iter().enumerate())
            .any(|(other, user)| other != index && user.as_ref().is_some_and(User::is_owed));
        for _ in 0..ROUNDS_MAX {
            self.queue.reap(&mut self.completions);
            if self.completions.is_empty() {
                break;
            }
            self.deliver();
            // It cannot fail: what a virtqueue does not take ends the session.
            let _ = self.hand_over();
            if !is_for_others && self.user(index).is_none_or(|user| !user.mailbox.is_empty()) {
                break;
            }
        }
        let Some(user) = self.user(index) else { return };
        completions.append(&mut user.mailbox);
        if std::mem::take(&mut user.is_rung) {
            user.event.take();
        }
        user.may_sleep = completions.len() == before;
        if (user.may_sleep || is_for_others) && self.queue.is_ready() {
            self.queue.completion_event();
        }
    }

    /// Whether a reap of a user has something to do.
    pub(super) fn is_ready(&self, index: usize) -> bool {
        let user = self.users.get(index).and_then(Option::as_ref);
        self.queue.is_ready() || user.is_none_or(|user| !user.mailbox.is_empty())
    }

    /// Asks to be woken for a user that is about to sleep.
    pub(super) fn ask(&mut self, index: usize) {
        self.queue.completion_event();
        if let Some(user) = self.user(index) {
            user.may_sleep = true;
            if !user.mailbox.is_empty() {
                user.wake();
            }
        }
    }

    /// Forgets a user. Whether the server owes it nothing; otherwise it is not touched any more, and nobody is asked
    /// again for what is its.
    pub(super) fn leave(&mut self, index: usize) -> bool {
        let Some(user) = self.user(index) else { return true };
        user.backlog.clear();
        let is_drained = !user.is_owed();
        if is_drained {
            self.queue.transfers.remove_memory(index);
            self.users[index] = None;
        } else {
            user.is_gone = true;
            self.queue.transfers.abandon(index);
        }
        is_drained
    }
}
