//! A device of a machine in this process that another process serves, over vhost-user.
//!
//! What the machine's driver has set up goes to the server: the guest's memory, its virtqueues where they lie, and
//! their doorbells, which the server hears without anybody here. What it rings comes here, as a transport has more to
//! do than an interrupt. One thread has the connection, hears those rings, and does what the transport asks: so no
//! thread that runs a guest makes a system call for this but to wake it.

use super::connection::{Connection, RegionMessage, VringMessage};
use super::error::SessionError;
use super::stream::Stream;
use crate::vhost_user::{FEATURE_PROTOCOL_FEATURES, TABLE_REGIONS_MAX, protocol};
use blockyard_block::{EventFd, MemoryMap, explain};
use blockyard_devices::virtio::{
    Activation, ActivationQueue, DeviceFailure, FailureCause, QueueConfig, QueueNotifier, VirtioDevice,
};
use rustix::event::epoll;
use rustix::io::Errno;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Duration;
use virtio_bindings::virtio_config::VIRTIO_F_VERSION_1;
use virtio_bindings::virtio_ring::{VIRTIO_RING_F_EVENT_IDX, VIRTIO_RING_F_INDIRECT_DESC};

/// The features of every device that are taken from the server. What a kind of device adds is asked for.
const FEATURES: u64 = 1 << VIRTIO_F_VERSION_1 | 1 << VIRTIO_RING_F_EVENT_IDX | 1 << VIRTIO_RING_F_INDIRECT_DESC;
const PROTOCOL_FEATURES: u64 = protocol::MQ | protocol::REPLY_ACK | protocol::CONFIG;
/// Rings that are heard in one wait.
const EVENTS: usize = 16;

/// What a [`RemoteDevice`] is.
#[derive(Clone, Debug)]
pub struct RemoteDeviceOptions {
    /// What it is called in messages.
    pub name: String,
    /// The device type (virtio 1.2 §5).
    pub device_type: u32,
    /// Features of this type that may be offered to the driver, bit n for feature n, besides those that every device
    /// may have.
    pub features: u64,
    /// Bytes of its configuration space.
    pub config_bytes: usize,
    /// Entries of each virtqueue at most: a power of two.
    pub queue_size: u16,
    /// How long the server may take to answer.
    pub patience: Duration,
}

/// A virtio device that a vhost-user server serves.
pub struct RemoteDevice {
    name: Arc<str>,
    device_type: u32,
    features: u64,
    config: Vec<u8>,
    queue_sizes_max: Vec<u16>,
    memory: MemoryMap,
    inbox: Arc<Inbox>,
    handle: Option<thread::JoinHandle<()>>,
}

/// What the device's thread is to do.
enum Command {
    /// Start these queues with these features; why not is said in words, too.
    Start(Vec<Vring>, u64, mpsc::Sender<Result<(), String>>),
    /// Stop the queues of these indices; said when nothing touches them any more.
    Stop(Vec<u16>, mpsc::Sender<()>),
    Exit,
}

struct Inbox {
    event: EventFd,
    /// `None` when the thread is gone.
    commands: Mutex<Option<Vec<Command>>>,
}

impl Inbox {
    /// Whether there is a thread to do it. What it drops, because it is gone, is dropped here.
    fn send(&self, command: Command) {
        if let Some(commands) = &mut *self.commands.lock().unwrap_or_else(PoisonError::into_inner) {
            commands.push(command);
        }
        self.event.ring();
    }

    fn take(&self) -> Vec<Command> {
        self.event.take();
        let mut commands = self.commands.lock().unwrap_or_else(PoisonError::into_inner);
        commands.as_mut().map(std::mem::take).unwrap_or_default()
    }
}

/// A queue that runs.
struct Vring {
    index: u16,
    config: QueueConfig,
    doorbell: Arc<EventFd>,
    notifier: Arc<dyn QueueNotifier>,
    /// What the server rings.
    call: EventFd,
}

