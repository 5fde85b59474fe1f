//! Image formats and deltas, against QEMU's tools.

mod atomic;
mod bitmaps;
mod block_map;
mod chains;
mod check;
mod encryption;
mod killed;
mod model;
mod options;
mod overlay;
mod pending_check;
mod qcow2;
mod refused;
mod rig;
#[path = "../rig/mod.rs"]
mod shared;
mod snapshots;
mod vmdk;
