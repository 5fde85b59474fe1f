//! What a Linux needs before anything works, and its end.

use crate::command_line::CommandLine;
use crate::interruption::Unstoppable;
use crate::modules;
use crate::tree::Tree;
use rustix::mount::{MountFlags, mount};
use rustix::process::{Resource, Rlimit, setrlimit};
use rustix::system::{RebootCommand, reboot};
use rustix::thread::UnshareFlags;
use std::fs;
use std::io;

/// Files that may be open at once: one for each level of a tree that is removed or copied. Linux takes paths of 2048
/// levels.
const FILES_MAX: u64 = 4096;

/// Those that the kernel gives to an init (Linux, include/asm-generic/resource.h).
const FILES_OF_AN_INIT: (u64, u64) = (1024, 4096);

/// Which program some kernels execute for each device that comes or goes (Linux, lib/kobject_uevent.c): for each,
/// User-Mode Linux makes a process of the host's before it sees that there is no such program.
const DEVICE_HELPER: &str = "/proc/sys/kernel/hotplug";
/// What that is where nobody says otherwise.
const USUAL_DEVICE_HELPER: &str = "/sbin/hotplug";

/// Mounts what the kernel shows of itself, and loads the drivers of the disks.
pub(crate) fn set_up() -> io::Result<()> {
    for (kind, at) in [("devtmpfs", "/dev"), ("proc", "/proc"), ("sysfs", "/sys")] {
        mount(kind, at, kind, MountFlags::NOSUID | MountFlags::NOEXEC, None)?;
    }
    // Where the kernel has none, that is fine.
    let _ = fs::write(DEVICE_HELPER, "\n");
    if !CommandLine::read().hands_over() {
        leave_kernel_threads()?;
    }
    setrlimit(Resource::Nofile, Rlimit { current: Some(FILES_MAX), maximum: Some(FILES_MAX) })?;
    modules::serve_kernel()?;
    // What finds the disks, where User-Mode Linux has something of its own, and what drives them.
    modules::load("virtio_mmio")?;
    modules::load("virtio_blk")
}

/// The kernel's own threads share the root directory with the first process. They are not to go into an image with us,
/// unless it is to be everybody's root.
fn leave_kernel_threads() -> io::Result<()> {
    #[allow(
        deprecated,
        reason = "its unsafe successor is for flags that share less between threads: there is one thread here"
    )]
    Ok(rustix::thread::unshare(UnshareFlags::FS)?)
}

/// Takes back what this process has for itself of what its successor inherits.
pub(crate) fn limits_of_an_init() -> io::Result<()> {
    let (current, maximum) = FILES_OF_AN_INIT;
    Ok(setrlimit(Resource::Nofile, Rlimit { current: Some(current), maximum: Some(maximum) })?)
}

/// Lets a system have the program that it may have for devices, as the kernel would.
pub(crate) fn give_device_helper(tree: &Tree) {
    if tree.has(USUAL_DEVICE_HELPER) {
        let _ = fs::write(DEVICE_HELPER, USUAL_DEVICE_HELPER);
    }
}

/// As `uname -r` has it.
pub(crate) fn kernel_version() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}

/// How many processes the kernel has killed because there was no memory left.
pub(crate) fn killed_for_memory() -> u64 {
    let counts = fs::read_to_string("/proc/vmstat").unwrap_or_default();
    let count = counts.lines().find_map(|line| line.strip_prefix("oom_kill "));
    count.and_then(|count| count.parse().ok()).unwrap_or(0)
}

/// Everything to stable storage. If the host gives that up, it goes on behind its back.
pub(crate) fn sync() -> io::Result<()> {
    Unstoppable::start(rustix::fs::sync)?.wait()
}

/// Ends the kernel.
pub(crate) fn power_off() {
    // If it cannot, PID 1 ends, and the kernel panics: that ends it too.
    let _ = reboot(RebootCommand::PowerOff);
}
