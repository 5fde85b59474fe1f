//! Programs that were never changed, on disks of ours: each is started with a library (`crates/posix`) that carries its
//! calls on a disk's name out as requests to a session, and the session is served here.
//!
//! An [`Attachment`] holds its disks, and gives each process that comes a connection of its own. Whoever has the
//! directory of its sockets is let in: that is the user who made it.
#![forbid(unsafe_code)]

mod directory;
mod program;
mod server_counts;
mod sessions;
mod users;

use anyhow::{Context, Result};
use blockyard_block::{Disk, EventFd, ReplacementFile};
use blockyard_session::client::SessionDisk;
use blockyard_session::server::{Export, PROCESS_QUEUES, Server, ServerOptions, SessionStatistics};
use directory::Directory;
pub use program::{ProgramError, find_program};
use rustix::fs::{StatVfsMountFlags, statvfs};
use rustix::process::{Resource, getrlimit};
use sessions::{Page, Sessions};
use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::Write;
use std::num::NonZeroU32;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use users::Listeners;

/// The library.
pub const LIBRARY: &[u8] = include_bytes!(env!("BLOCKYARD_POSIX"));
/// What programs that are linked to it include.
const HEADER: &str = include_str!("../../posix/blockyard_posix.h");
const LIBRARY_NAME: &str = "libblockyard_posix.so";
const PRELOAD: &str = "LD_PRELOAD";
/// As the library has them (`crates/posix/src/names.rs`).
const VARIABLE: &str = "BLOCKYARD_ATTACH";
const LOOKS: &str = "BLOCKYARD_ATTACH_AS";
const AIO_MAX: &str = "BLOCKYARD_ATTACH_AIO_MAX";
/// POSIX AIO requests of a descriptor under way, at most (`crates/posix/src/aio.rs`).
pub const REQUESTS_MAX: u32 = 1024;
/// Disks at most.
pub const DISKS_MAX: usize = 64;
/// Threads that serve, if there are as many CPUs.
const THREADS_MAX: usize = 2;
/// The longest name of a directory in which a socket can be (`sun_path`).
const DIRECTORY_BYTES_MAX: usize = 80;

/// A disk, and the name that programs open it by.
pub struct Attached {
    /// The name: a program's text is compared with it, byte by byte.
    pub name: OsString,
    /// The disk.
    pub disk: Arc<dyn Disk>,
    /// Nobody else changes it meanwhile: what a program reads next may be read before it asks.
    pub is_alone: bool,
    /// The session that it is or lies on, if another process serves it, which may hang: there is nothing to be closed
    /// here, and it is not waited for.
    pub session: Option<Arc<SessionDisk>>,
    /// The session, if the disk is that and nothing else, and its server takes further connections: then each process
    /// is given one of those, and nobody is between.
    pub server: Option<Arc<SessionDisk>>,
}

/// What disks look like to programs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Looks {
    /// Block devices.
    #[default]
    Device,
    /// Files of their size.
    File,
}

/// How programs have their disks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AttachOptions {
    /// What they look like.
    pub looks: Looks,
    /// POSIX AIO requests that each descriptor may have under way: from 1 to [`REQUESTS_MAX`], which is what is taken
    /// where nothing is said.
    pub aio_max: Option<u32>,
    /// Whether [statistics](Attachment::statistics) are wanted of servers that will have gone.
    pub counts: bool,
}

/// A name that no disk can have.
#[derive(Debug, thiserror::Error)]
pub enum NameError {
    /// It would end what stands before it in the environment, or the line.
    #[error("a disk's name cannot be empty, and has no '=' and no line's end in it")]
    Sign,
    /// Two disks would have it.
    #[error("two disks are called {0}")]
    Twice(String),
    /// There are too many.
    #[error("there is room for {DISKS_MAX} disks")]
    TooMany,
}

/// Disks that are served to programs, until [`Attachment::end`].
pub struct Attachment {
    directory: Directory,
    environment: Vec<(&'static str, OsString)>,
    /// Those of each disk.
    sessions: Vec<Arc<Sessions>>,
    /// Of the disks that are closed in the end: they have these, but for what sessions have.
    listeners: Vec<JoinHandle<()>>,
    /// Ends them, once it is rung.
    is_over: Arc<EventFd>,
}

/// Writes that failed, and of which no program was told: it had not waited for them, and ended before it asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UntoldFailure {
    /// The disk's name.
    pub name: OsString,
    /// Why the disk's first write that failed did, for people.
    pub reason: String,
}

