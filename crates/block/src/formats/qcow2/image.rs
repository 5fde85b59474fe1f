//! An open image: what its queues and its threads share.

use super::decompressor::Decompressor;
use super::dirty_bits::DirtyBits;
use super::entries::Compressed;
use super::grace::Grace;
use super::image_tables::{ImageTables, Own, Patience, SliceBuffer};
use super::l2_cache::{L2Cache, SliceKey};
use crate::formats::{BlockMapDisk, WritableFile};
use crate::{Disk, DiskReader, Extent, ExtentKind, Geometry, shown};
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Slices that are read for one request before it is looked at again, and runs that are looked at.
const LOOK_UP_LOADS_MAX: usize = 64;
const LOOK_UP_RUNS_MAX: usize = 4096;

/// More slices than that are not read again after a change.
const REFRESHED_MAX: u64 = 4096;

pub(super) struct Image {
    /// Of each image of the chain, the top one first.
    pub(super) tables: Vec<ImageTables>,
    /// Which of `below` is behind them all.
    pub(super) base: Option<usize>,
    /// The same disk, if it has a map of its own.
    pub(super) mapped_base: Option<Arc<BlockMapDisk>>,
    /// The files of the images, and the base's if that has no map.
    pub(super) paths: Vec<PathBuf>,
    /// The images of the chain that are encrypted, by how many are in front of them.
    pub(super) encrypted: Vec<usize>,
    /// What the files of the images say, as far as it was looked up lately.
    pub(super) l2_cache: L2Cache,
    pub(super) geometry: Geometry,
    /// The image's own size; the geometry's capacity is this, rounded up to logical blocks.
    pub(super) size_bytes: u64,
    /// What the permission bits of the image's file and of all files behind it allow.
    pub(super) permissions: u32,
    /// The same, of the files behind it.
    pub(super) permissions_behind: u32,
    /// Whether clusters can be marked as zeros.
    pub(super) has_zero_clusters: bool,
    /// Whether clusters that were discarded are freed: an external data file keeps each where it is.
    pub(super) frees_clusters: bool,
    /// What each request may go to: files and disks of the chain.
    pub(super) below: Vec<Below>,
    /// Indices of those that writes and so flushes go to; none for an image that is read-only or need not last.
    pub(super) flushed: Vec<usize>,
    /// The image need not outlive this process.
    pub(super) is_temporary: bool,
    pub(super) grace: Grace,
    /// Metadata were written and not made stable.
    pub(super) is_unstable: AtomicBool,
    /// Of an image with bitmaps that are kept: what was written.
    pub(super) dirty_bits: Option<DirtyBits>,
    /// It is known to be in order, what its tables say is in the file, and its bitmaps are marked: else all that
    /// changes it is the worker's.
    pub(super) may_write_in_place: AtomicBool,
}

/// A disk of the chain.
pub(super) struct Below {
    pub(super) disk: Arc<dyn Disk>,
    /// For an image's own file or its data file, how long it is.
    pub(super) file: Option<Arc<WritableFile>>,
}

/// What to do with a piece of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// It lies in a disk below, at an offset.
    There { index: usize, offset_bytes: u64 },
    /// It reads as zeros.
    Zeros,
    /// It is read from a compressed cluster, from so far on.
    Compressed { cluster: CompressedCluster, skip_bytes: u64 },
    /// The worker knows what to do.
    Elsewhere,
    /// The worker has to look it up first: [`Image::look_up`].
    Unknown,
}

/// A compressed cluster of an image of the chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CompressedCluster {
    pub(super) number: usize,
    pub(super) place: Compressed,
}

/// What one thread needs to read what is not read where it lies.
#[derive(Default)]
pub(super) struct Reader {
    decompressor: Decompressor,
    /// The disk behind all images.
    base: Option<DiskReader>,
}

