//! qcow2 images. Their data take the same road as a raw file's.
//!
//! A request's range is looked up in the images' L2 tables, in slices of a page, which are in memory as far as they
//! were used lately ([`l2_cache`]: 8 MiB for a whole chain; without a lock). What lies in a file is pushed to the queue
//! of the file, with the request's own segments; unallocated and zero clusters are filled on the spot. The rest is for
//! one thread of the image's own ([`worker`]): tables that are not in memory, for which only the requests that need
//! them wait; and everything that changes what lies where ([`changes`]). What it changed ([`metadata`],
//! [`allocator`]) is in the file before it is looked up there ([`image_tables`]). Compressed clusters are read by
//! threads of their own ([`super::readers`]).
//!
//! What was acknowledged is in the file's page cache, metadata included: killing the process loses nothing of it. What
//! was flushed is on stable storage, and a power cut leaves an image with nothing wrong but clusters that nobody uses
//! ([`metadata`]).

mod allocator;
mod amend;
mod bitmaps;
mod census;
mod chain;
mod changes;
mod check;
mod closing;
mod commit;
mod copies;
mod create;
mod decompressor;
mod dirty_bits;
mod encryption;
mod entries;
mod grace;
mod header;
mod header_change;
mod image;
mod image_tables;
mod info;
mod internal_bitmaps;
mod internal_snapshots;
mod kept_bitmaps;
mod known_tables;
mod map;
mod metadata;
mod new_refcounts;
mod own_file;
mod packed_check;
mod pending_check;
mod pieces;
mod queue;
mod rebase;
mod refblock;
mod references;
mod repair;
mod resize;
mod sharers;
mod snapshots;
mod table_users;
#[cfg(test)]
mod tests;
mod use_counts;
mod use_map;
mod version_2;
mod worker;
mod writer;

use super::chain_files::ChainFiles;
use super::preallocation::Preallocation;
use super::{AllowedDirectories, ImageError, KeyFile, LuksSlotChange, l2_cache};
use crate::{Disk, Extent, FileOptions, Geometry, MemoryMap, OpenedFile, Queue};
pub use amend::Qcow2Amendment;
use chain::Opened;
pub use closing::Qcow2Closing;
pub use commit::Qcow2Commit;
pub use create::{Qcow2Backing, Qcow2CreateOptions, Qcow2DataFile, Qcow2Features};
pub(crate) use create::{base_of_delta, create_delta};
pub(super) use encryption::DataCipher;
pub use encryption::Qcow2Encryption;
pub use info::{Qcow2Bitmap, Qcow2Info};
pub use internal_bitmaps::Qcow2BitmapAction;
pub use map::{Qcow2Mapping, Qcow2MappingKind};
use queue::Qcow2Split;
pub use rebase::{Qcow2Rebase, Qcow2Shown, write_differences};
pub use repair::Qcow2Check;
pub use snapshots::Qcow2Snapshot;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use worker::Worker;
pub use writer::Qcow2Writer;

/// A disk in a qcow2 image, versions 2 and 3, with backing files, in whatever format can be read here, and external
/// data files.
///
/// Refused, with a sentence that says what to do: images that are encrypted by another key than that of `allowed`, or
/// need what is not known here. One that is marked corrupt is only read, and one that is marked dirty is repaired
/// before it is opened to be written to.
#[derive(Debug)]
pub struct Qcow2Disk {
    worker: Arc<Worker>,
    notes: Vec<String>,
}

/// An image that is in use as long as this is there, with all that is behind it, and of which nothing is read.
pub struct Qcow2Held(Opened);

impl Qcow2Held {
    /// Opens an image and all that is behind it, for reading, and locks their files. What is encrypted takes no key.
    ///
    /// # Errors
    /// As [`Qcow2Disk::open`], but for keys.
    pub fn of(image: &OpenedFile, allowed: &AllowedDirectories) -> Result<Self, ImageError> {
        let failed = |source| ImageError::System { action: "open", path: image.path().to_owned(), source };
        Ok(Self(chain::hold(image.file().try_clone().map_err(failed)?, image.path(), allowed)?))
    }

    /// Bytes of its disk.
    pub fn size_bytes(&self) -> u64 {
        self.0.image.size_bytes
    }
}

impl Qcow2Disk {
    /// Opens the image at `path`. Its data are carried by the engine in `options`; backing files are opened for
    /// reading, and they and an external data file only through `allowed`.
    ///
    /// # Errors
    /// When the image or one that it depends on cannot be opened, is damaged, is not allowed or needs what is not
    /// supported; the error names it.
    pub fn open(path: &Path, options: &FileOptions, allowed: &AllowedDirectories) -> Result<Self, ImageError> {
        Self::on(chain::open(path, options, allowed)?.unlocked()?, path)
    }

