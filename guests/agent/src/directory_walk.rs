//! Listings: what is in directories, and how full file systems are.

use crate::failures::failure;
use crate::glob;
use crate::interruption;
use crate::mounts::{Mounts, path_of};
use crate::owner_names::OwnerNames;
use crate::seen_directories::SeenDirectories;
use blockyard_archive::{ACCESS_LIST, AccessControlList, attributes, is_user_attribute};
use blockyard_protocol::appliance::{self, Attribute, Directory, Entry, FRAME_BYTES_MAX, FileSystem, Record, Walk};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Bytes of attributes that an entry has room for; those of a file with more come in an archive.
const ATTRIBUTE_BYTES_MAX: usize = 2048;
/// Longest path that is looked into, which is Linux's.
const PATH_BYTES_MAX: usize = 4096;

const IN_SEVERAL: &str = "it is in several directories, so the file system is damaged (`fsck` it)";

/// Writes records for `request` to `sink`: a directory's entries after its own record, in order of name, then what is
/// below them.
pub(crate) fn walk(request: &Walk, sink: &mut dyn Write) -> io::Result<()> {
    let names = request.details.then(|| (OwnerNames::users(), OwnerNames::groups()));
    let mut walker = Walker { request, names, seen: SeenDirectories::default(), frame: vec![0; FRAME_BYTES_MAX], sink };
    for pattern in &request.paths {
        match glob::expand(pattern) {
            Ok(paths) => paths.iter().try_for_each(|path| walker.named(path))?,
            Err(failure) => walker.record(&Record::Failure(failure))?,
        }
    }
    Ok(())
}

struct Walker<'request> {
    request: &'request Walk,
    names: Option<(OwnerNames, OwnerNames)>,
    /// Those below the path that is walked.
    seen: SeenDirectories,
    frame: Vec<u8>,
    sink: &'request mut dyn Write,
}

