//! The columns of `bench layers`: every way there is to the same data.
//!
//! Each leads to the bytes of one partition of one file, so that all of them do the same work in the end.

use crate::bench::comparison::this_program;
use crate::bench::yard::{PARTITION_START_BYTES, Yard};
use anyhow::Result;
use blockyard_bench::layer_costs::{self, OpenTarget};
use blockyard_bench::serve_process::ServeProcess;
use blockyard_block::layers::{MeteredDisk, PartitionDisk, ThrottleLimits, ThrottledDisk};
use blockyard_block::specification::DiskSpecification;
use std::ffi::OsStr;
use std::num::NonZeroU64;
use std::sync::Arc;

/// A way to the data.
pub struct Target {
    /// What heads its column, and names it on the command line.
    pub name: &'static str,
    open: fn(&Yard) -> Result<OpenTarget>,
}

/// The columns, in their order.
pub const TARGETS: [Target; 9] = [
    Target { name: "null", open: null },
    Target { name: BASE, open: |yard| yard.disk(&yard.file_disk(), PARTITION_START_BYTES, ()) },
    Target { name: "file+layers", open: file_with_layers },
    Target { name: "session", open: |yard| session(yard, None) },
    Target { name: "session-128K", open: |yard| session(yard, Some(128 << 10)) },
    Target { name: "session-4M", open: |yard| session(yard, Some(4 << 20)) },
    Target { name: "mediated", open: |yard| partition(yard, &[]) },
    Target { name: "copying", open: |yard| partition(yard, &["--copying"]) },
    Target { name: "fuse", open: fuse },
];

/// What the other columns are compared with.
pub const BASE: &str = "file";

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
    let server = serve(yard, &["--socket".as_ref(), socket.path.as_os_str()], || socket.path.exists())?;
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
    let server = serve(yard, &arguments, || socket.path.exists())?;
    yard.disk(&DiskSpecification::of_session(&socket.path), 0, (server, socket))
}

fn fuse(yard: &Yard) -> Result<OpenTarget> {
    let file = yard.scratch("fuse.img")?;
    // It is there when it is as long as what it shows.
    let mounted = || file.path.metadata().is_ok_and(|metadata| metadata.len() == yard.file_bytes());
    let server = serve(yard, &["--fuse".as_ref(), file.path.as_os_str()], mounted)?;
    let direct = DiskSpecification::of_file(&file.path).with_direct()?;
    yard.disk(&direct, PARTITION_START_BYTES, (server, file))
}

/// Serves the yard's file.
fn serve(yard: &Yard, arguments: &[&OsStr], ready: impl Fn() -> bool) -> Result<ServeProcess> {
    ServeProcess::start(&this_program()?, yard.file().as_os_str(), arguments, &yard.log(), ready)
}
