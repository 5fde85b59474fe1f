//! What is wanted of a copy, and who looks on.

use blockyard_block::specification::DiskSpecification;
use blockyard_vmm::backend::BackendChoice;
use blockyard_vmm::placement::Placement;
use std::path::PathBuf;
use std::time::Duration;

/// Bytes in a sector, if neither the plan nor the disk says otherwise.
pub const SECTOR_BYTES_DEFAULT: u32 = 512;

/// A copy that makes sense.
#[derive(Clone, Debug)]
pub struct CopyPlan {
    /// Disk to read.
    pub input: DiskPlan,
    /// Disk to write.
    pub output: DiskPlan,
    /// Flat binary to run instead of the built-in guest.
    pub guest: Option<PathBuf>,
    /// As the protocol has it.
    pub progress_percent: u32,
    /// Bytes in the largest request: a multiple of both sectors.
    pub request_bytes: u32,
    /// Requests in flight.
    pub queue_depth: u32,
    /// Virtqueues a disk, and I/O threads, at most.
    pub queues: u32,
    /// Guest memory.
    pub memory_bytes: u64,
    /// Which hypervisor.
    pub backend: BackendChoice,
    /// Where threads run.
    pub placement: Placement,
    /// Longest time without progress; `None` waits for ever.
    pub timeout: Option<Duration>,
    /// Whether the result must be on stable storage.
    pub flush: bool,
    /// Whether a raw file that is there is written in place.
    pub in_place: bool,
    /// Whether the guest looks for zeros.
    pub detect_zeroes: bool,
    /// Whether the audience is told of the guest's debug text and messages.
    pub debug: bool,
}

/// One end of a copy.
#[derive(Clone, Debug)]
pub struct DiskPlan {
    /// The disk as it was named.
    pub named: DiskSpecification,
    /// The disk as it is to be opened: with an engine.
    pub specification: DiskSpecification,
    /// Bytes in a sector; `None`: in one of the disk's own blocks.
    pub sector_bytes: Option<u32>,
}

/// Who looks on while a copy is under way.
pub trait Audience {
    /// The signal that asks the copy to end, by its name, once one has.
    fn asks_to_end(&self) -> Option<String>;

    /// So many of the bytes are done, of which the guest has read so many that are no holes: said again and again.
    fn progress(&self, done_bytes: u64, length_bytes: u64, data_bytes: u64);

    /// What the guest or its debug port says.
    fn debug(&self, line: &str);

    /// The guest is done, and there is no more progress to hear of.
    fn is_done(&self);
}
