//! Opening whatever disk a specification names, those of other processes included.

use crate::client::{IO_BUFFER_BYTES, PATIENCE, SessionDisk, SessionError, SessionOptions};
use blockyard_block::specification::{
    DiskSpecification, Format, OpenContext, OpenError, OpenedDisk, OpenedImage, SessionSpecification, Unpacking,
};
use blockyard_block::{
    Disk, Engine, EventFd, OpenedFile, Qcow2Bitmap, Qcow2Info, RequestError, UnpackedDisk, printable, shown,
};
use std::cell::OnceCell;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::thread;
use std::time::{Duration, Instant};

/// A disk in another process.
type Connected = Result<Arc<dyn Disk>, OpenError>;

/// What somebody may want to know of a disk that is opened, in a sentence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remark<'a> {
    /// Something lies beside it that was left alone.
    LeftAlone(&'a str),
    /// What is written to it makes something in it out of date.
    OutOfDate(&'a str),
    /// It is repaired before it is changed.
    Repaired(&'a str),
}

/// What a disk is opened for, and how.
#[derive(Clone, Copy)]
pub struct OpenOptions<'a> {
    /// Refuse every change, whatever the specification says: no command opens for writing what it only reads. A change
    /// that was cut off is then seen through; otherwise it is completed first.
    pub read_only: bool,
    /// Where an image's other files may lie.
    pub allow_dirs: &'a [PathBuf],
    /// Its file, if that is open already.
    pub file: Option<&'a OpenedFile>,
    /// Requests' data lie in memory that has other secrets: a session's server does not map it, and gets a copy of what
    /// is for its disk.
    pub has_secrets: bool,
    /// How long a session's server that went away is waited for.
    pub reconnect: Duration,
    /// How long it is asked again whether one lets this process in that does not do so at once.
    pub busy: Duration,
    /// [`SessionOptions::patience`] of a session that is about to be.
    pub patience: Duration,
    /// [`SessionOptions::is_guest`] of a session that is about to be.
    pub is_guest: bool,
    /// [`SessionOptions::is_passed_on`] of a session that is about to be.
    pub is_passed_on: bool,
    /// [`SessionOptions::is_at_door`] of a session that is about to be.
    pub is_at_door: bool,
    /// [`SessionOptions::calls`] of a session that is about to be.
    pub calls: Option<&'static AtomicU64>,
    /// Every byte is read or written once, from one end to the other.
    pub streams: bool,
    /// Whoever opens it passes on what others write ([`OpenContext::gathers`]).
    pub gathers: bool,
    /// Says [`SessionOptions::ending`] of a session that is about to be.
    pub ending: &'a dyn Fn() -> Option<Arc<EventFd>>,
    /// Hears what is worth knowing though all goes on.
    pub remark: &'a dyn Fn(Remark<'_>),
    /// How a compressed file is read, where one may be.
    pub unpacking: Option<Unpacking<'a>>,
}

impl Default for OpenOptions<'_> {
    /// For writing, and nobody hears anything.
    fn default() -> Self {
        Self {
            read_only: false,
            allow_dirs: &[],
            file: None,
            has_secrets: false,
            reconnect: RECONNECT,
            busy: SERVER_BUSY,
            patience: PATIENCE,
            is_guest: false,
            is_passed_on: false,
            is_at_door: false,
            calls: None,
            streams: false,
            gathers: false,
            ending: &|| None,
            remark: &|_| {},
            unpacking: None,
        }
    }
}

impl OpenOptions<'_> {
    /// The same, from one end to the other, once.
    #[must_use]
    pub fn streaming(self) -> Self {
        Self { streams: true, ..self }
    }

    /// The same, for others, who write in pieces as small as they like.
    #[must_use]
    pub fn gathering(self) -> Self {
        Self { gathers: true, ..self }
    }
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
    /// It, if it is in a compressed file and decompressed while it is read.
    pub unpacked: Option<Arc<UnpackedDisk>>,
    /// The session that it is or lies on.
    pub session: Option<Arc<SessionDisk>>,
    /// Pieces that a thread has under way which reads or writes all of it: what lies in the page cache is not waited
    /// for.
    pub depth: usize,
}

/// In the page cache, and elsewhere.
const CACHED_DEPTH: usize = 1;
const WAITED_FOR_DEPTH: usize = 4;

impl OpenDisk {
    /// How many queues it can have open, at least one.
    pub fn queues_max(&self) -> usize {
        let block_bytes = self.disk.geometry().logical_block_bytes;
        self.session.as_ref().map_or(usize::MAX, |session| session.queues_for(block_bytes))
    }

    /// Whether nobody else changes it while it is open here: its file is locked, as disks are, against all who want to
    /// (a device is not), or whoever serves it says so.
    pub fn is_alone(&self) -> bool {
        match &self.file {
            Some(file) => file.file().metadata().is_ok_and(|metadata| metadata.is_file()),
            None => self.session.as_ref().is_none_or(|session| session.is_alone()),
        }
    }

    /// What is to be said of a request to it that failed.
    pub fn reason(&self, error: RequestError) -> String {
        // A request knows only that the connection is gone.
        let lost = self.session.as_ref().and_then(|session| session.failure());
        lost.map_or_else(|| error.with_remedy(), |reason| reason.to_string())
    }

    fn on(opened: OpenedDisk, session: Option<Arc<SessionDisk>>, depth: usize) -> Self {
        let OpenedDisk { disk, length_bytes, file, permissions, unfinished, unpacked } = opened;
        Self { disk, length_bytes, file, permissions, unfinished, unpacked, session, depth }
    }
}

