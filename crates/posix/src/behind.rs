//! Writing behind: where a program writes one piece behind the other, a write ends when whoever serves the disk has it,
//! and the program goes on meanwhile. What was made available so is carried out even if the process is killed.
//!
//! Whatever comes after it on this process's connection sees it: a request on what is under way waits for it first
//! ([`Behind::wait_for`]). Other processes do, too: there is no writing behind where others use the disk, and the
//! first other one begins once all that was made available is done ([`users`](crate::users)).
//!
//! What fails is told once: by the next write, at a sync, or when a descriptor is closed. If nothing of that comes,
//! whoever serves the disk tells it in the end ([`Writers::told`]).

use crate::connection::{Channel, Connection, PIECE_BYTES};
use crate::errno::Errno;
use crate::setup::Inside;
use crate::transfer::{Buffers, Part, segment};
use crate::writers::{Change, Told, Writers};
use crate::{own, transfer};
use blockyard_block::Operation;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Bytes under way at most. More would have to be fetched into a CPU's cache anew each time.
const BYTES: usize = 2 << 20;
/// Requests under way at most.
const PIECES_MAX: usize = 256;
/// Writes behind each other after which the next is thought to come.
const WRITES_MIN: usize = 2;

/// A disk's writes, as they come.
#[derive(Default)]
pub(crate) struct Behind {
    run: Mutex<Run>,
    /// Something is under way, or an error is to be told.
    is_busy: AtomicBool,
}

/// Writes behind each other.
#[derive(Default)]
struct Run {
    /// Its own, once there is something to write behind.
    channel: Option<Channel>,
    /// There are no queues for it.
    is_refused: bool,
    /// Where a write goes on, and how many have been in a row.
    next: u64,
    writes: usize,
    /// Those under way, and done ones between: one behind the other, on the disk and in memory, where they begin anew
    /// at its end.
    pieces: VecDeque<Piece>,
    /// The number of the first.
    first: u64,
    /// For as long as there are any.
    change: Option<Change>,
    /// What is to be told, and of how many writes.
    error: Option<Errno>,
    failed: Told,
}

struct Piece {
    memory: Range<usize>,
    /// Where it is on the disk.
    offset: u64,
    is_done: bool,
}

impl Behind {
    /// Gives the disk `length` bytes of buffers for `offset`, if they follow what was written before; `None`: they are
    /// to be written now, and nothing that they would change is under way any more. How many bytes the disk has.
    pub(crate) fn write(
        &self,
        connection: &Connection,
        offset: u64,
        length: usize,
        buffers: &Buffers<'_>,
    ) -> Result<Option<usize>, Errno> {
        // Nobody writes a part of a block meanwhile of which this writes the whole.
        let _whole = connection.partial_writes.keep_out();
        let mut run = self.run();
        run.take_back();
        if let Some(error) = run.tell(connection.writers) {
            return self.after(&run, Err(error));
        }
        let follows = run.follows(connection, offset, length);
        if !follows || !connection.writers.are_alone() || !run.has_channel(connection) {
            run.wait_for(connection, offset..offset + length as u64);
            return self.after(&run, Ok(None));
        }
        let given = run.give(connection, offset, length, buffers);
        // Whoever lets another process in has said so before it looks at what is available, and this has been made
        // available before it looks.
        fence(Ordering::SeqCst);
        if !connection.writers.are_alone() {
            run.settle();
            if let Some(error) = run.tell(connection.writers) {
                return self.after(&run, Err(error));
            }
        }
        self.after(&run, given.map(Some))
    }

    /// Waits until nothing of a range is under way.
    pub(crate) fn wait_for(&self, connection: &Connection, range: Range<u64>) {
        if self.is_busy.load(Ordering::Acquire) {
            let mut run = self.run();
            run.wait_for(connection, range);
            self.after(&run, ());
        }
    }

    /// Waits until nothing is under way.
    ///
    /// # Errors
    /// What failed, if nobody was told.
    pub(crate) fn settle(&self, connection: &Connection) -> Result<(), Errno> {
        if !self.is_busy.load(Ordering::Acquire) {
            return Ok(());
        }
        let mut run = self.run();
        run.settle();
        let result = run.tell(connection.writers).map_or(Ok(()), Err);
        self.after(&run, result)
    }

    fn run(&self) -> MutexGuard<'_, Run> {
        self.run.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn after<T>(&self, run: &Run, result: T) -> T {
        self.is_busy.store(!run.pieces.is_empty() || run.error.is_some(), Ordering::Release);
        result
    }
}

impl Run {
    /// What the program is told now, if there is anything.
    fn tell(&mut self, writers: Writers) -> Option<Errno> {
        let error = self.error.take()?;
        writers.told(std::mem::take(&mut self.failed));
        Some(error)
    }

    /// Whether a write comes behind those before it, in whole blocks.
    fn follows(&mut self, connection: &Connection, offset: u64, length: usize) -> bool {
        let block = u64::from(connection.geometry.logical_block_bytes);
        let is_next = self.next == offset && offset.is_multiple_of(block) && (length as u64).is_multiple_of(block);
        self.writes = if is_next { self.writes.saturating_add(1) } else { 0 };
        self.next = offset + length as u64;
        self.writes >= WRITES_MIN
    }

