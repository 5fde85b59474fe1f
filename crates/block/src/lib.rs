//! Disks, and the one short road every byte takes to them.
//!
//! A [`Disk`] says what it is ([`Geometry`]), which of its ranges hold data ([`Disk::extents`]), and opens
//! [`Queue`]s. A `Queue` belongs to one thread, takes [`Request`]s that point into a [`MemoryMap`], and gives
//! [`Completion`]s back. Device models, sessions, benchmarks and tests all speak this one interface, so a layer
//! is a `Disk` around a `Disk` and anything goes on top of anything.
//!
//! The backends are [`FileDisk`] (a file or a block device, by io_uring, threads or the caller's own thread),
//! [`MemoryDisk`] and [`NullDisk`]. An [`AlignedDisk`] goes on top of one whose [`Geometry`] makes demands on requests: that is
//! whoever opens the disk's business, so that nobody above meets such demands. [`ReplacementFile`] is how a new image takes the place of an old one.
//!
//! Everything is in bytes. Guest memory goes to the kernel as it lies: a [`Segment`] is a place in the memory map,
//! checked where the request enters the queue, and nothing is copied or allocated per request.
//!
//! A file is locked as QEMU locks images ([`FileOptions::lock`]), so that the two never write to one at once.
//!
//! Deliberately absent: sectors (virtio's 512-byte unit stays in the virtio code), locks on the data path, and
//! any knowledge of who sends the requests.

mod disk;
mod file;
mod layers;
mod memory;
mod memory_map;
mod null;
mod replacement;
mod request;
mod same_file;
mod wait;

pub use disk::{Disk, Extent, ExtentKind, Geometry, QUEUE_DEPTH_MAX, Queue, QueueError, SEGMENTS_MAX};
pub use file::{Engine, FileDisk, FileDiskError, FileOptions};
pub use layers::{AlignOptions, AlignedDisk};
pub use memory::MemoryDisk;
pub use memory_map::{MemoryMap, MemoryMapError, Segment, SharedRegion};
pub use null::NullDisk;
pub use replacement::{ReplacementError, ReplacementFile};
pub use request::{Completion, Operation, Request, RequestError};
pub use same_file::same_file;
