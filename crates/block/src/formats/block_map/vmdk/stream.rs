//! A new VMDK that is written in one pass (streamOptimized): compressed grains in the disk's order, each behind a
//! marker that says which it is; behind those that it finds, a grain table; at the end the directory, and a footer that
//! says where that is.
//!
//! Grains that are there before others that come first wait for them in memory.

use super::super::writer::invalid;
use super::SECTOR_BYTES;
use super::new::{DESCRIPTOR_OFFSET, GRAIN_BYTES, TABLE_ENTRIES, VmdkCreateOptions, descriptor, extent_name, header};
use super::sparse::{AT_END, END_MARKER, FOOTER_MARKER, HAS_COMPRESSED_GRAINS, HAS_LINE_ENDS, HAS_MARKERS};
use crate::formats::ImageError;
use crate::{Disk, Engine, FileDisk, FileOptions, MemoryMap, Queue};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A directory of 8 MiB.
const SIZE_MAX_BYTES: u64 = 64 << 40;

/// Where everybody has the first grain.
const DATA_OFFSET: u64 = GRAIN_BYTES;

const TABLE_MARKER: u32 = 1;
const DIRECTORY_MARKER: u32 = 2;

/// Grains, each behind its marker, in whole sectors.
#[derive(Debug, Default)]
pub(crate) struct PackedGrains {
    bytes: Vec<u8>,
    /// Of each: its number, and where its marker begins.
    starts: Vec<(u64, usize)>,
}

impl PackedGrains {
    /// Adds what the grain at `disk_offset` was made into.
    pub(crate) fn push(&mut self, disk_offset: u64, packed: &[u8]) {
        self.starts.push((disk_offset / GRAIN_BYTES, self.bytes.len()));
        self.bytes.extend((disk_offset / SECTOR_BYTES).to_le_bytes());
        // A grain that becomes larger does so by a few bytes.
        self.bytes.extend((packed.len() as u32).to_le_bytes());
        self.bytes.extend(packed);
        self.bytes.resize(self.bytes.len().next_multiple_of(SECTOR_BYTES as usize), 0);
    }
}

/// A streamOptimized VMDK that is being written, by any number of threads.
#[derive(Debug)]
pub struct VmdkStreamWriter {
    file: File,
    /// The same file, for queues.
    disk: FileDisk,
    size_bytes: u64,
    options: VmdkCreateOptions,
    /// What the descriptor calls the file.
    name: String,
    stream: Mutex<Stream>,
    /// More of the disk is in the file.
    went_on: Condvar,
}

#[derive(Debug)]
struct Stream {
    /// All of the disk before is in the file.
    disk_offset: u64,
    /// What comes later: where it begins on the disk, where it ends, and its grains.
    early: BTreeMap<u64, (u64, PackedGrains)>,
    /// Where the file ends.
    end: u64,
    /// The table that is being filled: its number, and its entries.
    number: u64,
    table: Vec<u32>,
    directory: Vec<u32>,
}

impl VmdkStreamWriter {
    /// Bytes of a grain.
    pub const GRAIN_BYTES: u64 = GRAIN_BYTES;

    /// Starts an image of a disk of `size_bytes` in an empty file, which is to be called `path` in the end.
    ///
    /// # Errors
    /// When there is no such image, or the file is not possible.
    pub fn new(file: File, path: &Path, size_bytes: u64, options: VmdkCreateOptions) -> Result<Self, ImageError> {
        if size_bytes == 0 || size_bytes > SIZE_MAX_BYTES || !size_bytes.is_multiple_of(SECTOR_BYTES) {
            return Err(invalid(format!(
                "a disk of {size_bytes} bytes is not possible in a compressed VMDK made here: 512 bytes at least, \
                 64 TiB at most, a multiple of 512"
            )));
        }
        let name = extent_name(path)?;
        let failed = |source| ImageError::System { action: "write", path: path.to_owned(), source };
        // Whoever writes does so in a thread of its own.
        let options_of_file = FileOptions { engine: Engine::Sync, ..FileOptions::default() };
        let disk = FileDisk::growing(file.try_clone().map_err(failed)?, &options_of_file)?;
        let tables = size_bytes.div_ceil(GRAIN_BYTES * TABLE_ENTRIES);
        let stream = Stream {
            disk_offset: 0,
            early: BTreeMap::new(),
            end: DATA_OFFSET,
            number: 0,
            table: vec![0; TABLE_ENTRIES as usize],
            directory: vec![0; tables as usize],
        };
        let (stream, went_on) = (Mutex::new(stream), Condvar::new());
        Ok(Self { file, disk, size_bytes, options, name, stream, went_on })
    }

    pub(crate) fn open_queue(&self, memory: &MemoryMap, depth: usize) -> io::Result<Box<dyn Queue>> {
        self.disk.open_queue(memory, depth)
    }

