//! Writing a new qcow2 image from its beginning to its end: no table is read, and each is written once.
//!
//! Any number of threads take room in the file, write there what they like and say which clusters of the disk it is.
//! Every byte of the disk is settled once, zeros included; a table whose disk bytes are all settled is written and
//! forgotten, so a large disk costs no more memory than a small one. The refcounts follow at the end: all that was
//! taken is in use.
//!
//! QEMU's docs/interop/qcow2.txt is the format.

use super::create::{Qcow2Backing, Qcow2CreateOptions, Qcow2DataFile, Qcow2Features};
use super::entries::{COPIED, Layout as Clusters, Mapping, Place};
use super::header::{
    AUTOCLEAR_DATA_FILE_RAW, COMPATIBLE_LAZY_REFCOUNTS, COMPRESSION_ZSTD, EXTENSION_BACKING_FORMAT,
    EXTENSION_DATA_FILE, EXTENSION_ENCRYPTION, INCOMPATIBLE_COMPRESSION, INCOMPATIBLE_DATA_FILE,
    INCOMPATIBLE_EXTENDED_L2,
};
use super::new_refcounts::NewRefcounts;
use super::sharers::Sharers;
use super::{encryption, header};
use crate::formats::luks::{EncryptedDisk, NewVolume};
use crate::formats::{ImageError, NewLuks};
use crate::{Disk, Engine, FileDisk, FileOptions, MemoryMap, OpenedFile, Queue};
use rustix::fs::{FallocateFlags, fallocate};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Storage is reserved so far ahead: writing to it is a third faster on ext4.
const RESERVED_BYTES: u64 = 64 << 20;

/// Where a header has the offset and the length of its backing file's name.
const BACKING_NAME_AT: Range<usize> = 8..20;

/// Where an image is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Onto {
    /// A file that is empty, and gets storage ahead of what is written.
    Reserved,
    /// A file that is empty.
    Empty,
    /// A device: what was there before is there still.
    Device,
}

/// What is written as a whole, whenever the power is cut.
const SECTOR_BYTES: usize = 512;

/// A qcow2 image that is being written.
pub struct Qcow2Writer {
    file: File,
    onto: Onto,
    /// The same file, for queues, which encrypt if the image is encrypted.
    disk: Arc<dyn Disk>,
    /// Where the header of encryption is.
    encryption: Option<header::Table>,
    size_bytes: u64,
    cluster_bits: u32,
    /// What its L2 entries are.
    clusters: Clusters,
    features: Qcow2Features,
    backing: Option<Qcow2Backing>,
    data_file: Option<Qcow2DataFile>,
    /// Held for a moment once a megabyte or so.
    pub(super) layout: Mutex<Layout>,
}

#[derive(Debug)]
pub(super) struct Layout {
    /// Clusters from here on are free.
    free_cluster: u64,
    /// What is left of the clusters that compressed data were last put into.
    packed: Range<u64>,
    l1: Vec<u64>,
    /// Tables that are not complete.
    tables: BTreeMap<u64, Table>,
    pub(super) sharers: Sharers,
    /// Where what was reserved ends; `None` where nothing can be.
    reserved_end: Option<u64>,
}

#[derive(Debug)]
struct Table {
    /// None while nothing is in it.
    entries: Option<Box<[u64]>>,
    /// Bytes of the disk that nothing is known of yet.
    left_bytes: u64,
}

impl Qcow2Writer {
    /// Starts an image in an empty file, open for reading and writing. Of the options, the size and the clusters count.
    ///
    /// # Errors
    /// When the options are impossible, or the file is.
    pub fn new(file: File, options: &Qcow2CreateOptions) -> Result<Self, ImageError> {
        if options.data_file.is_some() || options.backing.is_some() && !options.features.can_hide_clusters() {
            let problem = "an image is not written in one go with a data file, nor over a backing file if it is of \
                           version 2 or has extended L2 entries";
            return Err(ImageError::Invalid(problem.into()));
        }
        Self::of(file, options, Onto::Reserved)
    }

