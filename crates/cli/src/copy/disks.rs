//! The two disks of a copy: what is read, and what is written.

use super::args::CopyOptions;
use super::watched_disk::WatchedDisk;
use anyhow::{Context, Result, bail};
use blockyard_block::{Disk, ExtentKind, FileDisk, FileOptions, ReplacementFile, same_file};
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

/// The disk that is read.
pub struct Source {
    /// The disk as the guest sees it, watched.
    pub disk: Arc<WatchedDisk<FileDisk>>,
    /// Bytes to copy: what the file has, before it was rounded up to whole sectors.
    pub length_bytes: u64,
}

impl Source {
    /// Opens the input.
    ///
    /// # Errors
    /// When it cannot be read as a disk.
    pub fn open(options: &CopyOptions) -> Result<Self> {
        let disk = FileDisk::open(
            &options.input,
            &FileOptions {
                read_only: true,
                engine: options.engine,
                logical_block_bytes: options.input_sector_bytes,
                ..FileOptions::default()
            },
        )?;
        let length_bytes = disk.length_bytes();
        Ok(Self { disk: Arc::new(WatchedDisk::new(disk)), length_bytes })
    }
}

/// The disk that is written: a file that takes its name when the copy is complete, or a device.
pub struct Destination {
    /// The disk as the guest sees it, watched.
    pub disk: Arc<WatchedDisk<FileDisk>>,
    /// Whether it reads as zeros wherever nothing was written.
    pub zeroed: bool,
    /// Bytes that a guest has to write or zero at least: the others are holes already.
    pub must_write_bytes: u64,
    end: End,
}

/// What is left to do when everything is written.
enum End {
    /// A file gets its name.
    Replace(ReplacementFile),
    /// A device is told to keep what it has.
    Sync(File),
}

impl Destination {
    /// Opens the output for `source`'s bytes. Storage for a file's data is had beforehand, holes stay holes.
    ///
    /// # Errors
    /// When it is the input, cannot be written, or has too little room.
    pub fn create(options: &CopyOptions, source: &Source) -> Result<Self> {
        let path = &options.output;
        if same_file(&options.input, path).unwrap_or(false) {
            bail!("{} and {} are the same disk", options.input.display(), path.display());
        }
        if is_block_device(path) { Self::device(options, source) } else { Self::file(options, source) }
    }

    fn device(options: &CopyOptions, source: &Source) -> Result<Self> {
        let disk = FileDisk::open(&options.output, &file_options(options))?;
        let (room, needed) = (disk.length_bytes(), source.length_bytes);
        if room < needed {
            let path = options.output.display();
            bail!("{path} has {room} bytes, too few for the {needed} bytes of {}", options.input.display());
        }
        let end = End::Sync(File::open(&options.output).context("opening the device again")?);
        Ok(Self { disk: Arc::new(WatchedDisk::new(disk)), zeroed: false, must_write_bytes: needed, end })
    }

    fn file(options: &CopyOptions, source: &Source) -> Result<Self> {
        let replacement = ReplacementFile::create(&options.output)?;
        replacement.set_length(source.length_bytes)?;
        // Where zeros are looked for, what is not written stays a hole.
        let must_write_bytes = if options.detect_zeroes { 0 } else { preallocate(&replacement, source)? };
        let file = replacement.file().try_clone().context("duplicating a file descriptor")?;
        let disk = FileDisk::from_file(file, &file_options(options))?;
        Ok(Self {
            disk: Arc::new(WatchedDisk::new(disk)),
            zeroed: true,
            must_write_bytes,
            end: End::Replace(replacement),
        })
    }

    /// Gives a file its name. `durable`: its data and name are on stable storage afterwards.
    ///
    /// # Errors
    /// When the operating system refuses; the old file is still there then.
    pub fn finish(self, durable: bool) -> Result<()> {
        match self.end {
            End::Replace(replacement) => Ok(replacement.commit(durable)?),
            End::Sync(device) if durable => device.sync_data().context("flushing the device"),
            End::Sync(_) => Ok(()),
        }
    }
}

fn file_options(options: &CopyOptions) -> FileOptions {
    FileOptions {
        read_only: false,
        engine: options.engine,
        logical_block_bytes: options.output_sector_bytes,
        ..FileOptions::default()
    }
}

fn is_block_device(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt;
    path.metadata().is_ok_and(|metadata| metadata.file_type().is_block_device())
}

/// Pieces of data smaller than this are not worth a system call of their own.
const PREALLOCATE_MIN_BYTES: u64 = 1 << 20;

/// Allocates storage for the source's data, which makes the writes a third faster on ext4 and finds a full disk early.
/// Returns how many bytes of data there are.
fn preallocate(replacement: &ReplacementFile, source: &Source) -> Result<u64> {
    let (mut offset_bytes, mut data_bytes) = (0, 0);
    while offset_bytes < source.length_bytes {
        let extent = source.disk.extents(offset_bytes..source.length_bytes)?;
        let end = extent.offset_bytes + extent.length_bytes;
        if extent.kind == ExtentKind::Data {
            data_bytes += extent.length_bytes;
            if extent.length_bytes >= PREALLOCATE_MIN_BYTES {
                replacement.preallocate(extent.offset_bytes..end)?;
            }
        }
        offset_bytes = end;
    }
    Ok(data_bytes)
}
