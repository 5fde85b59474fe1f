//! A disk whose bytes go into a writer.

use super::board::{Board, StreamOperation, Taken};
use super::{Outside, geometry};
use blockyard_block::{Disk, Extent, ExtentKind, Geometry, MemoryMap, Queue, RequestError};
use blockyard_protocol::stream::{CHUNK_BYTES, MARK_BYTES, Mark};
use rustix::io::Errno;
use std::io::{self, Write};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

/// A request that writes more than this is none of the agent's.
const REQUEST_BYTES_MAX: u64 = (MARK_BYTES + CHUNK_BYTES) as u64;

/// A disk that is written once, in order ([`blockyard_protocol::stream`] has its format).
pub struct StreamSink<W> {
    board: Arc<Board>,
    writer: Mutex<Option<JoinHandle<io::Result<W>>>>,
}

impl<W: Write + Send + 'static> StreamSink<W> {
    /// A stream whose data go into `writer`, however many they are. A thread writes them.
    ///
    /// # Errors
    /// When the system refuses a thread or a descriptor.
    pub fn new(writer: W) -> io::Result<Arc<Self>> {
        Self::with_bytes_max(writer, u64::MAX)
    }

    /// A stream of at most `bytes_max` bytes: one that has more fails.
    ///
    /// # Errors
    /// As above.
    pub fn with_bytes_max(writer: W, bytes_max: u64) -> io::Result<Arc<Self>> {
        let board = Arc::new(Board::new()?);
        let served = Arc::clone(&board);
        let thread = thread::Builder::new().name("stream sink".into()).spawn(move || {
            let result = serve(&served, writer, bytes_max);
            // Nobody takes more, for whatever reason.
            served.close(RequestError::Os(Errno::PIPE.raw_os_error()));
            result
        })?;
        Ok(Arc::new(Self { board, writer: Mutex::new(Some(thread)) }))
    }

    /// Waits until all that came is written, and gives the writer back. For when the guest has said that it is done.
    ///
    /// # Errors
    /// The writer's own, or when the stream has not come to its end.
    pub fn finish(&self) -> io::Result<W> {
        let thread = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        let thread = thread.ok_or_else(|| io::Error::other("the stream was finished before"))?;
        self.board.close(RequestError::Os(Errno::PIPE.raw_os_error()));
        thread.join().unwrap_or_else(|_| Err(io::Error::other("the stream's thread panicked")))
    }
}

impl<W> StreamSink<W> {
    pub(crate) fn outside(&self) -> Arc<dyn Outside> {
        Arc::clone(&self.board) as Arc<dyn Outside>
    }
}

impl<W> Drop for StreamSink<W> {
    fn drop(&mut self) {
        self.board.close(RequestError::Os(Errno::PIPE.raw_os_error()));
    }
}

/// Takes what the guest writes until the last chunk has come.
fn serve<W: Write>(board: &Board, mut writer: W, bytes_max: u64) -> io::Result<W> {
    let mut parser = Parser::new(bytes_max);
    let mut offset = 0;
    let mut bytes = Vec::new();
    while !parser.ended {
        bytes.clear();
        let open = board.serve_one(offset..offset + 1, |taken| copy_in(&mut bytes, taken));
        if !open {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the appliance ended its answer early"));
        }
        offset += bytes.len() as u64;
        board.outside(|| parser.parse(&bytes, &mut writer))?;
    }
    writer.flush()?;
    Ok(writer)
}

fn copy_in(into: &mut Vec<u8>, taken: &Taken<'_>) -> bool {
    if taken.length_bytes > REQUEST_BYTES_MAX {
        return false;
    }
    into.resize(taken.length_bytes as usize, 0);
    let mut rest = &mut into[..];
    for segment in taken.segments {
        let Some(slice) = taken.memory.slice(*segment) else { return false };
        let (now, later) = rest.split_at_mut(segment.length_bytes as usize);
        slice.copy_to(now);
        rest = later;
    }
    true
}

/// Where in a chunk the stream is.
struct Parser {
    /// What may come still.
    bytes_left: u64,
    bytes_max: u64,
    mark: Vec<u8>,
    /// Data still to come of this chunk, and zeros behind them.
    data_left: usize,
    padding_left: usize,
    last: bool,
    ended: bool,
}

impl Parser {
    fn new(bytes_max: u64) -> Self {
        Self {
            bytes_left: bytes_max,
            bytes_max,
            mark: Vec::with_capacity(MARK_BYTES),
            data_left: 0,
            padding_left: 0,
            last: false,
            ended: false,
        }
    }

