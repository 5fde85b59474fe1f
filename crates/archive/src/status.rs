//! What an archive says of a file.

use rustix::fs::FileType;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use tar::{EntryType, Header};

/// What stat(2) says of a file, as far as an archive wants it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// Type and permissions.
    pub mode: u32,
    /// Owner.
    pub user: u32,
    /// Group.
    pub group: u32,
    /// Seconds since 1970.
    pub modified: i64,
    /// Bytes.
    pub size: u64,
    /// Of 512 bytes.
    pub blocks: u64,
    /// Where it is.
    pub device: u64,
    /// Which it is there.
    pub inode: u64,
    /// Names that it has.
    pub links: u64,
}

impl Status {
    /// Whether it is a regular file.
    pub fn is_file(&self) -> bool {
        FileType::from_raw_mode(self.mode) == FileType::RegularFile
    }

    pub(crate) fn is_directory(&self) -> bool {
        FileType::from_raw_mode(self.mode) == FileType::Directory
    }

    /// A regular file's header.
    pub(crate) fn header(&self) -> Header {
        let mut header = Header::new_gnu();
        header.set_entry_type(EntryType::Regular);
        header.set_mode(self.mode);
        header.set_uid(self.user.into());
        header.set_gid(self.group.into());
        // The format has no time before 1970.
        header.set_mtime(self.modified.max(0).unsigned_abs());
        header.set_size(self.size);
        header
    }
}

impl From<&Metadata> for Status {
    fn from(metadata: &Metadata) -> Self {
        Self {
            mode: metadata.mode(),
            user: metadata.uid(),
            group: metadata.gid(),
            modified: metadata.mtime(),
            size: metadata.size(),
            blocks: metadata.blocks(),
            device: metadata.dev(),
            inode: metadata.ino(),
            links: metadata.nlink(),
        }
    }
}
