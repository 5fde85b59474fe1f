//! A vhost-user server: disks, and other devices, for the virtual machines of other processes.
//!
//! A [`Server`] is a number of I/O threads. [`Server::attach`] makes a [`Session`] of a connected stream and an
//! [`Export`]; a [`Listener`] is where streams come from. Each session has a thread of its own for control messages,
//! which mostly sleeps, and gives its virtqueues to the I/O threads, in turn. These own what they were given: nothing
//! is locked, allocated or shared while requests run, and an idle session costs nothing.
//!
//! The client is hostile until proven otherwise. What it does wrong ends its own session, with an [`EndReason`] that
//! says what; it can neither crash nor stop the server, and hardly slow it down: threads are shared by bytes and weight
//! ([`Export::weight`]), and nothing a client holds is waited for. Its memory may vanish under us
//! ([`blockyard_block::MemoryMap::from_files`]).
//!
//! Where a client has given a record of requests in flight, a server that takes over from a dead one does again what
//! that one did not answer: every request is answered exactly once, though it may be executed twice.
//!
//! Deliberately absent: a protocol library (the vhost crate's reader refuses User-Mode Linux's memory table, and its
//! back end locks every virtqueue and tracks nothing in flight), logging of dirty memory for migration, in-band
//! notifications, and any policy of who gets which disk.

mod backend_requests;
mod client_descriptor;
mod client_memory;
mod client_stream;
mod coalescing;
mod connection;
mod control;
mod descriptor_kind;
mod doorkeeper;
mod event_descriptor;
mod flow;
mod group;
mod in_flight;
mod io_thread;
mod listener;
mod message;
mod payoff;
mod polling;
mod ringer;
mod served_device;
mod session;
mod settling;
mod statistics;
mod task;

use crate::one_cpu::machine_has_one_cpu;
use crate::spare_descriptors::SpareDescriptors;
use crate::vhost_user::TABLE_REGIONS_MAX;
use blockyard_block::{AdmittedMemory, Disk};
pub use blockyard_devices::virtio::QueueCounts;
use client_descriptor::Closers;
use client_memory::AddressSpace;
pub use client_stream::ClientStream;
pub(crate) use client_stream::Departures;
use connection::Connection;
pub(crate) use connection::send_now;
use control::Control;
pub(crate) use descriptor_kind::is_unix_stream;
pub use doorkeeper::Doorkeeper;
pub use group::SessionGroup;
use io_thread::{Command, IoThread};
pub use listener::{Listener, ListenerError};
use ringer::LateRinger;
use rustix::net::sockopt::socket_peercred;
use rustix::thread::{CpuSet, sched_setaffinity};
use served_device::ServedDisk;
pub use served_device::{PROCESS_QUEUES, ServedDevice, ServedQueueParts};
use session::Shared;
pub use session::{EndReason, Session};
pub use statistics::SessionStatistics;
use std::fmt;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use std::{io, thread};

/// Virtqueues that an export may have: the protocol numbers them with 8 bits.
pub const QUEUES_MAX: u16 = 256;

/// How a [`Server`] runs.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// I/O threads, at least one.
    pub threads: usize,
    /// CPUs to keep them on, one each in turn; empty for wherever the system puts them.
    pub cpus: Vec<usize>,
    /// How long a thread looks for more work before it waits, at most; zero: never. It is less where looking does not
    /// pay. On a machine with a single CPU it never looks, whatever this says: the client would have to wait for it.
    /// Where a client is on the thread's CPU for other reasons, zero is best; looking soon stops by itself there.
    pub poll: Duration,
    /// The file on overlayfs that may be a client's memory: none, unless this server has one client that the caller
    /// started.
    pub admitted_memory: AdmittedMemory,
    /// The process that takes descriptors from clients. Without one, a client that sends a file of a FUSE file system
    /// decides how long its session takes to end, and this process: that is for clients that the caller trusts not to.
    pub doorkeeper: Option<Doorkeeper>,
    /// How many descriptors this process may have. A user's clients may leave a quarter of them, 4096 at most, that
    /// cannot be closed.
    pub descriptors: usize,
    /// Whether what rings clients' eventfds is made at once, so that a kernel that has none of it is known of before
    /// there are clients. Otherwise it is made for the first client that has one: User-Mode Linux has none, and a
    /// process without it ends 40 ms sooner.
    pub rings_eventfds: bool,
}

impl Default for ServerOptions {
    fn default() -> Self {
        let poll = Duration::from_micros(200);
        let (cpus, admitted_memory) = (Vec::new(), AdmittedMemory::default());
        // What every process may have.
        Self { threads: 1, cpus, poll, admitted_memory, doorkeeper: None, descriptors: 1024, rings_eventfds: true }
    }
}

/// What a client gets.
#[derive(Clone)]
pub struct Export {
    /// What it is called in messages; its first 20 bytes are the disk's serial.
    pub name: Arc<str>,
    /// The disk. Whoever exports a part of one, or one for reading, gives a disk that is just that.
    pub disk: Arc<dyn Disk>,
    /// Virtqueues that the client may use.
    pub queues: u16,
    /// The client's share of an I/O thread, against others'.
    pub weight: NonZeroU32,
    /// Nobody but the client changes what there is for it on the disk, for as long as it is there.
    pub is_alone: bool,
}