    /// Starts an image on a block device, open for reading and writing, which nobody else uses. Whatever it was, it is
    /// no image from now on, until this one is complete.
    ///
    /// # Errors
    /// When the options are impossible, or there is no key, before anything is written; or the device cannot be
    /// written.
    pub fn on_device(device: &OpenedFile, options: &Qcow2CreateOptions) -> Result<Self, ImageError> {
        options.check()?;
        options.check_for_device()?;
        if options.backing.is_some() && !options.features.can_hide_clusters() {
            let problem = "an image that is filled on a device is over a backing file with compat=1.1 and without \
                           extended_l2 only: leave these, or the backing file, out";
            return Err(ImageError::Invalid(problem.into()));
        }
        if let Some(NewLuks { key, .. }) = &options.encryption {
            // All clones have it once it was read.
            key.passphrase()?;
        }
        let failed = |source| ImageError::System { action: "write", path: device.path().to_owned(), source };
        let file = device.file();
        let nothing = vec![0; options.cluster_bytes as usize];
        file.write_all_at(&nothing, 0).and_then(|()| file.sync_all()).map_err(failed)?;
        Self::of(file.try_clone().map_err(failed)?, options, Onto::Device)
    }

    /// The same as [`Qcow2Writer::new`], of an image that may have a backing file.
    pub(super) fn of(file: File, options: &Qcow2CreateOptions, onto: Onto) -> Result<Self, ImageError> {
        options.check()?;
        let Qcow2CreateOptions { size_bytes, cluster_bytes, ref backing, .. } = *options;
        let cluster_bits = cluster_bytes.ilog2();
        let handle = file.try_clone().map_err(|error| ImageError::Invalid(format!("no more descriptors: {error}")))?;
        // Whoever writes does so in a thread of its own.
        let disk = FileDisk::growing(handle, &FileOptions { engine: Engine::Sync, ..FileOptions::default() })?;
        let mut disk: Arc<dyn Disk> = Arc::new(disk);
        let clusters = Clusters {
            cluster_bits,
            is_extended: options.features.has_extended_l2,
            has_data_file: options.data_file.is_some(),
            has_zeros: options.features.version >= 3,
        };
        let l1_entries = size_bytes.div_ceil(1 << clusters.table_covers_bits());
        let l1_clusters = (l1_entries * 8).div_ceil(1 << cluster_bits);
        let mut free_cluster = 1 + l1_clusters;
        let mut encryption = None;
        if let Some(NewLuks { key, options }) = &options.encryption {
            let failed = |error| ImageError::Invalid(format!("the header of encryption cannot be made: {error}"));
            let NewVolume { mut head, payload_offset_bytes, cipher } =
                NewVolume::make(options, key.passphrase()?).map_err(failed)?;
            let offset_bytes = free_cluster << cluster_bits;
            if onto == Onto::Device {
                // 2 MiB or so, in which key slots are that nobody has filled.
                head.resize(head.len().max(payload_offset_bytes as usize), 0);
            }
            file.write_all_at(&head, offset_bytes).map_err(failed)?;
            free_cluster += payload_offset_bytes.div_ceil(1 << cluster_bits);
            encryption = Some(header::Table { offset_bytes, length_bytes: payload_offset_bytes });
            disk = Arc::new(EncryptedDisk::new(disk, Arc::new(cipher)));
        }
        // What of a cluster is no data is to have no storage.
        let reserved_end = (onto == Onto::Reserved && !clusters.is_extended).then_some(0);
        let layout = Layout {
            free_cluster,
            packed: 0..0,
            // Bounded by the options' check: 32 MiB.
            l1: vec![0; l1_entries as usize],
            tables: BTreeMap::new(),
            sharers: Sharers::new(cluster_bits, options.features.refcount_order),
            reserved_end,
        };
        let (backing, data_file, features) = (backing.clone(), options.data_file.clone(), options.features);
        let layout = Mutex::new(layout);
        Ok(Self {
            file,
            onto,
            disk,
            encryption,
            size_bytes,
            cluster_bits,
            clusters,
            features,
            backing,
            data_file,
            layout,
        })
    }

