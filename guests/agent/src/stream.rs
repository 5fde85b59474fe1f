//! The transfer disks: data from the host and to it, past the page cache.

use crate::interruption;
use blockyard_protocol::stream::{CHUNK_BYTES, MARK_BYTES, Mark, SOURCE_CHUNK_BYTES};
use rustix::fs::{Mode, OFlags, open};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender, SyncSender};
use std::thread::{self, JoinHandle};

/// What memory of direct I/O is aligned to: a page, which suits every disk and file system.
const ALIGNMENT: usize = 4096;
/// Chunks that are read ahead.
const READ_AHEAD: usize = 3;

/// The last two disks: the host's data come on the first and go to the second.
pub(crate) struct TransferDisks {
    pub(crate) source: Arc<File>,
    pub(crate) sink: Arc<File>,
    names: [String; 2],
}

impl TransferDisks {
    pub(crate) fn open() -> io::Result<Self> {
        let names = fs::read_dir("/sys/block")?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut names: Vec<_> = names.filter(|name| name.starts_with("vd")).collect();
        names.sort();
        let [.., source, sink] = &names[..] else {
            return Err(io::Error::other(format!("no transfer disks: {names:?}")));
        };
        let direct = |name: &str, flags| {
            let disk = open(format!("/dev/{name}"), flags | OFlags::DIRECT | OFlags::CLOEXEC, Mode::empty())?;
            Ok::<_, io::Error>(Arc::new(File::from(disk)))
        };
        let names = [source.clone(), sink.clone()];
        Ok(Self { source: direct(source, OFlags::RDONLY)?, sink: direct(sink, OFlags::WRONLY)?, names })
    }

    /// Takes their driver away from them: whoever comes next has no such disks.
    pub(crate) fn unplug(&self) -> io::Result<()> {
        self.names.iter().try_for_each(|name| {
            let device = fs::read_link(format!("/sys/block/{name}/device"))?;
            let device = device.file_name().unwrap_or_default();
            fs::write("/sys/bus/virtio/drivers/virtio_blk/unbind", device.as_encoded_bytes())
        })
    }
}

/// Memory that direct I/O takes.
pub(crate) struct AlignedBuffer {
    memory: Vec<u8>,
    start: usize,
    length: usize,
}

impl AlignedBuffer {
    /// Zeros.
    pub(crate) fn new(length: usize) -> Self {
        let memory = vec![0; length + ALIGNMENT];
        let start = memory.as_ptr().align_offset(ALIGNMENT);
        Self { memory, start, length }
    }
}

impl std::ops::Deref for AlignedBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.length]
    }
}

impl std::ops::DerefMut for AlignedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.length]
    }
}

/// Pieces of data, read by a thread of their own, ahead of who takes them: the one CPU of the appliance works while a
/// disk reads.
pub(crate) struct ReadAhead {
    /// `None` once nobody takes them.
    filled: Option<Receiver<io::Result<Piece>>>,
    empty: Option<Sender<AlignedBuffer>>,
    thread: Option<JoinHandle<()>>,
}

/// Data that were read: the first `bytes` of the buffer.
pub(crate) struct Piece {
    pub(crate) buffer: AlignedBuffer,
    pub(crate) offset: u64,
    pub(crate) bytes: usize,
}

impl ReadAhead {
    /// `read` fills a buffer, and says from which offset and how much; `None` at the end.
    pub(crate) fn start(
        buffer_bytes: usize,
        mut read: impl FnMut(&mut AlignedBuffer) -> io::Result<Option<(u64, usize)>> + Send + 'static,
    ) -> io::Result<Self> {
        let (to_taker, filled): (SyncSender<_>, _) = mpsc::sync_channel(READ_AHEAD);
        let (empty, returned) = mpsc::channel();
        for _ in 0..READ_AHEAD {
            let _ = empty.send(AlignedBuffer::new(buffer_bytes));
        }
        let thread = thread::Builder::new().stack_size(64 << 10).spawn(move || {
            // Ends with the last piece, an error, or the taker.
            while let Ok(mut buffer) = returned.recv() {
                let piece = match read(&mut buffer) {
                    Ok(Some((offset, bytes))) => Ok(Piece { buffer, offset, bytes }),
                    Ok(None) => break,
                    Err(error) => Err(error),
                };
                let failed = piece.is_err();
                if to_taker.send(piece).is_err() || failed {
                    break;
                }
            }
        })?;
        Ok(Self { filled: Some(filled), empty: Some(empty), thread: Some(thread) })
    }

    /// The next piece, in order.
    pub(crate) fn next(&self) -> io::Result<Option<Piece>> {
        interruption::check()?;
        let piece = self.filled.as_ref().and_then(|filled| filled.recv().ok());
        piece.transpose()
    }

