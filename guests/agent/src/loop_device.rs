//! Block devices made of files of the image (drivers/block/loop.c).

use crate::modules;
use rustix::ioctl::{IntegerSetter, Opcode, Setter, ioctl, opcode};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// `struct loop_config` (Linux, include/uapi/linux/loop.h) with its `struct loop_info64`.
#[repr(C)]
struct Configuration {
    descriptor: u32,
    block_bytes: u32,
    device: u64,
    inode: u64,
    device_number: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    encryption: u32,
    key_bytes: u32,
    flags: u32,
    names_and_keys: [u8; 64 + 64 + 32],
    reserved: [u64; 2 + 8],
}

const READ_ONLY: u32 = 1;
/// The device lets go of its file with the last who has it open: what is mounted has it.
const AUTOCLEAR: u32 = 4;

/// The most devices that are looked at for one that is free.
const DEVICES_MAX: u32 = 256;

/// Makes a block device of a file: its name in /dev, and what keeps it until it is mounted.
pub(crate) fn attach(file: &OwnedFd, read_only: bool) -> io::Result<(String, File)> {
    const CONFIGURE: Opcode = opcode::none(0x4c, 0x0a);
    modules::load("loop")?;
    let flags = AUTOCLEAR | if read_only { READ_ONLY } else { 0 };
    for number in 0..DEVICES_MAX {
        add(number)?;
        let name = format!("loop{number}");
        let device = File::options().read(true).write(!read_only).open(format!("/dev/{name}"))?;
        let configuration = Configuration {
            descriptor: file.as_raw_fd() as u32,
            block_bytes: 0,
            device: 0,
            inode: 0,
            device_number: 0,
            offset: 0,
            size_limit: 0,
            number: 0,
            encryption: 0,
            key_bytes: 0,
            flags,
            names_and_keys: [0; 160],
            reserved: [0; 10],
        };
        // SAFETY: LOOP_CONFIGURE reads a `struct loop_config`, which `Configuration` is laid out as.
        let setter = unsafe { Setter::<CONFIGURE, Configuration>::new(configuration) };
        // SAFETY: as above; the kernel keeps no reference to it.
        match unsafe { ioctl(&device, setter) } {
            Ok(()) => return Ok((name, device)),
            Err(rustix::io::Errno::BUSY) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Err(io::Error::other("no loop device is free"))
}

/// Has the kernel make a device, if it has not.
fn add(number: u32) -> io::Result<()> {
    let path = format!("/sys/block/loop{number}");
    if std::fs::exists(&path)? {
        return Ok(());
    }
    // Opening the device's node would do it too, but there is none yet.
    let control = File::options().read(true).write(true).open("/dev/loop-control")?;
    const ADD: Opcode = opcode::none(0x4c, 0x80);
    // SAFETY: LOOP_CTL_ADD takes a number, no pointer.
    let call = unsafe { IntegerSetter::<ADD>::new_usize(number as usize) };
    // SAFETY: as above.
    unsafe { ioctl(&control, call)? };
    Ok(())
}
