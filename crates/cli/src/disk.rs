//! Disks as they are named on the command line.

use crate::UsageError;
use anyhow::{Context, Result};
use blockyard_block::specification::{
    DiskSpecification, Kind, OpenContext, OpenError, OpenedDisk, SessionSpecification,
};
use blockyard_block::{Disk, UnfinishedChange};
use blockyard_session::client::{SessionDisk, SessionError, SessionOptions};
use std::cell::OnceCell;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

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
    Ok(open_whole(specification, &Access { read_only, allow_dirs, reconnect: RECONNECT })?.disk)
}

/// What a disk is opened for, and how.
#[derive(Clone, Copy)]
pub struct Access<'a> {
    /// Refuse every change.
    pub read_only: bool,
    /// Where an image's other files may lie.
    pub allow_dirs: &'a [PathBuf],
    /// How long a session's server that went away is waited for.
    pub reconnect: Duration,
}

/// A disk, and what is known of it besides.
pub struct OpenDisk {
    /// The disk.
    pub disk: Arc<dyn Disk>,
    /// Bytes in it, as [`OpenedDisk::length_bytes`] has them.
    pub length_bytes: u64,
    /// The session that it is or lies on.
    pub session: Option<Arc<SessionDisk>>,
}

impl OpenDisk {
    /// Takes a disk that lies on no session.
    pub fn local(OpenedDisk { disk, length_bytes }: OpenedDisk) -> Self {
        Self { disk, length_bytes, session: None }
    }
}

/// As [`open`], for commands that want to know more.
///
/// # Errors
/// A sentence that names the disk.
pub fn open_whole(specification: &DiskSpecification, access: &Access<'_>) -> Result<OpenDisk> {
    complete_change(specification, access.allow_dirs)?;
    open_as_it_is(specification, access)
}

/// Completes a change to an image (`--atomic`) whose command did not live to do it. Nobody sees the image without this.
///
/// # Errors
/// When there is such a change, and the image cannot be written.
pub fn complete_change(specification: &DiskSpecification, allow_dirs: &[PathBuf]) -> Result<()> {
    let file = specification.path().filter(|_| specification.kind() == Kind::File && specification.is_locked());
    let Some(change) = file.and_then(UnfinishedChange::find) else { return Ok(()) };
    let whole = specification.whole();
    let opened = open_as_it_is(&whole, &Access { read_only: false, allow_dirs, reconnect: RECONNECT });
    let disk = opened.with_context(|| format!("{whole} has a change that must be completed first"))?.disk;
    Ok(change.complete(disk)?)
}

fn open_as_it_is(specification: &DiskSpecification, access: &Access<'_>) -> Result<OpenDisk> {
    let session = OnceCell::new();
    let connect = |to: &SessionSpecification| -> Result<Arc<dyn Disk>, OpenError> {
        let disk = Arc::new(connect(to, access.reconnect)?);
        // A specification has one backend.
        let _ = session.set(Arc::clone(&disk));
        Ok(disk)
    };
    let context = OpenContext { allow_dirs: access.allow_dirs, connect: &connect, read_only: access.read_only };
    let OpenedDisk { disk, length_bytes } = specification.open_measured(&context)?;
    Ok(OpenDisk { disk, length_bytes, session: session.into_inner() })
}

/// How long a server that went away is waited for: somebody restarts it, or it is gone.
pub const RECONNECT: Duration = Duration::from_secs(10);

/// How long a server may take to notice that its last client has gone, and until then turns the next one away; or to listen on the
/// socket that it has just made.
const SERVER_BUSY: Duration = Duration::from_millis(500);
const RETRY_PAUSE: Duration = Duration::from_millis(10);

fn connect(session: &SessionSpecification, reconnect: Duration) -> Result<SessionDisk, OpenError> {
    let io_buffer_bytes = session.io_buffer_bytes;
    let options = SessionOptions { io_buffer_bytes, reconnect, ..SessionOptions::default() };
    let (start, mut pause) = (Instant::now(), RETRY_PAUSE);
    loop {
        match SessionDisk::connect(&session.path, &options) {
            Err(SessionError::Closed(_) | SessionError::Os { .. } | SessionError::NobodyListens(_))
                if start.elapsed() < SERVER_BUSY =>
            {
                thread::sleep(pause);
                pause *= 2;
            }
            connected => return connected.map_err(|error| OpenError::Session(error.into())),
        }
    }
}
