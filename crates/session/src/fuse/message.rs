//! The messages of the kernel's FUSE protocol (linux/fuse.h, 7.x) that one regular file needs.
//!
//! All integers are in the machine's own byte order. A message starts with a header of [`HEADER_BYTES`] and its body; a
//! reply with one of [`REPLY_HEADER_BYTES`].

use std::time::{Duration, SystemTime};

/// `struct fuse_in_header`.
const HEADER_BYTES: usize = 40;
/// `struct fuse_write_in`, after which a write's payload follows.
const WRITE_BYTES: usize = 40;
/// What stands before a write's payload.
pub(super) const WRITE_PREFIX_BYTES: usize = HEADER_BYTES + WRITE_BYTES;
/// The longest part of a message that [`Message::parse`] looks at: a header and `struct fuse_setattr_in`.
pub(super) const PARSED_BYTES_MAX: usize = HEADER_BYTES + 88;
/// `struct fuse_out_header`.
pub(super) const REPLY_HEADER_BYTES: usize = 16;

const FORGET: u32 = 2;
const GETATTR: u32 = 3;
const SETATTR: u32 = 4;
const OPEN: u32 = 14;
const READ: u32 = 15;
const WRITE: u32 = 16;
const STATFS: u32 = 17;
const RELEASE: u32 = 18;
const FSYNC: u32 = 20;
const INIT: u32 = 26;
const DESTROY: u32 = 38;
const BATCH_FORGET: u32 = 42;
const FALLOCATE: u32 = 43;
const LSEEK: u32 = 46;

/// The version whose messages these are: 7, and the last that brought one of them.
const MAJOR: u32 = 7;
const MINOR: u32 = 39;
/// The first in which the kernel takes the reply to its first message as it is here (Linux 3.15).
const MINOR_MIN: u32 = 23;

/// What either side can do, in the order of `struct fuse_init_in`'s flags and, from the 32nd on, flags2.
pub(super) mod init_flag {
    pub(crate) const ASYNC_READ: u64 = 1 << 0;
    pub(crate) const ATOMIC_O_TRUNC: u64 = 1 << 3;
    pub(crate) const BIG_WRITES: u64 = 1 << 5;
    pub(crate) const ASYNC_DIO: u64 = 1 << 15;
    pub(crate) const MAX_PAGES: u64 = 1 << 22;
    /// There are flags2.
    pub(crate) const INIT_EXT: u64 = 1 << 30;
    pub(crate) const DIRECT_IO_ALLOW_MMAP: u64 = 1 << 36;
}

const FATTR_MODE: u32 = 1 << 0;
const FATTR_UID: u32 = 1 << 1;
const FATTR_GID: u32 = 1 << 2;
const FATTR_SIZE: u32 = 1 << 3;
const FATTR_MTIME: u32 = 1 << 5;
const FATTR_MTIME_NOW: u32 = 1 << 8;

const FOPEN_DIRECT_IO: u32 = 1 << 0;
/// close(2) asks nothing of us: there is nothing to write back, and a process that splits off while we stop would wait
/// for an answer.
const FOPEN_NOFLUSH: u32 = 1 << 5;
const FOPEN_PARALLEL_DIRECT_WRITES: u32 = 1 << 6;

/// How long the kernel may answer `stat` from what it was told: a disk that grows is noticed that much later.
const ATTRIBUTES_VALID: Duration = Duration::from_secs(1);

/// The kernel's first message: what it can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Init {
    /// Names the request in its reply.
    pub(super) unique: u64,
    /// How far the kernel would read ahead, in bytes.
    read_ahead_bytes: u32,
    /// As in [`init_flag`].
    flags: u64,
}

impl Init {
    /// The message in `bytes`; `None` when it is another, or of a kernel too old or too new.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let (header, body) = bytes.split_at_checked(HEADER_BYTES)?;
        let (header, body) = (Fields(header), Fields(body));
        let minor = (header.u32_at(4)? == INIT && body.u32_at(0)? == MAJOR).then(|| body.u32_at(4))??;
        let low = u64::from(body.u32_at(12)?);
        let high = if low & init_flag::INIT_EXT != 0 { u64::from(body.u32_at(16)?) } else { 0 };
        let init = Self { unique: header.u64_at(8)?, read_ahead_bytes: body.u32_at(8)?, flags: low | high << 32 };
        (minor >= MINOR_MIN).then_some(init)
    }
}

/// What the kernel is asked to keep to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Requests that nobody waits for.
    pub(super) background: u16,
    /// The longest write, in bytes.
    pub(super) write_bytes: u32,
}

/// A message from the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Message {
    /// Names the request in its reply.
    pub(super) unique: u64,
    /// What is asked.
    pub(super) body: Body,
}

