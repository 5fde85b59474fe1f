//! The process that serves a directory, and how it is started.
//!
//! It has one client, the machine of whoever starts it, and ends with that: its standard input is the client's stream,
//! or the listening socket that the client will connect to; its standard output is a pipe on which it says that it is
//! ready, and whose other end is closed when nobody needs it any more.

use crate::device::{ShareDevice, TAG_BYTES_MAX};
use crate::file_system::FileSystem;
use crate::limits::Limits;
use crate::starter;
use blockyard_block::{AdmittedMemory, descriptor_path, printable, shown, wait_ready};
use blockyard_confinement::{Confinement, ConfinementError, Inherited, Landlock, Tree, raise_descriptor_limit};
use blockyard_session::server::{EndReason, Server, ServerOptions};
use rustix::event::{PollFd, PollFlags};
use rustix::fs::{FileType, Mode, OFlags, fstat, open};
use rustix::io::Errno;
use rustix::net::sockopt::socket_acceptconn;
use rustix::process::{Gid, Uid, geteuid, umask};
use rustix::stdio::{dup2_stdin, stdin, stdout};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use std::ffi::OsString;
use std::fmt;
use std::io::{self, Read, Write};
use std::num::NonZeroU32;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

/// What a guest mounts a share by: `mount -t virtiofs TAG /mnt`. Programs of the guest's read it, too, so it has
/// none but plain letters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tag(String);

/// Why a text is no tag.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{}' is no tag: 1 to {TAG_BYTES_MAX} of letters, digits, '-', '_' and '.'", printable(.0))]
pub struct BadTag(String);

impl FromStr for Tag {
    type Err = BadTag;

    fn from_str(text: &str) -> Result<Self, BadTag> {
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
        // Scripts mount them at /mnt/TAG.
        let is_file_name = ![".", ".."].contains(&text);
        let is_good = (1..=TAG_BYTES_MAX).contains(&text.len()) && text.chars().all(is_plain) && is_file_name;
        if is_good { Ok(Self(text.to_owned())) } else { Err(BadTag(text.to_owned())) }
    }
}

impl fmt::Display for Tag {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl Tag {
    fn padded(&self) -> [u8; TAG_BYTES_MAX] {
        let mut bytes = [0; TAG_BYTES_MAX];
        bytes.iter_mut().zip(self.0.bytes()).for_each(|(to, from)| *to = from);
        bytes
    }
}

/// A directory that a guest is to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// Which one, on the host.
    pub directory: PathBuf,
    /// What the guest mounts it by.
    pub tag: Tag,
    /// Whether nothing in it may change.
    pub read_only: bool,
    /// How much the guest may write into it in all, each time that it begins: bytes, and 4096 for each name.
    pub limit: Option<u64>,
}

impl Share {
    /// Opens the directory. What its name means later is nothing to whoever serves it: a guest may have changed that,
    /// which has another share that it lies in.
    ///
    /// # Errors
    /// When the directory cannot be opened, or has no files but the kernel's own.
    pub fn open(&self) -> Result<OpenShare, ShareError> {
        self.open_at(&self.directory)
    }

    /// The same where the directory is this process's working directory.
    pub(crate) fn open_here(&self) -> Result<OpenShare, ShareError> {
        self.open_at(Path::new("."))
    }

    fn open_at(&self, path: &Path) -> Result<OpenShare, ShareError> {
        let failed = |errno: rustix::io::Errno| ShareError::Directory(self.directory.clone(), errno.into());
        let directory =
            open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).map_err(failed)?;
        if is_of_the_kernel(&directory).map_err(failed)? {
            return Err(ShareError::Kernel(self.directory.clone()));
        }
        Ok(OpenShare { share: self.clone(), directory: Arc::new(directory) })
    }
}

/// A share whose directory is open, until the last clone is dropped.
#[derive(Clone, Debug)]
pub struct OpenShare {
    pub(crate) share: Share,
    pub(crate) directory: Arc<OwnedFd>,
}

impl OpenShare {
    /// What the guest mounts it by.
    pub fn tag(&self) -> &Tag {
        &self.share.tag
    }

    /// `launcher` with the arguments of a process that serves the share, or starts those that do: in the directory,
    /// which no name leads to again.
    pub(crate) fn command(
        &self,
        (program, first_arguments): &Launcher,
        role: Role,
        options: ServingOptions,
    ) -> Command {
        let mut command = Command::new(program);
        let arguments = ServerArguments { share: self.share.clone(), options }.to_arguments();
        command.args(first_arguments).arg(role.word()).args(arguments);
        // The child's descriptor of the same number, as long as it is no other program.
        command.current_dir(descriptor_path(&self.directory));
        // Ctrl-C at the terminal is for the guest, or for whoever started it.
        command.process_group(0);
        command
    }
}

