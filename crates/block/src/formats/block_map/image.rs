//! An open image with those behind it: what its queues and its thread share.

use super::layer::{Layer, Meaning, Own, SliceBuffer};
use super::level::{Level, Storage};
use crate::formats::l2_cache::{L2Cache, SliceKey};
use crate::formats::{CheckReport, Qcow2Mapping, Qcow2MappingKind};
use crate::{Disk, Extent, ExtentKind, Geometry};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// What slices of maps take of memory, for a whole chain: those of 1 TiB with blocks of 1 MiB.
const CACHE_BYTES: usize = 8 << 20;

/// Blocks of which it is checked whether two are one, at most: 32 MiB of their places.
const CHECKED_BLOCKS_MAX: usize = 4 << 20;

/// Lines about such blocks, at most; all are counted.
const DOUBLES_SAID_MAX: u64 = 20;

/// Slices that are read for one request before it is looked at again, and runs that are looked at.
const LOOK_UP_LOADS_MAX: usize = 64;
const LOOK_UP_RUNS_MAX: usize = 4096;

pub(super) struct Image {
    /// The images of the chain, the top one first.
    levels: Vec<Level>,
    /// The files with maps that these are made of.
    layers: Vec<Layer>,
    /// Which of `below` is behind them all.
    base: Option<usize>,
    /// What each request may go to: the files of the images, and the base.
    below: Vec<Arc<dyn Disk>>,
    /// Their paths.
    paths: Vec<PathBuf>,
    cache: L2Cache,
    geometry: Geometry,
    /// What the permission bits of all these files allow.
    pub(super) permissions: u32,
    notes: Vec<String>,
}

/// What to do with a piece of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// It lies in a disk below, at an offset.
    There { index: usize, offset_bytes: u64 },
    /// Some of it is in the log of an image, and would lie in its file at an offset: the worker knows what to do.
    Logged { layer: usize, offset_bytes: u64 },
    /// It is a part of a compressed block.
    Compressed { block: PackedBlock, skip_bytes: u64 },
    /// It reads as zeros.
    Zeros,
    /// The image is damaged there.
    Nowhere,
    /// Nobody may see what it holds.
    Forbidden,
    /// It has to be looked up first: [`Image::look_up`].
    Unknown,
}

/// A compressed block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PackedBlock {
    pub(super) layer: usize,
    /// Where in the layer's file it begins.
    pub(super) offset_bytes: u64,
    /// How much of it is the disk's.
    pub(super) length_bytes: u64,
}

/// Where a run of the disk's bytes lies.
#[derive(Clone, Copy, Debug)]
enum Found {
    There {
        index: usize,
        offset_bytes: u64,
    },
    Logged {
        layer: usize,
        offset_bytes: u64,
    },
    Compressed {
        block: PackedBlock,
        skip_bytes: u64,
    },
    /// `explicit`: the top image says so.
    Zeros {
        explicit: bool,
    },
    Forbidden,
    Damaged {
        layer: usize,
        problem: &'static str,
    },
}

/// A slice that is not in memory: of a map, or of presence bits.
#[derive(Clone, Copy)]
enum Missing {
    Entries,
    Presence,
}

impl Image {
    pub(super) fn new(
        (levels, layers): (Vec<Level>, Vec<Layer>),
        (below, paths): (Vec<Arc<dyn Disk>>, Vec<PathBuf>),
        base: Option<usize>,
        geometry: Geometry,
        permissions: u32,
    ) -> Self {
        // As many again of presence bits, should there be any.
        let slices = layers.iter().map(Layer::slices).fold(0, u64::saturating_add).saturating_mul(2);
        let cache = L2Cache::new(CACHE_BYTES, slices, super::layer::SLICE_WORDS);
        Self { levels, layers, base, below, paths, cache, geometry, permissions, notes: Vec::new() }
    }

    /// What is worth saying of it though it is opened.
    pub(super) fn noting(self, notes: Vec<String>) -> Self {
        Self { notes, ..self }
    }