    /// Takes all grains of a part of the disk; those that are not there are zeros. Parts come in any order.
    pub(crate) fn enter(&self, part: Range<u64>, grains: PackedGrains) -> io::Result<()> {
        let mut stream = self.stream();
        stream.early.insert(part.start, (part.end, grains));
        let (start, mut bytes) = (stream.end, Vec::new());
        loop {
            let here = stream.disk_offset;
            let Some((part_end, grains)) = stream.early.remove(&here) else { break };
            stream.append(&grains, &mut bytes)?;
            stream.disk_offset = part_end;
        }
        self.file.write_all_at(&bytes, start)?;
        self.went_on.notify_all();
        Ok(())
    }

    /// Waits a moment for all of the disk before `offset`; whether it is in the file.
    pub(crate) fn wait_for(&self, offset: u64) -> bool {
        const MOMENT: Duration = Duration::from_millis(50);
        let is_missing = |stream: &mut Stream| stream.disk_offset < offset;
        let waited = self.went_on.wait_timeout_while(self.stream(), MOMENT, is_missing);
        waited.unwrap_or_else(PoisonError::into_inner).0.disk_offset >= offset
    }

    /// Completes the image. Nothing is made stable.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn finish(self) -> io::Result<()> {
        let mut stream = self.stream();
        let (start, mut bytes) = (stream.end, Vec::new());
        stream.end_table(&mut bytes)?;
        let directory: Vec<u8> = stream.directory.iter().flat_map(|entry| entry.to_le_bytes()).collect();
        let directory_sector = stream.append_table(DIRECTORY_MARKER, &directory, &mut bytes)?;
        let footer = self.header(directory_sector.into());
        stream.append_table(FOOTER_MARKER, &footer, &mut bytes)?;
        stream.put(&marker(END_MARKER, 0), &mut bytes)?;
        self.file.write_all_at(&bytes, start)?;
        let descriptor = descriptor(self.size_bytes, "streamOptimized", &self.name, self.options)?;
        self.file.write_all_at(descriptor.as_bytes(), DESCRIPTOR_OFFSET)?;
        self.file.write_all_at(&self.header(AT_END), 0)
    }

    fn header(&self, directory_sector: u64) -> [u8; SECTOR_BYTES as usize] {
        let flags = HAS_LINE_ENDS | HAS_COMPRESSED_GRAINS | HAS_MARKERS;
        let mut header = header(3, flags, self.size_bytes, [0, directory_sector, DATA_OFFSET / SECTOR_BYTES]);
        // By deflate.
        header[77] = 1;
        header
    }

    fn stream(&self) -> MutexGuard<'_, Stream> {
        self.stream.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The sector before what is no grain, of so many bytes.
fn marker(kind: u32, length_bytes: u64) -> [u8; SECTOR_BYTES as usize] {
    let mut marker = [0; SECTOR_BYTES as usize];
    marker[..8].copy_from_slice(&length_bytes.div_ceil(SECTOR_BYTES).to_le_bytes());
    marker[12..16].copy_from_slice(&kind.to_le_bytes());
    marker
}

impl Stream {
    /// Puts bytes, in whole sectors, at the end of the file: in which sector they begin. They are written later.
    fn put(&mut self, part: &[u8], bytes: &mut Vec<u8>) -> io::Result<u32> {
        let sector = u32::try_from(self.end / SECTOR_BYTES)
            .map_err(|_| io::Error::other("it has more than 2 TiB, which no VMDK can have"))?;
        bytes.extend(part);
        let length = part.len().next_multiple_of(SECTOR_BYTES as usize);
        bytes.resize(bytes.len() + length - part.len(), 0);
        self.end += length as u64;
        Ok(sector)
    }

    fn append_table(&mut self, kind: u32, table: &[u8], bytes: &mut Vec<u8>) -> io::Result<u32> {
        self.put(&marker(kind, table.len() as u64), bytes)?;
        self.put(table, bytes)
    }

    /// Ends the table that is being filled, which is left out if it finds nothing.
    fn end_table(&mut self, bytes: &mut Vec<u8>) -> io::Result<()> {
        if self.table.iter().any(|&entry| entry != 0) {
            let table: Vec<u8> = self.table.iter().flat_map(|entry| entry.to_le_bytes()).collect();
            let sector = self.append_table(TABLE_MARKER, &table, bytes)?;
            *self.directory.get_mut(self.number as usize).ok_or(io::ErrorKind::InvalidInput)? = sector;
            self.table.fill(0);
        }
        Ok(())
    }

    fn append(&mut self, grains: &PackedGrains, bytes: &mut Vec<u8>) -> io::Result<()> {
        let ends = grains.starts.iter().skip(1).map(|&(_, start)| start).chain([grains.bytes.len()]);
        for (&(grain, start), end) in grains.starts.iter().zip(ends) {
            if grain / TABLE_ENTRIES != self.number {
                self.end_table(bytes)?;
                self.number = grain / TABLE_ENTRIES;
            }
            let sector = self.put(grains.bytes.get(start..end).unwrap_or_default(), bytes)?;
            if let Some(entry) = self.table.get_mut((grain % TABLE_ENTRIES) as usize) {
                *entry = sector;
            }
        }
        Ok(())
    }
}