/// Why a directory is not shared.
#[derive(Debug, thiserror::Error)]
pub enum ShareError {
    /// It cannot be opened.
    #[error("cannot share {}", shown(.0))]
    Directory(PathBuf, #[source] io::Error),
    /// It is of a file system that is no storage.
    #[error("cannot share {}: what is in there are no files but the kernel's own affairs", shown(.0))]
    Kernel(PathBuf),
    /// The process could not be shut in.
    #[error(transparent)]
    Confinement(#[from] ConfinementError),
    /// The system refuses.
    #[error("cannot serve a share: {0}")]
    Os(&'static str, #[source] io::Error),
    /// The server's process ended before it was ready. It has said why.
    #[error("the process that serves {} does not begin", shown(.0))]
    NotReady(PathBuf),
    /// The session ended in another way than by the client's wish.
    #[error("the share is no longer served: {0}")]
    Ended(String),
}

pub(crate) fn os(doing: &'static str) -> impl FnOnce(io::Error) -> ShareError {
    move |error| ShareError::Os(doing, error)
}

/// How a share is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServingOptions {
    /// Queues for the guest's requests, each served by a thread: as many as the guest has vCPUs, or fewer.
    pub queues: u16,
    /// How long a thread looks for more requests before it waits: zero for never.
    pub poll: Duration,
}

/// The command of this program that calls [`serve`] with what follows it.
pub const COMMAND: &str = "serve-share";

/// A program with its first arguments, before those that [`serve`] is called with.
pub type Launcher = (PathBuf, Vec<&'static str>);

/// This program, if it has that command.
pub fn own_program() -> Launcher {
    ("/proc/self/exe".into(), vec![COMMAND])
}

/// What a process is started for: its first argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// To serve a share.
    Server,
    /// To start those that do.
    Starter,
}

impl Role {
    fn word(self) -> &'static str {
        match self {
            Self::Server => "serve",
            Self::Starter => "start",
        }
    }
}

/// What a server says when it serves.
const READY: &[u8] = b"ready\n";

/// Begins the argument that says how much a guest may write.
const LIMIT: &str = "limit=";

/// The arguments of a server's process: what is served, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServerArguments {
    pub(crate) share: Share,
    pub(crate) options: ServingOptions,
}

impl ServerArguments {
    pub(crate) fn to_arguments(&self) -> Vec<OsString> {
        let Self { share, options } = self;
        let mut all = vec![
            share.directory.clone().into_os_string(),
            share.tag.to_string().into(),
            options.queues.to_string().into(),
            options.poll.as_micros().to_string().into(),
        ];
        if share.read_only {
            all.push("ro".into());
        }
        all.extend(share.limit.map(|limit| format!("{LIMIT}{limit}").into()));
        all
    }

    fn parse(arguments: &[OsString]) -> Option<Self> {
        let [directory, tag, queues, poll, rest @ ..] = arguments else { return None };
        let number = |text: &OsString| text.to_str()?.parse::<u64>().ok();
        let (read_only, rest) = match rest {
            [first, rest @ ..] if first == "ro" => (true, rest),
            rest => (false, rest),
        };
        let limit = match rest {
            [] => None,
            [limit] => Some(limit.to_str()?.strip_prefix(LIMIT)?.parse().ok()?),
            _ => return None,
        };
        Some(Self {
            share: Share { directory: directory.into(), tag: tag.to_str()?.parse().ok()?, read_only, limit },
            options: ServingOptions {
                queues: u16::try_from(number(queues)?).ok()?,
                poll: Duration::from_micros(number(poll)?),
            },
        })
    }
}

/// A process that serves a share. It ends when its client does, and is ended when this is dropped.
#[derive(Debug)]
pub struct ShareProcess {
    child: Child,
    /// The end that nobody writes to any more.
    _life: ChildStdout,
}