/// What the kernel asks. Offsets and lengths are in bytes, as some program gave them: any number may come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Body {
    GetAttributes,
    SetAttributes(NewAttributes),
    Open {
        /// As of open(2).
        flags: i32,
    },
    Release,
    Read {
        offset: u64,
        length: u32,
    },
    Write {
        direct: bool,
        offset: u64,
        length: u32,
        /// As of open(2).
        flags: i32,
    },
    Sync,
    Allocate {
        offset: u64,
        length: u64,
        /// As of fallocate(2).
        mode: i32,
    },
    Seek {
        offset: u64,
        /// As of lseek(2).
        whence: i32,
    },
    FileSystem,
    /// One that has no reply.
    Unanswered,
    /// One that one regular file has no use for. The kernel takes ENOSYS for good and does not ask again.
    Other,
}

/// What `setattr` wants changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NewAttributes {
    pub(super) mode: Option<u32>,
    pub(super) uid: Option<u32>,
    pub(super) gid: Option<u32>,
    pub(super) size: Option<u64>,
    /// Seconds and nanoseconds.
    pub(super) modified: Option<NewTime>,
}

/// A time that somebody sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NewTime {
    Now,
    At { seconds: i64, nanoseconds: u32 },
}

/// The bytes of a message, read from the front; missing ones read as `None`.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn u32_at(&self, offset: usize) -> Option<u32> {
        Some(u32::from_ne_bytes(*self.0.get(offset..)?.first_chunk()?))
    }

    fn u64_at(&self, offset: usize) -> Option<u64> {
        Some(u64::from_ne_bytes(*self.0.get(offset..)?.first_chunk()?))
    }
}

impl Message {
    /// The message in `bytes`; `None` when it is shorter than its kind is.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let (header, body) = bytes.split_at_checked(HEADER_BYTES)?;
        let header = Fields(header);
        let body = parse_body(header.u32_at(4)?, &Fields(body))?;
        Some(Self { unique: header.u64_at(8)?, body })
    }

    /// Who asked, of a message too short to parse.
    pub(super) fn unique_of(bytes: &[u8]) -> Option<u64> {
        Fields(bytes).u64_at(8)
    }
}

fn parse_body(opcode: u32, body: &Fields<'_>) -> Option<Body> {
    Some(match opcode {
        GETATTR => Body::GetAttributes,
        SETATTR => Body::SetAttributes(parse_new_attributes(body)?),
        OPEN => Body::Open { flags: body.u32_at(0)? as i32 },
        READ => Body::Read { offset: body.u64_at(8)?, length: body.u32_at(16)? },
        WRITE => Body::Write {
            direct: body.u64_at(0)? == HANDLE_DIRECT,
            offset: body.u64_at(8)?,
            length: body.u32_at(16)?,
            flags: body.u32_at(32)? as i32,
        },
        FSYNC => Body::Sync,
        FALLOCATE => {
            Body::Allocate { offset: body.u64_at(8)?, length: body.u64_at(16)?, mode: body.u32_at(24)? as i32 }
        }
        LSEEK => Body::Seek { offset: body.u64_at(8)?, whence: body.u32_at(16)? as i32 },
        STATFS => Body::FileSystem,
        RELEASE | DESTROY => Body::Release,
        FORGET | BATCH_FORGET => Body::Unanswered,
        _ => Body::Other,
    })
}

/// `struct fuse_setattr_in`.
fn parse_new_attributes(body: &Fields<'_>) -> Option<NewAttributes> {
    let valid = body.u32_at(0)?;
    let has = |flag| valid & flag != 0;
    let (size, mode, uid, gid) = (body.u64_at(16)?, body.u32_at(68)?, body.u32_at(76)?, body.u32_at(80)?);
    let (seconds, nanoseconds) = (body.u64_at(40)? as i64, body.u32_at(60)?);
    let modified = match (has(FATTR_MTIME), has(FATTR_MTIME_NOW)) {
        (_, true) => Some(NewTime::Now),
        (true, false) => Some(NewTime::At { seconds, nanoseconds }),
        (false, false) => None,
    };
    Some(NewAttributes {
        mode: has(FATTR_MODE).then_some(mode),
        uid: has(FATTR_UID).then_some(uid),
        gid: has(FATTR_GID).then_some(gid),
        size: has(FATTR_SIZE).then_some(size),
        modified,
    })
}

/// The file handle of an opener who asked for `O_DIRECT`; everybody else's is zero.
const HANDLE_DIRECT: u64 = 1;

/// `struct fuse_out_header` of a reply with `body_bytes` more bytes.
pub(super) fn reply_header(unique: u64, errno: i32, body_bytes: usize) -> [u8; REPLY_HEADER_BYTES] {
    let mut header = [0; REPLY_HEADER_BYTES];
    // Bodies are at most the longest transfer.
    header[0..4].copy_from_slice(&((REPLY_HEADER_BYTES + body_bytes) as u32).to_ne_bytes());
    header[4..8].copy_from_slice(&(-errno).to_ne_bytes());
    header[8..16].copy_from_slice(&unique.to_ne_bytes());
    header
}