/// Where a run of the disk's bytes lies.
#[derive(Clone, Copy, Debug)]
enum Found {
    There {
        index: usize,
        offset_bytes: u64,
        /// It may be written to there.
        in_place: bool,
    },
    /// `explicit`: the top image says so.
    Zeros {
        explicit: bool,
    },
    Compressed {
        cluster: CompressedCluster,
        skip_bytes: u64,
    },
    /// Nothing that makes sense, as an image of the chain says.
    Invalid {
        number: usize,
    },
}

/// A slice of tables is not in memory.
struct Miss;

impl Image {
    /// Where the bytes from `offset` lie, and for how many at most `length` that holds. For `writing`, a place may be
    /// written to. Takes no lock and reads no file.
    pub(super) fn find(&self, offset: u64, length: u64, writing: bool) -> (Place, u64) {
        // Padding, up to a whole logical block, exists on the disk only.
        if offset >= self.size_bytes {
            return (Place::Zeros, length);
        }
        let length = length.min(self.size_bytes - offset);
        let found = self.walk(0, offset, length, |number, offset, length| self.own_in_cache(number, offset, length));
        let Ok((found, found_bytes)) = found else { return (Place::Unknown, length) };
        let place = match found {
            Found::There { index, offset_bytes, in_place }
                if !writing || (in_place && self.may_write_in_place.load(Ordering::Acquire)) =>
            {
                self.place_in(index, offset_bytes, found_bytes)
            }
            Found::Zeros { .. } if !writing => Place::Zeros,
            Found::Compressed { cluster, skip_bytes } if !writing => Place::Compressed { cluster, skip_bytes },
            _ => Place::Elsewhere,
        };
        (place, found_bytes)
    }

    /// Reads what [`Image::find`] needs to know, for as much of a range as is done soon.
    pub(super) fn look_up(&self, range: Range<u64>, patience: Patience, buffer: &mut SliceBuffer) -> io::Result<()> {
        let end = range.end.min(self.size_bytes);
        let (mut at, mut loads) = (range.start, 0);
        for _ in 0..LOOK_UP_RUNS_MAX {
            if at >= end || loads >= LOOK_UP_LOADS_MAX {
                break;
            }
            let (_, found_bytes) = self.walk(0, at, end - at, |number, offset, length| {
                if let Ok(known) = self.own_in_cache(number, offset, length) {
                    return Ok::<_, io::Error>(known);
                }
                loads += 1;
                let tables = &self.tables[number];
                let entries = tables.load(tables.slice_of(offset), patience, buffer);
                let entries = entries.map_err(|error| self.naming(number, error))?;
                self.l2_cache.put(SliceKey::new(number, tables.slice_of(offset)), entries);
                Ok(own_in(tables, offset, tables.cut_to_slice(offset, length), entries))
            })?;
            at += found_bytes;
        }
        Ok(())
    }

    /// Sees to it that changes to the tables of the top image, which are in its file, are found.
    pub(super) fn refresh(&self, changed: &[Range<u64>], buffer: &mut SliceBuffer) {
        let Some(top) = self.tables.first() else { return };
        let slices = |range: &Range<u64>| top.slice_of(range.start)..top.slice_of(range.end.saturating_sub(1)) + 1;
        let count =
            changed.iter().map(slices).fold(0, |sum: u64, slices| sum.saturating_add(slices.end - slices.start));
        if count > REFRESHED_MAX {
            self.l2_cache.remove_image(0);
            return;
        }
        let mut last = None;
        for slice in changed.iter().flat_map(slices) {
            let key = SliceKey::new(0, slice);
            if last.replace(slice) == Some(slice) || !self.l2_cache.holds(key) {
                continue;
            }
            match top.load(slice, Patience::Endless, buffer) {
                Ok(entries) => self.l2_cache.put(key, entries),
                Err(_) => self.l2_cache.remove(key),
            }
        }
    }