impl RemoteDevice {
    /// A device in `memory` of the server at the other end of `stream`. `on_end` hears, once, why the server serves no
    /// more, unless this device ends before.
    ///
    /// # Errors
    /// When the server is no vhost-user server, or serves something else, or the system refuses.
    pub fn new(
        stream: UnixStream,
        options: &RemoteDeviceOptions,
        memory: MemoryMap,
        on_end: Box<dyn FnOnce(SessionError) + Send>,
    ) -> Result<Self, SessionError> {
        let name: Arc<str> = options.name.as_str().into();
        let os = |error| SessionError::Os { socket: Arc::clone(&name), error };
        let never = Arc::new(EventFd::new().map_err(os)?);
        let stream = Stream::from_socket(stream, &never).map_err(os)?;
        let connection = Connection::new(stream, &name, options.patience);
        let detail = |detail: &str| SessionError::Protocol { socket: Arc::clone(&name), detail: detail.to_owned() };
        connection.set_owner()?;
        let features = connection.get_features()?;
        if features & 1 << VIRTIO_F_VERSION_1 == 0 || features & FEATURE_PROTOCOL_FEATURES == 0 {
            return Err(detail("it knows neither virtio 1.0 nor the protocol's features"));
        }
        let protocol = connection.get_protocol_features()? & PROTOCOL_FEATURES;
        if protocol & protocol::CONFIG == 0 {
            return Err(detail("it has no configuration"));
        }
        connection.set_protocol_features(protocol)?;
        let queues = if protocol & protocol::MQ != 0 { connection.get_queue_count()? } else { 1 };
        let queues = u8::try_from(queues).map_err(|_| detail("it has more queues than can be"))?;
        let config = connection.get_config(options.config_bytes)?;
        let config = config.ok_or_else(|| detail("it shows no configuration of such a device"))?;
        give_memory(&connection, &memory)
            .map_err(|error| error.unwrap_or_else(|| detail("the guest's memory cannot be given to it")))?;
        let inbox = Arc::new(Inbox { event: EventFd::new().map_err(os)?, commands: Mutex::new(Some(Vec::new())) });
        let thread = DeviceThread::new(connection, Arc::clone(&inbox)).map_err(os)?;
        let handle = thread::Builder::new().name(options.name.clone()).spawn(move || thread.run(on_end)).map_err(os)?;
        Ok(Self {
            name,
            device_type: options.device_type,
            features: features & (FEATURES | options.features),
            config,
            queue_sizes_max: vec![options.queue_size; queues.into()],
            memory,
            inbox,
            handle: Some(handle),
        })
    }

    /// Checks what the driver has set up, as the server, which checks it too, would leave for good.
    fn vring(&self, queue: ActivationQueue, features: u64) -> Result<Vring, FailureCause> {
        let ActivationQueue { index, config, doorbell, notifier } = queue;
        let size_max = self.queue_sizes_max.get(usize::from(index)).copied().unwrap_or(0);
        config.ring(size_max, &self.memory, features & 1 << VIRTIO_RING_F_EVENT_IDX != 0)?;
        let call = EventFd::new().map_err(FailureCause::Backend)?;
        Ok(Vring { index, config, doorbell, notifier, call })
    }

    fn stop(&mut self, indices: Vec<u16>) {
        let (stopped, wait) = mpsc::channel();
        self.inbox.send(Command::Stop(indices, stopped));
        // Without a thread, the connection is gone, and so is what the server had.
        let _ = wait.recv();
    }
}

/// The regions, at their guest-physical addresses. Without an error of its own: there are too many, or they are this
/// process's alone.
fn give_memory(connection: &Connection, memory: &MemoryMap) -> Result<(), Option<SessionError>> {
    let regions = memory.shared_regions().ok_or(None)?;
    let regions = regions.map(|(address, length_bytes, file, file_offset_bytes)| RegionMessage {
        address,
        length_bytes,
        file_offset_bytes,
        file: file.as_fd(),
    });
    let regions: Vec<_> = regions.collect();
    if regions.len() > TABLE_REGIONS_MAX {
        return Err(None);
    }
    connection.set_table(&regions).map_err(Some)
}

impl VirtioDevice for RemoteDevice {
    fn name(&self) -> &Arc<str> {
        &self.name
    }

    fn device_type(&self) -> u32 {
        self.device_type
    }

    fn features(&self) -> u64 {
        self.features
    }

    fn queue_sizes_max(&self) -> &[u16] {
        &self.queue_sizes_max
    }

    fn config(&self) -> &[u8] {
        &self.config
    }

    fn activate(&mut self, activation: Activation) -> Result<(), DeviceFailure> {
        let Activation { features, queues } = activation;
        let failed = |queue, cause| DeviceFailure { device: Arc::clone(&self.name), queue, cause };
        let vrings = queues.into_iter().map(|queue| {
            let index = queue.index;
            self.vring(queue, features).map_err(|cause| failed(Some(index), cause))
        });
        let vrings = vrings.collect::<Result<Vec<_>, _>>()?;
        let (done, wait) = mpsc::channel();
        self.inbox.send(Command::Start(vrings, features, done));
        let started = wait.recv().unwrap_or_else(|_| Err("its server is gone".to_owned()));
        started.map_err(|error| failed(None, FailureCause::Backend(io::Error::other(error))))
    }

    fn stop_queue(&mut self, index: u16) {
        self.stop(vec![index]);
    }

