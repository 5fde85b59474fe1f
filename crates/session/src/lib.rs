//! Disks across processes.
//!
//! A disk in another process is a vhost-user-blk session: a unix socket for control, shared memory for data. There is
//! no protocol of our own here, so QEMU, User-Mode Linux, Cloud Hypervisor, crosvm and qemu-storage-daemon are peers on
//! either side.
//!
//! [`server`] serves disks to such clients, [`client`] is such a client and a [`blockyard_block::Disk`] itself,
//! [`mediator`] grants partitions of a served disk to clients without standing in the road of their data, and [`fuse`]
//! makes a disk a file for programs that only know files. [`open`] opens whatever disk somebody names, a session's
//! among them.
//!
//! A server and its client in one process; `examples/serve.rs` is the smallest server that is a program:
//!
//! ```
//! use blockyard_block::{MemoryDisk, read_bytes, write_bytes};
//! use blockyard_session::client::{SessionDisk, SessionOptions};
//! use blockyard_session::server::{Export, Server, ServerOptions};
//! use std::num::NonZeroU32;
//! use std::os::unix::net::UnixStream;
//! use std::sync::Arc;
//!
//! let server = Server::start(&ServerOptions::default())?;
//! let (ours, theirs) = UnixStream::pair()?;
//! let disk = Arc::new(MemoryDisk::new(1 << 20, 512)?);
//! let export = Export { name: "memory".into(), disk, queues: 1, weight: NonZeroU32::MIN, is_alone: false };
//! let session = server.attach(theirs, export)?;
//!
//! let disk = SessionDisk::from_stream(ours, "memory", &SessionOptions::default())?;
//! write_bytes(&disk, 0, &[7; 512])?;
//! assert_eq!(read_bytes(&disk, 0..512)?, [7; 512]);
//! assert_eq!(&**session.name(), "memory");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod client;
mod further;
pub mod fuse;
pub mod mediator;
mod one_cpu;
pub mod open;
pub mod server;
mod spare_descriptors;
mod vhost_user;
