//! Folding an image into one that it is based on.
//!
//! At any time the image shows the same: what is written to the base is what it shows there. It is emptied only when
//! that is stable, by zeroing its L1 table; its clusters, which nothing refers to then, are freed as leaked ones are.
//! Snapshots keep theirs, and show the same if they hold all that is written to the base.

use super::chain::{self, open_above};
use super::header::Header;
use super::own_file::{header_to_change, parse_header, read_header, writable};
use super::rebase::would_change;
use super::repair::Qcow2Check;
use super::{Qcow2Disk, Qcow2Snapshot, header_change, resize};
use crate::formats::chain_files::{ChainFiles, ChainFormat};
use crate::formats::image_chain::{ChainImage, chain_of};
use crate::formats::preallocation::Preallocation;
use crate::formats::{AllowedDirectories, BlockMapDisk, FoldError, ImageError, LuksDisk, Repair, fold};
use crate::{Disk, Engine, FileDisk, FileOptions, OpenedFile, Qcow2Info, directory_of, same_file, shown};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A commit, with all its files open and locked.
pub struct Qcow2Commit {
    file: File,
    path: PathBuf,
    top: Qcow2Disk,
    base: Arc<dyn Disk>,
    base_path: PathBuf,
    /// Images between the two, which are of no more use afterwards.
    between: usize,
}

impl Qcow2Commit {
    /// Of an image that is open for writing, and locked: opens the one that it is folded into, its backing file, or the
    /// one of its chain that `base` names. A base that is smaller than the image is made larger.
    ///
    /// # Errors
    /// When it has no such backing file, when a snapshot of it would show something else then, and when one of them
    /// cannot be had for writing, or is not allowed.
    pub fn open(image: OpenedFile, base: Option<&Path>, allowed: &AllowedDirectories) -> Result<Self, ImageError> {
        let path = &image.path().to_owned();
        let failed = |source| ImageError::System { action: "open", path: path.to_owned(), source };
        let file = image.into_file();
        let header = header_to_change(&file, path)?;
        let chain = chain_of(file.try_clone().map_err(failed)?, path, ChainFormat::Qcow2, allowed)?;
        let unusable = |problem: String| ImageError::Unusable { path: path.to_owned(), problem };
        let index = match base {
            None => 1,
            Some(base) => named_in(&chain, base).map_err(unusable)?,
        };
        let Some((above, image)) = index.checked_sub(1).and_then(|above| chain.get(above)).zip(chain.get(index)) else {
            return Err(unusable("has no backing file that it could be committed to".to_owned()));
        };
        let Some(Qcow2Info { backing_name: Some(name), .. }) = &above.qcow2 else {
            let (base, above, format) = (shown(&image.path), shown(&above.path), above.format);
            return Err(unusable(format!(
                "can be committed to the file behind a qcow2 image only, and {base} is behind {above}, which is {format}"
            )));
        };
        if header.snapshots > 0 {
            refuse_changes(&file, path, index, allowed)?;
        }
        let (base_file, base_path) = allowed.open(&above.path, name, true)?;
        let handle = base_file.try_clone().map_err(failed)?;
        let size_bytes = chain.first().map_or(0, |image| image.size_bytes);
        let base = open_base((base_file, &base_path), image, index, size_bytes, allowed)?;
        let options = FileOptions { read_only: true, engine: Engine::Sync, ..FileOptions::default() };
        let top_file = file.try_clone().map_err(failed)?;
        let top = open_above(top_file, path, (&handle, Arc::clone(&base)), &options, allowed)?;
        let top = Qcow2Disk::on(top, path)?;
        Ok(Self { file, path: path.to_owned(), top, base, base_path, between: index - 1 })
    }

    /// The file that the image is folded into.
    pub fn base_path(&self) -> &Path {
        &self.base_path
    }

    /// How many images lie between the two, and hold nothing afterwards that counts.
    pub fn between(&self) -> usize {
        self.between
    }

    /// Size of the disk.
    pub fn capacity_bytes(&self) -> u64 {
        self.top.geometry().capacity_bytes
    }

    /// Writes what the image holds to its base, on stable storage. `goes_on` hears where on the disk it is and how many
    /// bytes of data it has written, and says whether to go on. Nothing is lost when this fails, and it can be done
    /// again.
    ///
    /// # Errors
    /// When one of the disks fails, and when it is not to go on.
    pub fn fold(&self, goes_on: &mut dyn FnMut(u64, u64) -> bool) -> Result<u64, FoldError> {
        fold(&self.top, |range| self.top.find_above_base(range), &*self.base, goes_on)
    }

    /// Empties the image, which shows what its backing file holds then. Not for one between which and the base others
    /// are.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn empty(self) -> Result<(), ImageError> {
        let Self { file, path, top, base, .. } = self;
        drop((top, base));
        let failed = |source| ImageError::System { action: "empty", path: path.clone(), source };
        let header = read_header(&file, &path)?;
        let file = writable(&file).map_err(failed)?;
        header_change::clear_unknown(&file, &header).map_err(failed)?;
        file.write(&vec![0; header.l1.length_bytes as usize], header.l1.offset_bytes).map_err(failed)?;
        file.sync().map_err(failed)?;
        let mut check = Qcow2Check::of(path.clone(), file)?;
        let report = check.run(Repair::Leaks, &mut |_| ())?;
        if report.corruptions == 0 && report.leaks == 0 {
            check.truncate(report.image_end_bytes).map_err(failed)?;
        }
        Ok(())
    }
}

