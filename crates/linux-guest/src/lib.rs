//! Small Linux guests. The appliance has its initramfs and the library that its kernel is started with ([`PRELOAD`])
//! from here; the tests have real kernels that drive our disks.
//!
//! [`Archive`] and [`write_initramfs`] write an initramfs, [`DebianKernel`] finds a kernel and its modules in an
//! unpacked Debian package, [`UserModeLinux`] finds the one that needs no hypervisor, and [`Guest`] runs either, reads
//! its console and makes sure that nothing of it outlives the test.
#![forbid(unsafe_code)]

mod archive;
mod busybox;
mod debian_kernel;
mod guest;
mod module_file;
mod user_mode_linux;

pub use archive::Archive;
pub use busybox::{BUSYBOX, make_root, write_initramfs, write_initramfs_with};
pub use debian_kernel::{DebianKernel, Module, modules_in, only_file};
pub use guest::Guest;
pub use module_file::{read_module, uncompressed_name};
pub use user_mode_linux::{Device, PRELOAD, UserModeLinux};

use std::path::{Path, PathBuf};

/// Where `cargo xtask setup` puts Debian's kernel for virtual machines, below cargo's target directory.
pub fn kernel_directory(target_directory: impl Into<PathBuf>) -> PathBuf {
    target_directory.into().join("lab/kernel")
}

/// Where it puts the archive of a small Debian that is booted with its own systemd, below cargo's target directory.
pub fn debian_root(target_directory: &Path) -> PathBuf {
    target_directory.join("debian-root/root.tar")
}
