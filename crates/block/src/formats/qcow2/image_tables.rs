//! Where one image of a chain says that its clusters lie: its L1 and L2 tables, read from its file in slices. QEMU's
//! docs/interop/qcow2.txt, "Cluster mapping".

use super::entries::{COMPRESSED, COPIED, OFFSET_MASK, ZERO};
use super::header::{Header, Table};
use super::image_file::ImageFile;
use std::io;
use std::sync::Arc;

/// Most entries of a slice: a page of a table.
pub(super) const SLICE_ENTRIES_MAX: usize = 512;

/// The tables of an image of a chain. Their numbers come from a checked header.
pub(super) struct ImageTables {
    file: Arc<ImageFile>,
    /// Which of the image's disks has the data.
    pub(super) data_index: usize,
    pub(super) size_bytes: u64,
    cluster_bits: u32,
    l1: Table,
    /// The L1 table is too short for the disk, so whoever writes to it may move it.
    l1_may_move: bool,
    has_data_file: bool,
}

/// What an image itself says of a run of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Own {
    /// They lie in its data, from an offset; `in_place`: nobody else uses these clusters.
    Data {
        offset_bytes: u64,
        in_place: bool,
    },
    Zeros,
    /// Ask what is behind it.
    Nothing,
    /// Compressed, or nothing that makes sense.
    Special,
}

/// What a write of a run of bytes does to what is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Overwrites {
    /// More than zeros is copied or hidden, or lies in the clusters that are to be used.
    pub(super) something: bool,
    /// Clusters are freed.
    pub(super) frees: bool,
}

/// Whether to wait for a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Patience {
    /// What is not in memory is asked for, and the error is [`io::ErrorKind::WouldBlock`].
    None,
    Endless,
}

impl ImageTables {
    pub(super) fn new(file: Arc<ImageFile>, data_index: usize, header: &Header) -> Self {
        let Header { size_bytes, cluster_bits, l1, .. } = *header;
        let table_covers_bits = cluster_bits + cluster_bits - 3;
        let l1_may_move = l1.length_bytes / 8 < size_bytes.div_ceil(1 << table_covers_bits);
        let has_data_file = header.data_file.is_some();
        Self { file, data_index, size_bytes, cluster_bits, l1, l1_may_move, has_data_file }
    }

    /// The same image when its disk was made larger, for which its L1 table may have moved.
    pub(super) fn grow(&mut self, size_bytes: u64) {
        (self.size_bytes, self.l1_may_move) = (size_bytes, true);
    }

    /// Entries of a slice.
    pub(super) fn slice_entries(&self) -> usize {
        1 << self.slice_bits()
    }

    /// Slices that the whole disk needs.
    pub(super) fn slices(&self) -> u64 {
        self.size_bytes.div_ceil(self.slice_covers_bytes())
    }

    /// The slice that the byte at `offset` is looked up in.
    pub(super) fn slice_of(&self, offset: u64) -> u64 {
        offset / self.slice_covers_bytes()
    }

    /// How many of `length` bytes from `offset` are looked up in the same slice.
    pub(super) fn cut_to_slice(&self, offset: u64, length: u64) -> u64 {
        let covers_bytes = self.slice_covers_bytes();
        length.min(covers_bytes - offset % covers_bytes)
    }

    /// The same, for the same L2 table.
    fn cut_to_table(&self, offset: u64, length: u64) -> u64 {
        let covers_bytes = 1_u64 << (self.cluster_bits + self.cluster_bits - 3);
        length.min(covers_bytes - offset % covers_bytes)
    }

    fn slice_bits(&self) -> u32 {
        (self.cluster_bits - 3).min(SLICE_ENTRIES_MAX.ilog2())
    }

    fn slice_covers_bytes(&self) -> u64 {
        1 << (self.cluster_bits + self.slice_bits())
    }

