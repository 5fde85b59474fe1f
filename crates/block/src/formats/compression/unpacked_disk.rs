//! A disk that is read while it is decompressed, from its first byte to its last.
//!
//! Several threads may read it, each a little ahead of the others: what is passed over on the way is kept for the one
//! who asks for it, which is at most what all of them read at once. It is decompressed from when the first of it is
//! read. How long it is is known then at the end, or before, to whoever has it found out.

use super::Compression;
use crate::immediate_queue::ImmediateQueue;
use crate::specification::Format;
use crate::{
    Disk, Extent, ExtentKind, FileFormat, Geometry, MemoryMap, Operation, Queue, Remedy, Request, RequestError,
    SEGMENTS_MAX, shown, size,
};
use rustix::fs::{SeekFrom, seek};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use vm_memory::Bytes;

const SECTOR_BYTES: u64 = 512;

/// What is read of the stream at once.
const CHUNK_BYTES: usize = 256 << 10;

/// What may be passed over: pieces of all threads of a conversion, each of the largest cluster, and more than that.
const SKIPPED_BYTES_MAX: u64 = 64 << 20;

/// What is read of the stream at once by who wants all of it, and left out as a whole where it is zeros.
const PIECE_BYTES: usize = 64 << 10;

/// How often somebody hears how far it is, in bytes that came out.
pub(crate) const TOLD_BYTES: u64 = 1 << 20;

/// Who decompresses a file, from its first byte to its last: its output, which is read by whoever has it.
pub struct Unpacker {
    /// Gives an error where the file is no good, and its end only when all of it is.
    pub bytes: Box<dyn Read + Send>,
}

/// Starts somebody who decompresses a certain file.
pub type StartUnpacker = Box<dyn Fn() -> io::Result<Unpacker> + Send + Sync>;

/// A disk in a compressed file. Its capacity is as much as it may have until its length is known.
pub struct UnpackedDisk {
    shared: Arc<Shared>,
}

struct Shared {
    path: PathBuf,
    /// The file, whose position says how much of it is read, and its length.
    file: File,
    file_bytes: u64,
    compression: Compression,
    start: StartUnpacker,
    capacity_bytes: AtomicU64,
    has_ended: AtomicBool,
    stream: Mutex<Stream>,
}

struct Stream {
    /// While it is read.
    unpacker: Option<Unpacker>,
    position: u64,
    /// What it is to have, where somebody had that found out.
    length_bytes: Option<u64>,
    /// What it may have at most, and what would help if that is too little.
    bytes_max: u64,
    allows_more: Remedy<'static>,
    end: Option<u64>,
    /// What was passed over, by its offset.
    skipped: BTreeMap<u64, Vec<u8>>,
    skipped_bytes: u64,
    buffer: Vec<u8>,
    /// Its first and last sector, to see whether it is a raw disk; `None`: somebody said that it is.
    ends: Option<[Vec<u8>; 2]>,
    failure: Option<String>,
}

