//! What a call is as a submission.

use super::registered::Registered;
use crate::file::call::{Call, Transfer};
use io_uring::types::{Fd, FsyncFlags};
use io_uring::{opcode, squeue};

/// What the kernel must know: all of it since Linux 5.6. Discards of block devices (5.19, and for them 6.12) may be
/// missing: the job goes on to another way when they are refused.
pub(super) const OPCODES: [u8; 9] = [
    opcode::Nop::CODE,
    opcode::Read::CODE,
    opcode::ReadFixed::CODE,
    opcode::Readv::CODE,
    opcode::Write::CODE,
    opcode::WriteFixed::CODE,
    opcode::Writev::CODE,
    opcode::Fsync::CODE,
    opcode::Fallocate::CODE,
];

/// BLOCK_URING_CMD_DISCARD, linux/blkdev.h: `_IO(0x12, 0)`. The range's start is in `addr`, its length in `addr3`,
/// which is where a command's own bytes are.
const BLOCK_URING_CMD_DISCARD: u32 = 0x12 << 8;

pub(super) fn entry(call: Call<'_>, registered: &Registered) -> squeue::Entry {
    let cached = registered.file(false);
    let entry = match call {
        // A request that ended before it began still completes through the ring, so that its event is seen.
        Call::Nothing => return opcode::Nop::new().build(),
        Call::Read(transfer) => return read(transfer, registered),
        Call::Write(transfer) => return write(transfer, registered),
        Call::Sync => opcode::Fsync::new(Fd(cached.number)).flags(FsyncFlags::DATASYNC).build(),
        Call::Allocate { mode, offset_bytes, length_bytes } => {
            let allocate = opcode::Fallocate::new(Fd(cached.number), length_bytes);
            allocate.offset(offset_bytes).mode(mode.bits() as i32).build()
        }
        Call::Discard { offset_bytes, length_bytes } => {
            let mut command = [0; 16];
            command[..8].copy_from_slice(&length_bytes.to_ne_bytes());
            let discard = opcode::UringCmd16::new(Fd(cached.number), BLOCK_URING_CMD_DISCARD);
            discard.addr(Some(offset_bytes)).cmd(command).build()
        }
    };
    entry.flags(cached.flags)
}

fn read(transfer: Transfer<'_>, registered: &Registered) -> squeue::Entry {
    let Transfer { iovecs, offset_bytes, direct, .. } = transfer;
    let file = registered.file(direct);
    let fd = Fd(file.number);
    let entry = match iovecs {
        // One segment spares the kernel the copy of an iovec.
        [only] => {
            let (base, length) = (only.iov_base.cast(), only.iov_len as u32);
            match registered.buffer(only, direct) {
                Some(buffer) => opcode::ReadFixed::new(fd, base, length, buffer).offset(offset_bytes).build(),
                None => opcode::Read::new(fd, base, length).offset(offset_bytes).build(),
            }
        }
        _ => opcode::Readv::new(fd, iovecs.as_ptr(), iovecs.len() as u32).offset(offset_bytes).build(),
    };
    entry.flags(file.flags)
}

fn write(transfer: Transfer<'_>, registered: &Registered) -> squeue::Entry {
    let Transfer { iovecs, offset_bytes, flags, direct } = transfer;
    let file = registered.file(direct);
    let fd = Fd(file.number);
    let entry = match iovecs {
        [only] => {
            let (base, length) = (only.iov_base.cast_const().cast(), only.iov_len as u32);
            match registered.buffer(only, direct) {
                Some(buffer) => {
                    let write = opcode::WriteFixed::new(fd, base, length, buffer);
                    write.offset(offset_bytes).rw_flags(flags).build()
                }
                None => opcode::Write::new(fd, base, length).offset(offset_bytes).rw_flags(flags).build(),
            }
        }
        _ => {
            let write = opcode::Writev::new(fd, iovecs.as_ptr(), iovecs.len() as u32);
            write.offset(offset_bytes).rw_flags(flags).build()
        }
    };
    entry.flags(file.flags)
}
