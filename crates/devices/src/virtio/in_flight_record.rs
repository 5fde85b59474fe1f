//! What a vhost-user client keeps for us, so that whoever takes our place knows which requests were in flight.
//!
//! The layout is the vhost-user specification's, "Inflight I/O tracking", for split virtqueues: 16 bytes about the
//! queue, then 16 for each descriptor that can be a chain's head. The client, and whoever was there before us, are
//! believed nothing.

use super::FailureCause;
use blockyard_block::SharedWords;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Relaxed, Release};

const VERSION: u64 = 1;
/// Between queues, as libvhost-user has it: a cache line.
const ALIGN_BYTES: u64 = 64;

/// Words of 64 bits. The first says features, all zero; the second has version, desc_num, last_batch_head and used_idx,
/// from the low end; then two for each descriptor: `inflight` in the lowest byte with `next` in the highest 16 bits,
/// and `counter`.
const QUEUE: usize = 1;
const DESCRIPTORS: usize = 2;

/// The record of one queue.
#[derive(Debug)]
pub struct InFlightRecord {
    words: SharedWords<AtomicU64>,
    size: u16,
    counter: u64,
    last_batch_head: u16,
    /// The used index when it was last published.
    used_index: u16,
    /// Heads that were put into the used ring since it was last published, with what they are linked to.
    batch: Vec<(u16, u16)>,
}

/// What the record says when a queue starts.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Recovered {
    /// Heads of chains that were taken and not answered, in the order in which they were taken.
    pub(crate) heads: Vec<u16>,
    /// Whether a server was here before: it may have died before it told the driver of the last requests it answered.
    pub(crate) used_before: bool,
}

impl InFlightRecord {
    /// Bytes that a queue of `size` entries takes in the region.
    pub const fn region_bytes(size: u16) -> u64 {
        (16 + 16 * size as u64).next_multiple_of(ALIGN_BYTES)
    }

    /// Words of 64 bits in the record of a queue of `size` entries.
    pub const fn words(size: u16) -> usize {
        DESCRIPTORS + 2 * size as usize
    }

    /// A record of a queue of `size` entries in `words`; `None` if they are too few.
    pub fn new(words: SharedWords<AtomicU64>, size: u16) -> Option<Self> {
        let enough = words.len() >= Self::words(size);
        enough.then(|| Self {
            words,
            size,
            counter: 0,
            last_batch_head: 0,
            used_index: 0,
            batch: Vec::with_capacity(2 * size as usize),
        })
    }

    /// Starts to record for a queue whose used ring is at `used_index`; what was in flight before.
    pub(crate) fn recover(&mut self, used_index: u16) -> Result<Recovered, FailureCause> {
        let queue = u64::from_le(self.words[QUEUE].load(Relaxed));
        let [version, entries, last_batch_head, recorded] = [0, 16, 32, 48].map(|shift| (queue >> shift) as u16);
        if u64::from(version) != VERSION {
            for index in 0..self.size {
                self.write_state(index, 0, false);
            }
            self.used_index = used_index;
            self.write_queue();
            return Ok(Recovered { heads: Vec::new(), used_before: false });
        }
        // Zero is what a region has that libvhost-user or others made, who do not use it.
        if entries != self.size && entries != 0 {
            return Err(FailureCause::InFlightRecord("is of a queue of another size"));
        }
        self.last_batch_head = last_batch_head % self.size;
        self.forget_last_batch(used_index.wrapping_sub(recorded), last_batch_head)?;
        let state = |index: u16| u64::from_le(self.words[DESCRIPTORS + 2 * usize::from(index)].load(Relaxed));
        let counter = |index: u16| u64::from_le(self.words[DESCRIPTORS + 2 * usize::from(index) + 1].load(Relaxed));
        let in_flight = (0..self.size).filter(|&index| state(index) as u8 == 1);
        let mut heads: Vec<_> = in_flight.map(|index| (counter(index), index)).collect();
        heads.sort_unstable();
        self.counter = heads.last().map_or(0, |(counter, _)| counter.wrapping_add(1));
        self.used_index = used_index;
        self.write_queue();
        Ok(Recovered { heads: heads.into_iter().map(|(_, head)| head).collect(), used_before: true })
    }

    /// The last batch's used index was published, but its `count` requests are still marked: they are done.
    fn forget_last_batch(&self, count: u16, mut head: u16) -> Result<(), FailureCause> {
        if count > self.size {
            return Err(FailureCause::InFlightRecord("is far from what the used ring says"));
        }
        for _ in 0..count {
            if head >= self.size {
                return Err(FailureCause::InFlightRecord("names a descriptor that does not exist"));
            }
            let word = &self.words[DESCRIPTORS + 2 * usize::from(head)];
            let next = (u64::from_le(word.load(Relaxed)) >> 48) as u16;
            self.write_state(head, next, false);
            head = next;
        }
        Ok(())
    }

