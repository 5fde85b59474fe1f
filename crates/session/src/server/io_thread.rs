//! The threads that serve queues.

use super::event_descriptor::Call;
use super::flow::{Contention, Flow};
use super::polling::Polling;
use super::task::{Stop, Task};
use blockyard_block::EventFd;
use blockyard_devices::{QueueEvent, QueueEvents};
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};
use std::{io, mem, thread};

/// What a thread is told.
pub(super) enum Command {
    /// Serve this queue of a session with this weight.
    Start { session: u64, weight: u32, task: Box<Task> },
    /// Stop a queue; whoever asks hears where it stopped, once nothing is in flight any more.
    Stop { task: u64, stop: Stop, reply: mpsc::Sender<u16> },
    /// Ring this for a queue from now on.
    SetCall { task: u64, call: Option<Call> },
    /// End the thread. All its queues were stopped before.
    Exit,
}

/// How the rest of the process reaches a thread.
#[derive(Debug)]
pub(super) struct IoThread {
    inbox: Arc<Inbox>,
    handle: Option<thread::JoinHandle<()>>,
}

#[derive(Debug)]
struct Inbox {
    event: EventFd,
    /// `None` when nobody reads them any more.
    commands: Mutex<Option<Vec<Command>>>,
    /// There are commands: what a running thread looks at, without taking the lock.
    waiting: AtomicBool,
    sleeps: AtomicU64,
}

impl std::fmt::Debug for Command {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Command")
    }
}

impl Inbox {
    fn take(&self) -> Vec<Command> {
        let mut commands = self.commands.lock().unwrap_or_else(PoisonError::into_inner);
        commands.as_mut().map(mem::take).unwrap_or_default()
    }
}

impl IoThread {
    /// Starts a thread that looks for work for at most `poll` before it waits, once `prepare` has done what there is to
    /// be done on it.
    pub(super) fn start(
        index: usize,
        poll: Duration,
        prepare: impl FnOnce() -> io::Result<()> + Send + 'static,
    ) -> io::Result<Self> {
        let inbox = Arc::new(Inbox {
            event: EventFd::new()?,
            commands: Mutex::new(Some(Vec::new())),
            waiting: AtomicBool::new(false),
            sleeps: AtomicU64::new(0),
        });
        let mut serving = Serving::new(Arc::clone(&inbox), poll)?;
        let (ready, started) = mpsc::channel();
        let handle = thread::Builder::new().name(format!("io{index}")).spawn(move || {
            let prepared = prepare();
            // Timeouts here are shorter than the 50 µs by which the kernel would be late; it is about speed alone.
            let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1000));
            let refused = prepared.is_err();
            let _ = ready.send(prepared);
            if !refused {
                serving.run();
            }
        })?;
        let thread = Self { inbox, handle: Some(handle) };
        started.recv().unwrap_or_else(|_| Err(io::Error::other("an I/O thread did not start")))?;
        Ok(thread)
    }

    /// Tells the thread something. What it drops, because it is gone, is dropped here.
    pub(super) fn send(&self, command: Command) {
        let mut commands = self.inbox.commands.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(commands) = &mut *commands {
            commands.push(command);
            self.inbox.waiting.store(true, Ordering::Release);
        }
        drop(commands);
        self.inbox.event.ring();
    }

    /// How often it waited: system calls that an idle thread does not make, and a busy one hardly.
    pub(super) fn sleeps(&self) -> u64 {
        self.inbox.sleeps.load(Ordering::Relaxed)
    }
}

impl Drop for IoThread {
    fn drop(&mut self) {
        self.send(Command::Exit);
        if let Some(handle) = self.handle.take() {
            // A thread that panicked has let go of everything, too.
            let _ = handle.join();
        }
    }
}

/// A thread that has found no work for so long lets others have the CPU between two looks, if any waits for it. With
/// more threads that look than CPUs, a client might be one of them; or the kernel's, with a write of ours.
const YIELD_AFTER_NS: u64 = 5000;

struct Serving {
    inbox: Arc<Inbox>,
    /// The inbox, and the tasks by their numbers.
    events: QueueEvents,
    flows: Vec<Flow>,
    polling: Polling,
    started: Instant,
    /// When something was last done.
    active_ns: u64,
}

