//! What a disk looks like to stat(2): a block device of no machine's, or a file; and to statfs(2) what it lies in: a
//! file system in memory, as devices' names do, that has nothing else and no room for more.

use crate::connection::Connection;
use crate::setup::disks_look_like_files;
use libc::{mode_t, stat, statfs, statvfs, statx};
use std::mem::zeroed;

/// Bytes that are best read at once.
const BLOCK_BYTES: u32 = 4096;
/// What st_blocks counts.
const SECTOR_BYTES: u64 = 512;
/// Of a file's name.
const NAME_BYTES_MAX: u64 = 255;

fn mode() -> mode_t {
    if disks_look_like_files() { libc::S_IFREG | 0o600 } else { libc::S_IFBLK | 0o600 }
}

/// A number that no other file has that the program sees: devices without a major number are file systems' own.
pub(crate) fn inode(number: usize) -> u64 {
    number as u64 + 1
}

fn size(connection: &Connection) -> u64 {
    if disks_look_like_files() { connection.geometry.capacity_bytes } else { 0 }
}

pub(crate) fn of(connection: &Connection, number: usize) -> stat {
    // SAFETY: all of it is numbers.
    let mut found: stat = unsafe { zeroed() };
    found.st_ino = inode(number);
    found.st_nlink = 1;
    found.st_mode = mode();
    // SAFETY: they cannot fail.
    (found.st_uid, found.st_gid) = unsafe { (libc::geteuid(), libc::getegid()) };
    found.st_rdev = if disks_look_like_files() { 0 } else { inode(number) };
    found.st_size = size(connection) as i64;
    found.st_blksize = BLOCK_BYTES.into();
    found.st_blocks = (size(connection) / SECTOR_BYTES) as i64;
    found
}

pub(crate) fn extended(connection: &Connection, number: usize) -> statx {
    let plain = of(connection, number);
    // SAFETY: all of it is numbers.
    let mut found: statx = unsafe { zeroed() };
    found.stx_mask = libc::STATX_BASIC_STATS;
    found.stx_blksize = BLOCK_BYTES;
    found.stx_nlink = 1;
    (found.stx_uid, found.stx_gid) = (plain.st_uid, plain.st_gid);
    found.stx_mode = plain.st_mode as u16;
    found.stx_ino = plain.st_ino;
    found.stx_size = plain.st_size as u64;
    found.stx_blocks = plain.st_blocks as u64;
    found.stx_rdev_minor = plain.st_rdev as u32;
    found
}

pub(crate) fn file_system(connection: &Connection) -> statfs {
    let plain = posix_file_system(connection);
    // SAFETY: all of it is numbers.
    let mut found: statfs = unsafe { zeroed() };
    found.f_type = libc::TMPFS_MAGIC;
    (found.f_bsize, found.f_frsize) = (BLOCK_BYTES.into(), BLOCK_BYTES.into());
    (found.f_blocks, found.f_files) = (plain.f_blocks, plain.f_files);
    found.f_namelen = NAME_BYTES_MAX as i64;
    found
}

pub(crate) fn posix_file_system(connection: &Connection) -> statvfs {
    // SAFETY: all of it is numbers.
    let mut found: statvfs = unsafe { zeroed() };
    (found.f_bsize, found.f_frsize) = (BLOCK_BYTES.into(), BLOCK_BYTES.into());
    found.f_blocks = connection.geometry.capacity_bytes.div_ceil(BLOCK_BYTES.into());
    found.f_files = 1;
    found.f_namemax = NAME_BYTES_MAX;
    found.f_flag = if connection.geometry.read_only { libc::ST_RDONLY } else { 0 };
    found
}
