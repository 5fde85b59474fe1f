//! Unpacking tar archives, whatever they are compressed with.

mod bounds;
mod directories;
mod metadata;
mod parents;
mod small_files;

use crate::failures::{Failures, failure};
use crate::mounts::path_of;
use crate::stream::{SourceStream, TransferDisks};
use blockyard_archive::{ArchiveReader, Member, MemberKind};
use blockyard_protocol::appliance::{Failure, TarIn};
use bounds::{Bounds, LeadsOut, directory_of, is_out};
use directories::Directories;
use metadata::{Inheritance, Metadata, Names, set_time};
use parents::{Parent, Parents};
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, fchmod, linkat, makedev, mknodat, open, openat, symlinkat, unlinkat,
};
use rustix::io::Errno;
use rustix::path::Arg;
use rustix::process::umask;
use small_files::SmallFiles;
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::{Component, Path, PathBuf};

/// Bytes of a large file that are unpacked at once.
const PIECE_BYTES: usize = 256 << 10;
/// Bytes behind an archive's end that are looked at.
const BEHIND_BYTES_MAX: u64 = 1 << 30;
/// How files are made: nothing of that name is there, whatever it leads to.
const NEW_FILE: OFlags = OFlags::WRONLY.union(OFlags::CREATE).union(OFlags::EXCL).union(OFlags::CLOEXEC);
/// Permissions of directories that an archive has files in, but does not have.
const DIRECTORY_MODE: u32 = 0o755;

/// Unpacks the archive on the source disk; how many bytes it had as it came.
pub(crate) fn unpack(request: &TarIn, disks: &TransferDisks, failures: &mut Failures) -> Result<u64, Failure> {
    let directory = path_of(&request.directory);
    let bad = |what: &'static str| move |error: io::Error| failure(directory, what, &error);
    let missing = if request.into { Vec::new() } else { missing(directory) };
    if !request.into {
        DirBuilder::new()
            .recursive(true)
            .mode(DIRECTORY_MODE)
            .create(directory)
            .map_err(bad("cannot make the directory"))?;
    }
    // Names in the archive are below it, whatever they look like.
    std::env::set_current_dir(directory).map_err(bad("cannot unpack into"))?;
    let mut stream = SourceStream::open(&disks.source).map_err(bad("cannot read the archive"))?;
    let unpacked = unpack_stream(request, &mut stream, failures);
    // The host may write more than the archive's end: zeros, mostly.
    let finished = stream.finish();
    let _ = std::env::set_current_dir("/");
    if unpacked.is_err() {
        // What was made for nothing goes again; what holds something stays.
        let _ = missing.iter().try_for_each(fs::remove_dir);
    }
    unpacked.map_err(|error| failure(Path::new(""), "cannot unpack the archive", &error))?;
    finished.map_err(bad("cannot read the archive"))?;
    Ok(stream.total)
}

