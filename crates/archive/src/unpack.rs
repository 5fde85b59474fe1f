//! Unpacking what nobody vouches for.
//!
//! Every directory on the way to a file is opened from the destination with `openat2`: below it, and through no symbolic link,
//! whoever made it. Files are made anew. So an archive can put links wherever it likes, and none of them leads us anywhere.

use crate::new_file::{NewFile, make};
use crate::{Report, XATTR, write_sparse};
use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, ResolveFlags, Timespec, Timestamps, XattrFlags, fchmod, fsetxattr, futimens,
    linkat, mkdirat, openat2, statat, symlinkat, utimensat,
};
use rustix::io::Errno;
use std::cell::Cell;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};
use tar::{Archive, Entry, EntryType};

/// Bytes that are unpacked at once.
const PIECE_BYTES: usize = 256 << 10;
/// Components of a path: Linux takes no longer ones.
const DEPTH_MAX: usize = 2048;
/// What may come before a file's data: names, attributes and the list of its holes, which are kept in memory.
const DESCRIPTION_BYTES_MAX: u64 = 16 << 20;
/// Set-ID bits and sticky are for the image's users, not for the host's.
const PERMISSIONS: u32 = 0o777;

/// What an archive may do.
#[derive(Clone, Debug)]
pub struct UnpackOptions {
    /// The first component that every name in it must have, and what stands for it below the destination: empty for the
    /// destination itself.
    pub root: (OsString, PathBuf),
    /// Most bytes that its files may have together, holes included.
    pub bytes_max: u64,
    /// Most entries that it may have, whatever they are.
    pub entries_max: u64,
}

/// Unpacks an archive into the directory `destination`; how many bytes its files had. Files belong to whoever does this; permissions, times, `user.`
/// attributes, links and holes are kept. Devices, fifos, and names that lead out of the archive's root are reported and left
/// out. A file has its name when it is complete; what had the name before is what it was until then.
///
/// # Errors
/// When the archive cannot be read on or has too much in it.
pub fn unpack(
    archive: impl Read,
    destination: BorrowedFd<'_>,
    options: &UnpackOptions,
    report: &mut Report<'_>,
) -> io::Result<u64> {
    let mut unpacker = Unpacker {
        destination,
        options,
        bytes: 0,
        directories: Vec::new(),
        unnamed: true,
        buffer: vec![0; PIECE_BYTES],
    };
    let left = Cell::new(0);
    let mut count = 0;
    let mut archive = Archive::new(Limited { archive, left: &left });
    let mut entries = archive.entries()?;
    loop {
        left.set(DESCRIPTION_BYTES_MAX);
        let Some(entry) = entries.next() else { break };
        let mut entry = entry?;
        left.set(u64::MAX);
        count += 1;
        if count > options.entries_max {
            let sentence = format!("it has more than {} files, which is too many for the image", options.entries_max);
            return Err(io::Error::other(sentence));
        }
        let name = PathBuf::from(OsString::from_vec(entry.path_bytes().into_owned()));
        unpacker.leave(&name, report);
        match unpacker.entry(&mut entry, &name) {
            Err(Fault::Archive(error)) => return Err(error),
            Err(Fault::File(what, error)) => report(&name, what, error),
            Ok(()) => {}
        }
        // Of what was left out too: otherwise it would count as the next entry's description.
        io::copy(&mut entry, &mut io::sink())?;
    }
    unpacker.leave(Path::new(""), report);
    Ok(unpacker.bytes)
}

/// An archive of which no more than `left` bytes are read.
struct Limited<'left, R> {
    archive: R,
    left: &'left Cell<u64>,
}

impl<R: Read> Read for Limited<'_, R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left.get()).unwrap_or(usize::MAX).min(into.len());
        if most == 0 && !into.is_empty() {
            return Err(io::Error::other("the names or attributes of a file in the archive are too long"));
        }
        let bytes = self.archive.read(&mut into[..most])?;
        self.left.set(self.left.get().saturating_sub(bytes as u64));
        Ok(bytes)
    }
}

