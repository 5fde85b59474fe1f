//! What a guest's FUSE driver asks, parsed once (linux/fuse.h, version 7.31 and later).
//!
//! A request is a header of [`HEADER_BYTES`] and a body. Integers are in the machine's own order, which is the guest's,
//! too. Nothing here is believed: numbers of nodes and handles may be anything, lengths are compared with what there
//! is, and a name is one component and nothing else.
//!
//! The structures are read field by field, as what the kernel's header says fits on a page and the crates that have it
//! (fuse-backend-rs, fuser) bring servers, runtimes and a virtio of their own along.

use crate::room::BLOCK_BYTES;
use rustix::io::Errno;
use std::ffi::CStr;

/// `struct fuse_in_header`.
pub(crate) const HEADER_BYTES: usize = 40;
/// `struct fuse_write_in`, after which what is to be written follows.
const WRITE_BYTES: usize = 40;
/// What stands before a write's data.
pub(crate) const WRITE_PREFIX_BYTES: usize = HEADER_BYTES + WRITE_BYTES;
/// The longest name of a file (NAME_MAX).
const NAME_BYTES_MAX: usize = 255;
/// The longest text of a symbolic link (PATH_MAX, with the zero at its end).
pub(crate) const LINK_BYTES_MAX: usize = 4096;
/// The longest value of an extended attribute (XATTR_SIZE_MAX).
pub(crate) const ATTRIBUTE_BYTES_MAX: usize = 65536;
/// The longest request but for a write's data: an attribute with its name and value.
pub(crate) const REQUEST_BYTES_MAX: usize = HEADER_BYTES + 16 + NAME_BYTES_MAX + 1 + ATTRIBUTE_BYTES_MAX;

/// The protocol's version: only the first number tells what cannot be understood.
const MAJOR: u32 = 7;
/// The first that has all that virtio-fs came with (Linux 5.4).
const MINOR_MIN: u32 = 31;

/// What either side can do, in the order of `struct fuse_init_in`'s flags and, from the 32nd on, flags2.
pub(crate) mod init_flag {
    pub(crate) const ASYNC_READ: u64 = 1 << 0;
    pub(crate) const ATOMIC_O_TRUNC: u64 = 1 << 3;
    pub(crate) const BIG_WRITES: u64 = 1 << 5;
    pub(crate) const AUTO_INVAL_DATA: u64 = 1 << 12;
    pub(crate) const DO_READDIRPLUS: u64 = 1 << 13;
    pub(crate) const READDIRPLUS_AUTO: u64 = 1 << 14;
    pub(crate) const ASYNC_DIO: u64 = 1 << 15;
    pub(crate) const PARALLEL_DIROPS: u64 = 1 << 18;
    pub(crate) const MAX_PAGES: u64 = 1 << 22;
    /// The host's kernel takes set-ID bits from what is written to, as this process has no right to keep them; so the
    /// guest need not ask for a file's attributes at every write.
    pub(crate) const HANDLE_KILLPRIV_V2: u64 = 1 << 28;
    /// There are flags2.
    pub(crate) const INIT_EXT: u64 = 1 << 30;
}

mod opcode {
    pub(super) const LOOKUP: u32 = 1;
    pub(super) const FORGET: u32 = 2;
    pub(super) const GETATTR: u32 = 3;
    pub(super) const SETATTR: u32 = 4;
    pub(super) const READLINK: u32 = 5;
    pub(super) const SYMLINK: u32 = 6;
    pub(super) const MKNOD: u32 = 8;
    pub(super) const MKDIR: u32 = 9;
    pub(super) const UNLINK: u32 = 10;
    pub(super) const RMDIR: u32 = 11;
    pub(super) const RENAME: u32 = 12;
    pub(super) const LINK: u32 = 13;
    pub(super) const OPEN: u32 = 14;
    pub(super) const READ: u32 = 15;
    pub(super) const WRITE: u32 = 16;
    pub(super) const STATFS: u32 = 17;
    pub(super) const RELEASE: u32 = 18;
    pub(super) const FSYNC: u32 = 20;
    pub(super) const SETXATTR: u32 = 21;
    pub(super) const GETXATTR: u32 = 22;
    pub(super) const LISTXATTR: u32 = 23;
    pub(super) const REMOVEXATTR: u32 = 24;
    pub(super) const FLUSH: u32 = 25;
    pub(super) const INIT: u32 = 26;
    pub(super) const OPENDIR: u32 = 27;
    pub(super) const READDIR: u32 = 28;
    pub(super) const RELEASEDIR: u32 = 29;
    pub(super) const FSYNCDIR: u32 = 30;
    pub(super) const ACCESS: u32 = 34;
    pub(super) const CREATE: u32 = 35;
    pub(super) const INTERRUPT: u32 = 36;
    pub(super) const DESTROY: u32 = 38;
    pub(super) const BATCH_FORGET: u32 = 42;
    pub(super) const FALLOCATE: u32 = 43;
    pub(super) const READDIRPLUS: u32 = 44;
    pub(super) const RENAME2: u32 = 45;
    pub(super) const LSEEK: u32 = 46;
    pub(super) const COPY_FILE_RANGE: u32 = 47;
}

