//! Writing a new image from its beginning to its end: blocks get their places in the order in which they are first
//! written, and what finds them is written once, at the end.
//!
//! What a format adds is where its blocks begin and what lies round them ([`NewMap`]).

use super::vmdk::new::VmdkCreateOptions;
use super::{BlockMapFormat, vdi, vhd, vhdx, vmdk};
use crate::formats::ImageError;
use crate::formats::preallocation::{Preallocation, check, reserve};
use crate::{Disk, Engine, FileDisk, FileOptions, MemoryMap, Queue};
use rustix::fs::{FallocateFlags, fallocate};
use std::fmt::Debug;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Entries are written in pieces of so many bytes.
const PIECE_BYTES: usize = 64 << 10;

/// Shorter runs of data are not worth the system call.
const RESERVED_BYTES_MIN: u64 = 128 << 10;

/// The name of a file that is only measured.
const ANY_NAME: &str = "disk";

/// What a new image is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockMapCreateOptions {
    /// Its format: VMDK, VDI, VHD or VHDX.
    pub format: BlockMapFormat,
    /// Bytes of the disk, a multiple of 512.
    pub size_bytes: u64,
    /// Bytes of a block, where the format leaves a choice.
    pub block_bytes: Option<u32>,
    /// Every block has its place from the start, as the image says, too.
    pub is_fixed: bool,
    /// What is allocated from the start.
    pub preallocation: Preallocation,
    /// What a VMDK says besides.
    pub vmdk: VmdkCreateOptions,
}

impl BlockMapCreateOptions {
    /// An empty image.
    pub fn new(format: BlockMapFormat, size_bytes: u64) -> Self {
        Self {
            format,
            size_bytes,
            block_bytes: None,
            is_fixed: false,
            preallocation: Preallocation::Off,
            vmdk: VmdkCreateOptions::default(),
        }
    }

    /// For a file at `path`.
    fn map(&self, path: &Path) -> Result<Box<dyn NewMap>, ImageError> {
        if !self.size_bytes.is_multiple_of(512) {
            return Err(invalid(format!(
                "a disk of {} bytes is not possible: they are a multiple of 512",
                self.size_bytes
            )));
        }
        match self.format {
            BlockMapFormat::Vdi => vdi::new::map(self),
            BlockMapFormat::Vhd => vhd::new::map(self),
            BlockMapFormat::Vhdx => vhdx::new::map(self),
            BlockMapFormat::Vmdk => vmdk::new::map(self, path),
            BlockMapFormat::Qed | BlockMapFormat::Parallels => {
                Err(invalid(format!("{} images can be read, not made", self.format.name())))
            }
        }
    }

    /// Bytes of a block of the disk.
    ///
    /// # Errors
    /// When there is no such image.
    pub fn block_bytes(&self) -> Result<u64, ImageError> {
        Ok(self.map(Path::new(ANY_NAME))?.layout().block_bytes)
    }

    /// Bytes of the file when so many of the disk's blocks have their places.
    ///
    /// # Errors
    /// When there is no such image.
    pub fn file_bytes(&self, blocks: u64) -> Result<u64, ImageError> {
        let map = self.map(Path::new(ANY_NAME))?;
        let is_full = self.is_fixed || self.preallocation != Preallocation::Off;
        Ok(map.file_bytes(if is_full { map.layout().blocks() } else { blocks }))
    }
}

pub(super) fn invalid(problem: impl Into<String>) -> ImageError {
    ImageError::Invalid(problem.into())
}

/// Where the blocks of a new image lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NewLayout {
    pub(super) size_bytes: u64,
    pub(super) block_bytes: u64,
    /// In front of each block lie so many bytes, all ones: the bitmap of a VHD's sectors, all of which are there.
    pub(super) lead_bytes: u64,
    /// Where the first lead or block lies.
    pub(super) data_offset: u64,
}

impl NewLayout {
    pub(super) fn blocks(&self) -> u64 {
        self.size_bytes.div_ceil(self.block_bytes)
    }

    /// Where the lead of a block lies that is the `place`th in the file.
    pub(super) fn lead_offset(&self, place: u64) -> u64 {
        self.data_offset + place * (self.lead_bytes + self.block_bytes)
    }
}

/// What is particular to a format.
pub(super) trait NewMap: Debug + Send + Sync {
    fn layout(&self) -> NewLayout;

    /// Bytes of a file that holds so many blocks.
    fn file_bytes(&self, blocks: u64) -> u64 {
        self.layout().lead_offset(blocks)
    }

    /// Writes all that is no block, into a file of the right length in which it is zeros.
    fn write(&self, file: &File, places: &Places) -> io::Result<()>;
}

/// Which blocks have places in the file: the first in it has place 0.
#[derive(Debug)]
pub(super) struct Places {
    /// For each block one more than its place; 0: it has none. What was never touched takes no memory.
    after: Vec<u32>,
    count: u32,
}

impl Places {
    pub(super) fn of(&self, block: u64) -> Option<u64> {
        self.after.get(block as usize)?.checked_sub(1).map(u64::from)
    }

    /// How many have one.
    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// The block's place, and whether it is new.
    fn take(&mut self, block: u64) -> io::Result<(u64, bool)> {
        let after = self.after.get_mut(block as usize).ok_or(io::ErrorKind::InvalidInput)?;
        let is_new = *after == 0;
        if is_new {
            self.count += 1;
            *after = self.count;
        }
        Ok((u64::from(*after - 1), is_new))
    }
}

