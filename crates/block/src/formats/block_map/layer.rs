//! A file with a map: what that says of its disk's bytes.

use super::image_file::ImageFile;
use super::vmdk::SparseMap;
use std::fmt::Debug;
use std::io;

/// Entries of a slice of a map, and 64-bit words of a slice of presence bits.
pub(super) const SLICE_WORDS: usize = 512;

/// Most bytes of a block that can be compressed.
pub(super) const PACKED_BLOCK_MAX_BYTES: u64 = 2 << 20;

/// What is particular to a format: where the entries of its map lie, and what they mean. Their numbers come from a
/// checked header; what an entry says is judged when it is looked at.
pub(super) trait BlockMap: Debug + Send + Sync {
    fn shape(&self) -> Shape;

    /// Reads the entries of the blocks from `first` on, which are all on the disk. False: there is no table for any of
    /// them, and they are nothing.
    ///
    /// # Errors
    /// When the table cannot be read, or lies where it cannot be.
    fn load(&self, file: &ImageFile, first: u64, entries: &mut [u64]) -> io::Result<bool>;

    /// Where there is no table for a slice that begins with `first`, for how many blocks from there on there is none.
    fn blocks_without_table(&self, file: &ImageFile, first: u64) -> u64 {
        let _ = (file, first);
        SLICE_WORDS as u64
    }

    /// Whether each block has its place from the start: then the file's holes are those of the disk.
    fn is_full(&self) -> bool {
        false
    }

    /// What is needed to change it, where that is done.
    ///
    /// # Errors
    /// Why it is not: goes on after the file's path.
    fn to_change(&self) -> Result<&SparseMap, String> {
        Err("is in a format that is only read".into())
    }

    /// Compares the map with a copy of it, where there is one. `say` hears in which parts they differ, in a line each;
    /// how many of these no power cut explains.
    ///
    /// # Errors
    /// When one cannot be read.
    fn check_copies(&self, file: &ImageFile, say: &mut dyn FnMut(&str)) -> io::Result<u64> {
        let _ = (file, say);
        Ok(0)
    }

    /// What the entry of a block says.
    fn meaning(&self, block: u64, entry: u64) -> Meaning;

    /// For [`Meaning::Partly`]: which sectors of the disk from `first` on are in the image, in one block; the lowest
    /// bit of a word is the first.
    ///
    /// # Errors
    /// As [`BlockMap::load`].
    fn load_presence(&self, file: &ImageFile, first: u64, bits: &mut [u64]) -> io::Result<()> {
        let _ = (first, bits);
        Err(file.damaged("no block can be partly there"))
    }

    /// For [`Meaning::Compressed`]: reads what lies there of a block, deflated with a header of zlib's, at most twice
    /// as much as it becomes.
    ///
    /// # Errors
    /// When it cannot be read, or is as long as it cannot be.
    fn load_packed(&self, file: &ImageFile, offset: u64, packed: &mut Vec<u8>) -> io::Result<()> {
        let _ = (offset, packed);
        Err(file.damaged("no block can be compressed"))
    }
}

/// What a map is like.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    /// Bytes of the disk.
    pub(super) size_bytes: u64,
    /// Bytes of a block, at least 512 and a multiple of that.
    pub(super) block_bytes: u64,
    /// Bytes that a presence bit is for: a block has a whole number of them.
    pub(super) sector_bytes: u64,
    /// What every place in the file is a multiple of.
    pub(super) align_bytes: u64,
}

/// What an entry says of its block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// It lies in the file, from an offset on.
    There { offset_bytes: u64 },
    /// The same of those of its sectors that are there.
    Partly { offset_bytes: u64 },
    /// It is compressed, and that begins in the file at an offset.
    Compressed { offset_bytes: u64 },
    /// It is zeros.
    Zeros,
    /// Ask what is behind the image; zeros if nothing is.
    Nothing,
    /// It cannot be, and why.
    Damaged(&'static str),
}

/// What a map itself says of a run of bytes.
pub(super) type Own = Meaning;

