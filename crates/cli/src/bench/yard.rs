//! What `bench layers` and `testvm run` work on: a file with an MBR of one partition, and names for sockets.

use anyhow::{Context, Result};
use blockyard_bench::layer_costs::OpenTarget;
pub use blockyard_bench::partitioned_file::{LENGTH_BYTES_MAX, PARTITION_START_BYTES};
use blockyard_bench::{partitioned_file, work_directory};
use blockyard_block::specification::DiskSpecification;
use blockyard_block::{Disk, private_directory};
use blockyard_command_line::disk;
use blockyard_session::open::{OpenOptions, open_disk};
use std::any::Any;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;

/// A name in a directory of its own. Unix sockets have short names, so it is not beside the data.
pub struct Scratch {
    /// The name.
    pub path: PathBuf,
    _directory: TempDir,
}

/// The file with the data, and where everything else goes.
pub struct Yard {
    directory: TempDir,
    /// Length of the data.
    pub length_bytes: u64,
    /// Whether the data are written.
    pub write: bool,
}

impl Yard {
    /// Makes the file: a partition table, and a partition full of data.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn create(directory: &Path, length_bytes: u64, write: bool) -> Result<Self> {
        let directory = work_directory::make_in(directory)?;
        let yard = Self { directory, length_bytes, write };
        let path = yard.file();
        partitioned_file::write(&path, length_bytes).with_context(|| format!("writing {}", path.display()))?;
        Ok(yard)
    }

    /// The file with the data.
    pub fn file(&self) -> PathBuf {
        self.directory.path().join("disk.img")
    }

    /// Where a server's messages go.
    pub fn log(&self) -> PathBuf {
        self.directory.path().join("serve.log")
    }

    /// Length of the file.
    pub fn file_bytes(&self) -> u64 {
        PARTITION_START_BYTES + self.length_bytes
    }

    /// The file as a disk.
    pub fn file_disk(&self) -> DiskSpecification {
        DiskSpecification::of_file(self.file())
    }

    /// A name for a socket or a file.
    ///
    /// # Errors
    /// When its directory cannot be made.
    pub fn scratch(&self, name: &str) -> Result<Scratch> {
        let directory = private_directory(|_| true).context("making a directory")?;
        Ok(Scratch { path: directory.path().join(name), _directory: directory })
    }

    /// A disk with the data from `start_bytes` on; what `keeper` is lives as long.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn disk(&self, named: &DiskSpecification, start_bytes: u64, keeper: impl Any) -> Result<OpenTarget> {
        Ok(OpenTarget { disk: self.open(named)?, start_bytes, keeper: Box::new(keeper) })
    }

    /// A disk, for what is done with the data.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn open(&self, named: &DiskSpecification) -> Result<Arc<dyn Disk>> {
        Ok(open_disk(named, &OpenOptions { read_only: !self.write, ..disk::to_write(&[]) })?.disk)
    }
}
