//! What `bench layers` and `testvm run` work on: a file with an MBR of one partition, and names for sockets.

use anyhow::{Context, Result};
use blockyard_bench::layer_costs::OpenTarget;
use blockyard_bench::{random_file, work_directory};
use blockyard_block::specification::DiskSpecification;
use blockyard_block::{Disk, private_directory};
use blockyard_command_line::disk;
use blockyard_session::open::{OpenOptions, open_disk};
use std::any::Any;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;

/// Where the partition starts.
pub const PARTITION_START_BYTES: u64 = 1 << 20;
/// Sector size of an MBR.
const SECTOR_BYTES: u64 = 512;
/// Most data: what an MBR can say.
pub const LENGTH_BYTES_MAX: u64 = (1 << 40) - PARTITION_START_BYTES;

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
        random_file::write(&path, PARTITION_START_BYTES, length_bytes)
            .and_then(|()| File::options().write(true).open(&path)?.write_all_at(&partition_table(length_bytes), 0))
            .with_context(|| format!("writing {}", path.display()))?;
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

/// An MBR with one partition (UEFI specification 2.10, section 5.2.1). What its CHS fields say is "see the LBA fields".
fn partition_table(length_bytes: u64) -> [u8; SECTOR_BYTES as usize] {
    const ENTRY: usize = 446;
    const LINUX: u8 = 0x83;
    const CHS: [u8; 3] = [0xfe, 0xff, 0xff];
    let sectors = |bytes: u64| ((bytes / SECTOR_BYTES) as u32).to_le_bytes();
    let mut table = [0; SECTOR_BYTES as usize];
    table[440..444].copy_from_slice(b"yard");
    table[ENTRY + 1..ENTRY + 4].copy_from_slice(&CHS);
    table[ENTRY + 4] = LINUX;
    table[ENTRY + 5..ENTRY + 8].copy_from_slice(&CHS);
    table[ENTRY + 8..ENTRY + 12].copy_from_slice(&sectors(PARTITION_START_BYTES));
    table[ENTRY + 12..ENTRY + 16].copy_from_slice(&sectors(length_bytes));
    table[510..].copy_from_slice(&[0x55, 0xaa]);
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn sfdisk_reads_our_partition_table() {
        let parent = tempfile::tempdir().unwrap();
        let yard = Yard::create(parent.path(), 3 << 20, false).unwrap();
        let output = Command::new("sfdisk").arg("--dump").arg(yard.file()).output().expect("Debian's fdisk has sfdisk");
        let text = String::from_utf8(output.stdout).unwrap();
        let found = text.lines().find(|line| line.contains("type=83")).unwrap_or_else(|| panic!("{text}"));
        let words = found.split_once(" : ").unwrap().1.replace(' ', "");
        assert_eq!(words, "start=2048,size=6144,type=83");
    }
}
