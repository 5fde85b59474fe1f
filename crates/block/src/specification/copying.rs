//! What is decided of a disk because another is copied to it: whether that makes sense, and how it is written.

use super::{DiskSpecification, Format, OpenError};
use crate::{Remedy, same_file, shown};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

/// Why a disk cannot be copied to another: they are on the same disk.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SameDisk {
    /// Different partitions of it.
    #[error("{disk}: SRC and DST are on the same disk: {} and copy from session to session", Remedy::ServePartitions, disk = .0)]
    OtherPartition(String),
    /// They are one.
    #[error("{0}: SRC and DST are the same disk")]
    Same(String),
}

impl DiskSpecification {
    /// How a destination is written, decided here alone: the file that is replaced as a whole, or appears; `None` for a
    /// disk that is there and is written in place, as `in_place` asks for. The file's format is another matter, as long
    /// as it is one that can be made.
    ///
    /// # Errors
    /// When the file's name says a format that is not supported.
    pub fn replaced_file(&self, in_place: bool) -> Result<Option<&Path>, OpenError> {
        let file = self.image_file().filter(|path| !in_place && !is_block_device(path));
        if file.is_some() {
            self.check_new_name()?;
        }
        Ok(file)
    }

    /// The device that is made an image of, whatever it holds, and not written as one that is there, as `in_place` asks
    /// for: it cannot be the disk's bytes, as it is to be in a format that is not raw. Not in each of these there can
    /// be one.
    pub fn made_device(&self, in_place: bool) -> Option<&Path> {
        let is_made = !in_place && matches!(self.format(), Some(Format::Qcow2 | Format::BlockMap(_)));
        self.image_file().filter(|path| is_made && is_block_device(path))
    }

    /// Refuses to be copied to itself, as far as it can be told from names. Locks tell of images that have a file in
    /// common.
    ///
    /// # Errors
    /// When they are the same.
    pub fn differs_from(&self, destination: &Self) -> Result<(), SameDisk> {
        let (Some(one), Some(other)) = (self.path(), destination.path()) else { return Ok(()) };
        if !same_file(one, other).unwrap_or(false) {
            return Ok(());
        }
        let names = match one == other {
            true => shown(one).to_string(),
            false => format!("{} and {}", shown(one), shown(other)),
        };
        Err(match self.partition() == destination.partition() {
            true => SameDisk::Same(names),
            false => SameDisk::OtherPartition(names),
        })
    }
}

fn is_block_device(path: &Path) -> bool {
    path.metadata().is_ok_and(|metadata| metadata.file_type().is_block_device())
}
