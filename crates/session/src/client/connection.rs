//! What a front end asks of a vhost-user back end, one function a message.

use super::block_config::BlockConfig;
use super::error::SessionError;
use super::options::SessionOptions;
use super::stream::{Stream, StreamError};
use crate::further;
use crate::vhost_user::{
    BACKEND_CONFIG_CHANGE, CONFIG_BYTES_MAX, CONFIG_PREFIX_BYTES, NEED_REPLY, REGION_BYTES, REGION_PREFIX_BYTES, REPLY,
    VERSION, code, protocol,
};
use blockyard_block::EventFd;
use blockyard_devices::virtio::QueueCounts;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Bytes of the largest body that a back end may send us: a configuration space.
const BODY_BYTES_MAX: usize = CONFIG_PREFIX_BYTES + CONFIG_BYTES_MAX;
/// Messages that are read in a row from what the back end asks on its own.
const BACKEND_MESSAGES_MAX: usize = 64;

/// A region of memory that the back end maps.
#[derive(Clone, Copy, Debug)]
pub(super) struct RegionMessage<'a> {
    /// Where the back end finds it: in descriptors and in the rings' addresses alike.
    pub(super) address: u64,
    pub(super) length_bytes: u64,
    pub(super) file_offset_bytes: u64,
    pub(super) file: BorrowedFd<'a>,
}

impl RegionMessage<'_> {
    /// Guest address, size, user address, offset in the file. Ours are no addresses of this process, which are none of
    /// the back end's business.
    fn body(&self) -> [u8; REGION_BYTES] {
        let mut body = [0; REGION_BYTES];
        let words = [self.address, self.length_bytes, self.address, self.file_offset_bytes];
        for (place, word) in body.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_ne_bytes());
        }
        body
    }
}

/// What a virtqueue is started with.
#[derive(Clone, Copy, Debug)]
pub(super) struct VringMessage<'a> {
    pub(super) index: u16,
    pub(super) size: u16,
    /// Where the back end begins in the available ring.
    pub(super) base: u16,
    pub(super) descriptors: u64,
    pub(super) available: u64,
    pub(super) used: u64,
    pub(super) kick: BorrowedFd<'a>,
    pub(super) call: BorrowedFd<'a>,
}

/// A connection to a back end. Whoever uses it holds the session's lock: a request and its answer belong together.
#[derive(Debug)]
pub(super) struct Connection {
    stream: Stream,
    /// Where the back end asks us; `None` without BACKEND_REQ.
    backend: Option<Stream>,
    name: Arc<str>,
    patience: Duration,
    /// Negotiated protocol features; none before.
    protocol: AtomicU64,
}

impl Connection {
    pub(super) fn open(
        path: &Path,
        name: &Arc<str>,
        options: &SessionOptions,
        stop: &Arc<EventFd>,
    ) -> Result<Self, SessionError> {
        let patience = options.patience;
        let mut stream = Stream::connect(path, name, patience, stop)?;
        if options.is_at_door {
            let received = stream.receive_stream(Instant::now() + patience);
            stream = received.map_err(|error| error.into_session_error(name, patience))?;
        }
        Ok(Self::new(stream, name, patience))
    }

    pub(super) fn new(stream: Stream, name: &Arc<str>, patience: Duration) -> Self {
        Self { stream, backend: None, name: Arc::clone(name), patience, protocol: AtomicU64::new(0) }
    }

    pub(super) fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Whether its descriptor is still its own, and no other file has its number.
    pub(super) fn is_own(&self) -> bool {
        self.stream.is_own()
    }

    pub(super) fn shut_down(&self) {
        self.stream.shut_down();
    }