    fn reset(&mut self) {
        self.stop((0..self.queue_sizes_max.len() as u16).collect());
    }
}

/// The server hears that the connection is over, and nothing of it touches the guest's memory once it has ended.
impl Drop for RemoteDevice {
    fn drop(&mut self) {
        self.inbox.send(Command::Exit);
        if let Some(handle) = self.handle.take() {
            // One that panicked has let go of the connection, too.
            let _ = handle.join();
        }
    }
}

const INBOX: u64 = u64::MAX;
const CONNECTION: u64 = u64::MAX - 1;

/// The thread that has the connection.
struct DeviceThread {
    connection: Connection,
    inbox: Arc<Inbox>,
    epoll: OwnedFd,
    running: Vec<Vring>,
}

/// However the thread ends, nobody waits for it: who asked for something hears that there is nobody.
impl Drop for DeviceThread {
    fn drop(&mut self) {
        *self.inbox.commands.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl DeviceThread {
    fn new(connection: Connection, inbox: Arc<Inbox>) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &inbox.event, epoll::EventData::new_u64(INBOX), epoll::EventFlags::IN)?;
        // What the server says is read when it was asked; that it is gone is heard at once.
        epoll::add(&epoll, &connection, epoll::EventData::new_u64(CONNECTION), epoll::EventFlags::RDHUP)?;
        Ok(Self { connection, inbox, epoll, running: Vec::new() })
    }

    fn run(mut self, on_end: impl FnOnce(SessionError)) {
        match self.serve() {
            Ok(()) => self.connection.shut_down(),
            Err(error) => {
                self.connection.shut_down();
                self.running.iter().for_each(|vring| vring.notifier.needs_reset());
                drop(self);
                on_end(error);
            }
        }
    }

    /// Until the device is dropped.
    fn serve(&mut self) -> Result<(), SessionError> {
        loop {
            let mut events = [MaybeUninit::uninit(); EVENTS];
            let ready = match epoll::wait(&self.epoll, &mut events, None) {
                Ok((ready, _)) => ready,
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(self.os(errno)),
            };
            for event in ready {
                match event.data.u64() {
                    INBOX => {
                        for command in self.inbox.take() {
                            if matches!(command, Command::Exit) {
                                return Ok(());
                            }
                            self.obey(command)?;
                        }
                    }
                    CONNECTION => return Err(SessionError::Closed(Arc::clone(self.connection.name()))),
                    index => {
                        if let Some(vring) = self.running.iter().find(|vring| u64::from(vring.index) == index) {
                            vring.call.take();
                            vring.notifier.notify_used();
                        }
                    }
                }
            }
        }
    }

    fn obey(&mut self, command: Command) -> Result<(), SessionError> {
        match command {
            Command::Start(vrings, features, done) => {
                let started = self.start(vrings, features);
                let _ = done.send(started.as_ref().map(|_| ()).map_err(|error| explain(error)));
                started?;
            }
            Command::Stop(indices, stopped) => {
                indices.into_iter().try_for_each(|index| self.stop(index))?;
                let _ = stopped.send(());
            }
            Command::Exit => {}
        }
        Ok(())
    }

    fn start(&mut self, vrings: Vec<Vring>, features: u64) -> Result<(), SessionError> {
        self.connection.set_features(features | FEATURE_PROTOCOL_FEATURES)?;
        for vring in vrings {
            let data = epoll::EventData::new_u64(vring.index.into());
            epoll::add(&self.epoll, &vring.call, data, epoll::EventFlags::IN).map_err(|errno| self.os(errno))?;
            let QueueConfig { size, descriptor_table, available_ring, used_ring } = vring.config;
            self.connection.start_vring(&VringMessage {
                index: vring.index,
                // As it was checked to be.
                size: size as u16,
                base: 0,
                descriptors: descriptor_table,
                available: available_ring,
                used: used_ring,
                kick: vring.doorbell.as_fd(),
                call: vring.call.as_fd(),
            })?;
            self.running.push(vring);
        }
        Ok(())
    }

    /// Stops a queue, if it runs.
    fn stop(&mut self, index: u16) -> Result<(), SessionError> {
        let Some(place) = self.running.iter().position(|vring| vring.index == index) else { return Ok(()) };
        self.connection.stop_vring(index)?;
        let vring = self.running.swap_remove(place);
        // The server may have it still, and then epoll would go on with it.
        epoll::delete(&self.epoll, &vring.call).map_err(|errno| self.os(errno))
    }

    fn os(&self, errno: Errno) -> SessionError {
        SessionError::Os { socket: Arc::clone(self.connection.name()), error: errno.into() }
    }
}
