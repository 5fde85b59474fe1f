//! Small files, which are made together.

use super::directories::Directories;
use super::metadata::Metadata;
use super::parents::Parent;
use super::{create, failed};
use crate::failures::Failures;
use crate::ring::{CALLS_MAX, Opening, Ring};
use crate::tar_in::NEW_FILE;
use rustix::io::Errno;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Bytes of a file that is small.
const SMALL_BYTES: u64 = 128 << 10;
/// Bytes that all of them together may have.
const TOGETHER_BYTES: usize = 1 << 20;

/// Files that are complete and are to be made.
pub(super) struct SmallFiles {
    ring: Ring,
    files: Vec<SmallFile>,
    /// Their data, one after another.
    data: Box<[u8]>,
    used: usize,
}

struct SmallFile {
    path: PathBuf,
    name: CString,
    parent: Rc<Parent>,
    metadata: Metadata,
    data: std::ops::Range<usize>,
}

impl SmallFiles {
    pub(super) fn new() -> Self {
        Self { ring: Ring::new(), files: Vec::new(), data: vec![0; TOGETHER_BYTES].into(), used: 0 }
    }

    /// Whether a file of so many bytes is small.
    pub(super) fn takes(bytes: u64) -> bool {
        bytes <= SMALL_BYTES
    }

    /// Whether a small file can wait with the others. They are made in any order, so no two can have one name, in
    /// whichever case.
    pub(super) fn has_room(&self, path: &Path, bytes: u64) -> bool {
        let same = |file: &SmallFile| file.path.as_os_str().eq_ignore_ascii_case(path.as_os_str());
        self.files.len() < CALLS_MAX
            && self.used as u64 + bytes <= TOGETHER_BYTES as u64
            && !self.files.iter().any(same)
    }

    /// Adds a file that there is room for; `read` reads its data.
    pub(super) fn add(
        &mut self,
        path: &Path,
        parent: Rc<Parent>,
        metadata: Metadata,
        bytes: u64,
        read: impl FnOnce(&mut [u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        let name = path.file_name().ok_or(Errno::ISDIR)?;
        let name = CString::new(name.as_bytes()).map_err(|_| Errno::INVAL)?;
        let data = self.used..self.used + bytes as usize;
        read(&mut self.data[data.clone()])?;
        self.used = data.end;
        self.files.push(SmallFile { path: path.to_owned(), name, parent, metadata, data });
        Ok(())
    }

    /// Makes them all: a file's failure is noted, and of `directories` those are forgotten whose places they take.
    ///
    /// # Errors
    /// When the kernel does not do as it is asked at all.
    pub(super) fn make(&mut self, failures: &mut Failures, directories: &mut Directories) -> io::Result<()> {
        if self.files.is_empty() {
            return Ok(());
        }
        let opened = self.ring.open(self.files.iter().map(SmallFile::opening))?;
        let mut made = Vec::with_capacity(self.files.len());
        for (file, opened) in self.files.iter().zip(opened) {
            // Something of that name is there.
            match opened.or_else(|_| create(&file.parent, &file.name, &file.path, &file.metadata, directories)) {
                Ok(new) => made.push((file, new)),
                Err(error) => failed(failures, &file.path, error),
            }
        }
        let writes = made.iter().map(|(file, new)| (new.as_fd(), &self.data[file.data.clone()]));
        let written = self.ring.write(writes)?;
        for ((file, new), written) in made.iter().zip(written) {
            let done = written
                .and_then(|written| write_rest(new.as_fd(), &self.data[file.data.clone()], written))
                .and_then(|()| file.metadata.set(new.as_fd(), file.parent.inheritance));
            done.unwrap_or_else(|error| failed(failures, &file.path, error));
        }
        let new: Vec<OwnedFd> = made.into_iter().map(|(_, new)| new).collect();
        self.ring.close(new.into_iter())?;
        self.files.clear();
        self.used = 0;
        Ok(())
    }
}

impl SmallFile {
    fn opening(&self) -> Opening<'_> {
        let mode = self.metadata.first_mode(self.parent.inheritance);
        Opening { directory: self.parent.as_fd(), name: &self.name, flags: NEW_FILE, mode }
    }
}

/// What was not written the first time, mostly because there is no space.
fn write_rest(file: BorrowedFd<'_>, data: &[u8], mut written: usize) -> io::Result<()> {
    while written < data.len() {
        match rustix::io::pwrite(file, &data[written..], written as u64)? {
            0 => return Err(Errno::NOSPC.into()),
            more => written += more,
        }
    }
    Ok(())
}
