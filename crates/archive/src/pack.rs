//! Packing.

use crate::extended_attributes::Attributed;
use crate::extended_header::Records;
use crate::file_data::{FileData, describe_holes, ranges};
use crate::{Report, Status};
use rustix::fs::{Advice, Mode, OFlags, ResolveFlags, fadvise, open, openat2, readlinkat};
use std::collections::HashMap;
use std::ffi::{CString, OsString};
use std::fs::{self, File, FileType, Metadata};
use std::io::{self, BufReader, Read, Write};
use std::num::NonZeroU64;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use tar::{Builder, EntryType, Header};

/// Files with several names that are remembered.
const LINKS_MAX: usize = 1 << 20;
/// What GNU tar calls what is no file.
const LONG_LINK: &[u8] = b"././@LongLink";
/// Files that are open at once: the one that is packed, and those after it.
const OPEN_AHEAD: usize = 64;
/// How much of each is read ahead.
const AHEAD_BYTES: u64 = 256 << 10;
/// Files up to this length are read at once.
const SMALL_BYTES: u64 = 256 << 10;

/// A file, or a directory with all below it.
#[derive(Clone, Debug)]
pub struct Source {
    /// Where it is.
    pub path: PathBuf,
    /// What it is called in the archive.
    pub name: PathBuf,
}

/// Writes an archive of `sources` to `output`: owners, permissions, access control lists, extended attributes, times,
/// hard links, holes, devices and sockets are kept. What cannot be read is reported and left out; a file that becomes
/// shorter while it is read is reported, and has zeros at its end.
///
/// # Errors
/// When `output` takes no more, or a file cannot be read on: the archive is of no use then.
pub fn pack<W: Write>(sources: &[Source], output: W, report: &mut Report<'_>) -> io::Result<W> {
    pack_with(&mut OneByOne::default(), Sockets::Packed, sources, output, report)
}

/// What becomes of sockets, which star alone has a word for: others make them empty files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sockets {
    /// They are packed as star does it: for [`ArchiveReader`](crate::ArchiveReader).
    Packed,
    /// They are left out, and reported with [`io::ErrorKind::Unsupported`].
    LeftOut,
}

/// Somebody who opens files for whom a call for many of them costs less than many calls.
pub trait Opener {
    /// What is packed from now on is the file at `top`, or a directory and what is below it.
    fn enter(&mut self, _top: &Path) {}

    /// The names in a directory, and what each is.
    ///
    /// # Errors
    /// When it cannot be read.
    fn list(&mut self, path: &Path) -> io::Result<Vec<(OsString, FileType)>> {
        names(&mut fs::read_dir(path)?)
    }

    /// Opens at most 64 files for reading: through no link, without waiting for anything, and having their beginnings
    /// read ahead. One result for each, in order.
    fn open(&mut self, paths: &[&Path]) -> Vec<io::Result<(File, Status)>>;

    /// The first bytes of the `index`th of the files that were opened last, as far as they are known.
    fn beginning(&self, index: usize) -> &[u8];

    /// Whether a file is to be packed under that name; what is in a directory that is not, is not either.
    fn wants(&self, _name: &Path) -> bool {
        true
    }

    /// Looks at a file that is not opened, through no link.
    ///
    /// # Errors
    /// When it is not there, or cannot be looked at.
    fn look(&mut self, path: &Path) -> io::Result<Seen> {
        let metadata = fs::symlink_metadata(path)?;
        let target = metadata.is_symlink().then(|| fs::read_link(path)).transpose()?;
        let target = target.map(|target| target.into_os_string().into_encoded_bytes());
        Ok(Seen { metadata, target, attributes: Attributed::Named(path).attributes() })
    }

    /// Closes files.
    fn close(&mut self, files: Vec<File>);
}

/// What is known of a file that was not opened.
#[derive(Debug)]
pub struct Seen {
    metadata: Metadata,
    /// Where it leads to, if it is a symbolic link.
    target: Option<Vec<u8>>,
    /// Its extended attributes: names and values.
    attributes: io::Result<Vec<(Vec<u8>, Vec<u8>)>>,
}