impl Walker<'_> {
    /// A file that somebody named, and what is below it.
    fn named(&mut self, path: &Path) -> io::Result<()> {
        let metadata = if self.request.follow { fs::metadata(path) } else { fs::symlink_metadata(path) };
        match metadata {
            Err(error) => self.fail(path, "cannot access", &error),
            Ok(metadata) => {
                self.seen = SeenDirectories::default();
                self.entry(path.as_os_str(), path, &metadata)?;
                if metadata.is_dir() && self.seen.is_new(&metadata) { self.tree(path, metadata.dev()) } else { Ok(()) }
            }
        }
    }

    /// What is in the directory at `path`, as deep as wanted.
    fn tree(&mut self, path: &Path, device: u64) -> io::Result<()> {
        let mut pending = vec![(path.to_owned(), 1)];
        while let Some((directory, depth)) = pending.pop() {
            if depth > self.request.depth {
                continue;
            }
            let below = self.directory(&directory, depth, device)?;
            pending.extend(below.into_iter().rev().map(|path| (path, depth + 1)));
        }
        Ok(())
    }

    /// The entries of one directory; the directories among them.
    fn directory(&mut self, path: &Path, depth: u32, device: u64) -> io::Result<Vec<PathBuf>> {
        if path.as_os_str().len() > PATH_BYTES_MAX {
            self.fail(path, "too deep to look into", &io::Error::from_raw_os_error(36))?;
            return Ok(Vec::new());
        }
        interruption::check()?;
        let mut names = match fs::read_dir(path).and_then(|entries| {
            entries.map(|entry| entry.map(|entry| entry.file_name())).collect::<io::Result<Vec<_>>>()
        }) {
            Ok(names) => names,
            Err(error) => {
                self.fail(path, "cannot list", &error)?;
                return Ok(Vec::new());
            }
        };
        names.sort();
        self.record(&Record::Directory(Directory { path: path.as_os_str().as_bytes().to_vec(), depth }))?;
        let mut below = Vec::new();
        for name in names {
            let path = path.join(&name);
            match fs::symlink_metadata(&path) {
                Err(error) => self.fail(&path, "cannot access", &error)?,
                Ok(metadata) => {
                    self.entry(&name, &path, &metadata)?;
                    if metadata.is_dir() && (!self.request.one_file_system || metadata.dev() == device) {
                        match self.seen.is_new(&metadata) {
                            true => below.push(path),
                            false => self.fail(&path, IN_SEVERAL, &io::Error::from(Errno::LOOP))?,
                        }
                    }
                }
            }
        }
        Ok(below)
    }

    fn entry(&mut self, name: &OsStr, path: &Path, metadata: &Metadata) -> io::Result<()> {
        let mut entry = Entry {
            name: name.as_bytes().to_vec(),
            mode: metadata.mode(),
            inode: metadata.ino(),
            device: metadata.dev(),
            links: metadata.nlink(),
            user_id: metadata.uid(),
            group_id: metadata.gid(),
            size: metadata.size(),
            blocks: metadata.blocks(),
            modified: metadata.mtime(),
            modified_ns: metadata.mtime_nsec() as u32,
            accessed: metadata.atime(),
            changed: metadata.ctime(),
            accessed_ns: metadata.atime_nsec() as u32,
            changed_ns: metadata.ctime_nsec() as u32,
            // What cannot be looked into is told of when it is looked into.
            empty: self.request.emptiness
                && metadata.is_dir()
                && fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none()),
            major: rustix::fs::major(metadata.rdev()),
            minor: rustix::fs::minor(metadata.rdev()),
            ..Entry::default()
        };
        if let Some((users, groups)) = &self.names {
            entry.user = users.name(metadata.uid());
            entry.group = groups.name(metadata.gid());
            if metadata.is_symlink() {
                // A damaged one is listed all the same.
                entry.target =
                    fs::read_link(path).map(|target| target.into_os_string().into_encoded_bytes()).unwrap_or_default();
            }
        }
        if self.request.attributes && metadata.is_file() {
            self.attributes(path, &mut entry)?;
        }
        self.record(&Record::Entry(entry))
    }

    fn attributes(&mut self, path: &Path, entry: &mut Entry) -> io::Result<()> {
        let mut attributes = match attributes(path) {
            Ok(attributes) => attributes,
            Err(error) => return self.fail(path, "cannot read the extended attributes of", &error),
        };
        let list = attributes.iter().find(|(name, _)| name == ACCESS_LIST.as_bytes());
        if let Some(Ok(list)) = list.map(|(_, value)| AccessControlList::of_attribute(value)) {
            entry.mode = list.mode_without(entry.mode);
        }
        attributes.retain(|(name, _)| is_user_attribute(name));
        let bytes: usize = attributes.iter().map(|(name, value)| name.len() + value.len()).sum();
        if bytes > ATTRIBUTE_BYTES_MAX {
            entry.more_attributes = true;
        } else {
            entry.attributes = attributes.into_iter().map(|(name, value)| Attribute { name, value }).collect();
        }
        Ok(())
    }

    fn fail(&mut self, path: &Path, what: &str, error: &io::Error) -> io::Result<()> {
        self.record(&Record::Failure(failure(path, what, error)))
    }

    fn record(&mut self, record: &Record) -> io::Result<()> {
        write_record(record, &mut self.frame, self.sink)
    }
}

/// Writes a record as a frame.
pub(crate) fn write_record(record: &Record, buffer: &mut [u8], sink: &mut dyn Write) -> io::Result<()> {
    sink.write_all(appliance::encode(record, buffer).map_err(io::Error::other)?)
}

/// Writes a record for each mounted file system to `sink`.
pub(crate) fn usage(mounts: &Mounts, sink: &mut dyn Write) -> io::Result<()> {
    let mut buffer = vec![0; FRAME_BYTES_MAX];
    for mounted in &mounts.mounted {
        let point = &mounted.point;
        let record = match rustix::fs::statvfs(path_of(&point.directory)) {
            Err(errno) => Record::Failure(failure(path_of(&point.directory), "cannot access", &errno.into())),
            Ok(usage) => Record::FileSystem(FileSystem {
                device: point.device.clone(),
                directory: point.directory.clone(),
                r#type: point.r#type.clone(),
                block_size: usage.f_frsize,
                blocks: usage.f_blocks,
                free: usage.f_bfree,
                available: usage.f_bavail,
                files: usage.f_files,
                free_files: usage.f_ffree,
            }),
        };
        write_record(&record, &mut buffer, sink)?;
    }
    Ok(())
}
