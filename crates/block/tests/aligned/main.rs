//! `AlignedDisk`: what it makes of requests that the disk below does not take, and that no write is ever lost.

mod demanding_disk;
mod direct;
mod model;
mod neighbours;
mod pieces;
mod random;
mod rig;