    /// Reads bytes as the chain has them from its image `first` on, in the caller's thread.
    pub(super) fn read(&self, first: usize, mut offset: u64, buffer: &mut [u8], reader: &mut Reader) -> io::Result<()> {
        let mut rest = buffer;
        while !rest.is_empty() {
            let wanted = rest.len() as u64;
            let (found, found_bytes) =
                self.walk(first, offset, wanted, |number, offset, length| self.own_now(number, offset, length))?;
            let (piece, later) = rest.split_at_mut(found_bytes.min(wanted) as usize);
            match found {
                Found::Zeros { .. } => piece.fill(0),
                Found::There { index, offset_bytes, .. } => {
                    self.read_below(index, offset_bytes, offset, piece, reader)?;
                }
                Found::Compressed { cluster, skip_bytes } => {
                    let contents = self.compressed_cluster(cluster, reader)?;
                    let found = contents.get(skip_bytes as usize..skip_bytes as usize + piece.len());
                    piece.copy_from_slice(found.ok_or_else(invalid)?);
                }
                Found::Invalid { number } => {
                    let problem = format!("what its tables say of byte {offset} of the disk makes no sense");
                    return Err(self.naming(number, io::Error::new(io::ErrorKind::InvalidData, problem)));
                }
            }
            offset += piece.len() as u64;
            rest = later;
        }
        Ok(())
    }

