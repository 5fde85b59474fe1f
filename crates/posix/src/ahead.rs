//! Reading before it is asked for, where a program reads one piece behind the other.
//!
//! The disk has the pieces that come next under way while the program uses what came. What was read so is given away
//! only where nobody has changed the disk since it was asked for ([`Connection::state`]): a program that hears of a
//! write sees it.

use crate::connection::{CHANNEL_BYTES, Channel, Connection, PIECE_BYTES, State};
use crate::errno::Errno;
use crate::setup::Inside;
use crate::transfer::{Buffers, Part, segment};
use crate::{own, transfer};
use blockyard_block::Operation;
use std::collections::VecDeque;
use std::sync::Mutex;

/// Pieces that are under way or wait for the program, and room for as many of them.
const PIECES_MAX: usize = 8;
const SLOTS: usize = CHANNEL_BYTES / PIECE_BYTES;
/// Bytes of the first ones.
const PIECE_BYTES_MIN: usize = 32 << 10;
/// Reads behind each other after which the next is thought to come.
const READS_MIN: usize = 2;

/// A disk's reads, as they come.
#[derive(Default)]
pub(crate) struct Ahead(Mutex<Stream>);

#[derive(Default)]
struct Stream {
    /// Its own, once there is something to read before its time.
    channel: Option<Channel>,
    /// There are no queues for it.
    is_refused: bool,
    /// Where a read goes on, how many have been in a row, and their bytes.
    next: u64,
    reads: usize,
    bytes: usize,
    /// The disk's before the pieces were asked for.
    state: State,
    /// One behind the other; the first has the next byte.
    pieces: VecDeque<Piece>,
    slots: [Slot; SLOTS],
}

/// A read of which the end fails: what it has filled before.
pub(crate) struct Failed {
    pub(crate) done: usize,
    pub(crate) error: Errno,
}

/// What lies in a slot.
#[derive(Clone, Copy)]
struct Piece {
    slot: usize,
    offset: u64,
    length: usize,
}

impl Piece {
    fn end(&self) -> u64 {
        self.offset + self.length as u64
    }
}

/// What the disk does with a part of the channel's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Slot {
    #[default]
    Free,
    /// Whether somebody still wants it.
    UnderWay(bool),
    Read,
    Failed,
}

impl Ahead {
    /// Fills buffers with what was read before from `offset` on, `length` bytes of the disk's, and sees to it that what
    /// comes next is read. How many bytes that were: the rest is for the caller to read.
    pub(crate) fn read(
        &self,
        connection: &Connection,
        offset: u64,
        length: usize,
        buffers: &Buffers<'_>,
    ) -> Result<usize, Failed> {
        // Another thread reads, or this one is interrupted in it.
        let Ok(mut stream) = self.0.try_lock() else { return Ok(0) };
        stream.read(connection, offset, length, buffers)
    }
}

impl Stream {
    fn read(
        &mut self,
        connection: &Connection,
        offset: u64,
        length: usize,
        buffers: &Buffers<'_>,
    ) -> Result<usize, Failed> {
        let state = connection.state();
        if offset != self.next || state != Some(self.state) {
            self.forget();
            let goes_on = offset == self.next && state.is_some();
            (self.reads, self.bytes) = if goes_on { (self.reads.min(READS_MIN - 1), 0) } else { (0, 0) };
            self.state = state.unwrap_or_default();
        }
        self.next = offset + length as u64;
        self.bytes = self.bytes.saturating_add(length);
        if state.is_none() || self.is_refused {
            return Ok(0);
        }
        if self.reads < READS_MIN {
            self.reads += 1;
            return Ok(0);
        }
        if !self.has_channel(connection) {
            return Ok(0);
        }
        let mut done = 0;
        while done < length {
            let at = offset + done as u64;
            self.ask(connection, at);
            let Some(piece) = self.pieces.front().copied() else { break };
            if !self.is_read(piece.slot) {
                self.forget();
                break;
            }
            let Some(channel) = &self.channel else { break };
            let within = (at - piece.offset) as usize;
            let count = (piece.length - within).min(length - done);
            let part = Part { offset: piece.slot * PIECE_BYTES + within, length: count };
            if let Err(error) = buffers.fill(done, &channel.memory, part) {
                // Whoever reads on is not there where the pieces are.
                self.forget();
                return Err(Failed { done, error });
            }
            done += count;
            if at + count as u64 == piece.end() {
                self.slots[piece.slot] = Slot::Free;
                self.pieces.pop_front();
            }
        }
        Ok(done)
    }

    fn has_channel(&mut self, connection: &Connection) -> bool {
        if self.channel.is_none() {
            let _inside = Inside::enter();
            self.channel = own::make(|| connection.new_channel(CHANNEL_BYTES, SLOTS)).ok();
            self.is_refused = self.channel.is_none();
        }
        !self.is_refused
    }

    /// Asks for what comes from `at` on, unless the disk has changed.
    fn ask(&mut self, connection: &Connection, at: u64) {
        if self.pieces.len() == PIECES_MAX || connection.state() != Some(self.state) {
            return;
        }
        let Some(channel) = &mut self.channel else { return };
        let block = u64::from(connection.geometry.logical_block_bytes);
        let length = self.bytes.min(PIECE_BYTES).next_power_of_two().max(PIECE_BYTES_MIN);
        while self.pieces.len() < PIECES_MAX {
            let from = self.pieces.back().map_or(at - at % block, Piece::end);
            // The capacity is whole blocks, and a piece, too.
            let length = transfer::within(connection, from, length.next_multiple_of(block as usize));
            let Some(slot) = self.slots.iter().position(|slot| *slot == Slot::Free).filter(|_| length > 0) else {
                break;
            };
            let segments = [segment(slot * PIECE_BYTES, length)];
            if transfer::push(channel, Operation::Read, from, &segments, slot as u64).is_err() {
                break;
            }
            self.slots[slot] = Slot::UnderWay(true);
            self.pieces.push_back(Piece { slot, offset: from, length });
        }
        // What fails is seen where it is waited for.
        let _ = channel.queue.submit();
    }

    /// Waits until a slot is read: whether it was.
    fn is_read(&mut self, slot: usize) -> bool {
        loop {
            match self.slots[slot] {
                Slot::Read => return true,
                Slot::UnderWay(_) => {}
                Slot::Free | Slot::Failed => return false,
            }
            if !self.take_back() && self.channel.as_mut().is_none_or(|channel| channel.queue.wait(&[], None).is_err()) {
                return false;
            }
        }
    }

    /// Takes back what the disk has read. Whether that was anything.
    fn take_back(&mut self) -> bool {
        let Some(Channel { queue, completions, .. }) = &mut self.channel else { return false };
        completions.clear();
        queue.reap(completions);
        for completion in completions.iter() {
            let slot = &mut self.slots[completion.token as usize];
            *slot = match *slot {
                Slot::UnderWay(true) if completion.result.is_ok() => Slot::Read,
                Slot::UnderWay(true) => Slot::Failed,
                _ => Slot::Free,
            };
        }
        !completions.is_empty()
    }

    /// Nobody wants any more what was asked for.
    fn forget(&mut self) {
        if self.pieces.is_empty() {
            return;
        }
        self.pieces.clear();
        for slot in &mut self.slots {
            *slot = if matches!(slot, Slot::UnderWay(_)) { Slot::UnderWay(false) } else { Slot::Free };
        }
        self.take_back();
    }
}
