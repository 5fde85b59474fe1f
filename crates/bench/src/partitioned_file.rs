//! Files with a partition to measure on.

use crate::random_file;
use anyhow::{Context, Result};
use blockyard_block::partition_table::{NewPartition, PartitionKind, PartitionTable, Scheme};
use blockyard_block::{FileDisk, FileOptions, flush};
use std::path::Path;

/// Where the partition starts.
pub const PARTITION_START_BYTES: u64 = 1 << 20;
/// Most data: what an MBR can say.
pub const LENGTH_BYTES_MAX: u64 = (1 << 40) - PARTITION_START_BYTES;
/// What an MBR says of a partition of Linux's.
const LINUX: PartitionKind = PartitionKind::Mbr(0x83);

/// Makes a file: an MBR, and a partition of so many bytes, whole sectors, which [`random_file`] has written.
///
/// # Errors
/// When it cannot be written.
pub fn write(path: &Path, length_bytes: u64) -> Result<()> {
    random_file::write(path, PARTITION_START_BYTES, length_bytes)?;
    let disk = FileDisk::open(path, &FileOptions::default())?;
    let partition =
        NewPartition { length_bytes: Some(length_bytes), kind: LINUX, name: String::new(), is_bootable: false };
    PartitionTable::create(&disk, Scheme::Mbr, &[partition])?;
    flush(&disk).context("flushing it")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn sfdisk_finds_the_partition() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("disk.img");
        for sectors in [6144, 6143] {
            write(&path, sectors * 512).unwrap();
            let output = Command::new("sfdisk").arg("--dump").arg(&path).output().expect("Debian's fdisk has sfdisk");
            let text = String::from_utf8(output.stdout).unwrap();
            let found = text.lines().find(|line| line.contains("type=83")).unwrap_or_else(|| panic!("{text}"));
            let words = found.split_once(" : ").unwrap().1.replace(' ', "");
            assert_eq!(words, format!("start=2048,size={sectors},type=83"));
        }
    }
}