impl ShareProcess {
    /// Starts `launcher` with these arguments before those that [`serve`] is then to be called with, to serve `share`
    /// to the client of `socket`: a stream that is connected to it, or a listening socket that it will connect to.
    /// Returns when the process is shut in and serves.
    ///
    /// # Errors
    /// When it cannot be started, or ends at once; then it has said why on standard error.
    pub fn start(
        launcher: &Launcher,
        share: &OpenShare,
        options: ServingOptions,
        socket: OwnedFd,
    ) -> Result<Self, ShareError> {
        let mut command = share.command(launcher, Role::Server, options);
        command.stdin(socket).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(os("starting its process"))?;
        let not_ready = || ShareError::NotReady(share.share.directory.clone());
        let mut life = child.stdout.take().ok_or_else(not_ready)?;
        let mut said = [0; READY.len()];
        match life.read_exact(&mut said) {
            Ok(()) if said == READY => Ok(Self { child, _life: life }),
            _ => {
                let _ = child.kill();
                let _ = child.wait();
                Err(not_ready())
            }
        }
    }

    /// Whether it serves no more.
    pub fn has_ended(&mut self) -> bool {
        // Whose end cannot be learned is not waited for.
        self.child.try_wait().is_ok_and(|status| status.is_some())
    }

    /// Ends it, and does not wait until it is gone, as dropping it does: that takes the kernel a moment.
    pub fn kill(&mut self) {
        // What was written is with the host's kernel already.
        let _ = self.child.kill();
    }

    /// The process's number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for ShareProcess {
    fn drop(&mut self) {
        self.kill();
        let _ = self.child.wait();
    }
}

/// What User-Mode Linux is started with to have the share whose server listens at `socket`: a virtio-fs device, whose
/// number is 26 (virtio 1.2 §5).
pub fn user_mode_linux_argument(socket: &Path) -> OsString {
    let mut argument = OsString::from("virtio_uml.device=");
    argument.push(socket);
    argument.push(":26");
    argument
}

/// The life of a server's process, first thing in it and without other threads, with the arguments that
/// [`ShareProcess::start`] gave and the directory as its working directory: shuts itself in, serves one client, and
/// returns when that is gone or nobody needs it. With those of [`ShareStarter::start`](crate::ShareStarter::start), of
/// the process that starts servers. `tell` says to people what could be better.
///
/// # Errors
/// Why it cannot begin or go on.
pub fn serve(arguments: &[OsString], tell: impl Fn(&str)) -> Result<(), ShareError> {
    let not_for_people = || ShareError::Os("reading its arguments", io::Error::other("not for people"));
    let (role, arguments) = arguments.split_first().ok_or_else(not_for_people)?;
    let arguments = ServerArguments::parse(arguments).ok_or_else(not_for_people)?;
    if role == Role::Starter.word() {
        return starter::run(&arguments);
    }
    let ServerArguments { share, options } = arguments;
    Inherited::take().map_err(os("taking over what was inherited"))?.close();
    let socket = stdin().try_clone_to_owned().map_err(os("taking its socket"))?;
    // Where it is known, too, nobody would hear that it is closed.
    let null = open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
    null.and_then(dup2_stdin).map_err(|errno| ShareError::Os("closing its standard input", errno.into()))?;
    let socket = Socket::new(socket)?;
    let descriptors = raise_descriptor_limit();
    // The guest says a file's whole mode.
    umask(Mode::empty());
    let (file_system, landlock) = open_share(&share, descriptors)?;
    if landlock == Landlock::Absent {
        tell("this kernel has no Landlock: only the system calls of a share's server are confined");
    }
    let device = Arc::new(ShareDevice::new(Arc::new(file_system), share.tag.padded(), options.queues));
    let server_options = ServerOptions {
        threads: options.queues.into(),
        poll: options.poll,
        // The client was started by whoever started this, and has met no guest yet.
        admitted_memory: AdmittedMemory::first_file(),
        descriptors,
        // The guest may be User-Mode Linux, and that knows of what there is.
        rings_eventfds: false,
        ..ServerOptions::default()
    };
    let server = Server::start(&server_options).map_err(os("starting its threads"))?;
    io::stdout().write_all(READY).and_then(|()| io::stdout().flush()).map_err(os("saying that it is ready"))?;
    let Some(stream) = socket.client()? else { return Ok(()) };
    let name = format!("share {}", share.tag).into();
    let session = server.attach_device(stream, name, device, NonZeroU32::MIN).map_err(os("serving its client"))?;
    wait_for(session.ended())?;
    match session.end_reason() {
        Some(reason @ (EndReason::Client(_) | EndReason::Server(_))) => Err(ShareError::Ended(reason.to_string())),
        _ => Ok(()),
    }
}