/// The number of the image in the chain that `base` names: from here, or as the image in front of it names what is
/// behind it, which is how qemu-img has it.
///
/// # Errors
/// When it names none of them, or two.
fn named_in(chain: &[ChainImage], base: &Path) -> Result<usize, String> {
    let is = |image: &ChainImage, named: &Path| same_file(&image.path, named).unwrap_or(false);
    let from_here = (1..chain.len()).find(|index| is(&chain[*index], base));
    let from_above = (1..chain.len()).find(|index| {
        let directory = directory_of(&chain[index - 1].path);
        is(&chain[*index], &directory.join(base))
    });
    match (from_here, from_above) {
        (Some(here), Some(above)) if here != above => {
            let (here, above) = (shown(&chain[here].path), shown(&chain[above].path));
            Err(format!("is based on {here} and on {above}, which may both be meant: say it by an absolute name"))
        }
        (Some(index), _) | (_, Some(index)) => Ok(index),
        (None, None) => Err(format!("is not based on {}", shown(base))),
    }
}

/// Refuses an image of which a snapshot shows what its base holds, where something else is written: what is in the
/// image or one of those above the base, of which there are so many.
fn refuse_changes(file: &File, path: &Path, above: usize, allowed: &AllowedDirectories) -> Result<(), ImageError> {
    let failed = |source| ImageError::System { action: "look at", path: path.to_owned(), source };
    let options = FileOptions { read_only: true, engine: Engine::Sync, ..FileOptions::default() };
    let handle = || file.try_clone().map_err(failed);
    let opened = Qcow2Disk::on(chain::open_in(handle()?, path, &options, allowed)?, path)?;
    let top = opened.worker.image();
    let snapshots = Qcow2Disk::snapshots(&OpenedFile::new(handle()?, path.to_owned()))?;
    for Qcow2Snapshot { id, name, .. } in snapshots {
        let opened = Qcow2Disk::on(chain::open_snapshot(handle()?, path, &id, &options, allowed)?, path)?;
        let snapshot = opened.worker.image();
        let capacity_bytes = top.size_bytes.min(snapshot.size_bytes);
        let mut at = 0;
        while at < capacity_bytes {
            let (length_bytes, is_written) = top.find_above(above, at..capacity_bytes).map_err(failed)?;
            let end = at + length_bytes;
            while is_written && at < end {
                let (length_bytes, is_held) = snapshot.find_above(above, at..end).map_err(failed)?;
                if !is_held {
                    return Err(ImageError::Unusable {
                        path: path.to_owned(),
                        problem: format!("has snapshots: {}", would_change(&name)),
                    });
                }
                at += length_bytes;
            }
            at = end;
        }
    }
    Ok(())
}

/// Opens what is written to: the file of `image`, which so many are in front of.
fn open_base(
    (file, path): (File, &Path),
    image: &ChainImage,
    depth: usize,
    size_bytes: u64,
    allowed: &AllowedDirectories,
) -> Result<Arc<dyn Disk>, ImageError> {
    let options = FileOptions { engine: Engine::Sync, ..FileOptions::default() };
    let failed = |source| ImageError::System { action: "make room in", path: path.to_owned(), source };
    let mut files = ChainFiles::behind(depth);
    let disk: Arc<dyn Disk> = match ChainFormat::of_word(image.format) {
        Some(ChainFormat::Qcow2) => {
            let header = parse_header(&file, path, Header::parse_to_read)?;
            if header.size_bytes < size_bytes {
                FileDisk::lock(&file, path, &options)?;
                let handle = file.try_clone().map_err(failed)?;
                resize::resize(&handle, path, size_bytes, Preallocation::Off, allowed, &|| true)?;
            }
            Arc::new(Qcow2Disk::open_behind(file, path, &options, allowed, &mut files)?)
        }
        Some(ChainFormat::BlockMap(format)) => {
            let disk = BlockMapDisk::open_behind(file, path, format, &options, allowed, &mut files)?;
            refuse_smaller(&disk, path, image.format, size_bytes)?;
            if !disk.is_writable() && !disk.geometry().read_only {
                let problem = "has parts that may not be written: convert the image above to a new one";
                return Err(ImageError::Unusable { path: path.to_owned(), problem: problem.into() });
            }
            Arc::new(disk)
        }
        Some(ChainFormat::Luks) => {
            files.add_image(&file, path)?;
            FileDisk::lock(&file, path, &options)?;
            let key = files.key(allowed);
            let no_key = || ImageError::Unusable { path: path.to_owned(), problem: files.no_key() };
            let disk = LuksDisk::open_in(file, path, Some(key.ok_or_else(no_key)?), &options)?;
            refuse_smaller(&disk, path, image.format, size_bytes)?;
            Arc::new(disk)
        }
        Some(ChainFormat::Raw) | None => {
            FileDisk::lock(&file, path, &options)?;
            let metadata = file.metadata().map_err(failed)?;
            if metadata.is_file() && metadata.len() < size_bytes {
                file.set_len(size_bytes).map_err(failed)?;
            }
            Arc::new(FileDisk::from_file(file, &options)?)
        }
    };
    if disk.geometry().read_only {
        let problem = format!("is {}, and of that nothing may be written", image.format);
        return Err(ImageError::Unusable { path: path.to_owned(), problem });
    }
    Ok(disk)
}

/// Of a format that is not made larger here.
fn refuse_smaller(disk: &dyn Disk, path: &Path, format: &str, size_bytes: u64) -> Result<(), ImageError> {
    let capacity_bytes = disk.geometry().capacity_bytes;
    if capacity_bytes >= size_bytes {
        return Ok(());
    }
    let problem = format!(
        "has {capacity_bytes} bytes, fewer than the image above it with {size_bytes}, and {format} images are not made \
         larger by commit: convert the image above to a new one"
    );
    Err(ImageError::Unusable { path: path.to_owned(), problem })
}
