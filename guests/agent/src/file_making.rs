//! Files that are made in the image: filled, touched, copied from others.

use crate::failures::{Failures, failure, refusal};
use crate::file_changes::name_of_copy;
use crate::file_copy::next_data;
use crate::glob;
use crate::interruption;
use crate::mounts::path_of;
use crate::replacing::replacing;
use blockyard_archive::{ACCESS_LIST, AccessControlList, DEFAULT_LIST};
use blockyard_protocol::appliance::{CopyFiles, Failure, Fill, MakeNode, Touch};
use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, OFlags, Timespec, Timestamps, UTIME_NOW, Uid, XattrFlags, chownat, lgetxattr,
    llistxattr, lremovexattr, lsetxattr, mknodat, utimensat,
};
use std::collections::{HashMap, HashSet};
use std::fs::{self, DirBuilder, File, Metadata, Permissions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// Bytes that are written at once.
const PIECE_BYTES: usize = 1 << 20;
/// Longest value of an extended attribute, and longest list of their names (xattr(7)).
const ATTRIBUTE_BYTES_MAX: usize = 1 << 16;
/// Files with several names that are remembered.
const LINKED_MAX: usize = 1 << 20;

/// Permissions of a new file, less the umask.
const NEW_FILE_MODE: u32 = 0o644;

/// Opens a file for writing; never something that could make us wait.
fn create(path: &Path, truncate: bool, mode: u32) -> io::Result<File> {
    let flags = OFlags::NONBLOCK.bits() as i32;
    let file = File::options().write(true).create(true).truncate(truncate).mode(mode).custom_flags(flags).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("it is not a regular file")) }
}

/// Makes a file of a repeated pattern; how many bytes.
pub(crate) fn fill(request: &Fill) -> Result<u64, Failure> {
    if request.pattern.is_empty() {
        return Err(refusal("there is nothing to fill a file with"));
    }
    let path = path_of(&request.path);
    let filled = create(path, true, NEW_FILE_MODE).and_then(|mut file| {
        // Whole patterns, so that each piece begins with one.
        let piece = request.pattern.repeat(PIECE_BYTES.div_ceil(request.pattern.len()));
        let mut left = request.size;
        while left > 0 {
            interruption::check()?;
            let bytes = left.min(piece.len() as u64) as usize;
            file.write_all(&piece[..bytes])?;
            left -= bytes as u64;
        }
        Ok(())
    });
    filled.map(|()| request.size).map_err(|error| failure(path, "cannot fill", &error))
}

/// touch(1) and truncate(1).
pub(crate) fn touch(request: &Touch, failures: &mut Failures) {
    for path in &request.paths {
        let path = path_of(path);
        let there = fs::metadata(path);
        let made = match there {
            Err(error) if error.kind() == io::ErrorKind::NotFound && request.no_create => continue,
            Ok(_) if !request.sets_size => Ok(()),
            _ => create(path, false, NEW_FILE_MODE)
                .and_then(|file| if request.sets_size { file.set_len(request.size) } else { Ok(()) }),
        };
        let touched = made.and_then(|()| {
            let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
            Ok(utimensat(CWD, path, &Timestamps { last_access: now, last_modification: now }, AtFlags::empty())?)
        });
        failures.note(path, "cannot touch", touched);
    }
}

/// mknod(1): a device, a fifo or a socket.
pub(crate) fn make_node(request: &MakeNode) -> Result<(), Failure> {
    let path = path_of(&request.path);
    let kind = FileType::from_raw_mode(request.mode);
    let mode = Mode::from_raw_mode(request.mode & 0o7777);
    let made = mknodat(CWD, path, kind, mode, rustix::fs::makedev(request.major, request.minor));
    made.map_err(|errno| failure(path, "cannot make", &errno.into()))
}

