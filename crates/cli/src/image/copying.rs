//! `blockyard image cat`, `put` and `get`: data of files, between an image and the host.
//!
//! A single file is a disk: the appliance reads the host's file, or writes the new one, directly. Stdin and stdout are streams. A tree
//! is a stream that is a tar archive.

use super::asked_for::AskedFor;
use super::failures;
use super::file_commands::{FileCommand, sources_and_destination};
use super::host_attributes::attributes_within;
use super::host_tree::{PackedTree, Unpacking};
use super::listing::{is_directory, is_regular};
use super::stdin;
use crate::UsageError;
use crate::destination::or_no_space;
use anyhow::{Context, Result, anyhow, bail};
use blockyard_archive::{Source, UnpackOptions, remove_lists, set_user_attribute};
use blockyard_block::layers::WatchedDisk;
use blockyard_block::layers::{Fault, Faults, FaultyDisk};
use blockyard_block::{Disk, ExtentKind, FileDisk, FileOptions, ReplacementFile, printable, shown};
use blockyard_image::Access;
use blockyard_image::guest::failures::first_few;
use blockyard_image::guest::records::Room;
use blockyard_image::guest::streams::write_out_up_to;
use blockyard_image::guest::{OpenImage, RecordTaker, image_path, image_paths, path_of};
use blockyard_image::guest::{read_in, write_out_into};
use blockyard_protocol::appliance::{
    Attribute, Compression, Entry, Fetch, Operation, Range, Read, Record, Store, TarIn, TarOut, Walk,
};
use blockyard_protocol::pattern::escaped;
use clap::Args;
use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Ranges of a sparse file that a request has room for; one with more is copied with its holes.
const RANGES_MAX: usize = 2000;
/// Bytes of extended attributes that it has room for besides; a file with more goes as an archive.
const ATTRIBUTE_BYTES_MAX: usize = 8192;
/// What stands for stdin and stdout.
const STANDARD: &str = "-";

/// Print files of an image.
#[derive(Args)]
pub struct Cat {
    /// The files.
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
}

impl FileCommand for Cat {
    fn access(&self) -> Access {
        Access::Read
    }

    fn run(&self, image: &mut OpenImage) -> Result<()> {
        Ok(write_out_into(image, Operation::Read(Read { paths: image_paths(&self.paths) }), io::stdout()).map(drop)?)
    }
}

/// Copy files and trees of the host into an image.
///
/// As with cp: into DST if that is a directory, else to that name. Owners, permissions, access control lists, times, extended attributes, hard
/// links within a tree, holes, devices and sockets are kept.
#[derive(Args)]
pub struct Put {
    /// What to copy (- for stdin); the last is DST: where to in the image.
    #[arg(value_name = "SRC", required = true)]
    paths: Vec<PathBuf>,
    /// In the image everything belongs to root.
    #[arg(long)]
    root_owned: bool,
    /// Copy the regular files that links lead to, and nothing else.
    #[arg(short = 'L', long)]
    dereference: bool,
}

impl Put {
    fn target_and_sources(&self) -> Result<(&Path, Vec<HostSource>)> {
        let (sources, target) = sources_and_destination(&self.paths, "in the image")?;
        Ok((target, sources.iter().map(|path| HostSource::look(path, self.dereference)).collect::<Result<_>>()?))
    }
}

impl FileCommand for Put {
    fn synopsis() -> Option<&'static str> {
        Some("<SRC>... <DST>")
    }

    fn access(&self) -> Access {
        Access::Write
    }

    fn check(&self) -> Result<()> {
        self.target_and_sources().map(drop)
    }

    /// What was copied before something could not be stays.
    fn run(&self, image: &mut OpenImage) -> Result<()> {
        let (target, sources) = self.target_and_sources()?;
        put_all(image, &sources, target, self.root_owned)
    }
}