/// Opens a disk; [`blockyard_block::specification`] says how.
///
/// # Errors
/// A sentence that names the disk.
pub fn open_disk(specification: &DiskSpecification, options: &OpenOptions<'_>) -> Result<OpenDisk, OpenError> {
    let session = OnceCell::new();
    let connect = |to: &SessionSpecification| -> Connected {
        let disk = Arc::new(connect(to, options)?);
        // A specification has one backend.
        let _ = session.set(Arc::clone(&disk));
        Ok(disk)
    };
    let note = |note: &str| (options.remark)(Remark::LeftAlone(note));
    let is_cached = specification.is_buffered();
    let streamed = (options.streams && is_cached).then(|| specification.clone().or_engine(Engine::Sync));
    let specification = streamed.as_ref().unwrap_or(specification);
    // A file whose bitmaps are looked at is that which is opened.
    let bitmapped =
        specification.written_file().filter(|_| !options.read_only && specification.format() == Some(Format::Qcow2));
    let own = match (options.file, bitmapped) {
        (None, Some(path)) => Some(OpenedFile::open(path, false)?),
        _ => None,
    };
    let file = options.file.or(own.as_ref());
    if let Some(file) = file.filter(|_| bitmapped.is_some()) {
        tell_of_changes(file, options.remark);
    }
    let opened = specification.open(&context(&OpenOptions { file, ..*options }, &connect, &note))?;
    let depth = if is_cached { CACHED_DEPTH } else { WAITED_FOR_DEPTH };
    Ok(OpenDisk::on(opened, session.into_inner(), depth))
}

/// Opens an image's file, for a command that works on the file by itself: [`DiskSpecification::open_image`].
///
/// # Errors
/// When it is in no file, the file cannot be had, or has a change that was cut off and cannot be completed.
pub fn open_file(specification: &DiskSpecification, options: &OpenOptions<'_>) -> Result<OpenedImage, OpenError> {
    let connect = |to: &SessionSpecification| -> Connected { Ok(Arc::new(connect(to, options)?)) };
    let note = |note: &str| (options.remark)(Remark::LeftAlone(note));
    specification.open_image(&context(options, &connect, &note))
}

/// The same, of an image that is about to be changed: says what becomes of it before.
///
/// # Errors
/// As [`open_file`].
pub fn open_to_change(specification: &DiskSpecification, options: &OpenOptions<'_>) -> Result<OpenedImage, OpenError> {
    let opened = open_file(specification, options)?;
    if specification.format() == Some(Format::Qcow2) {
        tell_of_repair(&opened.file, options.remark);
    }
    Ok(opened)
}

fn context<'a>(
    options: &OpenOptions<'a>,
    connect: &'a dyn Fn(&SessionSpecification) -> Connected,
    note: &'a dyn Fn(&str),
) -> OpenContext<'a> {
    let OpenOptions { read_only, allow_dirs, file, gathers, unpacking, .. } = *options;
    OpenContext { allow_dirs, connect, file, read_only, gathers, note, unpacking }
}

fn tell_of_repair(image: &OpenedFile, remark: &dyn Fn(Remark<'_>)) {
    // An image that cannot be read is an error when it is used.
    if Qcow2Info::of_opened(image).is_ok_and(|info| info.is_dirty && !info.is_corrupt) {
        let path = shown(image.path());
        remark(Remark::Repaired(&format!(
            "{path} is marked dirty, as after a crash of whoever wrote it: it is repaired before it is changed"
        )));
    }
}

/// Says what happens to an image that is opened for writing: that it is repaired, and which of its bitmaps cannot be
/// kept, and will be out of date when it has been written to.
fn tell_of_changes(image: &OpenedFile, remark: &dyn Fn(Remark<'_>)) {
    tell_of_repair(image, remark);
    let Ok(info) = Qcow2Info::of_opened(image) else { return };
    let is_lost = |bitmap: &Qcow2Bitmap| bitmap.is_auto && !bitmap.is_in_use && !bitmap.can_be_kept;
    let lost: Vec<_> =
        info.bitmaps.iter().filter(|bitmap| is_lost(bitmap)).map(|bitmap| printable(&bitmap.name)).collect();
    if !lost.is_empty() {
        remark(Remark::OutOfDate(&format!(
            "{} has bitmaps of what changed that cannot be kept up to date here, and are marked so: {}",
            shown(image.path()),
            lost.join(", ")
        )));
    }
}

/// How long a server that went away is waited for: somebody restarts it, or it is gone.
pub const RECONNECT: Duration = Duration::from_secs(10);

/// How long a server may take to notice that its last client has gone, and until then turns the next one away; or to
/// listen on the socket that it has just made.
pub const SERVER_BUSY: Duration = Duration::from_millis(500);
const RETRY_PAUSE: Duration = Duration::from_millis(10);

fn connect(session: &SessionSpecification, options: &OpenOptions<'_>) -> Result<SessionDisk, OpenError> {
    let io_buffer_bytes = session.io_buffer_bytes.or(options.has_secrets.then_some(IO_BUFFER_BYTES));
    let OpenOptions { reconnect, busy, patience, is_guest, is_passed_on, is_at_door, calls, .. } = *options;
    let ending = (options.ending)();
    let options = SessionOptions {
        io_buffer_bytes,
        reconnect,
        patience,
        ending,
        is_guest,
        is_passed_on,
        is_at_door,
        calls,
        ..SessionOptions::default()
    };
    let (start, mut pause) = (Instant::now(), RETRY_PAUSE);
    loop {
        match SessionDisk::connect(&session.path, &options) {
            Err(SessionError::Closed(_) | SessionError::Os { .. } | SessionError::NobodyListens(_))
                if start.elapsed() < busy =>
            {
                thread::sleep(pause);
                pause *= 2;
            }
            connected => return connected.map_err(|error| OpenError::Session(error.into())),
        }
    }
}
