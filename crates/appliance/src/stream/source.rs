//! What a reader gives, as a disk.

use super::board::{Board, StreamOperation, Taken};
use super::{Outside, geometry};
use blockyard_block::{Disk, Extent, ExtentKind, Geometry, MemoryMap, Queue, RequestError};
use blockyard_protocol::stream::{CHUNK_BYTES, Mark, SOURCE_CHUNK_BYTES};
use std::io::{self, Read};
use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::thread;

/// A disk that is read once, in order ([`blockyard_protocol::stream`] has its format).
pub struct StreamSource {
    board: Arc<Board>,
    failure: Arc<OnceLock<io::Error>>,
}

impl StreamSource {
    /// A stream of what `reader` gives. A thread reads it, a chunk ahead of the guest.
    ///
    /// # Errors
    /// When the system refuses a thread or a descriptor.
    pub fn new(reader: impl Read + Send + 'static) -> io::Result<Arc<Self>> {
        Self::of(reader, fill)
    }

    /// The same, of a reader that the guest talks with: it gets what there is, in chunks that are not full.
    ///
    /// # Errors
    /// As there.
    pub fn interactive(reader: impl Read + Send + 'static) -> io::Result<Arc<Self>> {
        Self::of(reader, read_some)
    }

    fn of<R: Read + Send + 'static>(reader: R, next: Next<R>) -> io::Result<Arc<Self>> {
        let (board, failure) = (Arc::new(Board::new()?), Arc::new(OnceLock::new()));
        let source = Arc::new(Self { board: Arc::clone(&board), failure: Arc::clone(&failure) });
        thread::Builder::new().name("stream source".into()).spawn(move || {
            if let Err(error) = serve(&board, reader, next) {
                // Before anybody can hear that it failed.
                let _ = failure.set(error);
            }
            board.close(RequestError::OutOfRange);
        })?;
        Ok(source)
    }

    /// Ends the stream, whoever still reads, and says whether the reader failed.
    ///
    /// # Errors
    /// The reader's own.
    pub fn finish(&self) -> io::Result<()> {
        self.board.close(RequestError::OutOfRange);
        self.failure.get().map_or(Ok(()), |error| Err(io::Error::new(error.kind(), error.to_string())))
    }

    pub(crate) fn outside(&self) -> Arc<dyn Outside> {
        Arc::clone(&self.board) as Arc<dyn Outside>
    }
}

impl Drop for StreamSource {
    fn drop(&mut self) {
        self.board.close(RequestError::OutOfRange);
    }
}

/// Reads the next bytes: how many, and whether that was the end.
type Next<R> = fn(&mut R, &mut [u8]) -> io::Result<(usize, bool)>;

/// Gives the guest chunk after chunk.
fn serve<R: Read>(board: &Board, mut reader: R, next: Next<R>) -> io::Result<()> {
    let mut chunk = vec![0; SOURCE_CHUNK_BYTES];
    let mut start = 0;
    loop {
        let (bytes, last) = board.outside(|| next(&mut reader, &mut chunk[..CHUNK_BYTES]))?;
        let mark = Mark { bytes, last };
        chunk[bytes..CHUNK_BYTES].fill(0);
        chunk[CHUNK_BYTES..].copy_from_slice(&mark.encode());
        let end = start + SOURCE_CHUNK_BYTES as u64;
        let mut left = SOURCE_CHUNK_BYTES as u64;
        while left > 0 {
            let open = board.serve_one(start..end, |taken| {
                left = left.saturating_sub(taken.length_bytes);
                copy_out(&chunk, start, taken)
            });
            if !open {
                return Ok(());
            }
        }
        if mark.last {
            return Ok(());
        }
        start = end;
    }
}

/// What there is, when there is something; whether that was the end.
fn read_some<R: Read>(reader: &mut R, into: &mut [u8]) -> io::Result<(usize, bool)> {
    loop {
        match reader.read(into) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            read => return read.map(|bytes| (bytes, bytes == 0)),
        }
    }
}

/// As much as there is room for; whether that was the end.
fn fill<R: Read>(reader: &mut R, into: &mut [u8]) -> io::Result<(usize, bool)> {
    let mut filled = 0;
    while filled < into.len() {
        match reader.read(&mut into[filled..]) {
            Ok(0) => break,
            Ok(bytes) => filled += bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok((filled, filled < into.len()))
}

/// Copies the part of the chunk that was asked for; false when it reaches past it.
fn copy_out(chunk: &[u8], start: u64, taken: &Taken<'_>) -> bool {
    let from = (taken.offset_bytes - start) as usize;
    let Some(mut bytes) = chunk.get(from..from.saturating_add(taken.length_bytes as usize)) else { return false };
    for segment in taken.segments {
        let Some(slice) = taken.memory.slice(*segment) else { return false };
        let (now, rest) = bytes.split_at(segment.length_bytes as usize);
        slice.copy_from(now);
        bytes = rest;
    }
    true
}

impl Disk for StreamSource {
    fn geometry(&self) -> Geometry {
        geometry(true)
    }

    fn extents(&self, range: Range<u64>) -> io::Result<Extent> {
        let length_bytes = range.end.saturating_sub(range.start);
        Ok(Extent { offset_bytes: range.start, length_bytes, kind: ExtentKind::Data })
    }

    fn open_queue(&self, memory: &MemoryMap, depth: usize) -> io::Result<Box<dyn Queue>> {
        self.board.open(memory, depth, StreamOperation::Read)
    }
}