/// Writes entries of blocks from an offset on, into a file that has zeros there.
pub(super) fn write_entries<const BYTES: usize>(
    file: &File,
    offset: u64,
    blocks: Range<u64>,
    entry: impl Fn(u64) -> [u8; BYTES],
) -> io::Result<()> {
    let piece_blocks = PIECE_BYTES / BYTES;
    for first in blocks.clone().step_by(piece_blocks) {
        let last = blocks.end.min(first + piece_blocks as u64);
        let bytes: Vec<u8> = (first..last).flat_map(&entry).collect();
        if bytes.iter().any(|&byte| byte != 0) {
            file.write_all_at(&bytes, offset + (first - blocks.start) * BYTES as u64)?;
        }
    }
    Ok(())
}

/// An image that is being written, by any number of threads.
#[derive(Debug)]
pub struct BlockMapWriter {
    file: File,
    /// The same file, for queues.
    disk: FileDisk,
    map: Box<dyn NewMap>,
    layout: NewLayout,
    /// Held for a moment once a run of data.
    places: Mutex<Places>,
    /// Whether the file system reserves storage, as far as is known.
    can_reserve: AtomicBool,
}

impl BlockMapWriter {
    /// Starts an image in an empty file, open for reading and writing; `path` is what it is to be called in the end.
    ///
    /// # Errors
    /// When the options are impossible, or the file is.
    pub fn new(file: File, path: &Path, options: &BlockMapCreateOptions) -> Result<Self, ImageError> {
        Self::new_while(file, path, options, &|| true)
    }

    /// The same, as long as `goes_on` says so, which is asked all the time that a preallocation takes.
    ///
    /// # Errors
    /// As [`BlockMapWriter::new`]; when it is not to go on.
    pub fn new_while(
        file: File,
        path: &Path,
        options: &BlockMapCreateOptions,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<Self, ImageError> {
        let map = options.map(path)?;
        let layout = map.layout();
        let failed = |source| ImageError::System { action: "write", path: path.to_owned(), source };
        // Whoever writes does so in a thread of its own.
        let options_of_file = FileOptions { engine: Engine::Sync, ..FileOptions::default() };
        let disk = FileDisk::growing(file.try_clone().map_err(failed)?, &options_of_file)?;
        let is_full = options.is_fixed || options.preallocation != Preallocation::Off;
        let blocks = layout.blocks();
        // No format has more blocks than 32 bits can count.
        let mut places = Places { after: vec![0; blocks as usize], count: 0 };
        if is_full {
            (0..blocks).try_for_each(|block| places.take(block).map(drop)).map_err(failed)?;
        }
        let writer = Self { file, disk, map, layout, places: Mutex::new(places), can_reserve: true.into() };
        if is_full {
            writer.reserve_all(options.preallocation, goes_on).map_err(failed)?;
        }
        Ok(writer)
    }

    /// Reserves what all blocks need.
    fn reserve_all(&self, preallocation: Preallocation, goes_on: &dyn Fn() -> bool) -> io::Result<()> {
        let layout = &self.layout;
        let end = self.map.file_bytes(layout.blocks());
        reserve(&self.file, layout.data_offset, end - layout.data_offset, preallocation, goes_on)?;
        if layout.lead_bytes == 0 {
            return Ok(());
        }
        (0..layout.blocks()).try_for_each(|place| check(goes_on).and_then(|()| self.write_lead(place)))
    }

    fn write_lead(&self, place: u64) -> io::Result<()> {
        match self.layout.lead_bytes {
            0 => Ok(()),
            bytes => self.file.write_all_at(&vec![0xff; bytes as usize], self.layout.lead_offset(place)),
        }
    }

    /// Bytes of a block of the disk.
    pub fn block_bytes(&self) -> u64 {
        self.layout.block_bytes
    }

    /// A queue to the file, for data: its offsets are the file's.
    ///
    /// # Errors
    /// When its means cannot be had.
    pub fn open_queue(&self, memory: &MemoryMap, depth: usize) -> io::Result<Box<dyn Queue>> {
        self.disk.open_queue(memory, depth)
    }

    /// Where in the file the byte at `offset` of the disk lies, and what follows it in its block. A block that has no
    /// place gets one: it reads as zeros until it is written to.
    ///
    /// # Errors
    /// When the file cannot be written, or the byte is not on the disk.
    pub fn place(&self, offset: u64) -> io::Result<u64> {
        let (block, within) = (offset / self.layout.block_bytes, offset % self.layout.block_bytes);
        let (place, is_new) = self.places().take(block)?;
        if is_new {
            self.write_lead(place)?;
        }
        Ok(self.layout.lead_offset(place) + self.layout.lead_bytes + within)
    }

    /// Reserves storage for data that are about to be written to the file: writing to it is a third faster on ext4. For
    /// just these, as the rest of a block stays a hole. A file system that cannot is not asked again.
    pub fn reserve(&self, offset: u64, length_bytes: u64) {
        if length_bytes >= RESERVED_BYTES_MIN && self.can_reserve.load(Ordering::Relaxed) {
            let reserved = fallocate(&self.file, FallocateFlags::empty(), offset, length_bytes);
            self.can_reserve.store(reserved.is_ok(), Ordering::Relaxed);
        }
    }

    /// Completes the image. Nothing is made stable.
    ///
    /// # Errors
    /// When the tables cannot be written.
    pub fn finish(self) -> io::Result<()> {
        let places = self.places();
        self.file.set_len(self.map.file_bytes(places.count().into()))?;
        self.map.write(&self.file, &places)
    }

    fn places(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
