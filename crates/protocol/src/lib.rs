//! What host and copy guest must agree on: where things lie in guest memory ([`layout`]), what they say to each other
//! ([`messages`], generated from `messages.proto`), how that goes over a serial port ([`frame`]), and which bytes a
//! copy reads and writes in which order ([`plan`], [`progress`]).
//!
//! Everything here is without `std`, without an allocator and without `unsafe`: the guest has none, and what it does
//! can be tested on the host. The exception is the appliance's part (feature `appliance`): its messages are
//! [`appliance`], how data go through its transfer disks is [`stream`], what its disks are called is [`volume_name`],
//! what patterns of file names mean is [`pattern`], and what chmod(1) makes of permissions is [`file_mode`].
//!
//! Deliberately absent: anything that touches a port or a device.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(feature = "appliance")]
extern crate alloc;
#[cfg(test)]
extern crate std;

#[cfg(feature = "appliance")]
#[expect(missing_docs, reason = "a field whose name says all has no sentence")]
pub mod appliance;
#[cfg(feature = "appliance")]
pub mod file_mode;
pub mod frame;
pub mod layout;
#[cfg(feature = "appliance")]
pub mod pattern;
pub mod plan;
pub mod progress;
#[cfg(feature = "appliance")]
pub mod stream;
#[cfg(feature = "appliance")]
pub mod volume_name;

#[rustfmt::skip]
#[allow(clippy::all, missing_docs, nonstandard_style, unreachable_pub, unused, irrefutable_let_patterns)]
#[path = "messages.rs"]
mod generated;

/// The messages of `messages.proto`. Strings and lists have a fixed room: what does not fit does not decode.
pub mod messages {
    pub use crate::generated::blockyard::{
        Capacity, Complete, DeviceConfig, Error, Extent, ExtentKind, Extents, GuestMessage, GuestOperation, Init,
        Progress, Stage, VmmConfig,
    };
    pub use heapless::{String, Vec};
}
