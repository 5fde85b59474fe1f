//! Open Virtualization Archives: a tar with a description (OVF) of a virtual machine and the files of its disks, which
//! are read where they lie.
//!
//! Nothing outside of the archive is opened, and of it only regular members are looked at. Of the description, only
//! what names disks is read.
//!
//! Sources: DMTF's DSP0243 (OVF 1.1 and 2.1), POSIX's pax for ustar and its extensions.

mod envelope;
mod manifest;
mod members;
#[cfg(test)]
mod tests;

use super::block_map::{BlockMapDisk, ImageFile};
use super::{BlockMapFormat, ImageError};
use crate::{FileOptions, OpenedFile};
use envelope::Envelope;
pub use manifest::Digest;
use members::{Member, Members};
use std::num::NonZeroU32;

/// Longest description, and longest manifest: those of VMware have some 20 KiB.
const TEXT_MAX_BYTES: u64 = 2 << 20;

/// An archive that was opened, and what its description says of disks.
#[derive(Debug)]
pub struct Ova {
    file: ImageFile,
    members: Members,
    /// The name of the description.
    description: String,
    disks: Vec<OvaDisk>,
}

/// A disk of an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OvaDisk {
    /// What the description calls it.
    pub id: String,
    /// The member that has it; `None`: a new, empty disk.
    pub name: Option<String>,
    /// Bytes of it, as far as the description says so.
    pub capacity_bytes: Option<u64>,
    /// The description's word for its format: a URI.
    pub format: String,
    /// The member is compressed as a whole, or in pieces, and how.
    packing: Option<String>,
}

impl Ova {
    /// Reads which members the archive in `file` has, and its description.
    ///
    /// # Errors
    /// When it cannot be read or understood.
    pub fn open(file: &OpenedFile) -> Result<Self, ImageError> {
        let file = ImageFile::of(file.file(), file.path())?;
        let members = Members::read(&file)?;
        let unusable = |problem: String| file.unusable(problem);
        let description = members.only_one_called(".ovf").map_err(unusable)?;
        let description = description.ok_or_else(|| unusable("is no OVA: it has no description (.ovf)".into()))?;
        let text = members.text(&file, description)?;
        let mut disks = Envelope::parse(&text)
            .and_then(Envelope::disks)
            .map_err(|problem| unusable(format!("has a description that cannot be understood: {problem}")))?;
        for name in disks.iter_mut().filter_map(|disk| disk.name.as_mut()) {
            *name = members.meant(name).map_err(unusable)?;
        }
        let description = description.name.clone();
        Ok(Self { file, members, description, disks })
    }

    /// Its disks, in the order in which the description has them; they are numbered from 1 on.
    pub fn disks(&self) -> &[OvaDisk] {
        &self.disks
    }

    /// Opens one of its disks for reading, the only one if no number says which. Its data are carried by the engine in
    /// `options`.
    ///
    /// # Errors
    /// When there is no such disk, or it cannot be opened; when it is to be written to.
    pub fn open_disk(&self, number: Option<NonZeroU32>, options: &FileOptions) -> Result<BlockMapDisk, ImageError> {
        let path = self.file.path();
        let count = self.disks.len();
        let index = match (number, count) {
            (Some(number), _) => number.get() as usize - 1,
            (None, 0 | 1) => 0,
            (None, _) => {
                let problem = format!("{} has {count} disks: add ,disk=1 to ,disk={count}", crate::shown(path));
                return Err(ImageError::Invalid(problem));
            }
        };
        let unusable = |problem: String| self.file.unusable(problem);
        let disk = self.disks.get(index).ok_or_else(|| unusable(format!("has no disk {}, but {count}", index + 1)))?;
        let of_it = |problem: &str| unusable(format!("has a disk {} that {problem}", index + 1));
        let name = disk.name.as_ref().ok_or_else(|| of_it("has no file: it is a new, empty one"))?;
        if let Some(packing) = &disk.packing {
            return Err(of_it(&format!("is {packing}: unpack the archive first")));
        }
        if disk.format.is_empty() {
            return Err(of_it("does not say its format, and only VMDK is supported: unpack it first"));
        }
        if !disk.format.contains("vmdk") {
            let format: String = disk.format.chars().take(100).flat_map(char::escape_debug).collect();
            return Err(of_it(&format!("is in the format \"{format}\", and only VMDK is supported: unpack it first")));
        }
        let member = self.members.find(name).map_err(unusable)?;
        let member =
            member.ok_or_else(|| of_it(&format!("is to be in {name:?}, which is no member of the archive")))?;
        BlockMapDisk::open_part(&self.file, &member.name, member.range(), BlockMapFormat::Vmdk, options)
    }

    /// The digests of its manifest; `None` if it has none.
    ///
    /// # Errors
    /// When it cannot be read or understood.
    pub fn digests(&self) -> Result<Option<Vec<Digest>>, ImageError> {
        let unusable = |problem: String| self.file.unusable(problem);
        let Some(member) = self.members.only_one_called(".mf").map_err(unusable)? else { return Ok(None) };
        let text = self.members.text(&self.file, member)?;
        Ok(Some(manifest::parse(&text).map_err(unusable)?))
    }

    /// Reads what the manifest has a digest of, and compares: what is wrong, if something is.
    ///
    /// # Errors
    /// When a member cannot be read.
    pub fn compare(&self, digest: &Digest) -> Result<Option<String>, ImageError> {
        let unusable = |problem: String| self.file.unusable(problem);
        let Some(member) = self.members.find(digest.name()).map_err(unusable)? else {
            return Ok(Some(format!("{:?} is in the manifest, and no member of the archive", digest.name())));
        };
        let is_same = digest.is_of(&self.file, member).map_err(|source| ImageError::System {
            action: "read",
            path: self.file.path().to_owned(),
            source,
        })?;
        Ok((!is_same).then(|| format!("{:?} is not what the manifest has the digest of", digest.name())))
    }

    /// The names of what a digest should be of: the description, and the disks' members.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let disks = self.disks.iter().filter_map(|disk| disk.name.as_deref());
        std::iter::once(self.description.as_str()).chain(disks)
    }
}

impl Member {
    fn range(&self) -> std::ops::Range<u64> {
        self.offset_bytes..self.offset_bytes + self.length_bytes
    }
}
