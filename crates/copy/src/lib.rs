//! Copies a disk to another through a virtual machine that sees both: a bare-metal guest reads one virtio disk and
//! writes the other.
//!
//! [`CopyPlan`] says what is wanted. [`copy`] opens both ends, the source first (a destination that is a raw file is
//! written beside its name), builds the machine, follows what its guest says over COM1, and gives the destination its
//! name when all is there. [`Audience`] looks on.
#![forbid(unsafe_code)]

mod conversation;
mod destination;
mod disk_end;
mod job;
mod plan;
mod report;
mod source;
mod watch;

pub use job::copy;
pub use plan::{Audience, CopyPlan, DiskPlan, SECTOR_BYTES_DEFAULT};
pub use report::{CopyReport, Exits, Phases};