    pub(super) fn notes(&self) -> &[String] {
        &self.notes
    }

    pub(super) fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    pub(super) fn below(&self) -> &[Arc<dyn Disk>] {
        &self.below
    }

    /// Bytes of the disk; the geometry's capacity is this, rounded up to logical blocks.
    fn size_bytes(&self) -> u64 {
        self.levels.first().map_or(0, |top| top.size_bytes)
    }

    pub(super) fn layer(&self, number: usize) -> Option<&Layer> {
        self.layers.get(number)
    }

    /// The disk's logical block.
    pub(super) fn sector_bytes(&self) -> u32 {
        let own = self.layers.first().map(|top| top.shape.sector_bytes);
        own.and_then(|bytes| u32::try_from(bytes).ok()).unwrap_or(512)
    }

    /// Where the bytes from `offset` lie, and for how many at most `length` that holds. Takes no lock and reads no
    /// file.
    pub(super) fn find(&self, offset: u64, length: u64) -> (Place, u64) {
        // Padding, up to a whole logical block, exists on the disk only.
        if offset >= self.size_bytes() {
            return (Place::Zeros, length);
        }
        let length = length.min(self.size_bytes() - offset);
        match self.walk(offset, length, |number, offset, length| self.own_in_cache(number, offset, length)) {
            Ok((found, found_bytes)) => (found.place(), found_bytes),
            Err(_) => (Place::Unknown, length),
        }
    }

    /// Reads what [`Image::find`] needs to know, for as much of a range as is done soon.
    pub(super) fn look_up(&self, range: Range<u64>, buffer: &mut SliceBuffer) -> io::Result<()> {
        let end = range.end.min(self.size_bytes());
        let (mut at, mut loads) = (range.start, 0);
        for _ in 0..LOOK_UP_RUNS_MAX {
            if at >= end || loads >= LOOK_UP_LOADS_MAX {
                break;
            }
            let (_, found_bytes) = self.walk(at, end - at, |number, offset, length| {
                self.own_loaded(number, offset, length, buffer, &mut loads)
            })?;
            at += found_bytes;
        }
        Ok(())
    }

    /// Where the bytes from `offset` lie, read from the files as far as it is not in memory.
    pub(super) fn find_now(&self, offset: u64, length: u64, buffer: &mut SliceBuffer) -> io::Result<(Place, u64)> {
        if offset >= self.size_bytes() {
            return Ok((Place::Zeros, length));
        }
        let (found, found_bytes) = self.walk_now(offset, length.min(self.size_bytes() - offset), buffer)?;
        Ok((found.place(), found_bytes))
    }

    fn walk_now(&self, offset: u64, length: u64, buffer: &mut SliceBuffer) -> io::Result<(Found, u64)> {
        self.walk(offset, length, |number, offset, length| self.own_loaded(number, offset, length, buffer, &mut 0))
    }

    /// Goes down the chain to the image that has the first bytes of `length` from `offset`, all of which lie on the
    /// disk. `own`: what an image says.
    fn walk<E>(
        &self,
        offset: u64,
        mut length: u64,
        mut own: impl FnMut(usize, u64, u64) -> Result<(Own, u64), E>,
    ) -> Result<(Found, u64), E> {
        for (depth, level) in self.levels.iter().enumerate() {
            let Some(piece) = level.find(offset) else { return Ok((Found::Zeros { explicit: false }, length)) };
            let at = offset - piece.start_bytes;
            length = length.min(piece.end_bytes - offset);
            let found = match piece.storage {
                Storage::Flat { index, offset_bytes } => Found::There { index, offset_bytes: offset_bytes + at },
                Storage::Zeros => Found::Zeros { explicit: depth == 0 },
                Storage::Forbidden => Found::Forbidden,
                Storage::Mapped { layer } => {
                    let (own, own_bytes) = own(layer, at, length)?;
                    length = own_bytes;
                    match self.found(layer, at, own, &mut length) {
                        Some(Found::Zeros { explicit }) => Found::Zeros { explicit: explicit && depth == 0 },
                        Some(found) => found,
                        None => continue,
                    }
                }
            };
            return Ok((found, length));
        }
        let base = self.base.and_then(|index| Some((index, self.below.get(index)?.geometry().capacity_bytes)));
        Ok(match base {
            Some((index, capacity_bytes)) if offset < capacity_bytes => {
                (Found::There { index, offset_bytes: offset }, length.min(capacity_bytes - offset))
            }
            _ => (Found::Zeros { explicit: false }, length),
        })
    }

