//! Reading archives that nobody vouches for: ustar, pax and GNU tar's format, each with its way to keep sparse files.
//!
//! Formats: POSIX.1-2024, pax, "ustar Interchange Format" and "pax Header Block"; GNU tar's manual, "Basic Tar Format"
//! and "Storing Sparse Files".

use crate::access_control_list::AccessControlList;
use crate::extended_header::ExtendedHeader;
use crate::fields::{BLOCK_BYTES, cut_short, fill, no_number, number};
use crate::sparse_map::{self, Ranges};
use crate::time::Time;
use std::ffi::OsString;
use std::io::{self, Read};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use tar::Header;

/// What may come before a file's own header: names and attributes, which are kept in memory.
const DESCRIPTION_BYTES_MAX: u64 = 16 << 20;
/// The same of what holds for all files that follow, each of which gets a copy.
const GLOBAL_BYTES_MAX: u64 = 64 << 10;

/// A file of an archive, without its data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// As the archive has it: it may lead anywhere.
    pub name: PathBuf,
    /// What it is.
    pub kind: MemberKind,
    /// Permissions, set-ID bits and sticky.
    pub mode: u32,
    /// Owner.
    pub user: u32,
    /// Group.
    pub group: u32,
    /// When it was modified.
    pub modified: Time,
    /// Bytes that the file has, holes included.
    pub size: u64,
    /// It has holes: where it has data is in the archive.
    pub is_sparse: bool,
    /// Extended attributes but for access control lists: names and values.
    pub attributes: Vec<(OsString, Vec<u8>)>,
    /// Its access control list.
    pub access: Option<AccessControlList>,
    /// The list that new files in it get.
    pub default: Option<AccessControlList>,
}

impl Member {
    /// Its permissions where it cannot have its list: nobody gets more than that gives him.
    pub fn mode_without_list(&self) -> u32 {
        self.access.as_ref().map_or(self.mode, |list| list.mode_without(self.mode))
    }
}

/// What a file of an archive is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberKind {
    /// A regular file, or something that we do not know: that is one, too (POSIX.1-2024, "ustar Interchange Format",
    /// typeflag).
    File,
    /// A directory.
    Directory,
    /// A symbolic link to this.
    Symlink(OsString),
    /// Another name of the file of this name in the archive.
    HardLink(PathBuf),
    /// A character device: major and minor number.
    CharacterDevice(u32, u32),
    /// A block device: major and minor number.
    BlockDevice(u32, u32),
    /// A fifo.
    Fifo,
    /// A socket, which star has a word for and others have not (star(5), "SCHILY.filetype").
    Socket,
    /// The rest of a file that another archive begins with (GNU tar, "Multi-Volume Archives").
    Continuation,
    /// It is said of it what cannot be: why. The archive goes on behind it.
    Damaged(&'static str),
}

/// An archive that is read from its beginning to its end.
pub struct ArchiveReader<R> {
    input: R,
    is_at_start: bool,
    /// How long the member that was read last is nobody knows: the next header is the next block that is one.
    is_lost: bool,
    /// What holds for all files that follow, unless their own headers say otherwise, and how long that was.
    global: ExtendedHeader,
    global_bytes: u64,
    /// Bytes that the archive has of the member that was read last and that were not read, and what fills its last
    /// block.
    left: u64,
    padding: u64,
    /// Where they belong: what comes next, and what comes after it.
    range: (u64, u64),
    ranges: std::vec::IntoIter<(u64, u64)>,
}

/// What headers of their own say about the file that follows them.
#[derive(Default)]
struct Description {
    name: Option<Vec<u8>>,
    target: Option<Vec<u8>>,
    /// With what holds for all files.
    extended: Option<ExtendedHeader>,
    /// That they had together.
    bytes: u64,
    is_there: bool,
}

impl<R: Read> ArchiveReader<R> {
    /// Reads the archive that `input` is, and nothing behind its end.
    pub fn new(input: R) -> Self {
        let ranges = Ranges::new().into_iter();
        let global = ExtendedHeader::default();
        Self {
            input,
            is_at_start: true,
            is_lost: false,
            global,
            global_bytes: 0,
            left: 0,
            padding: 0,
            range: (0, 0),
            ranges,
        }
    }

