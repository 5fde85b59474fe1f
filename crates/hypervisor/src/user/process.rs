//! The guest process: born from a memfd, watched through a pipe and a pidfd, killed when nobody wants it any more.

use super::control::ControlArea;
use super::layout::{CONTROL_FD, Control, Step, TRAP_FD};
use crate::Error;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, WaitOptions, kill_process, pidfd_open, pidfd_send_signal, waitid,
    waitpid,
};
use std::ffi::c_int;
use std::io;
use std::mem::offset_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

static STUB: &[u8] = include_bytes!(env!("BLOCKYARD_STUB"));

/// A running or dead guest process.
#[derive(Debug)]
pub(super) struct Process {
    pid: Pid,
    pidfd: Arc<OwnedFd>,
    /// A byte for every trap; its end when the process is dead.
    traps: OwnedFd,
    parent: Parent,
    dead: bool,
}

/// The thread whose child the guest process is. The kernel ends the process when its parent *thread* ends, so that must
/// not be whoever happened to create the vCPU.
#[derive(Debug)]
struct Parent {
    release: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// What [`Process::wait`] saw.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// A byte came through the trap pipe.
    Trap,
    /// More than one byte: not from the trap handler, which waits after each.
    Noise,
    /// The pipe's other end is gone, and with it the process.
    Dead,
    /// The other descriptor is readable.
    Other,
    /// Time is over.
    Late,
}

impl Process {
    /// Starts a process of the stub with the control area, the doorbells' eventfds and the slots' memfds.
    pub(super) fn spawn(
        control: &ControlArea,
        events: &[BorrowedFd<'_>],
        slots: &[BorrowedFd<'_>],
    ) -> Result<Self, Error> {
        let os = |what| move |errno: Errno| Error::Os { what, source: errno.into() };
        let executable = executable().map_err(os("cannot put the trap stub into an executable memfd"))?;
        let (traps, trap_end) = pipe_with(PipeFlags::CLOEXEC).map_err(os("cannot create the guest's trap pipe"))?;
        let inherited = [trap_end.as_fd(), control.memfd()];
        let mut descriptors: Vec<RawFd> = inherited.iter().chain(events).chain(slots).map(AsRawFd::as_raw_fd).collect();
        descriptors.push(executable.as_raw_fd());
        let (pid, parent) = Parent::spawn(descriptors)?;
        match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(pidfd) => Ok(Self { pid, pidfd: Arc::new(pidfd), traps, parent, dead: false }),
            Err(errno) => {
                // Without a pidfd, but not waited for, so the number still means this child.
                let _ = kill_process(pid, Signal::KILL);
                let _ = waitpid(Some(pid), WaitOptions::empty());
                Err(os("cannot open the guest process's pidfd")(errno))
            }
        }
    }

    pub(super) fn id(&self) -> u32 {
        self.pid.as_raw_nonzero().get().cast_unsigned()
    }

    pub(super) fn pidfd(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.pidfd)
    }

