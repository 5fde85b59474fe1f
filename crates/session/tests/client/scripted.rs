//! A server that does what a script says: properly, or against every rule.

use blockyard_block::{MemoryMap, SharedRegion};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};
use std::collections::HashMap;
use std::fs::File;
use std::io::{IoSlice, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use vm_memory::{Bytes, GuestAddress};

pub(crate) const GET_FEATURES: u32 = 1;
pub(crate) const SET_OWNER: u32 = 3;
pub(crate) const SET_MEM_TABLE: u32 = 5;
const SET_VRING_NUM: u32 = 8;
const SET_VRING_ADDR: u32 = 9;
const SET_VRING_BASE: u32 = 10;
pub(crate) const GET_VRING_BASE: u32 = 11;
const SET_VRING_KICK: u32 = 12;
const SET_VRING_CALL: u32 = 13;
pub(crate) const GET_PROTOCOL_FEATURES: u32 = 15;
const SET_PROTOCOL_FEATURES: u32 = 16;
pub(crate) const GET_QUEUE_NUM: u32 = 17;
const SET_BACKEND_REQ_FD: u32 = 21;
pub(crate) const GET_CONFIG: u32 = 24;
const GET_MAX_MEM_SLOTS: u32 = 36;
pub(crate) const ADD_MEM_REG: u32 = 37;
const REM_MEM_REG: u32 = 38;

pub(crate) const VERSION_1: u64 = 1 << 32;
pub(crate) const INDIRECT: u64 = 1 << 28;
pub(crate) const EVENT_IDX: u64 = 1 << 29;
pub(crate) const PROTOCOL_FEATURES: u64 = 1 << 30;
pub(crate) const SIZE_MAX: u64 = 1 << 1;
pub(crate) const SEG_MAX: u64 = 1 << 2;
pub(crate) const BLK_SIZE: u64 = 1 << 6;
pub(crate) const FLUSH: u64 = 1 << 9;
pub(crate) const FEATURES: u64 = VERSION_1 | INDIRECT | EVENT_IDX | PROTOCOL_FEATURES | SEG_MAX | FLUSH;

pub(crate) const REPLY_ACK: u64 = 1 << 3;
pub(crate) const CONFIG: u64 = 1 << 9;
pub(crate) const MEM_SLOTS: u64 = 1 << 15;
/// MQ, REPLY_ACK, BACKEND_REQ, CONFIG, CONFIGURE_MEM_SLOTS.
pub(crate) const PROTOCOL: u64 = 1 | REPLY_ACK | 1 << 5 | CONFIG | MEM_SLOTS;

/// What is done about a control message.
#[derive(Clone, Debug)]
pub(crate) enum Say {
    Properly,
    /// The answer never comes.
    Nothing,
    /// The message is refused where it can be.
    Refuse,
    Close,
    /// These bytes come instead of the answer, or without a question.
    Raw(Vec<u8>),
    /// The answer comes with descriptors.
    WithDescriptors,
}

/// What is done about a request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Use {
    Properly,
    /// The status byte is this.
    Status(u8),
    /// The used index moves by this instead of 1.
    Index(u16),
    /// The used element names this chain.
    Id(u32),
    Twice,
    Never,
    /// Everything that can be written to is, with this byte; then it goes on properly.
    Scribble(u8),
    Close,
    /// The disk has as many sectors from now on, and the client is told.
    Resize(u64),
}

pub(crate) struct Script {
    pub(crate) features: u64,
    pub(crate) protocol: u64,
    pub(crate) queues: u64,
    pub(crate) memory_slots: u64,
    pub(crate) config: [u8; 60],
    /// It may find what cannot be by its own fault, and ends then; else that is the client's fault.
    pub(crate) careless: bool,
    /// Makes the events that it is notified by ones to wait for, and fills them.
    pub(crate) fills_kicks: bool,
    /// What to do about the message of this kind, of which as many have come before.
    pub(crate) on_message: Box<dyn FnMut(u32, usize) -> Say + Send>,
    /// What to do about a request, of which as many have come before.
    pub(crate) on_request: Box<dyn FnMut(usize) -> Use + Send>,
}

