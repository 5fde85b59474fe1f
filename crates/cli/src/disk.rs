//! Disks as they are named on the command line.

use crate::UsageError;
use anyhow::{Context, Result};
use blockyard_block::Disk;
use blockyard_block::specification::{DiskSpecification, OpenContext, OpenError, SessionSpecification};
use blockyard_session::client::{SessionDisk, SessionOptions};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Opens the disk that `spec` names; [`blockyard_block::specification`] says how. `read_only` refuses every change whatever it says:
/// no command opens for writing what it only reads. What an image refers to may lie in `allow_dirs` only.
///
/// # Errors
/// [`UsageError`] when it names no disk; otherwise a sentence that names the disk.
pub fn open_disk(spec: &str, read_only: bool, allow_dirs: &[PathBuf]) -> Result<Arc<dyn Disk>> {
    let specification: DiskSpecification = spec.parse().map_err(|error| UsageError(format!("{error}")))?;
    open(&specification, read_only, allow_dirs)
}

/// As [`open_disk`], when the specification is parsed already.
///
/// # Errors
/// A sentence that names the disk.
pub fn open(specification: &DiskSpecification, read_only: bool, allow_dirs: &[PathBuf]) -> Result<Arc<dyn Disk>> {
    let context = OpenContext { allow_dirs, connect: &connect, read_only };
    specification.open(&context).with_context(|| format!("cannot open {specification}"))
}

/// How long a server that went away is waited for: somebody restarts it, or it is gone.
const RECONNECT: Duration = Duration::from_secs(10);

fn connect(session: &SessionSpecification) -> Result<Arc<dyn Disk>, OpenError> {
    let io_buffer_bytes = session.io_buffer_bytes;
    let options = SessionOptions { io_buffer_bytes, reconnect: RECONNECT, ..SessionOptions::default() };
    let disk = SessionDisk::connect(&session.path, &options)
        .map_err(|error| OpenError::other(session.path.display().to_string(), error))?;
    Ok(Arc::new(disk))
}