    fn has_channel(&mut self, connection: &Connection) -> bool {
        if self.channel.is_none() && !self.is_refused {
            let _inside = Inside::enter();
            self.channel = own::make(|| connection.new_channel_here(BYTES, PIECES_MAX)).ok();
            self.is_refused = self.channel.is_none();
            self.pieces.reserve(PIECES_MAX);
        }
        !self.is_refused
    }

    /// Makes a write available, piece by piece.
    fn give(
        &mut self,
        connection: &Connection,
        offset: u64,
        length: usize,
        buffers: &Buffers<'_>,
    ) -> Result<usize, Errno> {
        let end = self.pieces.back().map(|piece| piece.offset + piece.memory.len() as u64);
        if end.is_some_and(|end| end != offset) {
            self.settle();
        }
        let mut done = 0;
        while done < length {
            match self.give_piece(connection, offset + done as u64, (length - done).min(PIECE_BYTES), done, buffers) {
                Ok(bytes) => done += bytes,
                Err(error) => return if done == 0 { Err(error) } else { Ok(done) },
            }
        }
        Ok(done)
    }

    fn give_piece(
        &mut self,
        connection: &Connection,
        offset: u64,
        length: usize,
        skip: usize,
        buffers: &Buffers<'_>,
    ) -> Result<usize, Errno> {
        let at = loop {
            if let Some(at) = self.room(length) {
                break at;
            }
            if !self.wait() {
                return Err(self.tell(connection.writers).unwrap_or(Errno(libc::EIO)));
            }
        };
        let number = self.first + self.pieces.len() as u64;
        let channel = self.channel.as_mut().ok_or(Errno(libc::EIO))?;
        buffers.drain(skip, &channel.memory, Part { offset: at, length })?;
        self.change.get_or_insert_with(|| connection.writers.begin());
        let operation = Operation::Write { force_unit_access: false };
        let pushed = transfer::push(channel, operation, offset, &[segment(at, length)], number);
        if let Err(error) = pushed {
            self.forget_done();
            return Err(error);
        }
        self.pieces.push_back(Piece { memory: at..at + length, offset, is_done: false });
        // What fails is seen where it is waited for.
        let _ = channel.queue.submit();
        Ok(length)
    }

    /// Where so many bytes have room in the memory.
    fn room(&self, length: usize) -> Option<usize> {
        let (Some(first), Some(last)) = (self.pieces.front(), self.pieces.back()) else { return Some(0) };
        if self.pieces.len() == PIECES_MAX {
            return None;
        }
        let (from, to) = (first.memory.start, last.memory.end);
        if to > from {
            return if to + length <= BYTES { Some(to) } else { (length < from).then_some(0) };
        }
        (to + length < from).then_some(to)
    }

    /// Waits until nothing of a range's blocks is under way.
    fn wait_for(&mut self, connection: &Connection, range: Range<u64>) {
        self.take_back();
        let (Some(first), Some(last)) = (self.pieces.front(), self.pieces.back()) else { return };
        let block = u64::from(connection.geometry.logical_block_bytes);
        let (from, to) = (range.start - range.start % block, range.end.next_multiple_of(block));
        if first.offset < to && from < last.offset + last.memory.len() as u64 {
            self.settle();
        }
    }

    /// Waits until nothing is under way.
    fn settle(&mut self) {
        while !self.pieces.is_empty() && self.wait() {}
    }

    /// Waits until something is done. False: there is nobody who would do anything.
    fn wait(&mut self) -> bool {
        if self.take_back() {
            return true;
        }
        let waited = self.channel.as_mut().is_some_and(|channel| channel.queue.wait(&[], None).is_ok());
        if !waited {
            // Its memory stays with its channel, which is used no more.
            self.error.get_or_insert(Errno(libc::EIO));
            self.is_refused = true;
            self.failed.lost += self.pieces.iter().filter(|piece| !piece.is_done).count() as u64;
            self.pieces.clear();
            self.change = None;
        }
        waited
    }

    /// Takes back what the disk has written. Whether that was anything.
    fn take_back(&mut self) -> bool {
        let Some(Channel { queue, completions, .. }) = self.channel.as_mut().filter(|_| !self.pieces.is_empty()) else {
            return false;
        };
        completions.clear();
        queue.reap(completions);
        for completion in completions.iter() {
            let index = completion.token.wrapping_sub(self.first) as usize;
            self.pieces.get_mut(index).into_iter().for_each(|piece| piece.is_done = true);
            if let Err(error) = completion.result {
                self.error.get_or_insert(error.into());
                self.failed.add(error);
            }
        }
        let has_done = !completions.is_empty();
        self.forget_done();
        has_done
    }

    fn forget_done(&mut self) {
        while self.pieces.pop_front_if(|piece| piece.is_done).is_some() {
            self.first += 1;
        }
        if self.pieces.is_empty() {
            self.change = None;
        }
    }
}
