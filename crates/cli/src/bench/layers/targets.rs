//! The columns of `bench layers`: every way there is to the same data.
//!
//! Each leads to the bytes of one partition of one file, so that all of them do the same work in the end.

use super::serve_process::ServeProcess;
use crate::disk::{self, Access};
use anyhow::{Context, Result};
use blockyard_bench::layer_costs::{self, OpenTarget};
use blockyard_bench::random_file;
use blockyard_block::layers::{MeteredDisk, PartitionDisk, ThrottleLimits, ThrottledDisk};
use blockyard_block::specification::DiskSpecification;
use blockyard_block::{Disk, private_directory, private_directory_in};
use std::any::Any;
use std::ffi::OsStr;
use std::fs::File;
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;

/// Where the partition starts.
const PARTITION_START_BYTES: u64 = 1 << 20;
/// Sector size of an MBR.
const SECTOR_BYTES: u64 = 512;
/// Most data: what an MBR can say.
pub const LENGTH_BYTES_MAX: u64 = (1 << 40) - PARTITION_START_BYTES;

/// A way to the data.
pub struct Target {
    /// What heads its column, and names it on the command line.
    pub name: &'static str,
    open: fn(&Yard) -> Result<OpenTarget>,
}

/// The columns, in their order.
pub const TARGETS: [Target; 9] = [
    Target { name: "null", open: null },
    Target { name: BASE_FILE, open: |yard| yard.disk(&yard.file_disk(), PARTITION_START_BYTES, ()) },
    Target { name: "file+layers", open: file_with_layers },
    Target { name: "session", open: |yard| session(yard, None) },
    Target { name: "session-128K", open: |yard| session(yard, Some(128 << 10)) },
    Target { name: "session-4M", open: |yard| session(yard, Some(4 << 20)) },
    Target { name: "mediated", open: |yard| partition(yard, &[]) },
    Target { name: "copying", open: |yard| partition(yard, &["--copying"]) },
    Target { name: "fuse", open: fuse },
];

const BASE_FILE: &str = super::BASE;

impl Target {
    /// The target in this yard.
    pub fn on<'a>(&'a self, yard: &'a Yard) -> layer_costs::Target<'a> {
        layer_costs::Target { name: self.name, open: Box::new(|| (self.open)(yard)) }
    }
}

/// A disk that does nothing, as large as the others.
fn null(yard: &Yard) -> Result<OpenTarget> {
    yard.disk(&DiskSpecification::of_nothing(yard.length_bytes), 0, ())
}

/// The partition, throttled so little that it is never felt, and metered.
fn file_with_layers(yard: &Yard) -> Result<OpenTarget> {
    let file = yard.open(&yard.file_disk())?;
    let partition = PartitionDisk::new(file, PARTITION_START_BYTES..yard.file_bytes(), !yard.write)?;
    let limits = ThrottleLimits {
        iops: NonZeroU64::new(1_000_000_000),
        bytes_per_second: NonZeroU64::new(1 << 40),
        burst: ThrottleLimits::BURST_DEFAULT,
    };
    let throttled = ThrottledDisk::new(Arc::new(partition), &limits);
    let disk = Arc::new(MeteredDisk::new(Arc::new(throttled)));
    Ok(OpenTarget { disk, start_bytes: 0, keeper: Box::new(()) })
}

fn session(yard: &Yard, io_buffer_bytes: Option<u64>) -> Result<OpenTarget> {
    let socket = yard.scratch("session")?;
    let server = ServeProcess::start(&["--socket".as_ref(), socket.path.as_os_str()], yard, || socket.path.exists())?;
    let session = DiskSpecification::of_session(&socket.path);
    let session = match io_buffer_bytes {
        Some(bytes) => session.with_io_buffer(bytes)?,
        None => session,
    };
    yard.disk(&session, PARTITION_START_BYTES, (server, socket))
}

fn partition(yard: &Yard, more: &[&str]) -> Result<OpenTarget> {
    let socket = yard.scratch("partition")?;
    let rights = if yard.write { ",rw" } else { "" };
    let partition = format!("1={}{rights}", socket.path.display());
    let arguments: Vec<_> =
        ["--partition", &partition].into_iter().chain(more.iter().copied()).map(OsStr::new).collect();
    let server = ServeProcess::start(&arguments, yard, || socket.path.exists())?;
    yard.disk(&DiskSpecification::of_session(&socket.path), 0, (server, socket))
}

fn fuse(yard: &Yard) -> Result<OpenTarget> {
    let file = yard.scratch("fuse.img")?;
    // It is there when it is as long as what it shows.
    let mounted = || file.path.metadata().is_ok_and(|metadata| metadata.len() == yard.file_bytes());
    let server = ServeProcess::start(&["--fuse".as_ref(), file.path.as_os_str()], yard, mounted)?;
    let direct = DiskSpecification::of_file(&file.path).with_direct()?;
    yard.disk(&direct, PARTITION_START_BYTES, (server, file))
}

/// A name in a directory of its own. Unix sockets have short names, so it is not beside the data.
struct Scratch {
    path: PathBuf,
    _directory: TempDir,
}

/// The file with the data, and where everything else goes.
pub struct Yard {
    directory: TempDir,
    length_bytes: u64,
    /// Whether the data are written.
    write: bool,
}

impl Yard {
    /// Makes the file: a partition table, and a partition full of data.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn create(directory: &Path, length_bytes: u64, write: bool) -> Result<Self> {
        let directory = private_directory_in(directory, "blockyard-bench-").context("making a directory")?;
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

    fn file_bytes(&self) -> u64 {
        PARTITION_START_BYTES + self.length_bytes
    }

    fn file_disk(&self) -> DiskSpecification {
        DiskSpecification::of_file(self.file())
    }

    fn scratch(&self, name: &str) -> Result<Scratch> {
        let directory = private_directory(|_| true).context("making a directory")?;
        Ok(Scratch { path: directory.path().join(name), _directory: directory })
    }

    fn disk(&self, named: &DiskSpecification, start_bytes: u64, keeper: impl Any) -> Result<OpenTarget> {
        Ok(OpenTarget { disk: self.open(named)?, start_bytes, keeper: Box::new(keeper) })
    }

    fn open(&self, named: &DiskSpecification) -> Result<Arc<dyn Disk>> {
        Ok(disk::open(named, &Access { read_only: !self.write, ..Access::default() })?.disk)
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