    /// The next file, whatever was read of the one before; `None` at the archive's end.
    ///
    /// # Errors
    /// When the input is no archive, ends too early, or cannot be read.
    pub fn next_member(&mut self) -> io::Result<Option<Member>> {
        self.skip()?;
        let mut description = Description::default();
        loop {
            let Some(header) = self.header()? else {
                return if description.is_there { Err(cut_short()) } else { Ok(None) };
            };
            match header.as_bytes()[TYPE] {
                // Behind something that nobody can read, what it says of the next file is lost.
                b'L' | b'K' | b'X' | b'x' | b'g' | b'V' | b'N' if size(&header).is_err() => {
                    return self.member(&header, Description::default()).map(Some);
                }
                b'L' => description.name = Some(until_nul(self.description(&header, &mut description.bytes)?)),
                b'K' => description.target = Some(until_nul(self.description(&header, &mut description.bytes)?)),
                // As Solaris calls it, and as everybody else does.
                b'X' | b'x' => {
                    let records = self.description(&header, &mut description.bytes)?;
                    description.extended.get_or_insert_with(|| self.global.clone()).add(&records)?;
                }
                b'g' => {
                    self.global_header(&header)?;
                    continue;
                }
                // About the archive as a whole: its label.
                b'V' | b'N' => {
                    self.begin(size(&header)?);
                    self.skip()?;
                    continue;
                }
                _ => return self.member(&header, description).map(Some),
            }
            description.is_there = true;
        }
    }

    /// Reads data of the file that was returned last into `into`, which is not empty: where in the file they belong,
    /// and how many they are. `None` when there are no more; what is between them, and up to the file's size, are
    /// holes.
    ///
    /// # Errors
    /// When the archive ends before the data do, or cannot be read.
    pub fn read(&mut self, into: &mut [u8]) -> io::Result<Option<(u64, usize)>> {
        while self.range.1 == 0 {
            let Some(range) = self.ranges.next() else { return Ok(None) };
            self.range = range;
        }
        let (offset, left) = self.range;
        let bytes = usize::try_from(left).unwrap_or(usize::MAX).min(into.len());
        self.fill_from_member(&mut into[..bytes])?;
        self.range = (offset + bytes as u64, left - bytes as u64);
        Ok(Some((offset, bytes)))
    }

    fn global_header(&mut self, header: &Header) -> io::Result<()> {
        self.global_bytes = self.global_bytes.saturating_add(size(header)?);
        if self.global_bytes > GLOBAL_BYTES_MAX {
            return Err(io::Error::other("what the archive says of all its files is too long"));
        }
        let records = self.description(header, &mut 0)?;
        // A map is one file's.
        self.global.add(&records).map(|()| self.global.sparse = None)
    }