/// A file with a map.
#[derive(Debug)]
pub(super) struct Layer {
    pub(super) file: ImageFile,
    pub(super) map: Box<dyn BlockMap>,
    pub(super) shape: Shape,
    /// Which of the chain's disks has its file.
    pub(super) index: usize,
}

/// Room to read a slice into.
pub(super) struct SliceBuffer([u64; SLICE_WORDS]);

impl SliceBuffer {
    pub(super) fn new() -> Self {
        Self([0; SLICE_WORDS])
    }
}

impl Default for SliceBuffer {
    fn default() -> Self {
        Self::new()
    }
}

impl Layer {
    pub(super) fn new(file: ImageFile, map: Box<dyn BlockMap>, index: usize) -> Self {
        let shape = map.shape();
        Self { file, map, shape, index }
    }

    /// Blocks of the disk.
    pub(super) fn blocks(&self) -> u64 {
        self.shape.size_bytes.div_ceil(self.shape.block_bytes)
    }

    /// Slices of its map.
    pub(super) fn slices(&self) -> u64 {
        self.blocks().div_ceil(SLICE_WORDS as u64)
    }

    /// The slice that the byte at `offset` is looked up in.
    pub(super) fn slice_of(&self, offset: u64) -> u64 {
        offset / self.shape.block_bytes / SLICE_WORDS as u64
    }

    /// How many of `length` bytes from `offset`, whose slice has no table, have none.
    pub(super) fn cut_without_table(&self, offset: u64, length: u64) -> u64 {
        let first = self.slice_of(offset) * SLICE_WORDS as u64;
        let end = first
            .saturating_add(self.map.blocks_without_table(&self.file, first))
            .saturating_mul(self.shape.block_bytes);
        length.min(end - offset)
    }

    /// The next slice after one that has no table.
    pub(super) fn slice_after_none(&self, slice: u64) -> u64 {
        slice + (self.map.blocks_without_table(&self.file, slice * SLICE_WORDS as u64) / SLICE_WORDS as u64).max(1)
    }

    /// The slice of presence bits that the byte at `offset` is looked up in.
    pub(super) fn presence_slice_of(&self, offset: u64) -> u64 {
        offset / self.presence_covers_bytes()
    }

    /// How many bytes of the disk a slice of presence bits is for: they are of one block.
    fn presence_covers_bytes(&self) -> u64 {
        let Shape { block_bytes, sector_bytes, .. } = self.shape;
        block_bytes.min(SLICE_WORDS as u64 * 64 * sector_bytes)
    }