/// cp(1).
pub(crate) fn copy(request: &CopyFiles, failures: &mut Failures) -> Result<(), Failure> {
    let target = path_of(&request.target);
    let into = fs::metadata(target).is_ok_and(|metadata| metadata.is_dir());
    let mut sources = Vec::new();
    glob::each(&request.sources, failures, |path, _| sources.push(path));
    if !into && sources.len() > 1 {
        return Err(failure(target, "cannot copy several files there", &io::Error::from_raw_os_error(20)));
    }
    let mut copier = Copier {
        archive: request.archive,
        recursive: request.recursive,
        linked: HashMap::new(),
        made: HashSet::new(),
        failures,
    };
    for source in sources {
        let name = name_of_copy(&source).filter(|_| into);
        copier.named(&source, &name.map_or_else(|| target.to_owned(), |name| target.join(name)));
    }
    Ok(())
}

struct Copier<'request> {
    archive: bool,
    recursive: bool,
    /// Where files with several names went.
    linked: HashMap<(u64, u64), PathBuf>,
    /// What was named has become these.
    made: HashSet<PathBuf>,
    failures: &'request mut Failures,
}

impl Copier<'_> {
    /// Copies what somebody named.
    fn named(&mut self, source: &Path, target: &Path) {
        let keeps_links = self.archive || self.recursive;
        let metadata = if keeps_links { fs::symlink_metadata(source) } else { fs::metadata(source) };
        let checked = metadata.and_then(|metadata| {
            let place = target.parent().map(fs::canonicalize).transpose()?.unwrap_or_default();
            let place = place.join(target.file_name().unwrap_or_default());
            let original = fs::canonicalize(source).unwrap_or_else(|_| source.to_owned());
            if metadata.is_dir() && !self.recursive {
                return Err(io::Error::from_raw_os_error(21));
            }
            if place == original || (metadata.is_dir() && place.starts_with(&original)) {
                return Err(io::Error::other("it cannot be copied onto itself or into itself"));
            }
            // Of two directories, what is in them is put together.
            if !self.made.insert(target.to_owned()) && !metadata.is_dir() {
                return Err(io::Error::other(format!("{} has just been made of another file", target.display())));
            }
            Ok(metadata)
        });
        match checked {
            Ok(metadata) => self.one(source, target, &metadata),
            Err(error) => self.failures.note(source, "cannot copy", Err(error)),
        }
    }

    fn one(&mut self, source: &Path, target: &Path, metadata: &Metadata) {
        let copied = interruption::check().and_then(|()| self.contents(source, target, metadata));
        let copied = copied.and_then(|is_new| if is_new { self.attributes(source, target, metadata) } else { Ok(()) });
        self.failures.note(source, "cannot copy", copied);
    }

    /// False for a file that has its attributes already, or keeps those that it had.
    fn contents(&mut self, source: &Path, target: &Path, metadata: &Metadata) -> io::Result<bool> {
        let kind = metadata.file_type();
        let keeps = !self.archive && target.exists();
        if kind.is_dir() {
            self.directory(source, target)?;
            return Ok(!keeps);
        }
        if self.archive && metadata.nlink() > 1 {
            let key = (metadata.dev(), metadata.ino());
            if let Some(first) = self.linked.get(&key) {
                replacing(target, |target| fs::hard_link(first, target))?;
                return Ok(false);
            }
            if self.linked.len() < LINKED_MAX {
                self.linked.insert(key, target.to_owned());
            }
        }
        if kind.is_file() {
            let input = File::options().read(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(source)?;
            // Nobody reads what is not yet whose it will be.
            data(&input, &create(target, false, 0o600)?)?;
            return Ok(!keeps);
        } else if kind.is_symlink() {
            let to = fs::read_link(source)?;
            replacing(target, |target| symlink(&to, target))?;
        } else if self.recursive || self.archive {
            let kind = FileType::from_raw_mode(metadata.mode());
            let mode = Mode::from_raw_mode(0o600);
            replacing(target, |target| Ok(mknodat(CWD, target, kind, mode, metadata.rdev())?))?;
        } else {
            return Err(io::Error::other(if kind.is_fifo() || kind.is_socket() {
                "it is no file"
            } else {
                "it is a device"
            }));
        }
        Ok(true)
    }

    fn directory(&mut self, source: &Path, target: &Path) -> io::Result<()> {
        match DirBuilder::new().mode(0o700).create(target) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && target.is_dir() => {}
            made => made?,
        }
        for entry in fs::read_dir(source)? {
            let entry = entry?;
            let (from, to) = (entry.path(), target.join(entry.file_name()));
            match entry.metadata() {
                Ok(metadata) => self.one(&from, &to, &metadata),
                Err(error) => self.failures.note(&from, "cannot copy", Err(error)),
            }
        }
        Ok(())
    }

    fn attributes(&self, source: &Path, target: &Path, metadata: &Metadata) -> io::Result<()> {
        if self.archive {
            let (user, group) = (Uid::from_raw(metadata.uid()), Gid::from_raw(metadata.gid()));
            chownat(CWD, target, Some(user), Some(group), AtFlags::SYMLINK_NOFOLLOW)?;
        }
        // In the order that leaves nothing changed by what comes after it: a new owner takes capabilities away, and an
        // access control list is also a mode.
        if !metadata.is_symlink() {
            let kept = if self.archive { 0o7777 } else { 0o777 };
            let mode = if self.archive { mode_without_list(source, target, metadata.mode()) } else { metadata.mode() };
            fs::set_permissions(target, Permissions::from_mode(mode & kept))?;
        }
        if self.archive {
            extended_attributes(source, target)?;
        }
        if self.archive {
            let time = |seconds, nanoseconds| Timespec { tv_sec: seconds, tv_nsec: nanoseconds };
            let times = Timestamps {
                last_access: time(metadata.atime(), metadata.atime_nsec()),
                last_modification: time(metadata.mtime(), metadata.mtime_nsec()),
            };
            utimensat(CWD, target, &times, AtFlags::SYMLINK_NOFOLLOW)?;
        }
        Ok(())
    }
}