impl UnpackedDisk {
    /// The disk in a file that is compressed so, and that `start` has somebody decompress: at most so many bytes.
    /// `is_said`: what is in there is a raw disk whatever it looks like.
    ///
    /// # Errors
    /// When the file cannot be looked at.
    pub fn new(
        path: &Path,
        file: File,
        compression: Compression,
        start: StartUnpacker,
        bytes_max: u64,
        is_said: bool,
    ) -> io::Result<Self> {
        let file_bytes = file.metadata()?.len();
        let stream = Stream {
            unpacker: None,
            position: 0,
            length_bytes: None,
            bytes_max,
            allows_more: Remedy::AllowMore,
            end: None,
            skipped: BTreeMap::new(),
            skipped_bytes: 0,
            buffer: Vec::new(),
            ends: (!is_said).then(Default::default),
            failure: None,
        };
        let shared = Shared {
            path: path.to_owned(),
            file,
            file_bytes,
            compression,
            start,
            capacity_bytes: in_sectors(bytes_max).into(),
            has_ended: AtomicBool::new(false),
            stream: Mutex::new(stream),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Whether it is not known how many bytes it has.
    pub fn is_endless(&self) -> bool {
        let stream = self.shared.stream();
        stream.length_bytes.or(stream.end).is_none()
    }

    /// How many bytes it has: what the file says, or else what comes of decompressing it once, while `progress` hears
    /// how many bytes of the file were read, and how many it has. To be asked before any are read.
    ///
    /// # Errors
    /// A sentence that names the file.
    pub fn find_length(&self, progress: &mut dyn FnMut(u64, u64)) -> io::Result<u64> {
        let mut stream = self.shared.stream();
        if let Some(known) = stream.length_bytes.or(stream.end) {
            return Ok(known);
        }
        let (shared, bytes_max) = (&*self.shared, stream.bytes_max);
        let length_bytes = match shared.compression.declared_bytes(&shared.file) {
            Some(declared) if declared > bytes_max => Err(too_large(bytes_max, stream.allows_more)),
            Some(declared) => Ok(declared),
            None => (shared.start)().and_then(|unpacker| {
                let tell = |_: &[u8], at: u64| {
                    if at.is_multiple_of(TOLD_BYTES) {
                        let (done_bytes, all_bytes) = self.progress();
                        progress(done_bytes, all_bytes);
                    }
                    Ok(())
                };
                unpacker.pieces(bytes_max, tell)
            }),
        };
        let length_bytes = length_bytes.map_err(|error| self.shared.named(&error))?;
        stream.length_bytes = Some(length_bytes);
        shared.capacity_bytes.store(in_sectors(length_bytes), Ordering::Release);
        Ok(length_bytes)
    }

    /// Has no more than so many bytes, which whoever takes them has room for. To be said before any are read.
    pub fn limit(&self, bytes: u64) {
        let mut stream = self.shared.stream();
        if bytes < stream.bytes_max {
            (stream.bytes_max, stream.allows_more) = (bytes, Remedy::LargerImage);
        }
        if stream.length_bytes.is_none() {
            self.shared.capacity_bytes.store(stream.bytes_max / SECTOR_BYTES * SECTOR_BYTES, Ordering::Relaxed);
        }
    }

    /// Makes sure that nothing follows what was read.
    ///
    /// # Errors
    /// When something does, or the file is damaged in the end: as [`UnpackedDisk::failure`] says it.
    pub fn finish(&self) -> io::Result<()> {
        self.shared.finish().map_err(|error| self.failure().map_or(error, io::Error::other))
    }

    /// Why reading failed, once it has: a sentence that names the file.
    pub fn failure(&self) -> Option<String> {
        self.shared.stream().failure.clone()
    }

    /// How many bytes of the file are read, and how many it has.
    pub fn progress(&self) -> (u64, u64) {
        let at = seek(&self.shared.file, SeekFrom::Current(0)).unwrap_or(0);
        (at.min(self.shared.file_bytes), self.shared.file_bytes)
    }
}

impl Disk for UnpackedDisk {
    fn geometry(&self) -> Geometry {
        self.shared.geometry()
    }

    fn generation(&self) -> u64 {
        self.shared.has_ended.load(Ordering::Acquire).into()
    }

    /// Nothing is known before it is read.
    fn extents(&self, range: Range<u64>) -> io::Result<Extent> {
        if range.is_empty() || range.end > in_sectors(self.shared.stream().bytes_max) {
            return self.geometry().check_extent_range(&range).and(Err(io::ErrorKind::InvalidInput.into()));
        }
        Ok(Extent { offset_bytes: range.start, length_bytes: range.end - range.start, kind: ExtentKind::Data })
    }

    fn open_queue(&self, memory: &MemoryMap, depth: usize) -> io::Result<Box<dyn Queue>> {
        let (shared, memory) = (Arc::clone(&self.shared), memory.clone());
        ImmediateQueue::boxed(depth, move |request| shared.perform(&memory, request))
    }
}

impl Shared {
    fn geometry(&self) -> Geometry {
        Geometry {
            capacity_bytes: self.capacity_bytes.load(Ordering::Acquire),
            logical_block_bytes: SECTOR_BYTES as u32,
            physical_block_bytes: SECTOR_BYTES as u32,
            optimal_io_bytes: 0,
            segments_max: SEGMENTS_MAX,
            transfer_bytes_max: u64::MAX,
            memory_align_bytes: 1,
            read_only: true,
            discard: false,
            write_zeroes: false,
        }
    }

    fn stream(&self) -> MutexGuard<'_, Stream> {
        self.stream.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn perform(&self, memory: &MemoryMap, request: &Request<'_>) -> Result<(), RequestError> {
        match request.operation {
            Operation::Read => {}
            Operation::Flush => return Ok(()),
            _ => return Err(RequestError::ReadOnly),
        }
        let mut stream = self.stream();
        // The end may have been found since it was asked for.
        let most = in_sectors(stream.bytes_max);
        if request.offset_bytes.checked_add(request.length_bytes()).is_none_or(|end| end > most) {
            return Err(RequestError::OutOfRange);
        }
        self.geometry().check_alignment(request)?;
        let mut at = request.offset_bytes;
        for &segment in request.segments {
            let slice = memory.slice(segment).ok_or(RequestError::BadSegment)?;
            let mut done = 0;
            while done < slice.len() {
                let count = (slice.len() - done).min(CHUNK_BYTES);
                let bytes = self.read_at(&mut stream, at, count).map_err(|_| RequestError::Os(libc::EIO))?;
                slice.write_slice(&bytes, done).map_err(|_| RequestError::BadSegment)?;
                stream.buffer = bytes;
                done += count;
                at += count as u64;
            }
        }
        Ok(())
    }

    /// So many bytes from `at` on, zeros behind the end. The vector is the stream's, to be given back.
    fn read_at(&self, stream: &mut Stream, mut at: u64, count: usize) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity(count);
        while bytes.len() < count {
            let rest = count - bytes.len();
            if stream.end.is_some_and(|end| at >= end) {
                bytes.resize(count, 0);
            } else if at == stream.position {
                let read = self.read_on(stream, rest)?;
                bytes.extend(stream.buffer.get(..read).unwrap_or_default());
                at += read as u64;
            } else if at > stream.position {
                self.pass_over(stream, at)?;
            } else {
                let before = bytes.len();
                stream.take_skipped(at, rest, &mut bytes);
                if bytes.len() == before {
                    let problem = "a compressed disk is read from its beginning to its end, once: decompress it first";
                    return Err(self.failed(stream, io::Error::other(problem)));
                }
                at += (bytes.len() - before) as u64;
            }
        }
        Ok(bytes)
    }

    /// Reads up to `at` or the end for others.
    fn pass_over(&self, stream: &mut Stream, at: u64) -> io::Result<()> {
        while stream.position < at && stream.end.is_none() {
            let start = stream.position;
            let count = usize::try_from(at - start).map_or(CHUNK_BYTES, |count| count.min(CHUNK_BYTES));
            let read = self.read_on(stream, count)?;
            if stream.skipped_bytes + read as u64 > SKIPPED_BYTES_MAX {
                let problem = "a compressed disk is read from its beginning to its end: decompress it first";
                return Err(self.failed(stream, io::Error::other(problem)));
            }
            if read > 0 {
                let bytes = stream.buffer.get(..read).unwrap_or_default().to_vec();
                stream.skipped_bytes += read as u64;
                stream.skipped.insert(start, bytes);
            }
        }
        Ok(())
    }

    fn finish(&self) -> io::Result<()> {
        let mut stream = self.stream();
        while stream.end.is_none() {
            self.read_on(&mut stream, CHUNK_BYTES)?;
        }
        Ok(())
    }

    /// Reads what comes next, at most so many bytes, into the buffer; fewer only at the end.
    fn read_on(&self, stream: &mut Stream, count: usize) -> io::Result<usize> {
        if stream.unpacker.is_none() && stream.position == 0 && stream.end.is_none() {
            stream.unpacker = Some((self.start)().map_err(|error| self.failed(stream, error))?);
        }
        let read = stream.fill(count, self.compression).map_err(|error| self.failed(stream, error))?;
        if stream.end.is_some() {
            stream.unpacker = None;
            self.capacity_bytes.store(in_sectors(stream.position), Ordering::Release);
            self.has_ended.store(true, Ordering::Release);
        }
        Ok(read)
    }

    /// The first failure is what is said.
    fn failed(&self, stream: &mut Stream, error: io::Error) -> io::Error {
        stream.failure.get_or_insert_with(|| self.named(&error).to_string());
        error
    }

    fn named(&self, error: &io::Error) -> io::Error {
        io::Error::new(error.kind(), format!("{}: {error}", shown(&self.path)))
    }
}

impl Stream {
    fn fill(&mut self, count: usize, compression: Compression) -> io::Result<usize> {
        self.buffer.resize(self.buffer.len().max(count), 0);
        let Some(unpacker) = &mut self.unpacker else { return Err(io::Error::other("it was read already")) };
        let read = unpacker.fill(self.buffer.get_mut(..count).unwrap_or_default())?;
        let has_ended = read < count;
        self.position += read as u64;
        if self.position > self.length_bytes.unwrap_or(self.bytes_max) {
            return Err(match self.length_bytes {
                Some(declared) => not_declared(declared),
                None => too_large(self.bytes_max, self.allows_more),
            });
        }
        self.look_at(read, has_ended, compression)?;
        if has_ended {
            if let Some(declared) = self.length_bytes.filter(|declared| *declared != self.position) {
                return Err(not_declared(declared));
            }
            self.end = Some(self.position);
        }
        Ok(read)
    }