impl fmt::Debug for Export {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, queues, weight, .. } = self;
        write!(formatter, "Export {{ name: {name:?}, queues: {queues}, weight: {weight} }}")
    }
}

/// I/O threads and the sessions on them. When it is dropped, sessions go on, and the threads end with the last.
#[derive(Debug)]
pub struct Server {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    threads: Vec<IoThread>,
    ringer: LateRinger,
    address_space: Arc<AddressSpace>,
    doorkeeper: Option<Doorkeeper>,
    closers: Closers,
    /// Room for what comes with one message.
    spare: Arc<Mutex<SpareDescriptors>>,
    numbers: AtomicU64,
}

/// What a session has of the I/O threads.
#[derive(Clone, Copy, Debug)]
struct Share {
    weight: NonZeroU32,
    /// The number of the client's first session, if that is another.
    first: Option<u64>,
}

impl Inner {
    /// Serves `device` to the client at the other end of `stream`.
    fn attach(
        this: &Arc<Self>,
        stream: ClientStream,
        name: Arc<str>,
        device: Arc<dyn ServedDevice>,
        share: Share,
    ) -> io::Result<Session> {
        let shared = Arc::new(Shared::new(name, device.queues())?);
        let number = this.next_number();
        let closer = this.closers.start(socket_peercred(&stream)?.uid.as_raw(), &shared)?;
        let connection = Connection::new(stream, this.doorkeeper.as_ref(), closer, Arc::clone(&this.spare))?;
        let control = Control::new(Arc::clone(this), number, connection, device, share, Arc::clone(&shared))?;
        thread::Builder::new().name(format!("session{number}")).spawn(move || control.run())?;
        Ok(Session { shared })
    }

    /// A number that nothing else has.
    fn next_number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// Sessions start at different threads, and spread their queues from there.
    fn thread_of(&self, session: u64, queue: u16) -> &IoThread {
        let turn = session.wrapping_add(queue.into()) % self.threads.len() as u64;
        &self.threads[turn as usize]
    }
}

impl Server {
    /// Starts the threads.
    ///
    /// # Errors
    /// When there shall be none, or the system refuses one, or a CPU is not there, or the kernel has no asynchronous
    /// I/O to ring eventfds with, and they are to be rung.
    pub fn start(options: &ServerOptions) -> io::Result<Self> {
        if options.threads == 0 {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a server needs a thread"));
        }
        let poll = if machine_has_one_cpu() { Duration::ZERO } else { options.poll };
        let cpu = |index: usize| options.cpus.get(index % options.cpus.len().max(1)).copied();
        let threads = (0..options.threads).map(|index| IoThread::start(index, poll, move_to(cpu(index))));
        let (threads, ringer) = (threads.collect::<io::Result<_>>()?, LateRinger::default());
        if options.rings_eventfds {
            ringer.get()?;
        }
        let address_space = Arc::new(AddressSpace::admitting(options.admitted_memory.clone()));
        let (doorkeeper, closers) = (options.doorkeeper.clone(), Closers::new(options.descriptors));
        let spare = Arc::new(Mutex::new(SpareDescriptors::new(TABLE_REGIONS_MAX)));
        let numbers = AtomicU64::new(0);
        Ok(Self { inner: Arc::new(Inner { threads, ringer, address_space, doorkeeper, closers, spare, numbers }) })
    }

    /// Serves `export` to the client at the other end of `stream`, from now on.
    ///
    /// # Errors
    /// As [`Server::attach_device`].
    pub fn attach(&self, stream: impl Into<ClientStream>, export: Export) -> io::Result<Session> {
        let disk = Arc::new(ServedDisk::new(&export));
        self.attach_device(stream, export.name, disk, export.weight)
    }

    /// Serves `device` to the client at the other end of `stream`, from now on. `name` is what it is called in
    /// messages, `weight` the client's share of an I/O thread against others'.
    ///
    /// # Errors
    /// When the device has no queues, or more than [`QUEUES_MAX`], or the system refuses a thread or a descriptor, or
    /// too much is left that clients of the same user gave us and that cannot be closed.
    pub fn attach_device(
        &self,
        stream: impl Into<ClientStream>,
        name: Arc<str>,
        device: Arc<dyn ServedDevice>,
        weight: NonZeroU32,
    ) -> io::Result<Session> {
        let queues = device.queues();
        if !(1..=QUEUES_MAX).contains(&queues) {
            let message = format!("{name} has {queues} queues, which is not from 1 to {QUEUES_MAX}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        Inner::attach(&self.inner, stream.into(), name, device, Share { weight, first: None })
    }

    /// How often each I/O thread has waited since it was started: an idle one does not count on.
    pub fn waits(&self) -> Vec<u64> {
        self.inner.threads.iter().map(IoThread::sleeps).collect()
    }
}

/// Keeps the calling thread on a CPU.
fn move_to(cpu: Option<usize>) -> impl FnOnce() -> io::Result<()> + Send + 'static {
    move || {
        let Some(cpu) = cpu else { return Ok(()) };
        let missing = || io::Error::new(io::ErrorKind::InvalidInput, format!("there is no CPU {cpu}"));
        if cpu >= CpuSet::MAX_CPU {
            return Err(missing());
        }
        let mut set = CpuSet::new();
        set.set(cpu);
        sched_setaffinity(None, &set).map_err(|_| missing())
    }
}
