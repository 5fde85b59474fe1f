//! Unpacking what nobody vouches for.
//!
//! Every directory on the way to a file is opened from the destination with `openat2`: below it, and through no
//! symbolic link, whoever made it. Files are made anew. So an archive can put links wherever it likes, and none of them
//! leads us anywhere.

use crate::new_file::{NewFile, make};
use crate::{ArchiveReader, Member, MemberKind, Report, Time, remove_lists, set_user_attribute};
use rustix::fs::{
    AtFlags, Mode, OFlags, ResolveFlags, Stat, fchmod, fstat, futimens, linkat, mkdirat, openat2, statat, symlinkat,
    unlinkat, utimensat,
};
use rustix::io::Errno;
use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Component, Path, PathBuf};

/// Bytes that are unpacked at once.
const PIECE_BYTES: usize = 256 << 10;
/// Components of a path: Linux takes no longer ones.
const DEPTH_MAX: usize = 2048;
/// Set-ID bits and sticky are for the image's users, not for the host's.
const PERMISSIONS: u32 = 0o777;
/// Files that were left out and that links may lead to: so many are remembered, with paths of up to so many bytes.
const LEFT_OUT_MAX: usize = 1 << 14;
const LEFT_OUT_BYTES_MAX: usize = 4096;

/// What an archive may do.
#[derive(Clone, Debug)]
pub struct UnpackOptions {
    /// The first component that every name in it must have, or nothing, and what stands for it below the destination:
    /// empty for the destination itself.
    pub root: (OsString, PathBuf),
    /// Most bytes of data that its files may have together. How long they are is up to them: holes take no room.
    pub bytes_max: u64,
    /// Most entries that it may have, whatever they are.
    pub entries_max: u64,
}

/// Unpacks an archive into the directory `destination`; how many bytes of data its files had. Files belong to whoever
/// does this; permissions, times, `user.` attributes, links and holes are kept. Devices, fifos, sockets, and names that
/// lead out of the archive's root are reported and left out. A file has its name when it is complete; what had the name
/// before is what it was until then. Directories that are there already stay as they are, and hard links lead to
/// nothing but what this call has made. Nobody gets more than a file's mode and access control list give him, whichever
/// lists the destination has for new files.
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
        made: HashSet::new(),
        left_out: HashMap::new(),
        unnamed: true,
        buffer: vec![0; PIECE_BYTES],
    };
    let mut count = 0;
    let mut archive = ArchiveReader::new(archive);
    while let Some(member) = archive.next_member()? {
        count += 1;
        if count > options.entries_max {
            let sentence = format!("it has more than {} files, which is too many for the image", options.entries_max);
            return Err(io::Error::other(sentence));
        }
        unpacker.leave(&member.name, report);
        match unpacker.member(&mut archive, &member) {
            Err(Fault::Archive(error)) => return Err(error),
            Err(Fault::File(what, error)) => report(&member.name, what, error),
            Ok(()) => {}
        }
    }
    unpacker.leave(Path::new(""), report);
    Ok(unpacker.bytes)
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

fn unattributed(error: io::Error) -> Fault {
    Fault::File("cannot set the attributes of", error)
}

fn refused(why: &'static str) -> Fault {
    Fault::File("left out", io::Error::other(why))
}

/// A file that is too long for its file system is alone with that; where there is no more space, or no more disk, there
/// is none for the next.
fn unwritten(error: io::Error) -> Fault {
    match Errno::from_io_error(&error) {
        Some(Errno::FBIG | Errno::INVAL) => Fault::File("cannot write", error),
        _ => Fault::Archive(error),
    }
}

/// Which file it is, whatever its name: device and inode.
type Identity = (u64, u64);

fn identity(stat: &Stat) -> Identity {
    (stat.st_dev, stat.st_ino)
}