/// A short reply: a header, then fields one after the other.
pub(super) struct Reply {
    bytes: [u8; Self::BYTES_MAX],
    length: usize,
}

impl Reply {
    /// The longest: `struct fuse_attr_out`.
    const BYTES_MAX: usize = REPLY_HEADER_BYTES + 104;

    fn new() -> Self {
        Self { bytes: [0; Self::BYTES_MAX], length: REPLY_HEADER_BYTES }
    }

    fn u32(mut self, value: u32) -> Self {
        self.bytes[self.length..self.length + 4].copy_from_slice(&value.to_ne_bytes());
        self.length += 4;
        self
    }

    fn u16(mut self, value: u16) -> Self {
        self.bytes[self.length..self.length + 2].copy_from_slice(&value.to_ne_bytes());
        self.length += 2;
        self
    }

    fn u64(mut self, value: u64) -> Self {
        self.bytes[self.length..self.length + 8].copy_from_slice(&value.to_ne_bytes());
        self.length += 8;
        self
    }

    /// Nothing but success.
    pub(super) fn done() -> Self {
        Self::new()
    }

    /// `struct fuse_init_out`: what of `wanted` the kernel has, and times to the nanosecond.
    pub(super) fn agreed(init: &Init, wanted: u64, limits: &Limits) -> Self {
        const PAGE_BYTES: u32 = 4096;
        let flags = (wanted | init_flag::INIT_EXT) & init.flags;
        let pages = limits.write_bytes.max(init.read_ahead_bytes).div_ceil(PAGE_BYTES);
        let offered = Self::new().u32(MAJOR).u32(MINOR).u32(init.read_ahead_bytes).u32(flags as u32);
        let limited = offered.u16(limits.background).u16(limits.background).u32(limits.write_bytes);
        let sizes = limited.u32(1).u16(u16::try_from(pages).unwrap_or(u16::MAX)).u16(0).u32((flags >> 32) as u32);
        (0..7).fold(sizes, |reply, _| reply.u32(0))
    }

    /// `struct fuse_open_out`.
    pub(super) fn opened(direct: bool) -> Self {
        let (handle, how) =
            if direct { (HANDLE_DIRECT, FOPEN_DIRECT_IO | FOPEN_PARALLEL_DIRECT_WRITES) } else { (0, 0) };
        Self::new().u64(handle).u32(FOPEN_NOFLUSH | how).u32(0)
    }

    /// `struct fuse_write_out`.
    pub(super) fn written(length: u32) -> Self {
        Self::new().u32(length).u32(0)
    }

    /// `struct fuse_lseek_out`.
    pub(super) fn position(offset: u64) -> Self {
        Self::new().u64(offset)
    }

    /// `struct fuse_statfs_out`: as many blocks as the disk has, none of them free.
    pub(super) fn file_system(capacity_bytes: u64, block_bytes: u32) -> Self {
        let blocks = capacity_bytes / u64::from(block_bytes);
        let counts = Self::new().u64(blocks).u64(0).u64(0).u64(1).u64(0);
        let sizes = counts.u32(block_bytes).u32(255).u32(block_bytes).u32(0);
        (0..6).fold(sizes, |reply, _| reply.u32(0))
    }

    /// `struct fuse_attr_out`.
    pub(super) fn attributes(attributes: &Attributes) -> Self {
        let since_epoch = attributes.modified.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let valid = Self::new().u64(ATTRIBUTES_VALID.as_secs()).u32(ATTRIBUTES_VALID.subsec_nanos()).u32(0);
        let sizes = valid.u64(ROOT_INODE).u64(attributes.size_bytes).u64(attributes.allocated_bytes / 512);
        let seconds = (0..3).fold(sizes, |reply, _| reply.u64(since_epoch.as_secs()));
        let times = (0..3).fold(seconds, |reply, _| reply.u32(since_epoch.subsec_nanos()));
        let owner = times.u32(attributes.mode).u32(1).u32(attributes.uid).u32(attributes.gid);
        owner.u32(0).u32(attributes.block_bytes).u32(0)
    }

    /// The reply's bytes, addressed to `unique`.
    pub(super) fn bytes(&mut self, unique: u64) -> &[u8] {
        let header = reply_header(unique, 0, self.length - REPLY_HEADER_BYTES);
        self.bytes[..REPLY_HEADER_BYTES].copy_from_slice(&header);
        &self.bytes[..self.length]
    }
}

/// FUSE_ROOT_ID: the only inode there is.
const ROOT_INODE: u64 = 1;

