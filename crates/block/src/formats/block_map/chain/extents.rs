//! The files that a VMDK's descriptor names.

use super::{Chain, is_flat, opening};
use crate::formats::block_map::fields::lies_within;
use crate::formats::block_map::level::Storage;
use crate::formats::block_map::{unusable, vmdk};
use crate::formats::vmdk::descriptor::{self, ExtentAccess, ExtentLine};
use crate::formats::{ImageError, WritableFile};
use crate::{FileDisk, FileOptions, shown};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Which of the files below has bytes that are in two parts of a disk, if one has.
fn shared_bytes(storages: &[(u64, Storage, bool)]) -> Option<usize> {
    let flat = storages.iter().filter_map(|&(length_bytes, storage, _)| match storage {
        Storage::Flat { index, offset_bytes } => Some((index, offset_bytes, length_bytes)),
        _ => None,
    });
    let mut flat: Vec<_> = flat.collect();
    flat.sort_unstable();
    // Each lies within its file. If any two overlap, so do two neighbours.
    let shared = |pair: &&[_]| matches!(**pair, [(a, start, length), (b, next, _)] if a == b && next - start < length);
    flat.windows(2).find(shared)?.first().map(|&(index, ..)| index)
}

impl Chain<'_> {
    /// Opens the files that the VMDK at `path` names.
    pub(super) fn add_extents(
        &mut self,
        path: &Path,
        extents: &[ExtentLine],
    ) -> Result<Vec<(u64, Storage, bool)>, ImageError> {
        // Past the page cache only where this is all that changes them.
        let options = FileOptions { direct: self.options.direct && is_flat(extents), ..self.options };
        let mut flat = Vec::new();
        let storages = extents.iter().map(|ExtentLine { access, length_bytes, storage, .. }| {
            let is_writable = *access == ExtentAccess::ReadWrite && !self.options.read_only;
            let storage = match storage {
                // What nobody may touch need not be there.
                _ if *access == ExtentAccess::None => Storage::Forbidden,
                descriptor::Storage::Zero => Storage::Zeros,
                descriptor::Storage::Flat { name, offset_bytes } => {
                    self.flat_extent(path, name, (*offset_bytes, *length_bytes), &options, &mut flat)?
                }
                descriptor::Storage::Grains { name } => self.grains_extent(path, name, *length_bytes, is_writable)?,
            };
            Ok((*length_bytes, storage, is_writable))
        });
        let storages = storages.collect::<Result<Vec<_>, ImageError>>()?;
        let shared = shared_bytes(&storages).filter(|_| !self.options.read_only);
        if let Some((name, ..)) = shared.and_then(|shared| flat.iter().find(|&&(_, index, _)| index == shared)) {
            let (name, advice) = (shown(name), self.files.only_read());
            let problem =
                format!("has two parts of its disk in the same bytes of {name}, so it is only read: {advice}");
            return Err(unusable(path, problem));
        }
        Ok(storages)
    }

    /// A range of a file that is opened once; `flat`: those that were.
    fn flat_extent(
        &mut self,
        image: &Path,
        name: &str,
        (offset_bytes, length_bytes): (u64, u64),
        options: &FileOptions,
        flat: &mut Vec<(PathBuf, usize, u64)>,
    ) -> Result<Storage, ImageError> {
        let found = self.allowed.find(image, name)?;
        let target = found.target().to_owned();
        let known = flat.iter().find(|(known, ..)| *known == target).map(|&(_, index, has_bytes)| (index, has_bytes));
        let (index, has_bytes) = match known {
            Some(known) => known,
            None => {
                let is_written = !options.read_only;
                // A device that is written is ours alone, so it is opened once.
                let (file, _) = found.open(is_written, (is_written && options.lock).then_some(&*target))?;
                if is_written {
                    self.files.add_part(&file, &target)?;
                }
                FileDisk::lock(&file, &target, options)?;
                self.files.permit(&file, &target)?;
                let own_file = file.try_clone().map_err(|source| opening(&target, source))?;
                let disk = FileDisk::from_file(file, options)?;
                let has_bytes = disk.length_bytes();
                let index = if is_written {
                    let (written, disk) = WritableFile::with_disk(own_file, disk, false, options.cache_unsafe);
                    let index = self.add_file(disk, target.clone())?;
                    self.written.insert(index, Arc::new(written));
                    index
                } else {
                    self.add_file(Arc::new(disk), target.clone())?
                };
                flat.push((target.clone(), index, has_bytes));
                (index, has_bytes)
            }
        };
        if !lies_within(offset_bytes, length_bytes, has_bytes) {
            let target = shown(&target);
            let problem = format!("wants {length_bytes} bytes at {offset_bytes} of {target}, which has {has_bytes}");
            return Err(unusable(image, problem));
        }
        Ok(Storage::Flat { index, offset_bytes })
    }

    /// A file with grains, which must be as long a disk as its descriptor says.
    fn grains_extent(
        &mut self,
        image: &Path,
        name: &str,
        length_bytes: u64,
        is_written: bool,
    ) -> Result<Storage, ImageError> {
        let found = self.allowed.find(image, name)?;
        let path = found.path().to_owned();
        let (file, path) = found.open(is_written, (is_written && self.options.lock).then_some(&path))?;
        self.files.add_part(&file, &path)?;
        FileDisk::lock(&file, &path, &FileOptions { read_only: !is_written, ..self.options })?;
        let image_file = self.image_file(&file, &path)?;
        let (map, note) = vmdk::read_extent(&image_file)?;
        self.notes.extend(note.map(|note| format!("{}: {note}", shown(&path))));
        let has_bytes = map.shape().size_bytes;
        if has_bytes != length_bytes {
            let problem = format!("has {length_bytes} bytes in {}, whose header says {has_bytes}", shown(&path));
            return Err(unusable(image, problem));
        }
        let added = if is_written { Self::add_written_layer } else { Self::add_layer };
        Ok(added(self, file, image_file, map)?.1)
    }
}
