//! What an archive says of a file.

use crate::extended_header::Records;
use crate::{ACCESS_LIST, AccessControlList, Time};
use rustix::fs::FileType;
use std::fs::Metadata;
use std::io;
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
    /// When it was modified.
    pub modified: Time,
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
    /// Of a device that it is.
    pub device_number: u64,
}

impl Status {
    /// Whether it is a regular file.
    pub fn is_file(&self) -> bool {
        FileType::from_raw_mode(self.mode) == FileType::RegularFile
    }

    pub(crate) fn is_directory(&self) -> bool {
        FileType::from_raw_mode(self.mode) == FileType::Directory
    }

    pub(crate) fn is_socket(&self) -> bool {
        FileType::from_raw_mode(self.mode) == FileType::Socket
    }

    /// What of it is in a header: the file with these attributes, without data. Who does not know of access control
    /// lists gives nobody more than the file's list does.
    pub(crate) fn header_with(&self, attributes: &[(Vec<u8>, Vec<u8>)]) -> io::Result<Header> {
        let mut header = self.header()?;
        if let Some((_, value)) = attributes.iter().find(|(name, _)| name == ACCESS_LIST.as_bytes())
            && let Ok(list) = AccessControlList::of_attribute(value)
        {
            header.set_mode(list.mode_without(self.mode));
        }
        Ok(header)
    }

    /// A header of a file that has no data.
    pub(crate) fn header(&self) -> io::Result<Header> {
        let mut header = Header::new_gnu();
        header.set_entry_type(match FileType::from_raw_mode(self.mode) {
            FileType::Directory => EntryType::Directory,
            FileType::Symlink => EntryType::Symlink,
            FileType::CharacterDevice => EntryType::Char,
            FileType::BlockDevice => EntryType::Block,
            FileType::Fifo => EntryType::Fifo,
            _ => EntryType::Regular,
        });
        header.set_mode(self.mode);
        header.set_uid(self.user.into());
        header.set_gid(self.group.into());
        // The header has no time before 1970: that is in a record.
        header.set_mtime(self.modified.seconds.max(0).unsigned_abs());
        header.set_size(0);
        if header.entry_type().is_character_special() || header.entry_type().is_block_special() {
            header.set_device_major(rustix::fs::major(self.device_number))?;
            header.set_device_minor(rustix::fs::minor(self.device_number))?;
        }
        Ok(header)
    }

    /// What its header has no room for.
    pub(crate) fn records(&self, attributes: &[(Vec<u8>, Vec<u8>)]) -> Records {
        let mut records = Records::default();
        if self.modified.seconds < 0 || self.modified.nanoseconds > 0 {
            records.modified(self.modified);
        }
        attributes.iter().for_each(|(name, value)| records.attribute(name, value));
        if self.is_socket() {
            records.socket();
        }
        records
    }
}

impl From<&Metadata> for Status {
    fn from(metadata: &Metadata) -> Self {
        Self {
            mode: metadata.mode(),
            user: metadata.uid(),
            group: metadata.gid(),
            modified: Time { seconds: metadata.mtime(), nanoseconds: metadata.mtime_nsec() as u32 },
            size: metadata.size(),
            blocks: metadata.blocks(),
            device: metadata.dev(),
            inode: metadata.ino(),
            links: metadata.nlink(),
            device_number: metadata.rdev(),
        }
    }
}
