//! Disks as they are named on the command line.

use crate::{UsageError, terminal};
use anyhow::{Context, Result};
use blockyard_block::specification::{DiskSpecification, OpenContext, OpenError, OpenedDisk, SessionSpecification};
use blockyard_block::{Disk, OpenedFile, Qcow2Info, printable};
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
    Ok(open_whole(specification, &Access { file: None, read_only, allow_dirs, reconnect: RECONNECT })?.disk)
}

/// What a disk is opened for, and how.
#[derive(Clone, Copy)]
pub struct Access<'a> {
    /// Its file, if that is open already.
    pub file: Option<&'a OpenedFile>,
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
    /// The file that it is in or on, if it is in one.
    pub file: Option<OpenedFile>,
    /// What the permission bits of its files allow.
    pub permissions: Option<u32>,
    /// The file of a change to it that was cut off, and through which it is seen.
    pub unfinished: Option<PathBuf>,
    /// The session that it is or lies on.
    pub session: Option<Arc<SessionDisk>>,
}

impl OpenDisk {
    /// Takes a disk that lies on no session.
    pub fn local(opened: OpenedDisk) -> Self {
        Self::on(opened, None)
    }

    fn on(opened: OpenedDisk, session: Option<Arc<SessionDisk>>) -> Self {
        let OpenedDisk { disk, length_bytes, file, permissions, unfinished } = opened;
        Self { disk, length_bytes, file, permissions, unfinished, session }
    }
}

/// Completes a change to an image (`--atomic`) whose command did not live to do it; true when there was one. For commands that then write to
/// the image's file by themselves.
///
/// # Errors
/// When there is such a change, and the image cannot be written.
pub fn complete_change(specification: &DiskSpecification, allow_dirs: &[PathBuf]) -> Result<bool> {
    if specification.unfinished_change()?.is_none() {
        return Ok(false);
    }
    let whole = specification.whole();
    open(&whole, false, allow_dirs).with_context(|| format!("{whole} has a change that must be completed first"))?;
    Ok(true)
}

/// Refuses an image with a change that was cut off: for commands that only look, and at its file rather than at the disk.
///
/// # Errors
/// When there is one; the sentence says what completes it.
pub fn refuse_unfinished_change(specification: &DiskSpecification) -> Result<()> {
    match specification.unfinished_change()? {
        Some(change) => Err(change.must_be_completed().into()),
        None => Ok(()),
    }
}

/// As [`open`], for commands that want to know more. A change to an image that was cut off is completed if it is opened for writing, and otherwise
/// seen through.
///
/// # Errors
/// A sentence that names the disk.
pub fn open_whole(specification: &DiskSpecification, access: &Access<'_>) -> Result<OpenDisk> {
    let session = OnceCell::new();
    let connect = |to: &SessionSpecification| -> Result<Arc<dyn Disk>, OpenError> {
        let disk = Arc::new(connect(to, access.reconnect)?);
        // A specification has one backend.
        let _ = session.set(Arc::clone(&disk));
        Ok(disk)
    };
    if !access.read_only {
        tell_of_bitmaps(specification);
    }
    let note = |note: &str| terminal::say(&format!("note: {}", printable(note)));
    let Access { file, read_only, allow_dirs, .. } = *access;
    let context = OpenContext { allow_dirs, connect: &connect, file, read_only, note: &note };
    let opened = specification.open_measured(&context)?;
    Ok(OpenDisk::on(opened, session.into_inner()))
}

/// Says on stderr which bitmaps of an image will be out of date when it has been written to.
fn tell_of_bitmaps(specification: &DiskSpecification) {
    let file = specification.written_file().filter(|_| specification.format() == Some("qcow2"));
    // An image that cannot be read is an error when it is opened.
    let Some((path, Ok(info))) = file.map(|path| (path, Qcow2Info::read(path))) else { return };
    let fresh: Vec<_> =
        info.bitmaps.iter().filter(|bitmap| !bitmap.is_in_use).map(|bitmap| printable(&bitmap.name)).collect();
    if !fresh.is_empty() {
        terminal::say(&format!(
            "{} has bitmaps of what changed, which are not kept up to date here and are marked so: {}",
            printable(&path.display().to_string()),
            fresh.join(", ")
        ));
    }
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