    /// Bytes in a cluster.
    pub fn cluster_bytes(&self) -> u64 {
        1 << self.cluster_bits
    }

    /// Bytes of a part of a cluster, which is data or is not: the whole of it without extended L2 entries.
    pub fn part_bytes(&self) -> u64 {
        1 << self.clusters.part_bits()
    }

    /// The parts that a range within a cluster touches: bit n is part n.
    pub fn parts_touched(&self, range: Range<u64>) -> u32 {
        self.clusters.parts_touched(range.start, range.end)
    }

    /// Whether clusters are compressed by zstd; else by zlib.
    pub fn is_zstd(&self) -> bool {
        self.features.is_zstd
    }

    /// Size of the disk.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// A queue to the file, for data: its offsets are the file's.
    ///
    /// # Errors
    /// When its means cannot be had.
    pub fn open_queue(&self, memory: &MemoryMap, depth: usize) -> io::Result<Box<dyn Queue>> {
        self.disk.open_queue(memory, depth)
    }

    /// Takes room for `count` clusters of the disk, each with the parts of it that are data ([`Self::parts_touched`]),
    /// those that begin at the offsets in `clusters`: one after the other in the file, from the offset that comes back.
    /// The caller writes each of the parts in full; others read as zeros.
    pub fn place(&self, count: usize, clusters: impl Iterator<Item = (u64, u32)>) -> u64 {
        let mut layout = self.layout();
        let start = layout.take_clusters(count as u64, self.cluster_bits);
        layout.reserve(&self.file, self.cluster_bits);
        for (index, (offset, parts)) in clusters.take(count).enumerate() {
            let at = start + ((index as u64) << self.cluster_bits);
            self.enter(&mut layout, offset, [at | COPIED, parts.into()]);
        }
        start
    }

    /// The same of clusters that read as zeros, or as what is behind the image, and of which nothing need be written;
    /// they lie one after the other on the disk.
    pub(super) fn place_zeros(&self, count: usize, clusters: impl Iterator<Item = u64>) -> u64 {
        // What is behind them shows where no part is there, nor zeros.
        let all = if self.backing.is_none() { self.clusters.all_parts() } else { 0 };
        if self.encryption.is_none() && self.data_file.is_none() {
            return self.place(count, clusters.map(|offset| (offset, all)));
        }
        let mut clusters = clusters.take(count).peekable();
        let mut layout = self.layout();
        let start = match &self.data_file {
            // There each cluster lies where it does on the disk.
            Some(_) => clusters.peek().copied().unwrap_or(0),
            None => layout.take_clusters(count as u64, self.cluster_bits),
        };
        // What lies in the file is zeros, but none that decrypt to any.
        let (data, zeros) = if self.encryption.is_none() { (all, 0) } else { (0, all) };
        for (index, offset) in clusters.enumerate() {
            let offset_bytes = start + ((index as u64) << self.cluster_bits);
            let place = Some(Place { offset_bytes, is_own: true });
            self.enter(&mut layout, offset, self.clusters.words(Mapping { place, data, zeros }));
        }
        start
    }

    /// Says that the clusters of the disk that begin at these offsets read as zeros, whatever is behind the image.
    pub(crate) fn hide(&self, clusters: Vec<u64>) {
        let zeros = self.clusters.words(Mapping { place: None, data: 0, zeros: self.clusters.all_parts() });
        let mut layout = self.layout();
        clusters.into_iter().for_each(|offset| self.enter(&mut layout, offset, zeros));
    }

