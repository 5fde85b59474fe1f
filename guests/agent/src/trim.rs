//! Giving free blocks back to the disks.

use crate::failures::Failures;
use crate::mounts::{Mounts, path_of};
use crate::program;
use blockyard_protocol::appliance::Trimmed;
use rustix::io::Errno;
use rustix::ioctl::{Opcode, Updater, ioctl, opcode};
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// What this program is called where it trims one file system.
const PROGRAM: &str = "fstrim";

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
        match File::open(directory).and_then(|directory| trim_apart(directory, mounts)) {
            Ok(bytes) => trimmed.push(Trimmed { device: mounted.point.device.clone(), bytes }),
            error => failures.note(directory, "cannot give back free blocks", error.map(drop)),
        }
    }
    trimmed
}

/// Trims in a process of its own: only its end ends that before it is done.
fn trim_apart(directory: File, mounts: &Mounts) -> io::Result<u64> {
    let mut command = Command::new("/init");
    command.arg0(PROGRAM).process_group(0).stdin(directory).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = mounts.outside(|| command.spawn()).map_err(|failure| io::Error::other(failure.sentence))??;
    let end = program::finish(child, Vec::new())?;
    match (end.signal, end.status) {
        (0, 0) => Ok(String::from_utf8_lossy(&end.output).parse().unwrap_or(0)),
        (0, errno) => Err(io::Error::from_raw_os_error(errno as i32)),
        _ => Err(io::Error::other("given up")),
    }
}

/// Trims what its standard input lies in, if this program was executed for that; its exit status is the error's number.
pub(crate) fn asked_by_agent() -> Option<i32> {
    std::env::args().next().filter(|name| name == PROGRAM)?;
    match trim_one(io::stdin()) {
        Ok(bytes) => print!("{bytes}"),
        Err(error) => return Some(error.raw_os_error().unwrap_or(Errno::IO.raw_os_error())),
    }
    Some(0)
}

fn trim_one(directory: impl AsFd) -> io::Result<u64> {
    const FITRIM: Opcode = opcode::read_write::<TrimRange>(b'X', 121);
    let mut range = TrimRange { start: 0, length: u64::MAX, minimum_length: 0 };
    // SAFETY: FITRIM reads and writes a `struct fstrim_range`, which `TrimRange` is laid out as.
    let updater = unsafe { Updater::<FITRIM, TrimRange>::new(&mut range) };
    // SAFETY: as above; the kernel keeps no reference to it.
    unsafe { ioctl(directory, updater)? };
    Ok(range.length)
}
