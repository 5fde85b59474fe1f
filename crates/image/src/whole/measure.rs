//! How large the file of a new image would be.

use super::new_image::{check_stream, not_made};
use crate::error::{Result, refuse};
use blockyard_block::specification::Format;
use blockyard_block::{
    BlockMapCreateOptions, Disk, Extent, ExtentKind, LuksOptions, Preallocation, Qcow2CreateOptions, Qcow2Features,
    Qcow2Info, VmdkCreateOptions, walk_extents,
};

/// What a new image is to be, as far as its size depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measuring {
    /// Its format.
    pub format: Format,
    /// What the size of the disk is a multiple of.
    pub size_unit_bytes: u64,
    /// The unit of allocation, where the format leaves a choice.
    pub cluster_bytes: Option<u32>,
    /// Every block of another hypervisor's format has its place from the start.
    pub is_fixed: bool,
    /// What a VMDK says besides.
    pub vmdk: VmdkCreateOptions,
    /// What whoever uses a qcow2 image must know.
    pub features: Qcow2Features,
    /// What is allocated from the start.
    pub preallocation: Preallocation,
    /// A qcow2 image has a header of encryption.
    pub is_encrypted: bool,
}

/// Sizes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measured {
    /// With what the disk holds now.
    pub required_bytes: u64,
    /// With everything written.
    pub full_bytes: u64,
}

impl Measured {
    /// The same with so many bytes more.
    fn with(self, bytes: u64) -> Self {
        let more = |size: u64| size.saturating_add(bytes);
        Self { required_bytes: more(self.required_bytes), full_bytes: more(self.full_bytes) }
    }
}

/// What the new image is to hold.
#[derive(Clone, Copy)]
pub enum Contents<'a> {
    /// What this disk does.
    Of(&'a dyn Disk),
    /// Nothing, on a disk of so many bytes.
    Empty(u64),
}

impl Measuring {
    /// Bytes that the bitmaps of a qcow2 image take in a new one of this sort, if both can have any: as
    /// `qcow2_get_persistent_dirty_bitmap_size` in QEMU's block/qcow2-bitmap.c. Ask after [`Measuring::run`].
    pub fn bitmaps_bytes(&self, source: &Qcow2Info) -> Option<u64> {
        const DIRECTORY_ENTRY_BYTES: u64 = 24;
        if self.format != Format::Qcow2 || source.version < 3 {
            return None;
        }
        let cluster_bytes = u64::from(self.cluster_bytes.unwrap_or(64 << 10)).max(1);
        let (mut bytes, mut directory_bytes) = (0, 0);
        for bitmap in source.bitmaps.iter().filter(|bitmap| bitmap.can_be_kept) {
            let bits = source.size_bytes.div_ceil(bitmap.granularity_bytes.max(1));
            let clusters = bits.div_ceil(8).div_ceil(cluster_bytes);
            bytes += clusters * cluster_bytes + (clusters * 8).next_multiple_of(cluster_bytes);
            directory_bytes += (DIRECTORY_ENTRY_BYTES + bitmap.name.len() as u64).next_multiple_of(8);
        }
        Some(bytes + directory_bytes.next_multiple_of(cluster_bytes))
    }

    /// Measures.
    ///
    /// # Errors
    /// When there is no such image, the disk cannot be read, or no file can hold it.
    pub fn run(&self, contents: Contents<'_>) -> Result<Measured> {
        let size_bytes = match contents {
            Contents::Of(disk) => disk.geometry().capacity_bytes,
            Contents::Empty(size_bytes) => size_bytes,
        };
        let size_bytes = size_bytes.checked_next_multiple_of(self.size_unit_bytes).unwrap_or(size_bytes);
        let measured = match self.format {
            Format::Raw => Some(Measured { required_bytes: size_bytes, full_bytes: size_bytes }),
            Format::Qcow2 => {
                let Self { features, preallocation, .. } = *self;
                let image = Qcow2CreateOptions { features, preallocation, ..Qcow2CreateOptions::new(size_bytes) };
                let image =
                    Qcow2CreateOptions { cluster_bytes: self.cluster_bytes.unwrap_or(image.cluster_bytes), ..image };
                image.check()?;
                let cluster_bytes = u64::from(image.cluster_bytes);
                let data_bytes = self.data_bytes(contents, size_bytes, cluster_bytes)?;
                let header_bytes = if self.is_encrypted { LuksOptions::HEADER_BYTES } else { 0 };
                qcow2(size_bytes, data_bytes, cluster_bytes, self.features).map(|bytes| bytes.with(header_bytes))
            }
            Format::BlockMap(format) if self.format.is_made() => {
                let Self { cluster_bytes: block_bytes, is_fixed, vmdk, preallocation, .. } = *self;
                if vmdk.is_stream {
                    check_stream(preallocation)?;
                }
                let image = BlockMapCreateOptions::new(format, size_bytes);
                let image = BlockMapCreateOptions { block_bytes, is_fixed, vmdk, preallocation, ..image };
                let block_bytes = image.block_bytes()?;
                let data_bytes = self.data_bytes(contents, size_bytes, block_bytes)?;
                let file_bytes = |data_bytes: u64| image.file_bytes(data_bytes.div_ceil(block_bytes));
                Some(Measured { required_bytes: file_bytes(data_bytes)?, full_bytes: file_bytes(size_bytes)? })
            }
            Format::Luks => {
                let bytes = Measured { required_bytes: size_bytes, full_bytes: size_bytes };
                Some(bytes.with(LuksOptions::HEADER_BYTES))
            }
            Format::BlockMap(_) | Format::Ova => return Err(not_made(self.format)),
        };
        match measured {
            Some(measured) => Ok(measured),
            None => refuse!("no file can hold a disk of {size_bytes} bytes in this format"),
        }
    }

