//! A disk served by another process: `session:SOCKET` as a [`blockyard_block::Disk`].
//!
//! [`SessionDisk`] is a vhost-user-blk front end. Control messages go over a unix socket, requests through virtqueues
//! in shared memory: each [`Queue`] is one. Where the requests' memory consists of memfds, the server maps it and
//! nothing is copied; else, or when asked for, data go through an I/O buffer.
//!
//! The server is hostile until proven otherwise. What it writes into shared memory is read once and judged against what
//! this process remembers by itself (`blockyard_virtqueue`); what it says on the socket is checked, and has a time
//! limit. Lies end the session with a sentence that says so. A request without an answer is waited for: that is the
//! disk's business. Dropping a queue is not: it ends after [`SessionOptions::patience`] without a completion.
//!
//! A server that dies is waited for ([`SessionOptions::reconnect`]). The next one gets the rings' memory anew, so that
//! one that is not quite dead cannot touch it, and every request that was not answered, in their order. Each completes
//! once, though it may have been carried out twice.
//!
//! Where a server has fewer virtqueues than are wanted, queues can share the last one
//! ([`SessionOptions::is_passed_on`]): each has memory, an event and completions of its own.
//!
//! [`RemoteDevice`] is a front end for any other kind of device, which hands its driver's own virtqueues to the server.
//!
//! What cannot be promised: that memory is never written to after its queue is gone. A server keeps what it has mapped
//! for as long as it likes. Requests that must not see that go through the I/O buffer.
//!
//! Deliberately absent: in-flight tracking by the server (what is in flight is known here), packed virtqueues, and
//! polling without end.

mod block_config;
mod completion_event;
mod connection;
mod error;
mod io_buffer;
mod keeper;
mod limits;
mod link;
mod memory_table;
mod offer;
mod options;
mod queue;
mod remote_device;
mod ring;
mod shared_queue;
mod shared_vring;
mod slot;
mod spin;
mod stream;
mod transfers;
mod vring;

use crate::server::send_now;
use crate::vhost_user::code;
use blockyard_block::EventFd;
use blockyard_block::{Disk, Extent, ExtentKind, Geometry, MemoryMap, QUEUE_DEPTH_MAX, Queue};
use blockyard_devices::virtio::QueueCounts;
use connection::Connection;
pub use error::SessionError;
use keeper::Keeper;
use link::Link;
use offer::Offer;
pub use options::{IO_BUFFER_BYTES, IO_BUFFER_BYTES_MAX, PATIENCE, SessionOptions};
pub use queue::SESSION_ENDED;
use queue::SessionQueue;
pub use remote_device::{RemoteDevice, RemoteDeviceOptions};
use ring::RingShape;
use rustix::io::Errno;
use shared_queue::SharedQueue;
use shared_vring::{SHARED_DEPTH, Shared, SharedVring};
use std::fmt;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};
use stream::Stream;

/// How often a server is asked whether it has settled something: often at first.
const SETTLE_PAUSE_MIN: Duration = Duration::from_micros(100);
const SETTLE_PAUSE_MAX: Duration = Duration::from_millis(10);

/// Pauses between two attempts to open a queue while the server is away.
const OPEN_PAUSE: Duration = Duration::from_millis(5);

/// A disk that another process serves.
pub struct SessionDisk {
    keeper: Arc<Keeper>,
    shared: Arc<SharedVring>,
}

impl fmt::Debug for SessionDisk {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("SessionDisk").field("keeper", &self.keeper).finish_non_exhaustive()
    }
}

impl SessionDisk {
    /// Connects to the server that listens on `path`.
    ///
    /// # Errors
    /// When nobody listens there, or whoever does serves no block device.
    pub fn connect(path: &Path, options: &SessionOptions) -> Result<Self, SessionError> {
        let name: Arc<str> = path.display().to_string().into();
        let stop = stop_event(&name)?;
        let connection = Connection::open(path, &name, options, &stop)?;
        Self::new(connection, Some(path.to_owned()), options, stop)
    }

    /// Takes a connection over, called `name` in messages. When it ends, the session does: there is no path to find the
    /// server by.
    ///
    /// # Errors
    /// When whoever is on the other side serves no block device.
    pub fn from_stream(stream: UnixStream, name: &str, options: &SessionOptions) -> Result<Self, SessionError> {
        let name: Arc<str> = name.into();
        let stop = stop_event(&name)?;
        let stream = Stream::from_socket(stream, &stop)
            .map_err(|error| SessionError::Os { socket: Arc::clone(&name), error })?;
        Self::new(Connection::new(stream, &name, options.patience), None, options, stop)
    }