/// A directory that is not there, and those above it that are not, the lowest first.
fn missing(directory: &Path) -> Vec<&Path> {
    let is_missing =
        |path: &&Path| fs::symlink_metadata(path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
    directory.ancestors().take_while(is_missing).collect()
}

fn unpack_stream(request: &TarIn, stream: &mut SourceStream, failures: &mut Failures) -> io::Result<()> {
    let mut magic = [0; 4];
    let mut known = 0;
    while known < magic.len() {
        match stream.read(&mut magic[known..])? {
            0 => break,
            bytes => known += bytes,
        }
    }
    if known == 0 {
        return Err(io::Error::other("it is empty"));
    }
    let whole = (&magic[..known]).chain(&mut *stream);
    let mut unpacker = Unpacker {
        own: request.own,
        in_place: request.in_place,
        failures,
        names: Names::default(),
        bounds: Bounds::here(),
        directories: Directories::default(),
        parents: Parents::default(),
        small: SmallFiles::new(),
        buffer: vec![0; PIECE_BYTES],
    };
    // A new file has the permissions that it is made with: that is one system call less for each.
    let before = umask(Mode::empty());
    let unpacked = match magic {
        [0x1f, 0x8b, ..] => {
            let mut archive = flate2::read::MultiGzDecoder::new(io::BufReader::with_capacity(64 << 10, whole));
            unpacker.all(&mut archive).and_then(|()| check_end(&mut archive).or_else(ignore_garbage))
        }
        [0x28, 0xb5, 0x2f, 0xfd] => zstd::Decoder::new(whole)
            .and_then(|mut archive| unpacker.all(&mut archive).and_then(|()| check_end(&mut archive))),
        _ => unpacker.all(whole),
    };
    umask(before);
    unpacked
}

/// Reads what comes behind an archive, up to where its compression has a checksum of it.
fn check_end(compressed: &mut impl Read) -> io::Result<()> {
    let damaged = |error: io::Error| io::Error::new(error.kind(), format!("its compression is damaged: {error}"));
    io::copy(&mut compressed.take(BEHIND_BYTES_MAX), &mut io::sink()).map(drop).map_err(damaged)
}

/// Behind the last member of a gzip file there may be anything, as gzip(1) has it.
fn ignore_garbage(error: io::Error) -> io::Result<()> {
    if error.to_string().ends_with("invalid gzip header") { Ok(()) } else { Err(error) }
}

struct Unpacker<'request> {
    own: bool,
    in_place: bool,
    failures: &'request mut Failures,
    names: Names,
    bounds: Bounds,
    directories: Directories,
    parents: Parents,
    /// Files that have come, and are made when there are enough of them.
    small: SmallFiles,
    buffer: Vec<u8>,
}