    fn data_bytes(&self, contents: Contents<'_>, size_bytes: u64, cluster_bytes: u64) -> Result<u64> {
        // Of a qcow2 image, what only has its place is holes of the file.
        let is_hole = match self.preallocation {
            Preallocation::Off => true,
            Preallocation::Metadata => self.format == Format::Qcow2,
            Preallocation::Falloc | Preallocation::Full => false,
        };
        match contents {
            Contents::Of(disk) if is_hole => data_bytes(disk, cluster_bytes),
            Contents::Empty(_) if is_hole => Ok(0),
            _ => Ok(size_bytes.next_multiple_of(cluster_bytes)),
        }
    }
}

/// Bytes of clusters that hold data.
fn data_bytes(disk: &dyn Disk, cluster_bytes: u64) -> Result<u64> {
    let capacity_bytes = disk.geometry().capacity_bytes;
    let (mut data_bytes, mut counted_to) = (0, 0);
    for extent in walk_extents(disk, 0..capacity_bytes) {
        let Extent { offset_bytes, length_bytes, kind } = extent?;
        if kind == ExtentKind::Data {
            let start = (offset_bytes - offset_bytes % cluster_bytes).max(counted_to);
            let end = (offset_bytes + length_bytes).next_multiple_of(cluster_bytes);
            data_bytes += end - start.min(end);
            counted_to = end;
        }
    }
    Ok(data_bytes)
}

/// As `qcow2_measure` in QEMU's block/qcow2.c; `None` when that is more than there can be.
fn qcow2(size_bytes: u64, data_bytes: u64, cluster_bytes: u64, features: Qcow2Features) -> Option<Measured> {
    const ENTRY_BYTES: u64 = 8;
    let l2_entry_bytes = if features.has_extended_l2 { 2 * ENTRY_BYTES } else { ENTRY_BYTES };
    let refcounts_per_block = (cluster_bytes * 8) >> features.refcount_order;
    let size_bytes = size_bytes.checked_next_multiple_of(cluster_bytes)?;
    let entries = cluster_bytes / ENTRY_BYTES;
    let l2_bytes = (size_bytes / cluster_bytes).next_multiple_of(cluster_bytes / l2_entry_bytes) * l2_entry_bytes;
    let l1_bytes = (l2_bytes / cluster_bytes).next_multiple_of(entries) * ENTRY_BYTES;
    let clusters = (cluster_bytes + l2_bytes + l1_bytes).checked_add(size_bytes)? / cluster_bytes;
    let (mut blocks, mut tables) = (0, 0);
    loop {
        let new_blocks = (clusters + blocks + tables).div_ceil(refcounts_per_block);
        let new_tables = new_blocks.div_ceil(entries);
        if (new_blocks, new_tables) == (blocks, tables) {
            break;
        }
        (blocks, tables) = (new_blocks, new_tables);
    }
    let full_bytes = (clusters + blocks + tables).checked_mul(cluster_bytes)?;
    Some(Measured { required_bytes: full_bytes - size_bytes + data_bytes, full_bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absurd_sizes_are_no_panic() {
        for size in [u64::MAX, u64::MAX - 65535, 1 << 63] {
            for cluster in [512, 65536, 2 << 20] {
                let _ = qcow2(size, 0, cluster, Qcow2Features::default());
            }
        }
        let empty = Measured { required_bytes: 393_216, full_bytes: 1_074_135_040 };
        assert_eq!(qcow2(1 << 30, 0, 65536, Qcow2Features::default()), Some(empty));
    }
}
