//! A vhost-user front end by hand, that can do everything wrong.

use blockyard_block::EventFd;
use blockyard_block::{Disk, MemoryMap};
use blockyard_session::server::{EndReason, Export, Server, ServerOptions, Session};
use blockyard_virtqueue::{Buffer, Chain, DriverQueue, Rings, available_words, descriptor_words, used_words};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::set_socket_linger;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
};
use std::io::{IoSlice, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::net::{TcpListener, TcpStream};
use std::num::NonZeroU32;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};
use vm_memory::{Bytes, GuestAddress};

/// Guest-physical, and where the client claims to have it itself.
pub(crate) const GUEST: u64 = 0x4000_0000;
pub(crate) const USER: u64 = 0x7f00_0000_0000;
pub(crate) const MEMORY_BYTES: u64 = 16 << 20;
pub(crate) const QUEUE_SIZE: u16 = 64;
pub(crate) const TIMEOUT: Duration = Duration::from_secs(20);

pub(crate) const EVENT_IDX: u64 = 1 << 29;
pub(crate) const PROTOCOL_FEATURES: u64 = 1 << 30;
pub(crate) const VERSION_1: u64 = 1 << 32;
pub(crate) const FLUSH: u64 = 1 << 9;
pub(crate) const NEED_REPLY: u32 = 1 << 3;

pub(crate) const IN: u32 = 0;
pub(crate) const OUT: u32 = 1;

pub(crate) fn export(disk: Arc<dyn Disk>, queues: u16, weight: u32) -> Export {
    Export { name: "disk".into(), disk, queues, weight: NonZeroU32::new(weight).unwrap(), is_alone: false }
}

pub(crate) fn server(poll: Duration) -> Server {
    Server::start(&ServerOptions { poll, ..ServerOptions::default() }).unwrap()
}

/// Waits for something to become readable; false after a long time.
pub(crate) fn readable(descriptor: impl AsFd, timeout: Duration) -> bool {
    let timeout = Timespec::try_from(timeout).unwrap();
    poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], Some(&timeout)).unwrap() > 0
}

pub(crate) fn wait_for(what: impl Fn() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !what() {
        assert!(Instant::now() < deadline, "it never happens");
        std::thread::yield_now();
    }
}

/// Why the session is over, which it has to be soon.
pub(crate) fn end(session: &Session) -> EndReason {
    assert!(readable(session.ended(), TIMEOUT), "the session goes on");
    session.end_reason().unwrap().clone()
}

pub(crate) fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

pub(crate) fn halves(halves: &[u32]) -> Vec<u8> {
    halves.iter().flat_map(|half| half.to_ne_bytes()).collect()
}

/// A server that has hung up is fine.
pub(crate) fn send_on(stream: &UnixStream, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(16))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        assert!(control.push(SendAncillaryMessage::ScmRights(descriptors)));
    }
    let _ = rustix::net::sendmsg(stream, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL);
}

/// A unix socket whose close waits for an hour: in its queue lies the last descriptor of a TCP connection that has to
/// send what nobody reads. And who does not read.
pub(crate) fn lingering_socket() -> (UnixStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut tcp = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let reader = listener.accept().unwrap().0;
    tcp.set_nonblocking(true).unwrap();
    while tcp.write(&[0; 65536]).is_ok() {}
    tcp.set_nonblocking(false).unwrap();
    set_socket_linger(&tcp, Some(Duration::from_secs(3600))).unwrap();
    let (given, ours) = UnixStream::pair().unwrap();
    send_on(&ours, &[0], &[tcp.as_fd()]);
    (given, reader)
}

pub(crate) struct Client {
    pub(crate) stream: UnixStream,
    pub(crate) memory: MemoryMap,
    pub(crate) call: Vec<EventFd>,
    pub(crate) kick: Vec<EventFd>,
    pub(crate) features: u64,
}

impl Client {
    /// A client that has said nothing yet, and its session.
    pub(crate) fn connect(server: &Server, export: Export) -> (Self, Session) {
        Self::connect_with(server, export, MemoryMap::allocate(&[(GUEST, MEMORY_BYTES as usize)]).unwrap())
    }

