//! A directory as if it were the root: links in it lead nowhere else.

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::path::Path;

pub(crate) struct Tree(OwnedFd);

impl Tree {
    pub(crate) fn open(root: &Path) -> Result<Self, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        Ok(Self(openat2(CWD, root, flags, Mode::empty(), ResolveFlags::empty())?))
    }

    /// A file, whatever links are on the way.
    pub(crate) fn file(&self, path: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
        openat2(&self.0, path, flags | OFlags::CLOEXEC, Mode::empty(), ResolveFlags::IN_ROOT)
    }

    pub(crate) fn has(&self, path: &str) -> bool {
        self.file(path, OFlags::PATH).is_ok()
    }

    /// The first bytes of a regular file, as far as they can be read.
    pub(crate) fn head(&self, path: &str, bytes_max: u64) -> Option<Vec<u8>> {
        // A fifo would make us wait.
        let file = File::from(self.file(path, OFlags::RDONLY | OFlags::NONBLOCK).ok()?);
        let mut bytes = Vec::new();
        file.metadata().ok()?.is_file().then(|| file.take(bytes_max).read_to_end(&mut bytes).unwrap_or_default())?;
        Some(bytes)
    }
}