/// What `stat` shows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attributes {
    pub(super) size_bytes: u64,
    pub(super) allocated_bytes: u64,
    pub(super) modified: SystemTime,
    /// Type and permissions, as of stat(2).
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    /// The length that suits the disk best.
    pub(super) block_bytes: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(opcode: u32) -> Vec<u8> {
        let mut bytes = vec![0; HEADER_BYTES];
        bytes[4..8].copy_from_slice(&opcode.to_ne_bytes());
        bytes[8..16].copy_from_slice(&77_u64.to_ne_bytes());
        bytes
    }

    #[test]
    fn a_write_is_read_field_by_field() {
        let mut bytes = header(WRITE);
        for field in [HANDLE_DIRECT, 4096] {
            bytes.extend(field.to_ne_bytes());
        }
        for field in [512_u32, 0, 0, 0, libc::O_DSYNC as u32, 0] {
            bytes.extend(field.to_ne_bytes());
        }
        assert_eq!(bytes.len(), WRITE_PREFIX_BYTES);
        let body = Body::Write { direct: true, offset: 4096, length: 512, flags: libc::O_DSYNC };
        assert_eq!(Message::parse(&bytes), Some(Message { unique: 77, body }));
    }

    #[test]
    fn what_is_agreed_on_is_what_both_have() {
        let first = |major: u32, minor: u32, flags: u32, more: u32| {
            let mut bytes = header(INIT);
            for field in [major, minor, 131_072, flags, more] {
                bytes.extend(field.to_ne_bytes());
            }
            bytes.resize(HEADER_BYTES + 64, 0);
            bytes
        };
        let extended = 1 | 1 << 30;
        let init = Init::parse(&first(7, 40, extended, 1 << 4 | 1 << 5)).unwrap();
        assert_eq!(init.unique, 77);
        let limits = Limits { background: 512, write_bytes: 1 << 20 };
        let mut reply = Reply::agreed(&init, init_flag::ASYNC_READ | init_flag::MAX_PAGES | 1 << 36, &limits);
        let word = |bytes: &[u8], at| Fields(&bytes[REPLY_HEADER_BYTES..]).u32_at(at).unwrap();
        let bytes = reply.bytes(77);
        assert_eq!((word(bytes, 8), word(bytes, 12), word(bytes, 32)), (131_072, extended, 1 << 4));
        // Two numbers of 16 bits: background and congestion; pages of the longest transfer.
        assert_eq!((word(bytes, 16), word(bytes, 20), word(bytes, 28)), (512 << 16 | 512, 1 << 20, 256));
        // Without INIT_EXT the second word means nothing.
        assert_eq!(Init::parse(&first(7, 31, 1, u32::MAX)).unwrap().flags, 1);
        for refused in [first(7, 22, 1, 0), first(8, 0, 1, 0), first(6, 40, 1, 0), header(READ)] {
            assert_eq!(Init::parse(&refused), None);
        }
        let whole = first(7, 40, extended, 0);
        for length in 0..HEADER_BYTES + 20 {
            assert_eq!(Init::parse(&whole[..length]), None);
        }
    }

    #[test]
    fn what_is_cut_short_is_refused_and_nothing_panics() {
        for opcode in 0..64 {
            let mut bytes = header(opcode);
            bytes.resize(PARSED_BYTES_MAX, 0xff);
            assert!(Message::parse(&bytes).is_some(), "{opcode}");
            for length in 0..HEADER_BYTES {
                assert_eq!(Message::parse(&bytes[..length]), None);
            }
            for length in HEADER_BYTES..PARSED_BYTES_MAX {
                let _ = Message::parse(&bytes[..length]);
            }
        }
        assert_eq!(Message::parse(&header(READ)), None);
    }

    #[test]
    fn replies_have_the_lengths_of_the_protocol() {
        let attributes = Attributes {
            size_bytes: 1024,
            allocated_bytes: 512,
            modified: SystemTime::UNIX_EPOCH,
            mode: 0o100600,
            uid: 1,
            gid: 2,
            block_bytes: 4096,
        };
        let init = Init { unique: 9, read_ahead_bytes: 131_072, flags: u64::MAX };
        let replies = [
            (Reply::done(), 0),
            (Reply::agreed(&init, u64::MAX, &Limits { background: 1, write_bytes: 4096 }), 64),
            (Reply::opened(true), 16),
            (Reply::written(1), 8),
            (Reply::position(1), 8),
            (Reply::file_system(1 << 20, 512), 80),
            (Reply::attributes(&attributes), 104),
        ];
        for (mut reply, body_bytes) in replies {
            let bytes = reply.bytes(9);
            assert_eq!(bytes.len(), REPLY_HEADER_BYTES + body_bytes);
            assert_eq!(bytes[0..4], (bytes.len() as u32).to_ne_bytes());
            assert_eq!(bytes[8..16], 9_u64.to_ne_bytes());
        }
    }
}
