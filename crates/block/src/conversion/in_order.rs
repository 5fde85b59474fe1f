//! What a conversion reads, for somebody who wants to hear all of it, whichever thread has read it.

use super::output::Output;
use std::ops::Range;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;
use vm_memory::Bytes;

/// What is heard at once.
const PART_BYTES: u64 = 64 << 10;

/// How often a thread that waits for its turn looks whether something has failed elsewhere.
const LOOK: Duration = Duration::from_millis(100);

/// Hears the disk's bytes from the first to the last. Each thread has one piece at a time, so that the one with the
/// earliest waits for nobody.
pub(super) struct InOrder<'a> {
    take: &'a (dyn Fn(&[u8]) + Sync),
    turn: Mutex<Turn>,
    has_passed: Condvar,
}

struct Turn {
    /// Where the piece begins that is next.
    next: u64,
    part: Vec<u8>,
}

impl<'a> InOrder<'a> {
    pub(super) fn new(take: &'a (dyn Fn(&[u8]) + Sync)) -> Self {
        let turn = Turn { next: 0, part: vec![0; PART_BYTES as usize] };
        Self { take, turn: Mutex::new(turn), has_passed: Condvar::new() }
    }

    /// Gives the piece of the plan at `range`, once all before it was given: the first `length_bytes` of what was read
    /// into `slot`, or as many zeros without one. Does nothing when the conversion is over.
    pub(super) fn give(&self, output: &Output<'_>, range: &Range<u64>, slot: Option<usize>, length_bytes: u64) {
        let mut turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        while turn.next != range.start {
            if output.is_over() {
                return;
            }
            let waited = self.has_passed.wait_timeout(turn, LOOK);
            turn = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let Turn { next, part } = &mut *turn;
        if slot.is_none() {
            part.fill(0);
        }
        let mut at = 0;
        while at < length_bytes && !output.is_over() {
            let count = PART_BYTES.min(length_bytes - at);
            let Some(bytes) = part.get_mut(..count as usize) else { break };
            if let Some(slot) = slot {
                let read = output.memory().slice(output.segment(slot, at, count));
                if read.is_none_or(|read| read.read_slice(bytes, 0).is_err()) {
                    break;
                }
            }
            (self.take)(bytes);
            at += count;
        }
        *next = range.end;
        drop(turn);
        self.has_passed.notify_all();
    }
}