    /// Becomes readable when the back end asks something.
    pub(super) fn backend(&self) -> Option<BorrowedFd<'_>> {
        self.backend.as_ref().map(AsFd::as_fd)
    }

    pub(super) fn get_features(&self) -> Result<u64, SessionError> {
        self.ask(code::GET_FEATURES, &[]).map(u64::from_ne_bytes)
    }

    pub(super) fn set_owner(&self) -> Result<(), SessionError> {
        self.tell(code::SET_OWNER, &[], &[])
    }

    pub(super) fn set_features(&self, features: u64) -> Result<(), SessionError> {
        self.tell(code::SET_FEATURES, &features.to_ne_bytes(), &[])
    }

    pub(super) fn get_protocol_features(&self) -> Result<u64, SessionError> {
        self.ask(code::GET_PROTOCOL_FEATURES, &[]).map(u64::from_ne_bytes)
    }

    pub(super) fn set_protocol_features(&self, features: u64) -> Result<(), SessionError> {
        self.tell(code::SET_PROTOCOL_FEATURES, &features.to_ne_bytes(), &[])?;
        self.protocol.store(features, Ordering::Relaxed);
        Ok(())
    }

    pub(super) fn get_queue_count(&self) -> Result<u64, SessionError> {
        self.ask(code::GET_QUEUE_NUM, &[]).map(u64::from_ne_bytes)
    }

    pub(super) fn get_memory_slots(&self) -> Result<u64, SessionError> {
        self.ask(code::GET_MAX_MEM_SLOTS, &[]).map(u64::from_ne_bytes)
    }

    /// Gives the back end a channel of its own, on which it tells of changes.
    pub(super) fn open_backend_channel(&mut self, stop: &Arc<EventFd>) -> Result<(), SessionError> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let os = |error| SessionError::Os { socket: Arc::clone(&self.name), error };
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).map_err(|errno| os(errno.into()))?;
        self.tell(code::SET_BACKEND_REQ_FD, &[], &[theirs.as_fd()])?;
        self.backend = Some(Stream::from_socket(OwnedFd::into(ours), stop).map_err(os)?);
        Ok(())
    }

    /// A disk's configuration space.
    pub(super) fn get_block_config(&self) -> Result<[u8; BlockConfig::BYTES], SessionError> {
        let config = self.get_config(BlockConfig::BYTES)?.and_then(|config| config.try_into().ok());
        let detail = || "it shows no configuration of a block device".to_owned();
        config.ok_or_else(|| SessionError::NoBlockDevice { socket: Arc::clone(&self.name), detail: detail() })
    }

    /// The first `bytes` of the device's configuration space, if there are as many: offset, size, flags, then the space
    /// itself, in the question as in the answer.
    pub(super) fn get_config(&self, bytes: usize) -> Result<Option<Vec<u8>>, SessionError> {
        let mut body = vec![0; CONFIG_PREFIX_BYTES + bytes];
        body[4..8].copy_from_slice(&(bytes as u32).to_ne_bytes());
        let mut answer = [0; BODY_BYTES_MAX];
        let found = self.exchange(code::GET_CONFIG, &body, &mut answer)?;
        let is_whole = found == body.len() && answer[..8] == body[..8];
        Ok(is_whole.then(|| answer[CONFIG_PREFIX_BYTES..found].to_vec()))
    }

    /// Gives the back end one end of a stream, to serve this client on, too.
    pub(super) fn add_connection(&self, stream: BorrowedFd<'_>) -> Result<(), SessionError> {
        self.tell(code::ADD_CONNECTION, &[], &[stream])
    }

    /// What further connections have had.
    pub(super) fn get_connection_counts(&self) -> Result<QueueCounts, SessionError> {
        self.ask(code::GET_CONNECTION_COUNTS, &[]).map(|bytes| further::from_bytes(&bytes))
    }

    /// Has the back end wait for what further connections have made available: the number of this.
    pub(super) fn settle_connections(&self) -> Result<u64, SessionError> {
        self.ask(code::SETTLE_CONNECTIONS, &[]).map(u64::from_ne_bytes)
    }

    /// The number up to which that is done.
    pub(super) fn get_settled_connections(&self) -> Result<u64, SessionError> {
        self.ask(code::GET_SETTLED_CONNECTIONS, &[]).map(u64::from_ne_bytes)
    }

    pub(super) fn add_region(&self, region: &RegionMessage<'_>) -> Result<(), SessionError> {
        let body = [&[0; REGION_PREFIX_BYTES][..], &region.body()].concat();
        self.tell(code::ADD_MEM_REG, &body, &[region.file])
    }

    pub(super) fn remove_region(&self, region: &RegionMessage<'_>) -> Result<(), SessionError> {
        let body = [&[0; REGION_PREFIX_BYTES][..], &region.body()].concat();
        self.tell(code::REM_MEM_REG, &body, &[])
    }

    /// Replaces all regions: one at least, `TABLE_REGIONS_MAX` at most.
    pub(super) fn set_table(&self, regions: &[RegionMessage<'_>]) -> Result<(), SessionError> {
        let mut body = u64::to_ne_bytes(regions.len() as u64).to_vec();
        // A 32-bit count, then padding.
        body[..4].copy_from_slice(&(regions.len() as u32).to_ne_bytes());
        body[4..].fill(0);
        body.extend(regions.iter().flat_map(RegionMessage::body));
        let files: Vec<_> = regions.iter().map(|region| region.file).collect();
        self.tell(code::SET_MEM_TABLE, &body, &files)
    }

    /// Starts a virtqueue, in the order that Linux and QEMU use.
    pub(super) fn start_vring(&self, vring: &VringMessage<'_>) -> Result<(), SessionError> {
        let state = |number: u16| pair(u32::from(vring.index), u32::from(number));
        let with_file = u64::from(vring.index).to_ne_bytes();
        self.tell(code::SET_VRING_CALL, &with_file, &[vring.call])?;
        self.tell(code::SET_VRING_NUM, &state(vring.size), &[])?;
        self.tell(code::SET_VRING_BASE, &state(vring.base), &[])?;
        let mut addresses = state(0).to_vec();
        // The last is of a log, which there is none of.
        for address in [vring.descriptors, vring.used, vring.available, 0] {
            addresses.extend(address.to_ne_bytes());
        }
        self.tell(code::SET_VRING_ADDR, &addresses, &[])?;
        self.tell(code::SET_VRING_KICK, &with_file, &[vring.kick])?;
        self.tell(code::SET_VRING_ENABLE, &state(1), &[])
    }

    /// Stops a virtqueue. The back end has finished what it had begun; where it stands in the available ring.
    pub(super) fn stop_vring(&self, index: u16) -> Result<u16, SessionError> {
        let answer: [u8; 8] = self.ask(code::GET_VRING_BASE, &pair(u32::from(index), 0))?;
        Ok(u16::from_ne_bytes([answer[4], answer[5]]))
    }

    /// Answers what the back end asks on its channel. Whether its configuration has changed.
    pub(super) fn serve_backend(&self) -> Result<bool, SessionError> {
        let Some(backend) = &self.backend else { return Ok(false) };
        let mut changed = false;
        for _ in 0..BACKEND_MESSAGES_MAX {
            let mut body = [0; BODY_BYTES_MAX];
            // What is not there at once is not waited for; half a message is, as long as for any other.
            if !is_readable(backend.as_fd()) {
                break;
            }
            let deadline = Instant::now() + self.patience;
            let header = backend.receive(&mut body, deadline).map_err(|error| self.error(error))?;
            let known = header.request == BACKEND_CONFIG_CHANGE;
            changed |= known;
            if header.flags & NEED_REPLY != 0 {
                let answer = u64::from(!known).to_ne_bytes();
                let sent = backend.send(header.request, VERSION | REPLY, &answer, &[], deadline);
                sent.map_err(|error| self.error(error))?;
            }
        }
        Ok(changed)
    }

    /// Sends what has no answer but an acknowledgement, and waits for that where there is one.
    fn tell(&self, request: u32, body: &[u8], descriptors: &[BorrowedFd<'_>]) -> Result<(), SessionError> {
        let acknowledged = self.protocol.load(Ordering::Relaxed) & protocol::REPLY_ACK != 0;
        let flags = if acknowledged { VERSION | NEED_REPLY } else { VERSION };
        let deadline = Instant::now() + self.patience;
        let sent = self.stream.send(request, flags, body, descriptors, deadline);
        sent.map_err(|error| self.error(error))?;
        if !acknowledged {
            return Ok(());
        }
        let mut answer = [0; 8];
        if self.receive(request, &mut answer, deadline)? != answer.len() {
            return Err(self.garbage(format!("an acknowledgement of {} that is no number", code::name(request))));
        }
        match u64::from_ne_bytes(answer) {
            0 => Ok(()),
            _ => Err(SessionError::Refused { socket: Arc::clone(&self.name), request: code::name(request) }),
        }
    }

    /// Sends a question whose answer has exactly `N` bytes.
    fn ask<const N: usize>(&self, request: u32, body: &[u8]) -> Result<[u8; N], SessionError> {
        let mut answer = [0; N];
        match self.exchange(request, body, &mut answer)? {
            bytes if bytes == N => Ok(answer),
            bytes => Err(self.garbage(format!("an answer to {} of {bytes} bytes", code::name(request)))),
        }
    }

    fn exchange(&self, request: u32, body: &[u8], answer: &mut [u8]) -> Result<usize, SessionError> {
        let deadline = Instant::now() + self.patience;
        let sent = self.stream.send(request, VERSION, body, &[], deadline);
        sent.map_err(|error| self.error(error))?;
        self.receive(request, answer, deadline)
    }

    fn receive(&self, request: u32, answer: &mut [u8], deadline: Instant) -> Result<usize, SessionError> {
        let header = self.stream.receive(answer, deadline).map_err(|error| self.error(error))?;
        if header.request != request || header.flags & REPLY == 0 {
            return Err(self.garbage(format!(
                "message {} where {} is to be answered",
                header.request,
                code::name(request)
            )));
        }
        Ok(header.body_bytes)
    }

    fn error(&self, error: StreamError) -> SessionError {
        error.into_session_error(&self.name, self.patience)
    }

    fn garbage(&self, detail: String) -> SessionError {
        SessionError::Protocol { socket: Arc::clone(&self.name), detail }
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

fn pair(first: u32, second: u32) -> [u8; 8] {
    let (first, second) = (first.to_ne_bytes(), second.to_ne_bytes());
    std::array::from_fn(|index| if index < 4 { first[index] } else { second[index - 4] })
}

/// Whether there is something to read now.
pub(super) fn is_readable(fd: BorrowedFd<'_>) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|count| count > 0)
}