impl Script {
    /// A good server of a disk of `bytes`.
    pub(crate) fn good(bytes: usize) -> Self {
        let mut config = [0; 60];
        config[..8].copy_from_slice(&(bytes as u64 / 512).to_le_bytes());
        config[12..16].copy_from_slice(&16_u32.to_le_bytes());
        Self {
            features: FEATURES,
            protocol: PROTOCOL,
            queues: 2,
            memory_slots: 16,
            config,
            careless: false,
            fills_kicks: false,
            on_message: Box::new(|_, _| Say::Properly),
            on_request: Box::new(|_| Use::Properly),
        }
    }

    pub(crate) fn on_message(mut self, on_message: impl FnMut(u32, usize) -> Say + Send + 'static) -> Self {
        self.on_message = Box::new(on_message);
        self
    }

    pub(crate) fn on_request(mut self, on_request: impl FnMut(usize) -> Use + Send + 'static) -> Self {
        self.on_request = Box::new(on_request);
        self
    }

    /// Answers `request`, and that only, in this way.
    pub(crate) fn saying(self, request: u32, say: Say) -> Self {
        self.on_message(move |kind, _| if kind == request { say.clone() } else { Say::Properly })
    }
}

#[derive(Default)]
struct Vring {
    size: u16,
    next: u16,
    used: u16,
    descriptors: u64,
    available: u64,
    used_ring: u64,
    kick: Option<OwnedFd>,
    call: Option<OwnedFd>,
}

/// The disk's contents, which a restarted server finds again.
pub(crate) type Contents = Arc<Mutex<Vec<u8>>>;

pub(crate) fn contents(bytes: usize) -> Contents {
    Arc::new(Mutex::new(vec![0; bytes]))
}

struct Server {
    stream: UnixStream,
    script: Script,
    disk: Contents,
    protocol: u64,
    features: u64,
    memory: Vec<(u64, MemoryMap)>,
    vrings: HashMap<u32, Vring>,
    messages: HashMap<u32, usize>,
    requests: usize,
    backend: Option<OwnedFd>,
}

/// Serves a client until it goes, or the script ends it.
pub(crate) fn serve(stream: UnixStream, script: Script, disk: &Contents) {
    let mut server = Server {
        stream,
        script,
        disk: Arc::clone(disk),
        protocol: 0,
        features: 0,
        memory: Vec::new(),
        vrings: HashMap::new(),
        messages: HashMap::new(),
        requests: 0,
        backend: None,
    };
    while server.step().is_some() {}
}

