//! A process's own way to a disk: made when it first needs it, and by its child anew.

use crate::ahead::Ahead;
use crate::aio::{Expected, Requests};
use crate::behind::Behind;
use crate::errno::Errno;
use crate::locks;
use crate::names::{DOOR, NAMES_MAX, beside};
use crate::partial_writes::{Alone, PartialWrites};
use crate::setup::{self, Inside, disk};
use crate::signals::{self, Busy};
use crate::users::{self, UnderWay, Users};
use crate::writers::{Shared, Told, Writers};
use crate::{fork, own, stderr};
use blockyard_block::specification::{DiskSpecification, OpenError};
use blockyard_block::{Completion, Geometry, MemoryMap, Queue, RequestError, explain};
use blockyard_session::client::{PATIENCE, SessionError};
use blockyard_session::open::{OpenDisk, OpenOptions, RECONNECT, SERVER_BUSY, open_disk};
use libc::c_int;
use std::error::Error;
use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::path::PathBuf;
use std::ptr::{self, null_mut};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

/// Threads that have requests under way at the same time; others wait for them.
const CHANNELS_MAX: usize = 8;
/// Bytes that a channel has under way.
pub(crate) const CHANNEL_BYTES: usize = 4 << 20;
/// Bytes of one of its requests: while one is copied, the disk has the next.
pub(crate) const PIECE_BYTES: usize = 256 << 10;
/// How long whoever attaches a disk has to answer: its own server may have to come back before.
const HERE_PATIENCE: Duration = RECONNECT.saturating_add(PATIENCE);
/// How long to look again whether another thread has connected.
const PAUSE: Duration = Duration::from_millis(1);

/// What one thread at a time transfers with.
pub(crate) struct Channel {
    /// One region, which whoever serves the disk maps.
    pub(crate) memory: MemoryMap,
    pub(crate) queue: Box<dyn Queue>,
    /// Room for what comes back.
    pub(crate) completions: Vec<Completion>,
}

/// What a disk has been through: changes by the processes that have it, and which of its servers there is, between
/// which others may have changed it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct State {
    changes: u64,
    incarnation: u64,
}

/// A disk that is open in this process.
pub(crate) struct Connection {
    number: usize,
    opened: OpenDisk,
    server: Server,
    /// What whoever attaches the disk serves here besides, once it was asked for.
    here: OnceLock<OpenDisk>,
    pub(crate) geometry: Geometry,
    /// The file of its locks, if whoever serves it has made one.
    pub(crate) locks: Option<ManuallyDrop<File>>,
    /// The name of the file of its descriptions' locks, if there may be one.
    pub(crate) description_locks: Option<PathBuf>,
    /// Whether the program has had some.
    pub(crate) has_locked: AtomicBool,
    pub(crate) writers: Writers,
    /// Where it is said that this process transfers, if somebody wants to hear that.
    pub(crate) users: Option<Users>,
    pub(crate) ahead: Ahead,
    pub(crate) behind: Behind,
    channels: Vec<Mutex<Option<Channel>>>,
    /// So many of them, at least one, can be had.
    channels_max: AtomicUsize,
    /// Which channel to try first.
    turn: AtomicUsize,
    /// Those that nobody waits for, once there are some.
    requests: OnceLock<Requests>,
    /// Whether a thread tells of their ends.
    has_teller: AtomicBool,
    pub(crate) partial_writes: PartialWrites,
}

static CONNECTIONS: [AtomicPtr<Connection>; NAMES_MAX] = [const { AtomicPtr::new(null_mut()) }; NAMES_MAX];
/// Whether this process has said why it has no disk.
static IS_TOLD: AtomicBool = AtomicBool::new(false);
/// Whether the last attempt has failed: the next one is made once, and does not wait.
static HAS_FAILED: [AtomicBool; NAMES_MAX] = [const { AtomicBool::new(false) }; NAMES_MAX];
static IS_CONNECTING: [AtomicBool; NAMES_MAX] = [const { AtomicBool::new(false) }; NAMES_MAX];

/// The connection to the disk of that number.
pub(crate) fn to(number: usize) -> Result<&'static Connection, Errno> {
    fork::look();
    let _busy = Busy::enter();
    let is_connecting = IS_CONNECTING.get(number).ok_or(Errno(libc::EBADF))?;
    loop {
        if let Some(connection) = there(number) {
            return Ok(connection);
        }
        if is_connecting.swap(true, Ordering::Acquire) {
            thread::sleep(PAUSE);
            continue;
        }
        let connected = {
            let _inside = Inside::enter();
            own::make(|| connect(number))
        };
        let connected = connected.map(|connection| &*Box::leak(Box::new(connection)));
        HAS_FAILED[number].store(connected.is_err(), Ordering::Relaxed);
        if let Ok(connection) = connected {
            CONNECTIONS[number].store(ptr::from_ref(connection).cast_mut(), Ordering::Release);
        }
        is_connecting.store(false, Ordering::Release);
        return connected;
    }
}