struct Unpacker<'unpack> {
    destination: BorrowedFd<'unpack>,
    options: &'unpack UnpackOptions,
    bytes: u64,
    /// Directories that were made and that the archive is still in, outermost first: name in it, path, permissions,
    /// time.
    directories: Vec<(PathBuf, PathBuf, Mode, Time)>,
    /// Files, links and directories that were made.
    made: HashSet<Identity>,
    /// What was left out, and why.
    left_out: HashMap<PathBuf, &'static str>,
    /// New files have no name until they are complete, as far as the file system can.
    unnamed: bool,
    buffer: Vec<u8>,
}

impl Unpacker<'_> {
    /// Finishes the directories that `name` is not in: what is put into one changes its time, and its permissions may
    /// forbid it.
    fn leave(&mut self, name: &Path, report: &mut Report<'_>) {
        while let Some((_, path, mode, modified)) =
            self.directories.pop_if(|(within, ..)| name == within.as_path() || !name.starts_with(within))
        {
            let finish = || {
                let directory = self.directory(&path)?;
                // Somebody else may have put another there.
                if !self.made.contains(&identity(&fstat(&directory)?)) {
                    return Err(Errno::STALE);
                }
                remove_lists(&directory)?;
                fchmod(&directory, mode)?;
                futimens(&directory, &modified.both())
            };
            if let Err(errno) = finish() {
                report(&path, "cannot set the attributes of", errno.into());
            }
        }
    }

    fn member<R: Read>(&mut self, archive: &mut ArchiveReader<R>, member: &Member) -> Result<(), Fault> {
        let name = &member.name;
        let path = self.place(name).ok_or_else(|| refused("its name leads out of what was asked for"))?;
        match &member.kind {
            MemberKind::Directory => {
                let is_new = self.make_directory(&path).map_err(file("cannot make the directory"))?;
                if !is_new {
                    return Ok(());
                }
                let directory = self.directory(&path).map_err(file("cannot set the attributes of"))?;
                self.made.insert(identity(&fstat(&directory).map_err(file("cannot set the attributes of"))?));
                self.directories.push((name.clone(), path.clone(), permissions(member), member.modified));
                set_attributes(member, directory.as_fd()).map_err(unattributed)
            }
            MemberKind::File => self.file(archive, member, &path),
            MemberKind::Symlink(target) => {
                let (parent, last) = self.parent(&path).map_err(file("cannot make the link"))?;
                make(&parent, last, |name| symlinkat(target, &parent, name)).map_err(file("cannot make the link"))?;
                let stat = statat(&parent, last, AtFlags::SYMLINK_NOFOLLOW).map_err(file("cannot make the link"))?;
                self.made.insert(identity(&stat));
                utimensat(&parent, last, &member.modified.both(), AtFlags::SYMLINK_NOFOLLOW)
                    .map_err(file("cannot set the attributes of"))
            }
            MemberKind::HardLink(target) => {
                let target = self.place(target);
                let target = target.ok_or_else(|| refused("a link that leads out of what was asked for"))?;
                if let Some(why) = self.left_out.get(&target) {
                    return Err(refused(why));
                }
                self.hard_link(&target, &path)
            }
            MemberKind::CharacterDevice(..) | MemberKind::BlockDevice(..) => {
                Err(self.leave_out(path, "it is a device"))
            }
            MemberKind::Fifo => Err(self.leave_out(path, "it is a fifo")),
            MemberKind::Socket => Err(self.leave_out(path, "it is a socket")),
            MemberKind::Continuation => Err(self.leave_out(path, "it is the rest of a file in another archive")),
            MemberKind::Damaged(why) => Err(self.leave_out(path, why)),
        }
    }

    /// Leaves a file out. Its other names are links to it, which are not to become links to what has its name in the
    /// destination.
    fn leave_out(&mut self, path: PathBuf, why: &'static str) -> Fault {
        if self.left_out.len() < LEFT_OUT_MAX && path.as_os_str().len() <= LEFT_OUT_BYTES_MAX {
            self.left_out.insert(path, why);
        }
        refused(why)
    }

    /// Where a name of the archive is below the destination; `None` when it is not.
    fn place(&self, name: &Path) -> Option<PathBuf> {
        let mut components = name.components().filter(|component| *component != Component::CurDir);
        let (root, replaced) = &self.options.root;
        if !root.is_empty() && components.next() != Some(Component::Normal(root)) {
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

    /// Makes a directory that this user can work in; one that is there is fine, a link to one is not. Whether it is
    /// new.
    fn make_directory(&self, path: &Path) -> Result<bool, Errno> {
        if path.as_os_str().is_empty() {
            return Ok(false);
        }
        let (parent, name) = self.parent(path)?;
        match mkdirat(&parent, name, Mode::RWXU) {
            Err(Errno::EXIST) => self.directory(path).map(|_| false),
            made => made.map(|()| true),
        }
    }

    fn file<R: Read>(&mut self, archive: &mut ArchiveReader<R>, member: &Member, path: &Path) -> Result<(), Fault> {
        let (parent, name) = self.parent(path).map_err(file("cannot create"))?;
        let mut made = NewFile::create(&parent, &mut self.unnamed).map_err(file("cannot create"))?;
        self.fill(archive, member, &mut made.file)?;
        let attributed = set_attributes(member, made.file.as_fd());
        remove_lists(&made.file)
            .and_then(|()| fchmod(&made.file, permissions(member)))
            .and_then(|()| futimens(&made.file, &member.modified.both()))
            .map_err(file("cannot set the attributes of"))?;
        let stat = fstat(&made.file).map_err(file("cannot create"))?;
        made.take_name(name).map_err(file("cannot create"))?;
        self.made.insert(identity(&stat));
        // A file without its attributes is better than none.
        attributed.map_err(unattributed)
    }

    fn fill<R: Read>(&mut self, archive: &mut ArchiveReader<R>, member: &Member, into: &mut File) -> Result<(), Fault> {
        let mut end = 0;
        while let Some((offset, bytes)) = archive.read(&mut self.buffer).map_err(Fault::Archive)? {
            self.bytes = self.bytes.saturating_add(bytes as u64);
            if self.bytes > self.options.bytes_max {
                let sentence =
                    format!("its files have more than {} bytes, which the image cannot hold", self.options.bytes_max);
                return Err(Fault::Archive(io::Error::other(sentence)));
            }
            into.write_all_at(&self.buffer[..bytes], offset).map_err(unwritten)?;
            end = offset + bytes as u64;
        }
        if end < member.size { into.set_len(member.size).map_err(unwritten) } else { Ok(()) }
    }

    /// Another name for a file that was made here: what was there before is nothing that an archive may give other
    /// names to.
    fn hard_link(&self, target: &Path, path: &Path) -> Result<(), Fault> {
        let failed = || file("cannot make the link");
        let (from, old) = self.parent(target).map_err(failed())?;
        let (to, new) = self.parent(path).map_err(failed())?;
        let identity_of =
            |directory: &OwnedFd, name: &OsStr| Ok(identity(&statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?));
        let wanted = identity_of(&from, old).map_err(failed())?;
        if !self.made.contains(&wanted) {
            return Err(refused("a link to what was there before"));
        }
        let link = |name: &OsStr| {
            linkat(&from, old, &to, name, AtFlags::empty())?;
            // The name may have become another file's meanwhile.
            if identity_of(&to, name)? == wanted {
                return Ok(());
            }
            unlinkat(&to, name, AtFlags::empty())?;
            Err(Errno::STALE)
        };
        make(&to, new, link).map_err(failed())
    }
}

fn permissions(member: &Member) -> Mode {
    Mode::from_raw_mode(member.mode_without_list() & PERMISSIONS)
}

fn set_attributes(member: &Member, made: BorrowedFd<'_>) -> io::Result<()> {
    member.attributes.iter().try_for_each(|(name, value)| set_user_attribute(made, name, value))
}