    /// What a compressed cluster holds.
    pub(super) fn compressed_cluster<'r>(
        &self,
        cluster: CompressedCluster,
        reader: &'r mut Reader,
    ) -> io::Result<&'r [u8]> {
        let CompressedCluster { number, place } = cluster;
        let tables = self.tables.get(number).ok_or_else(invalid)?;
        reader.decompressor.cluster(number, tables, place).map_err(|error| self.naming(number, error))
    }

    /// The same error, of damage, with the name of the image of the chain that has it; who opened the top one knows its
    /// name.
    fn naming(&self, number: usize, error: io::Error) -> io::Error {
        match self.paths.get(number) {
            Some(path) if number > 0 && error.kind() == io::ErrorKind::InvalidData => {
                io::Error::new(error.kind(), format!("in {}, {error}", shown(path)))
            }
            _ => error,
        }
    }

    fn read_below(
        &self,
        index: usize,
        offset: u64,
        disk_offset: u64,
        buffer: &mut [u8],
        reader: &mut Reader,
    ) -> io::Result<()> {
        let below = self.below.get(index).ok_or_else(invalid)?;
        match &below.file {
            Some(file) => {
                let is_its = |(_, tables): &(usize, &ImageTables)| tables.data_index == index;
                let (number, tables) = self.tables.iter().enumerate().find(is_its).ok_or_else(invalid)?;
                let read = file.read_data(buffer, offset, disk_offset, tables.data_clusters());
                read.map_err(|error| self.naming(number, error))
            }
            None => {
                let base = match &mut reader.base {
                    Some(base) => base,
                    none => none.insert(DiskReader::new(&*below.disk)?),
                };
                base.read(offset, buffer)
            }
        }
    }

    /// Whether there is nothing behind the top image from an offset on.
    pub(super) fn shows_nothing_behind(&self, offset: u64) -> bool {
        // Behind the end of an image there are zeros, whatever is behind it in turn.
        match self.tables.get(1) {
            Some(next) => offset >= next.size_bytes,
            None => {
                let base = self.base.and_then(|index| self.below.get(index));
                base.is_none_or(|base| offset >= base.disk.geometry().capacity_bytes)
            }
        }
    }

    /// Goes down the chain from its image `first` on until one has the bytes from `offset`: which has, and how many of
    /// `length`. `own` says what an image itself says of a part of it.
    fn walk<E>(
        &self,
        first: usize,
        offset: u64,
        mut length: u64,
        mut own: impl FnMut(usize, u64, u64) -> Result<(Own, u64), E>,
    ) -> Result<(Found, u64), E> {
        for (number, tables) in self.tables.iter().enumerate().skip(first) {
            if offset >= tables.size_bytes {
                return Ok((Found::Zeros { explicit: false }, length));
            }
            let (own, own_bytes) = own(number, offset, length.min(tables.size_bytes - offset))?;
            length = own_bytes;
            let found = match own {
                Own::Nothing => continue,
                Own::Data { offset_bytes, in_place } => {
                    let in_place = in_place && number == 0 && !self.geometry.read_only;
                    Found::There { index: tables.data_index, offset_bytes, in_place }
                }
                Own::Zeros => Found::Zeros { explicit: number == 0 },
                Own::Compressed { compressed: place, skip_bytes } => {
                    Found::Compressed { cluster: CompressedCluster { number, place }, skip_bytes }
                }
                Own::Invalid => Found::Invalid { number },
            };
            return Ok((found, length));
        }
        let base = self.base.and_then(|index| Some((index, self.below.get(index)?.disk.geometry().capacity_bytes)));
        Ok(match base {
            Some((index, capacity_bytes)) if offset < capacity_bytes => {
                let length = length.min(capacity_bytes - offset);
                (Found::There { index, offset_bytes: offset, in_place: false }, length)
            }
            _ => (Found::Zeros { explicit: false }, length),
        })
    }

    fn own_in_cache(&self, number: usize, offset: u64, length: u64) -> Result<(Own, u64), Miss> {
        let tables = &self.tables[number];
        let length = tables.cut_to_slice(offset, length);
        let key = SliceKey::new(number, tables.slice_of(offset));
        let own = self.l2_cache.look(key, |entries| match entries {
            // What is not there cannot be, but a torn look is dropped anyway.
            Some(entries) => {
                tables.own(offset, length, |index| entries.get(index).map_or(0, |word| word.load(Ordering::Relaxed)))
            }
            None => (Own::Nothing, length),
        });
        own.ok_or(Miss)
    }

    /// From memory or from the file, in the caller's thread.
    pub(super) fn own_now(&self, number: usize, offset: u64, length: u64) -> io::Result<(Own, u64)> {
        if let Ok(own) = self.own_in_cache(number, offset, length) {
            return Ok(own);
        }
        let tables = &self.tables[number];
        let mut buffer = SliceBuffer::new();
        let loaded = tables.load(tables.slice_of(offset), Patience::Endless, &mut buffer);
        let entries = loaded.map_err(|error| match (error.kind(), self.paths.get(number)) {
            (io::ErrorKind::InvalidData, Some(path)) => {
                io::Error::new(error.kind(), format!("{} is damaged: {error}", shown(path)))
            }
            _ => error,
        })?;
        // Of what is written to, the worker alone knows when that is what the file says.
        if number > 0 || self.geometry.read_only {
            self.l2_cache.put(SliceKey::new(number, tables.slice_of(offset)), entries);
        }
        let cut = match entries {
            Some(_) => tables.cut_to_slice(offset, length),
            None => tables.cut_without_table(offset, length, Patience::Endless)?,
        };
        Ok(own_in(tables, offset, cut, entries))
    }

    /// A cluster that the file's end cuts off, or that lies behind it, is for the worker; and what queues cannot
    /// decrypt.
    fn place_in(&self, index: usize, offset_bytes: u64, length_bytes: u64) -> Place {
        let file = self.below.get(index).and_then(|below| below.file.as_ref());
        let inside = file.is_none_or(|file| file.has(offset_bytes, length_bytes) && file.cipher().suits_queues());
        if inside { Place::There { index, offset_bytes } } else { Place::Elsewhere }
    }

    pub(super) fn extents(&self, range: Range<u64>) -> io::Result<Extent> {
        self.geometry.check_extent_range(&range)?;
        let whole = range.end - range.start;
        let extent = |length_bytes, kind| Ok(Extent { offset_bytes: range.start, length_bytes, kind });
        if range.start >= self.size_bytes {
            return extent(whole, ExtentKind::Hole);
        }
        let asked_bytes = whole.min(self.size_bytes - range.start);
        let (found, found_bytes) =
            self.walk(0, range.start, asked_bytes, |number, offset, length| self.own_now(number, offset, length))?;
        let to_the_end = found_bytes >= asked_bytes;
        // Of zeros, only whole blocks count; a block that is partly data is data.
        let block_bytes = u64::from(self.geometry.logical_block_bytes);
        let zeros_bytes = if to_the_end { whole } else { found_bytes - found_bytes % block_bytes };
        let data_bytes = found_bytes.next_multiple_of(block_bytes).min(whole);
        match found {
            Found::Zeros { explicit: true } if zeros_bytes > 0 => extent(zeros_bytes, ExtentKind::Zero),
            Found::Zeros { .. } if zeros_bytes > 0 => extent(zeros_bytes, ExtentKind::Hole),
            Found::There { index, offset_bytes, .. } if found_bytes.is_multiple_of(block_bytes) => {
                self.extent_below(index, offset_bytes, range.start, data_bytes)
            }
            _ => extent(data_bytes, ExtentKind::Data),
        }
    }

    /// The first run of `range` that is or is not in the first `depth` images of the chain; its length, and whether it
    /// is.
    pub(super) fn find_above(&self, depth: usize, range: Range<u64>) -> io::Result<(u64, bool)> {
        self.geometry.check_extent_range(&range)?;
        let (whole, start) = (range.end - range.start, range.start);
        if start >= self.size_bytes {
            return Ok((whole, false));
        }
        let mut length = whole.min(self.size_bytes - start);
        for (number, tables) in self.tables.iter().enumerate().take(depth) {
            // Behind an image's end there are zeros, whatever is behind the image.
            if start >= tables.size_bytes {
                return Ok((length, true));
            }
            let (own, found_bytes) = self.own_now(number, start, length.min(tables.size_bytes - start))?;
            length = found_bytes.clamp(1, length);
            if own != Own::Nothing {
                return Ok((length, true));
            }
        }
        Ok((length, false))
    }

    /// What a data cluster holds: the file it lies in may have a hole there.
    fn extent_below(&self, index: usize, offset: u64, start: u64, length_bytes: u64) -> io::Result<Extent> {
        let data = Extent { offset_bytes: start, length_bytes, kind: ExtentKind::Data };
        let Some(below) = self.below.get(index) else { return Ok(data) };
        if let Some(file) = &below.file {
            let block_bytes = u64::from(self.geometry.logical_block_bytes);
            return Ok(match file.first_run(offset, length_bytes) {
                // A cluster with a place and no storage yet: preallocated, or discarded where clusters stay.
                (true, hole_bytes) if hole_bytes >= block_bytes => {
                    let length_bytes = hole_bytes - hole_bytes % block_bytes;
                    Extent { length_bytes, kind: ExtentKind::Zero, ..data }
                }
                (_, run_bytes) => {
                    Extent { length_bytes: run_bytes.next_multiple_of(block_bytes).min(length_bytes), ..data }
                }
            });
        }
        let capacity_bytes = below.disk.geometry().capacity_bytes;
        let end = offset.saturating_add(length_bytes).min(capacity_bytes);
        if offset >= end {
            return Ok(data);
        }
        let found = below.disk.extents(offset..end)?;
        Ok(Extent { offset_bytes: start, length_bytes: found.length_bytes.min(length_bytes), kind: found.kind })
    }
}

fn invalid() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a table of the image says what makes no sense")
}

/// The same as [`ImageTables::own`], from what was loaded.
fn own_in(tables: &ImageTables, offset: u64, length: u64, entries: Option<&[u64]>) -> (Own, u64) {
    match entries {
        Some(entries) => tables.own(offset, length, |index| entries.get(index).copied().unwrap_or(0)),
        None => (Own::Nothing, length),
    }
}

impl std::fmt::Debug for Image {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Image of {} bytes", self.size_bytes)
    }
}