fn put_all(image: &mut OpenImage, sources: &[HostSource], target: &Path, root_owned: bool) -> Result<()> {
    let into = look(image, target)?.is_some_and(|entry| is_directory(entry.mode));
    if !into && sources.len() > 1 {
        bail!("{}: not a directory of the image, so it cannot take {} files", shown(target), sources.len());
    }
    let mut made = Made::default();
    each(sources, |source| {
        let copied = match source {
            HostSource::Standard if into => bail!("{}: stdin has no name to have in a directory", shown(target)),
            HostSource::Standard => put_stdin(image, target, root_owned),
            HostSource::File(file) => made
                .note(PathBuf::from(name_of_copy(&file.path).unwrap_or_default()), false)
                .and_then(|()| put_file(image, file, target, root_owned)),
            HostSource::Attributed(path) => made
                .note(PathBuf::from(name_of_copy(path).unwrap_or_default()), false)
                .and_then(|()| put_tree(image, path, target, Tree { into, root_owned, in_place: true })),
            HostSource::Tree(path) => made
                .note(PathBuf::from(name_of_copy(path).unwrap_or_default()), path.is_dir())
                .and_then(|()| put_tree(image, path, target, Tree { into, root_owned, in_place: false })),
        };
        copied.with_context(|| source.name())
    })
}

/// Does something with each, also when it failed with one before, unless the appliance is of no more use. An error says a line for
/// each of the first few.
fn each<T>(items: impl IntoIterator<Item = T>, mut act: impl FnMut(T) -> Result<()>) -> Result<()> {
    let mut failed: Vec<anyhow::Error> = Vec::new();
    for item in items {
        if let Err(error) = act(item) {
            let is_the_end = failures::appliance(&error).is_some();
            failed.push(error);
            if is_the_end {
                break;
            }
        }
    }
    let Some(last) = failed.pop() else { return Ok(()) };
    if failed.is_empty() {
        return Err(last);
    }
    let lines = first_few(failed.iter().map(|error| format!("{error:#}")), failed.len() as u64);
    // What it is the context of comes after a colon, in a line of its own.
    Err(last.context(format!("{}\nblockyard", lines.join("\nblockyard: "))))
}

/// What was copied so far has become these: none is to replace another.
#[derive(Default)]
struct Made(HashSet<PathBuf>);

impl Made {
    /// Takes note of one. Of two directories, what is in them is put together.
    fn note(&mut self, path: PathBuf, is_directory: bool) -> Result<()> {
        let problem = format!("{} has just been made of another file", printable(&path.to_string_lossy()));
        if self.0.insert(path) || is_directory { Ok(()) } else { Err(anyhow!(problem)) }
    }
}

/// The name that a copy of `path` has in a directory; none for one that ends in `.` or `..`, by which what is in it is meant, and for the root.
fn name_of_copy(path: &Path) -> Option<&OsStr> {
    let bytes = path.as_os_str().as_bytes();
    let last = bytes.split(|&byte| byte == b'/').rfind(|name| !name.is_empty()).unwrap_or_default();
    (!matches!(last, b"" | b"." | b"..")).then(|| OsStr::from_bytes(last))
}

/// Something of the host's that shall be copied.
enum HostSource {
    Standard,
    File(RegularFile),
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

impl HostSource {
    fn look(path: &Path, dereference: bool) -> Result<Self> {
        if path == Path::new(STANDARD) {
            return Ok(Self::Standard);
        }
        let look = if dereference { fs::metadata(path) } else { fs::symlink_metadata(path) };
        let metadata = look.with_context(|| shown(path).to_string())?;
        if dereference {
            return if metadata.is_file() {
                Ok(Self::File(RegularFile { path: path.to_owned(), metadata, attributes: Vec::new() }))
            } else {
                Err(anyhow!("{}: {NO_REGULAR_FILE}", shown(path)))
            };
        }
        if !metadata.is_file() {
            return Ok(Self::Tree(path.to_owned()));
        }
        Ok(match attributes_within(path, ATTRIBUTE_BYTES_MAX) {
            Some(attributes) => Self::File(RegularFile { path: path.to_owned(), metadata, attributes }),
            None => Self::Attributed(path.to_owned()),
        })
    }

