//! A disk, memory, and a queue between them.

use crate::shared;
pub(crate) use crate::shared::random::pattern;
pub(crate) use crate::shared::{WRITE, request};
use blockyard_block::{Completion, Engine, FileDisk, FileOptions, MemoryMap};
use std::fs::{self, File};
use std::ops::{Deref, DerefMut};
use std::path::PathBuf;
use std::sync::Arc;
use tempfile::TempDir;

pub(crate) const REGION_BYTES: usize = 2 << 20;

/// The shared rig, and the file below it.
pub(crate) struct Rig {
    pub(crate) rig: shared::Rig,
    pub(crate) file: Arc<FileDisk>,
    pub(crate) path: PathBuf,
    _directory: TempDir,
}

pub(crate) fn options(engine: Engine) -> FileOptions {
    FileOptions { engine, ..FileOptions::default() }
}

/// Whether this process may have an io_uring, asked without the code that is tested.
pub(crate) fn has_io_uring() -> bool {
    let refused = io_uring::IoUring::new(1).err();
    if let Some(error) = &refused {
        eprintln!("io_uring is refused here ({error}): the other engines are tested alone");
    }
    refused.is_none()
}

/// Two regions, one right behind the other.
pub(crate) fn memory() -> MemoryMap {
    MemoryMap::allocate(&[(0, REGION_BYTES), (REGION_BYTES as u64, REGION_BYTES)]).unwrap()
}

impl Rig {
    pub(crate) fn new(engine: Engine, contents: &[u8]) -> Self {
        Self::with(contents, &options(engine), 8)
    }

    pub(crate) fn with(contents: &[u8], options: &FileOptions, depth: usize) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("disk.img");
        fs::write(&path, contents).unwrap();
        let disk = FileDisk::open(&path, options).unwrap();
        Self::on(disk, path, directory, depth)
    }

    pub(crate) fn from_file(file: File, options: &FileOptions) -> Self {
        let disk = FileDisk::from_file(file, options).unwrap();
        Self::on(disk, PathBuf::new(), tempfile::tempdir().unwrap(), 8)
    }

    fn on(disk: FileDisk, path: PathBuf, directory: TempDir, depth: usize) -> Self {
        let file = Arc::new(disk);
        let rig = shared::Rig::with_memory(file.clone(), memory(), depth);
        Self { rig, file, path, _directory: directory }
    }

    pub(crate) fn contents(&self) -> Vec<u8> {
        fs::read(&self.path).unwrap()
    }

    /// By the queue's own means.
    pub(crate) fn drain(&mut self) -> Vec<Completion> {
        let mut completions = Vec::new();
        self.queue.drain(&mut completions).unwrap();
        completions
    }
}

impl Deref for Rig {
    type Target = shared::Rig;

    fn deref(&self) -> &shared::Rig {
        &self.rig
    }
}

impl DerefMut for Rig {
    fn deref_mut(&mut self) -> &mut shared::Rig {
        &mut self.rig
    }
}
