//! Bytes between a program's buffers and a disk.

use crate::ahead;
use crate::connection::{CHANNEL_BYTES, Channel, Connection, PIECE_BYTES};
use crate::errno::Errno;
use crate::guarded;
use blockyard_block::{MemoryMap, Operation, Request, Segment};
use libc::iovec;
use std::ops::Range;
use vm_memory::VolatileSlice;

/// Memory of the program's, which it has said is there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Buffers<'a> {
    all: &'a [iovec],
    total_bytes: usize,
}

impl<'a> Buffers<'a> {
    /// Buffers as readv(2) takes them.
    pub(crate) fn new(all: &'a [iovec]) -> Result<Self, Errno> {
        let mut total_bytes = 0_usize;
        for buffer in all {
            total_bytes = total_bytes.checked_add(buffer.iov_len).ok_or(Errno(libc::EINVAL))?;
        }
        if total_bytes > isize::MAX as usize { Err(Errno(libc::EINVAL)) } else { Ok(Self { all, total_bytes }) }
    }

    pub(crate) fn total_bytes(&self) -> usize {
        self.total_bytes
    }

    /// Puts a part of a channel's memory where the program wants what comes behind `skip` bytes.
    pub(crate) fn fill(&self, skip: usize, memory: &MemoryMap, part: Part) -> Result<(), Errno> {
        self.each(skip, part, |part, address| part.give(memory, address))
    }

    /// Puts what the program has behind `skip` bytes into a part of a channel's memory.
    pub(crate) fn drain(&self, skip: usize, memory: &MemoryMap, part: Part) -> Result<(), Errno> {
        self.each(skip, part, |part, address| part.take(memory, address))
    }

    /// Calls `each` with parts of one part, and with where each lies in a buffer.
    fn each(
        &self,
        mut skip: usize,
        Part { offset, length }: Part,
        mut each: impl FnMut(Part, *mut u8) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let mut done = 0;
        for buffer in self.all {
            if skip >= buffer.iov_len {
                skip -= buffer.iov_len;
                continue;
            }
            let count = (buffer.iov_len - skip).min(length - done);
            let part = Part { offset: offset + done, length: count };
            each(part, buffer.iov_base.cast::<u8>().wrapping_add(skip))?;
            (done, skip) = (done + count, 0);
            if done == length {
                break;
            }
        }
        Ok(())
    }
}

/// Where a transfer begins, if it is one that a file of any size may have.
pub(crate) fn start(offset: i64, length: usize) -> Result<u64, Errno> {
    let end = i64::try_from(length).ok().and_then(|length| offset.checked_add(length));
    u64::try_from(offset).ok().filter(|_| end.is_some()).ok_or(Errno(libc::EINVAL))
}

/// Fills buffers with what the disk has from `offset` on. How many bytes that were: fewer at the disk's end. `waits`:
/// it is read now, and not before.
pub(crate) fn read(connection: &Connection, offset: u64, buffers: &Buffers<'_>, waits: bool) -> Result<usize, Errno> {
    connection.enter()?;
    let length = within(connection, offset, buffers.total_bytes());
    connection.behind.wait_for(connection, offset..offset + length as u64);
    let read = if waits { Ok(0) } else { connection.ahead.read(connection, offset, length, buffers) };
    let done = match read {
        Ok(done) => done,
        Err(ahead::Failed { done: 0, error }) => return Err(error),
        Err(ahead::Failed { done, .. }) => return Ok(done),
    };
    if done == length {
        return Ok(length);
    }
    connection.with_channel(|channel| {
        in_chunks(connection, offset, done..length, |chunk| {
            // While the disk reads the others.
            let take = |memory: &MemoryMap, piece: Range<usize>| {
                chunk.part(&piece).map_or(Ok(()), |(skip, part)| buffers.fill(skip, memory, part))
            };
            let blocks = (chunk.blocks_from, chunk.blocks_bytes);
            transfer(connection, channel, Operation::Read, blocks, |_, _| Ok(()), take)
        })
    })
}

