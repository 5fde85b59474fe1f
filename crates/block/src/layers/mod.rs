//! Layers: each is a [`crate::Disk`] around a disk.

mod overlay;

pub use overlay::{OverlayDisk, commit};