    /// Waits for a trap, and for `other` too if given, until `deadline`.
    pub(super) fn wait(&self, other: Option<BorrowedFd<'_>>, deadline: Option<Instant>) -> io::Result<Event> {
        loop {
            let left = deadline.map(|deadline| timespec(deadline.saturating_duration_since(Instant::now())));
            let traps = PollFd::new(&self.traps, PollFlags::IN);
            let ready = match other {
                Some(other) => {
                    let mut descriptors = [traps, PollFd::from_borrowed_fd(other, PollFlags::IN)];
                    poll(&mut descriptors, left.as_ref()).map(|_| descriptors.map(|ready| !ready.revents().is_empty()))
                }
                None => {
                    let mut descriptors = [traps];
                    poll(&mut descriptors, left.as_ref()).map(|_| [!descriptors[0].revents().is_empty(), false])
                }
            };
            match ready {
                Ok([true, _]) => return self.read_pipe(),
                Ok([_, true]) => return Ok(Event::Other),
                Ok(_) if deadline.is_some_and(|deadline| Instant::now() >= deadline) => return Ok(Event::Late),
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    fn read_pipe(&self) -> io::Result<Event> {
        match rustix::io::retry_on_intr(|| rustix::io::read(&self.traps, &mut [0; 16]))? {
            0 => Ok(Event::Dead),
            1 => Ok(Event::Trap),
            _ => Ok(Event::Noise),
        }
    }

    /// Ends the process and says how it ended, if it did so by itself. Leaves no zombie.
    pub(super) fn end(&mut self) -> Ending {
        if self.dead {
            return Ending::Unknown;
        }
        // Who is dead already is not killed again: the status tells the first cause.
        let _ = pidfd_send_signal(&*self.pidfd, Signal::KILL);
        self.dead = true;
        let status = loop {
            match waitid(WaitId::PidFd(self.pidfd.as_fd()), WaitIdOptions::EXITED) {
                Err(Errno::INTR) => {}
                status => break status,
            }
        };
        self.parent.release();
        match status {
            Ok(Some(status)) => match (status.exit_status(), status.terminating_signal()) {
                (Some(code), _) => Ending::Exited(code),
                (None, Some(signal)) => Ending::Killed(signal),
                (None, None) => Ending::Unknown,
            },
            // Somebody else has waited for it (SIGCHLD ignored, or a wait for all children).
            Ok(None) | Err(_) => Ending::Unknown,
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    Exited(c_int),
    Killed(c_int),
    Unknown,
}

impl Ending {
    /// For a guest process that ended while its guest ran.
    pub(super) fn sentence(self) -> String {
        match self {
            Self::Exited(code) => format!("the guest process exited with status {code}"),
            Self::Killed(libc::SIGSYS) => {
                "the guest process was killed by SIGSYS: it made a system call it may not make".to_owned()
            }
            Self::Killed(libc::SIGKILL) => {
                "the guest process was killed by SIGKILL: by somebody outside, or for want of memory".to_owned()
            }
            Self::Killed(signal @ (libc::SIGSEGV | libc::SIGBUS | libc::SIGILL | libc::SIGFPE | libc::SIGTRAP)) => {
                format!("the guest process was killed by signal {signal}: it has spoilt its own trap handling")
            }
            Self::Killed(signal) => format!("the guest process was killed by signal {signal}"),
            Self::Unknown => "the guest process died".to_owned(),
        }
    }
}

impl Parent {
    /// Starts the thread, which makes the child and then waits to be released.
    fn spawn(descriptors: Vec<RawFd>) -> Result<(Pid, Self), Error> {
        let os = |what| move |source| Error::Os { what, source };
        let (started, start) = mpsc::channel();
        let (release, released) = mpsc::channel::<()>();
        let thread = std::thread::Builder::new()
            .name("guest-parent".to_owned())
            .spawn(move || {
                // Who asked waits for the answer; the descriptors stay open that long.
                let _ = started.send(spawn_stub(descriptors));
                let _ = released.recv();
            })
            .map_err(os("cannot start the guest process's parent thread"))?;
        let parent = Self { release: Some(release), thread: Some(thread) };
        let pid = start.recv().unwrap_or_else(|_| Err(io::Error::other("its parent thread died")));
        Ok((pid.map_err(os("cannot start the guest process"))?, parent))
    }

    fn release(&mut self) {
        self.release = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Parent {
    fn drop(&mut self) {
        self.release();
    }
}

fn timespec(duration: Duration) -> Timespec {
    Timespec { tv_sec: duration.as_secs().cast_signed(), tv_nsec: duration.subsec_nanos().into() }
}

/// The stub in a memfd.
fn executable() -> Result<OwnedFd, Errno> {
    let name = "blockyard-stub";
    // Kernels before 6.3 do not know the flag, and make every memfd executable.
    let memfd = match memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::EXEC) {
        Err(Errno::INVAL) => memfd_create(name, MemfdFlags::CLOEXEC)?,
        memfd => memfd?,
    };
    let mut rest = STUB;
    while !rest.is_empty() {
        let written = rustix::io::retry_on_intr(|| rustix::io::write(&memfd, rest))?;
        rest = &rest[written..];
    }
    Ok(memfd)
}

/// Bytes of the stack that a child has until it executes the stub.
const CHILD_STACK_BYTES: usize = 64 << 10;

/// What a child is told.
struct Child {
    descriptors: Vec<RawFd>,
    parent: libc::pid_t,
}

/// Makes a child that becomes the stub, with these descriptors numbered from 0 and the last one executed. The child
/// shares this process's memory, so that no page table is copied, and this thread sleeps until it has executed the stub
/// or ended.
fn spawn_stub(descriptors: Vec<RawFd>) -> io::Result<Pid> {
    extern "C" fn run(child: *mut libc::c_void) -> c_int {
        // SAFETY: `child` points to a `Child` of which nobody else has a reference while its thread sleeps.
        unsafe {
            let child = &mut *child.cast::<Child>();
            become_stub(&mut child.descriptors, child.parent)
        }
    }
    let mut child = Child { descriptors, parent: rustix::process::getpid().as_raw_nonzero().get() };
    let mut stack = vec![0_u128; CHILD_STACK_BYTES / size_of::<u128>()];
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    // SAFETY: the child calls nothing but `become_stub`, which makes system calls only and does not return: no lock
    // that another thread holds is touched, nothing is allocated, no destructor runs. Its stack and what it is told
    // live until this thread goes on. No handler of this process runs in it: signals are blocked there, and the stub
    // begins with handlers of its own.
    let pid = unsafe {
        let (mut all, mut before) = (std::mem::zeroed::<libc::sigset_t>(), std::mem::zeroed::<libc::sigset_t>());
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        let pid = libc::clone(run, stack.as_mut_ptr_range().end.cast(), flags, (&raw mut child).cast());
        let error = io::Error::last_os_error();
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
        if pid < 0 {
            return Err(error);
        }
        pid
    };
    Pid::from_raw(pid).ok_or_else(|| io::Error::other("a child without a number"))
}

/// The child, up to the execution of the stub. Says in the control area what failed.
///
/// # Safety
/// In a fresh child of `parent` only; the descriptors must be open.
unsafe fn become_stub(descriptors: &mut [RawFd], parent: libc::pid_t) -> ! {
    let control = descriptors[CONTROL_FD as usize];
    // SAFETY: the caller's promise; none of these calls keeps or writes to memory of this process, except `_exit`,
    // which ends it.
    unsafe {
        let step = try_become_stub(descriptors, parent);
        let failure = [step as u64, (*libc::__errno_location()).cast_unsigned().into()];
        // The descriptor may be in its place already, or not yet.
        for descriptor in [control, CONTROL_FD.cast_signed()] {
            let offset = offset_of!(Control, failure) as libc::off_t;
            libc::pwrite(descriptor, (&raw const failure).cast(), size_of_val(&failure), offset);
        }
        libc::_exit(1)
    }
}

/// Returns the step that failed; errno says why.
///
/// # Safety
/// As [`become_stub`].
unsafe fn try_become_stub(descriptors: &mut [RawFd], parent: libc::pid_t) -> Step {
    let count = descriptors.len() as c_int;
    // SAFETY: system calls on descriptors and on this process only; what pointers there are point to locals and
    // literals that outlive the calls.
    unsafe {
        if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 || libc::getppid() != parent {
            return Step::ParentDeath;
        }
        if libc::setsid() < 0 {
            return Step::Session;
        }
        let no_core = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        if libc::setrlimit(libc::RLIMIT_CORE, &raw const no_core) != 0 {
            return Step::CoreLimit;
        }
        // Out of the way first, so that none lands on one that is still needed.
        for descriptor in descriptors.iter_mut() {
            *descriptor = libc::fcntl(*descriptor, libc::F_DUPFD_CLOEXEC, count);
            if *descriptor < 0 {
                return Step::Descriptors;
            }
        }
        for (place, &descriptor) in (0..count).zip(descriptors.iter()) {
            let close_on_exec = if place == count - 1 { libc::O_CLOEXEC } else { 0 };
            if libc::dup3(descriptor, place, close_on_exec) < 0 {
                return Step::Descriptors;
            }
        }
        if libc::syscall(libc::SYS_close_range, count, c_int::MAX, 0) != 0 {
            return Step::Close;
        }
        // Root's capabilities would come back with the stub's execution, but for the first of these.
        if libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || !drop_capabilities() {
            return Step::Capabilities;
        }
        let arguments = [c"blockyard-guest".as_ptr(), std::ptr::null()];
        let environment = [std::ptr::null::<libc::c_char>()];
        libc::syscall(
            libc::SYS_execveat,
            count - 1,
            c"".as_ptr(),
            arguments.as_ptr(),
            environment.as_ptr(),
            libc::AT_EMPTY_PATH,
        );
    }
    Step::Execute
}

/// Drops all capabilities of this thread (capset(2), version 3).
///
/// # Safety
/// None of its own: it is a system call that takes rights away.
unsafe fn drop_capabilities() -> bool {
    let (header, none) = ([0x2008_0522_u32, 0], [0_u32; 6]);
    // SAFETY: the kernel reads both, which are laid out as it wants them.
    unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), none.as_ptr()) == 0 }
}

const _: () = assert!(TRAP_FD == 0 && CONTROL_FD == 1);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::user::layout::STUB_BASE;

    /// The filter lets be written what lies at the image's beginning.
    #[test]
    fn the_stub_begins_with_the_constant_one() {
        let segment = 64; // the first program header, right after the ELF header
        let word = |offset: usize| u64::from_le_bytes(STUB[offset..offset + 8].try_into().unwrap());
        assert_eq!(u32::from_le_bytes(STUB[segment + 4..segment + 8].try_into().unwrap()), 5, "readable, executable");
        assert_eq!(word(segment + 16), STUB_BASE);
        assert_eq!(word(word(segment + 8) as usize), 1);
    }
}