    fn name(&self) -> String {
        match self {
            Self::Standard => "stdin".to_owned(),
            Self::File(RegularFile { path, .. }) | Self::Attributed(path) | Self::Tree(path) => shown(path).to_string(),
        }
    }
}

const NO_REGULAR_FILE: &str = "it is no regular file, nor a link to one";

/// What is at a path of the image, through links; `None` when nothing is.
fn look(image: &mut OpenImage, path: &Path) -> Result<Option<Entry>> {
    look_at(image, path, true)
}

pub fn look_at(image: &mut OpenImage, path: &Path, follow: bool) -> Result<Option<Entry>> {
    struct First(Option<Entry>);
    impl RecordTaker for First {
        type Output = Option<Entry>;
        fn take(&mut self, record: Record) -> io::Result<()> {
            if let (Record::Entry(entry), None) = (record, &self.0) {
                self.0 = Some(entry);
            }
            Ok(())
        }
        fn finish(self) -> io::Result<Self::Output> {
            Ok(self.0)
        }
    }
    let walk = Walk { paths: vec![escaped(&image_path(path))], follow, details: !follow, ..Walk::default() };
    Ok(image.records_if_any(Operation::Walk(walk), First(None))?)
}

fn name_of(path: &Path) -> Vec<u8> {
    path.file_name().unwrap_or(OsStr::new("")).as_bytes().to_vec()
}

fn put_stdin(image: &mut OpenImage, target: &Path, root_owned: bool) -> Result<()> {
    stdin::claim()?;
    let (user_id, group_id) = match root_owned {
        true => (0, 0),
        false => (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw()),
    };
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let store = Store {
        path: image_path(target),
        stream: true,
        mode: 0o644,
        user_id,
        group_id,
        modified: now.as_secs().try_into().unwrap_or(i64::MAX),
        ..Store::default()
    };
    stdin::lent(|stdin| Ok(read_in(image, Operation::Store(store), stdin)?)).map(drop)
}

/// The host's file is the source disk.
fn put_file(image: &mut OpenImage, file: &RegularFile, target: &Path, root_owned: bool) -> Result<()> {
    let RegularFile { path, metadata, attributes } = file;
    let owner = if root_owned { (0, 0) } else { (metadata.uid(), metadata.gid()) };
    let mut store = Store {
        path: image_path(target),
        name: name_of(path),
        size: metadata.len(),
        mode: metadata.mode() & 0o7777,
        user_id: owner.0,
        group_id: owner.1,
        modified: metadata.mtime(),
        modified_ns: metadata.mtime_nsec() as u32,
        attributes: attributes.clone(),
        ..Store::default()
    };
    if metadata.len() > 0 {
        let disk = FileDisk::open(path, &FileOptions { read_only: true, ..FileOptions::default() })?;
        store.data = data_ranges(&disk, metadata.len())?;
        image.appliance.bind_source(Arc::new(disk));
    }
    let done = image.call(Operation::Store(store));
    image.appliance.release();
    Ok(done.map(drop)?)
}

/// Where a file has data: empty for everywhere, or when there are too many places. A file that is one hole has one empty range.
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

/// How a tree of the host's goes into an image.
struct Tree {
    /// The target is a directory.
    into: bool,
    root_owned: bool,
    /// It is a file, which becomes the one that is there.
    in_place: bool,
}

fn put_tree(image: &mut OpenImage, path: &Path, target: &Path, how: Tree) -> Result<()> {
    let Tree { into, root_owned, in_place } = how;
    let target_bytes = image_path(target);
    let (directory, name) = if let (true, Some(name)) = (into, name_of_copy(path)) {
        (target_bytes, name.to_owned())
    } else if fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_dir()) {
        // The tree gets the target's name: what is in it goes there.
        (target_bytes, OsString::from("."))
    } else {
        let target = path_of(target_bytes);
        let name = target.file_name().unwrap_or(OsStr::new(".")).to_owned();
        (target.parent().unwrap_or(Path::new("/")).as_os_str().as_bytes().to_vec(), name)
    };
    let packed = PackedTree::new(vec![Source { path: path.to_owned(), name: name.into() }]).context("packing")?;
    let unpack = TarIn { directory, into, own: !root_owned, in_place };
    Ok(read_in(image, Operation::TarIn(unpack), packed).map(drop)?)
}

/// Copy files and trees of an image to the host.
///
/// As with cp: into DST if that is a directory, else to that name; - writes one file to stdout. A file has its name when it is complete, and
/// success means that it is on stable storage (but with --cache unsafe, as after cp). Permissions without set-ID bits, times, `user.`
/// attributes (where the host's file system has any), hard links and holes are kept; what is copied belongs to whoever copies it. Access control
/// lists are not kept, and nobody gets more than they gave.
///
/// Devices, fifos and sockets are left out, each is named, and the exit status is 1 then, though all else is there: so do cp -a and tar -x for who
/// may not make devices. tar-out keeps devices and fifos.
#[derive(Args)]
pub struct Get {
    /// Copy the regular files that links lead to, and nothing else.
    #[arg(short = 'L', long)]
    dereference: bool,
    /// What to copy; the last is DST: where to on the host.
    #[arg(value_name = "SRC", required = true)]
    paths: Vec<PathBuf>,
}