    pub(super) fn load<'b>(&self, slice: u64, buffer: &'b mut SliceBuffer) -> io::Result<Option<&'b [u64]>> {
        let first = slice * SLICE_WORDS as u64;
        // At most as many as the buffer has.
        let count = self.blocks().saturating_sub(first).min(SLICE_WORDS as u64) as usize;
        let entries = &mut buffer.0[..count];
        Ok(self.map.load(&self.file, first, entries)?.then_some(entries))
    }

    /// Reads what a compressed block is made of.
    pub(super) fn load_packed(&self, offset: u64, packed: &mut Vec<u8>) -> io::Result<()> {
        self.map.load_packed(&self.file, offset, packed)
    }

    /// What the entries of a slice say, each with its block; `None` if there is no table for them.
    pub(super) fn meanings(
        &self,
        slice: u64,
        buffer: &mut SliceBuffer,
    ) -> io::Result<Option<impl Iterator<Item = (u64, Meaning)>>> {
        let Some(entries) = self.load(slice, buffer)? else { return Ok(None) };
        let numbered = (slice * SLICE_WORDS as u64..).zip(entries);
        Ok(Some(numbered.map(|(block, &entry)| (block, self.meaning(block, entry)))))
    }

    pub(super) fn load_presence<'b>(&self, slice: u64, buffer: &'b mut SliceBuffer) -> io::Result<&'b [u64]> {
        let sectors = self.presence_covers_bytes() / self.shape.sector_bytes;
        let bits = &mut buffer.0[..sectors.div_ceil(64) as usize];
        self.map.load_presence(&self.file, slice * sectors, bits)?;
        Ok(bits)
    }

    /// What a slice says of the first bytes of `length` from `offset`, and of how many; all of them lie on the disk.
    /// Its entries are asked for by their index.
    pub(super) fn own(&self, offset: u64, length: u64, entry: impl Fn(usize) -> u64) -> (Own, u64) {
        let block_bytes = self.shape.block_bytes;
        let (mut block, within) = (offset / block_bytes, offset % block_bytes);
        let index = |block: u64| (block % SLICE_WORDS as u64) as usize;
        let mut last = self.meaning(block, entry(index(block)));
        let own = match last {
            Own::There { offset_bytes } => Own::There { offset_bytes: offset_bytes + within },
            Own::Partly { offset_bytes } => Own::Partly { offset_bytes: offset_bytes + within },
            other => other,
        };
        let mut found_bytes = block_bytes - within;
        while found_bytes < length && index(block) + 1 < SLICE_WORDS {
            block += 1;
            let next = self.meaning(block, entry(index(block)));
            let continues = match last {
                Own::There { offset_bytes } => next == Own::There { offset_bytes: offset_bytes + block_bytes },
                Own::Partly { .. } | Own::Compressed { .. } | Own::Damaged(_) => false,
                _ => last == next,
            };
            if !continues {
                break;
            }
            last = next;
            found_bytes += block_bytes;
        }
        (own, found_bytes.min(length))
    }

    /// Whether the first bytes of `length` from `offset`, which is in a block that is partly there, are there, and how
    /// many that holds for. The words of its slice are asked for by their index.
    pub(super) fn presence(&self, offset: u64, length: u64, word: impl Fn(usize) -> u64) -> (bool, u64) {
        let sector_bytes = self.shape.sector_bytes;
        let (within, sectors) = (offset % self.presence_covers_bytes(), self.presence_covers_bytes() / sector_bytes);
        let first = within / sector_bytes;
        let bit = |sector: u64| word((sector / 64) as usize) >> (sector % 64) & 1 == 1;
        let is_there = bit(first);
        let mut next = first + 1;
        while next < sectors && next * sector_bytes - within < length {
            let rest = word((next / 64) as usize) >> (next % 64);
            // Of a word that goes on as it began, all at once.
            let same = if is_there { rest.trailing_ones() } else { rest.trailing_zeros() };
            let left = 64 - next % 64;
            next += u64::from(same).min(left);
            if u64::from(same) < left {
                break;
            }
        }
        (is_there, (next.min(sectors) * sector_bytes - within).min(length))
    }

    /// What an entry says, which must not lead out of the file.
    fn meaning(&self, block: u64, entry: u64) -> Meaning {
        let meaning = self.map.meaning(block, entry);
        let Shape { size_bytes, block_bytes, align_bytes, .. } = self.shape;
        // All that the disk has of a block, to the last byte: every writer of these formats makes blocks whole.
        let used_bytes = block_bytes.min(size_bytes.saturating_sub(block.saturating_mul(block_bytes)));
        let (offset_bytes, must_be_there) = match meaning {
            Meaning::There { offset_bytes } | Meaning::Partly { offset_bytes } => (offset_bytes, used_bytes),
            Meaning::Compressed { offset_bytes } => (offset_bytes, 1),
            Meaning::Zeros | Meaning::Nothing | Meaning::Damaged(_) => return meaning,
        };
        if !offset_bytes.is_multiple_of(align_bytes) {
            return Meaning::Damaged("it does not begin where a block can");
        }
        match offset_bytes.checked_add(must_be_there) {
            Some(end) if end <= self.file.end_bytes() && i64::try_from(offset_bytes).is_ok() => meaning,
            _ => Meaning::Damaged("it reaches behind the end of the file"),
        }
    }

    /// Where the file ends, for requests: what is behind that, before its log is done, are zeros.
    pub(super) fn end_bytes(&self) -> u64 {
        self.file.length_bytes().next_multiple_of(512)
    }
}
