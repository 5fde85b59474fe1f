//! Making images.

use super::header::DISK_MAX_BYTES;
use super::writer::Qcow2Writer;
use crate::ReplacementFile;
use crate::formats::ImageError;
use rustix::fs::{FallocateFlags, fallocate};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

const CLUSTER_MIN_BYTES: u32 = 512;
const CLUSTER_MAX_BYTES: u32 = 2 << 20;

/// Largest L1 table, which bounds the size: QEMU's limit.
const L1_ENTRIES_MAX: u64 = (32 << 20) / 8;

/// What an image has from the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Preallocation {
    /// Nothing: clusters are allocated when they are written.
    #[default]
    Off,
    /// A place for every cluster; the file is sparse.
    Metadata,
    /// The same, with storage reserved (`fallocate`).
    Falloc,
    /// The same, with zeros written.
    Full,
}

/// The image that a new one is based on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Qcow2Backing {
    /// Its name as the new image is to have it: absolute, or from the new image's directory. Not opened.
    pub name: String,
    /// Its format: `raw` or `qcow2`.
    pub format: String,
}

/// What a new image is like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Qcow2CreateOptions {
    /// Size of the disk: a multiple of 512.
    pub size_bytes: u64,
    /// The unit of allocation: a power of two from 512 to 2 MiB.
    pub cluster_bytes: u32,
    /// What is allocated from the start; nothing with a backing file.
    pub preallocation: Preallocation,
    /// What shows where the image holds nothing.
    pub backing: Option<Qcow2Backing>,
}

impl Qcow2CreateOptions {
    /// An empty image of `size_bytes` in clusters of 64 KiB.
    pub fn new(size_bytes: u64) -> Self {
        Self { size_bytes, cluster_bytes: 64 << 10, preallocation: Preallocation::Off, backing: None }
    }

    pub(super) fn check(&self) -> Result<(), ImageError> {
        let Self { size_bytes, cluster_bytes, preallocation, ref backing } = *self;
        let clusters_are_possible = (CLUSTER_MIN_BYTES..=CLUSTER_MAX_BYTES).contains(&cluster_bytes);
        if !clusters_are_possible || !cluster_bytes.is_power_of_two() {
            let problem =
                format!("clusters of {cluster_bytes} bytes are not possible: 512 bytes to 2 MiB, powers of two");
            return Err(ImageError::Invalid(problem));
        }
        let l2_covers_bytes = u64::from(cluster_bytes) * u64::from(cluster_bytes / 8);
        let size_max_bytes = (L1_ENTRIES_MAX * l2_covers_bytes).min(DISK_MAX_BYTES);
        if size_bytes > size_max_bytes || !size_bytes.is_multiple_of(512) {
            let problem = format!(
                "a disk of {size_bytes} bytes is not possible: in clusters of {cluster_bytes} it has a multiple of 512 bytes, \
                 at most {size_max_bytes}"
            );
            return Err(ImageError::Invalid(problem));
        }
        if let Some(Qcow2Backing { name, format }) = backing {
            if preallocation != Preallocation::Off {
                let problem = "an image with a backing file cannot be preallocated: nothing would show through";
                return Err(ImageError::Invalid(problem.into()));
            }
            if !matches!(format.as_str(), "raw" | "qcow2") || name.is_empty() || name.len() > 1023 {
                let problem =
                    format!("{name:?} in the format {format:?} cannot be a backing file: raw and qcow2 are supported");
                return Err(ImageError::Invalid(problem));
            }
        }
        Ok(())
    }
}

/// Makes an image at `path`, in the place of what is there.
pub(super) fn create(path: &Path, options: &Qcow2CreateOptions) -> Result<(), ImageError> {
    options.check()?;
    let replacement = ReplacementFile::create(path)?;
    format(replacement.file(), path, options)?;
    Ok(replacement.commit(true)?)
}

/// Makes the empty `file` an image; `path` is for messages.
pub(super) fn create_in(file: &File, path: &Path, options: &Qcow2CreateOptions) -> Result<(), ImageError> {
    format(file, path, options)
}

/// Makes the empty `file` a delta on a disk.
pub(crate) fn create_delta(file: &File, path: &Path, size_bytes: u64, base: Qcow2Backing) -> Result<(), ImageError> {
    let options = Qcow2CreateOptions { backing: Some(base), ..Qcow2CreateOptions::new(size_bytes) };
    format(file, path, &options)
}

fn format(file: &File, path: &Path, options: &Qcow2CreateOptions) -> Result<(), ImageError> {
    let failed = |source| ImageError::System { action: "write", path: path.to_owned(), source };
    let writer = Qcow2Writer::of(file.try_clone().map_err(failed)?, options, None)?;
    fill(file, writer, options).map_err(failed)
}

fn fill(file: &File, writer: Qcow2Writer, options: &Qcow2CreateOptions) -> io::Result<()> {
    let cluster_bytes = u64::from(options.cluster_bytes);
    let table_covers_bytes = cluster_bytes * cluster_bytes / 8;
    let mut start = 0;
    while start < options.size_bytes && options.preallocation != Preallocation::Off {
        let end = options.size_bytes.min(start + table_covers_bytes);
        let count = (end - start).div_ceil(cluster_bytes);
        // Fits: an L2 table has no more entries.
        let place = writer.place(count as usize, (start..end).step_by(options.cluster_bytes as usize));
        reserve(file, place, count * cluster_bytes, options.preallocation)?;
        writer.settle(start..end)?;
        start = end;
    }
    writer.finish()
}

/// Reserves storage for a range of a file that was never written, as `preallocation` says.
pub(super) fn reserve(file: &File, offset: u64, length: u64, preallocation: Preallocation) -> io::Result<()> {
    static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
    match preallocation {
        Preallocation::Off | Preallocation::Metadata => Ok(()),
        Preallocation::Falloc => Ok(fallocate(file, FallocateFlags::empty(), offset, length)?),
        Preallocation::Full => {
            let pieces = (0..length).step_by(ZEROS.len());
            pieces
                .map(|at| (at, (length - at).min(ZEROS.len() as u64) as usize))
                .try_for_each(|(at, piece)| file.write_all_at(&ZEROS[..piece], offset + at))
        }
    }
}