    /// Where the first bytes of `length` from an offset of a layer's disk lie by what the layer says of them; `None` if
    /// it has nothing there.
    fn found(&self, number: usize, offset: u64, own: Own, length: &mut u64) -> Option<Found> {
        let layer = self.layers.get(number)?;
        Some(match own {
            Own::Nothing => return None,
            Own::Zeros => Found::Zeros { explicit: true },
            Own::Damaged(problem) => Found::Damaged { layer: number, problem },
            Own::Compressed { offset_bytes } => {
                let skip_bytes = offset % layer.shape.block_bytes;
                let length_bytes = layer.shape.block_bytes.min(layer.shape.size_bytes - (offset - skip_bytes));
                Found::Compressed { block: PackedBlock { layer: number, offset_bytes, length_bytes }, skip_bytes }
            }
            Own::There { offset_bytes } | Own::Partly { offset_bytes } => {
                let end_bytes = layer.end_bytes();
                if let Some(logged) = layer.file.first_logged(offset_bytes..offset_bytes + *length) {
                    if logged.start == offset_bytes {
                        *length = logged.end - offset_bytes;
                        return Some(Found::Logged { layer: number, offset_bytes });
                    }
                    *length = logged.start - offset_bytes;
                }
                if offset_bytes >= end_bytes {
                    return Some(Found::Zeros { explicit: false });
                }
                *length = (*length).min(end_bytes - offset_bytes);
                Found::There { index: layer.index, offset_bytes: layer.file.start_bytes() + offset_bytes }
            }
        })
    }

    /// What a layer says, of bytes that are its disk's. [`Own::Partly`] is none of the answers.
    fn own_in_cache(&self, number: usize, offset: u64, length: u64) -> Result<(Own, u64), Missing> {
        let Some(layer) = self.layers.get(number) else { return Ok((Own::Nothing, length)) };
        // What is not there cannot be, but a torn look is dropped anyway.
        let slice = SliceKey::new(number, layer.slice_of(offset));
        let own = self.cache.look(slice, |entries| match entries {
            Some(entries) => {
                layer.own(offset, length, |index| entries.get(index).map_or(0, |word| word.load(Ordering::Relaxed)))
            }
            None => (Own::Nothing, layer.cut_without_table(offset, length)),
        });
        match own {
            None => Err(Missing::Entries),
            Some((Own::Partly { offset_bytes }, length)) => {
                let slice = self.presence_key(number, layer, offset);
                let presence = self.cache.look(slice, |words| {
                    let words = words.unwrap_or_default();
                    layer.presence(offset, length, |index| {
                        words.get(index).map_or(0, |word| word.load(Ordering::Relaxed))
                    })
                });
                match presence {
                    None => Err(Missing::Presence),
                    Some((true, length)) => Ok((Own::There { offset_bytes }, length)),
                    Some((false, length)) => Ok((Own::Nothing, length)),
                }
            }
            Some(own) => Ok(own),
        }
    }

    fn presence_key(&self, number: usize, layer: &Layer, offset: u64) -> SliceKey {
        SliceKey::new(self.layers.len() + number, layer.presence_slice_of(offset))
    }

