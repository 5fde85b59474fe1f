//! What a guest's FUSE driver is answered (linux/fuse.h).

use crate::message::{Init, init_flag};
use rustix::fs::{Stat, StatVfs};
use std::time::Duration;

/// `struct fuse_out_header`.
pub(crate) const HEADER_BYTES: usize = 16;
/// `struct fuse_entry_out` without its attributes.
const ENTRY_PREFIX_BYTES: usize = 40;
/// `struct fuse_attr`.
const ATTRIBUTES_BYTES: usize = 88;
/// `struct fuse_entry_out`.
pub(crate) const ENTRY_BYTES: usize = ENTRY_PREFIX_BYTES + ATTRIBUTES_BYTES;
/// `struct fuse_dirent` without its name.
const DIRECTORY_ENTRY_BYTES: usize = 24;

/// How long the guest may answer from what it was told of a name or a file. The host changes them too, and tells
/// nobody; without such a time, each component of each path would be a question. What a file holds is looked at anew
/// whenever it is opened.
const VALID: Duration = Duration::from_secs(1);

/// Bytes of the longest read or write: as many pages as a queue of 1024 descriptors has room for several times.
pub(crate) const TRANSFER_BYTES_MAX: u32 = 1 << 20;
const PAGE_BYTES: u32 = 4096;
/// Requests that nobody in the guest waits for, such as reading ahead.
const BACKGROUND: u16 = 64;

/// The protocol's version that this speaks.
const VERSION: [u32; 2] = [7, 38];

/// In the reply to an open: close(2) asks nothing, as there is nothing to write back.
const OPEN_NO_FLUSH: u32 = 1 << 5;

/// What is offered, in the order of the flags.
const OFFERED: u64 = init_flag::ASYNC_READ
    | init_flag::ATOMIC_O_TRUNC
    | init_flag::BIG_WRITES
    | init_flag::AUTO_INVAL_DATA
    | init_flag::DO_READDIRPLUS
    | init_flag::READDIRPLUS_AUTO
    | init_flag::ASYNC_DIO
    | init_flag::PARALLEL_DIROPS
    | init_flag::MAX_PAGES
    | init_flag::HANDLE_KILLPRIV_V2;

/// A reply's body, as it is put together. It keeps its memory for the next one.
#[derive(Debug, Default)]
pub(crate) struct Reply(Vec<u8>);

impl Reply {
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    fn u32(&mut self, number: u32) {
        self.raw(&number.to_ne_bytes());
    }

    fn u64(&mut self, number: u64) {
        self.raw(&number.to_ne_bytes());
    }

    /// `struct fuse_init_out`.
    pub(crate) fn init(&mut self, asked: &Init) {
        VERSION.into_iter().for_each(|number| self.u32(number));
        self.u32(asked.read_ahead_bytes);
        let flags = asked.flags & OFFERED;
        self.u32(flags as u32);
        self.u32(u32::from(BACKGROUND) | u32::from(BACKGROUND / 4 * 3) << 16);
        self.u32(TRANSFER_BYTES_MAX);
        // Times are exact.
        self.u32(1);
        // No alignment for mappings, of which there are none.
        self.u32(TRANSFER_BYTES_MAX / PAGE_BYTES);
        self.u32((flags >> 32) as u32);
        self.raw(&[0; 28]);
    }

    /// `struct fuse_entry_out`. The node's number is never given to another file, so there is one generation.
    pub(crate) fn entry(&mut self, node: u64, stat: &Stat) {
        self.u64(node);
        self.u64(0);
        let (seconds, nanoseconds) = (VALID.as_secs(), VALID.subsec_nanos());
        self.u64(seconds);
        self.u64(seconds);
        self.u32(nanoseconds);
        self.u32(nanoseconds);
        self.attributes(stat);
    }

    /// The place of a `struct fuse_entry_out` that says nothing.
    fn no_entry(&mut self) {
        self.raw(&[0; ENTRY_BYTES]);
    }

    /// `struct fuse_attr_out`.
    pub(crate) fn attributes_of(&mut self, stat: &Stat) {
        self.u64(VALID.as_secs());
        self.u32(VALID.subsec_nanos());
        self.u32(0);
        self.attributes(stat);
    }

