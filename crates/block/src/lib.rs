//! Disks, and the one short road every byte takes to them.
//!
//! A [`Disk`] says what it is ([`Geometry`]), which of its ranges hold data ([`Disk::extents`]), and opens
//! [`Queue`]s. A `Queue` belongs to one thread, takes [`Request`]s that point into a [`MemoryMap`], and gives
//! [`Completion`]s back. Device models, sessions, benchmarks and tests all speak this one interface, so a layer
//! is a `Disk` around a `Disk` and anything goes on top of anything.
//!
//! The backends are [`FileDisk`] (a file or a block device, by io_uring, threads or the caller's own thread),
//! [`MemoryDisk`] and [`NullDisk`]; images have others, and [`specification`] opens whatever people name, in its format
//! and with what they want around it (`blockyard_session::open::open_disk` does so for disks of other processes too).
//! [`ReplacementFile`] is how a new image takes the place of an old one. What can be put around a disk is in
//! [`layers`]. A disk whose [`Geometry`] makes demands on requests gets a [`layers::AlignedDisk`] on top by whoever
//! opens it, so that nobody above meets such demands.
//!
//! Everything is in bytes. Guest memory goes to the kernel as it lies: a [`Segment`] is a place in the memory map,
//! checked where the request enters the queue, and nothing is copied or allocated per request.
//!
//! A file is locked as QEMU locks images ([`FileOptions::lock`]), so that the two never write to one at once.
//!
//! The smallest complete disk: eight bytes that say where they are, over and over.
//!
//! ```
//! use blockyard_block::{
//!     Completion, Disk, Extent, ExtentKind, Geometry, MemoryMap, Operation, QUEUE_DEPTH_MAX, Queue, QueueError,
//!     Request, RequestError, SEGMENTS_MAX, read_bytes,
//! };
//! use std::{io, ops::Range, os::fd::BorrowedFd, time::Duration};
//!
//! struct Offsets;
//!
//! impl Disk for Offsets {
//!     fn geometry(&self) -> Geometry {
//!         Geometry {
//!             capacity_bytes: 1 << 40,
//!             logical_block_bytes: 512,
//!             physical_block_bytes: 512,
//!             optimal_io_bytes: 0,
//!             segments_max: SEGMENTS_MAX,
//!             transfer_bytes_max: u64::MAX,
//!             memory_align_bytes: 1,
//!             read_only: true,
//!             discard: false,
//!             write_zeroes: false,
//!         }
//!     }
//!
//!     fn extents(&self, range: Range<u64>) -> io::Result<Extent> {
//!         self.geometry().check_extent_range(&range)?;
//!         Ok(Extent { offset_bytes: range.start, length_bytes: range.end - range.start, kind: ExtentKind::Data })
//!     }
//!
//!     fn open_queue(&self, memory: &MemoryMap, depth: usize) -> io::Result<Box<dyn Queue>> {
//!         if depth == 0 {
//!             return Err(io::ErrorKind::InvalidInput.into());
//!         }
//!         let depth = depth.min(QUEUE_DEPTH_MAX);
//!         Ok(Box::new(OffsetsQueue { memory: memory.clone(), depth, done: Vec::with_capacity(depth) }))
//!     }
//! }
//!
//! /// Carries out each request where it is pushed. So it needs no event, and there is nothing to wait for.
//! struct OffsetsQueue {
//!     memory: MemoryMap,
//!     depth: usize,
//!     done: Vec<Completion>,
//! }
//!
//! impl OffsetsQueue {
//!     fn carry_out(&self, request: &Request<'_>) -> Result<(), RequestError> {
//!         Offsets.geometry().check(request)?;
//!         Offsets.geometry().check_alignment(request)?;
//!         let Operation::Read = request.operation else { return Ok(()) };
//!         let mut offset = request.offset_bytes;
//!         for &segment in request.segments {
//!             let slice = self.memory.slice(segment).ok_or(RequestError::BadSegment)?;
//!             let bytes = (offset..offset + slice.len() as u64).map(|at| (at & !7).to_le_bytes()[at as usize & 7]);
//!             slice.copy_from(&bytes.collect::<Vec<u8>>());
//!             offset += slice.len() as u64;
//!         }
//!         Ok(())
//!     }
//! }
//!
//! impl Queue for OffsetsQueue {
//!     fn depth(&self) -> usize {
//!         self.depth
//!     }
//!
//!     fn in_flight(&self) -> usize {
//!         self.done.len()
//!     }
//!
//!     fn push(&mut self, request: &Request<'_>) -> Result<(), QueueError> {
//!         if self.done.len() == self.depth {
//!             return Err(QueueError::Full);
//!         }
//!         self.done.push(Completion { token: request.token, result: self.carry_out(request) });
//!         Ok(())
//!     }
//!
//!     fn submit(&mut self) -> io::Result<()> {
//!         Ok(())
//!     }
//!
//!     fn reap(&mut self, completions: &mut Vec<Completion>) {
//!         completions.append(&mut self.done);
//!     }
//!
//!     fn completion_event(&self) -> Option<BorrowedFd<'_>> {
//!         None
//!     }
//!
//!     fn wait(&mut self, _events: &[BorrowedFd<'_>], _timeout: Option<Duration>) -> io::Result<()> {
//!         Ok(())
//!     }
//! }
//!
//! assert_eq!(read_bytes(&Offsets, 4096..4608)?[8..16], 4104u64.to_le_bytes());
//! # assert!(Offsets.extents(0..0).is_err() && Offsets.extents(0..1 << 41).is_err());
//! # let memory = MemoryMap::allocate(&[(0, 4096)]).unwrap();
//! # assert!(Offsets.open_queue(&memory, 0).is_err());
//! # let mut queue = Offsets.open_queue(&memory, usize::MAX)?;
//! # let mut result = |operation, offset_bytes, offset_in_memory, length_bytes| {
//! #     let segment = blockyard_block::Segment { region: 0, offset_bytes: offset_in_memory, length_bytes };
//! #     let request = Request { operation, offset_bytes, segments: &[segment], token: 0 };
//! #     let mut completions = Vec::new();
//! #     queue.push(&request).and_then(|()| Ok(queue.drain(&mut completions))).unwrap().unwrap();
//! #     completions[0].result
//! # };
//! # assert_eq!(result(Operation::Read, 512, 1, 1024), Ok(()));
//! # assert_eq!(result(Operation::Read, 1, 0, 512), Err(RequestError::Unaligned));
//! # assert_eq!(result(Operation::Read, 0, 0, 511), Err(RequestError::Unaligned));
//! # assert_eq!(result(Operation::Read, 1 << 40, 0, 512), Err(RequestError::OutOfRange));
//! # assert_eq!(result(Operation::Read, 0, 4096, 512), Err(RequestError::BadSegment));
//! # assert_eq!(result(Operation::Write { force_unit_access: false }, 0, 0, 512), Err(RequestError::ReadOnly));
//! # Ok::<(), io::Error>(())
//! ```
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
mod file_identity;
mod formats;
mod huge_mapping;
mod image_trouble;
mod immediate_queue;
pub mod layers;
pub mod limits;
mod mapped;
mod memory;
mod memory_contents;
mod memory_map;
mod memory_transfer;
mod named_file;
mod null;
mod opened_file;
pub mod partition_table;
mod place;
mod printable;
mod private_directory;
pub mod programs;
mod random_bytes;
mod read;
mod reading_again;
mod remedy;
mod replacement;
mod request;
mod root_directory;
mod same_file;
mod scheduling;
mod second_signal;
mod shared_words;
pub mod size;
pub mod specification;
#[cfg(test)]
mod tests;
mod truncation_guard;
mod users;
mod wait;
mod walk;
mod watched_work;
mod write;