    fn new(
        mut connection: Connection,
        path: Option<PathBuf>,
        options: &SessionOptions,
        stop: Arc<EventFd>,
    ) -> Result<Self, SessionError> {
        let name = Arc::clone(connection.name());
        let offer = Offer::negotiate(&mut connection, &stop, options.is_passed_on, None)?;
        let link = Link::new(connection, offer, path, options, stop);
        let keeper = link.and_then(Keeper::start).map_err(|error| SessionError::Os { socket: name, error })?;
        Ok(Self { keeper: Arc::new(keeper), shared: Arc::default() })
    }

    /// How many queues the server has: as many can be open at once, unless they are shared
    /// ([`SessionOptions::is_passed_on`]).
    pub fn queue_count(&self) -> u16 {
        self.keeper.link.offer().queues
    }

    /// How many queues can be open of a disk on this one whose logical blocks have `logical_block_bytes`, at least one:
    /// what writes parts of blocks needs one more.
    pub fn queues_for(&self, logical_block_bytes: u32) -> usize {
        let merges = logical_block_bytes < self.geometry().logical_block_bytes;
        usize::from(self.queue_count()).saturating_sub(merges.into()).max(1)
    }

    /// Whether nobody else changes the disk while a server serves it: what was read is so until something is written
    /// here, or the [server](Self::incarnation) is another.
    pub fn is_alone(&self) -> bool {
        self.keeper.link.offer().is_alone()
    }

    /// Whether it [may have](Self::add_connection) further connections.
    pub fn takes_further(&self) -> bool {
        self.keeper.link.offer().takes_further()
    }

    /// Gives whoever is at the other end of `stream` a further connection ([`SessionOptions::is_at_door`]), or says
    /// that the server takes no more.
    ///
    /// # Errors
    /// When the server is away, or nobody takes it.
    pub fn pass_on(&self, stream: impl AsFd) -> Result<(), SessionError> {
        let further = match self.add_connection() {
            Err(SessionError::Refused { .. }) => None,
            added => Some(added?),
        };
        let os = |errno: Errno| SessionError::Os { socket: Arc::clone(&self.keeper.link.name), error: errno.into() };
        send_now(stream, &[0], further.as_ref().map(AsFd::as_fd)).map(drop).map_err(os)
    }

    /// The client's end of a further connection, which the server has from now on.
    ///
    /// # Errors
    /// When the server is away, or takes no more.
    pub fn add_connection(&self) -> Result<UnixStream, SessionError> {
        let link = &self.keeper.link;
        let os = |error| SessionError::Os { socket: Arc::clone(&link.name), error };
        let (ours, theirs) = UnixStream::pair().map_err(os)?;
        link.converse(|connection| connection.add_connection(theirs.as_fd()))?;
        Ok(ours)
    }

    /// What its further connections have had so far, of this server.
    ///
    /// # Errors
    /// When the server is away, or has none.
    pub fn further_counts(&self) -> Result<QueueCounts, SessionError> {
        let link = &self.keeper.link;
        if !self.takes_further() {
            let socket = Arc::clone(&link.name);
            return Err(SessionError::Refused { socket, request: code::name(code::GET_CONNECTION_COUNTS) });
        }
        link.converse(Connection::get_connection_counts)
    }

    /// Waits until all is done that its further connections had made available before, those of processes that are gone
    /// among them; or this server is gone.
    pub fn settle_further(&self) {
        let link = &self.keeper.link;
        let incarnation = self.incarnation();
        let is_there = || self.takes_further() && self.incarnation() == incarnation;
        let Ok(number) = link.converse(Connection::settle_connections) else { return };
        let mut pause = SETTLE_PAUSE_MIN;
        while is_there() && link.converse(Connection::get_settled_connections).is_ok_and(|settled| settled < number) {
            thread::sleep(pause);
            pause = (2 * pause).min(SETTLE_PAUSE_MAX);
        }
    }

    /// Changes when the server is seen to be gone, and when there is another: between the two, anybody may have changed
    /// the disk.
    pub fn incarnation(&self) -> u64 {
        self.keeper.link.incarnation.load(Ordering::Acquire)
    }

