//! A process of its own that unmounts when the server says so, or when there is no server any more.
//!
//! Once a server has confined itself it may neither unmount (Landlock refuses that to whoever it confines) nor start
//! fusermount3 (a filtered process gets no rights from it); and a server that is killed does nothing at all. So a small
//! process is split off before all that. It holds one end of a socket, and waits for a byte or for the end of the
//! server. Beside the socket it keeps the file that it was mounted over, to lock it while it unmounts, and the
//! directory of that file, where it unmounts whatever the directory is called by then.

use super::mountpoint::{MountIdentity, Mountpoint, Place, c_path, take_turn};
use blockyard_block::FileIdentity;
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};
use std::ffi::{CStr, CString};
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::ptr;
use std::time::Duration;

/// How a file was taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmounted {
    /// Nobody had it open.
    Idle,
    /// Programs still had it open: they get errors from now on.
    Open,
    /// Somebody else had unmounted it before.
    Before,
}

/// What the server says: unmount, and report.
const UNMOUNT: u8 = b'u';
/// What the unmounter reports.
const IDLE: u8 = b'i';
const OPEN: u8 = b'o';
const BEFORE: u8 = b'b';
const FAILED: u8 = b'f';

/// A program that is just ending, or a process that is just being made, has the file open for a moment.
const IDLE_TRIES: u32 = 10;
const IDLE_PAUSE: Duration = Duration::from_millis(10);

/// Longer than a busy disk needs to write back what is mapped.
const REPORT_TIMEOUT: Duration = Duration::from_secs(60);

/// The server's end of it.
#[derive(Debug)]
pub(super) struct Unmounter {
    socket: UnixStream,
    process: libc::pid_t,
}

/// What the process needs, made before the fork: after it nothing may be allocated.
struct Plan {
    place: Place,
    mount: MountIdentity,
    made: Option<FileIdentity>,
    /// What is locked while it unmounts.
    turn: Option<OwnedFd>,
    fusermount: Option<Fusermount>,
}

struct Fusermount {
    program: CString,
    /// `fusermount3 -u -q -- NAME` and the same with `-z`.
    arguments: Vec<CString>,
    lazy_arguments: Vec<CString>,
}

impl Unmounter {
    /// Splits it off for what was just mounted over `mountpoint`.
    pub(super) fn start(mountpoint: &Mountpoint, fusermount: Option<&Path>) -> io::Result<Self> {
        let place = mountpoint.place.try_clone()?;
        let mount = place.mount().ok_or(Errno::NOTCONN)?;
        let fusermount = fusermount.map(|program| Fusermount::new(program, &place.name)).transpose()?;
        // Opened anew it could be another file.
        let turn = mountpoint.turn.as_ref().map(OwnedFd::try_clone).transpose()?;
        let plan = Plan { place, mount, made: mountpoint.made, turn, fusermount };
        let (ours, theirs) = UnixStream::pair()?;
        // SAFETY: the child calls nothing but `run_child`, which allocates nothing, takes no lock and does not return.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => run_child(&plan, theirs.as_raw_fd()),
            process => {
                let unmounter = Self { socket: ours, process };
                unmounter.socket.set_read_timeout(Some(REPORT_TIMEOUT))?;
                Ok(unmounter)
            }
        }
    }

    /// Has it unmounted.
    ///
    /// # Errors
    /// When it is still mounted.
    pub(super) fn unmount(&mut self) -> io::Result<Unmounted> {
        let mut report = [0];
        let reported = self.socket.write_all(&[UNMOUNT]).and_then(|()| self.socket.read_exact(&mut report));
        match (reported, report) {
            (Ok(()), [IDLE]) => Ok(Unmounted::Idle),
            (Ok(()), [OPEN]) => Ok(Unmounted::Open),
            (Ok(()), [BEFORE]) => Ok(Unmounted::Before),
            (Ok(()), _) => Err(Errno::PERM.into()),
            (Err(error), _) => Err(error),
        }
    }
}

impl Drop for Unmounter {
    /// The process sees its socket closed, unmounts if it has not yet, and ends.
    fn drop(&mut self) {
        let _ = self.socket.shutdown(Shutdown::Both);
        // SAFETY: a wait for our own child with no place for its status.
        while unsafe { libc::waitpid(self.process, ptr::null_mut(), 0) } == -1
            && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
        {}
    }
}

impl Fusermount {
    /// For a file of a name in the current directory.
    fn new(program: &Path, name: &CStr) -> io::Result<Self> {
        let words = |words: &[&CStr]| words.iter().map(|&word| word.to_owned()).collect();
        Ok(Self {
            program: c_path(program.as_os_str())?,
            arguments: words(&[c"fusermount3", c"-u", c"-q", c"--", name]),
            lazy_arguments: words(&[c"fusermount3", c"-u", c"-q", c"-z", c"--", name]),
        })
    }
}

