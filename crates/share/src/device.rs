//! The virtio file system device (virtio 1.2 §5.11), as a session serves it.

use crate::Tag;
use crate::file_system::{Answer, FileSystem};
use crate::message::{HEADER_BYTES, Header, Request, WRITE_PREFIX_BYTES};
use crate::reply;
use crate::scratch::Scratch;
use blockyard_block::MemoryMap;
use blockyard_devices::virtio::{
    FailureCause, Message, MessageHandler, MessageVirtqueue, MessageVirtqueueParts, ServedQueue,
};
use blockyard_session::client::{RemoteDevice, RemoteDeviceOptions, SessionError};
use blockyard_session::server::{ServedDevice, ServedQueueParts};
use rustix::io::Errno;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;
use virtio_bindings::virtio_config::VIRTIO_F_VERSION_1;
use virtio_bindings::virtio_ids::VIRTIO_ID_FS;
use virtio_bindings::virtio_ring::{VIRTIO_RING_F_EVENT_IDX, VIRTIO_RING_F_INDIRECT_DESC};

/// Bytes of a tag (§5.11.4).
pub const TAG_BYTES_MAX: usize = 36;
/// The tag, and the number of queues for requests.
const CONFIG_BYTES: usize = TAG_BYTES_MAX + 4;
/// The queue for requests that must not wait behind others (§5.11.2), before those for all others.
const HIGH_PRIORITY_QUEUES: u16 = 1;

/// Entries of each virtqueue at most: as many pages as the longest read and write have, and room for what goes with
/// them.
const QUEUE_SIZE: u16 = 1024;
const _: () = assert!(reply::TRANSFER_BYTES_MAX / 4096 < QUEUE_SIZE as u32);
/// How long the server may take to answer what the machine asks of it, a reset above all, which waits for what is done.
const PATIENCE: Duration = Duration::from_secs(30);

/// The virtio-fs device of a machine of this process, with `memory`, whose server is at the other end of `stream`.
/// `on_end` hears, once, why the server serves no more, unless the device ends before.
///
/// # Errors
/// When the server does not answer as it must, or the system refuses.
pub fn guest_device(
    stream: UnixStream,
    tag: &Tag,
    memory: MemoryMap,
    on_end: Box<dyn FnOnce(SessionError) + Send>,
) -> Result<RemoteDevice, SessionError> {
    let options = RemoteDeviceOptions {
        name: format!("share-{tag}"),
        device_type: VIRTIO_ID_FS,
        features: 0,
        config_bytes: CONFIG_BYTES,
        queue_size: QUEUE_SIZE,
        patience: PATIENCE,
    };
    RemoteDevice::new(stream, &options, memory, on_end)
}

/// A shared directory as a virtio device.
pub(crate) struct ShareDevice {
    file_system: Arc<FileSystem>,
    tag: [u8; TAG_BYTES_MAX],
    request_queues: u16,
}

impl ShareDevice {
    pub(crate) fn new(file_system: Arc<FileSystem>, tag: [u8; TAG_BYTES_MAX], request_queues: u16) -> Self {
        Self { file_system, tag, request_queues }
    }
}

impl ServedDevice for ShareDevice {
    fn features(&self) -> u64 {
        1 << VIRTIO_F_VERSION_1 | 1 << VIRTIO_RING_F_EVENT_IDX | 1 << VIRTIO_RING_F_INDIRECT_DESC
    }

    fn queues(&self) -> u16 {
        HIGH_PRIORITY_QUEUES + self.request_queues
    }

    fn config(&self) -> Vec<u8> {
        [&self.tag[..], &u32::from(self.request_queues).to_le_bytes()].concat()
    }

    fn open_queue(&self, parts: ServedQueueParts) -> Result<Box<dyn ServedQueue>, FailureCause> {
        let ServedQueueParts { device, index, ring, memory, features, notifier, statistics, .. } = parts;
        let parts = MessageVirtqueueParts { device, index, ring, memory, features, notifier, statistics };
        Ok(Box::new(MessageVirtqueue::new(parts, Server::new(Arc::clone(&self.file_system)))))
    }
}

/// What answers the requests of one queue.
pub(crate) struct Server {
    file_system: Arc<FileSystem>,
    scratch: Scratch,
}

impl Server {
    pub(crate) fn new(file_system: Arc<FileSystem>) -> Self {
        Self { file_system, scratch: Scratch::new() }
    }

    fn perform(&mut self, header: &Header, message: &Message<'_>) -> Result<Answer, Errno> {
        let room_bytes = message.writable_bytes().checked_sub(reply::HEADER_BYTES as u64);
        self.scratch.begin(room_bytes.unwrap_or(0));
        if u64::from(header.length_bytes) != message.readable_bytes() {
            return Err(Errno::INVAL);
        }
        // A request that changes something is not begun where its answer has no place.
        if room_bytes.is_none() && !header.is_unanswered() {
            return Err(Errno::INVAL);
        }
        let copied_bytes = if header.is_write() { WRITE_PREFIX_BYTES as u64 } else { message.readable_bytes() };
        // Taken for a moment, as the request is read while the rest is written.
        let mut copy = std::mem::take(&mut self.scratch.request);
        let place = usize::try_from(copied_bytes).ok().and_then(|bytes| copy.get_mut(..bytes));
        let done = match place {
            Some(bytes) => {
                let length = message.read(0, bytes);
                let request = bytes.get(HEADER_BYTES..length).ok_or(Errno::INVAL);
                let request = request.and_then(|body| Request::parse(header, body));
                request.and_then(|request| self.file_system.perform(header.node, &request, message, &mut self.scratch))
            }
            None => Err(Errno::TOOBIG),
        };
        self.scratch.request = copy;
        done
    }
}

impl MessageHandler for Server {
    fn handle(&mut self, message: &Message<'_>) -> u32 {
        let mut bytes = [0; HEADER_BYTES];
        if message.read(0, &mut bytes) < HEADER_BYTES {
            return 0;
        }
        let header = Header::parse(&bytes);
        let answer = self.perform(&header, message);
        if header.is_unanswered() {
            return 0;
        }
        let (error, body_bytes) = match answer {
            Ok(Answer::Data(bytes)) => (0, bytes),
            Ok(Answer::Reply) => self.write_body(message),
            Ok(Answer::Nothing) => (0, 0),
            Err(errno) => (errno.raw_os_error(), 0),
        };
        let header = reply::header(header.unique, error, body_bytes);
        match message.write(0, &header) {
            bytes if bytes == header.len() => (header.len() + body_bytes) as u32,
            // There is no room for an answer.
            _ => 0,
        }
    }
}

impl Server {
    /// Writes the reply's body to where it belongs: an error's number, and its length.
    fn write_body(&self, message: &Message<'_>) -> (i32, usize) {
        let body = self.scratch.reply.bytes();
        match message.write(reply::HEADER_BYTES as u64, body) {
            bytes if bytes == body.len() => (0, bytes),
            _ => (Errno::INVAL.raw_os_error(), 0),
        }
    }
}
