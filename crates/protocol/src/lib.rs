//! What host and copy guest must agree on: where things lie in guest memory ([`layout`]), what they say to each other
//! ([`messages`], generated from `messages.proto`), how that goes over a serial port ([`frame`]), and which bytes a copy
//! reads and writes in which order ([`plan`], [`progress`]).
//!
//! Everything here is without `std`, without an allocator and without `unsafe`: the guest has none, and what it does can be
//! tested on the host. The exception is the appliance's part (feature `appliance`): its messages are [`appliance`], generated from
//! `appliance.proto`, how data go through its transfer disks is [`stream`], what patterns of file names mean is
//! [`pattern`], and what chmod(1) makes of permissions is [`file_mode`].
//!
//! Deliberately absent: anything that touches a port or a device.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(feature = "appliance")]
extern crate alloc;
#[cfg(test)]
extern crate std;

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
#[rustfmt::skip]
#[allow(clippy::all, missing_docs, nonstandard_style, unreachable_pub, unused, irrefutable_let_patterns)]
#[path = "appliance_messages.rs"]
mod appliance_generated;

/// The messages of `appliance.proto`. What a frame can hold is their bound.
#[cfg(feature = "appliance")]
pub mod appliance {
    pub use crate::appliance_generated::blockyard::appliance::Request_::Operation;
    pub use crate::appliance_generated::blockyard::appliance::*;

    /// The protocol's version: host and agent come out of one build, so this only ever differs by accident.
    pub const VERSION: u32 = 1;
    /// Most bytes in a frame, length and message.
    pub const FRAME_BYTES_MAX: usize = crate::frame::LENGTH_BYTES + u16::MAX as usize;

    /// Bytes of a request that are sent before the guest asks for more, with a response whose number is [`MORE`]. Of a line that has
    /// taken 3968 bytes which nobody has read (N_TTY's 4096 but for TTY_THRESHOLD_THROTTLE), User-Mode Linux hears nothing any more.
    pub const PIECE_BYTES: usize = 2048;

    /// The number of a response that only asks for the next piece of the request.
    pub const MORE: u32 = u32::MAX;
}

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
