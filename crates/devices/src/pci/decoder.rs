//! Which BAR answers at which address.

use std::ops::Range;

/// A BAR and the addresses that the guest wants it at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Placed {
    pub(super) device: usize,
    pub(super) bar: u8,
    pub(super) addresses: Range<u64>,
}

/// BARs that answer, in order of address: none of them meets another.
#[derive(Debug, Default)]
pub(super) struct Decoder(Vec<Placed>);

impl Decoder {
    /// Of `wanted`, those that lie within `window` and share no address with another one.
    pub(super) fn new(window: &Range<u64>, wanted: impl IntoIterator<Item = Placed>) -> Self {
        let is_within = |placed: &Placed| window.start <= placed.addresses.start && placed.addresses.end <= window.end;
        let mut all: Vec<_> = wanted.into_iter().filter(is_within).collect();
        all.sort_by_key(|placed| placed.addresses.start);
        let mut end_before = 0;
        let alone: Vec<_> = (0..all.len())
            .map(|index| {
                let Range { start, end } = all[index].addresses;
                let meets_before = start < end_before;
                let meets_next = all.get(index + 1).is_some_and(|next| next.addresses.start < end);
                end_before = end_before.max(end);
                !meets_before && !meets_next
            })
            .collect();
        let mut alone = alone.into_iter();
        all.retain(|_| alone.next() == Some(true));
        Self(all)
    }

    /// The device and BAR at `address`, and the offset in it, if `length` bytes from there are all its.
    pub(super) fn find(&self, address: u64, length: usize) -> Option<(usize, u8, u64)> {
        let after = self.0.partition_point(|placed| placed.addresses.start <= address);
        let Placed { device, bar, addresses } = &self.0[after.checked_sub(1)?];
        let end = address.checked_add(length as u64)?;
        (end <= addresses.end).then_some((*device, *bar, address - addresses.start))
    }

    /// Where a BAR answers, if it does.
    pub(super) fn place_of(&self, device: usize, bar: u8) -> Option<u64> {
        let found = self.0.iter().find(|placed| (placed.device, placed.bar) == (device, bar));
        found.map(|placed| placed.addresses.start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Range<u64> = 0x1000..0x9000;

    fn answering(wanted: &[Range<u64>]) -> Vec<usize> {
        let placed = wanted.iter().cloned().enumerate();
        let placed = placed.map(|(device, addresses)| Placed { device, bar: 0, addresses });
        let decoder = Decoder::new(&WINDOW, placed);
        (0..wanted.len()).filter(|&device| decoder.place_of(device, 0).is_some()).collect()
    }

    #[test]
    fn only_within_the_window() {
        assert_eq!(answering(&[0xff0..0x1010, 0x1000..0x2000, 0x8ff0..0x9010, 0x9000..0x9010, 0..0x10]), [1]);
    }

    #[test]
    fn none_that_meets_another() {
        assert_eq!(answering(&[0x1000..0x2000, 0x2000..0x3000]), [0, 1]);
        assert_eq!(answering(&[0x1000..0x2000, 0x1ff0..0x3000, 0x3000..0x4000]), [2]);
        assert_eq!(answering(&[0x4000..0x5000, 0x4000..0x5000]), [0; 0]);
        // One in the middle of a large one does not hide that the next meets it too.
        assert_eq!(answering(&[0x1000..0x5000, 0x2000..0x2010, 0x4000..0x4010, 0x5000..0x5010]), [3]);
    }

    #[test]
    fn accesses_are_found_as_a_whole() {
        let decoder = Decoder::new(
            &WINDOW,
            [
                Placed { device: 3, bar: 1, addresses: 0x2000..0x2010 },
                Placed { device: 4, bar: 0, addresses: 0x2010..0x2020 },
            ],
        );
        assert_eq!(decoder.find(0x2008, 8), Some((3, 1, 8)));
        assert_eq!(decoder.find(0x2010, 1), Some((4, 0, 0)));
        for (address, length) in [(0x200c, 8), (0x2020, 1), (0x1fff, 1), (u64::MAX, 1), (0, 1)] {
            assert_eq!(decoder.find(address, length), None);
        }
    }
}