/// The connection to the disk of that number, if there is one.
pub(crate) fn there(number: usize) -> Option<&'static Connection> {
    // SAFETY: it is null, or was leaked for ever.
    unsafe { CONNECTIONS.get(number)?.load(Ordering::Acquire).as_ref() }
}

/// The connections that there are.
pub(crate) fn all() -> impl Iterator<Item = &'static Connection> {
    fork::look();
    (0..NAMES_MAX).filter_map(there)
}

/// In a child: those of its parent are nothing to it, and none is being made. What they have in memory stays as it is,
/// as threads that are not there might have been in the middle of anything.
pub(crate) fn forget_all() {
    signals::forget_all();
    locks::forget_files();
    users::forget_all();
    for (connection, is_connecting) in CONNECTIONS.iter().zip(&IS_CONNECTING) {
        connection.store(null_mut(), Ordering::Release);
        is_connecting.store(false, Ordering::Release);
    }
}

fn connect(number: usize) -> Result<Connection, Errno> {
    let named = disk(number).ok_or(Errno(libc::EBADF))?;
    let told = |error: &(dyn Error + 'static)| {
        // A program that goes on trying says it no more often.
        if !IS_TOLD.swap(true, Ordering::Relaxed) {
            stderr::tell(&format!("{}: {}", String::from_utf8_lossy(&named.name), explain(error)));
        }
    };
    let failed = |error: &(dyn Error + 'static)| {
        told(error);
        Errno(libc::ENXIO)
    };
    let specification = named.disk.parse().map_err(|error| failed(&error))?;
    let locks = locks::file(number);
    let has_locked = locks.as_deref().is_some_and(locks::are_passed_on);
    // Who serves the disk for this program alone, and has made that file, does not come back.
    let reconnect = if locks.is_some() { Duration::ZERO } else { RECONNECT };
    let has_failed = HAS_FAILED.get(number).is_some_and(|failed| failed.load(Ordering::Relaxed));
    let busy = if has_failed { Duration::ZERO } else { SERVER_BUSY };
    let shared = Shared::of(locks.as_deref());
    let calls = shared.calls();
    let options = OpenOptions { reconnect, busy, ..options(calls) };
    let refused = |error: OpenError| {
        if is_forbidden(&error) {
            told(&error);
            Errno(libc::EACCES)
        } else {
            failed(&error)
        }
    };
    let Access { opened, server } = Access::to(&named.disk, &specification, &options).map_err(refused)?;
    let channels: Vec<_> = (0..opened.queues_max().min(CHANNELS_MAX)).map(|_| Mutex::new(None)).collect();
    let geometry = opened.disk.geometry();
    let writers = shared.writers();
    Ok(Connection {
        number,
        opened,
        server,
        here: OnceLock::new(),
        geometry,
        users: users_of(&named.disk, writers)?,
        writers,
        ahead: Ahead::default(),
        behind: Behind::default(),
        locks,
        description_locks: named.description_locks(),
        has_locked: AtomicBool::new(has_locked),
        channels_max: AtomicUsize::new(channels.len()),
        channels,
        turn: AtomicUsize::new(0),
        requests: OnceLock::new(),
        has_teller: AtomicBool::new(false),
        partial_writes: PartialWrites::default(),
    })
}

/// Whether it is not for this process's user.
fn is_forbidden(error: &OpenError) -> bool {
    let OpenError::Session(source) = error else { return false };
    matches!(source.downcast_ref(), Some(SessionError::Permission(_)))
}

/// Has all that this process can have of the disks, before it may have it no more.
pub(crate) fn make_all() {
    for (number, _) in setup::disks().enumerate() {
        // Where there is none, there will be none.
        if let Ok(connection) = to(number) {
            connection.prepare();
            connection.partial_writes.prepare(number);
        }
    }
}

/// How a program's disk is opened.
fn options(calls: Option<&'static AtomicU64>) -> OpenOptions<'static> {
    OpenOptions { ending: &signals::ending, patience: HERE_PATIENCE, is_guest: true, calls, ..OpenOptions::default() }
}

/// Who serves a disk to this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Server {
    /// Whoever attaches it, who has it himself.
    Here,
    /// Another, nobody being between.
    Elsewhere,
    /// Whoever attaches it, who has it of another: who may be replaced without being seen here.
    Between,
}

/// How a disk is had.
pub(crate) struct Access {
    pub(crate) opened: OpenDisk,
    pub(crate) server: Server,
}

