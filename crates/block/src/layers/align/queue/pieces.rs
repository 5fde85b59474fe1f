//! Requests on their way through the inner queue, in pieces and through bounce buffers where they have to be.

use super::super::bounce::BounceTransfer;
use super::super::pending::Direction;
use super::AlignedQueue;
use crate::{Completion, Operation, Request};

impl AlignedQueue {
    /// Pushes what has been waiting, as far as the inner queue has room.
    pub(super) fn push_waiting(&mut self) {
        while let Some(&slot) = self.waiting.front() {
            let pushed = match self.slots[usize::from(slot)].operation {
                Operation::Read | Operation::Write { .. } => self.push_pieces(slot),
                operation => self.push_whole(slot, operation),
            };
            if !pushed {
                return;
            }
            self.waiting.pop_front();
        }
    }

    fn push_whole(&mut self, slot: u16, operation: Operation) -> bool {
        let pending = &mut self.slots[usize::from(slot)];
        let request = Request { operation, offset_bytes: pending.range.start, segments: &[], token: u64::from(slot) };
        let pushed = self.inner.push(&request).is_ok();
        if pushed {
            pending.send_rest();
        }
        pushed
    }

    /// False when something of the request is left for later.
    fn push_pieces(&mut self, slot: u16) -> bool {
        while !self.slots[usize::from(slot)].is_sent() {
            if self.inner.in_flight() >= self.inner.depth() || !(self.push_piece(slot) || self.push_bounced(slot)) {
                return false;
            }
        }
        true
    }

    /// Pushes a piece that can go from where it lies. False when there is none.
    fn push_piece(&mut self, slot: u16) -> bool {
        let pending = &mut self.slots[usize::from(slot)];
        let (operation, offset_bytes) = (pending.operation, pending.position());
        if !self.limits.is_whole(offset_bytes) {
            return false;
        }
        let length_bytes = pending.longest_piece(&self.limits, 0, &mut self.piece);
        let request = Request { operation, offset_bytes, segments: &self.piece, token: u64::from(slot) };
        let pushed = length_bytes > 0 && self.inner.push(&request).is_ok();
        if pushed {
            pending.send(length_bytes);
        }
        pushed
    }

    /// Pushes a piece through a bounce buffer. False when none is free.
    fn push_bounced(&mut self, slot: u16) -> bool {
        let Some(buffer) = self.bounce.next() else { return false };
        let pending = &mut self.slots[usize::from(slot)];
        let (operation, position) = (pending.operation, pending.position());
        let start = self.limits.floor(position);
        let mut end = pending.range.end.min(start.saturating_add(self.bounce.buffer_bytes));
        let boundary = self.limits.ceiling(position);
        // What follows the rest of a block may do without a buffer.
        let ahead_bytes = boundary - position;
        if boundary > position && boundary < end {
            let follows = pending.longest_piece(&self.limits, ahead_bytes, &mut self.piece) > 0;
            end = if follows { boundary } else { end };
        }
        let transfer = BounceTransfer { position, skip_bytes: position - start, length_bytes: end - position };
        let blocks = self.bounce.segment(buffer, 0, self.limits.ceiling(end) - start);
        if operation != Operation::Read {
            let bytes = self.bounce.segment(buffer, transfer.skip_bytes, transfer.length_bytes);
            // Its segments were found to lie in memory.
            pending.copy(position, &self.memory, Direction::Into(&self.memory, bytes));
        }
        let token = u64::from(slot) | (u64::from(buffer) + 1) << 16;
        let pushed = self.inner.push(&Request { operation, offset_bytes: start, segments: &[blocks], token }).is_ok();
        if pushed {
            self.bounce.take(transfer);
            pending.send(transfer.length_bytes);
        }
        pushed
    }

    /// A piece of the inner queue's ended; perhaps its request did.
    pub(super) fn take_piece(&mut self, completion: Completion) -> Option<Completion> {
        let (slot, buffer) = (completion.token as u16, (completion.token >> 16) as u16);
        let pending = &self.slots[usize::from(slot)];
        if let Some(buffer) = buffer.checked_sub(1) {
            let transfer = self.bounce.give_back(buffer);
            if pending.operation == Operation::Read && completion.result.is_ok() {
                let bytes = self.bounce.segment(buffer, transfer.skip_bytes, transfer.length_bytes);
                pending.copy(transfer.position, &self.memory, Direction::OutOf(&self.memory, bytes));
            }
        }
        self.take(slot, completion.result)
    }
}