/// When a write ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ends {
    /// When whoever serves the disk has it, or later.
    Given,
    /// When the disk has it.
    Written,
    /// When it is on stable storage.
    Stable,
}

/// Writes buffers from `offset` on. How many bytes that were: fewer at the disk's end, and there ENOSPC.
pub(crate) fn write(connection: &Connection, offset: u64, buffers: &Buffers<'_>, ends: Ends) -> Result<usize, Errno> {
    let length = within(connection, offset, buffers.total_bytes());
    if length == 0 {
        return if buffers.total_bytes() == 0 { Ok(0) } else { Err(Errno(libc::ENOSPC)) };
    }
    connection.enter()?;
    match ends {
        Ends::Given => {
            if let Some(given) = connection.behind.write(connection, offset, length, buffers)? {
                return Ok(given);
            }
        }
        Ends::Written | Ends::Stable => connection.behind.wait_for(connection, offset..offset + length as u64),
    }
    let operation = Operation::Write { force_unit_access: ends == Ends::Stable };
    let _change = connection.writers.begin();
    connection.with_channel(|channel| {
        in_chunks(connection, offset, 0..length, |chunk| {
            let fill = |memory: &MemoryMap, piece: Range<usize>| {
                chunk.part(&piece).map_or(Ok(()), |(skip, part)| buffers.drain(skip, memory, part))
            };
            write_chunk(connection, channel, operation, &chunk, fill)
        })
    })
}

/// Makes zeros of a range.
pub(crate) fn write_zeroes(connection: &Connection, offset: u64, length: u64, unmap: bool) -> Result<(), Errno> {
    let block = u64::from(connection.geometry.logical_block_bytes);
    let end = offset.checked_add(length).ok_or(Errno(libc::EINVAL))?;
    connection.enter()?;
    connection.behind.settle(connection)?;
    let _change = connection.writers.begin();
    let (first, last) = (offset.next_multiple_of(block).min(end), (end - end % block).max(offset));
    if first < last {
        let operation = Operation::WriteZeroes { length_bytes: last - first, may_unmap: unmap };
        perform(connection, operation, first)?;
        zero(connection, offset, first)?;
        return zero(connection, last, end);
    }
    zero(connection, offset, end)
}

/// Makes zeros of a few bytes, which may be parts of blocks.
fn zero(connection: &Connection, from: u64, to: u64) -> Result<(), Errno> {
    if from == to {
        return Ok(());
    }
    let operation = Operation::Write { force_unit_access: false };
    connection
        .with_channel(|channel| {
            in_chunks(connection, from, 0..(to - from) as usize, |chunk| {
                write_chunk(connection, channel, operation, &chunk, |memory, piece| {
                    if let Some((_, part)) = chunk.part(&piece) {
                        part.of(memory).copy_from(&vec![0_u8; part.length]);
                    }
                    Ok(())
                })
            })
        })
        .map(drop)
}

/// Has the disk do something that moves no bytes, once all that was written is done.
pub(crate) fn perform(connection: &Connection, operation: Operation, offset_bytes: u64) -> Result<(), Errno> {
    connection.enter()?;
    connection.behind.settle(connection)?;
    let _change = (operation != Operation::Flush).then(|| connection.writers.begin());
    connection.with_channel(|channel| {
        push(channel, operation, offset_bytes, &[], 0)?;
        Ok(finish(channel, None, |_, _| Ok(()))?)
    })
}

/// So much of `length` bytes as lies within the disk.
pub(crate) fn within(connection: &Connection, offset: u64, length: usize) -> usize {
    let left = connection.geometry.capacity_bytes.saturating_sub(offset);
    length.min(usize::try_from(left).unwrap_or(usize::MAX))
}

/// A part of a transfer that has room in a channel, and the blocks that it lies in.
struct Chunk {
    /// Bytes of the transfer before it, and in it.
    done: usize,
    length: usize,
    blocks_from: u64,
    blocks_bytes: usize,
    /// Bytes of the first block before it.
    skipped: usize,
}