/// In `fuse_write_in`: the page cache writes back, whatever the descriptor says of appending.
const WRITE_CACHE: u32 = 1 << 0;
/// In `fuse_fsync_in`: only what reading needs.
const FSYNC_FDATASYNC: u32 = 1 << 0;

mod set {
    pub(super) const MODE: u32 = 1 << 0;
    pub(super) const UID: u32 = 1 << 1;
    pub(super) const GID: u32 = 1 << 2;
    pub(super) const SIZE: u32 = 1 << 3;
    pub(super) const ATIME: u32 = 1 << 4;
    pub(super) const MTIME: u32 = 1 << 5;
    pub(super) const HANDLE: u32 = 1 << 6;
    pub(super) const ATIME_NOW: u32 = 1 << 7;
    pub(super) const MTIME_NOW: u32 = 1 << 8;
}

/// What every request begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// Bytes of the request, as it says itself.
    pub(crate) length_bytes: u32,
    opcode: u32,
    /// Names the request in its reply.
    pub(crate) unique: u64,
    /// What it is about, by a number that the guest was given, or not.
    pub(crate) node: u64,
}

impl Header {
    pub(crate) fn parse(bytes: &[u8; HEADER_BYTES]) -> Self {
        let u32_at = |at: usize| u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
        Self { length_bytes: u32_at(0), opcode: u32_at(4), unique: u64_at(8), node: u64_at(16) }
    }

    /// Whether the body is followed by data that are not to be copied.
    pub(crate) fn is_write(&self) -> bool {
        self.opcode == opcode::WRITE
    }

    /// Whether nobody waits for a reply, nor has room for one.
    pub(crate) fn is_unanswered(&self) -> bool {
        matches!(self.opcode, opcode::FORGET | opcode::BATCH_FORGET | opcode::INTERRUPT)
    }
}

/// The name of a file in its directory: one component that is neither the directory itself nor its parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Name<'a>(&'a CStr);

impl<'a> Name<'a> {
    fn new(name: &'a CStr) -> Result<Self, Errno> {
        let bytes = name.to_bytes();
        match bytes {
            [] | b"." | b".." => Err(Errno::INVAL),
            _ if bytes.contains(&b'/') => Err(Errno::INVAL),
            _ if bytes.len() > NAME_BYTES_MAX => Err(Errno::NAMETOOLONG),
            _ => Ok(Self(name)),
        }
    }

    pub(crate) fn as_c_str(self) -> &'a CStr {
        self.0
    }
}

/// What a guest says of itself at first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Init {
    pub(crate) read_ahead_bytes: u32,
    /// As in [`init_flag`].
    pub(crate) flags: u64,
}

/// A time that is to be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NewTime {
    Now,
    At { seconds: i64, nanoseconds: u32 },
}

/// What SETATTR wants changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NewAttributes {
    pub(crate) handle: Option<u64>,
    pub(crate) mode: Option<u32>,
    pub(crate) uid: Option<u32>,
    pub(crate) gid: Option<u32>,
    pub(crate) size: Option<u64>,
    pub(crate) accessed: Option<NewTime>,
    pub(crate) modified: Option<NewTime>,
}

/// A range of a file, by a number that the guest was given for an open file, or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) handle: u64,
    pub(crate) offset: u64,
    pub(crate) length: u64,
}

