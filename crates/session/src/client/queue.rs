//! A queue of a session: a virtqueue that belongs to one thread.

use super::completion_event::{Asked, COALESCE_MIN, COALESCE_TIME, CompletionEvent};
use super::error::SessionError;
use super::keeper::Keeper;
use super::link::{Link, Opened};
use super::offer::Offer;
use super::spin::Spin;
use super::transfers::Transfers;
use super::vring::Vring;
use blockyard_block::EventFd;
use blockyard_block::{Completion, Queue, QueueError, Request, RequestError, Woken, wait_readable};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// What requests end with that no server can be asked any more: it may never have had them.
pub const SESSION_ENDED: RequestError = RequestError::Os(libc::ENOTCONN);
/// How often a reap looks again when something came while it asked to be told.
const LOOKS_MAX: u32 = 3;
/// How often a drop looks whether the server still gets on.
const DRAIN_STEP: Duration = Duration::from_millis(100);
/// How often a wait looks whether the session has ended, in a program that may have closed what would say so.
const GUEST_LOOK: Duration = Duration::from_secs(1);

/// A queue of a session.
pub(super) struct SessionQueue {
    pub(super) transfers: Transfers,
    vring: Arc<Vring>,
    kick: Arc<EventFd>,
    /// What was heard of the session so far.
    epoch: u32,
    event: CompletionEvent,
    spin: Spin,
    /// Requests that ended where they were pushed: those before `submitted` may be reaped.
    ended: Vec<Completion>,
    submitted: usize,
    /// The server broke the ring. Nothing more is read from it; the session ends, or has another.
    broken: bool,
    /// The session has ended.
    over: bool,
    /// The program that this is in has closed the queue's descriptors: their numbers may be other files' by now, and
    /// the queue is at its end.
    closed: bool,
    // Last: it may be the last that keeps the session.
    keeper: Arc<Keeper>,
}

impl SessionQueue {
    /// A queue of the virtqueue that was opened, of nobody's memory yet.
    pub(super) fn new(keeper: &Arc<Keeper>, opened: Opened, offer: &Offer, depth: usize) -> Self {
        let Opened { vring, ring, kick, .. } = opened;
        let transfers = Transfers::new(ring, depth, keeper.link.geometry(), offer.limits);
        Self {
            transfers,
            kick,
            epoch: 0,
            event: CompletionEvent::new(),
            spin: Spin::new(keeper.link.options.poll),
            ended: Vec::with_capacity(depth),
            submitted: 0,
            broken: false,
            over: false,
            closed: false,
            vring,
            keeper: Arc::clone(keeper),
        }
    }

    /// Whether a reap has something to do. Reads shared memory at most twice.
    pub(super) fn is_ready(&self) -> bool {
        self.submitted > 0
            || (self.closed && !self.over)
            || (!self.broken && self.transfers.ring.has_used())
            || self.vring.epoch.load(Ordering::Acquire) != self.epoch
    }

    /// Asks the server to ring after `count` completions. Whether something came meanwhile.
    fn ask(&self, count: u16) -> bool {
        if self.event.take(&self.vring.call) {
            self.keeper.link.options.count_use();
        }
        self.event.asked.set(if count > 1 { Asked::Later } else { Asked::Next });
        let came = !self.broken && self.transfers.ring.enable_interrupt_after(count);
        came || self.is_ready()
    }

    /// Makes the event unreadable where nothing is to be waited for: whoever sleeps on it would not.
    fn forget_ring(&self) {
        if self.event.take(&self.vring.call) {
            self.keeper.link.options.count_use();
            // Of what has come meanwhile, nobody would hear.
            if self.is_ready() {
                self.event.ring(&self.vring.call);
            }
        }
    }