    fn member(&mut self, header: &Header, description: Description) -> io::Result<Member> {
        let Description { name, target, extended, .. } = description;
        let mut extended = extended.unwrap_or_else(|| self.global.clone());
        let (old, kind) = (header.as_old(), header.as_bytes()[TYPE]);
        let mut name = name.or(extended.path).unwrap_or_else(|| header.path_bytes().into_owned());
        // Links, directories and devices have no data, whatever they say: of a directory it may be a limit.
        let has_data = !matches!(kind, b'1'..=b'6') && !is_directory_by_name(kind, &name);
        let stored = if has_data { extended.size.map_or_else(|| size(header), Ok) } else { Ok(0) };
        self.is_lost = stored.is_err();
        let stored = stored.unwrap_or(0);
        self.begin(stored);
        let mut size = stored;
        let map = if self.is_lost {
            extended.damage = Some("its size is no number, and what follows may be its contents");
            None
        } else if kind == b'S' {
            Some(sparse_map::of_gnu_header(header, &mut self.input))
        } else {
            extended.sparse.map(|sparse| sparse.map(|into| self.fill_from_member(into)))
        };
        let is_sparse = map.is_some();
        match map.transpose().and_then(|map| map.map(|map| map.checked(self.left)).transpose()) {
            Ok(Some(map)) => {
                size = map.size;
                name = map.name.unwrap_or(name);
                self.ranges = map.ranges.into_iter();
            }
            Ok(None) => self.ranges = vec![(0, stored)].into_iter(),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => extended.damage = Some(sparse_map::DAMAGED),
            Err(error) => return Err(error),
        }
        let target = target.or(extended.link_path).unwrap_or_else(|| until_nul(old.linkname.to_vec()));
        let mut checked = |field: &[u8], otherwise| {
            number(field).unwrap_or_else(|_| {
                extended.damage = Some(otherwise);
                0
            })
        };
        let mode = checked(&old.mode, "its permissions are no number");
        let user = extended.user.unwrap_or_else(|| checked(&old.uid, "its owner is no number"));
        let group = extended.group.unwrap_or_else(|| checked(&old.gid, "its group is no number"));
        let modified = extended.modified.unwrap_or_else(|| {
            let seconds = checked(&old.mtime, "its time is no number");
            Time { seconds, nanoseconds: 0 }
        });
        let kind = match (kind_of(kind, &name, target, header), extended.damage) {
            (_, Some(damage)) => MemberKind::Damaged(damage),
            (None, None) => MemberKind::Damaged("its device has no number"),
            (Some(MemberKind::File), None) if extended.is_socket && size == 0 => MemberKind::Socket,
            (Some(kind), None) => kind,
        };
        Ok(Member {
            kind,
            name: PathBuf::from(OsString::from_vec(name)),
            mode: (mode & 0o7777) as u32,
            user: id(user),
            group: id(group),
            modified,
            size,
            is_sparse,
            attributes: extended.attributes,
            access: extended.access,
            default: extended.default,
        })
    }

    /// The next header; `None` at the archive's end.
    fn header(&mut self) -> io::Result<Option<Header>> {
        let mut header = Header::new_old();
        let mut filled = fill(&mut self.input, header.as_mut_bytes())?;
        let is_at_start = std::mem::replace(&mut self.is_at_start, false);
        // As GNU tar goes on; but what is all zeros may be in a file.
        if std::mem::take(&mut self.is_lost) {
            while filled == header.as_bytes().len() && !is_checked(&header) {
                filled = fill(&mut self.input, header.as_mut_bytes())?;
            }
            if filled < header.as_bytes().len() {
                return Ok(None);
            }
        }
        if filled == 0 || header.as_bytes().iter().all(|&byte| byte == 0) {
            return Ok(None);
        }
        match (is_checked(&header), is_at_start) {
            (true, _) if filled == header.as_bytes().len() => Ok(Some(header)),
            (_, true) => Err(io::Error::other(no_archive(header.as_bytes()))),
            (_, false) if filled < header.as_bytes().len() => Err(cut_short()),
            (_, false) => Err(io::Error::other("the archive is damaged: a header's checksum is wrong")),
        }
    }

    /// What a header has that describes the next.
    fn description(&mut self, header: &Header, bytes: &mut u64) -> io::Result<Vec<u8>> {
        let size = size(header)?;
        *bytes = bytes.saturating_add(size);
        if *bytes > DESCRIPTION_BYTES_MAX {
            return Err(io::Error::other("the names or attributes of a file in the archive are too long"));
        }
        self.begin(size);
        let mut description = vec![0; size as usize];
        self.fill_from_member(&mut description)?;
        self.skip()?;
        Ok(description)
    }

    fn begin(&mut self, stored: u64) {
        (self.left, self.padding) = (stored, stored.wrapping_neg() % BLOCK_BYTES);
        (self.range, self.ranges) = ((0, 0), Ranges::new().into_iter());
    }

    /// Leaves out what was not read of a member.
    fn skip(&mut self) -> io::Result<()> {
        let left = self.left.checked_add(self.padding).ok_or_else(cut_short)?;
        (self.left, self.padding) = (0, 0);
        if left > 0 && io::copy(&mut self.input.by_ref().take(left), &mut io::sink())? < left {
            return Err(cut_short());
        }
        Ok(())
    }