/// As [`pack()`], with files that `opener` opens.
///
/// # Errors
/// As there.
pub fn pack_with<W: Write>(
    opener: &mut dyn Opener,
    sockets: Sockets,
    sources: &[Source],
    output: W,
    report: &mut Report<'_>,
) -> io::Result<W> {
    let mut builder = Builder::new(output);
    builder.follow_symlinks(false);
    let mut packer = Packer { builder, opener, sockets, links: HashMap::new(), report, buffer: Vec::new() };
    sources.iter().try_for_each(|source| packer.tree(source))?;
    packer.builder.into_inner()
}

struct Packer<'report, 'r, W: Write> {
    builder: Builder<W>,
    opener: &'report mut dyn Opener,
    sockets: Sockets,
    /// The first name of files that have several.
    links: HashMap<(u64, u64), PathBuf>,
    report: &'report mut Report<'r>,
    buffer: Vec<u8>,
}

impl<W: Write> Packer<'_, '_, W> {
    fn tree(&mut self, source: &Source) -> io::Result<()> {
        self.opener.enter(&source.path);
        let mut pending = vec![source.clone()];
        while let Some(source) = pending.pop() {
            let seen = match self.opener.look(&source.path) {
                Ok(seen) => seen,
                Err(error) => {
                    (self.report)(&source.path, "cannot access", error);
                    continue;
                }
            };
            let is_directory = seen.metadata.is_dir();
            if seen.metadata.is_file() {
                self.regulars(std::slice::from_ref(&source))?;
            } else {
                self.other(&source, seen)?;
            }
            if is_directory {
                let below = self.directory(&source)?;
                pending.extend(below.into_iter().rev());
            }
        }
        Ok(())
    }

    /// Packs what is in a directory, but for the directories among it, which it returns.
    fn directory(&mut self, source: &Source) -> io::Result<Vec<Source>> {
        let mut entries = match self.opener.list(&source.path) {
            Ok(entries) => entries,
            Err(error) => {
                (self.report)(&source.path, "cannot list", error);
                return Ok(Vec::new());
            }
        };
        entries.retain(|(file, _)| self.opener.wants(&source.name.join(file)));
        entries.sort_by(|left, right| left.0.cmp(&right.0));
        let mut below = Vec::new();
        for window in entries.chunks(OPEN_AHEAD) {
            let sources = window
                .iter()
                .map(|(file, kind)| (Source { path: source.path.join(file), name: source.name.join(file) }, kind));
            let (files, others): (Vec<_>, Vec<_>) = sources.partition(|(_, kind)| kind.is_file());
            let files: Vec<_> = files.into_iter().map(|(file, _)| file).collect();
            self.regulars(&files)?;
            for (file, kind) in others {
                if kind.is_dir() {
                    below.push(file);
                    continue;
                }
                match self.opener.look(&file.path) {
                    Ok(seen) => self.other(&file, seen)?,
                    Err(error) => (self.report)(&file.path, "cannot access", error),
                }
            }
        }
        Ok(below)
    }

    /// Regular files, at most [`OPEN_AHEAD`]: the disk reads all of them while the first is packed.
    fn regulars(&mut self, sources: &[Source]) -> io::Result<()> {
        let paths: Vec<_> = sources.iter().map(|source| source.path.as_path()).collect();
        let mut done = Vec::with_capacity(sources.len());
        for (index, (source, opened)) in sources.iter().zip(self.opener.open(&paths)).enumerate() {
            match opened {
                Ok((file, status)) if status.is_file() => {
                    self.regular(source, &status, &file, index)?;
                    done.push(file);
                }
                Ok(_) => (self.report)(&source.path, "cannot open", io::Error::other("it is another file now")),
                Err(error) => (self.report)(&source.path, "cannot open", error),
            }
        }
        self.opener.close(done);
        Ok(())
    }

