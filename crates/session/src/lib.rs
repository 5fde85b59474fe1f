//! Disks across processes.
//!
//! A disk in another process is a vhost-user-blk session: a unix socket for control, shared memory for data. There is no
//! protocol of our own here, so QEMU, User-Mode Linux, Cloud Hypervisor, crosvm and qemu-storage-daemon are peers on
//! either side.
//!
//! [`server`] serves disks to such clients, [`client`] is such a client and a [`blockyard_block::Disk`] itself,
//! [`mediator`] grants partitions of a served disk to clients without standing in the road of their data, and [`fuse`]
//! makes a disk a file for programs that only know files.

pub mod client;
pub mod fuse;
pub mod mediator;
mod one_cpu;
pub mod server;
mod spare_descriptors;
mod vhost_user;
