//! A disk as a file, used by programs that know nothing of us: real mounts, real tools.
//!
//! Mounting takes /dev/fuse and root, or fusermount3 (package fuse3); the tools are in the packages that a failing test
//! names.

mod lifetime;
mod neighbours;
mod programs;
mod rig;
mod semantics;
mod users;
