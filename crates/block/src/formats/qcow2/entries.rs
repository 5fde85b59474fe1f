//! What an entry of a table is: QEMU's docs/interop/qcow2.txt, "Cluster mapping" and "Extended L2 Entries".

use super::header::{Header, Table};
use crate::formats::WritableFile;
use crate::formats::writable_file::Units;
use std::io;

/// Where an entry of an L1 or an L2 table leads.
pub(super) const OFFSET_MASK: u64 = 0x00ff_ffff_ffff_fe00;
/// What it leads to is its alone, and may be written in place.
pub(super) const COPIED: u64 = 1 << 63;
/// Of an L2 table: the cluster is compressed.
pub(super) const COMPRESSED: u64 = 1 << 62;
/// The same: the cluster reads as zeros, wherever it lies. Not in tables whose clusters have parts.
pub(super) const ZERO: u64 = 1;

/// Bits that must be zero, of an entry of an L1 table, of an L2 table. In a refcount table they make the offset one
/// that no cluster has.
pub(super) const L1_RESERVED: u64 = 0x7f00_0000_0000_01ff;
pub(super) const L2_RESERVED: u64 = 0x3f00_0000_0000_01fe;

/// The unit in which a compressed cluster's length is told.
const COMPRESSED_UNIT_BYTES: u64 = 512;

/// Parts of a cluster where L2 entries are extended.
const PARTS: u32 = 32;

/// The entries of a table, or of a part of one.
pub(super) fn entries_of(bytes: &[u8]) -> impl Iterator<Item = u64> + '_ {
    bytes.as_chunks().0.iter().map(|&entry| u64::from_be_bytes(entry))
}

/// How an image's clusters are told: what its entries mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) cluster_bits: u32,
    /// Clusters have [`PARTS`] parts, and L2 entries are of two words.
    pub(super) is_extended: bool,
    /// The data lie in a file of their own.
    pub(super) has_data_file: bool,
    /// An entry can say that its cluster reads as zeros: of version 2, none can.
    pub(super) has_zeros: bool,
}

/// What an L2 entry says of its cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    Plain(Mapping),
    Compressed(Compressed),
    /// What makes no sense.
    Invalid,
}

/// Of a cluster that is not compressed: what its parts are. Without extended entries it has one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Mapping {
    /// Where it lies; what is neither data nor zeros there shows what is behind the image.
    pub(super) place: Option<Place>,
    /// Parts that are data there: bit n is part n.
    pub(super) data: u32,
    /// Parts that read as zeros.
    pub(super) zeros: u32,
}

/// A cluster of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) offset_bytes: u64,
    /// Nobody else uses it: it may be written in place.
    pub(super) is_own: bool,
}

/// Where the bytes of a compressed cluster lie. They end at or before the end of this range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Compressed {
    pub(super) offset_bytes: u64,
    pub(super) length_bytes: u64,
}

impl Mapping {
    /// Nothing is there.
    pub(super) const NOTHING: Self = Self { place: None, data: 0, zeros: 0 };
}

impl Layout {
    pub(super) fn of(header: &Header) -> Self {
        Self {
            cluster_bits: header.cluster_bits,
            is_extended: header.has_extended_l2(),
            has_data_file: header.data_file.is_some(),
            has_zeros: header.version >= 3,
        }
    }

    pub(super) fn cluster_bytes(self) -> u64 {
        1 << self.cluster_bits
    }

    /// The clusters that data lie in, for messages of where.
    pub(super) fn data_clusters(self, may_be_missing: bool) -> Units {
        let what = if self.has_data_file { "the cluster of its data file" } else { "the cluster" };
        Units { bytes: self.cluster_bytes(), what, may_be_missing }
    }

    /// Words of an L2 entry.
    pub(super) fn entry_words(self) -> usize {
        1 << self.is_extended as u32
    }

    /// Bytes of an L2 entry.
    pub(super) fn entry_bytes(self) -> u64 {
        8 << self.is_extended as u32
    }

    /// The binary logarithm of how many entries an L2 table has.
    pub(super) fn table_bits(self) -> u32 {
        self.cluster_bits - 3 - u32::from(self.is_extended)
    }