impl Chunk {
    fn is_whole_blocks(&self) -> bool {
        self.length == self.blocks_bytes
    }

    /// What of a piece of its blocks is the program's: where that is in its buffers, and in the channel's memory.
    fn part(&self, piece: &Range<usize>) -> Option<(usize, Part)> {
        let (start, end) = (piece.start.max(self.skipped), piece.end.min(self.skipped + self.length));
        (start < end).then(|| (self.done + start - self.skipped, Part { offset: start, length: end - start }))
    }
}

/// Which of several pieces has failed, behind others that have not.
#[derive(Clone, Copy, Debug)]
struct Failed {
    index: u64,
    error: Errno,
}

impl From<Errno> for Failed {
    /// None before it counts.
    fn from(error: Errno) -> Self {
        Self { index: 0, error }
    }
}

impl From<Failed> for Errno {
    fn from(failed: Failed) -> Self {
        failed.error
    }
}

/// Carries `left` of a transfer out in chunks. Where one fails, those before it count, and its pieces before that.
fn in_chunks(
    connection: &Connection,
    offset: u64,
    left: Range<usize>,
    mut each: impl FnMut(Chunk) -> Result<(), Failed>,
) -> Result<usize, Errno> {
    let block = u64::from(connection.geometry.logical_block_bytes);
    let mut done = left.start;
    while done < left.end {
        let at = offset + done as u64;
        let skipped = (at % block) as usize;
        let length = (left.end - done).min(CHANNEL_BYTES - skipped);
        // The capacity is whole blocks.
        let blocks_bytes = (skipped + length).next_multiple_of(block as usize);
        match each(Chunk { done, length, blocks_from: at - skipped as u64, blocks_bytes, skipped }) {
            Ok(()) => done += length,
            Err(Failed { index, error }) => {
                done += (index as usize * PIECE_BYTES).saturating_sub(skipped);
                return if done == 0 { Err(error) } else { Ok(done) };
            }
        }
    }
    Ok(done)
}

/// Writes a chunk, whose bytes `fill` puts into the channel's memory. Of blocks that are written in part, the rest is
/// read before, and nobody else writes meanwhile.
fn write_chunk(
    connection: &Connection,
    channel: &mut Channel,
    operation: Operation,
    chunk: &Chunk,
    fill: impl Fn(&MemoryMap, Range<usize>) -> Result<(), Errno>,
) -> Result<(), Failed> {
    let (_shared, _alone);
    if chunk.is_whole_blocks() {
        _shared = connection.partial_writes.keep_out();
    } else {
        let blocks = chunk.blocks_from..chunk.blocks_from + chunk.blocks_bytes as u64;
        _alone = connection.write_parts(blocks.clone())?;
        // Another thread may have written there since, and not waited for it.
        connection.behind.wait_for(connection, blocks);
        let block = connection.geometry.logical_block_bytes as usize;
        for at in [0, chunk.blocks_bytes - block].into_iter().take(chunk.blocks_bytes / block) {
            push(channel, Operation::Read, chunk.blocks_from + at as u64, &[segment(at, block)], 0)?;
        }
        finish(channel, None, |_, _| Ok(()))?;
    }
    let blocks = (chunk.blocks_from, chunk.blocks_bytes);
    transfer(connection, channel, operation, blocks, fill, |_, _| Ok(()))
}

