//! The thread that speaks with a session's client.

use super::backend_requests::BackendRequests;
use super::client_descriptor::{ClientDescriptor, UNCLOSED_MAX};
use super::client_memory::{ClientMemory, REGIONS_MAX};
use super::connection::{Connection, ConnectionEnd};
use super::descriptor_kind::is_unix_stream;
use super::event_descriptor::{Call, Kick};
use super::in_flight::InFlightMemory;
use super::message::{self, Header, InFlightArea, Region, Request};
use super::served_device::{ServedDevice, ServedQueueParts};
use super::session::{EndReason, Shared};
use super::settling;
use super::task::{Stop, Task, Wish};
use super::{Command, Inner, Share};
use crate::further;
use crate::vhost_user::{FEATURE_ALONE, FEATURE_FURTHER, FEATURE_PROTOCOL_FEATURES, protocol};
use blockyard_block::{SEGMENTS_MAX, explain, wait_ready};
use blockyard_devices::virtio::{FailureCause, QueueConfig};
use rustix::event::{PollFd, PollFlags, Timespec, epoll};
use rustix::io::Errno;
use std::fmt::Display;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};
use virtio_bindings::virtio_ring::VIRTIO_RING_F_EVENT_IDX;

/// Not INBAND_NOTIFICATIONS: they are slower; and no logging of dirty memory. INFLIGHT_SHMFD where the device can go on
/// with what another server began.
const PROTOCOL_FEATURES: u64 = protocol::MQ
    | protocol::REPLY_ACK
    | protocol::BACKEND_REQ
    | protocol::CONFIG
    | protocol::RESET_DEVICE
    | protocol::CONFIGURE_MEM_SLOTS
    | protocol::STATUS;

/// Largest virtqueue (virtio 1.2 §2.7).
const QUEUE_SIZE_MAX: u16 = 32768;
const _: () = assert!(QUEUE_SIZE_MAX as u32 == SEGMENTS_MAX);

/// Why a request is not done.
enum Fault {
    /// Said to a client that asked for an answer. To one that did not, the session is over.
    Refused(String),
    /// The session is over.
    End(EndReason),
}

impl From<EndReason> for Fault {
    fn from(reason: EndReason) -> Self {
        Self::End(reason)
    }
}

fn client(fault: impl Display) -> Fault {
    Fault::End(EndReason::Client(fault.to_string()))
}

/// What a request is answered with.
enum Reply {
    /// Nothing, or success if the client wants to hear of it.
    Done,
    /// Nothing, or failure: we do not know the request.
    Unknown,
    Payload(Vec<u8>),
    WithDescriptor(Vec<u8>, OwnedFd),
}

impl Reply {
    fn number(number: u64) -> Self {
        Self::Payload(number.to_ne_bytes().to_vec())
    }
}

/// A virtqueue, as the client has set it up so far.
#[derive(Default)]
struct Vring {
    size: u32,
    /// In the client's own addresses: descriptor table, available ring, used ring.
    addresses: Option<[u64; 3]>,
    next_available: u16,
    kick: Option<Kick>,
    call: Option<Call>,
    error: Option<Call>,
    enabled: bool,
    /// The task that runs it.
    running: Option<u64>,
}

/// All that is known of a client, and its queues.
pub(super) struct Control {
    inner: Arc<Inner>,
    number: u64,
    device: Arc<dyn ServedDevice>,
    share: Share,
    shared: Arc<Shared>,
    epoll: OwnedFd,
    connection: Connection,
    features: u64,
    protocol_features: u64,
    status: u64,
    memory: ClientMemory,
    in_flight: Option<InFlightMemory>,
    vrings: Vec<Vring>,
    /// Where the client hears that the configuration changed.
    backend_requests: Option<BackendRequests>,
    config: Vec<u8>,
}

const CONNECTION: u64 = 0;
const WAKE: u64 = 1;
const CHANGE: u64 = 2;
const BACKEND_REQUESTS: u64 = 3;
const HUNG_UP: u64 = 4;

/// How long what a client said before it hung up may take to be received: less than the next one waits for its place.
const LAST_WORDS: Timespec = Timespec { tv_sec: 0, tv_nsec: 250_000_000 };

/// How many further connections a client may have at a time: each is two threads here, and some descriptors.
const FURTHER_MAX: usize = 64;

/// How long a client waits until some of what it gave is closed.
const CLOSING: Duration = Duration::from_secs(2);

