//! What VMware's disks say of themselves. They are opened by [`super::block_map`].

pub(super) mod descriptor;
#[cfg(test)]
mod tests;

use super::ImageError;
use super::block_map::vmdk_description;
use crate::OpenedFile;
use descriptor::{Descriptor, ExtentLine, Storage};

/// The unit of a descriptor.
const SECTOR_BYTES: u64 = 512;

/// Most files: each has a ring of its own in every queue.
pub(super) const FILES_MAX: usize = 256;

/// What a VMDK says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VmdkInfo {
    /// Number of its contents, which changes when they do.
    pub cid: u32,
    /// The number of what it depends on; all ones without that.
    pub parent_cid: u32,
    /// What it calls what it depends on.
    pub parent: Option<String>,
    /// What VMware calls its type.
    pub create_type: String,
    /// What it is made of, in order.
    pub extents: Vec<VmdkExtent>,
    /// Whoever wrote to it last has not closed it.
    pub is_dirty: bool,
    /// What of the descriptor within it other programs may take for more than is taken of it here, as a clause that
    /// goes on after "its descriptor".
    pub oddity: Option<String>,
}

/// A part of a VMDK's disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VmdkExtent {
    /// How long it is.
    pub length_bytes: u64,
    /// The file that has it, as the descriptor calls it; `None` for zeros, and for the file that says this.
    pub name: Option<String>,
    /// FLAT, VMFS, ZERO, SPARSE, VMFSSPARSE or SESPARSE.
    pub kind: &'static str,
    /// Of a file that has grains, and was looked at: their length, and whether they are compressed.
    pub grains: Option<(u64, bool)>,
}

impl VmdkInfo {
    /// Reads what the descriptor in `file` says, or its header. No other file is opened.
    ///
    /// # Errors
    /// When it cannot be read, or understood.
    pub fn of(file: &OpenedFile) -> Result<Self, ImageError> {
        let (descriptor, own) = vmdk_description(file)?;
        let Descriptor { cid, parent_cid, create_type, parent, extents, oddity, .. } = descriptor;
        let is_dirty = own.as_ref().is_some_and(|(_, is_dirty)| *is_dirty);
        let extent = |line: ExtentLine| VmdkExtent {
            length_bytes: line.length_bytes,
            name: match line.storage {
                Storage::Flat { name, .. } | Storage::Grains { name } => Some(name),
                Storage::Zero => None,
            },
            kind: line.kind,
            grains: None,
        };
        let extents = match own {
            Some((own, _)) => vec![own],
            None => extents.into_iter().map(extent).collect(),
        };
        Ok(Self { cid, parent_cid, parent, create_type, extents, is_dirty, oddity })
    }

    /// Whether its files have nothing but the disk's bytes, and nothing is behind them.
    pub fn is_flat(&self) -> bool {
        let is_flat = |extent: &VmdkExtent| matches!(extent.kind, "FLAT" | "VMFS" | "ZERO");
        self.parent_cid == descriptor::NO_PARENT && self.extents.iter().all(is_flat)
    }

    /// Whether it shows another image's disk where it holds nothing.
    pub fn depends_on_another(&self) -> bool {
        self.parent_cid != descriptor::NO_PARENT || self.parent.is_some()
    }

    /// Bytes of its disk.
    pub fn size_bytes(&self) -> u64 {
        self.extents.iter().map(|extent| extent.length_bytes).fold(0, u64::saturating_add)
    }
}