/// Why several files cannot go to `target`.
fn no_directory(target: &Path, files: usize) -> String {
    let shown = shown(target);
    match target.exists() {
        true => format!("{shown} is no directory, so it cannot take {files} files"),
        false => format!("there is no directory {shown}: create it first"),
    }
}

impl FileCommand for Get {
    fn synopsis() -> Option<&'static str> {
        Some("<SRC>... <DST>")
    }

    fn access(&self) -> Access {
        Access::Read
    }

    fn check(&self) -> Result<()> {
        let (sources, target) = sources_and_destination(&self.paths, "on the host")?;
        if sources.len() > 1 && !is_directory_of_host(target) {
            return Err(UsageError(no_directory(target, sources.len())).into());
        }
        Ok(())
    }

    /// No file of the host is ever half written.
    fn run(&self, image: &mut OpenImage) -> Result<()> {
        let (sources, target) = sources_and_destination(&self.paths, "on the host")?;
        if target == Path::new(STANDARD) {
            return Ok(
                write_out_into(image, Operation::Read(Read { paths: image_paths(sources) }), io::stdout()).map(drop)?
            );
        }
        let into = is_directory_of_host(target);
        let follow = self.dereference;
        let walk = Walk { paths: image_paths(sources), attributes: true, follow, ..Walk::default() };
        let taker = Entries { entries: Vec::new(), room: Room::default(), asked_for: AskedFor::new(&walk.paths) };
        let (entries, missing) = image.records_and_failures(Operation::Walk(walk), taker)?;
        if entries.len() > 1 && !into {
            bail!(no_directory(target, entries.len()));
        }
        let mut made = Made::default();
        let copied = each(&entries, |entry| {
            let source = path_of(entry.name.clone());
            let to = name_of_copy(&source).filter(|_| into).map_or_else(|| target.to_owned(), |name| target.join(name));
            made.note(to.clone(), is_directory(entry.mode))
                .and_then(|()| match follow {
                    true => get_regular(image, &source, entry, &to),
                    false => get_one(image, &source, entry, &to, into),
                })
                .map_err(|error| or_no_space(error, &to))
                .with_context(|| printable(&source.to_string_lossy()))
        });
        each([image.told(&missing, missing.len() as u64).map_err(Into::into), copied], |done| done)
    }
}

fn is_directory_of_host(target: &Path) -> bool {
    target != Path::new(STANDARD) && target.is_dir()
}

/// Files that patterns stand for.
struct Entries {
    entries: Vec<Entry>,
    room: Room,
    asked_for: AskedFor,
}

/// Most of them: the agent has a limit for each pattern.
const ENTRIES_MAX: usize = 1 << 20;

impl RecordTaker for Entries {
    type Output = Vec<Entry>;