    /// Makes an image at `path`, in the place of whatever file is there.
    ///
    /// # Errors
    /// When the options contradict each other, or the file cannot be written; then the old file is as it was.
    pub fn create(path: &Path, options: &Qcow2CreateOptions) -> Result<(), ImageError> {
        create::create(path, options)
    }

    /// Makes the empty `file` an image, with its data in the empty `data_file` if the options name one. Both are open
    /// for reading and writing; `path` is what messages call the image. `goes_on` is asked all the time that a
    /// preallocation takes.
    ///
    /// # Errors
    /// When the options contradict each other, the files cannot be written, or it is not to go on.
    pub fn create_in(
        file: &File,
        data_file: Option<&File>,
        path: &Path,
        options: &Qcow2CreateOptions,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<(), ImageError> {
        create::format(file, data_file, path, options, goes_on)
    }

    /// Makes the block device an image, whatever it holds: without preallocation, and with its data in itself. It is
    /// open for reading and writing, and nobody else uses it; `path` is what messages call it. On stable storage.
    ///
    /// # Errors
    /// When the options contradict each other, or the device is too small for the tables, or cannot be written.
    pub fn create_on_device(device: &File, path: &Path, options: &Qcow2CreateOptions) -> Result<(), ImageError> {
        create::create_on_device(device, path, options)
    }

    /// Opens the image in `file` as [`Qcow2Disk::open`] does the one at a path: `path` is what messages call it, and
    /// where what it refers to starts from.
    ///
    /// # Errors
    /// As [`Qcow2Disk::open`].
    pub fn open_in(
        file: File,
        path: &Path,
        options: &FileOptions,
        allowed: &AllowedDirectories,
    ) -> Result<Self, ImageError> {
        Self::on(chain::open_in(file, path, options, allowed)?.unlocked()?, path)
    }

    /// Opens a new image in `file` as [`Qcow2Disk::open_in`] does, whose data file, if it has one, is open, as neither
    /// has its name yet.
    ///
    /// # Errors
    /// As [`Qcow2Disk::open`].
    pub fn open_new_in(
        file: File,
        data_file: Option<File>,
        path: &Path,
        options: &FileOptions,
        allowed: &AllowedDirectories,
    ) -> Result<Self, ImageError> {
        Self::on(chain::open_new(file, data_file, path, options, allowed)?.unlocked()?, path)
    }

    /// The same of an image that is behind others, whose files are known.
    ///
    /// # Errors
    /// As [`Qcow2Disk::open`].
    pub(super) fn open_behind(
        file: File,
        path: &Path,
        options: &FileOptions,
        allowed: &AllowedDirectories,
        files: &mut ChainFiles,
    ) -> Result<Self, ImageError> {
        let opened = chain::open_behind(file, path, options, allowed, files)?;
        Self::on(if files.are_only_held() { opened } else { opened.unlocked()? }, path)
    }

    /// Opens the image in `file` to see where its data lie ([`Qcow2Disk::map`]), for reading only: what is encrypted
    /// cannot be read without a key, and takes none for that. `lock`: as [`FileOptions::lock`].
    ///
    /// # Errors
    /// As [`Qcow2Disk::open`], but for the key.
    pub fn open_to_map(file: File, path: &Path, lock: bool, allowed: &AllowedDirectories) -> Result<Self, ImageError> {
        let options = FileOptions { read_only: true, lock, ..FileOptions::default() };
        Self::on(chain::open_in(file, path, &options, allowed)?, path)
    }

    /// Opens the image in `file` as it was when a snapshot of it was made, which is kept inside of it: the one with the
    /// id `which`, or that name. Only for reading.
    ///
    /// # Errors
    /// As [`Qcow2Disk::open`]; and when there is no such snapshot.
    pub fn open_snapshot_in(
        file: File,
        path: &Path,
        which: &str,
        options: &FileOptions,
        allowed: &AllowedDirectories,
    ) -> Result<Self, ImageError> {
        if !options.read_only {
            let problem = format!("its snapshot {which:?} is only read: add ,ro, or ,snapshot to drop what is written");
            return Err(ImageError::Unusable { path: path.to_owned(), problem });
        }
        let opened = chain::open_snapshot(file, path, which, options, allowed)?;
        Self::on(opened.unlocked()?, path)
    }

    /// Bytes of the disk in an image, which has all that it takes to be read, but for its key.
    ///
    /// # Errors
    /// When the image cannot be read, or used.
    pub fn size_bytes_of(image: &OpenedFile) -> Result<u64, ImageError> {
        Ok(own_file::parse_header(image.file(), image.path(), header::Header::parse_to_read)?.size_bytes)
    }

    /// Changes the size of the disk in an image, which is open for writing, and locked. What is new reads as zeros,
    /// whatever is behind the image, and is allocated as `preallocation` says; what is cut off is gone.
    ///
    /// # Errors
    /// As [`Qcow2Disk::open`] for writing; when snapshots or bitmaps cannot stay as they are, or the size is
    /// impossible.
    pub fn resize(
        image: &OpenedFile,
        size_bytes: u64,
        preallocation: Preallocation,
        allowed: &AllowedDirectories,
    ) -> Result<(), ImageError> {
        Self::resize_while(image, size_bytes, preallocation, allowed, &|| true)
    }

    /// The same, as long as `goes_on` says so, which is asked all the time.
    ///
    /// # Errors
    /// As [`Qcow2Disk::resize`]; when it is not to go on, the disk has the size that it had.
    pub fn resize_while(
        image: &OpenedFile,
        size_bytes: u64,
        preallocation: Preallocation,
        allowed: &AllowedDirectories,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<(), ImageError> {
        resize::resize(image.file(), image.path(), size_bytes, preallocation, allowed, goes_on)
    }

    /// Changes which passphrases open an image that is encrypted by LUKS, is open for writing, and locked; `key` opens
    /// it.
    ///
    /// # Errors
    /// When it is not encrypted so, the passphrase is not one of its own or cannot be read, the change is refused, or
    /// the file cannot be written.
    pub fn change_slots(image: &OpenedFile, key: Option<&KeyFile>, change: &LuksSlotChange) -> Result<(), ImageError> {
        encryption::change_slots(image, key, change)
    }

    /// What the permission bits of the image's file and of all files behind it allow.
    pub(crate) fn permissions(&self) -> u32 {
        self.worker.image().permissions
    }

    /// What the permission bits of the files behind the image allow.
    pub(super) fn permissions_behind(&self) -> u32 {
        self.worker.image().permissions_behind
    }

    /// The images of the chain that are encrypted, by how many are in front of them.
    pub(crate) fn encrypted(&self) -> &[usize] {
        &self.worker.image().encrypted
    }

    /// Whether one is so in a way that does not hide its data well.
    pub(crate) fn is_weakly_encrypted(&self) -> bool {
        let ciphers = self.worker.image().below.iter().filter_map(|below| Some(below.file.as_ref()?.cipher()));
        { ciphers }.any(|cipher| matches!(cipher, DataCipher::OnDisk(_)))
    }

    /// What there is at the beginning of `range`, and for how long at most; and which of [`Qcow2Disk::files`] has it,
    /// if one has.
    ///
    /// # Errors
    /// When the image cannot be read, or the range is empty or reaches outside the disk.
    pub fn map(&self, range: Range<u64>) -> io::Result<(Qcow2Mapping, Option<usize>)> {
        map::map(self.worker.image(), range)
    }

    /// The files that its bytes are in, the image's own first. Of an image with an external data file, its own stands
    /// for both.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        let image = self.worker.image();
        let mapped = image.mapped_base.iter().flat_map(|base| base.files());
        image.paths.iter().map(PathBuf::as_path).chain(mapped)
    }

    /// What is worth saying though it is opened, each in a sentence.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Opens a delta, in `file`, on a disk that is open already: whatever is not in the delta is read from there.
    pub(crate) fn open_delta(
        file: File,
        path: &Path,
        base: Arc<dyn Disk>,
        options: &FileOptions,
        is_temporary: bool,
    ) -> Result<Self, ImageError> {
        let image = chain::open_delta(file, path, base, options, is_temporary)?;
        Self::on(image, path)
    }

    /// Whether what the image has not is looked for in another.
    pub fn has_backing(&self) -> bool {
        let image = self.worker.image();
        image.tables.len() > 1 || image.base.is_some()
    }

    /// The first run of `range` that lies in this image, and not in one behind it; its length, and whether it does.
    pub(crate) fn find_own(&self, range: Range<u64>) -> io::Result<(u64, bool)> {
        self.worker.image().find_above(1, range)
    }

    /// The same, of this image and all before the last one of the chain.
    pub(crate) fn find_above_base(&self, range: Range<u64>) -> io::Result<(u64, bool)> {
        let image = self.worker.image();
        image.find_above(image.tables.len(), range)
    }

    fn on(mut opened: Opened, path: &Path) -> Result<Self, ImageError> {
        let notes = std::mem::take(&mut opened.notes);
        let started = Worker::start(opened, path);
        let worker = started.map_err(|source| ImageError::System {
            action: "start a thread for",
            path: path.to_owned(),
            source,
        })?;
        Ok(Self { worker: Arc::new(worker), notes })
    }
}

impl Qcow2Disk {
    /// How closing it ends, which is asked after the disk and its queues are gone.
    pub fn closing(&self) -> Qcow2Closing {
        self.worker.closing().awaited()
    }
}

impl Disk for Qcow2Disk {
    fn geometry(&self) -> Geometry {
        self.worker.image().geometry
    }

    fn extents(&self, range: Range<u64>) -> io::Result<Extent> {
        self.worker.image().extents(range)
    }

    fn open_queue(&self, memory: &MemoryMap, depth: usize) -> io::Result<Box<dyn Queue>> {
        Qcow2Split::boxed(&self.worker, memory, depth)
    }
}