/// Makes the output what the input is, with its holes, and asks now and then whether that is still wanted.
fn data(mut input: &File, mut output: &File) -> io::Result<()> {
    let (from, to) = (input.metadata()?, output.metadata()?);
    // It may have several names, and links may lead to it.
    if (from.dev(), from.ino()) == (to.dev(), to.ino()) {
        return Err(io::Error::other("it is the same file as what it would be copied to"));
    }
    output.set_len(0)?;
    let mut at = 0;
    while let Some(range) = next_data(input, at, from.len())? {
        at = range.offset;
        input.seek(SeekFrom::Start(at))?;
        output.seek(SeekFrom::Start(at))?;
        let end = range.offset + range.length;
        while at < end {
            interruption::check()?;
            // The kernel copies.
            match io::copy(&mut input.take((end - at).min(8 * PIECE_BYTES as u64)), &mut output)? {
                0 => return Err(io::Error::other("it ends before its size")),
                copied => at += copied,
            }
        }
    }
    output.set_len(from.len())
}

/// Takes away what `target` has from its directory; its mode where it cannot have the source's access control list.
fn mode_without_list(source: &Path, target: &Path, mode: u32) -> u32 {
    for list in [ACCESS_LIST, DEFAULT_LIST] {
        // There is none, or none can be.
        let _ = lremovexattr(target, list);
    }
    let mut list = vec![0; ATTRIBUTE_BYTES_MAX];
    let list = lgetxattr(source, ACCESS_LIST, &mut list[..]).ok().map(|bytes| &list[..bytes]);
    list.and_then(|list| AccessControlList::of_attribute(list).ok()).map_or(mode, |list| list.mode_without(mode))
}

/// Those that the target's file system takes.
fn extended_attributes(source: &Path, target: &Path) -> io::Result<()> {
    let mut names = vec![0; ATTRIBUTE_BYTES_MAX];
    let Ok(length) = llistxattr(source, &mut names[..]) else { return Ok(()) };
    let mut value = vec![0; ATTRIBUTE_BYTES_MAX];
    for name in names[..length].split(|&byte| byte == 0).filter(|name| !name.is_empty()) {
        let bytes = lgetxattr(source, name, &mut value[..])?;
        match lsetxattr(target, name, &value[..bytes], XattrFlags::empty()) {
            Ok(()) | Err(rustix::io::Errno::OPNOTSUPP) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}