/// What is asked.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Request<'a> {
    Init(Init),
    Destroy,
    Lookup(Name<'a>),
    Forget(u64),
    /// Pairs of a node's number and a count, 16 bytes each.
    ForgetMany(&'a [u8]),
    GetAttributes,
    SetAttributes(NewAttributes),
    /// Whether the node may be used so, as of access(2).
    Access(u32),
    ReadLink,
    /// A link of this name with that text.
    Symlink(Name<'a>, &'a CStr),
    MakeFile(Name<'a>, u32),
    MakeDirectory(Name<'a>, u32),
    Unlink(Name<'a>),
    RemoveDirectory(Name<'a>),
    Rename {
        name: Name<'a>,
        new_directory: u64,
        new_name: Name<'a>,
        /// As of renameat2(2).
        flags: u32,
    },
    /// Another name, in the header's node, of the node of this number.
    Link(u64, Name<'a>),
    /// With flags as of open(2).
    Open(u32),
    Create {
        name: Name<'a>,
        flags: u32,
        mode: u32,
    },
    Read(Range),
    /// At the file's end rather than at the range's place, if it appends. The data follow.
    Write {
        range: Range,
        appends: bool,
    },
    Flush,
    /// Of a file or a directory.
    Release(u64),
    /// And whether it is only data that have to be stable.
    Sync(u64, bool),
    Allocate {
        range: Range,
        /// As of fallocate(2).
        mode: u32,
    },
    Seek {
        handle: u64,
        offset: u64,
        /// As of lseek(2).
        whence: u32,
    },
    CopyRange {
        from: Range,
        to_handle: u64,
        to_offset: u64,
    },
    OpenDirectory,
    /// From a place, in so many bytes.
    ReadDirectory {
        range: Range,
        /// Each entry as if it had been looked up.
        looks_up: bool,
    },
    FileSystem,
    GetAttribute {
        name: &'a CStr,
        bytes: u32,
    },
    SetAttribute {
        name: &'a CStr,
        value: &'a [u8],
        /// As of setxattr(2).
        flags: u32,
    },
    ListAttributes {
        bytes: u32,
    },
    RemoveAttribute(&'a CStr),
    /// Nothing here takes so long that it could be interrupted.
    Interrupt,
}

impl Request<'_> {
    /// Whether it would change something in the directory.
    pub(crate) fn changes(&self) -> bool {
        use Request::*;
        match self {
            SetAttributes(_) | Symlink(..) | MakeFile(..) | MakeDirectory(..) | Unlink(_) | RemoveDirectory(_) => true,
            Rename { .. } | Link(..) | Create { .. } | Write { .. } | Allocate { .. } | CopyRange { .. } => true,
            SetAttribute { .. } | RemoveAttribute(_) => true,
            Open(flags) => flags & (libc_flags::ACCESS_MODE | libc_flags::TRUNCATE) != 0,
            _ => false,
        }
    }

    /// The blocks of the host's storage that a name that it makes, with the file that this may be the first of, or an
    /// attribute takes. What goes into files is [`crate::room::Room`]'s to count.
    pub(crate) fn blocks_of_names(&self) -> u64 {
        use Request::*;
        match self {
            Symlink(..) | MakeFile(..) | MakeDirectory(..) | Link(..) | Create { .. } => 1,
            SetAttribute { value, .. } => 1 + (value.len() as u64).div_ceil(BLOCK_BYTES),
            _ => 0,
        }
    }
}

mod libc_flags {
    use rustix::fs::OFlags;

    pub(super) const ACCESS_MODE: u32 = OFlags::RWMODE.bits();
    pub(super) const TRUNCATE: u32 = OFlags::TRUNC.bits();
    pub(super) const APPEND: u32 = OFlags::APPEND.bits();
}

/// A body, read from its front.
struct Body<'a>(&'a [u8]);

impl<'a> Body<'a> {
    fn array<const N: usize>(&self, at: usize) -> Result<[u8; N], Errno> {
        Ok(*self.0.get(at..).and_then(|rest| rest.first_chunk()).ok_or(Errno::INVAL)?)
    }

    fn u32(&self, at: usize) -> Result<u32, Errno> {
        self.array(at).map(u32::from_ne_bytes)
    }

    fn u64(&self, at: usize) -> Result<u64, Errno> {
        self.array(at).map(u64::from_ne_bytes)
    }

    /// The text that ends with a zero, from `at` on, and what is behind it.
    fn text(&self, at: usize) -> Result<(&'a CStr, &'a [u8]), Errno> {
        let rest = self.0.get(at..).ok_or(Errno::INVAL)?;
        let text = CStr::from_bytes_until_nul(rest).map_err(|_| Errno::INVAL)?;
        Ok((text, &rest[text.count_bytes() + 1..]))
    }

    /// The text from `at` on, which is all there is.
    fn last_text(&self, at: usize) -> Result<&'a CStr, Errno> {
        match self.text(at)? {
            (text, []) => Ok(text),
            _ => Err(Errno::INVAL),
        }
    }

    fn last_name(&self, at: usize) -> Result<Name<'a>, Errno> {
        Name::new(self.last_text(at)?)
    }

    /// Two texts from `at` on, which is all there is.
    fn two_texts(&self, at: usize) -> Result<(&'a CStr, &'a CStr), Errno> {
        let (first, rest) = self.text(at)?;
        Ok((first, Body(rest).last_text(0)?))
    }

    fn rename(&self, flags: u32, names_at: usize) -> Result<Request<'a>, Errno> {
        let (name, new_name) = self.two_texts(names_at)?;
        let (name, new_name) = (Name::new(name)?, Name::new(new_name)?);
        Ok(Request::Rename { name, new_directory: self.u64(0)?, new_name, flags })
    }

    /// Handle, offset and, where it has 32 bits, length: of reads, writes and directories.
    fn range(&self) -> Result<Range, Errno> {
        Ok(Range { handle: self.u64(0)?, offset: self.u64(8)?, length: self.u32(16)?.into() })
    }

    fn init(&self) -> Result<Request<'a>, Errno> {
        let low = u64::from(self.u32(12)?);
        let high = if low & init_flag::INIT_EXT != 0 { self.u32(16)?.into() } else { 0 };
        // Who knows a later protocol asks again in ours; and no kernel that has virtio-fs has an earlier one.
        if self.u32(0)? != MAJOR || self.u32(4)? < MINOR_MIN {
            return Err(Errno::PROTO);
        }
        Ok(Request::Init(Init { read_ahead_bytes: self.u32(8)?, flags: low | high << 32 }))
    }

    fn new_attributes(&self) -> Result<NewAttributes, Errno> {
        let valid = self.u32(0)?;
        let time = |field: u32, now: u32, seconds: usize, nanoseconds: usize| {
            Ok::<_, Errno>(match (valid & field != 0, valid & now != 0) {
                (false, _) => None,
                (true, true) => Some(NewTime::Now),
                (true, false) => {
                    let nanoseconds = self.u32(nanoseconds)?;
                    let seconds = self.u64(seconds)?.cast_signed();
                    Some(NewTime::At { seconds, nanoseconds: nanoseconds.min(999_999_999) })
                }
            })
        };
        let number = |field: u32, at: usize| if valid & field != 0 { self.u32(at).map(Some) } else { Ok(None) };
        let long = |field: u32, at: usize| if valid & field != 0 { self.u64(at).map(Some) } else { Ok(None) };
        Ok(NewAttributes {
            handle: long(set::HANDLE, 8)?,
            mode: number(set::MODE, 68)?,
            uid: number(set::UID, 76)?,
            gid: number(set::GID, 80)?,
            size: long(set::SIZE, 16)?,
            accessed: time(set::ATIME, set::ATIME_NOW, 32, 56)?,
            modified: time(set::MTIME, set::MTIME_NOW, 40, 60)?,
        })
    }

    fn write(&self) -> Result<Request<'a>, Errno> {
        let (how, flags) = (self.u32(20)?, self.u32(32)?);
        let appends = flags & libc_flags::APPEND != 0 && how & WRITE_CACHE == 0;
        Ok(Request::Write { range: self.range()?, appends })
    }

    fn set_attribute(&self) -> Result<Request<'a>, Errno> {
        let (bytes, flags) = (self.u32(0)?, self.u32(4)?);
        let (name, value) = self.text(8)?;
        if value.len() != bytes as usize {
            return Err(Errno::INVAL);
        }
        Ok(Request::SetAttribute { name, value, flags })
    }

    fn copy_range(&self) -> Result<Request<'a>, Errno> {
        let from = Range { handle: self.u64(0)?, offset: self.u64(8)?, length: self.u64(40)? };
        match self.u64(48)? {
            0 => Ok(Request::CopyRange { from, to_handle: self.u64(24)?, to_offset: self.u64(32)? }),
            _ => Err(Errno::INVAL),
        }
    }
}