/// Transfers blocks to or from the beginning of a channel's memory. `before` is called with each piece before the disk
/// has it, and `after` when it is done: meanwhile the disk has others. Where one fails, no more is begun.
fn transfer(
    connection: &Connection,
    channel: &mut Channel,
    operation: Operation,
    (offset, length): (u64, usize),
    before: impl Fn(&MemoryMap, Range<usize>) -> Result<(), Errno>,
    after: impl Fn(&MemoryMap, Range<usize>) -> Result<(), Errno>,
) -> Result<(), Failed> {
    let piece = |index: u64| {
        let at = index as usize * PIECE_BYTES;
        at..(at + PIECE_BYTES).min(length)
    };
    let mut begin = |index: u64| {
        let range = piece(index);
        before(&channel.memory, range.clone())
            .and_then(|()| {
                push(channel, operation, offset + range.start as u64, &[segment(range.start, range.len())], index)
            })
            .and_then(|()| Ok(channel.queue.submit()?))
            .map_err(|error| Failed { index, error })
    };
    let begun: Result<(), Failed> = (0..length.div_ceil(PIECE_BYTES) as u64).try_for_each(&mut begin);
    let told = matches!(operation, Operation::Write { .. }).then_some(connection);
    let finished = finish(channel, told, |memory, index| after(memory, piece(index)));
    // What was begun lies before what could not be.
    finished.and(begun)
}

/// Waits for all that the channel has under way, and calls `done` with the token of each that is, an index; the error
/// of the lowest counts. Of writes, how many failed is `told`.
fn finish(
    channel: &mut Channel,
    told: Option<&Connection>,
    done: impl Fn(&MemoryMap, u64) -> Result<(), Errno>,
) -> Result<(), Failed> {
    let Channel { memory, queue, completions } = channel;
    let mut failed: Option<Failed> = None;
    queue.submit().map_err(Errno::from)?;
    while queue.in_flight() > 0 {
        completions.clear();
        queue.reap(completions);
        for completion in completions.iter() {
            if let (Some(connection), Err(error)) = (told, completion.result) {
                connection.told(error);
            }
            // Of a write that the disk refuses, all is told of.
            let index = if told.is_some() { 0 } else { completion.token };
            // Behind what has failed, nothing is to be had.
            if failed.is_some_and(|failed| failed.index <= index) {
                continue;
            }
            let result = completion.result.map_err(Errno::from);
            if let Err(error) = result.and_then(|()| done(memory, completion.token)) {
                failed = Some(Failed { index, error });
            }
        }
        if completions.is_empty() {
            queue.wait(&[], None).map_err(Errno::from)?;
        }
        queue.submit().map_err(Errno::from)?;
    }
    failed.map_or(Ok(()), Err)
}

/// A part of a channel's memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    pub(crate) offset: usize,
    pub(crate) length: usize,
}

impl Part {
    /// Copies it to memory of the program's.
    pub(crate) fn give(&self, memory: &MemoryMap, to: *mut u8) -> Result<(), Errno> {
        let from = self.of(memory).ptr_guard();
        // SAFETY: the part is there; the program has said that there is room.
        copied(unsafe { guarded::copy(to, from.as_ptr(), self.length) }, self.length)
    }

    /// Copies what the program has to it.
    pub(crate) fn take(&self, memory: &MemoryMap, from: *const u8) -> Result<(), Errno> {
        let to = self.of(memory).ptr_guard_mut();
        // SAFETY: the part is there; the program has said that it has so much.
        copied(unsafe { guarded::copy(to.as_ptr(), from, self.length) }, self.length)
    }

    fn of<'memory>(&self, memory: &'memory MemoryMap) -> VolatileSlice<'memory> {
        memory.slice(segment(self.offset, self.length)).expect("a chunk lies in the channel's memory")
    }
}

fn copied(count: usize, length: usize) -> Result<(), Errno> {
    if count == length { Ok(()) } else { Err(Errno(libc::EFAULT)) }
}

pub(crate) fn segment(offset: usize, length: usize) -> Segment {
    Segment { region: 0, length_bytes: length as u32, offset_bytes: offset as u64 }
}

pub(crate) fn push(
    channel: &mut Channel,
    operation: Operation,
    offset_bytes: u64,
    segments: &[Segment],
    token: u64,
) -> Result<(), Errno> {
    let request = Request { operation, offset_bytes, segments, token };
    channel.queue.push(&request).map_err(|_| Errno(libc::EAGAIN))
}