    fn attributes(&mut self, stat: &Stat) {
        let times = [
            (stat.st_atime, stat.st_atime_nsec),
            (stat.st_mtime, stat.st_mtime_nsec),
            (stat.st_ctime, stat.st_ctime_nsec),
        ];
        self.u64(stat.st_ino);
        self.u64(stat.st_size as u64);
        self.u64(stat.st_blocks as u64);
        times.iter().for_each(|(seconds, _)| self.u64(*seconds as u64));
        times.iter().for_each(|(_, nanoseconds)| self.u32(*nanoseconds as u32));
        self.u32(stat.st_mode);
        self.u32(stat.st_nlink as u32);
        self.u32(stat.st_uid);
        self.u32(stat.st_gid);
        self.u32(device_number(stat.st_rdev));
        self.u32(stat.st_blksize as u32);
        self.u32(0);
    }

    /// `struct fuse_open_out`. What the guest has of the file's contents is not kept from one open to the next: so it
    /// sees what the host has written to it before.
    pub(crate) fn opened(&mut self, handle: u64) {
        self.u64(handle);
        self.u32(OPEN_NO_FLUSH);
        self.u32(0);
    }

    /// `struct fuse_write_out` or `struct fuse_getxattr_out`: how many bytes.
    pub(crate) fn count(&mut self, bytes: u32) {
        self.u32(bytes);
        self.u32(0);
    }

    /// `struct fuse_lseek_out`.
    pub(crate) fn place(&mut self, offset: u64) {
        self.u64(offset);
    }

    /// `struct fuse_statfs_out`.
    pub(crate) fn file_system(&mut self, found: &StatVfs) {
        for number in [found.f_blocks, found.f_bfree, found.f_bavail, found.f_files, found.f_ffree] {
            self.u64(number);
        }
        self.u32(found.f_bsize as u32);
        self.u32(found.f_namemax as u32);
        self.u32(found.f_frsize as u32);
        self.raw(&[0; 28]);
    }

    /// `struct fuse_dirent`, or `struct fuse_direntplus` if each has an entry: a node's number with its attributes, or
    /// nothing. False if it does not fit into `room_bytes` of the whole body: then nothing was added.
    pub(crate) fn directory_entry(&mut self, entry: &DirectoryEntry<'_>, room_bytes: usize) -> bool {
        let bytes = (DIRECTORY_ENTRY_BYTES + entry.name.len()).next_multiple_of(8);
        let bytes = bytes + if entry.has_attributes { ENTRY_BYTES } else { 0 };
        if self.0.len() + bytes > room_bytes {
            return false;
        }
        let end = self.0.len() + bytes;
        if entry.has_attributes {
            match &entry.found {
                Some((node, stat)) => self.entry(*node, stat),
                None => self.no_entry(),
            }
        }
        self.u64(entry.inode);
        self.u64(entry.next_offset);
        self.u32(entry.name.len() as u32);
        self.u32(entry.kind);
        self.raw(entry.name);
        self.0.resize(end, 0);
        true
    }
}

/// An entry of a directory.
pub(crate) struct DirectoryEntry<'a> {
    pub(crate) inode: u64,
    /// Where the next one is.
    pub(crate) next_offset: u64,
    /// As in `struct dirent`.
    pub(crate) kind: u32,
    pub(crate) name: &'a [u8],
    pub(crate) has_attributes: bool,
    pub(crate) found: Option<(u64, Stat)>,
}

/// A device's number, as the kernel's protocols have it (`new_encode_dev`).
fn device_number(device: u64) -> u32 {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    minor & 0xff | (major & 0xfff) << 8 | (minor & !0xff) << 12
}

/// `struct fuse_out_header`.
pub(crate) fn header(unique: u64, error: i32, body_bytes: usize) -> [u8; HEADER_BYTES] {
    let mut bytes = [0; HEADER_BYTES];
    bytes[..4].copy_from_slice(&((HEADER_BYTES + body_bytes) as u32).to_ne_bytes());
    bytes[4..8].copy_from_slice(&(-error).to_ne_bytes());
    bytes[8..].copy_from_slice(&unique.to_ne_bytes());
    bytes
}
