//! The driver's side of a split virtqueue (virtio 1.2, section 2.7), for guests and for clients of disk servers.
//!
//! A [`DriverQueue`] puts [`Chain`]s of buffers into the available ring and takes them back from the used ring.
//! [`Rings`] say where the rings lie, as slices of atomics: whoever owns the memory makes them, so there is no `unsafe`
//! here. What the driver must remember it keeps to itself: nothing that it has written to shared memory is ever read
//! back, and what the device writes there is read once and judged. A device that lies gives a [`DeviceError`]; it can
//! neither make the driver loop, nor panic, nor confuse one request with another.
//!
//! [`write_table`] writes an indirect descriptor table, so that a request takes one descriptor of the ring.
//!
//! Deliberately absent: allocation, the device's side, packed virtqueues, and any idea of what the buffers are for.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

mod descriptor;
mod driver;
mod rings;

pub use descriptor::{Buffer, Chain, ChainError, Table, write_table};
pub use driver::{AddError, DeviceError, DriverQueue, Used};
pub use rings::{
    AVAILABLE_ALIGN, DESCRIPTOR_ALIGN, QUEUE_SIZE_MAX, Rings, RingsError, USED_ALIGN, available_bytes, available_words,
    descriptor_bytes, descriptor_words, used_bytes, used_words,
};