    /// Gives a buffer back to be filled again.
    pub(crate) fn recycle(&self, buffer: AlignedBuffer) {
        // Nobody fills it any more when all is read.
        let _ = self.empty.as_ref().map(|empty| empty.send(buffer));
    }
}

/// Nothing is read any more when it is gone: what is on the disk next is somebody else's.
impl Drop for ReadAhead {
    fn drop(&mut self) {
        (self.filled, self.empty) = (None, None);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The stream on the source disk.
pub(crate) struct SourceStream {
    chunks: ReadAhead,
    current: Option<Piece>,
    taken: usize,
    /// Bytes read so far.
    pub(crate) total: u64,
}

impl SourceStream {
    pub(crate) fn open(disk: &Arc<File>) -> io::Result<Self> {
        let disk = Arc::clone(disk);
        let (mut offset, mut ended) = (0, false);
        let chunks = ReadAhead::start(SOURCE_CHUNK_BYTES, move |buffer| {
            if ended {
                return Ok(None);
            }
            disk.read_exact_at(buffer, offset)?;
            offset += SOURCE_CHUNK_BYTES as u64;
            let mark = Mark::decode(&buffer[CHUNK_BYTES..]).map_err(io::Error::other)?;
            ended = mark.last;
            Ok(Some((0, mark.bytes)))
        })?;
        Ok(Self { chunks, current: None, taken: 0, total: 0 })
    }

    /// Reads to the end, so that the host is done too.
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        while !self.fill()?.is_empty() {
            self.taken = usize::MAX;
        }
        Ok(())
    }

    /// What has come and was not taken; empty at the end.
    fn fill(&mut self) -> io::Result<&[u8]> {
        while self.current.as_ref().is_none_or(|piece| self.taken >= piece.bytes) {
            if let Some(piece) = self.current.take() {
                self.chunks.recycle(piece.buffer);
            }
            self.taken = 0;
            match self.chunks.next()? {
                Some(piece) => self.current = Some(piece),
                None => return Ok(&[]),
            }
        }
        Ok(self.current.as_ref().map_or(&[], |piece| &piece.buffer[self.taken..piece.bytes]))
    }
}

impl Read for SourceStream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let available = self.fill()?;
        let bytes = available.len().min(into.len());
        into[..bytes].copy_from_slice(&available[..bytes]);
        self.taken += bytes;
        self.total += bytes as u64;
        Ok(bytes)
    }
}

/// The stream on the sink disk. It ends with [`SinkStream::finish`].
pub(crate) struct SinkStream {
    disk: Arc<File>,
    offset: u64,
    /// The mark, then the data.
    chunk: AlignedBuffer,
    bytes: usize,
    total: u64,
    ended: bool,
    /// Whether it fails when the host does not want what is being done any more.
    pub(crate) heeds_interruption: bool,
}

impl SinkStream {
    pub(crate) fn open(disk: &Arc<File>) -> Self {
        let chunk = AlignedBuffer::new(MARK_BYTES + CHUNK_BYTES);
        Self { disk: Arc::clone(disk), offset: 0, chunk, bytes: 0, total: 0, ended: false, heeds_interruption: true }
    }

    /// Sends what is left, and the end; how many bytes there were.
    pub(crate) fn finish(mut self) -> io::Result<u64> {
        self.end()?;
        Ok(self.total)
    }

    /// Sends what there is, so that the host does not wait for more to come with it.
    pub(crate) fn send_now(&mut self) -> io::Result<()> {
        self.send(false)
    }

    /// Sends what is left, and the end, if that was not sent before.
    pub(crate) fn end(&mut self) -> io::Result<()> {
        if self.ended {
            return Ok(());
        }
        self.ended = true;
        self.send(true)
    }

    fn send(&mut self, last: bool) -> io::Result<()> {
        if self.heeds_interruption {
            interruption::check()?;
        }
        let mark = Mark { bytes: self.bytes, last };
        let end = MARK_BYTES + mark.padded_bytes();
        self.chunk[..MARK_BYTES].copy_from_slice(&mark.encode());
        self.chunk[MARK_BYTES + self.bytes..end].fill(0);
        self.disk.write_all_at(&self.chunk[..end], self.offset)?;
        self.offset += end as u64;
        self.total += self.bytes as u64;
        self.bytes = 0;
        Ok(())
    }
}

impl Write for SinkStream {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        if self.bytes == CHUNK_BYTES {
            self.send(false)?;
        }
        let bytes = from.len().min(CHUNK_BYTES - self.bytes);
        let start = MARK_BYTES + self.bytes;
        self.chunk[start..start + bytes].copy_from_slice(&from[..bytes]);
        self.bytes += bytes;
        Ok(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
