//! Where one image of a chain says that its clusters lie: its L1 and L2 tables, read from its file in slices. QEMU's
//! docs/interop/qcow2.txt, "Cluster mapping".

use super::check;
use super::entries::{Compressed, Entry, Layout, OFFSET_MASK};
use super::header::{Header, Table};
use super::known_tables::{KNOWN_MAX, KnownTables};
use crate::formats::WritableFile;
use crate::formats::writable_file::Units;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

/// Most words of a slice: a page of a table.
pub(super) const SLICE_WORDS_MAX: usize = 512;

/// The tables of an image of a chain. Their numbers come from a checked header.
pub(super) struct ImageTables {
    file: Arc<WritableFile>,
    /// Which of the image's disks has the data.
    pub(super) data_index: usize,
    pub(super) size_bytes: u64,
    pub(super) layout: Layout,
    /// Whether compressed clusters are by zstd; else by zlib.
    pub(super) is_zstd: bool,
    l1: Table,
    /// Whoever writes to the image may move its L1 table.
    l1_may_move: bool,
    /// Of an image that is only read: which L2 tables were read, and which part of the disk each is for. So there are
    /// no more of them to read than the file has, whatever its L1 table says. Who writes to an image has all of them
    /// checked.
    known_tables: Option<Mutex<KnownTables>>,
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
    /// A part of a compressed cluster, which begins so far before.
    Compressed {
        compressed: Compressed,
        skip_bytes: u64,
    },
    /// Nothing that makes sense.
    Invalid,
}

/// Whether to wait for a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Patience {
    /// What is not in memory is asked for, and the error is [`io::ErrorKind::WouldBlock`].
    None,
    Endless,
}

impl ImageTables {
    pub(super) fn new(file: Arc<WritableFile>, data_index: usize, header: &Header, read_only: bool) -> Self {
        let Header { size_bytes, l1, .. } = *header;
        let layout = Layout::of(header);
        let l1_may_move = !read_only && l1.length_bytes / 8 < size_bytes.div_ceil(1 << layout.table_covers_bits());
        let known_tables = read_only.then(|| Mutex::new(KnownTables::new(l1.length_bytes / 8)));
        Self { file, data_index, size_bytes, layout, is_zstd: header.is_zstd(), l1, l1_may_move, known_tables }
    }

    /// The same image when its disk was made larger, for which its L1 table may have moved.
    pub(super) fn grow(&mut self, size_bytes: u64) {
        (self.size_bytes, self.l1_may_move) = (size_bytes, true);
    }

    /// Sees to it that the images of a chain together keep no more tables in mind than one may have.
    pub(super) fn share_known_tables(chain: &mut [Self]) {
        let all = chain.iter().map(|image| image.l1.length_bytes / 8).fold(0, u64::saturating_add);
        for image in chain.iter_mut().filter(|_| all > KNOWN_MAX) {
            // Neither has more than 32 bits.
            let share = image.l1.length_bytes / 8 * KNOWN_MAX / all;
            let known = image.known_tables.as_mut().and_then(|known| known.get_mut().ok());
            known.into_iter().for_each(|known| known.keep_at_most(share));
        }
    }

    pub(super) fn file(&self) -> &WritableFile {
        &self.file
    }

    /// Words of a slice.
    pub(super) fn slice_words(&self) -> usize {
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
        let covers_bytes = 1_u64 << self.layout.table_covers_bits();
        length.min(covers_bytes - offset % covers_bytes)
    }

    /// The binary logarithm of the words of a slice.
    fn slice_bits(&self) -> u32 {
        (self.layout.cluster_bits - 3).min(SLICE_WORDS_MAX.ilog2())
    }

    /// The same of the clusters that it tells of.
    fn slice_clusters_bits(&self) -> u32 {
        self.slice_bits() - u32::from(self.layout.is_extended)
    }

    fn slice_covers_bytes(&self) -> u64 {
        1 << (self.layout.cluster_bits + self.slice_clusters_bits())
    }

