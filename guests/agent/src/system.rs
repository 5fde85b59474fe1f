//! What a Linux needs before anything works, and its end.

use rustix::mount::{MountFlags, mount};
use rustix::system::{RebootCommand, init_module, reboot};
use std::fs;
use std::io;
use std::path::Path;

/// Where the initramfs has the kernel's modules.
const MODULES: &str = "/lib/modules";

/// Mounts what the kernel shows of itself, and loads the driver of the disks.
pub(crate) fn set_up() -> io::Result<()> {
    for (kind, at) in [("devtmpfs", "/dev"), ("proc", "/proc"), ("sysfs", "/sys")] {
        mount(kind, at, kind, MountFlags::NOSUID | MountFlags::NOEXEC, None)?;
    }
    load_module("virtio_blk")
}

/// Loads a module that needs no others loaded. One that is there already, or built in, is fine.
pub(crate) fn load_module(name: &str) -> io::Result<()> {
    let path = Path::new(MODULES).join(format!("{name}.ko"));
    let module = match fs::read(&path) {
        Ok(module) => module,
        // Built in, then; if not, what needs it says so.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    match init_module(&module, c"") {
        Ok(()) | Err(rustix::io::Errno::EXIST) => Ok(()),
        Err(errno) => Err(io::Error::other(format!("cannot load {}: {errno}", path.display()))),
    }
}

/// As `uname -r` has it.
pub(crate) fn kernel_version() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}

/// Ends the kernel.
pub(crate) fn power_off() {
    // If it cannot, PID 1 ends, and the kernel panics: that ends it too.
    let _ = reboot(RebootCommand::PowerOff);
}
