//! `AlignedDisk`: what it makes of requests that the disk below does not take, and that no write is ever lost.

mod direct;
mod model;
mod neighbours;
mod pieces;
#[path = "../rig/mod.rs"]
mod rig;

use blockyard_block::Disk;
use blockyard_block::layers::{AlignOptions, AlignedDisk};
use rig::Rig;
use std::sync::Arc;

/// A queue of an aligned disk on top of `inner`.
fn aligned(inner: Arc<dyn Disk>, depth: usize) -> Rig {
    Rig::on(Arc::new(AlignedDisk::new(inner, &AlignOptions::default()).unwrap()), depth)
}