    /// The chain at `head` was taken.
    pub(crate) fn take(&mut self, head: u16) {
        if head < self.size {
            self.words[DESCRIPTORS + 2 * usize::from(head) + 1].store(self.counter.to_le(), Relaxed);
            self.counter = self.counter.wrapping_add(1);
            self.write_state(head, 0, true);
        }
    }

    /// The chain at `head` was put into the used ring, which has not been published yet.
    pub(crate) fn answer(&mut self, head: u16) {
        if head < self.size {
            self.write_state(head, self.last_batch_head, true);
            self.batch.push((head, self.last_batch_head));
            self.last_batch_head = head;
            self.write_queue();
        }
    }

    /// The used ring was published and is at `used_index`.
    pub(crate) fn publish(&mut self, used_index: u16) {
        for position in 0..self.batch.len() {
            let (head, next) = self.batch[position];
            self.write_state(head, next, false);
        }
        self.batch.clear();
        self.used_index = used_index;
        self.write_queue();
    }

    fn write_state(&self, index: u16, next: u16, in_flight: bool) {
        let state = u64::from(in_flight) | u64::from(next) << 48;
        self.words[DESCRIPTORS + 2 * usize::from(index)].store(state.to_le(), Release);
    }

    fn write_queue(&self) {
        let numbers = u64::from(self.last_batch_head) << 32 | u64::from(self.used_index) << 48;
        let queue = VERSION | u64::from(self.size) << 16 | numbers;
        self.words[QUEUE].store(queue.to_le(), Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use blockyard_block::MemoryMap;

    const SIZE: u16 = 8;

    fn record(memory: &MemoryMap) -> InFlightRecord {
        InFlightRecord::new(memory.keep_words(0, InFlightRecord::words(SIZE)).unwrap(), SIZE).unwrap()
    }

    fn memory() -> MemoryMap {
        MemoryMap::allocate(&[(0, 4096)]).unwrap()
    }

    fn recovered(heads: &[u16]) -> Recovered {
        Recovered { heads: heads.to_vec(), used_before: true }
    }

    #[test]
    fn a_new_region_has_nothing() {
        let memory = memory();
        let recovered = record(&memory).recover(77).unwrap();
        assert_eq!(recovered, Recovered { heads: Vec::new(), used_before: false });
        // features, version, desc_num, last_batch_head, used_idx.
        assert_eq!(memory.read::<16>(0), Some([0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 8, 0, 0, 0, 77, 0]));
        assert_eq!(InFlightRecord::region_bytes(8), 192);
    }

    #[test]
    fn requests_come_back_in_the_order_in_which_they_were_taken() {
        let memory = memory();
        let mut first = record(&memory);
        first.recover(0).unwrap();
        [5, 2, 7, 0].into_iter().for_each(|head| first.take(head));
        first.answer(2);
        first.publish(1);
        // inflight, next, counter of descriptor 5.
        assert_eq!(memory.read::<16>(16 + 5 * 16), Some([1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]));
        drop(first);
        let mut second = record(&memory);
        assert_eq!(second.recover(1).unwrap(), recovered(&[5, 7, 0]));
        second.take(2);
        assert_eq!(record(&memory).recover(1).unwrap(), recovered(&[5, 7, 0, 2]), "the counter goes on");
    }

    /// A server may die between any two of its writes.
    #[test]
    fn a_batch_is_done_once_its_used_index_is_published() {
        for publish in [false, true] {
            let memory = memory();
            let mut first = record(&memory);
            first.recover(10).unwrap();
            [1, 2, 3, 4].into_iter().for_each(|head| first.take(head));
            first.answer(4);
            first.publish(11);
            first.answer(1);
            first.answer(3);
            let (used_index, left) = if publish { (13, &[2][..]) } else { (11, &[1, 2, 3][..]) };
            assert_eq!(record(&memory).recover(used_index).unwrap(), recovered(left));
        }
    }

    #[test]
    fn a_region_that_lies_is_refused() {
        let start = |queue: u64, used_index: u16| {
            let memory = memory();
            memory.words::<AtomicU64>(8, 1).unwrap()[0].store(queue, Relaxed);
            record(&memory).recover(used_index)
        };
        assert!(start(VERSION | 9 << 16, 0).is_err());
        assert!(start(VERSION | 8 << 16 | 5 << 48, 0).is_err(), "used index in the future");
        assert!(start(VERSION | 8 << 16 | 8 << 32, 1).is_err(), "a batch's head outside");
        assert_eq!(start(VERSION | 8 << 16 | 7 << 32, 8).unwrap(), recovered(&[]), "a loop ends with the count");
    }
}
