//! Unpacking tar archives, whatever they are compressed with.

mod metadata;
mod parents;
mod small_files;

use crate::failures::{Failures, failure};
use crate::mounts::path_of;
use crate::stream::{SourceStream, TransferDisks};
use blockyard_archive::write_sparse;
use blockyard_protocol::appliance::{Failure, TarIn};
use metadata::{Metadata, set_time};
use parents::{Parent, Parents};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Timestamps, makedev, mknodat, openat, unlinkat};
use rustix::io::Errno;
use rustix::path::Arg;
use rustix::process::umask;
use small_files::SmallFiles;
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, symlink};
use std::path::{Component, Path, PathBuf};
use tar::{Archive, Entry, EntryType, Header};

/// Bytes of a large file that are unpacked at once.
const PIECE_BYTES: usize = 256 << 10;
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
            unpacker.all(flate2::read::MultiGzDecoder::new(io::BufReader::with_capacity(64 << 10, whole)))
        }
        [0x28, 0xb5, 0x2f, 0xfd] => zstd::Decoder::new(whole).and_then(|archive| unpacker.all(archive)),
        _ => unpacker.all(whole),
    };
    umask(before);
    unpacked
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
        let mut archive = Archive::new(archive);
        let read = archive.entries().and_then(|mut entries| entries.try_for_each(|entry| self.next(&mut entry?)));
        // What came before the archive's end is unpacked, wherever that is.
        let made = self.small.make(self.failures);
        for (path, mode, modified) in self.late.drain(..).rev() {
            let done =
                fs::set_permissions(&path, Permissions::from_mode(mode)).and_then(|()| set_time(&path, &modified));
            self.failures.note(&path, "cannot set the attributes of", done);
        }
        read.and(made)
    }

    fn next<R: Read>(&mut self, entry: &mut Entry<'_, R>) -> io::Result<()> {
        let Some(path) = relative(&entry.path()?) else {
            let sentence = "is not below the directory: left out";
            let path = entry.path_bytes().into_owned();
            self.failures.add(Failure { errno: 0, path, sentence: sentence.to_owned() });
            return Ok(());
        };
        // What cannot be read of the archive is the end; what cannot be written is one file's failure.
        match self.entry(entry, &path) {
            Err(error) if error.raw_os_error().is_some() => {
                failed(self.failures, &path, error);
                Ok(())
            }
            unpacked => unpacked,
        }
    }

    fn entry<R: Read>(&mut self, entry: &mut Entry<'_, R>, path: &Path) -> io::Result<()> {
        let metadata = Metadata::of(entry, self.own)?;
        let kind = entry.header().entry_type();
        let is_plain = matches!(kind, EntryType::Regular | EntryType::Continuous);
        if is_plain && SmallFiles::takes(entry.size()) {
            return self.small_file(entry, path, metadata);
        }
        // It may replace, or need, one of those that wait.
        self.small.make(self.failures)?;
        if is_plain || kind == EntryType::GNUSparse {
            return self.file(entry, path, &metadata);
        }
        self.parents.forget(path);
        match kind {
            EntryType::Directory => {
                directory(path, 0o700)?;
                self.late.push((path.to_owned(), metadata.mode, metadata.modified.clone()));
                metadata.set_owner(path)
            }
            EntryType::Symlink => {
                let target = link_target(entry)?;
                replacing(path, || symlink(&target, path))?;
                metadata.set_owner(path)?;
                set_time(path, &metadata.modified)
            }
            EntryType::Link => {
                let target = relative(&link_target(entry)?).ok_or(Errno::XDEV)?;
                // It is the other's file, whose attributes are set.
                replacing(path, || fs::hard_link(&target, path))
            }
            EntryType::Char | EntryType::Block | EntryType::Fifo => {
                replacing(path, || special(entry.header(), kind, path, metadata.mode()))?;
                metadata.set_owner(path)?;
                fs::set_permissions(path, Permissions::from_mode(metadata.mode))?;
                set_time(path, &metadata.modified)
            }
            // What is about other entries, or about the archive.
            _ => Ok(()),
        }
    }

    /// A file that is made together with others.
    fn small_file<R: Read>(&mut self, entry: &mut Entry<'_, R>, path: &Path, metadata: Metadata) -> io::Result<()> {
        let bytes = entry.size();
        if !self.small.has_room(path, bytes) {
            self.small.make(self.failures)?;
        }
        let parent = self.parent(path)?;
        self.small.add(path, parent, metadata, bytes, |into| match fill(entry, into)? {
            filled if filled < into.len() => Err(cut_short()),
            _ => Ok(()),
        })
    }

    fn file<R: Read>(&mut self, entry: &mut Entry<'_, R>, path: &Path, metadata: &Metadata) -> io::Result<()> {
        let parent = self.parent(path)?;
        let name = path.file_name().ok_or(Errno::ISDIR)?;
        let mut file = File::from(create(&parent, name, metadata.mode())?);
        let sparse = entry.header().entry_type() == EntryType::GNUSparse;
        let mut left = entry.size();
        loop {
            let filled = fill(entry, &mut self.buffer)?;
            if filled == 0 {
                break;
            }
            left = left.saturating_sub(filled as u64);
            let data = &self.buffer[..filled];
            if sparse { write_sparse(&mut file, data)? } else { file.write_all(data)? }
        }
        if left > 0 {
            return Err(cut_short());
        }
        if sparse {
            let end = file.stream_position()?;
            file.set_len(end)?;
        }
        metadata.set(file.as_fd(), parent.bequeaths)
    }

    fn parent(&mut self, path: &Path) -> io::Result<std::rc::Rc<Parent>> {
        // A file that waits may be where the directory shall be.
        let (small, failures) = (&mut self.small, &mut *self.failures);
        self.parents.of(path, |parent| {
            small.make(failures)?;
            directory(parent, DIRECTORY_MODE)
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

/// Makes a directory and those above it; a file of its name is removed.
fn directory(path: &Path, mode: u32) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.mode(mode);
    match builder.create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && !path.is_dir() => {
            fs::remove_file(path)?;
            builder.create(path)
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(path.parent().unwrap_or(Path::new(".")))?;
            builder.create(path)
        }
        made => made,
    }
}

fn failed(failures: &mut Failures, path: &Path, error: io::Error) {
    failures.note(path, "cannot unpack", Err(error));
}

fn cut_short() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "it ends in a file")
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