    /// Takes a request whose segments lie in one of the memories that [`Transfers`] knows.
    pub(super) fn push_of(&mut self, memory: usize, request: &Request<'_>) -> Result<(), QueueError> {
        if self.in_flight() == self.depth() {
            return Err(QueueError::Full);
        }
        if self.over {
            self.ended.push(Completion { token: request.token, result: Err(SESSION_ENDED) });
        } else {
            self.transfers.begin(memory, request, &mut self.ended);
        }
        Ok(())
    }

    /// Tells the server that there is something for it.
    fn kick(&mut self) {
        self.closed |= self.kick.try_ring().is_err();
        self.keeper.link.options.count_use();
    }

    /// Hears what happened to the session.
    fn follow(&mut self, completions: &mut Vec<Completion>) {
        if self.closed {
            self.broken = true;
            if !std::mem::replace(&mut self.over, true) {
                self.transfers.fail(SESSION_ENDED, completions);
            }
            return;
        }
        let epoch = self.vring.epoch.load(Ordering::Acquire);
        if epoch != self.epoch {
            self.follow_news(epoch, completions);
        }
    }

    #[cold]
    fn follow_news(&mut self, epoch: u32, completions: &mut Vec<Completion>) {
        self.epoch = epoch;
        self.event.rung.set(true);
        let news = self.vring.take_news();
        if let Some(geometry) = news.geometry {
            self.transfers.geometry = geometry;
        }
        if let Some(fresh) = news.fresh {
            // What the last server finished counts.
            if !self.broken {
                let _ = self.transfers.pop_all(completions);
            }
            self.transfers.replace_ring(fresh.ring, completions);
            self.kick = fresh.kick;
            self.broken = false;
            self.event.asked.set(Asked::Nothing);
            let _ = self.transfers.ring.publish();
            self.kick();
        }
        if news.ended {
            self.over = true;
            self.transfers.fail(SESSION_ENDED, completions);
        }
    }

    /// Takes back what the server has completed, and hands it what waited for room.
    fn take_used(&mut self, completions: &mut Vec<Completion>) {
        if self.broken || self.over {
            return;
        }
        if let Err(error) = self.transfers.pop_all(completions) {
            self.broken = true;
            let socket = Arc::clone(&self.keeper.link.name);
            self.keeper.link.give_up(&SessionError::Virtqueue { socket, error });
            return;
        }
        if self.transfers.pump(completions) && self.transfers.ring.publish() {
            self.kick();
        }
    }

    /// Looks for a while whether something comes.
    fn look(&mut self) -> bool {
        let mut spin = self.spin;
        let came = spin.look(|| self.is_ready());
        self.spin = spin;
        came
    }

    /// Sleeps until the server rings, for as long as the caller wants.
    fn sleep(&mut self, events: &[BorrowedFd<'_>], timeout: Option<Duration>) -> io::Result<Woken> {
        let in_flight = self.transfers.ring.in_flight();
        let mut left = timeout;
        if in_flight >= COALESCE_MIN {
            if self.ask(in_flight / 2) {
                return Ok(Woken::Own);
            }
            let first = left.map_or(COALESCE_TIME, |left| left.min(COALESCE_TIME));
            self.keeper.link.options.count_calls(1);
            match wait_readable(Some(self.vring.call.as_fd()), events, Some(first))? {
                Woken::Late => {}
                woken => return Ok(woken),
            }
            left = left.map(|left| left.saturating_sub(first));
        }
        if self.ask(1) {
            return Ok(Woken::Own);
        }
        // Who has lost the event hears of the session's end by looking.
        if self.keeper.link.options.is_guest {
            left = Some(left.map_or(GUEST_LOOK, |left| left.min(GUEST_LOOK)));
        }
        self.keeper.link.options.count_calls(1);
        wait_readable(Some(self.vring.call.as_fd()), events, left)
    }
}

/// Waits for all that the server owes a queue that is about to be dropped, as long as it gets on. Whether it owes
/// nothing.
pub(super) fn drain_for_drop(queue: &mut impl Queue, link: &Link) -> bool {
    let mut completions = Vec::with_capacity(queue.depth());
    let mut last = Instant::now();
    let _ = queue.submit();
    loop {
        queue.reap(&mut completions);
        if queue.in_flight() == 0 {
            return true;
        }
        if !completions.is_empty() {
            completions.clear();
            last = Instant::now();
        }
        // A server that is gone owes nothing.
        let gone = link.connection().is_none();
        if gone || last.elapsed() > link.options.patience {
            return gone;
        }
        if queue.wait(&[], Some(DRAIN_STEP)).is_err() {
            std::thread::sleep(DRAIN_STEP);
        }
    }
}

impl Queue for SessionQueue {
    fn depth(&self) -> usize {
        self.transfers.depth()
    }

