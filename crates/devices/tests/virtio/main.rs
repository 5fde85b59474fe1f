//! The virtio devices, driven as a driver would: registers, rings and requests by hand.

#![forbid(unsafe_code)]

mod block;
mod broken_rings;
mod driver;
mod entropy;
mod hostile;
mod mmio;
mod pci;
mod pieces;
mod queue_set;
mod scripted_disk;
mod workload;