impl Control {
    pub(super) fn new(
        inner: Arc<Inner>,
        number: u64,
        connection: Connection,
        device: Arc<dyn ServedDevice>,
        share: Share,
        shared: Arc<Shared>,
    ) -> io::Result<Self> {
        let vrings = (0..device.queues()).map(|_| Vring::default()).collect();
        let config = device.config();
        let memory = ClientMemory::none(Arc::clone(&inner.address_space));
        Ok(Self {
            inner,
            number,
            device,
            share,
            shared,
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            connection,
            features: 0,
            protocol_features: 0,
            status: 0,
            memory,
            in_flight: None,
            vrings,
            backend_requests: None,
            config,
        })
    }

    /// Serves the client until the session is over.
    pub(super) fn run(mut self) {
        let reason = match self.serve() {
            Ok(reason) => reason,
            Err(error) => EndReason::Server(format!("the session cannot wait for its client: {error}")),
        };
        // What a client that is gone has asked for is done: it may have gone on without waiting, and ended. Of others',
        // nobody waits for the rest of a long request any more.
        let stop = match reason {
            EndReason::Disconnected => Stop::BehindAvailable,
            _ => {
                self.shared.revoke();
                Stop::Now
            }
        };
        self.stop_all(stop);
        if stop == Stop::BehindAvailable {
            self.shared.further.settle();
        }
        self.shared.further.end();
        if matches!(reason, EndReason::Client(_) | EndReason::Server(_)) {
            self.vrings.iter().filter_map(|vring| vring.error.as_ref()).for_each(Call::ring);
        }
        self.connection.shut_down();
        let shared = Arc::clone(&self.shared);
        // First its memory and the disk, then the word that it is over.
        drop(self);
        shared.end(reason);
    }

    fn serve(&mut self) -> io::Result<EndReason> {
        self.watch(&self.connection, CONNECTION, epoll::EventFlags::IN)?;
        if let Some(stream) = self.connection.watched_for_its_end() {
            self.watch(stream, HUNG_UP, epoll::EventFlags::RDHUP | epoll::EventFlags::ET)?;
        }
        let mut hung_up = false;
        self.watch(&self.shared.wake, WAKE, epoll::EventFlags::IN)?;
        if let Some(event) = self.device.change_event() {
            // An edge: others watch it, too, so it is not ours to read.
            self.watch(event, CHANGE, epoll::EventFlags::IN | epoll::EventFlags::ET)?;
        }
        loop {
            self.settle();
            let mut events = [MaybeUninit::uninit(); 4];
            let patience = hung_up.then_some(&LAST_WORDS);
            let ready = match epoll::wait(&self.epoll, &mut events, patience) {
                // What it said before is still being looked at, which may take for ever.
                Ok((ready, _)) if ready.is_empty() && hung_up => return Ok(EndReason::Disconnected),
                Ok((ready, _)) => ready,
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(errno.into()),
            };
            for event in ready {
                let ended = match event.data.u64() {
                    CONNECTION => self.receive().err(),
                    WAKE => {
                        self.shared.wake.take();
                        self.shared.shall_end()
                    }
                    HUNG_UP => {
                        hung_up = true;
                        None
                    }
                    CHANGE => {
                        self.tell_of_change();
                        None
                    }
                    _ => {
                        self.backend_requests.iter_mut().for_each(BackendRequests::speak);
                        None
                    }
                };
                if let Some(reason) = ended {
                    return Ok(reason);
                }
            }
        }
    }

    /// Has all done that the client has made available, if somebody waits for that.
    fn settle(&mut self) {
        let waiting = self.shared.take_settling();
        if waiting.is_empty() {
            return;
        }
        self.stop_all(Stop::BehindAvailable);
        if let Err(fault) = self.start_what_can_run() {
            let (Fault::Refused(fault) | Fault::End(EndReason::Client(fault) | EndReason::Server(fault))) = fault
            else {
                return;
            };
            self.shared.fail(EndReason::Server(fault));
        }
    }

