//! Layers: each is a [`Disk`](crate::Disk) around a [`Disk`](crate::Disk), so any of them goes on top of any other.
//!
//! [`AlignedDisk`] takes requests of any length and alignment. [`PartitionDisk`] confines to a range. [`OverlayDisk`]
//! keeps changes apart. [`JoinedDisk`] is several disks, one behind the other. [`GatheringDisk`] makes one write of
//! several. [`ThrottledDisk`] holds requests back. [`MeteredDisk`] counts and measures. [`FaultyDisk`] does wrong on
//! purpose. [`WatchedDisk`] remembers the first error, and how much there was to do. [`ZerosAsHoles`] gives back the
//! storage of zeros. [`WriteLog`] remembers every write, and can tell what a disk may hold after a power cut at any
//! point.
//!
//! What they have in common is in [`layer`]: a layer writes only what it changes.
//!
//! None of them copies data, and none but the log, which is for tests, allocates or locks per request.

mod align;
mod clock;
mod faults;
mod gathering;
mod hurry;
mod joined;
pub mod layer;
mod meter;
mod operation_kind;
mod overlay;
mod partition;
mod random;
mod slots;
#[cfg(test)]
pub(crate) mod tests;
mod throttle;
mod timed_event;
mod watched;
mod write_log;
mod zeros_as_holes;

pub use align::{AlignOptions, AlignedDisk};
pub use faults::{Fault, Faults, FaultsError, FaultyDisk, Latency, When};
pub use gathering::GatheringDisk;
pub use hurry::hold_nothing_back_after;
pub use joined::{JoinError, JoinedDisk};
pub use meter::{LatencyHistogram, LatencySnapshot, Meter, MeterSnapshot, MeteredDisk, OperationSnapshot};
pub use operation_kind::OperationKind;
pub use overlay::{OverlayDisk, commit};
pub use partition::{PartitionDisk, PartitionError};
pub use throttle::{ThrottleLimits, ThrottledDisk};
pub use watched::{WatchedDisk, Work};
pub use write_log::{Image, Recording, Replay, WriteLog, WriteLogDisk};
pub use zeros_as_holes::ZerosAsHoles;
