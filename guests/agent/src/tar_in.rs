//! Unpacking tar archives, whatever they are compressed with.

use crate::failures::{Failures, failure};
use crate::mounts::path_of;
use crate::stream::{SourceStream, TransferDisks};
use blockyard_archive::write_sparse;
use blockyard_protocol::appliance::{Failure, TarIn};
use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, Timespec, Timestamps, Uid, XattrFlags, chownat, lsetxattr, makedev, mknodat,
    utimensat,
};
use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Component, Path, PathBuf};
use tar::{Archive, Entry, EntryType, Header};

/// Bytes that are unpacked at once.
const PIECE_BYTES: usize = 256 << 10;
/// How pax archives name an extended attribute.
const XATTR: &str = "SCHILY.xattr.";

/// Unpacks the archive on the source disk; how many bytes it had as it came.
pub(crate) fn unpack(request: &TarIn, disks: &TransferDisks, failures: &mut Failures) -> Result<u64, Failure> {
    let directory = path_of(&request.directory);
    let bad = |what: &'static str| move |error: io::Error| failure(directory, what, &error);
    if !request.into {
        DirBuilder::new().recursive(true).mode(0o755).create(directory).map_err(bad("cannot make the directory"))?;
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
    let mut unpacker = Unpacker { own: request.own, failures, late: Vec::new(), buffer: vec![0; PIECE_BYTES] };
    match magic {
        [0x1f, 0x8b, ..] => {
            unpacker.all(flate2::read::MultiGzDecoder::new(io::BufReader::with_capacity(64 << 10, whole)))
        }
        [0x28, 0xb5, 0x2f, 0xfd] => unpacker.all(zstd::Decoder::new(whole)?),
        _ => unpacker.all(whole),
    }
}

struct Unpacker<'request> {
    own: bool,
    failures: &'request mut Failures,
    /// Directories, whose times change with what is put into them, and whose permissions may forbid it.
    late: Vec<(PathBuf, u32, u64)>,
    buffer: Vec<u8>,
}

impl Unpacker<'_> {
    fn all(&mut self, archive: impl Read) -> io::Result<()> {
        let mut archive = Archive::new(archive);
        for entry in archive.entries()? {
            let mut entry = entry?;
            let Some(path) = relative(&entry.path()?) else {
                let sentence = "is not below the directory: left out";
                let path = entry.path_bytes().into_owned();
                self.failures.add(Failure { errno: 0, path, sentence: sentence.to_owned() });
                continue;
            };
            let unpacked = self.entry(&mut entry, &path);
            // What cannot be read of the archive is the end; what cannot be written is one file's failure.
            match unpacked {
                Err(error) if error.raw_os_error().is_none() => return Err(error),
                unpacked => self.failures.note(&path, "cannot unpack", unpacked),
            }
        }
        for (path, mode, modified) in self.late.drain(..).rev() {
            let done =
                fs::set_permissions(&path, Permissions::from_mode(mode)).and_then(|()| set_time(&path, modified));
            self.failures.note(&path, "cannot set the attributes of", done);
        }
        Ok(())
    }

    fn entry<R: Read>(&mut self, entry: &mut Entry<'_, R>, path: &Path) -> io::Result<()> {
        let header = entry.header().clone();
        let mode = header.mode()? & 0o7777;
        let kind = header.entry_type();
        match kind {
            EntryType::Directory => self.directory(path)?,
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => self.file(entry, path, mode)?,
            EntryType::Symlink => {
                let target = link_target(entry)?;
                replacing(path, || symlink(&target, path))?;
            }
            EntryType::Link => {
                let target = relative(&link_target(entry)?);
                let target =
                    target.ok_or_else(|| io::Error::from_raw_os_error(rustix::io::Errno::XDEV.raw_os_error()))?;
                // It is the other's file, whose attributes are set.
                return replacing(path, || fs::hard_link(&target, path));
            }
            EntryType::Char | EntryType::Block | EntryType::Fifo => {
                replacing(path, || special(&header, kind, path, mode))?
            }
            // What is about other entries, or about the archive.
            _ => return Ok(()),
        }
        self.attributes(entry, path, mode)
    }

    fn directory(&self, path: &Path) -> io::Result<()> {
        match DirBuilder::new().recursive(true).mode(0o700).create(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                fs::remove_file(path)?;
                DirBuilder::new().mode(0o700).create(path)
            }
            made => made,
        }
    }

    fn file<R: Read>(&mut self, entry: &mut Entry<'_, R>, path: &Path, mode: u32) -> io::Result<()> {
        let create = || File::options().write(true).create_new(true).mode(mode & 0o777).open(path);
        let mut file = match create() {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                fs::remove_file(path)?;
                create()?
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.directory(path.parent().unwrap_or(Path::new(".")))?;
                create()?
            }
            file => file?,
        };
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
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it ends in a file"));
        }
        if sparse {
            let end = file.stream_position()?;
            file.set_len(end)?;
        }
        Ok(())
    }

    /// Owner, permissions, extended attributes and time, in the order that leaves none of them changed by the next.
    fn attributes<R: Read>(&mut self, entry: &mut Entry<'_, R>, path: &Path, mode: u32) -> io::Result<()> {
        let header = entry.header().clone();
        let (user, group) = if self.own { (header.uid()?, header.gid()?) } else { (0, 0) };
        let (user, group) = (user.min(u64::from(u32::MAX - 1)) as u32, group.min(u64::from(u32::MAX - 1)) as u32);
        if (user, group) != (0, 0) {
            chownat(CWD, path, Some(Uid::from_raw(user)), Some(Gid::from_raw(group)), AtFlags::SYMLINK_NOFOLLOW)?;
        }
        let kind = header.entry_type();
        if let Some(extensions) = entry.pax_extensions()? {
            for extension in extensions.flatten() {
                let name = extension.key().ok().and_then(|key| key.strip_prefix(XATTR));
                if let Some(name) = name {
                    lsetxattr(path, name, extension.value_bytes(), XattrFlags::empty())?;
                }
            }
        }
        let modified = header.mtime()?;
        match kind {
            EntryType::Directory => {
                self.late.push((path.to_owned(), mode, modified));
                return Ok(());
            }
            EntryType::Symlink => {}
            _ => fs::set_permissions(path, Permissions::from_mode(mode))?,
        }
        set_time(path, modified)
    }
}

fn set_time(path: &Path, modified: u64) -> io::Result<()> {
    let time = Timespec { tv_sec: i64::try_from(modified).unwrap_or(i64::MAX), tv_nsec: 0 };
    let times = Timestamps { last_access: time, last_modification: time };
    Ok(utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)?)
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
    Ok(Path::new(std::ffi::OsStr::from_bytes(&target)).to_owned())
}

/// Makes something where a file may be already, or the directory is not yet there.
fn replacing(path: &Path, make: impl Fn() -> io::Result<()>) -> io::Result<()> {
    match make() {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            fs::remove_file(path)?;
            make()
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            fs::create_dir_all(path.parent().unwrap_or(Path::new(".")))?;
            make()
        }
        made => made,
    }
}

fn special(header: &Header, kind: EntryType, path: &Path, mode: u32) -> io::Result<()> {
    let file_type = match kind {
        EntryType::Char => FileType::CharacterDevice,
        EntryType::Block => FileType::BlockDevice,
        _ => FileType::Fifo,
    };
    let number = |number: io::Result<Option<u32>>| Ok::<_, io::Error>(number?.unwrap_or_default());
    let device = makedev(number(header.device_major())?, number(header.device_minor())?);
    Ok(mknodat(CWD, path, file_type, Mode::from_raw_mode(mode), device)?)
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