    /// Why the session has ended, if it has: the reason of requests that fail with ENOTCONN.
    pub fn failure(&self) -> Option<Arc<str>> {
        self.keeper.link.failure()
    }

    /// Opens a queue, of the next server if this one goes away meanwhile.
    fn open(&self, memory: &MemoryMap, depth: usize) -> Result<Box<dyn Queue>, SessionError> {
        let options = &self.keeper.link.options;
        let deadline = Instant::now() + options.reconnect;
        loop {
            let opened = match options.is_passed_on && !options.is_guest {
                false => self.open_own(memory, depth),
                true => self.open_sharing(memory, depth),
            };
            match opened {
                Err(error) if error.may_pass() && !error.is_own_shortage() && Instant::now() < deadline => {
                    std::thread::sleep(OPEN_PAUSE);
                }
                result => return result,
            }
        }
    }

    /// Opens a queue that has a virtqueue of its own.
    fn open_own(&self, memory: &MemoryMap, depth: usize) -> Result<Box<dyn Queue>, SessionError> {
        let offer = self.keeper.link.offer();
        let mut opened = self.keeper.link.open_queue(Some(memory), self.shape(depth, &offer))?;
        let addresses = opened.addresses.take();
        let mut queue = SessionQueue::new(&self.keeper, opened, &offer, depth);
        queue.transfers.add_memory(memory, addresses.as_deref());
        Ok(Box::new(queue))
    }

    /// Opens a queue that has a virtqueue of its own if there is another one for those that come after.
    fn open_sharing(&self, memory: &MemoryMap, depth: usize) -> Result<Box<dyn Queue>, SessionError> {
        let _door = self.shared.door();
        let is_open = self.shared.state().is_some();
        if self.keeper.link.queues_left() > usize::from(!is_open) {
            return self.open_own(memory, depth);
        }
        if !is_open {
            let offer = self.keeper.link.offer();
            let opened = self.keeper.link.open_queue(None, self.shape(SHARED_DEPTH, &offer))?;
            let queue = SessionQueue::new(&self.keeper, opened, &offer, SHARED_DEPTH);
            *self.shared.state() = Some(Shared::new(queue));
        }
        let joined = SharedQueue::join(&self.shared, &self.keeper, memory, depth);
        if joined.is_err() {
            let unused = self.shared.state().take_if(|shared| shared.is_unused());
            // Not while others wait for what is in there.
            drop(unused);
        }
        Ok(Box::new(joined?))
    }

    fn shape(&self, depth: usize, offer: &Offer) -> RingShape {
        let smallest = 4 * io_buffer::GRANULE_BYTES.max(u64::from(offer.geometry.logical_block_bytes));
        let wanted = self.keeper.link.options.io_buffer_bytes.unwrap_or(IO_BUFFER_BYTES);
        let buffer_bytes = wanted.clamp(smallest, IO_BUFFER_BYTES_MAX);
        RingShape::new(depth, offer.indirect(), offer.event_idx(), offer.limits.segments_max, buffer_bytes)
    }
}

fn stop_event(name: &Arc<str>) -> Result<Arc<EventFd>, SessionError> {
    let event = EventFd::new().map_err(|error| SessionError::Os { socket: Arc::clone(name), error })?;
    Ok(Arc::new(event))
}

impl Disk for SessionDisk {
    fn geometry(&self) -> Geometry {
        self.keeper.link.geometry()
    }

    fn generation(&self) -> u64 {
        self.keeper.link.generation.load(Ordering::Acquire)
    }

    fn change_event(&self) -> Option<BorrowedFd<'_>> {
        Some(self.keeper.link.change.as_fd())
    }

    /// All of it is data: the protocol has no word for holes.
    fn extents(&self, range: Range<u64>) -> io::Result<Extent> {
        let capacity_bytes = self.geometry().capacity_bytes;
        if range.start >= range.end || range.end > capacity_bytes {
            let message = format!("no range {}..{} on a disk of {capacity_bytes} bytes", range.start, range.end);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        Ok(Extent { offset_bytes: range.start, length_bytes: range.end - range.start, kind: ExtentKind::Data })
    }

    fn open_queue(&self, memory: &MemoryMap, depth: usize) -> io::Result<Box<dyn Queue>> {
        if depth == 0 {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a queue carries at least one request"));
        }
        Ok(self.open(memory, depth.min(QUEUE_DEPTH_MAX))?)
    }
}
