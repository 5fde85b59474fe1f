//! What is done to our twin, by what the commands call.

use super::super::super::{
    Preallocation, Qcow2Amendment, Qcow2Backing, Qcow2BitmapAction, Qcow2Commit, Qcow2CreateOptions, Qcow2DataFile,
    Qcow2Disk, Qcow2Features, Qcow2Rebase, Qcow2Writer,
};
use super::super::open_to_change;
use super::script::{BitmapChange, Making, SnapshotChange, Step};
use crate::conversion::{Conversion, ConversionOptions, Qcow2Target};
use crate::read::perform;
use crate::{AllowedDirectories, Disk, Engine, FileDisk, FileOptions, MemoryMap, OpenedFile, Operation, Segment};
use std::error::Error;
use std::fs::File;
use std::path::{Path, PathBuf};

/// What was refused, or failed.
pub(super) type Refusal = Box<dyn Error>;

pub(super) struct Ours {
    pub(super) image: PathBuf,
    allowed: AllowedDirectories,
}

fn options(read_only: bool) -> FileOptions {
    FileOptions { engine: Engine::Sync, read_only, lock: false, ..FileOptions::default() }
}

/// The format of a backing file by its name.
pub(super) fn format_of(path: &Path) -> &'static str {
    let mut magic = [0; 4];
    std::os::unix::fs::FileExt::read_exact_at(&File::open(path).unwrap(), &mut magic, 0).unwrap();
    if magic == *b"QFI\xfb" { "qcow2" } else { "raw" }
}

fn features(making: &Making) -> Qcow2Features {
    Qcow2Features {
        version: making.version,
        refcount_order: making.refcount_order,
        has_lazy_refcounts: making.is_lazy,
        has_extended_l2: making.has_extended_l2,
        is_zstd: making.is_zstd,
    }
}

fn create_options(making: &Making, size_bytes: u64) -> Qcow2CreateOptions {
    let (cluster_bytes, features) = (1 << making.cluster_bits, features(making));
    Qcow2CreateOptions { cluster_bytes, features, ..Qcow2CreateOptions::new(size_bytes) }
}

impl Ours {
    pub(super) fn of(directory: &Path) -> Self {
        let allowed = AllowedDirectories::new(&[directory]).unwrap();
        Self { image: directory.join("image"), allowed }
    }

    pub(super) fn create(&self, making: &Making, size_bytes: u64, is_based: bool, has_data_file: bool) {
        let backing = is_based.then(|| {
            let format = format_of(&self.image.with_file_name("base")).to_owned();
            Qcow2Backing { name: "base".to_owned(), format }
        });
        let data_file = has_data_file.then(|| Qcow2DataFile { name: "data".to_owned(), is_raw: false });
        let options = Qcow2CreateOptions { backing, data_file, ..create_options(making, size_bytes) };
        Qcow2Disk::create(&self.image, &options).unwrap();
    }

    pub(super) fn open(&self, path: &Path, read_only: bool) -> Result<Qcow2Disk, Refusal> {
        Ok(Qcow2Disk::open(path, &options(read_only), &self.allowed)?)
    }

    /// What a snapshot shows.
    pub(super) fn snapshot(&self, name: &str) -> Result<Vec<u8>, String> {
        let file = File::open(&self.image).map_err(|error| error.to_string())?;
        let disk = Qcow2Disk::open_snapshot_in(file, &self.image, name, &options(true), &self.allowed);
        Ok(contents(&disk.map_err(|error| error.to_string())?))
    }

    /// By sector, whether the image holds it itself.
    pub(super) fn holds(&self) -> Result<Vec<bool>, String> {
        let disk = self.open(&self.image, true).map_err(|error| error.to_string())?;
        let size_bytes = disk.geometry().capacity_bytes;
        let mut is_own = Vec::new();
        while (is_own.len() as u64) < size_bytes / 512 {
            let found = disk.find_own(is_own.len() as u64 * 512..size_bytes);
            let (length_bytes, is) = found.map_err(|error| error.to_string())?;
            is_own.resize(is_own.len() + (length_bytes / 512) as usize, is);
        }
        Ok(is_own)
    }