pub use counting_allocator::CountingAllocator;
pub use disk::{Disk, Extent, ExtentKind, Geometry, Queue, QueueError};
pub use event_fd::EventFd;
pub use explain::{error_at, explain};
pub use file::{Engine, FileDisk, FileDiskError, FileOptions, FileUsers, RING_REGISTRATIONS, RingQuota, RingsAhead};
pub use file_identity::FileIdentity;
pub use formats::{
    AllowedDirectories, AtomicChange, BlockMapCreateOptions, BlockMapDisk, BlockMapFormat, BlockMapInfo,
    BlockMapWriter, ChainImage, ChainKeys, CheckReport, Compression, FileFormat, FoldError, ForeignJournal,
    FoundJournal, ImageError, KeyFile, KeyFileError, LineEnd, LocalName, LuksDisk, LuksHeader, LuksOptions, LuksSlot,
    LuksSlotChange, NewLuks, Ova, OvaDigest, OvaDisk, Preallocation, Qcow2Amendment, Qcow2Backing, Qcow2Bitmap,
    Qcow2BitmapAction, Qcow2Check, Qcow2Closing, Qcow2Commit, Qcow2CreateOptions, Qcow2DataFile, Qcow2Disk,
    Qcow2Encryption, Qcow2Features, Qcow2Held, Qcow2Info, Qcow2Mapping, Qcow2MappingKind, Qcow2Rebase, Qcow2Shown,
    Qcow2Snapshot, Qcow2Writer, Repair, SecretBytes, StartUnpacker, UnfinishedChange, UnpackedDisk, Unpacker,
    VmdkAdapter, VmdkCommit, VmdkCreateOptions, VmdkExtent, VmdkInfo, VmdkStreamWriter, image_chain, read_key_file,
    write_differences,
};
pub use image_trouble::{ImageTrouble, hear_of_trouble};
pub use limits::{QUEUE_DEPTH_MAX, SEGMENTS_MAX};
pub use memory::MemoryDisk;
pub use memory_map::{AdmittedMemory, MemoryMap, MemoryMapError, Segment, SharedRegion, gives_pages};
pub use named_file::{NamedFileError, open_named, read_named, read_named_text};
pub use null::NullDisk;
pub use opened_file::{OpenedFile, descriptor_path};
pub use place::directory_of;
pub use printable::{misleads, printable, printable_lines, shell_word, shown};
pub use private_directory::{
    not_planted, private_directory, private_directory_in, private_directory_named, unchangeable,
};
pub use read::{DiskReader, read_bytes, reads_as_zeros};
pub use remedy::Remedy;
pub use replacement::{
    FileHints, ReplacementError, ReplacementFile, UnknownHint, refuse_missing_device, refuse_strangers,
};
pub use request::{Completion, Operation, Request, RequestError};
pub use root_directory::RootDirectory;
pub use same_file::same_file;
pub use scheduling::WakeUp;
pub use second_signal::SecondSignal;
pub use shared_words::{SharedWords, Word};
pub use users::is_one_user;
pub use wait::{Woken, one_event, wait_readable, wait_ready};
pub use walk::walk_extents;
pub use write::{flush, write_bytes};