    /// Whether what is in there is an image, which nobody said.
    fn look_at(&mut self, read: usize, has_ended: bool, compression: Compression) -> io::Result<()> {
        let Some([first, last]) = &mut self.ends else { return Ok(()) };
        let bytes = self.buffer.get(..read).unwrap_or_default();
        let missing = (SECTOR_BYTES as usize).saturating_sub(first.len()).min(bytes.len());
        let was_complete = missing == 0;
        first.extend(&bytes[..missing]);
        last.extend(&bytes[bytes.len().saturating_sub(SECTOR_BYTES as usize)..]);
        last.drain(..last.len().saturating_sub(SECTOR_BYTES as usize));
        let is_complete = first.len() == SECTOR_BYTES as usize;
        if has_ended || is_complete && !was_complete {
            let last = if has_ended && self.position >= SECTOR_BYTES { &last[..] } else { &[] };
            if let Some(found) = FileFormat::of_ends(first, last) {
                let (name, ending) = (found.name, compression.word());
                let remedy = match Format::of(found) {
                    Some(format) => format!("add ,format={}.{ending} if it is one", format.word()),
                    None => format!("decompress it, and {}", found.remedy()),
                };
                return Err(io::Error::other(format!(
                    "what is in it begins or ends like {name}, which its name does not say: {remedy}, or add \
                     ,format=raw.{ending} if these bytes are the disk's own"
                )));
            }
        }
        Ok(())
    }