    /// Requests, one after the other.
    pub(super) fn perform(&self, steps: &[Step]) -> Result<(), Refusal> {
        let disk = self.open(&self.image, false)?;
        let memory = MemoryMap::allocate(&[(0, 4 << 20)])?;
        let mut queue = disk.open_queue(&memory, 1)?;
        for step in steps {
            match *step {
                Step::Write { offset, length, byte } => {
                    let segment = Segment { region: 0, length_bytes: length as u32, offset_bytes: 0 };
                    memory.slice(segment).unwrap().copy_from(&vec![byte; length as usize]);
                    perform(&mut *queue, Operation::Write { force_unit_access: false }, offset, &[segment])?;
                }
                Step::Zero { offset, length, unmap } => {
                    let zeroes = Operation::WriteZeroes { length_bytes: length, may_unmap: unmap };
                    perform(&mut *queue, zeroes, offset, &[])?;
                }
                Step::Discard { offset, length } => {
                    perform(&mut *queue, Operation::Discard { length_bytes: length }, offset, &[])?;
                }
                _ => unreachable!("no request: {step:?}"),
            }
        }
        Ok(())
    }

    pub(super) fn command(&self, step: &Step) -> Result<(), Refusal> {
        let image = open_to_change(&self.image);
        match step {
            Step::Resize { size } => Qcow2Disk::resize(&image, *size, Preallocation::Off, &self.allowed)?,
            Step::Snapshot { change, name } => match change {
                SnapshotChange::Make => Qcow2Disk::make_snapshot(&image, name, &self.allowed)?,
                SnapshotChange::Apply => Qcow2Disk::apply_snapshot(&image, name, &self.allowed)?,
                SnapshotChange::Remove => Qcow2Disk::remove_snapshot(&image, name, &self.allowed)?,
            },
            Step::Bitmap { change, name } => {
                let action = match change {
                    BitmapChange::Add { granularity_bytes } => {
                        Qcow2BitmapAction::Add { granularity_bytes: Some(*granularity_bytes) }
                    }
                    BitmapChange::Remove => Qcow2BitmapAction::Remove,
                    BitmapChange::Clear => Qcow2BitmapAction::Clear,
                    BitmapChange::Enable => Qcow2BitmapAction::Enable,
                    BitmapChange::Disable => Qcow2BitmapAction::Disable,
                    BitmapChange::Merge { source } => Qcow2BitmapAction::Merge { source: source.clone() },
                };
                Qcow2Disk::change_bitmap(&image, name, &[action], None)?;
            }
            Step::Commit => {
                let commit = Qcow2Commit::open(image, None, &self.allowed)?;
                commit.fold(&mut |_, _| true)?;
                commit.empty()?;
            }
            Step::Rebase { name } => self.rebase(image, name)?,
            Step::Amend { version, is_lazy, refcount_order } => {
                let (version, has_lazy_refcounts, refcount_order) = (*version, *is_lazy, *refcount_order);
                let more = Qcow2Amendment::default();
                let amendment = Qcow2Amendment { version, has_lazy_refcounts, refcount_order, ..more };
                amendment.apply(&image, &self.allowed)?;
            }
            Step::Convert { making, compress } => {
                drop(image);
                self.convert(making, *compress)?;
            }
            _ => unreachable!("a request: {step:?}"),
        }
        Ok(())
    }

    fn rebase(&self, image: OpenedFile, name: &str) -> Result<(), Refusal> {
        let path = self.image.with_file_name(name);
        let backing = (!name.is_empty()).then(|| Qcow2Backing { name: name.into(), format: format_of(&path).into() });
        let behind: Option<Box<dyn Disk>> = match &backing {
            None => None,
            Some(backing) if backing.format == "qcow2" => Some(Box::new(self.open(&path, true)?)),
            Some(_) => Some(Box::new(FileDisk::open(&path, &options(true))?)),
        };
        let rebase = Qcow2Rebase::open(image)?;
        let shown = rebase.shown(&self.allowed)?;
        if behind.is_some() || shown.has_backing() {
            shown.keep(behind.as_deref(), &mut |_, _| true)?;
        }
        drop(shown);
        Ok(rebase.name_backing(backing.as_ref())?)
    }

    fn convert(&self, making: &Making, compress: bool) -> Result<(), Refusal> {
        let to = self.image.with_file_name("new");
        {
            let source = self.open(&self.image, true)?;
            let file = File::options().read(true).write(true).create(true).truncate(true).open(&to)?;
            let writer = Qcow2Writer::new(file, &create_options(making, source.geometry().capacity_bytes))?;
            let options = ConversionOptions { threads: 1, depth: 1, zero_run_bytes: Some(4096) };
            Conversion::to_qcow2(&source, Qcow2Target { writer: &writer, compress, behind: None }, options)
                .run(|_| true)?;
            writer.finish()?;
        }
        Ok(std::fs::rename(to, &self.image)?)
    }
}

/// What a disk holds.
pub(super) fn contents(disk: &dyn Disk) -> Vec<u8> {
    crate::read_bytes(disk, 0..disk.geometry().capacity_bytes).unwrap()
}