impl Unpacker<'_> {
    fn all(&mut self, archive: impl Read) -> io::Result<()> {
        let read = self.members(&mut ArchiveReader::new(archive));
        // What came before the archive's end is unpacked, wherever that is.
        let made = self.make_small();
        std::mem::take(&mut self.directories).finish(&self.bounds, self.failures);
        read.and(made)
    }

    fn members<R: Read>(&mut self, archive: &mut ArchiveReader<R>) -> io::Result<()> {
        while let Some(mut member) = archive.next_member()? {
            let Some(path) = relative(&member.name) else {
                let sentence = "is not below the directory: left out".to_owned();
                let path = member.name.into_os_string().into_encoded_bytes();
                self.failures.add(Failure { errno: 0, path, sentence });
                continue;
            };
            // What cannot be read of the archive is the end; what cannot be written is one file's failure.
            match self.member(archive, &mut member, &path) {
                Err(error) if is_out(&error) => self.leave_out(&path, &LeadsOut.to_string()),
                Err(error) if is_files_own(&error) => failed(self.failures, &path, error),
                unpacked => unpacked?,
            }
        }
        Ok(())
    }

    fn member<R: Read>(&mut self, archive: &mut ArchiveReader<R>, member: &mut Member, path: &Path) -> io::Result<()> {
        let metadata = Metadata::of(member, self.own, &self.names);
        let is_file = member.kind == MemberKind::File;
        if is_file && self.in_place {
            return self.file_in_place(archive, member.size, path, &metadata);
        }
        if is_file && !member.is_sparse && SmallFiles::takes(member.size) {
            return self.small_file(archive, member.size, path, metadata);
        }
        // It may replace, or need, one of those that wait.
        self.make_small()?;
        if is_file {
            return self.file(archive, member.size, path, &metadata);
        }
        self.parents.forget(path);
        match &member.kind {
            MemberKind::Directory => {
                self.bounds.check(path)?;
                let is_new = directory(path, 0o700)?;
                let owned = metadata.set_directory_owner(path, is_new);
                self.directories.add(path, metadata);
                owned
            }
            MemberKind::Symlink(target) => {
                self.make(path, |parent, name| symlinkat(target, parent, name))?;
                self.bounds.link();
                metadata.set_owner(path)?;
                set_time(path, &metadata.modified)
            }
            MemberKind::HardLink(target) => {
                let target = relative(target).ok_or(Errno::XDEV)?;
                self.bounds.check_hard_link(&target)?;
                // It is the other's file, whose attributes are set; it may have this name already.
                self.make(path, |parent, name| linkat(CWD, &target, parent, name, AtFlags::empty()))?;
                self.bounds.hard_link(&target);
                Ok(())
            }
            MemberKind::CharacterDevice(major, minor) => {
                self.special(path, &metadata, FileType::CharacterDevice, makedev(*major, *minor))
            }
            MemberKind::BlockDevice(major, minor) => {
                self.special(path, &metadata, FileType::BlockDevice, makedev(*major, *minor))
            }
            MemberKind::Fifo => self.special(path, &metadata, FileType::Fifo, 0),
            MemberKind::Socket => self.special(path, &metadata, FileType::Socket, 0),
            MemberKind::File | MemberKind::Continuation => {
                self.leave_out(path, "is the rest of a file in another archive: left out");
                Ok(())
            }
            MemberKind::Damaged(why) => {
                self.leave_out(path, &format!("left out, as the archive is damaged: {why}"));
                Ok(())
            }
        }
    }

    fn leave_out(&mut self, path: &Path, sentence: &str) {
        let path = path.as_os_str().as_bytes().to_vec();
        self.failures.add(Failure { errno: 0, path, sentence: sentence.to_owned() });
    }

    /// Makes the files that wait.
    fn make_small(&mut self) -> io::Result<()> {
        self.small.make(self.failures, &mut self.directories)
    }

    /// A file that is made together with others.
    fn small_file<R: Read>(
        &mut self,
        archive: &mut ArchiveReader<R>,
        bytes: u64,
        path: &Path,
        metadata: Metadata,
    ) -> io::Result<()> {
        if !self.small.has_room(path, bytes) {
            self.make_small()?;
        }
        let parent = self.parent(path)?;
        self.small.add(path, parent, metadata, bytes, |into| {
            if !into.is_empty() {
                archive.read(into).map_err(as_archive_error)?;
            }
            Ok(())
        })
    }

    fn file<R: Read>(
        &mut self,
        archive: &mut ArchiveReader<R>,
        bytes: u64,
        path: &Path,
        metadata: &Metadata,
    ) -> io::Result<()> {
        let parent = self.parent(path)?;
        let name = path.file_name().ok_or(Errno::ISDIR)?;
        let file = File::from(create(&parent, name, path, metadata, &mut self.directories)?);
        self.fill(archive, bytes, &file)?;
        metadata.set(file.as_fd(), parent.inheritance)
    }

    /// A file whose place may be that of another, which it becomes, whatever names that has and whichever links lead to
    /// it.
    fn file_in_place<R: Read>(
        &mut self,
        archive: &mut ArchiveReader<R>,
        bytes: u64,
        path: &Path,
        metadata: &Metadata,
    ) -> io::Result<()> {
        self.bounds.check(path)?;
        // A fifo would make us wait for somebody to read it.
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = File::from(open(path, flags, Mode::RUSR | Mode::WUSR)?);
        if !file.metadata()?.is_file() {
            return Err(Errno::INVAL.into());
        }
        fchmod(&file, Mode::RUSR | Mode::WUSR)?;
        file.set_len(0)?;
        self.fill(archive, bytes, &file)?;
        metadata.set(file.as_fd(), Inheritance { group: true, list: true })
    }

    fn fill<R: Read>(&mut self, archive: &mut ArchiveReader<R>, bytes: u64, file: &File) -> io::Result<()> {
        let mut end = 0;
        while let Some((offset, filled)) = archive.read(&mut self.buffer).map_err(as_archive_error)? {
            file.write_all_at(&self.buffer[..filled], offset)?;
            end = offset + filled as u64;
        }
        if end < bytes { file.set_len(bytes) } else { Ok(()) }
    }

    fn special(&mut self, path: &Path, metadata: &Metadata, kind: FileType, device: u64) -> io::Result<()> {
        let inheritance = self.parent(path)?.inheritance;
        let mode = metadata.first_mode(Inheritance { list: true, ..inheritance });
        self.make(path, |parent, name| mknodat(parent, name, kind, mode, device))?;
        metadata.set_special(path, inheritance)
    }

    /// Makes something in a directory that may not yet be there, in the place of a file, or of an empty directory, that
    /// may be.
    fn make(&mut self, path: &Path, make: impl Fn(&OwnedFd, &OsStr) -> Result<(), Errno>) -> io::Result<()> {
        let parent = self.parent(path)?;
        let name = path.file_name().ok_or(Errno::ISDIR)?;
        let replacing = || blockyard_archive::make(&*parent, name, |name| make(parent.directory(), name));
        match replacing() {
            Err(Errno::ISDIR) => {
                remove_directory(&parent, name, path, &mut self.directories)?;
                replacing()?;
            }
            made => made?,
        }
        Ok(())
    }

    fn parent(&mut self, path: &Path) -> io::Result<std::rc::Rc<Parent>> {
        // A file that waits may be where the directory shall be.
        let (small, failures, directories) = (&mut self.small, &mut *self.failures, &mut self.directories);
        let bounds = &self.bounds;
        self.parents.of(path, bounds, |parent| {
            small.make(failures, directories)?;
            directory(parent, DIRECTORY_MODE).map(drop)
        })
    }
}