    fn watch(&self, source: impl AsFd, data: u64, flags: epoll::EventFlags) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, source, epoll::EventData::new_u64(data), flags)?)
    }

    /// Does what the messages say that have come: a few, so that a client that floods us still hears that it shall end.
    fn receive(&mut self) -> Result<(), EndReason> {
        for _ in 0..16 {
            self.await_closer()?;
            let Some((header, request)) = self.connection.receive().map_err(end_of_connection)? else { return Ok(()) };
            self.answer(&header, request)?;
        }
        Ok(())
    }

    /// Waits until not too many of the descriptors that the client gave wait to be closed. A client whose descriptors
    /// cannot be is left.
    fn await_closer(&self) -> Result<(), EndReason> {
        let deadline = Instant::now() + CLOSING;
        while self.connection.closer_is_behind() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let fault = format!("{UNCLOSED_MAX} descriptors of the client's cannot be closed");
                return Err(EndReason::Client(fault));
            }
            wait_ready(&mut [PollFd::new(&self.shared.wake, PollFlags::IN)], Some(left))
                .map_err(|error| EndReason::Server(format!("the session cannot wait: {error}")))?;
            self.shared.wake.take();
            if let Some(reason) = self.shared.shall_end() {
                return Err(reason);
            }
        }
        Ok(())
    }

    fn answer(&mut self, header: &Header, request: Request) -> Result<(), EndReason> {
        let performed = self.perform(request);
        // Afterwards: it may be the very request that negotiated it.
        let acknowledges = header.wants_reply() && self.protocol_features & protocol::REPLY_ACK != 0;
        let reply = match performed {
            Ok(Reply::Payload(payload)) => Some((payload, None)),
            Ok(Reply::WithDescriptor(payload, descriptor)) => Some((payload, Some(descriptor))),
            Ok(Reply::Done) => acknowledges.then(|| (0u64.to_ne_bytes().to_vec(), None)),
            Ok(Reply::Unknown) => acknowledges.then(|| (1u64.to_ne_bytes().to_vec(), None)),
            Err(Fault::Refused(_)) if acknowledges => Some((1u64.to_ne_bytes().to_vec(), None)),
            Err(Fault::Refused(fault)) => return Err(EndReason::Client(fault)),
            Err(Fault::End(reason)) => return Err(reason),
        };
        let Some((payload, descriptor)) = reply else { return Ok(()) };
        let sent = self.connection.send(&header.reply(&payload), descriptor.as_ref().map(AsFd::as_fd));
        sent.map_err(end_of_connection)
    }

    fn perform(&mut self, request: Request) -> Result<Reply, Fault> {
        match request {
            Request::GetFeatures => return Ok(Reply::number(self.offered())),
            Request::SetFeatures(features) => return self.set_features(features),
            Request::GetProtocolFeatures => return Ok(Reply::number(self.offered_protocol())),
            Request::SetProtocolFeatures(features) => match features & !self.offered_protocol() {
                0 => self.protocol_features = features,
                more => return Err(client(format!("the client has taken protocol features {more:#x}, not offered"))),
            },
            Request::SetOwner => {}
            Request::Reset => self.reset(),
            Request::GetQueueCount => return Ok(Reply::number(self.device.queues().into())),
            Request::GetMemorySlots => return Ok(Reply::number(REGIONS_MAX as u64)),
            Request::SetMemoryTable(regions) => {
                let memory = self.memory.of(regions).map_err(client)?;
                return self.set_memory(memory);
            }
            Request::AddRegion(region, file) => return self.change_memory(|memory| memory.with(region, file)),
            Request::RemoveRegion(region) => return self.remove_region(&region),
            Request::GetConfig { offset, bytes } => {
                return Ok(Reply::Payload(message::config_payload(&self.config, offset, bytes)));
            }
            Request::SetConfig => {
                return Err(Fault::Refused("nothing in the configuration can be written".to_owned()));
            }
            Request::SetBackendRequests(socket) => self.set_backend_requests(socket).map_err(client)?,
            Request::AddConnection(stream) => return self.add_connection(stream),
            Request::GetConnectionCounts => {
                let counts = self.shared.further.statistics().counts;
                return Ok(Reply::Payload(further::to_bytes(counts).to_vec()));
            }
            Request::SettleConnections => {
                let begun = settling::begin(&self.shared);
                return Ok(Reply::number(begun.map_err(|error| Fault::End(EndReason::Server(error.to_string())))?));
            }
            Request::GetSettledConnections => return Ok(Reply::number(self.shared.settling_further.settled())),
            Request::GetInFlight { queues, queue_size, payload_bytes } => {
                return self.create_in_flight(queues, queue_size, payload_bytes);
            }
            Request::SetInFlight(area, file) => return self.set_in_flight(area, file),
            Request::GetStatus => return Ok(Reply::number(self.status)),
            Request::SetStatus(status) => self.set_status(status),
            // Logging is not offered. This is answered all the same, and as what it is: not done.
            Request::SetLogBase => return Ok(Reply::number(1)),
            Request::Unknown => return Ok(Reply::Unknown),
            vring => return self.perform_on_vring(vring),
        }
        Ok(Reply::Done)
    }

    fn perform_on_vring(&mut self, request: Request) -> Result<Reply, Fault> {
        match request {
            Request::SetVringSize { index, size } => self.stopped(index)?.size = size,
            Request::SetVringAddresses { index, descriptor_table, used_ring, available_ring } => {
                self.stopped(index)?.addresses = Some([descriptor_table, available_ring, used_ring]);
            }
            Request::SetVringBase { index, next_available } => {
                let next_available = u16::try_from(next_available);
                let next_available =
                    next_available.map_err(|_| client(format!("queue {index} starts beyond 65535")))?;
                self.stopped(index)?.next_available = next_available;
            }
            Request::GetVringBase { index } => {
                let vring = self.stopped(index)?;
                // It starts again when a kick is set (§ "Starting and stopping rings").
                vring.kick = None;
                let base = [index, vring.next_available.into()];
                return Ok(Reply::Payload(base.iter().flat_map(|word| word.to_ne_bytes()).collect()));
            }
            Request::SetVringKick { index, kick } => {
                let kick = Kick::new(kick, &self.inner.ringer).map_err(client)?;
                self.stopped(index)?.kick = Some(kick);
            }
            Request::SetVringCall { index, call } => self.set_call(index, call)?,
            Request::SetVringError { index, error } => {
                let error = error.map(|error| self.call(error)).transpose()?;
                self.vring(index)?.error = error;
            }
            Request::SetVringEnable { index, enable } => {
                let vring = if enable { self.vring(index)? } else { self.stopped(index)? };
                vring.enabled = enable;
            }
            // The others were done before.
            _ => {}
        }
        self.start_what_can_run()?;
        Ok(Reply::Done)
    }

    fn offered(&self) -> u64 {
        FEATURE_PROTOCOL_FEATURES | self.device.features() | self.offered_to_the_first()
    }

    fn offered_protocol(&self) -> u64 {
        let in_flight = if self.device.takes_over() { protocol::INFLIGHT_SHMFD } else { 0 };
        PROTOCOL_FEATURES | in_flight
    }

    /// Of features, what concerns all connections of a client.
    fn offered_to_the_first(&self) -> u64 {
        let further = if self.device.further().is_some() { FEATURE_FURTHER } else { 0 };
        let alone = if self.device.is_alone() { FEATURE_ALONE } else { 0 };
        if self.share.first.is_none() { further | alone } else { 0 }
    }

    fn add_connection(&self, stream: ClientDescriptor) -> Result<Reply, Fault> {
        let Some(device) = self.device.further().filter(|_| self.features & FEATURE_FURTHER != 0) else {
            return Ok(Reply::Unknown);
        };
        if !is_unix_stream(&stream) {
            return Err(client("what is to be a further connection is no stream socket"));
        }
        if self.shared.further.count() >= FURTHER_MAX {
            return Err(Fault::Refused("the client has as many connections as it may have".to_owned()));
        }
        // What the client gave is closed where nobody waits for it.
        let stream = stream.as_fd().try_clone_to_owned().map(UnixStream::from);
        let name = Arc::clone(&self.shared.name);
        let share = Share { first: Some(self.number), ..self.share };
        let session = stream.and_then(|stream| Inner::attach(&self.inner, stream.into(), name, device, share));
        let session = session.map_err(|error| Fault::Refused(format!("a further connection: {error}")))?;
        self.shared.further.add(session);
        Ok(Reply::Done)
    }

    fn set_features(&mut self, features: u64) -> Result<Reply, Fault> {
        let more = features & !self.offered();
        if more != 0 {
            return Err(client(format!("the client has taken features {more:#x}, which were not offered")));
        }
        self.restarting(|control| {
            control.features = features;
            Ok(())
        })
    }

    fn set_memory(&mut self, memory: ClientMemory) -> Result<Reply, Fault> {
        self.restarting(|control| {
            control.memory = memory;
            Ok(())
        })
    }

    fn change_memory(
        &mut self,
        change: impl FnOnce(&ClientMemory) -> Result<ClientMemory, blockyard_block::MemoryMapError>,
    ) -> Result<Reply, Fault> {
        let memory = change(&self.memory).map_err(|error| Fault::Refused(explain(&error)))?;
        self.set_memory(memory)
    }

    fn remove_region(&mut self, region: &Region) -> Result<Reply, Fault> {
        self.change_memory(|memory| memory.without(region))
    }

    fn create_in_flight(&mut self, queues: u16, queue_size: u16, payload_bytes: usize) -> Result<Reply, Fault> {
        self.check_in_flight(queues, queue_size)?;
        let (area, file) = InFlightMemory::create(queues, queue_size).map_err(server)?;
        Ok(Reply::WithDescriptor(message::in_flight_payload(&area, payload_bytes), file))
    }

    fn check_in_flight(&self, queues: u16, queue_size: u16) -> Result<(), Fault> {
        if queues > self.device.queues() || queue_size > QUEUE_SIZE_MAX || !self.device.takes_over() {
            return Err(client(format!("in-flight tracking of {queues} queues of {queue_size} was asked for")));
        }
        Ok(())
    }

    fn set_in_flight(&mut self, area: InFlightArea, file: ClientDescriptor) -> Result<Reply, Fault> {
        self.check_in_flight(area.queues, area.queue_size)?;
        let memory = InFlightMemory::map(area, file).map_err(client)?;
        self.restarting(|control| {
            control.in_flight = Some(memory);
            Ok(())
        })
    }

    fn set_status(&mut self, status: u64) {
        self.status = status;
        if status == 0 {
            self.reset();
        }
    }

    /// As before the client set up its queues. The memory, and how we agreed to talk, stay.
    fn reset(&mut self) {
        self.stop_all(Stop::Now);
        self.status = 0;
        self.vrings.iter_mut().for_each(|vring| *vring = Vring::default());
    }

    fn set_call(&mut self, index: u32, call: Option<ClientDescriptor>) -> Result<(), Fault> {
        let call = call.map(|call| self.call(call)).transpose()?;
        let vring = self.vring(index)?;
        vring.call.clone_from(&call);
        if let Some(task) = vring.running {
            self.inner.thread_of(self.number, index as u16).send(Command::SetCall { task, call });
        }
        Ok(())
    }

    fn call(&self, descriptor: ClientDescriptor) -> Result<Call, Fault> {
        Call::new(descriptor, &self.inner.ringer).map_err(client)
    }

    fn vring(&mut self, index: u32) -> Result<&mut Vring, Fault> {
        let queues = self.vrings.len();
        let vring = self.vrings.get_mut(index as usize);
        vring.ok_or_else(|| client(format!("the client speaks of queue {index} of {queues}")))
    }

    /// A virtqueue that does not run: what it is may be changed.
    fn stopped(&mut self, index: u32) -> Result<&mut Vring, Fault> {
        self.vring(index)?;
        self.stop(index as u16);
        self.vring(index)
    }

    /// Waits until the queue is drained.
    fn stop(&mut self, index: u16) {
        if let Some(stopping) = self.ask_to_stop(index, Stop::Now) {
            self.await_stop(index, &stopping);
        }
    }

    fn ask_to_stop(&mut self, index: u16, stop: Stop) -> Option<mpsc::Receiver<u16>> {
        let task = self.vrings[usize::from(index)].running.take()?;
        let (reply, stopped) = mpsc::channel();
        self.inner.thread_of(self.number, index).send(Command::Stop { task, stop, reply });
        Some(stopped)
    }

    fn await_stop(&mut self, index: u16, stopped: &mpsc::Receiver<u16>) {
        match stopped.recv() {
            Ok(next_available) => self.vrings[usize::from(index)].next_available = next_available,
            Err(_) => self.shared.fail(EndReason::Server("an I/O thread has died".to_owned())),
        }
    }

    /// All together, so that it takes no longer than the slowest.
    fn stop_all(&mut self, stop: Stop) -> Vec<u16> {
        let indices = 0..self.vrings.len() as u16;
        let stopping: Vec<_> = indices.filter_map(|index| Some((index, self.ask_to_stop(index, stop)?))).collect();
        stopping.iter().for_each(|(index, stopped)| self.await_stop(*index, stopped));
        stopping.into_iter().map(|(index, _)| index).collect()
    }

    /// Changes something that running queues are made with: they stop, and go on where they were.
    fn restarting(&mut self, change: impl FnOnce(&mut Self) -> Result<(), Fault>) -> Result<Reply, Fault> {
        self.stop_all(Stop::Now);
        change(self)?;
        self.start_what_can_run()?;
        Ok(Reply::Done)
    }

    fn start_what_can_run(&mut self) -> Result<(), Fault> {
        let all_enabled = self.features & FEATURE_PROTOCOL_FEATURES == 0;
        for index in 0..self.vrings.len() {
            let vring = &self.vrings[index];
            let complete = vring.size > 0 && vring.kick.is_some() && self.memory.map().is_some();
            if let (true, None, Some(addresses)) = (complete, vring.running, vring.addresses)
                && (vring.enabled || all_enabled)
            {
                self.start(index as u16, addresses)?;
            }
        }
        Ok(())
    }

    fn start(&mut self, index: u16, addresses: [u64; 3]) -> Result<(), Fault> {
        let queue_fault = |cause: FailureCause| {
            let reason = match cause {
                FailureCause::Backend(_) => EndReason::Server,
                _ => EndReason::Client,
            };
            Fault::End(reason(format!("queue {index}: {}", explain(&cause))))
        };
        let wish = Arc::new(Wish::default());
        let parts = self.parts(index, addresses, Arc::clone(&wish))?.map_err(queue_fault)?;
        let queue = self.device.open_queue(parts).map_err(queue_fault)?;
        let vring = &mut self.vrings[usize::from(index)];
        let (Some(kick), call) = (vring.kick.clone(), vring.call.clone()) else { return Ok(()) };
        let id = self.inner.next_number();
        vring.running = Some(id);
        let task = Box::new(Task::new(id, queue, wish, kick, call, Arc::clone(&self.shared)));
        let Share { weight, first } = self.share;
        let start = Command::Start { session: first.unwrap_or(self.number), weight: weight.get(), task };
        self.inner.thread_of(self.number, index).send(start);
        Ok(())
    }

    /// What the queue is made of, checked.
    fn parts(
        &self,
        index: u16,
        [descriptor_table, available_ring, used_ring]: [u64; 3],
        wish: Arc<Wish>,
    ) -> Result<Result<ServedQueueParts, FailureCause>, Fault> {
        let vring = &self.vrings[usize::from(index)];
        let Some(memory) = self.memory.map() else { return Err(client("a queue without memory")) };
        let guest = |part: &str, address: u64| {
            let outside = || client(format!("queue {index}: the {part} at {address:#x} is in no region of memory"));
            self.memory.guest_address(address).ok_or_else(outside)
        };
        let config = QueueConfig {
            size: vring.size,
            descriptor_table: guest("descriptor table", descriptor_table)?,
            available_ring: guest("available ring", available_ring)?,
            used_ring: guest("used ring", used_ring)?,
        };
        let event_index = self.features & 1 << VIRTIO_RING_F_EVENT_IDX != 0;
        let mut ring = match config.ring_anywhere(QUEUE_SIZE_MAX, memory, event_index) {
            Ok(ring) => ring,
            Err(cause) => return Ok(Err(cause)),
        };
        ring.resume(vring.next_available);
        let in_flight = self.in_flight.as_ref().map(|in_flight| {
            let none = || client(format!("queue {index} of {} has no room in the in-flight record", ring.size()));
            in_flight.record(index, ring.size()).ok_or_else(none)
        });
        Ok(Ok(ServedQueueParts {
            device: Arc::clone(&self.shared.name),
            index,
            ring,
            memory: memory.clone(),
            features: self.features,
            notifier: wish,
            statistics: Arc::clone(&self.shared.queues[usize::from(index)]),
            in_flight: in_flight.transpose()?,
        }))
    }

    fn set_backend_requests(&mut self, socket: ClientDescriptor) -> io::Result<()> {
        if let Some(old) = self.backend_requests.take() {
            // The client may have it still, and then epoll would go on with it.
            let _ = epoll::delete(&self.epoll, &old);
        }
        let new = BackendRequests::new(socket)?;
        // An edge, so that it does not matter how long it is writable with nothing to say.
        self.watch(&new, BACKEND_REQUESTS, epoll::EventFlags::OUT | epoll::EventFlags::ET)?;
        self.backend_requests = Some(new);
        Ok(())
    }

    /// The device says that it changed.
    fn tell_of_change(&mut self) {
        let fresh = self.device.config();
        let changed = fresh != self.config;
        self.config = fresh;
        if let (true, Some(client)) = (changed, &mut self.backend_requests) {
            client.config_changed();
        }
    }
}

fn server(error: io::Error) -> Fault {
    Fault::End(EndReason::Server(error.to_string()))
}

fn end_of_connection(end: ConnectionEnd) -> EndReason {
    match end {
        ConnectionEnd::Closed => EndReason::Disconnected,
        end => EndReason::Client(explain(&end)),
    }
}