    /// Takes room for compressed clusters of the disk, each (its offset on the disk, its compressed length): one after
    /// the other in the file, from the offset that comes back with how many these are: all of them, or one where no
    /// more can share a cluster of the file than a narrow refcount says.
    ///
    /// # Errors
    /// When refcounts have to be written, as too many would be remembered, and cannot be.
    pub fn place_compressed(&self, clusters: &[(u64, u32)]) -> io::Result<(u64, usize)> {
        let mut layout = self.layout();
        let clusters = match self.features.refcount_order {
            4.. => clusters,
            order => {
                layout.leave_shared((1 << (1 << order)) - 1, self.cluster_bits);
                &clusters[..clusters.len().min(1)]
            }
        };
        let length_bytes = clusters.iter().map(|&(_, length)| u64::from(length)).sum();
        let start = layout.take_bytes(length_bytes, self.cluster_bits);
        layout.reserve(&self.file, self.cluster_bits);
        let mut at = start;
        for &(offset, length) in clusters {
            let end = at + u64::from(length);
            layout.sharers.share(at >> self.cluster_bits..=(end - 1) >> self.cluster_bits);
            self.enter(&mut layout, offset, [self.clusters.compressed_word(at, end), 0]);
            at = end;
        }
        let Layout { sharers, free_cluster, packed, .. } = &mut *layout;
        let take = || {
            *free_cluster += 1;
            (*free_cluster - 1) << self.cluster_bits
        };
        sharers.write_blocks(packed.start >> self.cluster_bits, take, |bytes, at| self.file.write_all_at(bytes, at))?;
        Ok((start, clusters.len()))
    }

    fn enter(&self, layout: &mut Layout, offset: u64, entry: [u64; 2]) {
        let (table_bits, words) = (self.clusters.table_bits(), self.clusters.entry_words());
        let table = self.table(layout, offset >> self.clusters.table_covers_bits());
        let index = (offset >> self.cluster_bits) as usize & ((1 << table_bits) - 1);
        let entries = table.entries.get_or_insert_with(|| vec![0; words << table_bits].into_boxed_slice());
        entries[index * words..][..words].copy_from_slice(&entry[..words]);
    }