/// Whether the names can be told to the library.
///
/// # Errors
/// What is wrong with one.
pub fn check_names<'a>(names: impl IntoIterator<Item = &'a OsStr>) -> Result<(), NameError> {
    let mut known: Vec<&OsStr> = Vec::new();
    for name in names {
        let bytes = name.as_bytes();
        if bytes.is_empty() || bytes.iter().any(|byte| matches!(byte, b'=' | b'\n')) {
            return Err(NameError::Sign);
        }
        if known.contains(&name) {
            return Err(NameError::Twice(blockyard_block::shown(Path::new(name)).to_string()));
        }
        known.push(name);
    }
    if known.len() > DISKS_MAX { Err(NameError::TooMany) } else { Ok(()) }
}

impl Attachment {
    /// Serves `disks` from now on.
    ///
    /// # Errors
    /// When no directory can be had where programs may be executed, or the system refuses a socket or a thread.
    pub fn new(disks: Vec<Attached>, options: AttachOptions) -> Result<Self> {
        check_names(disks.iter().map(|disk| &*disk.name))?;
        let directory = Directory::new(suits).context("making a directory")?;
        let library = directory.path().join(LIBRARY_NAME);
        fs::write(&library, LIBRARY).with_context(|| format!("cannot write {}", blockyard_block::shown(&library)))?;
        let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(1 << 20) as usize;
        let threads = thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
        let serving = ServerOptions { threads, descriptors, ..ServerOptions::default() };
        let server = Arc::new(Server::start(&serving).context("starting I/O threads")?);
        let is_over = Arc::new(EventFd::new().context("making an eventfd")?);
        let (mut sessions, mut listening) = (Vec::new(), Vec::new());
        let mut lines = OsString::new();
        for (index, Attached { name, disk, is_alone, session, server: elsewhere }) in disks.into_iter().enumerate() {
            let socket = directory.path().join(index.to_string());
            let listener = |socket: &Path| UnixListener::bind(socket).context("making a socket");
            let users = is_alone.then(|| listener(&socket.with_extension("users"))).transpose()?;
            let door = elsewhere.is_some().then(|| listener(&socket.with_extension("door"))).transpose()?;
            let listeners = Listeners {
                sessions: listener(&socket)?,
                door,
                users,
                is_over: Arc::clone(&is_over),
                counts: options.counts && elsewhere.is_some(),
            };
            // What programs lock of the disk, they lock there (crates/posix/src/locks.rs), and count there who changes
            // it (crates/posix/src/writers.rs).
            File::create_new(socket.with_extension("flock")).context("making a file")?;
            // So do those that write parts of blocks (crates/posix/src/partial_writes.rs).
            File::create_new(socket.with_extension("parts")).context("making a file")?;
            let shared = File::create_new(socket.with_extension("lock")).context("making a file")?;
            let page = Page::new(shared, is_alone).context("making a file")?;
            let is_elsewhere = session.is_some();
            let of_disk = Arc::new(Sessions::new(name.clone(), page, is_alone, session, elsewhere));
            sessions.push(Arc::clone(&of_disk));
            for part in ["session:".as_ref(), socket.as_os_str(), "=".as_ref(), &name, "\n".as_ref()] {
                lines.push(part);
            }
            let export = Export {
                name: name.to_string_lossy().into(),
                disk,
                queues: PROCESS_QUEUES,
                weight: NonZeroU32::MIN,
                is_alone: false,
            };
            let server = Arc::clone(&server);
            // Who cannot be served sees the stream's end, and says so.
            let serve = move |stream| server.attach(stream, export.clone()).ok();
            let listen = move || listeners.listen(of_disk, serve);
            let thread = thread::Builder::new().name("attach".to_owned()).spawn(listen);
            let thread = thread.context("starting a thread")?;
            listening.extend((!is_elsewhere).then_some(thread));
        }
        let mut preload = library.into_os_string();
        if let Some(others) = env::var_os(PRELOAD).filter(|others| !others.is_empty()) {
            preload.push(":");
            preload.push(others);
        }
        let mut environment = vec![(PRELOAD, preload), (VARIABLE, lines)];
        if options.looks == Looks::File {
            environment.push((LOOKS, "file".into()));
        }
        environment.extend(options.aio_max.map(|count| (AIO_MAX, count.to_string().into())));
        Ok(Self { directory, environment, sessions, listeners: listening, is_over })
    }

