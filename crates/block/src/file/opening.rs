//! Opening what somebody named as a disk, once.

use super::FileDiskError;
use super::backing::check_kind;
use super::lock::{DeviceHolder, Patience, find_of_device};
use crate::descriptor_path;
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

/// Opens a file, and a block device for writing only if nobody else in the system has it.
pub(super) fn open(path: &Path, read_only: bool) -> Result<File, FileDiskError> {
    let seen = openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    open_seen(seen.map_err(|errno| failed(path, read_only)(errno.into()))?, path, read_only)
}

fn failed(path: &Path, read_only: bool) -> impl Fn(io::Error) -> FileDiskError {
    let access = if read_only { "reading" } else { "reading and writing" };
    move |source| FileDiskError::Open { path: path.to_owned(), access, source }
}

/// Whether it is this user who may not, or nobody.
fn is_refused(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
}

/// The same, of what is open as a path only (`O_PATH`), and lies at `path`. Opening a FIFO would wait for its other
/// end, and opening a device can have effects: what is opened was looked at first.
pub(super) fn open_seen(seen: OwnedFd, path: &Path, read_only: bool) -> Result<File, FileDiskError> {
    let failed = failed(path, read_only);
    let seen = File::from(seen);
    let metadata = seen.metadata().map_err(&failed)?;
    check_kind(path, metadata.file_type())?;
    let is_exclusive = metadata.file_type().is_block_device() && !read_only;
    let mut how = OpenOptions::new();
    how.read(true).write(!read_only).custom_flags(if is_exclusive { libc::O_EXCL } else { 0 });
    let link = descriptor_path(&seen);
    let patience = Patience::new();
    loop {
        let opened = match how.open(&link) {
            // There is no /proc here.
            Err(error) if error.kind() == io::ErrorKind::NotFound => how.open(path),
            opened => opened,
        };
        let file = match opened {
            Err(error) if is_exclusive && Errno::from_io_error(&error) == Some(Errno::BUSY) => {
                let holder = find_of_device(&metadata);
                if !patience.waits(holder.is_some()) {
                    return Err(in_use(path, holder));
                }
                continue;
            }
            Err(reason) if !read_only && is_refused(&reason) && File::open(&link).is_ok() => {
                return Err(FileDiskError::NotWritable { path: path.to_owned(), reason });
            }
            opened => opened.map_err(&failed)?,
        };
        return if is_same(&file.metadata().map_err(&failed)?, &metadata) {
            Ok(file)
        } else {
            Err(FileDiskError::Replaced(path.to_owned()))
        };
    }
}

fn in_use(path: &Path, holder: Option<DeviceHolder>) -> FileDiskError {
    let path = path.to_owned();
    match holder {
        Some(DeviceHolder::Process(holder)) => FileDiskError::Locked { path, holder, purpose: "for writing" },
        Some(DeviceHolder::System) | None => FileDiskError::DeviceInUse { path },
    }
}

fn is_same(a: &Metadata, b: &Metadata) -> bool {
    (a.dev(), a.ino()) == (b.dev(), b.ino())
}
