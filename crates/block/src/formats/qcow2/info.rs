//! What images say of themselves, without opening them as disks.

use super::chain::{CHAIN_MAX, read_header};
use super::header::Header;
use crate::FileDisk;
use crate::formats::{AllowedDirectories, ImageError};
use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// What the header of a qcow2 image says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Qcow2Info {
    /// 2 or 3: what QEMU calls compat 0.10 and 1.1.
    pub version: u32,
    /// The unit of allocation.
    pub cluster_bytes: u64,
    /// Size of the disk.
    pub size_bytes: u64,
    /// Width of a refcount.
    pub refcount_bits: u32,
    /// How many internal snapshots there are.
    pub snapshots: u32,
    /// The backing file's name, as the header has it.
    pub backing_name: Option<String>,
    /// Its format, if the header says.
    pub backing_format: Option<String>,
    /// The name of the file that the data are in, if it is another.
    pub data_file: Option<String>,
}

impl Qcow2Info {
    /// Reads the header of the image at `path`. Nothing is locked, and nothing but that file is opened.
    ///
    /// # Errors
    /// When it cannot be read, or is no qcow2 image that can be used.
    pub fn read(path: &Path) -> Result<Self, ImageError> {
        Ok(Self::of(read_header(&FileDisk::open_file(path, true)?, path)?))
    }

    fn of(header: Header) -> Self {
        let (backing_name, backing_format) = match header.backing.as_ref() {
            Some(backing) => (Some(backing.name.clone()), backing.format.clone()),
            None => (None, None),
        };
        Self {
            version: header.version,
            cluster_bytes: header.cluster_bytes(),
            size_bytes: header.size_bytes,
            refcount_bits: 1 << header.refcount_order,
            snapshots: header.snapshots,
            backing_name,
            backing_format,
            data_file: header.data_file,
        }
    }
}

/// An image of a chain of backing files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChainImage {
    /// Its file.
    pub path: PathBuf,
    /// Bytes in the disk.
    pub size_bytes: u64,
    /// Bytes of storage behind the file.
    pub allocated_bytes: u64,
    /// What its header says; `None` for a raw image.
    pub qcow2: Option<Qcow2Info>,
}

/// The qcow2 image at `path` and all that are behind it.
///
/// # Errors
/// When one cannot be read, is damaged or not allowed, or the chain has no end.
pub fn image_chain(path: &Path, allowed: &AllowedDirectories) -> Result<Vec<ChainImage>, ImageError> {
    chain_of(FileDisk::open_file(path, true)?, path, allowed)
}

/// The same, of the image in `file`, which was opened by `path`.
pub(super) fn chain_of(file: File, path: &Path, allowed: &AllowedDirectories) -> Result<Vec<ChainImage>, ImageError> {
    let mut images = Vec::new();
    let mut next = Some((file, path.to_owned(), true));
    while let Some((file, path, is_qcow2)) = next.take() {
        if images.len() == CHAIN_MAX {
            let problem = format!("is one of more than {CHAIN_MAX} files of a chain of backing files");
            return Err(ImageError::Unusable { path, problem });
        }
        let image = read_image(file, &path, is_qcow2)?;
        if let Some(Qcow2Info { backing_name: Some(name), backing_format, .. }) = &image.qcow2 {
            let (file, backing_path) = allowed.open(&path, name, false)?;
            next = Some((file, backing_path, backing_format.as_deref() == Some("qcow2")));
        }
        images.push(image);
    }
    Ok(images)
}

fn read_image(mut file: File, path: &Path, is_qcow2: bool) -> Result<ChainImage, ImageError> {
    let failed = |source| ImageError::System { action: "read", path: path.to_owned(), source };
    let allocated_bytes = file.metadata().map_err(failed)?.blocks() * 512;
    let qcow2 = if is_qcow2 { Some(Qcow2Info::of(read_header(&file, path)?)) } else { None };
    let size_bytes = match &qcow2 {
        Some(info) => info.size_bytes,
        None => file.seek(SeekFrom::End(0)).map_err(failed)?,
    };
    Ok(ChainImage { path: path.to_owned(), size_bytes, allocated_bytes, qcow2 })
}
