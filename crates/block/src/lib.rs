//! Disks, and the one short road every byte takes to them.
//!
//! A [`Disk`] says what it is ([`Geometry`]), which of its ranges hold data ([`Disk::extents`]), and opens
//! [`Queue`]s. A `Queue` belongs to one thread, takes [`Request`]s that point into a [`MemoryMap`], and gives
//! [`Completion`]s back. Device models, sessions, benchmarks and tests all speak this one interface, so a layer
//! is a `Disk` around a `Disk` and anything goes on top of anything.
//!
//! The backends are [`FileDisk`] (a file or a block device, by io_uring, threads or the caller's own thread),
//! [`MemoryDisk`] and [`NullDisk`]. [`ReplacementFile`] is how a new image takes the place of an old one. What can be put
//! around a disk is in [`layers`]; how people name a disk, and what they want around it, in [`specification`]. A disk whose
//! [`Geometry`] makes demands on requests gets a [`layers::AlignedDisk`] on top by whoever opens it, so that nobody above
//! meets such demands.
//!
//! Everything is in bytes. Guest memory goes to the kernel as it lies: a [`Segment`] is a place in the memory map,
//! checked where the request enters the queue, and nothing is copied or allocated per request.
//!
//! A file is locked as QEMU locks images ([`FileOptions::lock`]), so that the two never write to one at once.
//!
//! Deliberately absent: sectors (virtio's 512-byte unit stays in the virtio code), locks on the data path, and
//! any knowledge of who sends the requests.

pub mod comparison;
pub mod conversion;
mod counting_allocator;
mod disk;
pub mod duration;
mod event_fd;
mod explain;
mod file;
mod formats;
pub mod layers;
pub mod limits;
mod mapped;
mod memory;
mod memory_contents;
mod memory_map;
mod null;
mod opened_file;
pub mod partition_table;
mod place;
mod printable;
mod private_directory;
mod read;
mod replacement;
mod request;
mod same_file;
mod shared_words;
pub mod size;
pub mod specification;
#[cfg(test)]
mod tests;
mod truncation_guard;
mod wait;
mod walk;
mod watched_work;
mod write;

pub use counting_allocator::CountingAllocator;
pub use disk::{Disk, Extent, ExtentKind, Geometry, Queue, QueueError};
pub use event_fd::EventFd;
pub use explain::explain;
pub use file::{Engine, FileDisk, FileDiskError, FileOptions, FileUsers, RING_REGISTRATIONS};
pub use formats::{
    AllowedDirectories, AtomicChange, ChainImage, CheckReport, FileFormat, ForeignJournal, FoundJournal, ImageError,
    LuksHeader, LuksSlot, Preallocation, Qcow2Backing, Qcow2Bitmap, Qcow2Check, Qcow2Commit, Qcow2CreateOptions,
    Qcow2Disk, Qcow2Encryption, Qcow2Info, Qcow2Mapping, Qcow2MappingKind, Qcow2Rebase, Qcow2Snapshot, Qcow2Writer,
    Repair, UnfinishedChange, VmdkDisk, VmdkExtent, VmdkInfo, image_chain, write_differences,
};
pub use limits::{QUEUE_DEPTH_MAX, SEGMENTS_MAX};
pub use memory::MemoryDisk;
pub use memory_map::{AdmittedMemory, MemoryMap, MemoryMapError, Segment, SharedRegion, gives_pages};
pub use null::NullDisk;
pub use opened_file::OpenedFile;
pub use printable::{misleads, printable, printable_lines, shell_word, shown};
pub use private_directory::{private_directory, private_directory_in};
pub use read::{DiskReader, read_bytes, reads_as_zeros};
pub use replacement::{ReplacementError, ReplacementFile};
pub use request::{Completion, Operation, Request, RequestError};
pub use same_file::same_file;
pub use shared_words::{SharedWords, Word};
pub use wait::{Woken, wait_readable, wait_ready};
pub use walk::walk_extents;
pub use write::{flush, write_bytes};
