//! Copying files and trees of an image to the host.
//!
//! A single file is a disk: the guest writes the host's new file directly. A tree is a stream that is a tar archive.

use super::asked_for::AskedFor;
use super::copy_names::{Made, name_of_copy};
use super::file_type::{is_directory, is_regular};
use super::host_tree::Unpacking;
use super::paths;
use super::put::NO_REGULAR_FILE;
use crate::error::{Context, Error, Result, refuse};
use crate::guest::failures::each;
use crate::guest::records::Room;
use crate::guest::streams::write_out_up_to;
use crate::guest::{OpenImage, RecordTaker, path_of};
use blockyard_archive::{UnpackOptions, remove_lists, set_user_attribute};
use blockyard_block::layers::{Fault, Faults, FaultyDisk, WatchedDisk};
use blockyard_block::{
    Disk, FileDisk, FileOptions, ReplacementFile, directory_of, printable, refuse_missing_device, shown,
};
use blockyard_protocol::appliance::{Attribute, Compression, Entry, Fetch, Operation, Record, TarOut, Walk};
use rustix::fs::{Timespec, Timestamps, futimens};
use std::ffi::{OsStr, OsString};
use std::fs::{File, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How files are copied out of an image.
#[derive(Clone, Copy, Debug, Default)]
pub struct GetOptions {
    /// Regular files that links lead to are copied, and nothing else.
    pub dereference: bool,
}

impl GetOptions {
    /// Looks whether `sources` paths or patterns can go to `target`, for whoever wants to know before an image is
    /// opened.
    ///
    /// # Errors
    /// [`Error::Usage`] when they are several and it is no directory of the host.
    pub fn check(&self, sources: usize, target: &Path) -> Result<()> {
        if sources > 1 && !target.is_dir() { Err(Error::usage(no_directory(target, sources))) } else { Ok(()) }
    }
}

/// Why several files cannot go to `target`.
fn no_directory(target: &Path, files: usize) -> String {
    let shown = shown(target);
    match target.exists() {
        true => format!("{shown} is no directory, so it cannot take {files} files"),
        false => format!("there is no directory {shown}: create it first"),
    }
}

impl OpenImage {
    /// Copies files and trees of the image to the host, as cp(1) does: into `target` if that is a directory, else to
    /// that name. Paths may be patterns, as a shell has them.
    ///
    /// A file has its name when it is complete, and is on stable storage then if the image [is
    /// durable](OpenImage::is_durable). Permissions without set-ID bits, times, `user.` attributes, hard links and
    /// holes are kept; what is copied belongs to whoever copies it. Access control lists are not kept, and nobody gets
    /// more than they gave.
    ///
    /// # Errors
    /// When they are several and `target` is no directory. Otherwise a line for each of the first few that could not be
    /// copied; devices, fifos and sockets are among those, and all else is there.
    pub fn get<P: AsRef<Path>>(
        &mut self,
        sources: impl IntoIterator<Item = P>,
        target: &Path,
        options: &GetOptions,
    ) -> Result<()> {
        let into = target.is_dir();
        let follow = options.dereference;
        let walk = Walk { paths: paths(sources), attributes: true, follow, ..Walk::default() };
        let taker = Entries { entries: Vec::new(), room: Room::default(), asked_for: AskedFor::new(&walk.paths) };
        let (entries, missing) = self.records_and_failures(Operation::Walk(walk), taker)?;
        if entries.len() > 1 && !into {
            return Err(Error::Refused(no_directory(target, entries.len())));
        }
        let mut made = Made::default();
        let copied = each(&entries, |entry| {
            let source = path_of(entry.name.clone());
            let to = name_of_copy(&source).filter(|_| into).map_or_else(|| target.to_owned(), |name| target.join(name));
            made.note(to.clone(), is_directory(entry.mode))
                .and_then(|()| match follow {
                    true => self.get_regular(&source, entry, &to),
                    false => self.get_one(&source, entry, &to),
                })
                .map_err(|error| error.or_no_space(&to))
                .with_context(|| printable(&source.to_string_lossy()))
        });
        each([self.told(&missing, missing.len() as u64), copied], |done| done)
    }

    fn get_one(&mut self, path: &Path, entry: &Entry, to: &Path) -> Result<()> {
        // A link may be one that came out of an image before: it is replaced, as in trees, and not followed.
        if is_regular(entry.mode) && entry.links == 1 && !entry.more_attributes && !to.is_symlink() {
            return self.get_file(path, entry, to);
        }
        self.get_tree(path, to)
    }

    fn get_regular(&mut self, path: &Path, entry: &Entry, to: &Path) -> Result<()> {
        if !is_regular(entry.mode) {
            refuse!("{NO_REGULAR_FILE}");
        }
        if to.is_symlink() {
            refuse!(
                "{} is a link, which may have come out of an image and lead anywhere: remove it, or choose another name",
                shown(to)
            );
        }
        self.get_file(path, entry, to)
    }

    /// The host's new file is the sink disk; it takes its name when it is complete.
    fn get_file(&mut self, path: &Path, entry: &Entry, to: &Path) -> Result<()> {
        let size = entry.size;
        // Nobody else reads it before it has its permissions, whichever list its directory has for new files.
        let new = ReplacementFile::create_like(to, Some(entry.mode & 0o600))?;
        let bytes_max = self.bytes_max_into(new.file());
        let blocks =
            size.checked_next_multiple_of(512).ok_or_else(|| Error::refused("a file of an impossible size"))?;
        new.set_length(blocks)?;
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
            let fetch = Fetch { path: path.as_os_str().as_bytes().to_vec(), size };
            let fetched = self.call_with_sink(Arc::clone(&disk) as _, Operation::Fetch(fetch));
            if let Some(error) = disk.first_error() {
                let bound = if size > bytes_max {
                    format!(" (or it has more than {bytes_max} bytes of data, which the image cannot hold)")
                } else {
                    String::new()
                };
                refuse!("cannot write {}: {error}{bound}", shown(to));
            }
            fetched?;
        }
        new.set_length(size)?;
        let modified = Timespec { tv_sec: entry.modified, tv_nsec: i64::from(entry.modified_ns.min(999_999_999)) };
        let times = Timestamps { last_access: modified, last_modification: modified };
        let replaces = new.replaces_existing();
        let attributed = entry.attributes.iter().try_for_each(|Attribute { name, value }| {
            set_user_attribute(new.file(), OsStr::from_bytes(name), value).context("setting its attributes")
        });
        futimens(new.file(), &times).map_err(io::Error::from).context("setting its time")?;
        if !replaces {
            remove_lists(new.file()).map_err(io::Error::from).context("setting its permissions")?;
            let permissions = Permissions::from_mode(entry.mode & 0o777);
            new.file().set_permissions(permissions).context("setting its permissions")?;
        }
        new.commit(self.is_durable())?;
        // A file without its attributes is better than none.
        attributed
    }

    fn get_tree(&mut self, path: &Path, to: &Path) -> Result<()> {
        let (directory, place) = if name_of_copy(path).is_none() && to.is_dir() {
            // What is in it goes there.
            (to.to_owned(), PathBuf::new())
        } else {
            if !to.exists() {
                refuse_missing_device(to)?;
            }
            let Some(own) = to.file_name() else { refuse!("{} is no name for a file", shown(to)) };
            (directory_of(to).to_owned(), PathBuf::from(own))
        };
        let directory = File::open(&directory).with_context(|| shown(&directory).to_string())?;
        // A path that ends in a dot is the directory that it leads to, whose files have names from there on.
        let (within, paths, name) = match name_of_copy(path) {
            Some(name) => (path.parent().unwrap_or(Path::new("/")), vec![name.as_bytes().to_vec()], name.to_owned()),
            None => (path, Vec::new(), OsString::new()),
        };
        let bytes_max = self.bytes_max_into(&directory);
        let options = UnpackOptions { root: (name, place), bytes_max, entries_max: self.files_max() };
        let (unpacking, input) = Unpacking::start(directory, options, self.is_durable()).context("unpacking")?;
        let directory = within.as_os_str().as_bytes().to_vec();
        let request = TarOut { directory, paths, compression: Compression::None, sockets: true, excludes: Vec::new() };
        let sent = write_out_up_to(self, Operation::TarOut(request), input, stream_bytes_max(bytes_max));
        let sent = sent.map(drop);
        // Its own failure is why nothing more could be sent.
        let unpacked = unpacking.finish();
        match (sent, unpacked) {
            (Ok(()), unpacked) => unpacked.map(drop),
            (Err(_), Err(error)) if !is_truncation(&error) => Err(error),
            (Err(error), _) => Err(error),
        }
    }
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

/// Bytes of an archive whose files have so many: headers, names and maps of holes are bounded by the number of files.
fn stream_bytes_max(bytes_max: u64) -> u64 {
    bytes_max.saturating_mul(2)
}

/// Whether an archive only ended too early.
fn is_truncation(error: &Error) -> bool {
    matches!(error.cause(), Error::System(error) if error.kind() == io::ErrorKind::UnexpectedEof)
}
