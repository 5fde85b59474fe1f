//! Copying files and trees of the host into an image.
//!
//! A single file is a disk: the guest reads the host's file directly. A tree is a stream that is a tar archive.

use super::copy_names::{Made, name_of_copy};
use super::file_type::is_directory;
use super::host_attributes::attributes_within;
use super::host_tree::PackedTree;
use crate::error::{Context, Error, Result, refuse};
use crate::guest::failures::each;
use crate::guest::{OpenImage, image_path, path_of, read_in};
use blockyard_archive::Source;
use blockyard_block::{Disk, ExtentKind, FileDisk, FileOptions, OpenedFile, shown};
use blockyard_protocol::appliance::{Attribute, Operation, Range, Store, TarIn};
use std::ffi::{OsStr, OsString};
use std::fs::{self, Metadata};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// Ranges of a sparse file that a request has room for; one with more is copied with its holes.
const RANGES_MAX: usize = 2000;
/// Bytes of extended attributes that it has room for besides; a file with more goes as an archive.
const ATTRIBUTE_BYTES_MAX: usize = 8192;
/// Permissions of a file that is made of a stream.
const STREAM_MODE: u32 = 0o644;

/// How files are copied into an image.
#[derive(Clone, Copy, Debug, Default)]
pub struct PutOptions {
    /// In the image everything belongs to root. Otherwise it belongs to whom it belongs to on the host.
    pub root_owned: bool,
    /// Regular files that links lead to are copied, and nothing else.
    pub dereference: bool,
}

impl PutOptions {
    /// Looks at files of the host, as [`OpenImage::put`] does before it copies the first: for whoever wants to know
    /// before an image is opened.
    ///
    /// # Errors
    /// When one of them is not there, or is none that may be copied.
    pub fn check<P: AsRef<Path>>(&self, sources: impl IntoIterator<Item = P>) -> Result<()> {
        sources.into_iter().try_for_each(|path| HostFile::look(path.as_ref(), self.dereference).map(drop))
    }
}

/// Something that is copied into an image.
pub enum PutSource<'source> {
    /// A file or a tree of the host.
    Path(&'source Path),
    /// A stream.
    Stream {
        /// What it is called in messages.
        name: &'source str,
        /// Gives it when it is wanted.
        open: Box<dyn FnOnce() -> Result<Box<dyn Read + Send>> + 'source>,
    },
}

impl<'source, P: AsRef<Path> + ?Sized> From<&'source P> for PutSource<'source> {
    fn from(path: &'source P) -> Self {
        Self::Path(path.as_ref())
    }
}

impl OpenImage {
    /// Copies files and trees of the host into the image, as cp(1) does: into `target` if that is a directory of the
    /// image, else to that name, in a directory that is there. Owners, permissions, access control lists, times,
    /// extended attributes, hard links within a tree, holes, devices and sockets are kept.
    ///
    /// What was copied before something could not be stays.
    ///
    /// # Errors
    /// When a source is not there: then nothing is copied. When there are several sources and `target` is no directory.
    /// Otherwise a line for each of the first few that could not be copied.
    pub fn put<'source, S: Into<PutSource<'source>>>(
        &mut self,
        sources: impl IntoIterator<Item = S>,
        target: &Path,
        options: &PutOptions,
    ) -> Result<()> {
        let looked = sources.into_iter().map(|source| Looked::at(source.into(), options.dereference));
        let sources = looked.collect::<Result<Vec<_>>>()?;
        let into = self.entry(target, true)?.is_some_and(|entry| is_directory(entry.mode));
        if !into && sources.len() > 1 {
            refuse!("{}: not a directory of the image, so it cannot take {} files", shown(target), sources.len());
        }
        let mut made = Made::default();
        each(sources, |source| {
            let name = source.name();
            self.put_one(source, target, into, options, &mut made).with_context(|| name)
        })
    }

    fn put_one(
        &mut self,
        source: Looked<'_>,
        target: &Path,
        into: bool,
        options: &PutOptions,
        made: &mut Made,
    ) -> Result<()> {
        let root_owned = options.root_owned;
        let file = match source {
            Looked::Stream { name, .. } if into => {
                refuse!("{}: {name} has no name to have in a directory", shown(target))
            }
            Looked::Stream { open, .. } => {
                let put = self.put_stream(open()?, target, root_owned);
                return put.or_else(|error| self.without_directory(target, error));
            }
            // What was copied before it may have taken long: what has its name now is copied.
            Looked::File(file) => HostFile::look(file.path(), options.dereference)?,
        };
        // A link to one is a link.
        let is_directory = matches!(&file, HostFile::Tree(path) if is_own_directory(path));
        made.note(PathBuf::from(name_of_copy(file.path()).unwrap_or_default()), is_directory)?;
        // What unpacks a tree would make the directories above it, as it does for archives.
        if !into && !matches!(file, HostFile::Regular(_)) {
            self.refuse_missing_directory(target, is_directory)?;
        }
        match file {
            HostFile::Regular(file) => {
                let put = self.put_file(&file, target, root_owned);
                put.or_else(|error| if into { Err(error) } else { self.without_directory(target, error) })
            }
            HostFile::Attributed(path) => self.put_tree(&path, target, Tree { into, root_owned, in_place: true }),
            HostFile::Tree(path) => self.put_tree(&path, target, Tree { into, root_owned, in_place: false }),
        }
    }