    /// The `index`th of those that were opened last.
    fn regular(&mut self, source: &Source, status: &Status, file: &File, index: usize) -> io::Result<()> {
        if self.is_link(&source.name, status)? {
            return Ok(());
        }
        let (mut header, records) = self.description(source, status, Attributed::Open(file).attributes())?;
        let length = status.size;
        header.set_size(length);
        let with_holes = status.blocks.saturating_mul(512) < length;
        let whole = usize::try_from(length).ok().and_then(|length| self.opener.beginning(index).get(..length));
        if let Some(data) = whole.filter(|_| !with_holes) {
            return append(&mut self.builder, &source.name, header, &records, data);
        }
        if let Some(ranges) = with_holes.then(|| ranges(file, length)).flatten() {
            let holes = describe_holes(&mut header, &ranges, length)?;
            let mut data = FileData::new(file, ranges);
            let read = BufReader::with_capacity(SMALL_BYTES as usize, &mut data);
            append(&mut self.builder, &source.name, header, &records, holes.chain(read)).map_err(of(&source.path))?;
            return self.tell_if_cut_short(data.cut_short, source);
        }
        let mut data = FileData::new(file, vec![(0, length)]);
        if length > SMALL_BYTES {
            let read = BufReader::with_capacity(SMALL_BYTES as usize, &mut data);
            append(&mut self.builder, &source.name, header, &records, read).map_err(of(&source.path))?;
            return self.tell_if_cut_short(data.cut_short, source);
        }
        self.buffer.resize(length as usize, 0);
        if let Err(error) = data.read_exact(&mut self.buffer) {
            (self.report)(&source.path, "cannot read", error);
            return Ok(());
        }
        append(&mut self.builder, &source.name, header, &records, &self.buffer[..])?;
        self.tell_if_cut_short(data.cut_short, source)
    }

    fn tell_if_cut_short(&mut self, cut_short: bool, source: &Source) -> io::Result<()> {
        if cut_short {
            let error = io::Error::other("it became shorter while it was read");
            (self.report)(&source.path, "has zeros at its end now", error);
        }
        Ok(())
    }

    /// Anything else.
    fn other(&mut self, source: &Source, seen: Seen) -> io::Result<()> {
        let Seen { metadata, target, attributes } = seen;
        let status = Status::from(&metadata);
        if status.is_socket() && self.sockets == Sockets::LeftOut {
            let error = io::Error::new(io::ErrorKind::Unsupported, "it is a socket, which archives have no word for");
            (self.report)(&source.path, "left out", error);
            return Ok(());
        }
        if self.is_link(&source.name, &status)? {
            return Ok(());
        }
        let (header, records) = self.description(source, &status, attributes)?;
        append_link(&mut self.builder, &source.name, header, &records, target.as_deref())
    }

    /// Packs a file that is in the archive already, under another name; false when it is not.
    fn is_link(&mut self, name: &Path, status: &Status) -> io::Result<bool> {
        let Some(first) = self.first_name(name, status) else { return Ok(false) };
        let mut header = status.header()?;
        header.set_entry_type(EntryType::Link);
        let target = first.as_os_str().as_bytes();
        append_link(&mut self.builder, name, header, &Records::default(), Some(target)).map(|()| true)
    }

    /// The file's own header, and what comes before it.
    fn description(
        &mut self,
        source: &Source,
        status: &Status,
        attributes: io::Result<Vec<(Vec<u8>, Vec<u8>)>>,
    ) -> io::Result<(Header, Records)> {
        let attributes = attributes.unwrap_or_else(|error| {
            (self.report)(&source.path, "cannot read the extended attributes of", error);
            Vec::new()
        });
        Ok((status.header_with(&attributes)?, status.records(&attributes)))
    }

    /// Another name of the same file, that is in the archive already.
    fn first_name(&mut self, name: &Path, status: &Status) -> Option<PathBuf> {
        if status.links < 2 || status.is_directory() {
            return None;
        }
        let file = (status.device, status.inode);
        let known = self.links.get(&file).cloned();
        if known.is_none() && self.links.len() < LINKS_MAX {
            self.links.insert(file, name.to_owned());
        }
        known
    }
}

