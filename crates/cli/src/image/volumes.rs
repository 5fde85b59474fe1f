//! The commands on the volumes of an image: their arguments, and how what they say looks.

pub mod filesystems;
pub mod fsck;
pub mod label;
pub mod mkfs;
pub mod trim;