impl<'a> Request<'a> {
    /// The request that has this header and this body, of a write without its data.
    ///
    /// # Errors
    /// With what the guest is to hear: [`Errno::NOSYS`] for what is not known, which it takes for good.
    pub(crate) fn parse(header: &Header, body: &'a [u8]) -> Result<Self, Errno> {
        let body = Body(body);
        Ok(match header.opcode {
            opcode::INIT => return body.init(),
            opcode::DESTROY => Self::Destroy,
            opcode::LOOKUP => Self::Lookup(body.last_name(0)?),
            opcode::FORGET => Self::Forget(body.u64(0)?),
            opcode::BATCH_FORGET => {
                let bytes = (body.u32(0)? as usize).checked_mul(16).and_then(|bytes| bytes.checked_add(8));
                Self::ForgetMany(bytes.and_then(|end| body.0.get(8..end)).ok_or(Errno::INVAL)?)
            }
            opcode::GETATTR => Self::GetAttributes,
            opcode::SETATTR => Self::SetAttributes(body.new_attributes()?),
            opcode::ACCESS => Self::Access(body.u32(0)?),
            opcode::READLINK => Self::ReadLink,
            opcode::SYMLINK => {
                let (name, text) = body.two_texts(0)?;
                Self::Symlink(Name::new(name)?, text)
            }
            opcode::MKNOD => Self::MakeFile(body.last_name(16)?, body.u32(0)?),
            opcode::MKDIR => Self::MakeDirectory(body.last_name(8)?, body.u32(0)?),
            opcode::UNLINK => Self::Unlink(body.last_name(0)?),
            opcode::RMDIR => Self::RemoveDirectory(body.last_name(0)?),
            opcode::RENAME => return body.rename(0, 8),
            opcode::RENAME2 => return body.rename(body.u32(8)?, 16),
            opcode::LINK => Self::Link(body.u64(0)?, body.last_name(8)?),
            opcode::OPEN => Self::Open(body.u32(0)?),
            opcode::CREATE => Self::Create { name: body.last_name(16)?, flags: body.u32(0)?, mode: body.u32(4)? },
            opcode::READ => Self::Read(body.range()?),
            opcode::WRITE => return body.write(),
            opcode::FLUSH => Self::Flush,
            opcode::RELEASE | opcode::RELEASEDIR => Self::Release(body.u64(0)?),
            opcode::FSYNC | opcode::FSYNCDIR => Self::Sync(body.u64(0)?, body.u32(8)? & FSYNC_FDATASYNC != 0),
            opcode::FALLOCATE => {
                let range = Range { handle: body.u64(0)?, offset: body.u64(8)?, length: body.u64(16)? };
                Self::Allocate { range, mode: body.u32(24)? }
            }
            opcode::LSEEK => Self::Seek { handle: body.u64(0)?, offset: body.u64(8)?, whence: body.u32(16)? },
            opcode::COPY_FILE_RANGE => return body.copy_range(),
            opcode::OPENDIR => Self::OpenDirectory,
            opcode::READDIR => Self::ReadDirectory { range: body.range()?, looks_up: false },
            opcode::READDIRPLUS => Self::ReadDirectory { range: body.range()?, looks_up: true },
            opcode::STATFS => Self::FileSystem,
            opcode::GETXATTR => Self::GetAttribute { bytes: body.u32(0)?, name: body.last_text(8)? },
            opcode::SETXATTR => return body.set_attribute(),
            opcode::LISTXATTR => Self::ListAttributes { bytes: body.u32(0)? },
            opcode::REMOVEXATTR => Self::RemoveAttribute(body.last_text(0)?),
            opcode::INTERRUPT => Self::Interrupt,
            _ => return Err(Errno::NOSYS),
        })
    }
}