/// Writes a file that has a target, if it has one, and no data.
fn append_link<W: Write>(
    builder: &mut Builder<W>,
    name: &Path,
    mut header: Header,
    records: &Records,
    target: Option<&[u8]>,
) -> io::Result<()> {
    let target = target.unwrap_or_default();
    // As it is: the crate's own way to write one tidies it up.
    if header.set_link_name_literal(target).is_err() {
        let text = [target, b"\0"].concat();
        builder.append(&description(EntryType::GNULongLink, text.len()), &text[..])?;
        let room = header.as_old().linkname.len();
        header.set_link_name_literal(&target[..target.len().min(room)])?;
    }
    append(builder, name, header, records, io::empty())
}

/// Writes a file of the archive, after the records that describe it.
fn append<W: Write>(
    builder: &mut Builder<W>,
    name: &Path,
    mut header: Header,
    records: &Records,
    data: impl Read,
) -> io::Result<()> {
    let records = records.bytes();
    if !records.is_empty() {
        builder.append(&description(EntryType::XHeader, records.len()), records)?;
    }
    // The crate leaves `./` out of short names only.
    let name = name.strip_prefix(".").ok().filter(|name| !name.as_os_str().is_empty()).unwrap_or(name);
    builder.append_data(&mut header, name, data)
}

/// The header of something that describes the file after it.
fn description(kind: EntryType, bytes: usize) -> Header {
    let mut header = Header::new_gnu();
    header.as_old_mut().name[..LONG_LINK.len()].copy_from_slice(LONG_LINK);
    header.set_entry_type(kind);
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(bytes as u64);
    header.set_cksum();
    header
}

/// An error that says which file it is of.
fn of(path: &Path) -> impl FnOnce(io::Error) -> io::Error {
    move |error| io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// How files are opened that are packed: what is no regular file any more must not make us wait, or lead elsewhere.
pub const OPEN_FLAGS: OFlags = OFlags::RDONLY.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);

fn names(entries: &mut fs::ReadDir) -> io::Result<Vec<(OsString, FileType)>> {
    entries.map(|entry| entry.and_then(|entry| Ok((entry.file_name(), entry.file_type()?)))).collect()
}

/// One call for each file. What is below a directory is reached from there through no symbolic link, on the way
/// neither: who owns a part of the tree may put a link in a directory's place while it is packed.
#[derive(Default)]
struct OneByOne {
    /// Where the directory was found, and the directory.
    top: Option<(PathBuf, OwnedFd)>,
}

impl OneByOne {
    fn open_below(&self, path: &Path, flags: OFlags) -> io::Result<File> {
        let below = self.top.as_ref().and_then(|(top, directory)| Some((path.strip_prefix(top).ok()?, directory)));
        Ok(File::from(match below {
            None => open(path, flags, Mode::empty())?,
            Some((below, directory)) => {
                let below = if below.as_os_str().is_empty() { Path::new(".") } else { below };
                openat2(directory, below, flags, Mode::empty(), ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS)?
            }
        }))
    }
}

impl Opener for OneByOne {
    fn enter(&mut self, top: &Path) {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // What is no directory has nothing below it.
        self.top = open(top, flags, Mode::empty()).ok().map(|directory| (top.to_owned(), directory));
    }

    fn list(&mut self, path: &Path) -> io::Result<Vec<(OsString, FileType)>> {
        let directory = self.open_below(path, OPEN_FLAGS | OFlags::DIRECTORY)?;
        let entries = match fs::read_dir(format!("/proc/self/fd/{}", directory.as_raw_fd())) {
            // There is no /proc here.
            Err(error) if error.kind() == io::ErrorKind::NotFound => fs::read_dir(path),
            entries => entries,
        };
        names(&mut entries?)
    }

    fn open(&mut self, paths: &[&Path]) -> Vec<io::Result<(File, Status)>> {
        let open = |path: &&Path| {
            let file = self.open_below(path, OPEN_FLAGS)?;
            // Without, it is read when it is packed.
            let _ = fadvise(&file, 0, NonZeroU64::new(AHEAD_BYTES), Advice::WillNeed);
            let status = Status::from(&file.metadata()?);
            Ok((file, status))
        };
        paths.iter().map(open).collect()
    }