impl Access {
    /// Opens a disk that is called so: by a connection to its own server, if there is one to be had, or by whoever
    /// serves it here.
    pub(crate) fn to(
        disk: &str,
        specification: &DiskSpecification,
        options: &OpenOptions<'_>,
    ) -> Result<Self, OpenError> {
        let door = beside(disk, DOOR).filter(|door| door.exists());
        let other = if door.is_some() { Server::Between } else { Server::Here };
        // That server comes back.
        let at_door = OpenOptions { is_at_door: true, reconnect: RECONNECT, ..*options };
        match door.map(|door| open_disk(&DiskSpecification::of_session(door), &at_door)) {
            Some(Ok(opened)) => Ok(Self { opened, server: Server::Elsewhere }),
            _ => Ok(Self { opened: open_disk(specification, options)?, server: other }),
        }
    }
}

/// Where it is to be said that this process transfers: if there are none but those who say it.
pub(crate) fn users_of(disk: &str, writers: Writers) -> Result<Option<Users>, Errno> {
    let socket = beside(disk, users::ENDING).filter(|_| writers.are_known());
    socket.map(|path| Users::connect(&path)).transpose()
}

/// Runs `run` so that threads that it starts take no signals: those are the program's.
pub(crate) fn without_signals<T>(run: impl FnOnce() -> T) -> T {
    let before = signals::set_mask(signals::ALL);
    let result = run();
    signals::set_mask(before);
    result
}

/// What a call is told where a channel cannot be made: there is not enough of something here, which is `shortage`, or
/// nobody serves the disk any more.
fn shortage_or_loss(error: io::Error, shortage: c_int) -> Errno {
    let is_shortage =
        error.kind() == io::ErrorKind::OutOfMemory || matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE));
    Errno(if is_shortage { shortage } else { libc::EIO })
}

/// Starts a thread of this library's own.
pub(crate) fn start_thread(run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let run = move || {
        let _inside = Inside::enter();
        signals::let_faults_come();
        run();
    };
    without_signals(|| thread::Builder::new().name("blockyard-aio".to_owned()).spawn(run)).map(drop)
}

impl Connection {
    /// Before a transfer: what others have written is done, and they know of this process.
    pub(crate) fn enter(&self) -> Result<(), Errno> {
        self.users.as_ref().map_or(Ok(()), |users| users::enter(self.number, users))
    }

    /// The disk's now, if nobody changes it: what is asked for now is good for as long as this says the same.
    #[inline]
    pub(crate) fn state(&self) -> Option<State> {
        let changes = self.writers.quiet().filter(|_| self.server != Server::Between)?;
        let incarnation = self.opened.session.as_ref().map_or(0, |session| session.incarnation());
        Some(State { changes, incarnation })
    }

    /// Whether a session of this process's on the disk has ended: of what was under way then, nothing is known.
    pub(crate) fn has_ended(&self) -> bool {
        let ended = |opened: &OpenDisk| opened.session.as_ref().is_some_and(|session| session.failure().is_some());
        ended(&self.opened) || self.here.get().is_some_and(ended)
    }

