//! Guests that ask of a stream what they like.

use super::{StreamSink, StreamSource};
use blockyard_block::{Completion, Disk, MemoryMap, Operation, Queue, QueueError, Request, Segment};
use blockyard_protocol::stream::{CHUNK_BYTES, MARK_BYTES, Mark, SOURCE_CHUNK_BYTES};
use bolero::TypeGenerator;
use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};
use vm_memory::{Bytes, GuestAddress};

const MEMORY_BYTES: usize = 2 << 20;
const DEPTH: usize = 8;

/// A request, good or not.
#[derive(Clone, Copy, Debug, TypeGenerator)]
struct Asked {
    /// Read, write, or something else.
    operation: u8,
    place: Place,
    /// In blocks.
    length: u8,
    /// Where in memory; not all of it is there for some.
    memory: u16,
}

#[derive(Clone, Copy, Debug, TypeGenerator)]
enum Place {
    /// Where the stream has come to, if the guest did well so far.
    Next,
    /// Blocks from the start.
    Near(u8),
    /// Bytes from the end of the first chunk.
    End(i8),
    Anywhere(u64),
}

/// What was asked and has not completed, by token.
type Open = BTreeMap<u64, (Operation, u64, Segment)>;

/// Pushes what is asked, reaps now and then, and ends the stream: each request completes once. `judge` sees those that
/// succeed: operation, offset, and the memory.
fn complete_once(
    disk: &dyn Disk,
    asked: &[Asked],
    finish: impl FnOnce(),
    mut judge: impl FnMut(Operation, u64, &[u8]),
) {
    let memory = MemoryMap::allocate(&[(0, MEMORY_BYTES)]).unwrap();
    let mut queue = disk.open_queue(&memory, DEPTH).unwrap();
    assert!(disk.open_queue(&memory, DEPTH).is_err(), "a second queue");
    let (mut open, mut next, mut completions) = (Open::new(), 0, Vec::new());
    let mut settle = |queue: &mut dyn Queue, open: &mut Open| {
        queue.reap(&mut completions);
        for Completion { token, result } in completions.drain(..) {
            let (operation, offset, segment) = open.remove(&token).expect("it completes once");
            if result.is_ok() {
                let mut bytes = vec![0; segment.length_bytes as usize];
                memory.guest_memory().read_slice(&mut bytes, GuestAddress(segment.offset_bytes)).unwrap();
                judge(operation, offset, &bytes);
            }
        }
    };
    for (token, asked) in (0..).zip(asked) {
        let offset_bytes = match asked.place {
            Place::Next => next,
            Place::Near(block) => u64::from(block) * MARK_BYTES as u64,
            Place::End(bytes) => (SOURCE_CHUNK_BYTES as u64).wrapping_add_signed(bytes.into()),
            Place::Anywhere(offset) => offset,
        };
        let length_bytes = u32::from(asked.length) * MARK_BYTES as u32;
        next = offset_bytes.saturating_add(length_bytes.into());
        // Memory that no other request has now, or not all of it there.
        let is_free = |part: &u64| !open.values().any(|(_, _, segment)| segment.offset_bytes >> 18 == *part);
        let part = (0..DEPTH as u64).find(is_free).unwrap_or(0);
        let place = (part << 18) + u64::from(asked.memory >> 12) * MARK_BYTES as u64;
        let place = if asked.memory & 15 == 15 { MEMORY_BYTES as u64 - 256 } else { place };
        let segment = Segment { region: 0, length_bytes, offset_bytes: place };
        let (operation, segments) = match asked.operation % 8 {
            0 => (Operation::Flush, &[][..]),
            1..=4 => (Operation::Read, std::slice::from_ref(&segment)),
            _ => (Operation::Write { force_unit_access: false }, std::slice::from_ref(&segment)),
        };
        match queue.push(&Request { operation, offset_bytes, segments, token }) {
            Ok(()) => assert!(open.insert(token, (operation, offset_bytes, segment)).is_none()),
            Err(QueueError::Full) => assert_eq!(open.len(), DEPTH),
        }
        queue.submit().unwrap();
        settle(&mut *queue, &mut open);
    }
    finish();
    let deadline = Instant::now() + Duration::from_secs(20);
    while queue.in_flight() > 0 {
        assert!(Instant::now() < deadline, "{open:?} never complete");
        queue.wait(&[], Some(Duration::from_millis(100))).unwrap();
        settle(&mut *queue, &mut open);
    }
    assert!(open.is_empty());
}

/// The source disk of a stream of these data.
fn source_disk(data: &[u8]) -> Vec<u8> {
    let mut disk = Vec::new();
    let mut chunks: Vec<&[u8]> = data.chunks(CHUNK_BYTES).collect();
    if data.len().is_multiple_of(CHUNK_BYTES) {
        chunks.push(&[]);
    }
    for (index, chunk) in chunks.into_iter().enumerate() {
        let mark = Mark { bytes: chunk.len(), last: chunk.len() < CHUNK_BYTES };
        disk.extend_from_slice(chunk);
        disk.resize((index + 1) * SOURCE_CHUNK_BYTES - MARK_BYTES, 0);
        disk.extend_from_slice(&mark.encode());
    }
    disk
}

#[test]
fn fuzz_a_guest_that_reads_gets_the_stream_and_nothing_else() {
    blockyard_fuzz::check!(400).with_type::<(u32, Vec<Asked>)>().for_each(|(length, asked)| {
        let length = *length as usize % (CHUNK_BYTES * 2);
        let data: Vec<u8> = (0..length).map(|at| (at / 7) as u8 | 1).collect();
        let disk = source_disk(&data);
        let source = StreamSource::new(io::Cursor::new(data)).unwrap();
        let finish = || source.finish().unwrap();
        complete_once(&*source, asked, finish, |operation, offset, bytes| {
            assert_eq!(operation, Operation::Read);
            let offset = offset as usize;
            assert!(disk[offset..offset + bytes.len()] == *bytes, "{offset}");
        });
    });
}

#[test]
fn fuzz_a_guest_that_writes_gives_a_stream_or_none() {
    blockyard_fuzz::check!(5000).with_type::<Vec<Asked>>().for_each(|asked| {
        let sink = StreamSink::with_bytes_max(Vec::new(), 1000).unwrap();
        // It has only zeros to write: no stream begins with them.
        let finish = || assert!(sink.finish().is_err());
        complete_once(&*sink, asked, finish, |operation, _, _| {
            assert!(matches!(operation, Operation::Write { .. }));
        });
    });
}
