//! What is known of files: of one, of those in directories, of whole trees.

use super::file_type::is_directory;
use super::paths;
use crate::error::Result;
use crate::guest::records::Room;
use crate::guest::{OpenImage, RecordTaker, image_path};
use blockyard_protocol::appliance::{Entry, Operation, Record, Walk};
use blockyard_protocol::pattern::escaped;
use std::io;
use std::path::Path;

/// Files that [`OpenImage::list`] gives back: an image may have any number.
const FILES_MAX: usize = 1 << 20;

/// How far files are looked at.
#[derive(Clone, Copy, Debug, Default)]
pub struct WalkOptions {
    /// How deep: 0 for what is named, 1 for what is in directories too.
    pub depth: u32,
    /// What is mounted below is left out.
    pub one_file_system: bool,
    /// Of links that are named, what they lead to.
    pub follow: bool,
    /// Owners' names and links' targets are found out.
    pub details: bool,
    /// It is found out which directories are empty.
    pub emptiness: bool,
}

/// Where a file was come across.
#[derive(Clone, Debug, Default)]
pub struct Place {
    /// What was named: the file, or a directory above it.
    pub start: Vec<u8>,
    /// The directory that it is in, below `start`.
    pub directory: Vec<u8>,
    /// How deep it lies in what was named: 0 for that itself.
    pub depth: u32,
}

impl Place {
    /// The path of the file there.
    pub fn path(&self, entry: &Entry) -> Vec<u8> {
        if is_named(entry) {
            return entry.name.clone();
        }
        let slash: &[u8] = if self.directory.ends_with(b"/") { b"" } else { b"/" };
        [&self.directory, slash, &entry.name].concat()
    }
}

/// Whether a file is one that was named, whose name is a path: it has no name in a directory.
pub fn is_named(entry: &Entry) -> bool {
    entry.name.contains(&b'/')
}

/// Whoever is told of files as they are come across, in a thread of its own.
pub trait Visitor: Send + 'static {
    /// What comes of it.
    type Output: Send + 'static;

    /// A directory, before the files in it, and how deep it lies in what was named, from 1.
    ///
    /// # Errors
    /// When nothing more is wanted.
    fn directory(&mut self, path: &[u8], depth: u32) -> io::Result<()> {
        let _ = (path, depth);
        Ok(())
    }

    /// A file.
    ///
    /// # Errors
    /// When nothing more is wanted.
    fn file(&mut self, place: &Place, entry: Entry) -> io::Result<()>;

    /// There are no more.
    ///
    /// # Errors
    /// When its output fails.
    fn finish(self) -> io::Result<Self::Output>;
}

/// A file of the image.
#[derive(Clone, Debug, PartialEq)]
pub struct File {
    /// From the image's root.
    pub path: Vec<u8>,
    /// What is known of it.
    pub entry: Entry,
}

impl OpenImage {
    /// What is at a path of the image: with `follow` through links, otherwise with owners' names and a link's target.
    /// `None` when nothing is.
    ///
    /// # Errors
    /// When it cannot be looked at.
    pub fn entry(&mut self, path: &Path, follow: bool) -> Result<Option<Entry>> {
        let walk = Walk { paths: vec![escaped(&image_path(path))], follow, details: !follow, ..Walk::default() };
        self.records_if_any(Operation::Walk(walk), First(None))
    }

    /// Goes through files and directories, each of which is in order of name, and tells `visitor` of them. Paths may be
    /// patterns, as a shell has them.
    ///
    /// # Errors
    /// When something cannot be looked at: `visitor` was told of all the rest. When `visitor` wants no more.
    pub fn walk<P: AsRef<Path>, V: Visitor>(
        &mut self,
        sources: impl IntoIterator<Item = P>,
        options: &WalkOptions,
        visitor: V,
    ) -> Result<V::Output> {
        let &WalkOptions { depth, one_file_system, follow, details, emptiness } = options;
        let paths = paths(sources);
        let walk = Walk { paths, depth, one_file_system, follow, details, emptiness, ..Walk::default() };
        self.records(Operation::Walk(walk), Walker { visitor, place: Place::default() })
    }

    /// The files that [`OpenImage::walk`] comes across; of directories that are looked into, what is in them.
    ///
    /// # Errors
    /// As there, and when they are more than 1,048,576, or take more than 512 MiB.
    pub fn list<P: AsRef<Path>>(
        &mut self,
        sources: impl IntoIterator<Item = P>,
        options: &WalkOptions,
    ) -> Result<Vec<File>> {
        let list = List { files: Vec::new(), room: Room::default(), looks_in: options.depth > 0 };
        self.walk(sources, options, list)
    }
}

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

/// Keeps in mind where the walk is.
struct Walker<V> {
    visitor: V,
    place: Place,
}

impl<V: Visitor> RecordTaker for Walker<V> {
    type Output = V::Output;

    fn take(&mut self, record: Record) -> io::Result<()> {
        match record {
            Record::Directory(directory) => {
                (self.place.directory, self.place.depth) = (directory.path, directory.depth);
                self.visitor.directory(&self.place.directory, self.place.depth)
            }
            Record::Entry(entry) => {
                if is_named(&entry) {
                    (self.place.start, self.place.depth) = (entry.name.clone(), 0);
                }
                self.visitor.file(&self.place, entry)
            }
            _ => Ok(()),
        }
    }

    fn finish(self) -> io::Result<Self::Output> {
        self.visitor.finish()
    }
}

struct List {
    files: Vec<File>,
    room: Room,
    looks_in: bool,
}

impl Visitor for List {
    type Output = Vec<File>;

    fn file(&mut self, place: &Place, entry: Entry) -> io::Result<()> {
        if self.looks_in && is_named(&entry) && is_directory(entry.mode) {
            return Ok(());
        }
        if self.files.len() == FILES_MAX {
            return Err(io::Error::other("too many files"));
        }
        let path = place.path(&entry);
        self.room.take(path.len())?;
        self.room.take_entry(&entry)?;
        self.files.push(File { path, entry });
        Ok(())
    }

    fn finish(self) -> io::Result<Self::Output> {
        Ok(self.files)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use blockyard_protocol::appliance::Directory;

    fn entry(name: &str, mode: u32) -> Record {
        Record::Entry(Entry { name: name.as_bytes().to_vec(), mode, ..Entry::default() })
    }

    #[test]
    fn a_file_has_the_path_of_its_directory() {
        const DIRECTORY: u32 = 0o040_755;
        let list = List { files: Vec::new(), room: Room::default(), looks_in: true };
        let mut walker = Walker { visitor: list, place: Place::default() };
        let directory = |path: &str, depth| Record::Directory(Directory { path: path.as_bytes().to_vec(), depth });
        for record in [
            entry("/", DIRECTORY),
            directory("/", 1),
            entry("etc", DIRECTORY),
            directory("/etc", 2),
            entry("fstab", 0o100_644),
            entry("/srv/file", 0o100_644),
        ] {
            walker.take(record).unwrap();
        }
        assert_eq!((&walker.place.start[..], walker.place.depth), (&b"/srv/file"[..], 0));
        let paths: Vec<_> = walker.finish().unwrap().into_iter().map(|file| file.path).collect();
        assert_eq!(paths, [&b"/etc"[..], b"/etc/fstab", b"/srv/file"]);
    }
}
