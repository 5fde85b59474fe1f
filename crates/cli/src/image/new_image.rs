//! Making the file of a new image: empty, beside its name.

use super::named_image::{Format, directory_of};
use super::watch::Watch;
use crate::UsageError;
use anyhow::{Context, Result, bail};
use blockyard_block::{
    AllowedDirectories, Disk, Engine, FileDisk, FileOptions, Preallocation, Qcow2Backing, Qcow2CreateOptions,
    Qcow2Disk, ReplacementFile,
};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What a new image is like.
#[derive(Clone, Debug)]
pub struct NewImage {
    /// Its file.
    pub path: PathBuf,
    /// Its format.
    pub format: Format,
    /// Bytes in the disk; for qcow2 a multiple of 512.
    pub size_bytes: u64,
    /// The unit of allocation of qcow2.
    pub cluster_bytes: Option<u32>,
    /// What is allocated from the start.
    pub preallocation: Preallocation,
    /// What shows where the image holds nothing.
    pub backing: Option<Qcow2Backing>,
}

impl NewImage {
    /// Makes it, complete but for its name.
    ///
    /// # Errors
    /// When the file cannot be made, or is too small for the disk.
    pub fn make(&self, watch: &Watch) -> Result<ReplacementFile> {
        let file = ReplacementFile::create(&self.path)?;
        match self.format {
            Format::Raw => self.make_raw(&file, watch)?,
            Format::Qcow2 => Qcow2Disk::create_in(file.file(), &self.path, &self.qcow2_options())?,
            Format::Vmdk => bail!(UsageError("VMDK images can be read, not made: choose raw or qcow2".to_owned())),
        }
        Ok(file)
    }

    /// As the writers of qcow2 want it.
    pub fn qcow2_options(&self) -> Qcow2CreateOptions {
        let defaults = Qcow2CreateOptions::new(self.size_bytes);
        Qcow2CreateOptions {
            cluster_bytes: self.cluster_bytes.unwrap_or(defaults.cluster_bytes),
            preallocation: self.preallocation,
            backing: self.backing.clone(),
            ..defaults
        }
    }

    fn make_raw(&self, file: &ReplacementFile, watch: &Watch) -> Result<()> {
        file.set_length(self.size_bytes)?;
        if self.preallocation != Preallocation::Off {
            file.preallocate(0..self.size_bytes)?;
        }
        if self.preallocation == Preallocation::Full {
            self.write_zeros(file, watch)?;
        }
        Ok(())
    }

    fn write_zeros(&self, file: &ReplacementFile, watch: &Watch) -> Result<()> {
        const PIECE_BYTES: u64 = 1 << 20;
        let zeros = vec![0; PIECE_BYTES as usize];
        let mut at = 0;
        while at < self.size_bytes {
            let length = PIECE_BYTES.min(self.size_bytes - at);
            let written = file.file().write_all_at(&zeros[..length as usize], at);
            written.with_context(|| format!("cannot write zeros to {}", self.path.display()))?;
            watch.check()?;
            at += length;
        }
        Ok(())
    }

    /// Opens the image that was just made, to be written to before it has its name.
    ///
    /// # Errors
    /// When it, or what it is based on, cannot be opened.
    pub fn open(&self, file: &ReplacementFile, allow_dirs: &[PathBuf]) -> Result<Arc<dyn Disk>> {
        let options = FileOptions { engine: Engine::Sync, lock: false, ..FileOptions::default() };
        let handle = file.file().try_clone().context("cannot duplicate a file descriptor")?;
        if self.format == Format::Raw {
            return Ok(Arc::new(FileDisk::from_file(handle, &options)?));
        }
        let allowed = AllowedDirectories::new(allow_dirs)?;
        // What it refers to starts from the directory: the name itself is not there yet.
        let directory = directory_of(&self.path).canonicalize().context("cannot find the image's directory")?;
        let name = self.path.file_name().map_or_else(PathBuf::new, PathBuf::from);
        Ok(Arc::new(Qcow2Disk::open_in(handle, &directory.join(name), &options, &allowed)?))
    }
}

/// Where a backing file's name leads to: from the image's directory, as QEMU has it.
pub fn backing_path(image: &Path, name: &str) -> PathBuf {
    directory_of(image).join(name)
}