    pub(crate) fn connect_with(server: &Server, export: Export, memory: MemoryMap) -> (Self, Session) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_read_timeout(Some(TIMEOUT)).unwrap();
        let queues = usize::from(export.queues);
        let session = server.attach(theirs, export).unwrap();
        let events = || (0..queues).map(|_| EventFd::new().unwrap()).collect();
        let features = EVENT_IDX | PROTOCOL_FEATURES | VERSION_1 | FLUSH;
        (Self { stream: ours, memory, call: events(), kick: events(), features }, session)
    }

    /// A client with all its queues running.
    pub(crate) fn start(server: &Server, export: Export) -> (Self, Session) {
        let queues = export.queues;
        let (client, session) = Self::connect(server, export);
        client.negotiate();
        client.share_memory();
        (0..queues).for_each(|index| client.start_queue(index, 0));
        client.synchronize();
        (client, session)
    }

    pub(crate) fn send_with(&self, request: u32, flags: u32, payload: &[u8], descriptors: &[BorrowedFd<'_>]) {
        let mut message = halves(&[request, 1 | flags, payload.len() as u32]);
        message.extend(payload);
        self.send_bytes(&message, descriptors);
    }

    /// Whatever the bytes are.
    pub(crate) fn send_bytes(&self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) {
        send_on(&self.stream, bytes, descriptors);
    }

    pub(crate) fn send(&self, request: u32, payload: &[u8], descriptors: &[BorrowedFd<'_>]) {
        self.send_with(request, 0, payload, descriptors);
    }

    /// The payload of a reply and what came with it; `None` if the server hung up.
    pub(crate) fn receive(&self, request: u32) -> Option<(Vec<u8>, Option<OwnedFd>)> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut bytes = [0; 512];
        let mut into = [IoSliceMut::new(&mut bytes)];
        let received = rustix::net::recvmsg(&self.stream, &mut into, &mut control, RecvFlags::CMSG_CLOEXEC);
        let length = received.map_or(0, |received| received.bytes);
        let descriptor = control.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
            _ => None,
        });
        if length == 0 {
            return None;
        }
        assert_eq!(bytes[..12], halves(&[request, 5, length as u32 - 12])[..], "a reply to the request, whole");
        Some((bytes[12..length].to_vec(), descriptor))
    }

    /// A request whose reply is a number.
    pub(crate) fn ask(&self, request: u32, payload: &[u8]) -> u64 {
        self.send(request, payload, &[]);
        u64::from_ne_bytes(self.receive(request).unwrap().0.try_into().unwrap())
    }

    /// A request that shall be acknowledged: zero for success.
    pub(crate) fn acknowledged(&self, request: u32, payload: &[u8], descriptors: &[BorrowedFd<'_>]) -> u64 {
        self.send_with(request, NEED_REPLY, payload, descriptors);
        u64::from_ne_bytes(self.receive(request).unwrap().0.try_into().unwrap())
    }

    /// Returns once everything sent so far was done.
    pub(crate) fn synchronize(&self) {
        self.ask(1, &[]);
    }

    pub(crate) fn negotiate(&self) {
        self.send(3, &[], &[]);
        let offered = self.ask(1, &[]);
        assert_eq!(self.features & !offered, 0);
        let protocol = self.ask(15, &[]);
        assert_eq!(self.acknowledged(16, &words(&[protocol]), &[]), 0, "this very request may ask for a reply");
        self.send(2, &words(&[self.features]), &[]);
    }

    /// One region, in the 72 bytes that User-Mode Linux sends.
    pub(crate) fn share_memory(&self) {
        let (address, length, file, offset) = self.memory.shared_regions().unwrap().next().unwrap();
        self.send(5, &words(&[1, address, length, USER, offset, 0, 0, 0, 0]), &[file.as_fd()]);
    }

    /// Addresses of descriptor table, available ring and used ring, from the memory's start.
    pub(crate) fn ring_offsets(index: u16) -> [u64; 3] {
        [0, 0x4000, 0x8000].map(|part| u64::from(index) * 0x1_0000 + part)
    }

    pub(crate) fn start_queue(&self, index: u16, base: u16) {
        let number = u32::from(index);
        self.send(8, &halves(&[number, QUEUE_SIZE.into()]), &[]);
        self.send(10, &halves(&[number, base.into()]), &[]);
        let [table, available, used] = Self::ring_offsets(index).map(|offset| USER + offset);
        self.send(9, &words(&[number.into(), table, used, available, u64::MAX]), &[]);
        self.send(12, &words(&[number.into()]), &[self.kick[usize::from(index)].as_fd()]);
        self.send(13, &words(&[number.into()]), &[self.call[usize::from(index)].as_fd()]);
        self.send(18, &halves(&[number, 1]), &[]);
    }

    pub(crate) fn rings(&self, index: u16) -> Rings<'_> {
        let [table, available, used] = Self::ring_offsets(index).map(|offset| GUEST + offset);
        Rings::new(
            QUEUE_SIZE,
            self.memory.words(table, descriptor_words(QUEUE_SIZE)).unwrap(),
            self.memory.words(available, available_words(QUEUE_SIZE)).unwrap(),
            self.memory.words(used, used_words(QUEUE_SIZE)).unwrap(),
        )
        .unwrap()
    }

    pub(crate) fn driver(&self, index: u16) -> Driver<'_> {
        let queue = DriverQueue::new(self.rings(index), self.features & EVENT_IDX != 0).unwrap();
        Driver { client: self, index, queue }
    }

    pub(crate) fn fill(&self, offset: u64, bytes: &[u8]) {
        self.memory.guest_memory().write_slice(bytes, GuestAddress(GUEST + offset)).unwrap();
    }

    pub(crate) fn bytes(&self, offset: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.memory.guest_memory().read_slice(&mut bytes, GuestAddress(GUEST + offset)).unwrap();
        bytes
    }
}

