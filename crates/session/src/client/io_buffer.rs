//! Room in a queue's I/O buffer.

/// What a range is a multiple of, its start too: a page, so that servers that read with O_DIRECT need not copy once
/// more.
pub(super) const GRANULE_BYTES: u64 = 4096;

/// A range of the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BufferRange {
    pub(super) offset_bytes: u64,
    pub(super) length_bytes: u64,
}

/// Which parts of an I/O buffer are free. Ranges are whole, and given back in any order.
#[derive(Debug)]
pub(super) struct IoBuffer {
    /// In order, none touching the next. Never more than there are ranges taken, and one, so the room for them is there
    /// from the beginning.
    free: Vec<BufferRange>,
}

impl IoBuffer {
    /// An empty buffer of `bytes`, a multiple of [`GRANULE_BYTES`], of which at most `ranges_max` parts are taken at
    /// once.
    pub(super) fn new(bytes: u64, ranges_max: usize) -> Self {
        let mut free = Vec::with_capacity(ranges_max + 1);
        free.push(BufferRange { offset_bytes: 0, length_bytes: bytes });
        Self { free }
    }

    /// Takes the first range that has room for `bytes`.
    pub(super) fn take(&mut self, bytes: u64) -> Option<BufferRange> {
        let length_bytes = bytes.next_multiple_of(GRANULE_BYTES);
        let index = self.free.iter().position(|range| range.length_bytes >= length_bytes)?;
        let range = &mut self.free[index];
        let taken = BufferRange { offset_bytes: range.offset_bytes, length_bytes };
        range.offset_bytes += length_bytes;
        range.length_bytes -= length_bytes;
        if range.length_bytes == 0 {
            self.free.remove(index);
        }
        Some(taken)
    }

    /// Gives a range back.
    pub(super) fn give(&mut self, range: BufferRange) {
        let index = self.free.partition_point(|free| free.offset_bytes < range.offset_bytes);
        let end = range.offset_bytes + range.length_bytes;
        let joins_next = self.free.get(index).is_some_and(|next| next.offset_bytes == end);
        let before = index.checked_sub(1).and_then(|before| self.free.get_mut(before));
        match before.filter(|before| before.offset_bytes + before.length_bytes == range.offset_bytes) {
            Some(before) => {
                before.length_bytes += range.length_bytes;
                if joins_next {
                    let next = self.free.remove(index);
                    self.free[index - 1].length_bytes += next.length_bytes;
                }
            }
            None if joins_next => {
                self.free[index].offset_bytes = range.offset_bytes;
                self.free[index].length_bytes += range.length_bytes;
            }
            None => self.free.insert(index, range),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_back_in_any_order_is_whole_again() {
        let mut buffer = IoBuffer::new(8 * GRANULE_BYTES, 8);
        let taken: Vec<_> = (0..8).map(|_| buffer.take(1).unwrap()).collect();
        assert!(buffer.take(1).is_none());
        for index in [3, 5, 4, 0, 7, 1, 2, 6] {
            buffer.give(taken[index]);
        }
        assert_eq!(buffer.take(8 * GRANULE_BYTES).unwrap().offset_bytes, 0);
    }

    #[test]
    fn fuzz_ranges_never_overlap_and_nothing_is_lost() {
        blockyard_fuzz::check!(50_000).with_type::<Vec<(bool, u8)>>().for_each(|steps| {
            let mut buffer = IoBuffer::new(64 * GRANULE_BYTES, 64);
            let room = buffer.free.capacity();
            let mut taken: Vec<BufferRange> = Vec::new();
            for &(take, detail) in steps {
                if take {
                    let bytes = (u64::from(detail) + 1) * 100;
                    if let Some(range) = buffer.take(bytes) {
                        assert!(range.length_bytes >= bytes && range.length_bytes < bytes + GRANULE_BYTES);
                        taken.push(range);
                    }
                } else if !taken.is_empty() {
                    buffer.give(taken.swap_remove(usize::from(detail) % taken.len()));
                }
                let mut all = [&taken[..], &buffer.free[..]].concat();
                all.sort_by_key(|range| range.offset_bytes);
                let end = all.iter().fold(0, |end, range| {
                    assert_eq!(range.offset_bytes, end);
                    end + range.length_bytes
                });
                assert_eq!(end, 64 * GRANULE_BYTES);
                assert_eq!(buffer.free.capacity(), room, "no allocation");
            }
        });
    }
}
