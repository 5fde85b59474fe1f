//! Layers: each is a [`Disk`](crate::Disk) around a [`Disk`](crate::Disk), so any of them goes on top of any other.

mod align;

pub use align::{AlignOptions, AlignedDisk};
