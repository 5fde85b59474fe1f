//! The threads that serve the queues of devices: virtqueues, and the ports of an AHCI controller.
//!
//! Queue n of every device goes to I/O thread n: a copy that reads and writes a buffer through queues of one number has
//! both done on one core, while the bytes are in its cache.

use crate::event::{EventSink, MachineEvent};
use crate::patience::Patience;
use crate::threads::{ThreadKind, Threads};
use blockyard_block::{EventFd, WakeUp};
use blockyard_devices::{IoQueue, Limit, QueueSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::{io, mem, thread};

/// A fixed number of threads, each owning the queues it was given.
pub struct IoThreads {
    threads: Vec<IoThread>,
}

struct IoThread {
    inbox: Arc<Inbox>,
    handle: JoinHandle<()>,
}

/// However an I/O thread ends, nobody waits for it or for a queue of it afterwards.
struct LastWords {
    inbox: Arc<Inbox>,
    events: EventSink,
    failure: Option<String>,
    index: usize,
}

impl Drop for LastWords {
    fn drop(&mut self) {
        if let Some(failure) = self.failure.take() {
            (self.events)(MachineEvent::IoFailed(format!("I/O thread {} {failure}", self.index)));
        }
        *self.inbox.lock() = None;
    }
}

/// How the rest of the machine reaches an I/O thread.
struct Inbox {
    event: EventFd,
    /// Queues that wait to be taken; `None` when there is nobody to take them.
    queues: Mutex<Option<Vec<Box<dyn IoQueue>>>>,
    stopping: AtomicBool,
}

/// Hands queues to I/O threads.
#[derive(Clone)]
pub struct QueueRouter {
    inboxes: Arc<[Arc<Inbox>]>,
}

impl QueueRouter {
    /// Gives each queue to its thread.
    pub fn hand_over(&self, queues: impl IntoIterator<Item: IoQueue + 'static>) {
        for queue in queues {
            let inbox = &self.inboxes[usize::from(queue.index()) % self.inboxes.len()];
            if let Some(queues) = &mut *inbox.lock() {
                queues.push(Box::new(queue));
            }
            inbox.event.ring();
        }
    }
}

impl IoThreads {
    /// Starts `count` threads (at least one), thread n on the nth of the CPUs for such.
    ///
    /// # Errors
    /// When the operating system refuses.
    pub fn start(count: usize, threads: &Threads, events: &EventSink) -> io::Result<Self> {
        let mut started = Self { threads: Vec::new() };
        for index in 0..count.max(1) {
            let inbox = Arc::new(Inbox {
                event: EventFd::new()?,
                queues: Mutex::new(Some(Vec::new())),
                stopping: AtomicBool::new(false),
            });
            // A thread of a machine that has begun may make none.
            let queues = QueueSet::new(&inbox.event)?;
            let (own_inbox, events, begin) = (Arc::clone(&inbox), Arc::clone(events), Arc::clone(&threads.begin));
            let cpus = threads.placement.io.as_ref().map(|cpus| cpus.nth(index));
            let patience = threads.placement.shares_a_cpu(index)?.then(Patience::new);
            let spawned = thread::Builder::new().name(format!("io{index}")).spawn(move || {
                let mut last_words =
                    LastWords { inbox: own_inbox, events, failure: Some("panicked".to_owned()), index };
                let placed = cpus.map_or(Ok(()), |cpus| cpus.pin(None));
                let begun = placed.and_then(|()| begin(ThreadKind::Io));
                let served = begun.and_then(|()| serve(queues, &last_words.inbox, &last_words.events, patience));
                last_words.failure = served.err().map(|error| format!("failed: {error}"));
            });
            match spawned {
                Ok(handle) => started.threads.push(IoThread { inbox, handle }),
                Err(error) => {
                    started.stop();
                    return Err(error);
                }
            }
        }
        Ok(started)
    }

    /// What devices hand their queues to.
    pub fn router(&self) -> QueueRouter {
        QueueRouter { inboxes: self.threads.iter().map(|thread| Arc::clone(&thread.inbox)).collect() }
    }

    /// Stops the threads once what they have in flight is done.
    pub fn stop(&mut self) {
        for thread in &self.threads {
            thread.inbox.stopping.store(true, Ordering::Release);
            thread.inbox.event.ring();
        }
        for thread in self.threads.drain(..) {
            // A thread that panicked has said so; its queues are gone with it.
            let _ = thread.handle.join();
        }
    }
}

impl Drop for IoThreads {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Inbox {
    fn lock(&self) -> MutexGuard<'_, Option<Vec<Box<dyn IoQueue>>>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_queues(&self) -> Vec<Box<dyn IoQueue>> {
        self.lock().as_mut().map(mem::take).unwrap_or_default()
    }
}

/// What is taken from a queue before the next queue gets its turn. Of long requests one: a copy writes what it has read
/// while it is in the cache, and its other thread need not wait until all that could be read has been, before it finds
/// the output's file free. Measured on two CPUs, 0.94 of the time that sixteen at a turn take.
const TURN: Limit = Limit { requests: 16, cost_bytes: 1 << 20, pairs: false };
/// What is taken from a queue that has had nobody else's turn beside its own lately. Its driver is told of them
/// together, and asks for more while the disk does the next ones.
const TURN_ALONE: Limit = Limit { requests: 16, cost_bytes: 16 << 20, pairs: false };
/// Rounds in which one queue at most did something, after which it is alone.
const ALONE_AFTER: u32 = 64;

/// Serves queues until told to stop: everything that can be done, then a wait. A thread has `patience` where it may run
/// on a vCPU's CPU alone.
fn serve(
    mut queues: QueueSet<Box<dyn IoQueue>>,
    inbox: &Inbox,
    events: &EventSink,
    mut patience: Option<Patience>,
) -> io::Result<()> {
    let (mut alone_for, mut rung) = (0, false);
    while !inbox.stopping.load(Ordering::Acquire) {
        // A few requests at a time: a stop is not to wait for all that a guest has asked for.
        let turn = if alone_for < ALONE_AFTER { TURN } else { TURN_ALONE };
        let round = queues.round(turn, |failure| events(MachineEvent::from(&failure)));
        alone_for = if round.queues > 1 { 0 } else { alone_for.saturating_add(1) };
        if round.done > 0 {
            if mem::replace(&mut rung, false) {
                choose(patience.as_mut().and_then(|patience| patience.found(round.done)));
            }
            continue;
        }
        if queues.arm() {
            continue;
        }
        choose(patience.as_mut().and_then(Patience::waits));
        let heard = queues.wait()?;
        rung = heard.doorbell;
        if heard.own && inbox.event.take() > 0 {
            for queue in inbox.take_queues() {
                queues.push(queue)?;
            }
        }
    }
    Ok(())
}

/// Wakes up so from now on. It is about speed alone: where the kernel refuses, all goes on as it was.
fn choose(change: Option<WakeUp>) {
    if let Some(change) = change {
        let _ = change.choose();
    }
}