    /// The same of the bytes of the disk that an L2 table is for.
    pub(super) fn table_covers_bits(self) -> u32 {
        self.cluster_bits + self.table_bits()
    }

    /// The same of the bytes of a part of a cluster: what is allocated, zeroed and shows through as a whole.
    pub(super) fn part_bits(self) -> u32 {
        if self.is_extended { self.cluster_bits - PARTS.ilog2() } else { self.cluster_bits }
    }

    /// All parts of a cluster.
    pub(super) fn all_parts(self) -> u32 {
        if self.is_extended { u32::MAX } else { 1 }
    }

    /// The parts that a range within a cluster touches.
    pub(super) fn parts_touched(self, start: u64, end: u64) -> u32 {
        let bits = self.part_bits();
        below(end.div_ceil(1 << bits)) & !below(start >> bits)
    }

    /// The parts that a range within a cluster has all of.
    pub(super) fn parts_within(self, start: u64, end: u64) -> u32 {
        let bits = self.part_bits();
        below(end >> bits) & !below(start.div_ceil(1 << bits))
    }

    /// What an entry says; the second word is of extended ones.
    pub(super) fn entry(self, word: u64, parts: u64) -> Entry {
        if word & COMPRESSED != 0 {
            let is_possible = !self.has_data_file && parts == 0;
            return if is_possible { Entry::Compressed(self.compressed(word)) } else { Entry::Invalid };
        }
        let (offset_bytes, is_own) = (word & OFFSET_MASK, word & COPIED != 0);
        // In a file of their own, data may lie at its beginning.
        let lies_somewhere = offset_bytes != 0 || (self.has_data_file && is_own);
        let place = lies_somewhere.then_some(Place { offset_bytes, is_own });
        let (data, zeros) = match (self.is_extended, word & ZERO != 0) {
            (true, false) => (parts as u32, (parts >> PARTS) as u32),
            (true, true) => return Entry::Invalid,
            (false, true) if !self.has_zeros => return Entry::Invalid,
            (false, true) => (0, 1),
            (false, false) => (u32::from(lies_somewhere), 0),
        };
        let is_possible = offset_bytes.is_multiple_of(self.cluster_bytes());
        if !is_possible || data & zeros != 0 || (data != 0 && place.is_none()) {
            return Entry::Invalid;
        }
        Entry::Plain(Mapping { place, data, zeros })
    }

    /// The same of the entry of a cluster of the disk: in a data file, that lies where it does on the disk. Another
    /// place would be another cluster's.
    pub(super) fn entry_of(self, cluster: u64, word: u64, parts: u64) -> Entry {
        match self.entry(word, parts) {
            Entry::Plain(Mapping { place: Some(place), .. })
                if self.has_data_file && place.offset_bytes >> self.cluster_bits != cluster =>
            {
                Entry::Invalid
            }
            entry => entry,
        }
    }

    /// The words of an entry.
    pub(super) fn words(self, mapping: Mapping) -> [u64; 2] {
        let place = mapping.place.map_or(0, |place| place.offset_bytes | if place.is_own { COPIED } else { 0 });
        match self.is_extended {
            true => [place, u64::from(mapping.zeros) << PARTS | u64::from(mapping.data)],
            false => [place | if mapping.zeros != 0 { ZERO } else { 0 }, 0],
        }
    }

    /// "Compressed Clusters Descriptor".
    pub(super) fn compressed(self, word: u64) -> Compressed {
        let offset_bits = 62 - (self.cluster_bits - 8);
        let offset_bytes = word & ((1 << offset_bits) - 1) & ((1 << 56) - 1);
        let more_units = (word & !(COPIED | COMPRESSED)) >> offset_bits;
        let length_bytes = (more_units + 1) * COMPRESSED_UNIT_BYTES - offset_bytes % COMPRESSED_UNIT_BYTES;
        Compressed { offset_bytes, length_bytes }
    }

    /// The word of a compressed cluster whose data lie at `start..end` of the file.
    pub(super) fn compressed_word(self, start: u64, end: u64) -> u64 {
        let offset_bits = 62 - (self.cluster_bits - 8);
        let more_units = (end - 1) / COMPRESSED_UNIT_BYTES - start / COMPRESSED_UNIT_BYTES;
        COMPRESSED | more_units << offset_bits | start
    }
}