/// Opens the directory and shuts the process in.
fn open_share(share: &Share, descriptors: usize) -> Result<(FileSystem, Landlock), ShareError> {
    let OpenShare { directory, .. } = share.open_here()?;
    let failed = |errno: rustix::io::Errno| ShareError::Directory(share.directory.clone(), errno.into());
    let file_system = FileSystem::open(&directory, share.read_only, Limits::of(descriptors)).map_err(failed)?;
    let file_system = file_system.with_limit(share.limit);
    become_owner(&directory).map_err(failed)?;
    let tree = Some(Tree { directory, read_only: share.read_only });
    let landlock = Confinement { tree, ..Confinement::default() }.enter()?;
    Ok((file_system, landlock))
}

/// File systems whose files are ways to tell the kernel something (Linux, include/uapi/linux/magic.h): proc, sysfs,
/// debugfs, tracefs, configfs, cgroup, cgroup2, securityfs, selinuxfs, bpf, binfmt_misc, devpts, smackfs, apparmorfs,
/// fusectl, pstore, mqueue, efivarfs, nfsd, rpc_pipefs, resctrl, xenfs.
const KERNELS_OWN: [u64; 22] = [
    0x9fa0,
    0x6265_6572,
    0x6462_6720,
    0x7472_6163,
    0x6265_6570,
    0x0027_e0eb,
    0x6367_7270,
    0x7363_6673,
    0xf97c_ff8c,
    0xcafe_4a11,
    0x4249_4e4d,
    0x1cd1,
    0x4341_5d53,
    0x5a3c_69f0,
    0x6573_5543,
    0x6165_676c,
    0x1980_0202,
    0xde5e_81e4,
    0x6e66_7364,
    0x6759_6969,
    0x0765_5821,
    0xabba_1974,
];

fn is_of_the_kernel(directory: &OwnedFd) -> rustix::io::Result<bool> {
    Ok(KERNELS_OWN.contains(&(rustix::fs::fstatfs(directory)?.f_type as u64)))
}

/// Root becomes the directory's owner, so that what the guest makes belongs to whom the directory does, and a server
/// that was taken over is nobody more than they are. Where that is root itself, only the number stays: the capabilities
/// go when the process shuts itself in, and without them root has no rights but to its own files. Who is root in a user
/// namespace alone, or without the capabilities for that, stays who they are, as any other user does.
fn become_owner(directory: &OwnedFd) -> rustix::io::Result<()> {
    if !geteuid().is_root() {
        return Ok(());
    }
    let stat = fstat(directory)?;
    let (user, group) = (Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid));
    // An owner who is nobody there is no valid one (user_namespaces(7)).
    let as_far_as_it_may = |done| match done {
        Err(Errno::PERM | Errno::INVAL) => Ok(()),
        done => done,
    };
    as_far_as_it_may(set_thread_groups(&[]))?;
    as_far_as_it_may(set_thread_res_gid(group, group, group))?;
    as_far_as_it_may(set_thread_res_uid(user, user, user))
}

/// Where the client comes from.
enum Socket {
    Stream(UnixStream),
    Listener(UnixListener),
}

impl Socket {
    fn new(socket: OwnedFd) -> Result<Self, ShareError> {
        let kind = fstat(&socket).map(|stat| FileType::from_raw_mode(stat.st_mode));
        if kind.map_err(|errno| ShareError::Os("looking at its socket", errno.into()))? != FileType::Socket {
            return Err(ShareError::Os("looking at its socket", io::Error::other("standard input is no socket")));
        }
        match socket_acceptconn(&socket) {
            Ok(true) => Ok(Self::Listener(socket.into())),
            _ => Ok(Self::Stream(socket.into())),
        }
    }

    /// The client, when it is there; `None` when nobody needs it any more. There is never a second one.
    fn client(self) -> Result<Option<UnixStream>, ShareError> {
        match self {
            Self::Stream(stream) => Ok(Some(stream)),
            Self::Listener(listener) => {
                if !wait_for(&listener)? {
                    return Ok(None);
                }
                let (stream, _) = listener.accept().map_err(os("taking its client in"))?;
                Ok(Some(stream))
            }
        }
    }
}

/// Waits until this is readable, or whoever started this process has closed the other end of its standard output: then
/// false.
fn wait_for(readable: impl AsFd) -> Result<bool, ShareError> {
    let life = stdout();
    let mut polled = [PollFd::new(&readable, PollFlags::IN), PollFd::from_borrowed_fd(life, PollFlags::empty())];
    wait_ready(&mut polled, None).map_err(os("waiting"))?;
    Ok(polled[1].revents().is_empty())
}
