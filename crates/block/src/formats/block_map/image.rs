//! An open image with those behind it: what its queues and its thread share.

mod extents;

use super::check;
use super::layer::{Layer, Own, SliceBuffer};
use super::level::{Level, Piece, Storage};
use crate::formats::l2_cache::{L2Cache, SliceKey};
use crate::formats::readers::GoesOn;
use crate::formats::{CheckReport, ImageError};
use crate::{Disk, ExtentKind, Geometry};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What slices of maps take of memory, for a whole chain: those of 1 TiB with blocks of 1 MiB.
const CACHE_BYTES: usize = 8 << 20;

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
    /// Queues may write to what lies in its place.
    pub(super) may_write_in_place: AtomicBool,
    /// What changed in tables is not known to be stable.
    pub(super) is_unstable: AtomicBool,
    /// Held while what is read of a file's tables is put into memory: they do not change meanwhile.
    loading: Mutex<()>,
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
    /// For what is written: nobody may.
    ReadOnly,
    /// For what is written: the worker finds a place.
    Elsewhere,
    /// For what is written: the image has to say first that it is changed.
    Unbegun,
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
        Self {
            levels,
            layers,
            base,
            below,
            paths,
            cache,
            geometry,
            permissions,
            notes: Vec::new(),
            may_write_in_place: AtomicBool::new(false),
            is_unstable: AtomicBool::new(false),
            loading: Mutex::new(()),
        }
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
        match self.walk(0, offset, length, |number, offset, length| self.own_in_cache(number, offset, length)) {
            Ok((found, found_bytes)) => (found.place(), found_bytes),
            Err(_) => (Place::Unknown, length),
        }
    }

    /// The same of what is about to be written.
    pub(super) fn find_to_write(&self, offset: u64, length: u64) -> (Place, u64) {
        let Some(piece) = self.top_piece(offset) else { return (Place::Zeros, length) };
        let (at, length) = (offset - piece.start_bytes, length.min(piece.end_bytes - offset));
        match piece.storage {
            Storage::Forbidden => (Place::Forbidden, length),
            _ if !piece.is_writable => (Place::ReadOnly, length),
            Storage::Zeros => (Place::ReadOnly, length),
            Storage::Flat { .. } if !self.may_write_in_place.load(Ordering::Acquire) => (Place::Unbegun, length),
            Storage::Flat { index, offset_bytes } => (Place::There { index, offset_bytes: offset_bytes + at }, length),
            Storage::Mapped { .. } if !self.may_write_in_place.load(Ordering::Acquire) => (Place::Elsewhere, length),
            Storage::Mapped { layer } => match self.own_in_cache(layer, at, length) {
                Ok((Own::There { offset_bytes }, own_bytes)) => {
                    let index = self.layers.get(layer).map_or(0, |layer| layer.index);
                    (Place::There { index, offset_bytes }, own_bytes)
                }
                Ok((_, own_bytes)) => (Place::Elsewhere, own_bytes),
                Err(_) => (Place::Unknown, length),
            },
        }
    }

    /// The same of what is about to become zeros, which what is zeros for ever is.
    pub(super) fn find_to_zero(&self, offset: u64, length: u64) -> (Place, u64) {
        match self.top_piece(offset) {
            Some(Piece { storage: Storage::Zeros, end_bytes, .. }) => (Place::Zeros, length.min(end_bytes - offset)),
            _ => self.find_to_write(offset, length),
        }
    }

    /// Whether all of the top image lies in files as it is, so that queues carry whatever changes it.
    pub(super) fn is_flat(&self) -> bool {
        let pieces = self.levels.first().map(|top| top.pieces()).unwrap_or_default();
        !pieces.iter().any(|piece| matches!(piece.storage, Storage::Mapped { .. }))
    }

    /// The piece of the top image that an offset lies in, if it lies on the disk.
    pub(super) fn top_piece(&self, offset: u64) -> Option<Piece> {
        self.levels.first()?.find(offset)
    }

    /// How many of `length` bytes from an offset on, which are on the disk, are zeros where the top image has nothing,
    /// as far as tables and holes say so; 0 if the first one is not.
    ///
    /// # Errors
    /// When a table cannot be read.
    pub(super) fn zeros_behind(&self, offset: u64, length: u64, buffer: &mut SliceBuffer) -> io::Result<u64> {
        let mut zeros = 0;
        while zeros < length {
            let (found, found_bytes) = self.walk_now(1, offset + zeros, length - zeros, buffer)?;
            zeros += match found {
                Found::Zeros { .. } => found_bytes,
                Found::There { index, offset_bytes } => {
                    let extent = self.extent_below(index, offset_bytes, found_bytes)?;
                    if extent.kind == ExtentKind::Data {
                        break;
                    }
                    extent.length_bytes
                }
                _ => break,
            };
        }
        Ok(zeros.min(length))
    }

    /// Whether every byte of the top image may be changed.
    pub(super) fn is_writable(&self) -> bool {
        let pieces = self.levels.first().map(|top| top.pieces()).unwrap_or_default();
        let has_place = |storage| matches!(storage, Storage::Flat { .. } | Storage::Mapped { .. });
        pieces.iter().all(|piece| piece.is_writable && has_place(piece.storage))
    }

    /// The files that have bytes of the top image that may be changed.
    pub(super) fn written(&self) -> impl Iterator<Item = usize> {
        let pieces = self.levels.first().map(|top| top.pieces()).unwrap_or_default();
        pieces.iter().filter(|piece| piece.is_writable).filter_map(|piece| match piece.storage {
            Storage::Flat { index, .. } => Some(index),
            Storage::Mapped { layer } => Some(self.layers.get(layer)?.index),
            Storage::Zeros | Storage::Forbidden => None,
        })
    }

    /// Nobody puts what a table was into memory while this is held.
    pub(super) fn hold_tables(&self) -> MutexGuard<'_, ()> {
        self.loading.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes into memory what a slice of a layer's map is now, if it is there. The caller holds the tables.
    pub(super) fn refresh(&self, number: usize, slice: u64, buffer: &mut SliceBuffer) {
        let key = SliceKey::new(number, slice);
        let Some(layer) = self.layers.get(number).filter(|_| self.cache.holds(key)) else { return };
        match layer.load(slice, buffer) {
            Ok(entries) => self.cache.put(key, entries),
            Err(_) => self.cache.remove(key),
        }
    }

    /// The layer whose file is the so manyth below.
    pub(super) fn layer_in(&self, index: usize) -> Option<&Layer> {
        self.layers.iter().find(|layer| layer.index == index)
    }

    /// Reads what [`Image::find`] needs to know, for as much of a range as is done soon.
    pub(super) fn look_up(&self, range: Range<u64>, buffer: &mut SliceBuffer) -> io::Result<()> {
        let end = range.end.min(self.size_bytes());
        let (mut at, mut loads) = (range.start, 0);
        for _ in 0..LOOK_UP_RUNS_MAX {
            if at >= end || loads >= LOOK_UP_LOADS_MAX {
                break;
            }
            let (_, found_bytes) = self.walk(0, at, end - at, |number, offset, length| {
                self.own_loaded(number, offset, length, buffer, &mut loads)
            })?;
            at += found_bytes;
        }
        Ok(())
    }

    /// Where the bytes from `offset` lie by an image of the chain and those behind it, read from the files as far as it
    /// is not in memory.
    pub(super) fn find_now(
        &self,
        depth: usize,
        offset: u64,
        length: u64,
        buffer: &mut SliceBuffer,
    ) -> io::Result<(Place, u64)> {
        if offset >= self.size_bytes() {
            return Ok((Place::Zeros, length));
        }
        let (found, found_bytes) = self.walk_now(depth, offset, length.min(self.size_bytes() - offset), buffer)?;
        Ok((found.place(), found_bytes))
    }

    fn walk_now(&self, depth: usize, offset: u64, length: u64, buffer: &mut SliceBuffer) -> io::Result<(Found, u64)> {
        self.walk(depth, offset, length, |number, offset, length| {
            self.own_loaded(number, offset, length, buffer, &mut 0)
        })
    }

    /// Goes down the chain, from the so manyth image, to the one that has the first bytes of `length` from `offset`,
    /// all of which lie on the disk. `own`: what an image says.
    fn walk<E>(
        &self,
        first: usize,
        offset: u64,
        mut length: u64,
        mut own: impl FnMut(usize, u64, u64) -> Result<(Own, u64), E>,
    ) -> Result<(Found, u64), E> {
        for (depth, level) in self.levels.iter().enumerate().skip(first) {
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
    pub(super) fn own_loaded(
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
            let _held = self.hold_tables();
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

    /// The files that it is made of, by the index that [`Image::map`] gives.
    pub(super) fn files(&self) -> impl Iterator<Item = &Path> {
        self.paths.iter().map(PathBuf::as_path)
    }

    /// Looks at every entry of the top image's maps, as [`super::BlockMapDisk::check`] says.
    pub(super) fn check(&self, say: &mut dyn FnMut(&str)) -> Result<CheckReport, ImageError> {
        check::check_layers(&self.own_layers(), say)
    }

    /// Tries so many compressed blocks of the top image, as [`super::BlockMapDisk::try_compressed`] says.
    pub(super) fn try_compressed(
        &self,
        blocks: u64,
        say: &mut dyn FnMut(&str),
        goes_on: GoesOn<'_>,
    ) -> Result<u64, ImageError> {
        check::try_compressed(self, &self.own_layers(), blocks, say, goes_on)
    }

    fn own_layers(&self) -> Vec<(usize, u64, &Layer)> {
        self.levels.first().into_iter().flat_map(|top| top.layers(&self.layers)).collect()
    }
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
