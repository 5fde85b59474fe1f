//! Giving free blocks back to the disks.

use crate::failures::Failures;
use crate::mounts::{Mounts, path_of};
use blockyard_protocol::appliance::Trimmed;
use rustix::ioctl::{Opcode, Updater, ioctl, opcode};
use std::fs::File;
use std::io;

/// `struct fstrim_range` (Linux, include/uapi/linux/fs.h): bytes.
#[repr(C)]
struct TrimRange {
    start: u64,
    length: u64,
    minimum_length: u64,
}

/// Gives back the free blocks of what is mounted.
pub(crate) fn trim(mounts: &Mounts, failures: &mut Failures) -> Vec<Trimmed> {
    let mut trimmed = Vec::new();
    for mounted in &mounts.mounted {
        let directory = path_of(&mounted.point.directory);
        match File::open(directory).and_then(|directory| trim_one(&directory)) {
            Ok(bytes) => trimmed.push(Trimmed { device: mounted.point.device.clone(), bytes }),
            error => failures.note(directory, "cannot give back free blocks", error.map(drop)),
        }
    }
    trimmed
}

fn trim_one(directory: &File) -> io::Result<u64> {
    const FITRIM: Opcode = opcode::read_write::<TrimRange>(b'X', 121);
    let mut range = TrimRange { start: 0, length: u64::MAX, minimum_length: 0 };
    // SAFETY: FITRIM reads and writes a `struct fstrim_range`, which `TrimRange` is laid out as.
    let updater = unsafe { Updater::<FITRIM, TrimRange>::new(&mut range) };
    // SAFETY: as above; the kernel keeps no reference to it.
    unsafe { ioctl(directory, updater)? };
    Ok(range.length)
}