    /// Writes parts of the blocks in `bytes`, which nobody else does until what this gives is dropped.
    pub(crate) fn write_parts(&self, bytes: Range<u64>) -> Result<Alone<'_>, Errno> {
        self.partial_writes.alone(self.number, bytes)
    }

    /// A request of this process's, which nobody waits for, until it is dropped.
    pub(crate) fn under_way(&self) -> UnderWay {
        UnderWay::new(self.number)
    }

    /// Has `use_it` use a channel that nobody else uses.
    pub(crate) fn with_channel<T>(&self, use_it: impl FnOnce(&mut Channel) -> Result<T, Errno>) -> Result<T, Errno> {
        loop {
            let (index, mut channel) = self.free_channel();
            match self.made(&mut channel) {
                Ok(channel) => return use_it(channel),
                Err(error) if index == 0 => return Err(error),
                // There are not enough descriptors for so many.
                Err(_) => _ = self.channels_max.fetch_min(index, Ordering::Relaxed),
            }
        }
    }

    /// Whoever reads or writes later finds a channel: a signal handler may, in the middle of malloc(3).
    pub(crate) fn prepare(&self) {
        // One that is in use is there, and what cannot be had now is asked for again when it is needed.
        if let Some(mut channel) = self.channels.first().and_then(|channel| channel.try_lock().ok()) {
            let _ = self.made(&mut channel);
        }
    }

    /// A channel, which is made if it is not there.
    fn made<'channel>(&self, channel: &'channel mut Option<Channel>) -> Result<&'channel mut Channel, Errno> {
        match channel {
            Some(channel) => Ok(channel),
            empty => {
                let _inside = Inside::enter();
                Ok(empty.insert(
                    own::make(|| self.new_channel(CHANNEL_BYTES, CHANNEL_BYTES / PIECE_BYTES))
                        .map_err(|error| shortage_or_loss(error, libc::ENOMEM))?,
                ))
            }
        }
    }

    fn free_channel(&self) -> (usize, MutexGuard<'_, Option<Channel>>) {
        let channels = &self.channels[..self.channels_max.load(Ordering::Relaxed)];
        let mut all = channels.iter().enumerate();
        if let Some(free) = all.find_map(|(index, channel)| Some((index, channel.try_lock().ok()?))) {
            return free;
        }
        let turn = self.turn.fetch_add(1, Ordering::Relaxed) % channels.len();
        (turn, channels[turn].lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A queue of the disk's.
    pub(crate) fn open_queue(&self, memory: &MemoryMap, depth: usize) -> io::Result<Box<dyn Queue>> {
        self.opened.disk.open_queue(memory, depth)
    }

    /// The program has been told of a write that failed, for which it had waited. Whoever attaches the disk tells of
    /// others that failed there.
    #[cold]
    pub(crate) fn told(&self, error: RequestError) {
        self.server.told(self.writers, error);
    }

    /// Requests that nobody waits for.
    pub(crate) fn requests(&self) -> Result<&Requests, Errno> {
        if let Some(requests) = self.requests.get() {
            return Ok(requests);
        }
        let _inside = Inside::enter();
        let made = own::make(|| Requests::new(self)).map_err(|error| shortage_or_loss(error, libc::EAGAIN))?;
        // Another thread may have been sooner.
        Ok(self.requests.get_or_init(|| made))
    }

    /// The same, if there have been any.
    pub(crate) fn requests_made(&self) -> Option<&Requests> {
        self.requests.get()
    }

    /// Has a thread tell of the ends of those requests after which somebody is to be told: of those, too, that are
    /// about to be made.
    ///
    /// # Errors
    /// EAGAIN: the system refuses a thread.
    pub(crate) fn tell_of_ends<'requests>(
        &'static self,
        requests: &'static Requests,
    ) -> Result<Expected<'requests>, Errno> {
        let expected = requests.expect();
        if self.has_teller.swap(true, Ordering::AcqRel) {
            return Ok(expected);
        }
        let tell = move || {
            loop {
                let _ = requests.wait(self, None, || !requests.tells());
                self.has_teller.store(false, Ordering::Release);
                // More may have come meanwhile.
                if !requests.tells() || self.has_teller.swap(true, Ordering::AcqRel) {
                    return;
                }
            }
        };
        if start_thread(tell).is_err() {
            self.has_teller.store(false, Ordering::Release);
            return Err(Errno(libc::EAGAIN));
        }
        Ok(expected)
    }

    /// One of so many bytes, which has at most so many requests under way.
    pub(crate) fn new_channel(&self, bytes: usize, depth: usize) -> io::Result<Channel> {
        Channel::new(&self.opened, bytes, depth)
    }

    /// The same, by whoever attaches the disk: who does what this process has given, whatever becomes of this process,
    /// and of a server of the disk's own.
    pub(crate) fn new_channel_here(&self, bytes: usize, depth: usize) -> io::Result<Channel> {
        if self.server != Server::Elsewhere {
            return self.new_channel(bytes, depth);
        }
        let named = disk(self.number).ok_or(io::ErrorKind::NotFound)?;
        let specification = named.disk.parse().map_err(io::Error::other)?;
        let once = Duration::ZERO;
        let options = OpenOptions { reconnect: once, busy: once, ..options(self.writers.calls()) };
        let here = without_signals(|| open_disk(&specification, &options)).map_err(io::Error::other)?;
        Channel::new(self.here.get_or_init(|| here), bytes, depth)
    }
}

impl Server {
    /// A program has been told of a write that failed. Whoever attaches the disk knows of those that it served.
    #[cold]
    pub(crate) fn told(self, writers: Writers, error: RequestError) {
        if self != Self::Elsewhere {
            writers.told(Told::one(error));
        }
    }
}

impl Channel {
    fn new(opened: &OpenDisk, bytes: usize, depth: usize) -> io::Result<Self> {
        let memory = MemoryMap::allocate(&[(0, bytes)]);
        let memory = memory.map_err(|error| io::Error::new(io::ErrorKind::OutOfMemory, error))?;
        let queue = opened.disk.open_queue(&memory, depth)?;
        let completions = Vec::with_capacity(queue.depth());
        Ok(Self { memory, queue, completions })
    }
}