/// The life of the unmounter, in a child of a process with threads: system calls only.
fn run_child(plan: &Plan, socket: RawFd) -> ! {
    // SAFETY: these change this process alone, which has no other thread and uses no descriptor but `socket`.
    unsafe {
        libc::setsid();
        // There it unmounts, as umount(2) and fusermount3 take names only.
        libc::fchdir(plan.place.directory.as_raw_fd());
        close_all_but([
            socket,
            plan.place.directory.as_raw_fd(),
            plan.turn.as_ref().map_or(socket, AsRawFd::as_raw_fd),
        ]);
        // Whoever ends the server with a signal to its whole group or session does not mean this.
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGPIPE] {
            libc::signal(signal, libc::SIG_IGN);
        }
        libc::prctl(libc::PR_SET_NAME, c"blockyard-umount".as_ptr());
    }
    let asked = receive_byte(socket) == Some(UNMOUNT);
    let report = plan.unmount();
    if let Some(made) = plan.made {
        plan.place.remove_made(made);
    }
    // SAFETY: one byte out of a local, to a descriptor that is this process's; then its end.
    unsafe {
        if asked {
            libc::write(socket, (&raw const report).cast(), 1);
        }
        libc::_exit(0)
    }
}

/// Closes every descriptor but some, so that nothing of the server's lives on here.
///
/// # Safety
/// The process must use none of them any more.
unsafe fn close_all_but(mut kept: [RawFd; 3]) {
    kept.sort_unstable();
    let mut first = 0;
    for number in kept.into_iter().map(|number| number as libc::c_uint).chain([libc::c_uint::MAX]) {
        if first < number {
            // SAFETY: as promised by the caller; numbers that are not open are passed over.
            unsafe { libc::syscall(libc::SYS_close_range, first, number - 1, 0) };
        }
        first = number.saturating_add(1);
    }
}

/// A byte from the server; `None` when it is gone.
fn receive_byte(socket: RawFd) -> Option<u8> {
    let mut byte = 0_u8;
    loop {
        // SAFETY: one byte into a local, from a descriptor that is this process's.
        match unsafe { libc::read(socket, (&raw mut byte).cast(), 1) } {
            1 => return Some(byte),
            -1 if Errno::from_io_error(&io::Error::last_os_error()) == Some(Errno::INTR) => {}
            _ => return None,
        }
    }
}

impl Plan {
    /// Unmounts what is ours at the path, at once if nobody has it open, else as soon as they close it.
    fn unmount(&self) -> u8 {
        // Nobody of ours mounts anything there between a look and the call that follows it.
        if let Some(turn) = &self.turn {
            take_turn(turn.as_fd());
        }
        for _ in 0..IDLE_TRIES {
            if !self.is_there() {
                return BEFORE;
            }
            if self.unmount_idle() {
                return IDLE;
            }
            std::thread::sleep(IDLE_PAUSE);
        }
        match self.is_there() {
            false => BEFORE,
            true if self.unmount_open() => OPEN,
            true => FAILED,
        }
    }

    /// Whether what is mounted there is still ours.
    fn is_there(&self) -> bool {
        self.place.mount() == Some(self.mount)
    }

    fn unmount_idle(&self) -> bool {
        match &self.fusermount {
            None => unmount(self.place.name.as_c_str(), UnmountFlags::NOFOLLOW).is_ok(),
            Some(fusermount) => run(&fusermount.program, &fusermount.arguments),
        }
    }

    fn unmount_open(&self) -> bool {
        match &self.fusermount {
            None => unmount(self.place.name.as_c_str(), UnmountFlags::NOFOLLOW | UnmountFlags::DETACH).is_ok(),
            Some(fusermount) => run(&fusermount.program, &fusermount.lazy_arguments),
        }
    }
}

/// Runs a program and says whether it succeeded. Allocates nothing.
fn run(program: &CStr, arguments: &[CString]) -> bool {
    const WORDS_MAX: usize = 8;
    let mut words = [ptr::null(); WORDS_MAX];
    for (word, argument) in words[..WORDS_MAX - 1].iter_mut().zip(arguments) {
        *word = argument.as_ptr();
    }
    let environment = [ptr::null()];
    // SAFETY: the arrays end with a null pointer and point to strings that live on; the child makes one call and ends.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            libc::execve(program.as_ptr(), words.as_ptr(), environment.as_ptr());
            libc::_exit(127);
        }
        let mut status = 0;
        while child > 0 && libc::waitpid(child, &raw mut status, 0) == -1 && *libc::__errno_location() == libc::EINTR {}
        child > 0 && libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
    }
}