    /// Refuses a name in a directory that the image has not: as cp(1), nothing is made above what is copied.
    fn refuse_missing_directory(&mut self, target: &Path, is_directory: bool) -> Result<()> {
        let directory = match target.as_os_str().as_bytes().ends_with(b"/") && !is_directory {
            true => target,
            false => target.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("/")),
        };
        match self.entry(directory, true)? {
            Some(_) => Ok(()),
            None => refuse!("there is no directory {} in the image: make it first", shown(directory)),
        }
    }

    /// Why a file could not be put at `target`: for want of a directory, or for what it said.
    fn without_directory(&mut self, target: &Path, error: Error) -> Result<()> {
        match error.appliance() {
            Some(_) => Err(error),
            None => self.refuse_missing_directory(target, false).and(Err(error)),
        }
    }

    fn put_stream(&mut self, input: Box<dyn Read + Send>, target: &Path, root_owned: bool) -> Result<()> {
        let (user_id, group_id) = match root_owned {
            true => (0, 0),
            false => (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw()),
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let store = Store {
            path: image_path(target),
            stream: true,
            mode: STREAM_MODE,
            user_id,
            group_id,
            modified: now.as_secs().try_into().unwrap_or(i64::MAX),
            ..Store::default()
        };
        read_in(self, Operation::Store(store), input).map(drop)
    }

    /// The host's file is the source disk.
    fn put_file(&mut self, file: &RegularFile, target: &Path, root_owned: bool) -> Result<()> {
        let RegularFile { path, metadata, attributes } = file;
        let owner = if root_owned { (0, 0) } else { (metadata.uid(), metadata.gid()) };
        let mut store = Store {
            path: image_path(target),
            name: path.file_name().unwrap_or_default().as_bytes().to_vec(),
            size: metadata.len(),
            mode: metadata.mode() & 0o7777,
            user_id: owner.0,
            group_id: owner.1,
            modified: metadata.mtime(),
            modified_ns: metadata.mtime_nsec() as u32,
            attributes: attributes.clone(),
            ..Store::default()
        };
        if metadata.len() == 0 {
            return self.call(Operation::Store(store)).map(drop);
        }
        let options = FileOptions { read_only: true, ..FileOptions::default() };
        let opened = OpenedFile::open(path, options.read_only)?;
        // What was looked at is not for whoever may read another file.
        let found = opened.file().metadata()?;
        if (found.dev(), found.ino()) != (metadata.dev(), metadata.ino()) {
            refuse!("another file took its place while it was opened: copy it again");
        }
        opened.lock(&options)?;
        let disk = FileDisk::from_file(opened.file().try_clone()?, &options)?;
        store.data = data_ranges(&disk, metadata.len())?;
        self.call_with_source(Arc::new(disk), Operation::Store(store)).map(drop)
    }

    fn put_tree(&mut self, path: &Path, target: &Path, how: Tree) -> Result<()> {
        let Tree { into, root_owned, in_place } = how;
        let target_bytes = image_path(target);
        let (directory, name) = if let (true, Some(name)) = (into, name_of_copy(path)) {
            (target_bytes, name.to_owned())
        } else if is_own_directory(path) {
            // The tree gets the target's name: what is in it goes there.
            (target_bytes, OsString::from("."))
        } else {
            let target = path_of(target_bytes);
            let name = target.file_name().unwrap_or(OsStr::new(".")).to_owned();
            (target.parent().unwrap_or(Path::new("/")).as_os_str().as_bytes().to_vec(), name)
        };
        let packed = PackedTree::new(vec![Source { path: path.to_owned(), name: name.into() }]).context("packing")?;
        let unpack = TarIn { directory, into, own: !root_owned, in_place };
        read_in(self, Operation::TarIn(unpack), packed).map(drop)
    }
}

/// Whether it is a directory itself, and no link to one.
fn is_own_directory(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_dir())
}

/// How a tree of the host's goes into an image.
struct Tree {
    /// The target is a directory.
    into: bool,
    root_owned: bool,
    /// It is a file, which becomes the one that is there.
    in_place: bool,
}