    /// Reads a slice from the file; `None` when there is no table for it.
    pub(super) fn load<'b>(
        &self,
        slice: u64,
        patience: Patience,
        buffer: &'b mut SliceBuffer,
    ) -> io::Result<Option<&'b [u64]>> {
        let first = slice << self.slice_clusters_bits();
        let table_bits = self.layout.table_bits();
        let Some(table) = self.table(first >> table_bits, patience)? else { return Ok(None) };
        let bytes = &mut buffer.bytes[..self.slice_words() * 8];
        let within = first & ((1 << table_bits) - 1);
        self.read(bytes, table + within * self.layout.entry_bytes(), "the L2 table", patience)?;
        let (entries, _) = bytes.as_chunks();
        for (word, &entry) in buffer.words.iter_mut().zip(entries) {
            *word = u64::from_be_bytes(entry);
        }
        Ok(Some(&buffer.words[..self.slice_words()]))
    }

    /// How many of `length` bytes from `offset`, for which there is no table, have none: an L1 table may be shorter
    /// than its disk.
    pub(super) fn cut_without_table(&self, offset: u64, length: u64, patience: Patience) -> io::Result<u64> {
        let is_behind = offset >> self.layout.table_covers_bits() >= self.l1(patience)?.length_bytes / 8;
        Ok(if is_behind { length } else { self.cut_to_table(offset, length) })
    }

    /// Where an L2 table lies.
    fn table(&self, index: u64, patience: Patience) -> io::Result<Option<u64>> {
        let l1 = self.l1(patience)?;
        if index >= l1.length_bytes / 8 {
            return Ok(None);
        }
        let offset = self.l1_entry(l1, index, patience)?;
        if !offset.is_multiple_of(self.layout.cluster_bytes()) {
            let message = format!("the L2 table at {offset} does not begin with a cluster");
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
        if offset == 0 {
            return Ok(None);
        }
        if let Some(known) = &self.known_tables {
            let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
            if !known.is_for(index, offset, |other| self.l1_entry(l1, other, patience))? {
                let message = format!("the L2 table at {offset} stands for two parts of the disk; {}", check::repair());
                return Err(io::Error::new(io::ErrorKind::InvalidData, message));
            }
        }
        Ok(Some(offset))
    }

    /// Where an L1 entry leads.
    fn l1_entry(&self, l1: Table, index: u64, patience: Patience) -> io::Result<u64> {
        let mut entry = [0; 8];
        self.read(&mut entry, l1.offset_bytes.saturating_add(index * 8), "the part of the L1 table", patience)?;
        Ok(u64::from_be_bytes(entry) & OFFSET_MASK)
    }

    fn l1(&self, patience: Patience) -> io::Result<Table> {
        if !self.l1_may_move {
            return Ok(self.l1);
        }
        let mut fields = [0; 12];
        self.read(&mut fields, 36, "the header", patience)?;
        let [length, high, low] = [0, 4, 8].map(|at| fields[at..at + 4].iter().fold(0, |n, &b| n << 8 | u64::from(b)));
        Ok(Table { offset_bytes: high << 32 | low, length_bytes: length * 8 })
    }

    /// Whether something of it may begin behind its file's end, as QEMU's writes leave it at a power cut. Who writes to
    /// an image has to go on with that; who only reads it hears of it.
    fn may_be_missing(&self) -> bool {
        self.known_tables.is_none()
    }

    /// The clusters that its data lie in.
    pub(super) fn data_clusters(&self) -> Units {
        self.layout.data_clusters(self.may_be_missing())
    }

    /// Reads of a table, called `what`, whose last cluster may be cut off by the file's end.
    fn read(&self, bytes: &mut [u8], offset: u64, what: &'static str, patience: Patience) -> io::Result<()> {
        let units = Units { bytes: self.layout.cluster_bytes(), what, may_be_missing: self.may_be_missing() };
        match patience {
            Patience::None => self.file.read_units_now(bytes, offset, units),
            Patience::Endless => self.file.read_units(bytes, offset, units),
        }
    }

    /// What a slice says of the first bytes of `length` from `offset`, and of how many; all of them lie on the disk
    /// and, as far as they are looked up here, in the slice. Its words are asked for by their index.
    pub(super) fn own(&self, offset: u64, length: u64, word: impl Fn(usize) -> u64) -> (Own, u64) {
        let clusters = 1_usize << self.slice_clusters_bits();
        let cluster_bits = self.layout.cluster_bits;
        let mut index = (offset >> cluster_bits) as usize & (clusters - 1);
        let first = (offset >> cluster_bits) - index as u64;
        let entry = |index: usize| match self.layout.is_extended {
            true => self.layout.entry_of(first + index as u64, word(index * 2), word(index * 2 + 1)),
            false => self.layout.entry_of(first + index as u64, word(index), 0),
        };
        let within = offset & ((1 << cluster_bits) - 1);
        let (own, mut found_bytes) = self.own_in_cluster(entry(index), within);
        // A run goes on where a cluster ends.
        let mut reaches_end = within + found_bytes == 1 << cluster_bits;
        while reaches_end && found_bytes < length && index + 1 < clusters {
            index += 1;
            let (next, next_bytes) = self.own_in_cluster(entry(index), 0);
            if !own.goes_on_with(next, found_bytes) {
                break;
            }
            found_bytes += next_bytes;
            reaches_end = next_bytes == 1 << cluster_bits;
        }
        (own, found_bytes.min(length))
    }

    /// What an entry says of the bytes from `within` its cluster, and of how many.
    fn own_in_cluster(&self, entry: Entry, within: u64) -> (Own, u64) {
        let to_the_end = self.layout.cluster_bytes() - within;
        let mapping = match entry {
            Entry::Compressed(compressed) => return (Own::Compressed { compressed, skip_bytes: within }, to_the_end),
            Entry::Invalid => return (Own::Invalid, to_the_end),
            Entry::Plain(mapping) => mapping,
        };
        let part_bits = self.layout.part_bits();
        let part = (within >> part_bits) as u32;
        let (data, zeros) = (mapping.data >> part, mapping.zeros >> part);
        let (own, parts) = match mapping.place {
            Some(place) if data & 1 != 0 => {
                let own = Own::Data { offset_bytes: place.offset_bytes + within, in_place: place.is_own };
                (own, data.trailing_ones())
            }
            _ if zeros & 1 != 0 => (Own::Zeros, zeros.trailing_ones()),
            _ => (Own::Nothing, (data | zeros).trailing_zeros()),
        };
        (own, ((u64::from(part + parts) << part_bits).min(self.layout.cluster_bytes())) - within)
    }
}

impl Own {
    /// Whether `next` is more of the same, `length` bytes farther.
    fn goes_on_with(self, next: Self, length: u64) -> bool {
        match self {
            Self::Data { offset_bytes, in_place } => offset_bytes
                .checked_add(length)
                .is_some_and(|offset_bytes| next == Self::Data { offset_bytes, in_place }),
            Self::Compressed { .. } => false,
            Self::Zeros | Self::Nothing | Self::Invalid => self == next,
        }
    }
}

/// Room to read a slice into.
pub(super) struct SliceBuffer {
    bytes: [u8; SLICE_WORDS_MAX * 8],
    words: [u64; SLICE_WORDS_MAX],
}

impl SliceBuffer {
    pub(super) fn new() -> Self {
        Self { bytes: [0; SLICE_WORDS_MAX * 8], words: [0; SLICE_WORDS_MAX] }
    }
}