    fn beginning(&self, _: usize) -> &[u8] {
        &[]
    }

    fn look(&mut self, path: &Path) -> io::Result<Seen> {
        let seen = self.open_below(path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC)?;
        let metadata = seen.metadata()?;
        let target = metadata.is_symlink().then(|| readlinkat(&seen, "", Vec::new())).transpose()?;
        let attributes = Attributed::Seen(&seen, path).attributes();
        Ok(Seen { metadata, target: target.map(CString::into_bytes), attributes })
    }

    fn close(&mut self, files: Vec<File>) {
        drop(files);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// An archive's reader who owns a part of what is packed.
    struct Swapping<'a> {
        tree: &'a Path,
        /// The header behind which it puts a link in the place of `below`.
        behind: &'a [u8],
        bytes: Vec<u8>,
    }

    impl Write for Swapping<'_> {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.bytes.extend_from_slice(bytes);
            if bytes.starts_with(self.behind) && !self.tree.join("moved").exists() {
                fs::rename(self.tree.join("below"), self.tree.join("moved")).unwrap();
                symlink("../secret", self.tree.join("below")).unwrap();
            }
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_link_that_takes_a_directorys_place_meanwhile_leads_nowhere() {
        let directory = tempfile::tempdir().unwrap();
        let [tree, secret] = ["tree", "secret"].map(|name| directory.path().join(name));
        fs::create_dir_all(tree.join("below")).unwrap();
        fs::create_dir(&secret).unwrap();
        fs::write(tree.join("a"), "first").unwrap();
        fs::write(tree.join("below/file"), "own").unwrap();
        fs::write(secret.join("file"), "hidden").unwrap();
        let mut reports = Vec::new();
        let sources = [Source { path: tree.clone(), name: "tree".into() }];
        // It is listed next.
        let output = Swapping { tree: &tree, behind: b"tree/below", bytes: Vec::new() };
        let packed = pack(&sources, output, &mut |path, what, error| reports.push(format!("{path:?} {what} {error}")));
        let bytes = packed.unwrap().bytes;
        let holds = |text: &str| bytes.windows(text.len()).any(|window| window == text.as_bytes());
        assert!(holds("first") && !holds("hidden") && !holds("own"), "{reports:?}");
        assert!(matches!(&reports[..], [report] if report.contains("cannot list")), "{reports:?}");
    }

    /// Nor is what is not opened that of somewhere else: links, devices, and what is said of them.
    #[test]
    fn what_is_told_of_links_is_of_those_in_the_tree() {
        let directory = tempfile::tempdir().unwrap();
        let [tree, secret] = ["tree", "secret"].map(|name| directory.path().join(name));
        fs::create_dir_all(tree.join("below")).unwrap();
        fs::create_dir(&secret).unwrap();
        fs::write(tree.join("below/a"), "first").unwrap();
        symlink("its-own", tree.join("below/link")).unwrap();
        symlink("hidden", secret.join("link")).unwrap();
        let pack_behind = |behind: &[u8]| {
            let mut reports = Vec::new();
            let sources = [Source { path: tree.clone(), name: "tree".into() }];
            let output = Swapping { tree: &tree, behind, bytes: Vec::new() };
            let report = &mut |path: &Path, what: &str, error| reports.push(format!("{path:?} {what} {error}"));
            (pack(&sources, output, report).unwrap().bytes, reports)
        };
        let holds = |bytes: &[u8], text: &str| bytes.windows(text.len()).any(|window| window == text.as_bytes());
        let (bytes, reports) = pack_behind(b"nothing");
        assert!(holds(&bytes, "its-own") && reports.is_empty(), "{reports:?}");
        // It has been listed.
        let (bytes, reports) = pack_behind(b"tree/below/a");
        assert!(holds(&bytes, "first") && !holds(&bytes, "hidden"), "{reports:?}");
        assert!(matches!(&reports[..], [report] if report.contains("cannot access")), "{reports:?}");
    }
}