/// Why an entry was not unpacked.
enum Fault {
    /// It alone.
    File(&'static str, io::Error),
    /// And nothing after it.
    Archive(io::Error),
}

fn file(what: &'static str) -> impl FnOnce(Errno) -> Fault {
    move |errno| Fault::File(what, errno.into())
}

fn refused(why: &'static str) -> Fault {
    Fault::File("left out", io::Error::other(why))
}

struct Unpacker<'unpack> {
    destination: BorrowedFd<'unpack>,
    options: &'unpack UnpackOptions,
    bytes: u64,
    /// Directories that were made and that the archive is still in, outermost first: name in it, path, permissions, time.
    directories: Vec<(PathBuf, PathBuf, u32, u64)>,
    /// New files have no name until they are complete, as far as the file system can.
    unnamed: bool,
    buffer: Vec<u8>,
}

impl Unpacker<'_> {
    /// Finishes the directories that `name` is not in: what is put into one changes its time, and its permissions may forbid it.
    fn leave(&mut self, name: &Path, report: &mut Report<'_>) {
        while let Some((_, path, mode, modified)) =
            self.directories.pop_if(|(within, ..)| name == within.as_path() || !name.starts_with(within))
        {
            let finish = || {
                let directory = self.directory(&path)?;
                fchmod(&directory, Mode::from_raw_mode(mode))?;
                futimens(&directory, &times(modified))
            };
            if let Err(errno) = finish() {
                report(&path, "cannot set the attributes of", errno.into());
            }
        }
    }

    fn entry<R: Read>(&mut self, entry: &mut Entry<'_, R>, name: &Path) -> Result<(), Fault> {
        let header = entry.header().clone();
        let mode = header.mode().map_err(Fault::Archive)? & PERMISSIONS;
        let modified = header.mtime().map_err(Fault::Archive)?;
        let kind = header.entry_type();
        if matches!(kind, EntryType::XGlobalHeader | EntryType::XHeader) {
            return Ok(());
        }
        let path = self.place(name).ok_or_else(|| refused("its name leads out of what was asked for"))?;
        match kind {
            EntryType::Directory => {
                self.make_directory(&path).map_err(file("cannot make the directory"))?;
                self.directories.push((name.to_owned(), path, mode, modified));
                Ok(())
            }
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
                self.file(entry, &path, mode, modified)
            }
            EntryType::Symlink => {
                let target = entry.link_name_bytes().ok_or_else(|| refused("a link without a target"))?;
                let (parent, last) = self.parent(&path).map_err(file("cannot make the link"))?;
                make(&parent, last, |name| symlinkat(OsStr::from_bytes(&target), &parent, name))
                    .map_err(file("cannot make the link"))?;
                utimensat(&parent, last, &times(modified), AtFlags::SYMLINK_NOFOLLOW)
                    .map_err(file("cannot set the attributes of"))
            }
            EntryType::Link => {
                let target = entry.link_name_bytes().ok_or_else(|| refused("a link without a target"))?;
                let target = self.place(Path::new(OsStr::from_bytes(&target)));
                let target = target.ok_or_else(|| refused("a link that leads out of what was asked for"))?;
                self.hard_link(&target, &path).map_err(file("cannot make the link"))
            }
            EntryType::Char | EntryType::Block => Err(refused("it is a device")),
            EntryType::Fifo => Err(refused("it is a fifo")),
            _ => Err(refused("the archive's entry is of an unknown kind")),
        }
    }

    /// Where a name of the archive is below the destination; `None` when it is not.
    fn place(&self, name: &Path) -> Option<PathBuf> {
        let mut components = name.components().filter(|component| *component != Component::CurDir);
        let (root, replaced) = &self.options.root;
        if components.next() != Some(Component::Normal(root)) {
            return None;
        }
        let mut place = replaced.clone();
        for (depth, component) in components.enumerate() {
            let Component::Normal(part) = component else { return None };
            if depth > DEPTH_MAX {
                return None;
            }
            place.push(part);
        }
        Some(place)
    }

    /// A directory below the destination, that is reached through no link.
    fn directory(&self, path: &Path) -> Result<OwnedFd, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        openat2(self.destination, path, flags, Mode::empty(), ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS)
    }

    /// The directory that a path is in, and its name there.
    fn parent<'path>(&self, path: &'path Path) -> Result<(OwnedFd, &'path OsStr), Errno> {
        let name = path.file_name().ok_or(Errno::EXIST)?;
        Ok((self.directory(path.parent().unwrap_or(Path::new("")))?, name))
    }

    /// Makes a directory that this user can work in; one that is there is fine, a link to one is not.
    fn make_directory(&self, path: &Path) -> Result<(), Errno> {
        if path.as_os_str().is_empty() {
            return Ok(());
        }
        let (parent, name) = self.parent(path)?;
        match mkdirat(&parent, name, Mode::RWXU) {
            Err(Errno::EXIST) => self.directory(path).map(drop),
            made => made,
        }
    }

    fn file<R: Read>(&mut self, entry: &mut Entry<'_, R>, path: &Path, mode: u32, modified: u64) -> Result<(), Fault> {
        self.bytes = self.bytes.saturating_add(entry.size());
        if self.bytes > self.options.bytes_max {
            let sentence =
                format!("its files have more than {} bytes, which the image cannot hold", self.options.bytes_max);
            return Err(Fault::Archive(io::Error::other(sentence)));
        }
        let (parent, name) = self.parent(path).map_err(file("cannot create"))?;
        let mut made = NewFile::create(&parent, &mut self.unnamed).map_err(file("cannot create"))?;
        self.fill(entry, &mut made.file)?;
        attributes(entry, made.file.as_fd(), mode, modified)?;
        made.take_name(name).map_err(file("cannot create"))
    }

    fn fill<R: Read>(&mut self, entry: &mut Entry<'_, R>, into: &mut File) -> Result<(), Fault> {
        let sparse = entry.header().entry_type() == EntryType::GNUSparse;
        let mut length = 0;
        loop {
            let bytes = entry.read(&mut self.buffer).map_err(Fault::Archive)?;
            if bytes == 0 {
                break;
            }
            length += bytes as u64;
            let data = &self.buffer[..bytes];
            let written = if sparse { write_sparse(into, data) } else { into.write_all(data) };
            // No space, mostly: then there is none for the next one either.
            written.map_err(Fault::Archive)?;
        }
        if length != entry.size() {
            return Err(Fault::Archive(io::Error::new(io::ErrorKind::UnexpectedEof, "the archive ends in a file")));
        }
        if sparse { into.set_len(length).map_err(Fault::Archive) } else { Ok(()) }
    }

    fn hard_link(&self, target: &Path, path: &Path) -> Result<(), Errno> {
        let (from, old) = self.parent(target)?;
        let (to, new) = self.parent(path)?;
        let metadata = statat(&from, old, AtFlags::SYMLINK_NOFOLLOW)?;
        if FileType::from_raw_mode(metadata.st_mode) == FileType::Directory {
            return Err(Errno::ISDIR);
        }
        make(&to, new, |name| linkat(&from, old, &to, name, AtFlags::empty()))
    }
}

fn attributes<R: Read>(entry: &mut Entry<'_, R>, made: BorrowedFd<'_>, mode: u32, modified: u64) -> Result<(), Fault> {
    if let Some(extensions) = entry.pax_extensions().map_err(Fault::Archive)? {
        for extension in extensions.flatten() {
            let name = extension.key().ok().and_then(|key| key.strip_prefix(XATTR));
            if let Some(name) = name.filter(|name| name.starts_with("user.")) {
                fsetxattr(made, name, extension.value_bytes(), XattrFlags::empty())
                    .map_err(file("cannot set the attributes of"))?;
            }
        }
    }
    fchmod(made, Mode::from_raw_mode(mode))
        .and_then(|()| futimens(made, &times(modified)))
        .map_err(file("cannot set the attributes of"))
}

fn times(modified: u64) -> Timestamps {
    let time = Timespec { tv_sec: i64::try_from(modified).unwrap_or(i64::MAX), tv_nsec: 0 };
    Timestamps { last_access: time, last_modification: time }
}