/// Makes a file in a directory, whatever has its name, but for a directory with something in it.
fn create(
    parent: &Parent,
    name: impl Arg + Copy,
    path: &Path,
    metadata: &Metadata,
    directories: &mut Directories,
) -> io::Result<OwnedFd> {
    let make = || openat(parent, name, NEW_FILE, metadata.first_mode(parent.inheritance));
    let made = make().or_else(|errno| match errno {
        Errno::EXIST => unlinkat(parent, name, AtFlags::empty())
            .or_else(|errno| match errno {
                Errno::ISDIR => remove_directory(parent, name, path, directories),
                errno => Err(errno),
            })
            .and_then(|()| make()),
        errno => Err(errno),
    });
    Ok(made?)
}

/// Removes an empty directory, so that something else can be there.
fn remove_directory(parent: &Parent, name: impl Arg, path: &Path, directories: &mut Directories) -> Result<(), Errno> {
    unlinkat(parent, name, AtFlags::REMOVEDIR)?;
    directories.forget(path);
    Ok(())
}

/// Makes a directory and those above it, in the place of a file of its name; whether it is new.
fn directory(path: &Path, mode: u32) -> io::Result<bool> {
    let mut builder = DirBuilder::new();
    builder.mode(mode);
    let made = match builder.create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => return Ok(false),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            fs::remove_file(path)?;
            builder.create(path)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(directory_of(path))?;
            builder.create(path)
        }
        made => made,
    };
    made.map(|()| true)
}

fn failed(failures: &mut Failures, path: &Path, error: io::Error) {
    failures.note(path, "cannot unpack", Err(error));
}

/// A path of the archive below the directory that it is unpacked into: without a leading slash, and `None` with `..` in
/// it.
fn relative(path: &Path) -> Option<PathBuf> {
    let mut relative = PathBuf::new();
    for component in path.components() {
        match component {
            Component::Normal(part) => relative.push(part),
            Component::RootDir | Component::CurDir => {}
            Component::ParentDir | Component::Prefix(_) => return None,
        }
    }
    if relative.as_os_str().is_empty() {
        relative.push(".");
    }
    Some(relative)
}

/// Whether an error is one file's: of the system, or of names that its list has and nobody else. Behind it the archive
/// goes on.
fn is_files_own(error: &io::Error) -> bool {
    error.raw_os_error().is_some() || error.kind() == io::ErrorKind::NotFound
}

/// An error of the archive's, whatever it was made of.
fn as_archive_error(error: io::Error) -> io::Error {
    io::Error::other(error.to_string())
}
