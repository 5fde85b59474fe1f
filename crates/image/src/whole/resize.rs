//! Making an image's disk larger or smaller.

use super::new_image::write_zeros;
use super::{check, or_stopped};
use crate::Watch;
use crate::error::{Context, Error, Result, refuse};
use blockyard_block::size::set_length;
use blockyard_block::specification::Format;
use blockyard_block::{
    AllowedDirectories, BlockMapFormat, ChainKeys, LuksDisk, OpenedFile, Preallocation, Qcow2Disk, Remedy, shown,
};
use rustix::fs::{FallocateFlags, fallocate};
use std::ops::Range;
use std::path::PathBuf;

/// The size that a disk is to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewSize {
    /// This one.
    To(u64),
    /// So much more.
    More(u64),
    /// So much less.
    Less(u64),
}

impl NewSize {
    /// The new size, of whole sectors. `None`: there is none.
    pub fn of(self, old_bytes: u64) -> Option<u64> {
        let new = match self {
            Self::To(size) => Some(size),
            Self::More(more) => old_bytes.checked_add(more),
            Self::Less(less) => old_bytes.checked_sub(less),
        };
        new?.checked_next_multiple_of(512)
    }
}

/// A change of size, which makes sense.
pub struct Resize<'a> {
    file: &'a OpenedFile,
    format: Format,
    sizes: Range<u64>,
    preallocation: Preallocation,
    keys: ChainKeys,
}

impl<'a> Resize<'a> {
    /// Of the image in `file`, which is open for writing and locked, and whose disk has `old_bytes`. `shrinks`: what is
    /// behind the new end may be lost. `preallocation`: what is allocated of what is new.
    ///
    /// # Errors
    /// When the size is impossible, or something would be lost.
    pub fn new(
        file: &'a OpenedFile,
        format: Format,
        old_bytes: u64,
        size: NewSize,
        shrinks: bool,
        preallocation: Preallocation,
    ) -> Result<Self> {
        let name = shown(file.path());
        if matches!(format, Format::BlockMap(_) | Format::Ova) {
            return Err(not_resized(file, format));
        }
        let Some(new_bytes) = size.of(old_bytes) else {
            return Err(Error::usage(format!("{name} has {old_bytes} bytes: such a change is not possible")));
        };
        if new_bytes < old_bytes && !shrinks {
            refuse!(
                "{name} would lose everything behind byte {new_bytes}: make file systems and partitions smaller first, then {}",
                Remedy::LetShrink
            );
        }
        if new_bytes < old_bytes && preallocation != Preallocation::Off {
            return Err(Error::usage(format!("{} is for a disk that becomes larger", Remedy::Preallocation)));
        }
        Ok(Self { file, format, sizes: old_bytes..new_bytes, preallocation, keys: ChainKeys::default() })
    }

    /// The same of an encrypted image, whose data may have to be changed.
    #[must_use]
    pub fn with_keys(self, keys: ChainKeys) -> Self {
        Self { keys, ..self }
    }

    /// The new size.
    pub fn new_bytes(&self) -> u64 {
        self.sizes.end
    }

    /// Resizes it. What the image is based on lies in `allow_dirs`. Writing zeros takes long, and ends when `watch`
    /// says so.
    ///
    /// # Errors
    /// When the image cannot be written: then it is as large as before, or the error says that it is not.
    pub fn run(&self, allow_dirs: &[PathBuf], watch: &dyn Watch) -> Result<()> {
        let Self { file, format, ref sizes, preallocation, ref keys } = *self;
        match format {
            Format::Raw => self.resize_raw(sizes.clone(), watch),
            Format::Luks if sizes.end == 0 => refuse!("{}: a LUKS volume has a sector at least", shown(file.path())),
            Format::Luks => {
                let start = LuksDisk::place_in(file)?.start;
                let end = start.checked_add(sizes.end);
                let end = end.ok_or_else(|| Error::usage("no file is as large as that"))?;
                self.resize_raw(start + sizes.start..end, watch)
            }
            Format::Qcow2 => {
                let allowed = AllowedDirectories::new(allow_dirs)?.with_keys(keys.clone());
                let goes_on = || watch.ends().is_none();
                let resized = Qcow2Disk::resize_while(file, sizes.end, preallocation, &allowed, &goes_on);
                resized.map_err(|error| or_stopped(error, watch, self.failed()))
            }
            Format::BlockMap(_) | Format::Ova => Err(not_resized(file, format)),
        }
    }

    /// Changes how long the file is, in which the disk ends.
    fn resize_raw(&self, sizes: Range<u64>, watch: &dyn Watch) -> Result<()> {
        let (file, name) = (self.file.file(), shown(self.file.path()));
        let failed = || self.failed();
        if !file.metadata().with_context(failed)?.is_file() {
            refuse!("{name} is a device, whose size nobody can change from here");
        }
        let grow = || -> Result<()> {
            set_length(file, sizes.end)?;
            match self.preallocation {
                Preallocation::Off | Preallocation::Metadata => {}
                Preallocation::Falloc if sizes.is_empty() => {}
                Preallocation::Falloc => {
                    fallocate(file, FallocateFlags::empty(), sizes.start, sizes.end - sizes.start)
                        .map_err(std::io::Error::from)?;
                }
                Preallocation::Full => write_zeros(file, sizes.clone(), watch)?,
            }
            Ok(file.sync_all()?)
        };
        grow().map_err(|error| {
            // What could not be had is given back.
            let _ = file.set_len(sizes.start.min(sizes.end));
            let error = check(watch).err().unwrap_or(error);
            let has_new = !sizes.is_empty() || sizes.start > sizes.end;
            let has_new = has_new && file.metadata().is_ok_and(|metadata| metadata.len() == sizes.end);
            error.context(if has_new { format!("{name} has its new size, but it may not last") } else { failed() })
        })
    }

    fn failed(&self) -> String {
        format!("cannot change the size of {}", shown(self.file.path()))
    }
}

fn not_resized(file: &OpenedFile, format: Format) -> Error {
    let name = shown(file.path());
    Error::refused(match format {
        Format::BlockMap(BlockMapFormat::Vmdk) => {
            format!("{name}: only raw and qcow2 images and LUKS volumes are resized, and this is {}", format.name())
        }
        _ => format!("{name}: {} images are only read", format.name()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_absolute_or_relative() {
        let sizes = [
            NewSize::To(3 << 30),
            NewSize::More(1 << 30),
            NewSize::Less(1 << 30),
            NewSize::Less(2049 << 20),
            NewSize::More(u64::MAX),
            NewSize::To(1000),
        ];
        let expected = [Some(3 << 30), Some(3 << 30), Some(1 << 30), None, None, Some(1024)];
        assert_eq!(sizes.map(|size| size.of(2 << 30)), expected);
    }
}