    fn in_flight(&self) -> usize {
        self.transfers.in_flight() + self.ended.len()
    }

    fn push(&mut self, request: &Request<'_>) -> Result<(), QueueError> {
        self.push_of(0, request)
    }

    fn submit(&mut self) -> io::Result<()> {
        self.submitted = self.ended.len();
        self.vring.in_flight.store(self.transfers.in_flight(), Ordering::Relaxed);
        if self.transfers.ring.publish() {
            self.kick();
        }
        if self.submitted > 0 && !self.closed {
            self.event.ring(&self.vring.call);
        }
        Ok(())
    }

    fn reap(&mut self, completions: &mut Vec<Completion>) {
        let before = completions.len();
        self.follow(completions);
        completions.extend(self.ended.drain(..self.submitted));
        self.submitted = 0;
        for _ in 0..LOOKS_MAX {
            self.take_used(completions);
            if completions.len() > before {
                self.event.came();
                break;
            }
            if !self.event.is_held.get() {
                break;
            }
            if self.transfers.in_flight() == 0 || self.over {
                // Rings may come late, too.
                self.event.suspect();
                self.forget_ring();
                break;
            }
            if self.event.asked.get() == Asked::Next && !self.event.suspect() {
                break;
            }
            if !self.ask(1) {
                break;
            }
        }
        let reaped = (completions.len() - before) as u64;
        let completed = self.vring.completed.load(Ordering::Relaxed);
        self.vring.completed.store(completed.wrapping_add(reaped), Ordering::Relaxed);
        self.vring.in_flight.store(self.transfers.in_flight(), Ordering::Relaxed);
    }

    /// Polls readable when a completion may be ready. Take it anew before each wait for it: that is when the server is
    /// asked to ring.
    fn completion_event(&self) -> Option<BorrowedFd<'_>> {
        self.event.is_held.set(true);
        // Who comes again without a reap in between was woken by something else, or by a ring that came late.
        if self.event.asked.get() == Asked::Next {
            self.event.rung.set(true);
        }
        if self.ask(1) {
            self.event.ring(&self.vring.call);
        }
        Some(self.vring.call.as_fd())
    }

    /// Looks at the virtqueue for a while where that has paid lately, then sleeps.
    fn wait(&mut self, events: &[BorrowedFd<'_>], timeout: Option<Duration>) -> io::Result<()> {
        if self.is_ready() {
            return Ok(());
        }
        let looks = self.spin.may_pay() && self.transfers.ring.in_flight() > 0 && timeout != Some(Duration::ZERO);
        let start = looks.then(Instant::now);
        if looks && self.look() {
            return Ok(());
        }
        let woken = match self.sleep(events, timeout) {
            Ok(woken) => woken,
            Err(error) if error.raw_os_error() == Some(libc::EBADF) => {
                self.closed = true;
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        if woken == Woken::Own {
            self.event.came();
            // Whether it came from the server or from the session.
            self.event.rung.set(true);
        }
        if let Some(start) = start {
            self.spin.learn(woken == Woken::Own, start.elapsed());
        }
        Ok(())
    }
}

impl Drop for SessionQueue {
    fn drop(&mut self) {
        let keeper = Arc::clone(&self.keeper);
        let drained = drain_for_drop(self, &keeper.link);
        self.keeper.link.close_queue(self.vring.index, drained);
    }
}
