//! The files of a chain of images, whatever formats these are in: each once, and not too many images.

use super::{AllowedDirectories, BlockMapFormat, ImageError, KeyFile};
use crate::replacement::permissions;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

/// Most images of a chain, a raw disk at its end included.
pub(super) const CHAIN_MAX: usize = 32;

/// How often the images of a chain may become those of the other family, qcow2 or other hypervisors': what waits for
/// the queues of one waits for those of the next, and the system lets no more wait for each other than a few.
const CHANGES_MAX: usize = 2;

/// The format of an image that another one shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChainFormat {
    Raw,
    Qcow2,
    Luks,
    BlockMap(BlockMapFormat),
}

impl ChainFormat {
    /// The one that QEMU calls so in the header of the image above.
    pub(super) fn of_word(word: &str) -> Option<Self> {
        match word {
            "raw" | "file" | "host_device" => Some(Self::Raw),
            "qcow2" => Some(Self::Qcow2),
            "luks" => Some(Self::Luks),
            _ => BlockMapFormat::ALL.into_iter().find(|format| format.word() == word).map(Self::BlockMap),
        }
    }

    /// What QEMU calls it.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Qcow2 => "qcow2",
            Self::Luks => "luks",
            Self::BlockMap(format) => format.word(),
        }
    }
}

/// Device and inode of a file; for a device, which.
pub(super) type Identity = (u64, u64);

pub(super) fn identity(file: &File) -> io::Result<Identity> {
    let metadata = file.metadata()?;
    let is_device = metadata.file_type().is_block_device();
    Ok(if is_device { (u64::MAX, metadata.rdev()) } else { (metadata.dev(), metadata.ino()) })
}

/// What has been opened of a chain so far.
#[derive(Debug)]
pub(super) struct ChainFiles {
    /// An image that depends on itself never ends.
    seen: Vec<Identity>,
    /// Images that were opened.
    images: usize,
    /// Others were in front of the first one, whose name nobody gives.
    is_behind: bool,
    /// How often these became those of the other family.
    changes: usize,
    /// What the permission bits of all these files allow.
    permissions: u32,
    /// The same, of those behind the first image.
    permissions_behind: u32,
    /// The images that are encrypted, by how many are in front of them.
    encrypted: Vec<usize>,
    /// Nothing of what the images hold is read.
    are_only_held: bool,
}

impl Default for ChainFiles {
    fn default() -> Self {
        Self::behind(0)
    }
}

impl ChainFiles {
    /// Of a chain that goes on behind so many images, which are somebody else's.
    pub(super) fn behind(images: usize) -> Self {
        Self {
            seen: Vec::new(),
            images,
            is_behind: images > 0,
            changes: 0,
            permissions: 0o777,
            permissions_behind: 0o777,
            encrypted: Vec::new(),
            are_only_held: false,
        }
    }

    /// Of a chain whose files are to be open, and locked, and no more: that takes no key.
    pub(super) fn only_held() -> Self {
        Self { are_only_held: true, ..Self::default() }
    }

    /// Whether that is so.
    pub(super) fn are_only_held(&self) -> bool {
        self.are_only_held
    }

    /// Takes the file of the next image.
    ///
    /// # Errors
    /// When it is in the chain already, or the chain is too long.
    pub(super) fn add_image(&mut self, file: &File, path: &Path) -> Result<(), ImageError> {
        if self.images >= CHAIN_MAX {
            let problem = format!("is one of more than {CHAIN_MAX} files of a chain of images");
            return Err(ImageError::Unusable { path: path.to_owned(), problem });
        }
        self.images += 1;
        self.add_part(file, path)
    }

    /// Goes on with an image of the other family, which is at `path`.
    ///
    /// # Errors
    /// When that is too often.
    pub(super) fn change_family(&mut self, path: &Path) -> Result<(), ImageError> {
        if self.changes == CHANGES_MAX {
            let problem =
                "is behind qcow2 images and images of other hypervisors by turns, too often: convert one of them";
            return Err(ImageError::Unusable { path: path.to_owned(), problem: problem.into() });
        }
        self.changes += 1;
        Ok(())
    }

    /// Takes another file of the image that was taken last.
    ///
    /// # Errors
    /// When it is in the chain already.
    pub(super) fn add_part(&mut self, file: &File, path: &Path) -> Result<(), ImageError> {
        let failed = |source| ImageError::System { action: "look at", path: path.to_owned(), source };
        let identity = identity(file).map_err(failed)?;
        if self.seen.contains(&identity) {
            let problem = "depends on itself, or has one file in two places, of its own or of what is behind it".into();
            return Err(ImageError::Unusable { path: path.to_owned(), problem });
        }
        self.seen.push(identity);
        self.permit(file, path)
    }

    /// Takes what a file's permission bits allow, which may be in two places.
    ///
    /// # Errors
    /// When it cannot be looked at.
    pub(super) fn permit(&mut self, file: &File, path: &Path) -> Result<(), ImageError> {
        let failed = |source| ImageError::System { action: "look at", path: path.to_owned(), source };
        let permissions = permissions(file).map_err(failed)?;
        self.permissions &= permissions;
        if self.depth() > 0 {
            self.permissions_behind &= permissions;
        }
        Ok(())
    }

    /// The key of the image that was taken last, which is encrypted.
    pub(super) fn key<'k>(&mut self, allowed: &'k AllowedDirectories) -> Option<&'k KeyFile> {
        let depth = self.depth();
        self.encrypted.push(depth);
        allowed.keys().of(depth)
    }

    /// What is said where that is not there: goes on after the image's path.
    pub(super) fn no_key(&self) -> String {
        let name = "is encrypted: name the file that has its passphrase, and nothing else in it, by";
        match self.depth() {
            0 => format!("{name} ,key-file=FILE"),
            depth => format!(
                "{name} ,backing-key-file={depth}:FILE of the image in front (--backing-key-file where one is made)"
            ),
        }
    }

    /// What helps where the first image cannot be written to, as a part of a sentence.
    pub(super) fn only_read(&self) -> &'static str {
        match self.is_behind {
            false => "add ,ro, or make a qcow2 of it with `blockyard image convert`",
            true => "make a qcow2 of it with `blockyard image convert`, for what is in front to be based on",
        }
    }

    /// How many images are in front of the one that was taken last.
    fn depth(&self) -> usize {
        self.images.saturating_sub(1)
    }

    /// What the permission bits of all files allow.
    pub(super) fn permissions(&self) -> u32 {
        self.permissions
    }

    /// What those of the files behind the first image allow.
    pub(super) fn permissions_behind(&self) -> u32 {
        self.permissions_behind
    }

    /// The images that are encrypted, by how many are in front of them.
    pub(super) fn encrypted(&self) -> &[usize] {
        &self.encrypted
    }
}