/// However the thread ends, nobody waits for it: who asked for something hears that there is nobody.
impl Drop for Serving {
    fn drop(&mut self) {
        *self.inbox.commands.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl Serving {
    fn new(inbox: Arc<Inbox>, poll: Duration) -> io::Result<Self> {
        let events = QueueEvents::new(&inbox.event)?;
        let polling = Polling::new(u64::try_from(poll.as_nanos()).unwrap_or(u64::MAX));
        Ok(Self { inbox, events, flows: Vec::new(), polling, started: Instant::now(), active_ns: 0 })
    }

    fn now_ns(&self) -> u64 {
        self.started.elapsed().as_nanos() as u64
    }

    fn run(&mut self) {
        loop {
            if self.inbox.waiting.swap(false, Ordering::Acquire) && !self.obey() {
                return;
            }
            let now_ns = self.now_ns();
            let (busy, look_again_ns) = self.round(now_ns);
            if busy {
                self.active_ns = now_ns;
                continue;
            }
            let idle_ns = now_ns - self.active_ns;
            if idle_ns < self.polling.duration_ns() && !self.flows.is_empty() {
                if idle_ns < YIELD_AFTER_NS {
                    std::hint::spin_loop()
                } else {
                    thread::yield_now()
                }
                continue;
            }
            if !self.arm() {
                self.wait(look_again_ns);
            }
        }
    }

    /// Everybody's turn. Whether there is more to do at once, and when there is a notification to be sent otherwise.
    fn round(&mut self, now_ns: u64) -> (bool, Option<u64>) {
        let contention = Contention::of(&self.flows, now_ns);
        let (mut busy, mut look_again_ns, mut stopped) = (false, None, false);
        for flow in &mut self.flows {
            let turn = flow.serve(now_ns, contention);
            busy |= turn.progress | turn.more;
            for task in &mut flow.tasks {
                let held_until_ns = task.notify(now_ns);
                look_again_ns = look_again_ns.into_iter().chain(held_until_ns).min();
                stopped |= task.has_stopped();
            }
        }
        if stopped {
            self.remove_stopped();
        }
        (busy, look_again_ns)
    }

    fn remove_stopped(&mut self) {
        for flow in &mut self.flows {
            for task in flow.tasks.extract_if(.., |task| task.has_stopped()) {
                self.events.forget(task.kick(), task.completion_event());
                task.finish();
            }
        }
        self.flows.retain(|flow| !flow.tasks.is_empty());
    }

    /// Has everybody ring from now on. Whether there is something already.
    fn arm(&mut self) -> bool {
        let mut more = false;
        for flow in &mut self.flows {
            more |= flow.arm();
        }
        more
    }

    fn wait(&mut self, until_ns: Option<u64>) {
        let timeout = until_ns.map(|until_ns| Duration::from_nanos(until_ns.saturating_sub(self.now_ns())));
        self.inbox.sleeps.store(self.inbox.sleeps.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        let mut work = false;
        let heard = self.events.wait(timeout, |event| match event {
            QueueEvent::Own => {
                self.inbox.event.take();
            }
            QueueEvent::Doorbell(number) => {
                work = true;
                if let Some(task) = self.flows.iter().flat_map(|flow| &flow.tasks).find(|task| task.id == number) {
                    task.kicked();
                }
            }
            QueueEvent::Completion => work = true,
        });
        if heard.is_err() {
            // Cannot be, with our own epoll and events on our stack. A thread that looks now and then still serves.
            return thread::sleep(Duration::from_millis(1));
        }
        if work {
            self.polling.waited(self.now_ns() - self.active_ns);
        }
    }

    /// Does what it was told. False: the thread shall end.
    fn obey(&mut self) -> bool {
        let commands = self.inbox.take();
        self.active_ns = self.now_ns();
        for command in commands {
            match command {
                Command::Start { session, weight, task } => self.start(session, weight, *task),
                Command::Stop { task, stop, reply } => {
                    if let Some(task) = self.task(task) {
                        task.stop(stop, reply);
                    }
                }
                Command::SetCall { task, call } => {
                    if let Some(task) = self.task(task) {
                        task.set_call(call);
                    }
                }
                Command::Exit => return false,
            }
        }
        true
    }

    fn task(&mut self, id: u64) -> Option<&mut Task> {
        self.flows.iter_mut().flat_map(|flow| &mut flow.tasks).find(|task| task.id == id)
    }

    fn start(&mut self, session: u64, weight: u32, mut task: Task) {
        if let Err(error) = self.events.watch(task.id, task.kick(), task.completion_event()) {
            task.fail_to_start(&error);
        }
        let flow = match self.flows.iter().position(|flow| flow.session == session) {
            Some(index) => &mut self.flows[index],
            None => {
                self.flows.push(Flow::new(session, weight));
                let last = self.flows.len() - 1;
                &mut self.flows[last]
            }
        };
        flow.tasks.push(task);
    }
}