/// The first so many parts.
fn below(count: u64) -> u32 {
    if count >= u64::from(PARTS) { u32::MAX } else { (1 << count) - 1 }
}

impl WritableFile {
    /// The entries of a table, whose size is bounded by whoever knows of it.
    pub(super) fn entries(&self, table: Table) -> io::Result<Vec<u64>> {
        let mut bytes = vec![0; table.length_bytes as usize];
        self.read(&mut bytes, table.offset_bytes)?;
        Ok(entries_of(&bytes).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STANDARD: Layout = Layout { cluster_bits: 16, is_extended: false, has_data_file: false, has_zeros: true };
    const EXTENDED: Layout = Layout { is_extended: true, ..STANDARD };

    #[test]
    fn an_entry_is_written_as_it_was_read() {
        for word in [0, 1, 1 << 16, COPIED | 5 << 16, COPIED | 5 << 16 | ZERO] {
            let Entry::Plain(mapping) = STANDARD.entry(word, 0) else { panic!("{word:#x}") };
            assert_eq!(STANDARD.words(mapping), [word, 0]);
        }
        for (word, parts) in [(0, 0), (0, 7 << 32), (COPIED | 3 << 16, 0x0000_00f0_ffff_ff0f), (3 << 16, 0)] {
            let Entry::Plain(mapping) = EXTENDED.entry(word, parts) else { panic!("{word:#x}") };
            assert_eq!(EXTENDED.words(mapping), [word, parts]);
        }
    }

    #[test]
    fn what_contradicts_itself_is_nothing() {
        for (layout, word, parts) in [
            (STANDARD, 512, 0),
            (EXTENDED, 1 << 16 | ZERO, 0),
            (EXTENDED, 1 << 16, 1 << 32 | 1),
            (EXTENDED, 0, 1),
            (EXTENDED, COMPRESSED | 1 << 16, 1),
            (Layout { has_data_file: true, ..STANDARD }, COMPRESSED | 1 << 16, 0),
            (Layout { has_zeros: false, ..STANDARD }, ZERO, 0),
        ] {
            assert_eq!(layout.entry(word, parts), Entry::Invalid, "{word:#x} {parts:#x}");
        }
        let at_the_beginning = Layout { has_data_file: true, ..STANDARD }.entry(COPIED, 0);
        let place = Some(Place { offset_bytes: 0, is_own: true });
        assert_eq!(at_the_beginning, Entry::Plain(Mapping { place, data: 1, zeros: 0 }));
        for layout in [STANDARD, EXTENDED] {
            let external = Layout { has_data_file: true, ..layout };
            for (word, parts) in [(3 << 16 | COPIED, 1), (3 << 16, 1 << 32), (3 << 16 | COPIED, 0)] {
                assert_eq!(external.entry_of(3, word, parts), external.entry(word, parts));
                assert_eq!(external.entry_of(4, word, parts), Entry::Invalid, "{word:#x} {parts:#x}");
                assert_eq!(layout.entry_of(4, word, parts), layout.entry(word, parts));
            }
        }
    }

    #[test]
    fn parts_of_a_range() {
        // Parts of 2 KiB.
        assert_eq!(EXTENDED.parts_touched(2047, 2049), 0b11);
        assert_eq!(EXTENDED.parts_within(2047, 2049), 0);
        assert_eq!(EXTENDED.parts_within(2048, 6144), 0b110);
        assert_eq!(EXTENDED.parts_touched(0, 1 << 16), u32::MAX);
        assert_eq!(STANDARD.parts_touched(5, 6), 1);
        assert_eq!(STANDARD.parts_within(1, 1 << 16), 0);
        assert_eq!(STANDARD.parts_within(0, 1 << 16), 1);
    }

    #[test]
    fn a_compressed_cluster_is_found_where_it_was_put() {
        for (start, end) in [(65536, 65537), (70000, 70512), (1023, 66000)] {
            let found = STANDARD.compressed(STANDARD.compressed_word(start, end));
            assert_eq!(found.offset_bytes, start);
            assert!(found.offset_bytes + found.length_bytes >= end && found.length_bytes < end - start + 512);
        }
    }
}
