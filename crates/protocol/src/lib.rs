//! What host and copy guest must agree on: where things lie in guest memory ([`layout`]), what they say to each other
//! ([`messages`], generated from `messages.proto`), how that goes over a serial port ([`frame`]), and which bytes a copy
//! reads and writes in which order ([`plan`], [`progress`]).
//!
//! Everything here is without `std`, without an allocator and without `unsafe`: the guest has none, and what it does can be
//! tested on the host.
//!
//! Deliberately absent: anything that touches a port or a device.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

pub mod frame;
pub mod layout;
pub mod plan;
pub mod progress;

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