fn link_target<R: Read>(entry: &Entry<'_, R>) -> io::Result<PathBuf> {
    let target = entry.link_name_bytes().ok_or_else(|| io::Error::other("a link without a target"))?;
    Ok(Path::new(OsStr::from_bytes(&target)).to_owned())
}

/// Makes something where a file may be already, or the directory is not yet there.
fn replacing(path: &Path, make: impl Fn() -> io::Result<()>) -> io::Result<()> {
    match make() {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            fs::remove_file(path)?;
            make()
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            directory(path.parent().unwrap_or(Path::new(".")), DIRECTORY_MODE)?;
            make()
        }
        made => made,
    }
}

fn special(header: &Header, kind: EntryType, path: &Path, mode: Mode) -> io::Result<()> {
    let file_type = match kind {
        EntryType::Char => FileType::CharacterDevice,
        EntryType::Block => FileType::BlockDevice,
        _ => FileType::Fifo,
    };
    let number = |number: io::Result<Option<u32>>| Ok::<_, io::Error>(number?.unwrap_or_default());
    let device = makedev(number(header.device_major())?, number(header.device_minor())?);
    Ok(mknodat(CWD, path, file_type, mode, device)?)
}

/// Reads until `buffer` is full or the entry ends.
fn fill(entry: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match entry.read(&mut buffer[filled..]).map_err(as_archive_error)? {
            0 => break,
            bytes => filled += bytes,
        }
    }
    Ok(filled)
}

/// An error of the archive's, whatever it was made of.
fn as_archive_error(error: io::Error) -> io::Error {
    io::Error::other(error.to_string())
}
