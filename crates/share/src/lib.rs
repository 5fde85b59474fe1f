//! A directory of the host's for a guest: virtio-fs (virtio 1.2 §5.11), served by a process of its own.
//!
//! [`ShareProcess`] starts the server, [`serve`] is its life. The guest's driver speaks FUSE over virtqueues, which
//! come with the guest's memory over vhost-user: so the same server serves a machine of ours ([`guest_device`]) and
//! User-Mode Linux, which attaches it by itself ([`user_mode_linux_argument`]). `message.rs` has what is asked, parsed
//! once; `tree.rs` every system call on the directory; `file_system.rs` is between them.
//!
//! The guest is hostile, and so may the server be once it was talked over: three things keep both in the directory.
//! What is asked for is one name in a directory that the guest was given, and is found through no link. What is opened
//! is a regular file or a directory, nothing else. And the process has neither capabilities nor, where the kernel has
//! Landlock, any other files, and can only make the system calls that this takes; for reading only, none that changes
//! anything.
//!
//! Deliberately absent: user namespaces (an ordinary user may map one number into one, and then everybody else's files
//! would look like nobody's), DAX, locks between guest and host (the guest has its own among its processes), notices of
//! what the host changes (the guest asks again after a second), other users' files, devices, FIFOs and sockets.
#![forbid(unsafe_code)]

mod device;
mod file_system;
mod handles;
mod limits;
mod message;
mod nodes;
mod process;
mod reply;
mod room;
mod scratch;
mod starter;
#[cfg(test)]
mod tests;
mod tree;

pub use device::{TAG_BYTES_MAX, guest_device};
pub use process::{
    BadTag, COMMAND, Launcher, OpenShare, ServingOptions, Share, ShareError, ShareProcess, Tag, own_program, serve,
    user_mode_linux_argument,
};
pub use starter::ShareStarter;