    /// Reads a slice from the file; `None` when there is no table for it.
    pub(super) fn load<'b>(
        &self,
        slice: u64,
        patience: Patience,
        buffer: &'b mut SliceBuffer,
    ) -> io::Result<Option<&'b [u64]>> {
        let first = slice << self.slice_bits();
        let table_bits = self.cluster_bits - 3;
        let Some(table) = self.table(first >> table_bits, patience)? else { return Ok(None) };
        let bytes = &mut buffer.bytes[..self.slice_entries() * 8];
        let within = first & ((1 << table_bits) - 1);
        self.read(bytes, table + within * 8, patience)?;
        let (entries, _) = bytes.as_chunks();
        for (word, &entry) in buffer.entries.iter_mut().zip(entries) {
            *word = u64::from_be_bytes(entry);
        }
        Ok(Some(&buffer.entries[..self.slice_entries()]))
    }

    /// How many of `length` bytes from `offset`, for which there is no table, have none: an L1 table may be shorter
    /// than its disk.
    pub(super) fn cut_without_table(&self, offset: u64, length: u64, patience: Patience) -> io::Result<u64> {
        let table_covers_bits = self.cluster_bits + self.cluster_bits - 3;
        let is_behind = offset >> table_covers_bits >= self.l1(patience)?.length_bytes / 8;
        Ok(if is_behind { length } else { self.cut_to_table(offset, length) })
    }

    /// Where an L2 table lies.
    fn table(&self, index: u64, patience: Patience) -> io::Result<Option<u64>> {
        let l1 = self.l1(patience)?;
        if index >= l1.length_bytes / 8 {
            return Ok(None);
        }
        let mut entry = [0; 8];
        self.read(&mut entry, l1.offset_bytes.saturating_add(index * 8), patience)?;
        let offset = u64::from_be_bytes(entry) & OFFSET_MASK;
        if !offset.is_multiple_of(1 << self.cluster_bits) {
            let message = format!("the L2 table at {offset} does not begin with a cluster");
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
        Ok((offset != 0).then_some(offset))
    }

    fn l1(&self, patience: Patience) -> io::Result<Table> {
        if !self.l1_may_move {
            return Ok(self.l1);
        }
        let mut fields = [0; 12];
        self.read(&mut fields, 36, patience)?;
        let [length, high, low] = [0, 4, 8].map(|at| fields[at..at + 4].iter().fold(0, |n, &b| n << 8 | u64::from(b)));
        Ok(Table { offset_bytes: high << 32 | low, length_bytes: length * 8 })
    }

    fn read(&self, bytes: &mut [u8], offset: u64, patience: Patience) -> io::Result<()> {
        match patience {
            Patience::None => self.file.read_now(bytes, offset),
            Patience::Endless => self.file.read(bytes, offset),
        }
    }

    /// What a slice says of the first bytes of `length` from `offset`, and of how many; all of them lie on the disk
    /// and, as far as they are looked up here, in the slice. Its entries are asked for by their index.
    pub(super) fn own(&self, offset: u64, length: u64, entry: impl Fn(usize) -> u64) -> (Own, u64) {
        let (cluster_bytes, cluster_mask) = (1_u64 << self.cluster_bits, (1_u64 << self.cluster_bits) - 1);
        let entries = self.slice_entries();
        let mut index = (offset >> self.cluster_bits) as usize & (entries - 1);
        let mut last = self.meaning(entry(index));
        let own = match last {
            Own::Data { offset_bytes, in_place } => {
                Own::Data { offset_bytes: offset_bytes + (offset & cluster_mask), in_place }
            }
            other => other,
        };
        let mut found_bytes = cluster_bytes - (offset & cluster_mask);
        while found_bytes < length && index + 1 < entries {
            index += 1;
            let next = self.meaning(entry(index));
            let continues = match (last, next) {
                (Own::Data { offset_bytes, in_place }, Own::Data { .. }) => {
                    next == Own::Data { offset_bytes: offset_bytes + cluster_bytes, in_place }
                }
                _ => last == next,
            };
            if !continues {
                break;
            }
            last = next;
            found_bytes += cluster_bytes;
        }
        (own, found_bytes.min(length))
    }

    /// What a write of a cluster with this entry does; `nothing_is_zeros`: there is no image behind this one.
    pub(super) fn overwrites(&self, entry: u64, nothing_is_zeros: bool) -> Overwrites {
        let something = match self.meaning(entry) {
            Own::Data { in_place, .. } => !in_place,
            Own::Zeros => entry & OFFSET_MASK != 0,
            Own::Nothing => !nothing_is_zeros,
            Own::Special => true,
        };
        // Zeros that have a place may get another one, next to what is written with them.
        let has_idle_place = entry & ZERO != 0 && entry & OFFSET_MASK != 0;
        Overwrites { something, frees: entry & COMPRESSED != 0 || has_idle_place }
    }

    /// The entry of the cluster at `offset` in its slice, and the offset of the next cluster.
    pub(super) fn index_and_next(&self, offset: u64) -> (usize, u64) {
        let cluster = offset >> self.cluster_bits;
        (cluster as usize & (self.slice_entries() - 1), (cluster + 1) << self.cluster_bits)
    }

    fn meaning(&self, entry: u64) -> Own {
        let offset_bytes = entry & OFFSET_MASK;
        let in_place = entry & COPIED != 0;
        if entry & COMPRESSED != 0 {
            Own::Special
        } else if entry & ZERO != 0 {
            Own::Zeros
        } else if offset_bytes == 0 && !(self.has_data_file && in_place) {
            Own::Nothing
        } else if offset_bytes.is_multiple_of(1 << self.cluster_bits) {
            Own::Data { offset_bytes, in_place }
        } else {
            Own::Special
        }
    }
}

/// Room to read a slice into.
pub(super) struct SliceBuffer {
    bytes: [u8; SLICE_ENTRIES_MAX * 8],
    entries: [u64; SLICE_ENTRIES_MAX],
}

impl SliceBuffer {
    pub(super) fn new() -> Self {
        Self { bytes: [0; SLICE_ENTRIES_MAX * 8], entries: [0; SLICE_ENTRIES_MAX] }
    }
}