    fn table<'l>(&self, layout: &'l mut Layout, index: u64) -> &'l mut Table {
        let covers_bytes = 1 << self.clusters.table_covers_bits();
        let left_bytes = self.size_bytes.saturating_sub(index * covers_bytes).min(covers_bytes);
        layout.tables.entry(index).or_insert(Table { entries: None, left_bytes })
    }

    /// Writes to the file what was compressed.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_all_at(bytes, offset)
    }

    /// Says that all of a range of the disk has been placed, or is zeros. Each byte is settled once, after it was
    /// placed.
    ///
    /// # Errors
    /// When a table cannot be written.
    pub fn settle(&self, range: Range<u64>) -> io::Result<()> {
        let covers_bytes: u64 = 1 << self.clusters.table_covers_bits();
        let mut at = range.start;
        while at < range.end {
            let index = at / covers_bytes;
            let end = ((index + 1) * covers_bytes).min(range.end);
            self.settle_in_table(index, end - at)?;
            at = end;
        }
        Ok(())
    }

    fn settle_in_table(&self, index: u64, length_bytes: u64) -> io::Result<()> {
        let mut layout = self.layout();
        let table = self.table(&mut layout, index);
        table.left_bytes = table.left_bytes.saturating_sub(length_bytes);
        if table.left_bytes > 0 {
            return Ok(());
        }
        let Some(Table { entries: Some(entries), .. }) = layout.tables.remove(&index) else { return Ok(()) };
        let offset = layout.take_clusters(1, self.cluster_bits);
        if let Some(entry) = layout.l1.get_mut(index as usize) {
            *entry = offset | COPIED;
        }
        drop(layout);
        self.write_table(&entries, offset)
    }

    fn write_table(&self, entries: &[u64], offset: u64) -> io::Result<()> {
        let bytes: Vec<u8> = entries.iter().flat_map(|entry| entry.to_be_bytes()).collect();
        self.file.write_all_at(&bytes, offset)
    }

    /// Says that the disk ends here, all before which was settled, and that nothing behind it is or will be.
    ///
    /// # Errors
    /// When it is no multiple of 512 bytes, there is no such place, or a table cannot be written.
    pub fn end_at(&mut self, size_bytes: u64) -> io::Result<()> {
        if size_bytes > self.size_bytes || !size_bytes.is_multiple_of(512) {
            return Err(io::Error::other(format!("a disk cannot end after {size_bytes} bytes")));
        }
        self.settle(size_bytes..self.size_bytes)?;
        self.size_bytes = size_bytes;
        Ok(())
    }

    /// Completes the image. All of the disk was settled, and everything placed was written. Nothing is made stable, but
    /// on a device all that comes before the sector which makes an image of it.
    ///
    /// # Errors
    /// When the tables cannot be written.
    pub fn finish(self) -> io::Result<()> {
        let layout = self.layout();
        if !layout.tables.is_empty() {
            return Err(io::Error::other("a part of the disk was not settled"));
        }
        let (order, blocks) = (self.features.refcount_order, layout.sharers.blocks().to_vec());
        let refcounts = NewRefcounts::of(layout.free_cluster, self.cluster_bits, order, blocks);
        let users = |cluster: u64| Ok(layout.sharers.users(cluster));
        refcounts.write(users, |bytes, offset| self.file.write_all_at(bytes, offset))?;
        let l1: Vec<u8> = layout.l1.iter().flat_map(|entry| entry.to_be_bytes()).collect();
        self.file.write_all_at(&l1, 1 << self.cluster_bits)?;
        let header = self.header(layout.l1.len() as u32, &refcounts)?;
        if self.onto == Onto::Device {
            let (first, rest) = header.split_at(header.len().min(SECTOR_BYTES));
            self.file.write_all_at(rest, SECTOR_BYTES as u64)?;
            self.file.sync_all()?;
            return self.file.write_all_at(first, 0);
        }
        self.file.write_all_at(&header, 0)?;
        // What was reserved behind it is given back.
        self.file.set_len(refcounts.end_cluster() << self.cluster_bits)
    }

    /// "Header": 72 or 112 bytes, the format of the backing file, the end of the header extensions, and the backing
    /// file's name.
    fn header(&self, l1_entries: u32, refcounts: &NewRefcounts) -> io::Result<Vec<u8>> {
        const HEADER_V3_BYTES: u32 = 112;
        let Qcow2Features { version, refcount_order, has_lazy_refcounts, has_extended_l2, is_zstd } = self.features;
        let mut bytes = Vec::with_capacity(128);
        let l1_offset: u64 = 1 << self.cluster_bits;
        bytes.extend(b"QFI\xfb");
        bytes.extend(version.to_be_bytes());
        bytes.extend([0; 12]); // Where the backing file's name is.
        bytes.extend(self.cluster_bits.to_be_bytes());
        bytes.extend(self.size_bytes.to_be_bytes());
        let encryption = if self.encryption.is_some() { encryption::LUKS } else { encryption::NONE };
        bytes.extend(encryption.to_be_bytes());
        bytes.extend(l1_entries.to_be_bytes());
        bytes.extend(l1_offset.to_be_bytes());
        bytes.extend(refcounts.table_offset_bytes().to_be_bytes());
        bytes.extend(refcounts.table_clusters().to_be_bytes());
        bytes.extend([0; 12]); // No snapshots.
        if version >= 3 {
            let feature = |is_there: bool, feature: u64| if is_there { feature } else { 0 };
            let incompatible = feature(has_extended_l2, INCOMPATIBLE_EXTENDED_L2)
                | feature(is_zstd, INCOMPATIBLE_COMPRESSION)
                | feature(self.data_file.is_some(), INCOMPATIBLE_DATA_FILE);
            let is_data_file_raw = self.data_file.as_ref().is_some_and(|data_file| data_file.is_raw);
            bytes.extend(incompatible.to_be_bytes());
            bytes.extend(feature(has_lazy_refcounts, COMPATIBLE_LAZY_REFCOUNTS).to_be_bytes());
            bytes.extend(feature(is_data_file_raw, AUTOCLEAR_DATA_FILE_RAW).to_be_bytes());
            bytes.extend(refcount_order.to_be_bytes());
            bytes.extend(HEADER_V3_BYTES.to_be_bytes());
            bytes.extend([if is_zstd { COMPRESSION_ZSTD } else { 0 }, 0, 0, 0, 0, 0, 0, 0]);
        }
        if let Some(header::Table { offset_bytes, length_bytes }) = self.encryption {
            bytes.extend(EXTENSION_ENCRYPTION.to_be_bytes());
            bytes.extend(16_u32.to_be_bytes());
            bytes.extend(offset_bytes.to_be_bytes());
            bytes.extend(length_bytes.to_be_bytes());
        }
        let data_file = self.data_file.as_ref().map(|data_file| (EXTENSION_DATA_FILE, &data_file.name));
        let backing = self.backing.as_ref().map(|backing| (EXTENSION_BACKING_FORMAT, &backing.format));
        for (extension, text) in data_file.into_iter().chain(backing) {
            bytes.extend(extension.to_be_bytes());
            bytes.extend((text.len() as u32).to_be_bytes());
            bytes.extend(text.as_bytes());
            bytes.resize(bytes.len().next_multiple_of(8), 0);
        }
        bytes.extend([0; 8]); // No more extensions.
        if let Some(Qcow2Backing { name, .. }) = &self.backing {
            let place = [&(bytes.len() as u64).to_be_bytes()[..], &(name.len() as u32).to_be_bytes()].concat();
            bytes[BACKING_NAME_AT].copy_from_slice(&place);
            bytes.extend(name.as_bytes());
        }
        if bytes.len() > 1 << self.cluster_bits {
            return Err(io::Error::other("the names of other files do not fit into its first cluster"));
        }
        Ok(bytes)
    }

    fn layout(&self) -> MutexGuard<'_, Layout> {
        self.layout.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Layout {
    fn take_clusters(&mut self, count: u64, cluster_bits: u32) -> u64 {
        let start = self.free_cluster << cluster_bits;
        self.free_cluster += count;
        start
    }

    /// Compressed data begin where the last ended, unless something else came between and they do not fit.
    fn take_bytes(&mut self, count: u64, cluster_bits: u32) -> u64 {
        let free = self.free_cluster << cluster_bits;
        if self.packed.end != free && self.packed.end - self.packed.start < count {
            self.packed = free..free;
        }
        let start = self.packed.start;
        let end = start + count;
        if end > self.packed.end {
            self.free_cluster = end.div_ceil(1 << cluster_bits);
            self.packed.end = self.free_cluster << cluster_bits;
        }
        self.packed.start = end;
        start
    }

    /// Goes on in the next cluster of the file where the last one has so many compressed ones.
    fn leave_shared(&mut self, most: u16, cluster_bits: u32) {
        let last = self.packed.start >> cluster_bits;
        if self.sharers.sharers(last) >= most {
            self.packed.start = ((last + 1) << cluster_bits).min(self.packed.end);
        }
    }

    /// Reserves storage ahead. A file system that cannot, or has none left, is not asked again.
    fn reserve(&mut self, file: &File, cluster_bits: u32) {
        let needed_end = self.free_cluster << cluster_bits;
        let Some(end) = self.reserved_end else { return };
        if needed_end <= end {
            return;
        }
        let new_end = needed_end + RESERVED_BYTES;
        self.reserved_end = fallocate(file, FallocateFlags::empty(), end, new_end - end).ok().map(|()| new_end);
    }
}