    /// The same, from memory or from the file, which is counted.
    fn own_loaded(
        &self,
        number: usize,
        offset: u64,
        length: u64,
        buffer: &mut SliceBuffer,
        loads: &mut usize,
    ) -> io::Result<(Own, u64)> {
        // Somebody else may put away what was just put in, but hardly this often.
        for _ in 0..16 {
            let missing = match self.own_in_cache(number, offset, length) {
                Ok(own) => return Ok(own),
                Err(missing) => missing,
            };
            let Some(layer) = self.layers.get(number) else { break };
            *loads += 1;
            match missing {
                Missing::Entries => {
                    let slice = layer.slice_of(offset);
                    self.cache.put(SliceKey::new(number, slice), layer.load(slice, buffer)?);
                }
                Missing::Presence => {
                    let bits = layer.load_presence(layer.presence_slice_of(offset), buffer)?;
                    self.cache.put(self.presence_key(number, layer, offset), Some(bits));
                }
            }
        }
        Err(io::Error::new(io::ErrorKind::WouldBlock, "too many tables are looked at at once"))
    }

    /// Fills `bytes` with those from an offset of an image's file, as its log has them.
    pub(super) fn read_logged(&self, layer: usize, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        let layer = self.layers.get(layer).ok_or(io::ErrorKind::InvalidInput)?;
        layer.file.read(bytes, offset)
    }

    /// What is wrong where a map leads nowhere.
    fn damage(&self, layer: usize, problem: &str, offset: u64) -> io::Error {
        match self.layers.get(layer) {
            Some(layer) => layer.file.damaged(format!("of the block at {offset} of its disk, {problem}")),
            None => io::ErrorKind::InvalidData.into(),
        }
    }

    pub(super) fn extents(&self, range: Range<u64>) -> io::Result<Extent> {
        self.geometry.check_extent_range(&range)?;
        let whole = range.end - range.start;
        let extent = |length_bytes, kind| Ok(Extent { offset_bytes: range.start, length_bytes, kind });
        if range.start >= self.size_bytes() {
            return extent(whole, ExtentKind::Hole);
        }
        let asked_bytes = whole.min(self.size_bytes() - range.start);
        let (found, found_bytes) = self.walk_now(range.start, asked_bytes, &mut SliceBuffer::new())?;
        let to_the_end = found_bytes >= asked_bytes;
        // Of zeros, only whole blocks count; a block that is partly data is data.
        let block_bytes = u64::from(self.geometry.logical_block_bytes);
        let zeros_bytes = if to_the_end { whole } else { found_bytes - found_bytes % block_bytes };
        let data_bytes = found_bytes.next_multiple_of(block_bytes).min(whole);
        match found {
            Found::Damaged { layer, problem } => Err(self.damage(layer, problem, range.start)),
            Found::Zeros { explicit: true } if zeros_bytes > 0 => extent(zeros_bytes, ExtentKind::Zero),
            Found::Zeros { .. } if zeros_bytes > 0 => extent(zeros_bytes, ExtentKind::Hole),
            Found::There { index, offset_bytes } if found_bytes.is_multiple_of(block_bytes) => {
                let below = self.extent_below(index, offset_bytes, data_bytes)?;
                Ok(Extent { offset_bytes: range.start, ..below })
            }
            // So is what may not be read: whoever wants to know more reads it, and is told.
            _ => extent(data_bytes, ExtentKind::Data),
        }
    }

    /// What data are: where they lie there may be a hole.
    fn extent_below(&self, index: usize, offset: u64, length_bytes: u64) -> io::Result<Extent> {
        let data = Extent { offset_bytes: offset, length_bytes, kind: ExtentKind::Data };
        let Some(below) = self.below.get(index) else { return Ok(data) };
        let geometry = below.geometry();
        let block_bytes = u64::from(geometry.logical_block_bytes);
        let end = offset.saturating_add(length_bytes).min(geometry.capacity_bytes);
        if offset >= end {
            return Ok(data);
        }
        let found = below.extents(offset..end)?;
        // A file's holes are as long as they are; half a block of one is data.
        let length_bytes = found.length_bytes.min(length_bytes);
        match length_bytes - length_bytes % block_bytes {
            0 => Ok(data),
            length_bytes => Ok(Extent { length_bytes, ..found }),
        }
    }