/// Where slot `slot` of a queue has its header, and its status 16 bytes behind.
pub(crate) fn control_offset(index: u16, slot: u32) -> u64 {
    0x40_0000 + u64::from(index) * 0x1_0000 + u64::from(slot) * 32
}

/// The driver of one queue.
pub(crate) struct Driver<'a> {
    pub(crate) client: &'a Client,
    pub(crate) index: u16,
    pub(crate) queue: DriverQueue<'a, { QUEUE_SIZE as usize }>,
}

impl Driver<'_> {
    /// Adds a request whose data are at `offset` of the memory.
    pub(crate) fn add(&mut self, slot: u32, request_type: u32, sector: u64, offset: u64, length: u32) {
        let control = control_offset(self.index, slot);
        let mut header = halves(&[request_type, 0]);
        header.extend(sector.to_le_bytes());
        header.push(0xee);
        self.client.fill(control, &header);
        let buffers = [
            Buffer { address: GUEST + control, length: 16, writable: false },
            Buffer { address: GUEST + offset, length, writable: request_type == IN },
            Buffer { address: GUEST + control + 16, length: 1, writable: true },
        ];
        self.queue.add(slot, &Chain::Direct(&buffers)).unwrap();
    }

    pub(crate) fn publish(&mut self) {
        if self.queue.publish() {
            self.client.kick[usize::from(self.index)].ring();
        }
    }

    pub(crate) fn status(&self, slot: u32) -> u8 {
        self.client.bytes(control_offset(self.index, slot) + 16, 1)[0]
    }

    /// The next request that was answered, waiting for the notification as a driver would; `None` after `timeout`.
    pub(crate) fn next(&mut self, timeout: Duration) -> Option<u32> {
        let deadline = Instant::now() + timeout;
        loop {
            if let Some(used) = self.queue.pop_used().unwrap() {
                return Some(used.token);
            }
            if self.queue.enable_interrupts() {
                continue;
            }
            let left = deadline.checked_duration_since(Instant::now())?;
            let call = &self.client.call[usize::from(self.index)];
            if !readable(call, left) {
                return None;
            }
            call.take();
            self.queue.disable_interrupts();
        }
    }

    /// One request from beginning to end: its status.
    pub(crate) fn run(&mut self, request_type: u32, sector: u64, offset: u64, length: u32) -> u8 {
        self.add(0, request_type, sector, offset, length);
        self.publish();
        assert_eq!(self.next(TIMEOUT), Some(0));
        self.status(0)
    }
}