    /// Takes the next bytes of the stream, and passes the data among them on.
    fn parse(&mut self, mut bytes: &[u8], writer: &mut impl Write) -> io::Result<()> {
        while !bytes.is_empty() && !self.ended {
            if self.data_left > 0 {
                let (data, rest) = bytes.split_at(self.data_left.min(bytes.len()));
                writer.write_all(data)?;
                self.data_left -= data.len();
                bytes = rest;
            } else if self.padding_left > 0 {
                let skipped = self.padding_left.min(bytes.len());
                self.padding_left -= skipped;
                bytes = &bytes[skipped..];
            } else {
                let (mark, rest) = bytes.split_at((MARK_BYTES - self.mark.len()).min(bytes.len()));
                self.mark.extend_from_slice(mark);
                bytes = rest;
                if self.mark.len() == MARK_BYTES {
                    let mark = Mark::decode(&self.mark).map_err(io::Error::other)?;
                    self.mark.clear();
                    self.judge(mark)?;
                    self.data_left = mark.bytes;
                    self.padding_left = mark.padded_bytes() - mark.bytes;
                    self.last = mark.last;
                }
            }
            self.ended = self.last && self.mark.is_empty() && self.data_left == 0 && self.padding_left == 0;
        }
        Ok(())
    }

    /// A stream gets on with each chunk, and ends some time.
    fn judge(&mut self, mark: Mark) -> io::Result<()> {
        if mark.bytes == 0 && !mark.last {
            return Err(io::Error::other("an empty chunk in the middle of a stream"));
        }
        let left = self.bytes_left.checked_sub(mark.bytes as u64);
        self.bytes_left = left.ok_or_else(|| {
            io::Error::other(format!(
                "the appliance sends more than {} bytes, which the image cannot hold",
                self.bytes_max
            ))
        })?;
        Ok(())
    }
}

impl<W: Send> Disk for StreamSink<W> {
    fn geometry(&self) -> Geometry {
        geometry(false)
    }

    fn extents(&self, range: Range<u64>) -> io::Result<Extent> {
        let length_bytes = range.end.saturating_sub(range.start);
        Ok(Extent { offset_bytes: range.start, length_bytes, kind: ExtentKind::Data })
    }

    fn open_queue(&self, memory: &MemoryMap, depth: usize) -> io::Result<Box<dyn Queue>> {
        self.board.open(memory, depth, StreamOperation::Write)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(data: &[u8], last: bool) -> Vec<u8> {
        let mark = Mark { bytes: data.len(), last };
        let mut chunk = mark.encode().to_vec();
        chunk.extend_from_slice(data);
        chunk.resize(MARK_BYTES + mark.padded_bytes(), 0);
        chunk
    }

    #[test]
    fn data_come_out_of_any_pieces() {
        let data: Vec<u8> = (0..1300u32).map(|number| number as u8).collect();
        let stream = [chunk(&data[..700], false), chunk(&data[700..701], false), chunk(&data[701..], true)].concat();
        for piece in [1, 7, 512, 513, stream.len()] {
            let (mut parser, mut out) = (Parser::new(1300), Vec::new());
            stream.chunks(piece).for_each(|piece| parser.parse(piece, &mut out).unwrap());
            assert_eq!((parser.ended, &out), (true, &data), "in pieces of {piece}");
        }
    }

    #[test]
    fn what_is_no_mark_ends_the_stream() {
        let mut parser = Parser::new(1300);
        assert!(parser.parse(&[0xff; MARK_BYTES], &mut Vec::new()).is_err());
    }

    #[test]
    fn a_stream_has_an_end_and_no_more_than_it_may() {
        let endless = chunk(&[], false);
        assert!(Parser::new(1300).parse(&endless, &mut Vec::new()).is_err());
        let mut parser = Parser::new(1300);
        parser.parse(&chunk(&[7; 1300], false), &mut Vec::new()).unwrap();
        let error = parser.parse(&chunk(&[7], true), &mut Vec::new()).unwrap_err();
        assert!(error.to_string().contains("more than 1300 bytes"), "{error}");
    }

    #[test]
    fn an_empty_last_chunk_ends_the_stream() {
        let mut parser = Parser::new(1300);
        parser.parse(&chunk(&[], true), &mut Vec::new()).unwrap();
        assert!(parser.ended);
    }

    #[test]
    fn fuzz_any_bytes_are_a_stream_or_an_error_whatever_the_pieces() {
        type Chunks = Vec<(u16, bool, bool, u16)>;
        blockyard_fuzz::check!(3000).with_type::<(Chunks, Vec<u16>)>().for_each(|(chunks, lengths)| {
            let mut bytes = Vec::new();
            for &(length, last, spoiled, at) in chunks {
                let mut chunk = chunk(&vec![length as u8; usize::from(length)], last);
                let at = usize::from(at) % chunk.len();
                chunk[at] ^= if spoiled { 0x41 } else { 0 };
                bytes.extend(chunk);
            }
            let mut whole = (Parser::new(100_000), Vec::new());
            let said = whole.0.parse(&bytes, &mut whole.1).map_err(|error| error.to_string());
            let (mut parser, mut out, mut left) = (Parser::new(100_000), Vec::new(), &bytes[..]);
            let mut pieces = lengths.iter().map(|length| usize::from(*length)).chain(std::iter::repeat(4096));
            let mut result = Ok(());
            while !left.is_empty() && result.is_ok() {
                let (piece, rest) = left.split_at(pieces.next().unwrap().min(left.len()));
                result = parser.parse(piece, &mut out).map_err(|error| error.to_string());
                left = rest;
            }
            assert_eq!((result, parser.ended), (said, whole.0.ended));
            assert!(out == whole.1 && out.len() <= 100_000);
        });
    }
}