    /// The files that it is made of, by the index that [`Image::map`] gives.
    pub(super) fn files(&self) -> impl Iterator<Item = &Path> {
        self.paths.iter().map(PathBuf::as_path)
    }

    /// Looks at every entry of the top image's maps, as [`super::BlockMapDisk::check`] says.
    pub(super) fn check(&self, say: &mut dyn FnMut(&str)) -> io::Result<CheckReport> {
        let mut report = CheckReport::default();
        let Some(top) = self.levels.first() else { return Ok(report) };
        for (start_bytes, layer) in top.layers(&self.layers) {
            check_layer(layer, start_bytes, &mut report, say)?;
        }
        Ok(report)
    }

    /// What lies where, as maps tell it, and the index of the file that has it.
    pub(super) fn map(&self, range: Range<u64>) -> io::Result<(Qcow2Mapping, Option<usize>)> {
        self.geometry.check_extent_range(&range)?;
        let (offset, mut length_bytes) = (range.start, range.end - range.start);
        let mut buffer = SliceBuffer::new();
        let depth_of_last = self.levels.len().saturating_sub(1);
        for (depth, level) in self.levels.iter().enumerate() {
            let Some(piece) = level.find(offset) else {
                // As QEMU has it: the image above says so, by being longer.
                let (depth, kind) = (depth.saturating_sub(1), Qcow2MappingKind::Absent);
                return Ok((Qcow2Mapping { length_bytes, depth, kind }, None));
            };
            let at = offset - piece.start_bytes;
            length_bytes = length_bytes.min(piece.end_bytes - offset);
            let layer = match piece.storage {
                Storage::Mapped { layer } => layer,
                Storage::Flat { index, offset_bytes } => {
                    return self.map_flat(depth, index, offset_bytes + at, length_bytes);
                }
                Storage::Zeros => {
                    return Ok((Qcow2Mapping { length_bytes, depth, kind: Qcow2MappingKind::Zeros }, None));
                }
                Storage::Forbidden => {
                    let problem = format!("nobody may see what lies at {offset} of its disk (NOACCESS)");
                    return Err(io::Error::new(io::ErrorKind::PermissionDenied, problem));
                }
            };
            let (own, own_bytes) = self.own_loaded(layer, at, length_bytes, &mut buffer, &mut 0)?;
            length_bytes = own_bytes;
            let kind = match own {
                Own::Nothing => continue,
                Own::Zeros => Qcow2MappingKind::Zeros,
                Own::Compressed { .. } => Qcow2MappingKind::Compressed,
                Own::Damaged(problem) => return Err(self.damage(layer, problem, offset)),
                Own::There { offset_bytes } | Own::Partly { offset_bytes } => Qcow2MappingKind::Data { offset_bytes },
            };
            return Ok((Qcow2Mapping { length_bytes, depth, kind }, self.layers.get(layer).map(|layer| layer.index)));
        }
        let base = self.base.and_then(|index| Some((index, self.below.get(index)?.geometry().capacity_bytes)));
        match base {
            Some((index, capacity_bytes)) if offset < capacity_bytes => {
                let length_bytes = length_bytes.min(capacity_bytes - offset);
                self.map_flat(self.levels.len(), index, offset, length_bytes)
            }
            _ => Ok((Qcow2Mapping { length_bytes, depth: depth_of_last, kind: Qcow2MappingKind::Absent }, None)),
        }
    }

