//! What a Linux needs before anything works, and its end.

use crate::{interruption, modules};
use rustix::mount::{MountFlags, mount};
use rustix::process::{Resource, Rlimit, setrlimit};
use rustix::system::{RebootCommand, reboot};
use rustix::thread::UnshareFlags;
use std::io;
use std::os::fd::AsFd;
use std::thread;

/// Files that may be open at once: one for each level of a tree that is removed or copied. Linux takes paths of 2048 levels.
const FILES_MAX: u64 = 4096;

/// Mounts what the kernel shows of itself, and loads the driver of the disks.
pub(crate) fn set_up() -> io::Result<()> {
    for (kind, at) in [("devtmpfs", "/dev"), ("proc", "/proc"), ("sysfs", "/sys")] {
        mount(kind, at, kind, MountFlags::NOSUID | MountFlags::NOEXEC, None)?;
    }
    // The kernel's own threads share the root directory with the first process. They are not to go into an image with us.
    #[allow(
        deprecated,
        reason = "its unsafe successor is for flags that share less between threads: there is one thread here"
    )]
    rustix::thread::unshare(UnshareFlags::FS)?;
    setrlimit(Resource::Nofile, Rlimit { current: Some(FILES_MAX), maximum: Some(FILES_MAX) })?;
    modules::serve_kernel()?;
    modules::load("virtio_blk")
}

/// As `uname -r` has it.
pub(crate) fn kernel_version() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}

/// Everything to stable storage. If the host gives that up, it goes on behind its back.
pub(crate) fn sync() -> io::Result<()> {
    let (done, end) = io::pipe()?;
    thread::Builder::new().stack_size(64 << 10).spawn(move || {
        rustix::fs::sync();
        drop(end);
    })?;
    interruption::wait(done.as_fd())
}

/// Ends the kernel.
pub(crate) fn power_off() {
    // If it cannot, PID 1 ends, and the kernel panics: that ends it too.
    let _ = reboot(RebootCommand::PowerOff);
}