    fn take(&mut self, record: Record) -> io::Result<()> {
        match record {
            Record::Entry(_) if self.entries.len() == ENTRIES_MAX => Err(io::Error::other("too many files")),
            Record::Entry(entry) if !self.asked_for.takes(&entry.name) => {
                Err(io::Error::other("the appliance lists a file that nobody asked for"))
            }
            Record::Entry(entry) => {
                self.room.take_entry(&entry)?;
                self.entries.push(entry);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn finish(self) -> io::Result<Self::Output> {
        Ok(self.entries)
    }
}

fn get_one(image: &mut OpenImage, path: &Path, entry: &Entry, to: &Path, into: bool) -> Result<()> {
    // A link in the directory may be one that came out of an image: it is replaced, as in trees, and not followed.
    let is_link_within = into && to.is_symlink();
    if is_regular(entry.mode) && entry.links == 1 && !entry.more_attributes && !is_link_within {
        return get_file(image, path, entry, to);
    }
    get_tree(image, path, to)
}

fn get_regular(image: &mut OpenImage, path: &Path, entry: &Entry, to: &Path) -> Result<()> {
    if is_regular(entry.mode) { get_file(image, path, entry, to) } else { Err(anyhow!(NO_REGULAR_FILE)) }
}

/// The host's new file is the sink disk; it takes its name when it is complete.
fn get_file(image: &mut OpenImage, path: &Path, entry: &Entry, to: &Path) -> Result<()> {
    let size = entry.size;
    // Nobody else reads it before it has its permissions, whichever list its directory has for new files.
    let new = ReplacementFile::create_like(to, Some(entry.mode & 0o600))?;
    let bytes_max = image.bytes_max_into(new.file());
    new.set_length(size.checked_next_multiple_of(512).context("a file of an impossible size")?)?;
    if size > 0 {
        let file = new.file().try_clone().context("writing the new file")?;
        let mut disk: Arc<dyn Disk> =
            Arc::new(FileDisk::from_file(file, &FileOptions { lock: false, ..FileOptions::default() })?);
        if size > bytes_max {
            // Its holes are no data.
            let faults = vec![Fault::Full { after_bytes: bytes_max }];
            disk = Arc::new(FaultyDisk::new(disk, &Faults { seed: 0, faults }));
        }
        let disk = Arc::new(WatchedDisk::new(disk));
        image.appliance.bind_sink(Arc::clone(&disk) as _);
        let fetched = image.call(Operation::Fetch(Fetch { path: path.as_os_str().as_bytes().to_vec(), size }));
        image.appliance.release();
        if let Some(error) = disk.first_error() {
            let bound = if size > bytes_max {
                format!(" (or it has more than {bytes_max} bytes of data, which the image cannot hold)")
            } else {
                String::new()
            };
            bail!("cannot write {}: {error}{bound}", shown(to));
        }
        fetched?;
    }
    new.set_length(size)?;
    let modified =
        rustix::fs::Timespec { tv_sec: entry.modified, tv_nsec: i64::from(entry.modified_ns.min(999_999_999)) };
    let times = rustix::fs::Timestamps { last_access: modified, last_modification: modified };
    let replaces = new.replaces_existing();
    let attributed = entry.attributes.iter().try_for_each(|Attribute { name, value }| {
        set_user_attribute(new.file(), OsStr::from_bytes(name), value).context("setting its attributes")
    });
    rustix::fs::futimens(new.file(), &times).map_err(io::Error::from).context("setting its time")?;
    let permissions = std::os::unix::fs::PermissionsExt::from_mode(entry.mode & 0o777);
    if !replaces {
        remove_lists(new.file()).map_err(io::Error::from).context("setting its permissions")?;
        new.file().set_permissions(permissions).context("setting its permissions")?;
    }
    new.commit(image.is_durable())?;
    // A file without its attributes is better than none.
    attributed
}

fn get_tree(image: &mut OpenImage, path: &Path, to: &Path) -> Result<()> {
    let (directory, place) = if name_of_copy(path).is_none() && to.is_dir() {
        // What is in it goes there.
        (to.to_owned(), PathBuf::new())
    } else {
        let parent = to.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let own = to.file_name().ok_or_else(|| anyhow!("{} is no name for a file", shown(to)))?;
        (parent.to_owned(), PathBuf::from(own))
    };
    let directory = File::open(&directory).with_context(|| shown(&directory).to_string())?;
    // A path that ends in a dot is the directory that it leads to, whose files have names from there on.
    let (within, paths, name) = match name_of_copy(path) {
        Some(name) => (path.parent().unwrap_or(Path::new("/")), vec![name.as_bytes().to_vec()], name.to_owned()),
        None => (path, Vec::new(), OsString::new()),
    };
    let bytes_max = image.bytes_max_into(&directory);
    let options = UnpackOptions { root: (name, place), bytes_max, entries_max: image.files_max() };
    let (unpacking, input) = Unpacking::start(directory, options, image.is_durable()).context("unpacking")?;
    let directory = within.as_os_str().as_bytes().to_vec();
    let request = TarOut { directory, paths, compression: Compression::None, sockets: true, excludes: Vec::new() };
    let sent = write_out_up_to(image, Operation::TarOut(request), input, stream_bytes_max(bytes_max));
    let sent = sent.map(drop);
    // Its own failure is why nothing more could be sent.
    let unpacked = unpacking.finish();
    match (sent, unpacked) {
        (Ok(()), unpacked) => unpacked.map(drop),
        (Err(_), Err(error)) if !is_truncation(&error) => Err(error),
        (Err(error), _) => Err(error.into()),
    }
}

/// Bytes of an archive whose files have so many: headers, names and maps of holes are bounded by the number of files.
fn stream_bytes_max(bytes_max: u64) -> u64 {
    bytes_max.saturating_mul(2)
}

/// Whether an archive only ended too early.
fn is_truncation(error: &anyhow::Error) -> bool {
    let source = error.root_cause().downcast_ref::<io::Error>();
    source.is_some_and(|error| error.kind() == io::ErrorKind::UnexpectedEof)
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