    /// The same of what lies in a disk below as it is.
    fn map_flat(
        &self,
        depth: usize,
        index: usize,
        offset: u64,
        length_bytes: u64,
    ) -> io::Result<(Qcow2Mapping, Option<usize>)> {
        let below = self.below.get(index).ok_or(io::ErrorKind::InvalidInput)?;
        let extent = below.extents(offset..offset.saturating_add(length_bytes))?;
        let kind = match extent.kind {
            ExtentKind::Data => Qcow2MappingKind::Data { offset_bytes: offset },
            ExtentKind::Zero | ExtentKind::Hole => Qcow2MappingKind::Hole { offset_bytes: offset },
        };
        Ok((Qcow2Mapping { length_bytes: extent.length_bytes, depth, kind }, Some(index)))
    }
}

/// Looks at every entry of a map, whose disk begins at `start_bytes` of the image's.
fn check_layer(layer: &Layer, start_bytes: u64, report: &mut CheckReport, say: &mut dyn FnMut(&str)) -> io::Result<()> {
    let block_bytes = layer.shape.block_bytes;
    report.total_clusters += layer.blocks();
    let (mut buffer, mut last) = (SliceBuffer::new(), None);
    // Where the first blocks begin.
    let mut starts = Vec::new();
    let (mut present, mut doubles) = (0, 0);
    let mut slice = 0;
    while slice < layer.slices() {
        let Some(meanings) = layer.meanings(slice, &mut buffer)? else {
            slice = layer.slice_after_none(slice);
            continue;
        };
        slice += 1;
        for (block, meaning) in meanings {
            let (offset_bytes, length_bytes) = match meaning {
                Meaning::There { offset_bytes } | Meaning::Partly { offset_bytes } => (offset_bytes, block_bytes),
                Meaning::Compressed { offset_bytes } => {
                    report.compressed_clusters += 1;
                    // How long it is, nobody knows who has not read it.
                    (offset_bytes, 1)
                }
                Meaning::Damaged(problem) => {
                    report.corruptions += 1;
                    say(&format!("ERROR block {}: {problem}", start_bytes / block_bytes + block));
                    continue;
                }
                Meaning::Zeros | Meaning::Nothing => continue,
            };
            report.allocated_clusters += 1;
            present += 1;
            starts.extend((starts.len() < CHECKED_BLOCKS_MAX).then_some(offset_bytes));
            let follows = last.is_none_or(|last: u64| offset_bytes == last + block_bytes);
            report.fragmented_clusters += u64::from(!follows && length_bytes > 1);
            last = Some(offset_bytes);
            let end_bytes = offset_bytes.saturating_add(length_bytes).min(layer.end_bytes());
            report.image_end_bytes = report.image_end_bytes.max(end_bytes);
        }
    }
    starts.sort_unstable();
    let apart_bytes = if report.compressed_clusters > 0 { 1 } else { block_bytes };
    if present > starts.len() {
        let unchecked = present - starts.len();
        say(&format!("NOTE of {unchecked} of {present} blocks, it was not looked for others in the same place"));
    }
    for pair in starts.windows(2) {
        if let [one, other] = *pair
            && other - one < apart_bytes
        {
            report.corruptions += 1;
            doubles += 1;
            if doubles <= DOUBLES_SAID_MAX {
                say(&format!("ERROR two blocks lie at {other} of the file"));
            }
        }
    }
    if doubles > DOUBLES_SAID_MAX {
        say(&format!("ERROR the same of {} more blocks", doubles - DOUBLES_SAID_MAX));
    }
    Ok(())
}

impl Found {
    fn place(self) -> Place {
        match self {
            Self::There { index, offset_bytes } => Place::There { index, offset_bytes },
            Self::Logged { layer, offset_bytes } => Place::Logged { layer, offset_bytes },
            Self::Compressed { block, skip_bytes } => Place::Compressed { block, skip_bytes },
            Self::Zeros { .. } => Place::Zeros,
            Self::Damaged { .. } => Place::Nowhere,
            Self::Forbidden => Place::Forbidden,
        }
    }
}

impl std::fmt::Debug for Image {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_list().entries(&self.paths).finish()
    }
}
