//! The AHCI controller, driven as a driver would: registers, command lists and tables by hand.

#![forbid(unsafe_code)]

mod commands;
mod driver;
mod errors;
mod hostile;
mod resets;
#[path = "../virtio/scripted_disk.rs"]
mod scripted_disk;
