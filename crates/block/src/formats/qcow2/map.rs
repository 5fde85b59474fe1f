//! What lies where, as maps tell it.

use super::image::Image;
use super::image_tables::Own;
use crate::ExtentKind;
use std::io;
use std::ops::Range;

/// What an image's chain says of a run of the disk's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Qcow2Mapping {
    /// Bytes of the run; never zero.
    pub length_bytes: u64,
    /// Which image of the chain says so: 0 is the top one.
    pub depth: usize,
    /// What it says.
    pub kind: Qcow2MappingKind,
}

/// What is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Qcow2MappingKind {
    /// Data, in the file of the image at the depth, or its data file, at this offset.
    Data {
        /// Where in the file.
        offset_bytes: u64,
    },
    /// Zeros where there would be data, as there is a hole in that file.
    Reserved {
        /// Where in the file.
        offset_bytes: u64,
    },
    /// Data that are compressed.
    Compressed,
    /// Zeros, said by an image.
    Zeros,
    /// Zeros, in a raw image at the end of the chain that has nothing there.
    Hole {
        /// Where in the file.
        offset_bytes: u64,
    },
    /// Zeros, because no image has anything there.
    Absent,
}

/// What there is at the beginning of a range, and which of the image's files has it, if one has.
pub(super) fn map(image: &Image, range: Range<u64>) -> io::Result<(Qcow2Mapping, Option<usize>)> {
    image.geometry.check_extent_range(&range)?;
    let (offset, mut length_bytes) = (range.start, range.end - range.start);
    for (depth, tables) in image.tables.iter().enumerate() {
        if offset >= tables.size_bytes {
            // As QEMU has it: the image above says so, by being longer.
            let (depth, kind) = (depth.saturating_sub(1), Qcow2MappingKind::Absent);
            return Ok((Qcow2Mapping { length_bytes, depth, kind }, None));
        }
        let (own, own_bytes) = image.own_now(depth, offset, length_bytes.min(tables.size_bytes - offset))?;
        length_bytes = own_bytes;
        let kind = match own {
            Own::Nothing => continue,
            Own::Data { offset_bytes, .. } => {
                let file = image.below.get(tables.data_index).and_then(|below| below.file.as_ref());
                let file = file.filter(|_| tables.file().is_far_from_full(tables.layout.cluster_bytes()));
                let (is_hole, run_bytes) =
                    file.map_or((false, length_bytes), |file| file.first_run(offset_bytes, length_bytes));
                length_bytes = run_bytes;
                match is_hole {
                    true => Qcow2MappingKind::Reserved { offset_bytes },
                    false => Qcow2MappingKind::Data { offset_bytes },
                }
            }
            Own::Zeros => Qcow2MappingKind::Zeros,
            Own::Compressed { .. } | Own::Invalid => Qcow2MappingKind::Compressed,
        };
        return Ok((Qcow2Mapping { length_bytes, depth, kind }, Some(depth)));
    }
    let base = image.base.and_then(|index| image.below.get(index));
    let capacity_bytes = base.map_or(0, |base| base.disk.geometry().capacity_bytes);
    let Some(base) = base.filter(|_| offset < capacity_bytes) else {
        let (depth, kind) = (image.tables.len().saturating_sub(1), Qcow2MappingKind::Absent);
        return Ok((Qcow2Mapping { length_bytes, depth, kind }, None));
    };
    let range = offset..capacity_bytes.min(offset.saturating_add(length_bytes));
    let depth = image.tables.len();
    if let Some(base) = &image.mapped_base {
        let (mapping, file) = base.map(range)?;
        let file = file.map(|file| image.paths.len() + file);
        return Ok((Qcow2Mapping { depth: depth + mapping.depth, ..mapping }, file));
    }
    let extent = base.disk.extents(range)?;
    let kind = match extent.kind {
        ExtentKind::Data => Qcow2MappingKind::Data { offset_bytes: offset },
        ExtentKind::Zero | ExtentKind::Hole => Qcow2MappingKind::Hole { offset_bytes: offset },
    };
    Ok((Qcow2Mapping { length_bytes: extent.length_bytes, depth, kind }, Some(depth)))
}
