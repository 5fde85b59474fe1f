//! A disk in RAM.

use crate::layers::layer;
use crate::{Disk, Engine, FileDisk, FileOptions};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use std::fs::File;
use std::io;

/// A disk whose contents live in memory of their own and are gone with it. Only what was written takes memory.
///
/// The storage is a memfd, not a mapping: running out of memory is an error of one request, never a SIGBUS.
#[derive(Debug)]
pub struct MemoryDisk {
    file: FileDisk,
}

impl MemoryDisk {
    /// A zeroed disk of `capacity_bytes`, rounded up to whole logical blocks of `logical_block_bytes`.
    ///
    /// # Errors
    /// When the block size is not a power of two from 512 to 65536, the capacity is larger than a file can be, or the
    /// memory file cannot be had.
    pub fn new(capacity_bytes: u64, logical_block_bytes: u32) -> io::Result<Self> {
        crate::file::check_logical_block(logical_block_bytes).map_err(io::Error::other)?;
        let capacity_bytes = capacity_bytes
            .checked_next_multiple_of(u64::from(logical_block_bytes))
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the capacity is too large"))?;
        let memfd = File::from(memfd_create("blockyard-disk", MemfdFlags::CLOEXEC)?);
        ftruncate(&memfd, capacity_bytes)?;
        // There is no stable storage behind a memfd to flush to.
        let options =
            FileOptions { engine: Engine::Sync, logical_block_bytes, cache_unsafe: true, ..FileOptions::default() };
        let file = FileDisk::from_file(memfd, &options).map_err(io::Error::other)?;
        Ok(Self { file })
    }
}

impl layer::DiskLayer for MemoryDisk {
    fn below(&self) -> &dyn Disk {
        &self.file
    }
}
