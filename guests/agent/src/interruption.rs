//! Whether the host still wants what is being done.
//!
//! While a request is carried out the host says nothing on the serial line but that it does not want it any more. So
//! whatever takes long looks now and then whether there is something to read.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, PipeReader};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::OnceLock;
use std::thread::{self, JoinHandle};

static LINE: OnceLock<File> = OnceLock::new();

/// From now on, `line` is where the host says so.
pub(crate) fn watch(line: File) {
    // There is one line.
    let _ = LINE.set(line);
}

/// Fails once the host does not want it any more.
pub(crate) fn check() -> io::Result<()> {
    let Some(line) = LINE.get() else { return Ok(()) };
    let mut descriptors = [PollFd::from_borrowed_fd(line.as_fd(), PollFlags::IN)];
    match poll(&mut descriptors, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) {
        Ok(1..) => Err(given_up()),
        _ => Ok(()),
    }
}

/// Waits until there is something on `descriptor`, or its other end is closed; fails as soon as the host does not want
/// it any more.
pub(crate) fn wait(descriptor: BorrowedFd<'_>) -> io::Result<()> {
    loop {
        let mut descriptors = vec![PollFd::from_borrowed_fd(descriptor, PollFlags::IN)];
        descriptors.extend(LINE.get().map(|line| PollFd::from_borrowed_fd(line.as_fd(), PollFlags::IN)));
        match poll(&mut descriptors, None) {
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
            Ok(_) if !descriptors[0].revents().is_empty() => return Ok(()),
            Ok(_) => return Err(given_up()),
        }
    }
}

/// Something that the kernel does not interrupt, in a thread: it goes on when the host has given it up.
pub(crate) struct Unstoppable<T> {
    thread: JoinHandle<T>,
    /// Its other end is closed when it is done.
    done: PipeReader,
}

impl<T: Send + 'static> Unstoppable<T> {
    pub(crate) fn start(work: impl FnOnce() -> T + Send + 'static) -> io::Result<Self> {
        let (done, end) = io::pipe()?;
        let work = move || {
            let _end = end;
            work()
        };
        Ok(Self { thread: thread::Builder::new().stack_size(64 << 10).spawn(work)?, done })
    }

    /// Waits until it is done; fails as soon as the host does not want it any more.
    pub(crate) fn wait(&self) -> io::Result<()> {
        wait(self.done.as_fd())
    }

    /// What came of it, when it is done.
    pub(crate) fn result(self) -> io::Result<T> {
        self.thread.join().map_err(|_| io::Error::other("it was not finished"))
    }
}

fn given_up() -> io::Error {
    io::Error::other("given up")
}
