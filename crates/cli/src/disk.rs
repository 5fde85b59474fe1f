//! Disks as they are named on the command line.

use crate::{UsageLines, terminal};
use anyhow::Result;
use blockyard_block::specification::{
    DiskSpecification, Format, OpenContext, OpenError, OpenedDisk, SessionSpecification,
};
use blockyard_block::{Disk, OpenedFile, Qcow2Info, printable, shown};
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
/// [`UsageLines`] when it names no disk; otherwise a sentence that names the disk.
pub fn open_disk(spec: &str, read_only: bool, allow_dirs: &[PathBuf]) -> Result<Arc<dyn Disk>> {
    let specification: DiskSpecification = spec.parse().map_err(UsageLines::from)?;
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

    /// How many queues it can have open, at least one.
    pub fn queues_max(&self) -> usize {
        let Some(session) = &self.session else { return usize::MAX };
        // What writes parts of blocks needs one more.
        let merges = self.disk.geometry().logical_block_bytes < session.geometry().logical_block_bytes;
        usize::from(session.queue_count()).saturating_sub(merges.into()).max(1)
    }

    fn on(opened: OpenedDisk, session: Option<Arc<SessionDisk>>) -> Self {
        let OpenedDisk { disk, length_bytes, file, permissions, unfinished } = opened;
        Self { disk, length_bytes, file, permissions, unfinished, session }
    }
}

/// Opens an image's file, once, for a command that works on the file itself: [`DiskSpecification::open_image`]. Whether a change to it that was
/// cut off has been completed.
///
/// # Errors
/// When it is in no file, the file cannot be had, or has a change that cannot be completed.
pub fn open_image(
    specification: &DiskSpecification,
    read_only: bool,
    allow_dirs: &[PathBuf],
) -> Result<(OpenedFile, bool)> {
    Ok(specification.open_image(read_only, allow_dirs, &note)?)
}

/// Something that is worth knowing, though all goes on.
fn note(note: &str) {
    terminal::say(&format!("note: {}", printable(note)));
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
    let Access { file, read_only, allow_dirs, .. } = *access;
    // A file whose bitmaps are looked at is that which is opened.
    let bitmapped =
        specification.written_file().filter(|_| !read_only && specification.format() == Some(Format::Qcow2));
    let own = match (file, bitmapped) {
        (None, Some(path)) => Some(OpenedFile::open(path, false).map_err(OpenError::from)?),
        _ => None,
    };
    let file = file.or(own.as_ref());
    if let Some(file) = file.filter(|_| bitmapped.is_some()) {
        tell_of_bitmaps(file);
    }
    let context = OpenContext { allow_dirs, connect: &connect, file, read_only, note: &note };
    let opened = specification.open_measured(&context)?;
    Ok(OpenDisk::on(opened, session.into_inner()))
}

/// Says on stderr which bitmaps of an image will be out of date when it has been written to.
fn tell_of_bitmaps(image: &OpenedFile) {
    // An image that cannot be read is an error when it is used.
    let Ok(info) = Qcow2Info::of_opened(image) else { return };
    let fresh: Vec<_> =
        info.bitmaps.iter().filter(|bitmap| !bitmap.is_in_use).map(|bitmap| printable(&bitmap.name)).collect();
    if !fresh.is_empty() {
        terminal::say(&format!(
            "{} has bitmaps of what changed, which are not kept up to date here and are marked so: {}",
            shown(image.path()),
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