    /// Appends what was passed over from `at` on, up to `count` bytes.
    fn take_skipped(&mut self, at: u64, count: usize, bytes: &mut Vec<u8>) {
        let Some((&start, found)) = self.skipped.range_mut(..=at).next_back() else { return };
        let Some(from) = usize::try_from(at - start).ok().filter(|from| *from < found.len()) else { return };
        let end = (from + count).min(found.len());
        bytes.extend(&found[from..end]);
        let behind = found.split_off(end);
        found.truncate(from);
        if found.is_empty() {
            self.skipped.remove(&start);
        }
        if !behind.is_empty() {
            self.skipped.insert(start + end as u64, behind);
        }
        self.skipped_bytes = self.skipped_bytes.saturating_sub((end - from) as u64);
    }
}

fn in_sectors(bytes: u64) -> u64 {
    bytes.checked_next_multiple_of(SECTOR_BYTES).unwrap_or(u64::MAX / SECTOR_BYTES * SECTOR_BYTES)
}

impl Unpacker {
    /// As many bytes as there are: fewer than wanted at the end alone.
    fn fill(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while let Some(free) = bytes.get_mut(filled..).filter(|free| !free.is_empty()) {
            match self.bytes.read(free) {
                Ok(0) => break,
                Ok(more) => filled += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }

    /// Gives `take` all that comes out, with where it belongs; returns how much that is.
    pub(crate) fn pieces(
        mut self,
        bytes_max: u64,
        mut take: impl FnMut(&[u8], u64) -> io::Result<()>,
    ) -> io::Result<u64> {
        let (mut piece, mut at) = (vec![0; PIECE_BYTES], 0);
        loop {
            let filled = self.fill(&mut piece)?;
            if at + filled as u64 > bytes_max {
                return Err(too_large(bytes_max, Remedy::AllowMore));
            }
            take(piece.get(..filled).unwrap_or_default(), at)?;
            at += filled as u64;
            if filled < PIECE_BYTES {
                return Ok(at);
            }
        }
    }
}

/// Why a file that decompresses to more than it may is refused.
fn too_large(bytes_max: u64, allows_more: Remedy<'_>) -> io::Error {
    io::Error::other(format!(
        "it decompresses to more than {}: {allows_more}, if it is meant to",
        size::human(bytes_max)
    ))
}

fn not_declared(declared: u64) -> io::Error {
    io::Error::other(format!(
        "it decompresses to another length than the {declared} bytes that it was to have: it is damaged, or was changed"
    ))
}