impl Server {
    /// Does one thing. `None`: it is over.
    fn step(&mut self) -> Option<()> {
        let mut fds = vec![PollFd::new(&self.stream, PollFlags::IN)];
        fds.extend(
            self.vrings.values().filter_map(|vring| vring.kick.as_ref()).map(|kick| PollFd::new(kick, PollFlags::IN)),
        );
        // A kick may be lost with a client that knows no better.
        let _ = poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 5_000_000 }));
        if !fds[0].revents().is_empty() {
            self.message()?;
        }
        let indexes: Vec<_> = self.vrings.keys().copied().collect();
        indexes.into_iter().try_for_each(|index| self.run(index))
    }

    fn message(&mut self) -> Option<()> {
        let mut header = [0; 12];
        let files = receive(&self.stream, &mut header)?;
        let word = |bytes: &[u8], index: usize| u32::from_ne_bytes(bytes[4 * index..4 * index + 4].try_into().unwrap());
        let (request, flags) = (word(&header, 0), word(&header, 1));
        let mut body = vec![0; word(&header, 2) as usize];
        self.stream.read_exact(&mut body).ok()?;
        let count = self.messages.entry(request).or_default();
        *count += 1;
        let say = (self.script.on_message)(request, *count - 1);
        let number = || u64::from_ne_bytes(body[..8].try_into().unwrap());
        let answer = match request {
            GET_FEATURES => Some(self.script.features.to_ne_bytes().to_vec()),
            GET_PROTOCOL_FEATURES => Some(self.script.protocol.to_ne_bytes().to_vec()),
            GET_QUEUE_NUM => Some(self.script.queues.to_ne_bytes().to_vec()),
            GET_MAX_MEM_SLOTS => Some(self.script.memory_slots.to_ne_bytes().to_vec()),
            GET_CONFIG => Some([&body[..12], &self.script.config].concat()),
            2 => {
                self.features = number();
                None
            }
            SET_PROTOCOL_FEATURES => {
                self.protocol = number();
                None
            }
            SET_BACKEND_REQ_FD => {
                self.backend = files.into_iter().next();
                None
            }
            SET_MEM_TABLE => {
                self.memory.clear();
                for (index, file) in files.into_iter().enumerate() {
                    self.map(&body[8 + 32 * index..], file);
                }
                None
            }
            ADD_MEM_REG if !matches!(say, Say::Refuse) => {
                self.map(&body[8..], files.into_iter().next()?);
                None
            }
            REM_MEM_REG => {
                let address = u64::from_ne_bytes(body[8..16].try_into().unwrap());
                self.memory.retain(|(start, _)| *start != address);
                None
            }
            _ => self.vring_message(request, &body, files),
        };
        self.answer(request, flags, say, answer)
    }

    fn vring_message(&mut self, request: u32, body: &[u8], files: Vec<OwnedFd>) -> Option<Vec<u8>> {
        let half = |index: usize| u32::from_ne_bytes(body[4 * index..4 * index + 4].try_into().unwrap());
        let whole = |index: usize| u64::from_ne_bytes(body[8 * index..8 * index + 8].try_into().unwrap());
        if !matches!(request, SET_VRING_NUM..=SET_VRING_CALL) {
            return None;
        }
        let vring = self.vrings.entry(half(0)).or_default();
        match request {
            SET_VRING_NUM => vring.size = half(1) as u16,
            SET_VRING_BASE => (vring.next, vring.used) = (half(1) as u16, half(1) as u16),
            SET_VRING_ADDR => (vring.descriptors, vring.used_ring, vring.available) = (whole(1), whole(2), whole(3)),
            SET_VRING_KICK if self.script.fills_kicks => {
                let kick = &files[0];
                rustix::fs::fcntl_setfl(kick, rustix::fs::OFlags::empty()).unwrap();
                rustix::io::write(kick, &(u64::MAX - 1).to_ne_bytes()).unwrap();
            }
            SET_VRING_KICK => vring.kick = files.into_iter().next(),
            SET_VRING_CALL => vring.call = files.into_iter().next(),
            GET_VRING_BASE => {
                vring.kick = None;
                return Some([half(0).to_ne_bytes(), u32::from(vring.next).to_ne_bytes()].concat());
            }
            _ => {}
        }
        None
    }

    fn answer(&mut self, request: u32, flags: u32, say: Say, answer: Option<Vec<u8>>) -> Option<()> {
        let acknowledge = flags & 8 != 0 && self.protocol & REPLY_ACK != 0;
        let refused = u64::from(matches!(say, Say::Refuse));
        let body = match answer {
            Some(_) if refused == 1 => Vec::new(),
            Some(body) => body,
            None if acknowledge => refused.to_ne_bytes().to_vec(),
            None if matches!(say, Say::Raw(_) | Say::Close) => Vec::new(),
            None => return Some(()),
        };
        let message =
            [&request.to_ne_bytes()[..], &5_u32.to_ne_bytes(), &(body.len() as u32).to_ne_bytes(), &body].concat();
        match say {
            Say::Properly | Say::Refuse => self.send(&message, false),
            Say::WithDescriptors => self.send(&message, true),
            Say::Raw(bytes) => self.send(&bytes, false),
            Say::Nothing => Some(()),
            Say::Close => None,
        }
    }

    fn send(&self, bytes: &[u8], with_descriptors: bool) -> Option<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let files = [self.stream.as_fd(), self.stream.as_fd()];
        if with_descriptors {
            ancillary.push(SendAncillaryMessage::ScmRights(&files));
        }
        sendmsg(&self.stream, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL).ok().map(|_| ())
    }

    fn map(&mut self, region: &[u8], file: OwnedFd) {
        let word = |index: usize| u64::from_ne_bytes(region[8 * index..8 * index + 8].try_into().unwrap());
        let region = SharedRegion {
            address: word(0),
            length_bytes: word(1),
            file: File::from(file),
            file_offset_bytes: word(3),
        };
        self.memory.push((word(0), MemoryMap::from_files(vec![region]).unwrap()));
    }

    /// What was found in memory cannot be. That ends this server if it is its own fault, else the test.
    fn impossible<T>(&self, what: &str) -> Option<T> {
        assert!(self.script.careless, "the client {what}");
        None
    }

    fn read<const N: usize>(&self, address: u64) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        self.read_into(address, &mut bytes)?;
        Some(bytes)
    }

    fn map_at(&self, address: u64, length: usize) -> Option<&MemoryMap> {
        let found = self.memory.iter().find(|(start, map)| {
            let end = start + map.regions().next().unwrap().1;
            *start <= address && address.checked_add(length as u64).is_some_and(|stop| stop <= end)
        });
        found.map(|(_, map)| map).or_else(|| self.impossible("points at what it did not announce"))
    }

    fn read_into(&self, address: u64, bytes: &mut [u8]) -> Option<()> {
        self.map_at(address, bytes.len())?.guest_memory().read_slice(bytes, GuestAddress(address)).ok()
    }

    fn write(&self, address: u64, bytes: &[u8]) -> Option<()> {
        self.map_at(address, bytes.len())?.guest_memory().write_slice(bytes, GuestAddress(address)).ok()
    }

    /// Does what is available in a virtqueue.
    fn run(&mut self, index: u32) -> Option<()> {
        loop {
            let vring = &self.vrings[&index];
            let Some(kick) = &vring.kick else { return Some(()) };
            let mut count = [0; 8];
            let _ = rustix::io::read(kick, &mut count);
            let (available, next, size) = (vring.available, vring.next, vring.size);
            if self.features & EVENT_IDX != 0 {
                // Every chain that comes from now on is to be told of.
                self.write(vring.used_ring + 4 + 8 * u64::from(size), &next.to_le_bytes())?;
            }
            std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
            if u16::from_le_bytes(self.read(available + 2)?) == next {
                return Some(());
            }
            let head = u16::from_le_bytes(self.read(available + 4 + 2 * u64::from(next % size))?);
            self.vrings.get_mut(&index).unwrap().next = next.wrapping_add(1);
            self.request(index, head)?;
        }
    }

    fn chain(&self, vring: &Vring, head: u16) -> Option<Vec<(u64, u32, bool)>> {
        let descriptor = |table: u64, index: u16| {
            let bytes: [u8; 16] = self.read(table.checked_add(16 * u64::from(index))?)?;
            let address = u64::from_le_bytes(bytes[..8].try_into().unwrap());
            let length = u32::from_le_bytes(bytes[8..12].try_into().unwrap());
            Some((
                address,
                length,
                u16::from_le_bytes([bytes[12], bytes[13]]),
                u16::from_le_bytes([bytes[14], bytes[15]]),
            ))
        };
        let (mut table, mut index) = (vring.descriptors, head);
        let first = descriptor(table, head)?;
        if first.2 & 4 != 0 {
            if self.features & INDIRECT == 0 {
                return self.impossible("uses a table though there are none");
            }
            (table, index) = (first.0, 0);
        }
        let mut buffers = Vec::new();
        while buffers.len() < 1024 {
            let (address, length, flags, next) = descriptor(table, index)?;
            buffers.push((address, length, flags & 2 != 0));
            if flags & 1 == 0 {
                return Some(buffers);
            }
            index = next;
        }
        self.impossible("makes chains without end")
    }

    fn request(&mut self, index: u32, head: u16) -> Option<()> {
        let vring = &self.vrings[&index];
        let buffers = self.chain(vring, head)?;
        let deed = (self.script.on_request)(self.requests);
        self.requests += 1;
        if let Use::Scribble(byte) = deed {
            self.scribble(&buffers, byte);
        }
        if let Use::Resize(sectors) = deed {
            self.resize(sectors);
        }
        let Some(&(status_address, 1, true)) = buffers.last() else {
            return self.impossible("has no room for a status");
        };
        let status = match deed {
            Use::Status(status) => status,
            Use::Never => return Some(()),
            Use::Close => return None,
            _ => self.execute(&buffers)?,
        };
        self.write(status_address, &[status])?;
        let id = if let Use::Id(id) = deed { id } else { u32::from(head) };
        let times = if matches!(deed, Use::Twice) { 2 } else { 1 };
        for _ in 0..times {
            let vring = &self.vrings[&index];
            let element = vring.used_ring + 4 + 8 * u64::from(vring.used % vring.size);
            self.write(element, &[id.to_le_bytes(), 1_u32.to_le_bytes()].concat())?;
            let moved = if let Use::Index(by) = deed { by } else { 1 };
            let used = vring.used.wrapping_add(moved);
            let (used_ring, available, size) = (vring.used_ring, vring.available, vring.size);
            self.write(used_ring + 2, &used.to_le_bytes())?;
            std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
            let event = u16::from_le_bytes(self.read(available + 4 + 2 * u64::from(size))?);
            let flags = u16::from_le_bytes(self.read(available)?);
            let wanted = match self.features & EVENT_IDX {
                0 => flags & 1 == 0,
                _ => used.wrapping_sub(event).wrapping_sub(1) < moved,
            };
            let vring = self.vrings.get_mut(&index).unwrap();
            vring.used = used;
            if let (true, Some(call)) = (wanted, &vring.call) {
                let _ = rustix::io::write(call, &1_u64.to_ne_bytes());
            }
        }
        Some(())
    }

    /// CONFIG_CHANGE_MSG, with an answer wanted, which is not waited for.
    fn resize(&mut self, sectors: u64) {
        self.script.config[..8].copy_from_slice(&sectors.to_le_bytes());
        let message: Vec<u8> = [2_u32, 9, 0].into_iter().flat_map(u32::to_ne_bytes).collect();
        rustix::io::write(self.backend.as_ref().unwrap(), &message).unwrap();
    }

    /// Writes where it has been told to, and over a descriptor of the client's.
    fn scribble(&self, buffers: &[(u64, u32, bool)], byte: u8) -> Option<()> {
        for &(address, length, _) in buffers.iter().filter(|buffer| buffer.2) {
            self.write(address, &vec![byte; length as usize])?;
        }
        let (start, ..) = self.map_at(buffers[0].0, 1)?.regions().next()?;
        self.write(start + u64::from(byte % 8) * 16, &[byte; 16])
    }

    fn execute(&self, buffers: &[(u64, u32, bool)]) -> Option<u8> {
        let header: [u8; 16] = self.read(buffers[0].0)?;
        let kind = u32::from_le_bytes(header[..4].try_into().unwrap());
        let sector = u64::from_le_bytes(header[8..].try_into().unwrap());
        let mut disk = self.disk.lock().unwrap();
        let mut at = sector as usize * 512;
        for &(address, length, writable) in &buffers[1..buffers.len() - 1] {
            let Some(place) = disk.get_mut(at..at + length as usize) else { return Some(1) };
            match kind {
                0 if writable => self.write(address, place)?,
                1 if !writable => self.read_into(address, place)?,
                _ => return Some(2),
            }
            at += length as usize;
        }
        Some(if matches!(kind, 0 | 1 | 4) { 0 } else { 2 })
    }
}

/// Receives exactly as many bytes, and the descriptors with them.
fn receive(stream: &UnixStream, bytes: &mut [u8]) -> Option<Vec<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = recvmsg(stream, &mut [IoSliceMut::new(bytes)], &mut ancillary, RecvFlags::CMSG_CLOEXEC).ok()?;
    let mut files = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            files.extend(rights);
        }
    }
    (received.bytes == bytes.len()).then_some(files)
}
