//! Unpacking tar archives, whatever they are compressed with.

mod metadata;
mod parents;
mod small_files;

use crate::failures::{Failures, failure};
use crate::mounts::path_of;
use crate::stream::{SourceStream, TransferDisks};
use blockyard_archive::{ArchiveReader, Member, MemberKind};
use blockyard_protocol::appliance::{Failure, TarIn};
use metadata::{Metadata, finish_directory, set_time};
use parents::{Parent, Parents};
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, Timestamps, linkat, makedev, mknodat, openat, symlinkat, unlinkat,
};
use rustix::io::Errno;
use rustix::path::Arg;
use rustix::process::umask;
use small_files::SmallFiles;
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileExt, PermissionsExt};
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
    unpacked.map_err(|error| failure(Path::new(""), "cannot unpack the archive", &error))?;
    finished.map_err(bad("cannot read the archive"))?;
    Ok(stream.total)
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
        failures,
        late: Vec::new(),
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
    failures: &'request mut Failures,
    /// Directories, whose times change with what is put into them, and whose permissions may forbid it.
    late: Vec<(PathBuf, u32, Timestamps)>,
    parents: Parents,
    /// Files that have come, and are made when there are enough of them.
    small: SmallFiles,
    buffer: Vec<u8>,
}

impl Unpacker<'_> {
    fn all(&mut self, archive: impl Read) -> io::Result<()> {
        let read = self.members(&mut ArchiveReader::new(archive));
        // What came before the archive's end is unpacked, wherever that is.
        let made = self.small.make(self.failures);
        for (path, mode, modified) in self.late.drain(..).rev() {
            let done = finish_directory(&path, mode, &modified);
            self.failures.note(&path, "cannot set the attributes of", done);
        }
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
                Err(error) if error.raw_os_error().is_some() => failed(self.failures, &path, error),
                unpacked => unpacked?,
            }
        }
        Ok(())
    }

    fn member<R: Read>(&mut self, archive: &mut ArchiveReader<R>, member: &mut Member, path: &Path) -> io::Result<()> {
        let metadata = Metadata::of(member, self.own);
        if member.kind == MemberKind::File && !member.is_sparse && SmallFiles::takes(member.size) {
            return self.small_file(archive, member.size, path, metadata);
        }
        // It may replace, or need, one of those that wait.
        self.small.make(self.failures)?;
        if member.kind == MemberKind::File {
            return self.file(archive, member.size, path, &metadata);
        }
        self.parents.forget(path);
        match &member.kind {
            MemberKind::Directory => {
                let is_new = directory(path, 0o700)?;
                self.late.push((path.to_owned(), metadata.mode, metadata.modified.clone()));
                metadata.set_directory_owner(path, is_new)
            }
            MemberKind::Symlink(target) => {
                self.make(path, |parent, name| symlinkat(target, parent, name))?;
                metadata.set_owner(path)?;
                set_time(path, &metadata.modified)
            }
            MemberKind::HardLink(target) => {
                let target = relative(target).ok_or(Errno::XDEV)?;
                // It is the other's file, whose attributes are set; it may have this name already.
                self.make(path, |parent, name| linkat(CWD, &target, parent, name, AtFlags::empty()))
            }
            MemberKind::CharacterDevice(major, minor) => {
                self.special(path, &metadata, FileType::CharacterDevice, makedev(*major, *minor))
            }
            MemberKind::BlockDevice(major, minor) => {
                self.special(path, &metadata, FileType::BlockDevice, makedev(*major, *minor))
            }
            MemberKind::Fifo => self.special(path, &metadata, FileType::Fifo, 0),
            MemberKind::File | MemberKind::Continuation => {
                let sentence = "is the rest of a file in another archive: left out".to_owned();
                self.failures.add(Failure { errno: 0, path: path.as_os_str().as_bytes().to_vec(), sentence });
                Ok(())
            }
        }
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
            self.small.make(self.failures)?;
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
        let file = File::from(create(&parent, name, metadata.mode())?);
        let mut end = 0;
        while let Some((offset, filled)) = archive.read(&mut self.buffer).map_err(as_archive_error)? {
            file.write_all_at(&self.buffer[..filled], offset)?;
            end = offset + filled as u64;
        }
        if end < bytes {
            file.set_len(bytes)?;
        }
        metadata.set(file.as_fd(), parent.bequeaths)
    }

    fn special(&mut self, path: &Path, metadata: &Metadata, kind: FileType, device: u64) -> io::Result<()> {
        self.make(path, |parent, name| mknodat(parent, name, kind, metadata.mode(), device))?;
        metadata.set_owner(path)?;
        fs::set_permissions(path, Permissions::from_mode(metadata.mode))?;
        set_time(path, &metadata.modified)
    }

    /// Makes something in a directory that may not yet be there, in the place of a file that may be.
    fn make(&mut self, path: &Path, make: impl Fn(&OwnedFd, &OsStr) -> Result<(), Errno>) -> io::Result<()> {
        let parent = self.parent(path)?;
        let name = path.file_name().ok_or(Errno::ISDIR)?;
        Ok(blockyard_archive::make(&*parent, name, |name| make(parent.directory(), name))?)
    }

    fn parent(&mut self, path: &Path) -> io::Result<std::rc::Rc<Parent>> {
        // A file that waits may be where the directory shall be.
        let (small, failures) = (&mut self.small, &mut *self.failures);
        self.parents.of(path, |parent| {
            small.make(failures)?;
            directory(parent, DIRECTORY_MODE).map(drop)
        })
    }
}

/// Makes a file in a directory, whatever has its name.
fn create(parent: &Parent, name: impl Arg + Copy, mode: Mode) -> io::Result<OwnedFd> {
    let make = || openat(parent, name, NEW_FILE, mode);
    let made = make().or_else(|errno| match errno {
        Errno::EXIST => unlinkat(parent, name, AtFlags::empty()).and_then(|()| make()),
        errno => Err(errno),
    });
    Ok(made?)
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
            DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(path.parent().unwrap_or(Path::new(".")))?;
            builder.create(path)
        }
        made => made,
    };
    made.map(|()| true)
}

fn failed(failures: &mut Failures, path: &Path, error: io::Error) {
    failures.note(path, "cannot unpack", Err(error));
}

/// A path of the archive below the directory that it is unpacked into: without a leading slash, and `None` with `..` in it.
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

/// An error of the archive's, whatever it was made of.
fn as_archive_error(error: io::Error) -> io::Error {
    io::Error::other(error.to_string())
}