    fn fill_from_member(&mut self, into: &mut [u8]) -> io::Result<()> {
        self.left = self.left.checked_sub(into.len() as u64).ok_or_else(cut_short)?;
        if fill(&mut self.input, into)? < into.len() { Err(cut_short()) } else { Ok(()) }
    }
}

/// Where a header says what it is of.
const TYPE: usize = 156;
/// Where its checksum is, which counts as spaces in itself.
const CHECKSUM: std::ops::Range<usize> = 148..156;

fn is_checked(header: &Header) -> bool {
    let bytes = header.as_bytes().iter().enumerate();
    let byte = |(at, &byte): (usize, &u8)| if CHECKSUM.contains(&at) { b' ' } else { byte };
    let bytes = bytes.map(byte);
    let sum: i64 = bytes.clone().map(i64::from).sum();
    // Some have taken bytes for signed numbers.
    let signed: i64 = bytes.map(|byte| i64::from(byte.cast_signed())).sum();
    number(&header.as_bytes()[CHECKSUM]).is_ok_and(|checksum| checksum == sum || checksum == signed)
}

/// The way of before ustar to write a directory.
fn is_directory_by_name(kind: u8, name: &[u8]) -> bool {
    matches!(kind, 0 | b'0' | b'7') && name.ends_with(b"/")
}

/// `None` for a device without a number.
fn kind_of(kind: u8, name: &[u8], target: Vec<u8>, header: &Header) -> Option<MemberKind> {
    let device = || {
        let fields = header.as_gnu().map(|gnu| (gnu.dev_major, gnu.dev_minor));
        let fields = fields.or_else(|| header.as_ustar().map(|ustar| (ustar.dev_major, ustar.dev_minor)));
        let (major, minor) = fields.unwrap_or_default();
        Some((number(&major).ok()? as u32, number(&minor).ok()? as u32))
    };
    Some(match kind {
        _ if is_directory_by_name(kind, name) => MemberKind::Directory,
        b'1' => MemberKind::HardLink(PathBuf::from(OsString::from_vec(target))),
        b'2' => MemberKind::Symlink(OsString::from_vec(target)),
        b'3' => device().map(|(major, minor)| MemberKind::CharacterDevice(major, minor))?,
        b'4' => device().map(|(major, minor)| MemberKind::BlockDevice(major, minor))?,
        // GNU tar's has a list of what is in it.
        b'5' | b'D' => MemberKind::Directory,
        b'6' => MemberKind::Fifo,
        b'M' => MemberKind::Continuation,
        _ => MemberKind::File,
    })
}

fn size(header: &Header) -> io::Result<u64> {
    u64::try_from(number(&header.as_old().size)?).map_err(|_| no_number())
}

/// The last but one is for those that are none: the last means that nothing changes (chown(2)).
fn id(number: i64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX).min(u32::MAX - 1)
}

fn until_nul(mut text: Vec<u8>) -> Vec<u8> {
    text.truncate(text.iter().position(|&byte| byte == 0).unwrap_or(text.len()));
    text
}

/// What is said of something that is no archive, by its first bytes: what other programs unpack can come through a
/// pipe.
fn no_archive(head: &[u8]) -> String {
    let others = [("xz", &b"\xfd7zXZ\0"[..]), ("bzip2", b"BZh")];
    let program = others.iter().find(|(_, magic)| head.starts_with(magic)).map(|(program, _)| program);
    let remedy =
        program.map(|program| format!(", but {program}: `{program} -dc ARCHIVE | blockyard image tar-in IMAGE - /`"));
    format!("it is no tar, tar.gz or tar.zst archive{}", remedy.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_program_unpacks_is_said_with_how() {
        for (head, remedy) in [
            (&b"\xfd7zXZ\0\0\x04"[..], ", but xz: `xz -dc ARCHIVE | blockyard image tar-in IMAGE - /`"),
            (b"BZh91AY", ", but bzip2: `bzip2 -dc ARCHIVE | blockyard image tar-in IMAGE - /`"),
            (b"notes", ""),
        ] {
            assert_eq!(no_archive(head), format!("it is no tar, tar.gz or tar.zst archive{remedy}"));
        }
    }
}
