//! What an image says of where its disk's bytes are.

use super::{Found, Image};
use crate::formats::block_map::layer::{Own, SliceBuffer};
use crate::formats::block_map::level::Storage;
use crate::formats::{Qcow2Mapping, Qcow2MappingKind};
use crate::{Extent, ExtentKind};
use std::io;
use std::ops::Range;

impl Image {
    pub(in super::super) fn extents(&self, range: Range<u64>) -> io::Result<Extent> {
        self.geometry.check_extent_range(&range)?;
        let whole = range.end - range.start;
        let extent = |length_bytes, kind| Ok(Extent { offset_bytes: range.start, length_bytes, kind });
        if range.start >= self.size_bytes() {
            return extent(whole, ExtentKind::Hole);
        }
        let asked_bytes = whole.min(self.size_bytes() - range.start);
        let (found, found_bytes) = self.walk_now(0, range.start, asked_bytes, &mut SliceBuffer::new())?;
        let to_the_end = found_bytes >= asked_bytes;
        // Of zeros, only whole blocks count; a block that is partly data is data.
        let block_bytes = u64::from(self.geometry.logical_block_bytes);
        let zeros_bytes = if to_the_end { whole } else { found_bytes - found_bytes % block_bytes };
        let data_bytes = found_bytes.next_multiple_of(block_bytes).min(whole);
        match found {
            Found::Damaged { layer, problem } => Err(self.damage(layer, problem, range.start)),
            Found::Zeros { explicit: true } if zeros_bytes > 0 => extent(zeros_bytes, ExtentKind::Zero),
            Found::Zeros { .. } if zeros_bytes > 0 => extent(zeros_bytes, ExtentKind::Hole),
            Found::There { index, offset_bytes } if found_bytes.is_multiple_of(block_bytes) => {
                let below = self.extent_below(index, offset_bytes, data_bytes)?;
                Ok(Extent { offset_bytes: range.start, ..below })
            }
            // So is what may not be read: whoever wants to know more reads it, and is told.
            _ => extent(data_bytes, ExtentKind::Data),
        }
    }

    /// What data are: where they lie there may be a hole.
    pub(super) fn extent_below(&self, index: usize, offset: u64, length_bytes: u64) -> io::Result<Extent> {
        let data = Extent { offset_bytes: offset, length_bytes, kind: ExtentKind::Data };
        let Some(below) = self.below.get(index) else { return Ok(data) };
        let geometry = below.geometry();
        let block_bytes = u64::from(geometry.logical_block_bytes);
        let end = offset.saturating_add(length_bytes).min(geometry.capacity_bytes);
        if offset >= end {
            return Ok(data);
        }
        let found = below.extents(offset..end)?;
        // A file's holes are as long as they are; half a block of one is data.
        let length_bytes = found.length_bytes.min(length_bytes);
        match length_bytes - length_bytes % block_bytes {
            0 => Ok(data),
            length_bytes => Ok(Extent { length_bytes, ..found }),
        }
    }

    /// What lies where, as maps tell it, and the index of the file that has it.
    pub(in super::super) fn map(&self, range: Range<u64>) -> io::Result<(Qcow2Mapping, Option<usize>)> {
        self.geometry.check_extent_range(&range)?;
        let (offset, mut length_bytes) = (range.start, range.end - range.start);
        let mut buffer = SliceBuffer::new();
        let depth_of_last = self.levels.len().saturating_sub(1);
        for (depth, level) in self.levels.iter().enumerate() {
            let Some(piece) = level.find(offset) else {
                // As QEMU has it: the image above says so, by being longer.
                let (depth, kind) = (depth.saturating_sub(1), Qcow2MappingKind::Absent);
                return Ok((Qcow2Mapping { length_bytes, depth, kind }, None));
            };
            let at = offset - piece.start_bytes;
            length_bytes = length_bytes.min(piece.end_bytes - offset);
            let layer = match piece.storage {
                Storage::Mapped { layer } => layer,
                Storage::Flat { index, offset_bytes } => {
                    let (mapping, file) = self.map_flat(depth, index, offset_bytes + at, length_bytes)?;
                    let kind = match mapping.kind {
                        Qcow2MappingKind::Hole { offset_bytes } => Qcow2MappingKind::Reserved { offset_bytes },
                        kind => kind,
                    };
                    return Ok((Qcow2Mapping { kind, ..mapping }, file));
                }
                Storage::Zeros => {
                    return Ok((Qcow2Mapping { length_bytes, depth, kind: Qcow2MappingKind::Zeros }, None));
                }
                Storage::Forbidden => {
                    let problem =
                        format!("its descriptor lets nobody see what lies at {offset} of its disk (NOACCESS)");
                    return Err(io::Error::new(io::ErrorKind::PermissionDenied, problem));
                }
            };
            let (own, own_bytes) = self.own_loaded(layer, at, length_bytes, &mut buffer, &mut 0)?;
            length_bytes = own_bytes;
            let full = self.layers.get(layer).filter(|layer| layer.map.is_full());
            let kind = match own {
                Own::Nothing => continue,
                Own::There { offset_bytes } if let Some(layer) = full => {
                    let extent = self.extent_below(layer.index, offset_bytes, length_bytes)?;
                    length_bytes = extent.length_bytes;
                    match extent.kind {
                        ExtentKind::Data => Qcow2MappingKind::Data { offset_bytes },
                        ExtentKind::Zero | ExtentKind::Hole => Qcow2MappingKind::Reserved { offset_bytes },
                    }
                }
                Own::Zeros => Qcow2MappingKind::Zeros,
                Own::Compressed { .. } => Qcow2MappingKind::Compressed,
                Own::Damaged(problem) => return Err(self.damage(layer, problem, offset)),
                Own::There { offset_bytes } | Own::Partly { offset_bytes } => Qcow2MappingKind::Data { offset_bytes },
            };
            return Ok((Qcow2Mapping { length_bytes, depth, kind }, self.layers.get(layer).map(|layer| layer.index)));
        }
        let base = self.base.and_then(|index| Some((index, self.below.get(index)?.geometry().capacity_bytes)));
        match base {
            Some((index, capacity_bytes)) if offset < capacity_bytes => {
                let length_bytes = length_bytes.min(capacity_bytes - offset);
                self.map_flat(self.levels.len(), index, offset, length_bytes)
            }
            _ => Ok((Qcow2Mapping { length_bytes, depth: depth_of_last, kind: Qcow2MappingKind::Absent }, None)),
        }
    }

    /// The same of what lies in a disk below as it is.
    fn map_flat(
        &self,
        depth: usize,
        index: usize,
        offset: u64,
        length_bytes: u64,
    ) -> io::Result<(Qcow2Mapping, Option<usize>)> {
        let below = self.below.get(index).ok_or(io::ErrorKind::InvalidInput)?;
        let extent = below.extents(offset..offset.saturating_add(length_bytes))?;
        let kind = match extent.kind {
            ExtentKind::Data => Qcow2MappingKind::Data { offset_bytes: offset },
            ExtentKind::Zero | ExtentKind::Hole => Qcow2MappingKind::Hole { offset_bytes: offset },
        };
        Ok((Qcow2Mapping { length_bytes: extent.length_bytes, depth, kind }, Some(index)))
    }
}
