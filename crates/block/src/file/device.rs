//! What a block device says of itself.

use rustix::fs::{ioctl_blkpbszget, ioctl_blksszget, major, minor};
use rustix::ioctl::{Getter, Opcode, Setter, ioctl, opcode};
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;

/// Size of the device: BLKGETSIZE64, linux/fs.h.
pub(super) fn size_bytes(device: &File) -> io::Result<u64> {
    const BLKGETSIZE64: Opcode = opcode::read::<usize>(0x12, 114);
    // SAFETY: BLKGETSIZE64 is numbered as reading a size_t and writes one u64 through its argument.
    let bytes = unsafe { ioctl(device, Getter::<BLKGETSIZE64, u64>::new()) }?;
    Ok(bytes)
}

/// Whether the device refuses writes: BLKROGET, linux/fs.h.
pub(super) fn is_read_only(device: &File) -> io::Result<bool> {
    const BLKROGET: Opcode = opcode::none(0x12, 94);
    // SAFETY: BLKROGET writes one int through its argument.
    let flag = unsafe { ioctl(device, Getter::<BLKROGET, i32>::new()) }?;
    Ok(flag != 0)
}

/// The unit it addresses.
pub(super) fn logical_block_bytes(device: &File) -> Option<u32> {
    ioctl_blksszget(device).ok()
}

/// The unit it is written in.
pub(super) fn physical_block_bytes(device: &File) -> Option<u32> {
    ioctl_blkpbszget(device).ok()
}

/// Gives the storage of a range back, whatever it then reads as: BLKDISCARD, linux/fs.h.
pub(super) fn discard(device: &File, offset_bytes: u64, length_bytes: u64) -> rustix::io::Result<()> {
    const BLKDISCARD: Opcode = opcode::none(0x12, 119);
    // SAFETY: BLKDISCARD reads two u64 through its argument.
    unsafe { ioctl(device, Setter::<BLKDISCARD, [u64; 2]>::new([offset_bytes, length_bytes])) }
}

/// What the device does cheaply, as sysfs knows it. Where sysfs cannot be seen, everything: being refused costs little.
#[derive(Clone, Copy, Debug)]
pub(super) struct Abilities {
    pub(super) discard: bool,
    pub(super) write_zeroes: bool,
}

pub(super) fn abilities(metadata: &Metadata) -> Abilities {
    let device = format!("/sys/dev/block/{}:{}", major(metadata.rdev()), minor(metadata.rdev()));
    let most_bytes = |name: &str| {
        // A partition has no queue of its own: its disk's is one level up.
        let paths = [format!("{device}/queue/{name}"), format!("{device}/../queue/{name}")];
        paths.iter().find_map(|path| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok())
    };
    let can = |name| most_bytes(name).is_none_or(|bytes| bytes > 0);
    Abilities { discard: can("discard_max_bytes"), write_zeroes: can("write_zeroes_max_bytes") }
}