/// A source that has been looked at.
enum Looked<'source> {
    File(HostFile),
    Stream { name: &'source str, open: Box<dyn FnOnce() -> Result<Box<dyn Read + Send>> + 'source> },
}

impl<'source> Looked<'source> {
    fn at(source: PutSource<'source>, dereference: bool) -> Result<Self> {
        Ok(match source {
            PutSource::Path(path) => Self::File(HostFile::look(path, dereference)?),
            PutSource::Stream { name, open } => Self::Stream { name, open },
        })
    }

    fn name(&self) -> String {
        match self {
            Self::File(file) => shown(file.path()).to_string(),
            Self::Stream { name, .. } => (*name).to_owned(),
        }
    }
}

/// Something of the host's that is copied.
enum HostFile {
    Regular(RegularFile),
    /// A regular file with more attributes than a request has room for.
    Attributed(PathBuf),
    /// Anything but a regular file.
    Tree(PathBuf),
}

struct RegularFile {
    path: PathBuf,
    metadata: Metadata,
    attributes: Vec<Attribute>,
}

/// Why something is not copied that is to be a regular file.
pub(super) const NO_REGULAR_FILE: &str = "it is no regular file, nor a link to one";

impl HostFile {
    fn look(path: &Path, dereference: bool) -> Result<Self> {
        let look = if dereference { fs::metadata(path) } else { fs::symlink_metadata(path) };
        let metadata = look.with_context(|| shown(path).to_string())?;
        if dereference {
            if !metadata.is_file() {
                refuse!("{}: {NO_REGULAR_FILE}", shown(path));
            }
            return Ok(Self::Regular(RegularFile { path: path.to_owned(), metadata, attributes: Vec::new() }));
        }
        if !metadata.is_file() {
            return Ok(Self::Tree(path.to_owned()));
        }
        Ok(match attributes_within(path, ATTRIBUTE_BYTES_MAX) {
            Some(attributes) => Self::Regular(RegularFile { path: path.to_owned(), metadata, attributes }),
            None => Self::Attributed(path.to_owned()),
        })
    }

    fn path(&self) -> &Path {
        match self {
            Self::Regular(RegularFile { path, .. }) | Self::Attributed(path) | Self::Tree(path) => path,
        }
    }
}

/// Where a file has data: empty for everywhere, or when there are too many places. A file that is one hole has one
/// empty range.
fn data_ranges(disk: &FileDisk, length: u64) -> Result<Vec<Range>> {
    let (mut ranges, mut at, mut holes) = (Vec::new(), 0, false);
    let capacity = disk.geometry().capacity_bytes;
    while at < length {
        let extent = disk.extents(at..capacity).context("looking for holes")?;
        let end = extent.offset_bytes.saturating_add(extent.length_bytes).min(length);
        match extent.kind {
            ExtentKind::Data => ranges.push(Range { offset: extent.offset_bytes, length: end - extent.offset_bytes }),
            ExtentKind::Zero | ExtentKind::Hole => holes = true,
        }
        if ranges.len() > RANGES_MAX || end <= at {
            return Ok(Vec::new());
        }
        at = end;
    }
    if ranges.is_empty() && holes {
        ranges.push(Range { offset: 0, length: 0 });
    }
    // Whole blocks, so that a block is written once.
    let aligned = ranges.iter().all(|range| range.offset % 4096 == 0);
    Ok(if holes && aligned { ranges } else { Vec::new() })
}

#[cfg(test)]
mod tests {
    use super::super::host_attributes::OVERHEAD_BYTES;
    use super::*;
    use blockyard_protocol::appliance::{self, FRAME_BYTES_MAX, Request};

    #[test]
    fn a_file_with_all_that_it_may_have_fits_a_message() {
        // The shortest attributes have most besides their bytes.
        let attribute = Attribute { name: b"user.a".to_vec(), value: Vec::new() };
        let store = Store {
            path: vec![b'x'; 4096],
            name: vec![b'x'; 255],
            size: u64::MAX,
            mode: u32::MAX,
            user_id: u32::MAX,
            group_id: u32::MAX,
            modified: i64::MIN,
            modified_ns: u32::MAX,
            data: vec![Range { offset: u64::MAX, length: u64::MAX }; RANGES_MAX],
            attributes: vec![attribute; ATTRIBUTE_BYTES_MAX / ("user.a".len() + OVERHEAD_BYTES)],
            ..Store::default()
        };
        let request = Request { number: u32::MAX, operation: Operation::Store(store) };
        appliance::encode(&request, &mut vec![0; FRAME_BYTES_MAX]).unwrap();
    }
}