    /// What a program's environment has to say.
    pub fn environment(&self) -> &[(&'static str, OsString)] {
        &self.environment
    }

    /// What programs have had of the disks so far.
    pub fn statistics(&self) -> SessionStatistics {
        let mut all = SessionStatistics::default();
        self.sessions.iter().for_each(|sessions| all.add(&sessions.statistics()));
        all
    }

    /// System calls that programs have made to have their requests heard, and to wait for their ends. What a program
    /// writes there is not judged.
    pub fn calls(&self) -> u64 {
        let calls = self.sessions.iter().filter_map(|sessions| sessions.page.calls().ok());
        calls.fold(0, u64::saturating_add)
    }

    /// Writes that failed without any program's knowing it, once all is done ([`settle`](Self::settle)).
    pub fn untold_failures(&self) -> impl Iterator<Item = UntoldFailure> {
        self.sessions.iter().filter_map(|sessions| sessions.untold_failure())
    }

    /// Disks that a process could not have, by their names, and why: its requests have failed.
    pub fn refusals(&self) -> impl Iterator<Item = (&OsStr, String)> {
        self.sessions.iter().filter_map(|sessions| Some((&*sessions.name, sessions.here.failure()?)))
    }

    /// Calls `then` when all is done that programs have written, whether they still run or not.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub fn settle(&self, then: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
        let disks = self.sessions.clone();
        let settle = move || {
            disks.iter().for_each(|sessions| sessions.settle());
            then();
        };
        thread::Builder::new().name("attach".to_owned()).spawn(settle).map(drop)
    }

    /// Removes what lies in the file system, and calls `then` when the disks are closed: as far as nobody else holds
    /// them. Programs that still run hear of an error (EIO).
    ///
    /// # Errors
    /// When something stays, or the system refuses a thread.
    pub fn end(self, then: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
        let Self { directory, sessions, listeners, is_over, .. } = self;
        // Nobody comes any more, and who does finds nothing.
        let removed = directory.close();
        let close = move || {
            is_over.ring();
            let here = || sessions.iter().filter(|sessions| !sessions.is_elsewhere());
            // A listener may be waiting for a session.
            here().for_each(|sessions| sessions.here.end());
            for listener in listeners {
                // What a thread had that panicked is gone, too.
                let _ = listener.join();
            }
            // They had let somebody in meanwhile, perhaps.
            here().for_each(|sessions| sessions.here.end());
            then();
        };
        thread::Builder::new().name("attach".to_owned()).spawn(close)?;
        removed
    }
}

/// Puts what programs are built with that are linked to the library below `prefix`: in lib, include and lib/pkgconfig.
///
/// # Errors
/// What cannot be written.
pub fn install_library(prefix: &Path) -> Result<()> {
    let prefix = std::path::absolute(prefix).context("finding the directory")?;
    let shown = blockyard_block::shown(&prefix);
    let package = format!(
        "prefix={shown}\nlibdir=${{prefix}}/lib\nincludedir=${{prefix}}/include\n\nName: blockyard-posix\n\
         Description: Disks of Blockyard's as files of a program's\nVersion: {}\nCflags: -I${{includedir}}\n\
         Libs: -L${{libdir}} -lblockyard_posix\n",
        env!("CARGO_PKG_VERSION")
    );
    let files: [(&str, &[u8]); 3] = [
        ("lib/libblockyard_posix.so", LIBRARY),
        ("include/blockyard_posix.h", HEADER.as_bytes()),
        ("lib/pkgconfig/blockyard-posix.pc", package.as_bytes()),
    ];
    for (name, content) in files {
        let path = prefix.join(name);
        replace(&path, content).with_context(|| format!("cannot write {}", blockyard_block::shown(&path)))?;
    }
    Ok(())
}

/// Programs that have what is there loaded go on with it.
fn replace(path: &Path, content: &[u8]) -> Result<()> {
    path.parent().map_or(Ok(()), fs::create_dir_all)?;
    let new = ReplacementFile::create(path)?;
    (&mut new.file()).write_all(content)?;
    Ok(new.commit(false)?)
}

/// Whether a library can lie there, and a socket, with names that LD_PRELOAD has room for.
fn suits(directory: &Path) -> bool {
    let name = directory.as_os_str().as_bytes();
    let executes = || statvfs(directory).is_ok_and(|place| !place.f_flag.contains(StatVfsMountFlags::NOEXEC));
    name.len() <= DIRECTORY_BYTES_MAX && !name.iter().any(|byte| matches!(byte, b' ' | b':' | b'\n')) && executes()
}
