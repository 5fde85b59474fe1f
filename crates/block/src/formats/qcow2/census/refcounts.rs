//! The blocks of refcounts of an image whose references are counted, and what they say.

use super::{Census, IS_SHARED};
use crate::formats::Repair;
use crate::formats::qcow2::header::NO_REFCOUNT_TABLE;
use crate::formats::qcow2::known_tables::KnownTables;
use crate::formats::qcow2::refblock::Refblock;
use crate::formats::qcow2::references::{self, Reference};
use crate::formats::qcow2::use_counts::{ONE, TWICE};
use std::io;
use std::ops::Range;

impl Census<'_> {
    /// Which blocks of refcounts can be used.
    pub(super) fn look_at_refblocks(&mut self) -> io::Result<()> {
        if self.header.refcounts.length_bytes == 0 {
            (self.tell)(&format!("NOTE the image has {NO_REFCOUNT_TABLE}"));
        }
        let mut known = KnownTables::new(self.header.refcounts.length_bytes / 8);
        for refblock in references::in_refcount_table(self.file, self.header) {
            let refblock = refblock?;
            let Reference { index, offset_bytes, .. } = refblock;
            let is_usable = refblock.is_aligned(self.header) && self.file.has(offset_bytes, 1);
            if !is_usable {
                self.corrupt(&format!(
                    "refcount block {index} at {offset_bytes:#x} is not aligned or outside the image"
                ));
                self.lacks_refcounts = true;
                continue;
            }
            let offset_of = |index: u64| {
                let mut entry = [0; 8];
                self.file.read(&mut entry, self.header.refcounts.offset_bytes + index * 8)?;
                Ok(u64::from_be_bytes(entry))
            };
            if !known.is_for(index as u64, offset_bytes, offset_of)? {
                self.corrupt(&format!("refcount block {index} at {offset_bytes:#x} is that of other clusters, too"));
                self.lacks_refcounts = true;
                continue;
            }
            self.refblocks.resize(index, 0);
            // It lies in the file, which has no more clusters.
            self.refblocks.push((offset_bytes >> self.header.cluster_bits) as u32);
        }
        Ok(())
    }

    /// The index of each block of refcounts for clusters of a range, where it lies, and which of them it is for.
    fn refblocks_of(&self, clusters: Range<u64>) -> impl Iterator<Item = (u64, Option<u64>, Range<u64>)> + use<> {
        let per_block = self.refcounts_per_block();
        let first = clusters.start / per_block;
        let last = clusters.end.div_ceil(per_block);
        let offsets: Vec<_> = (first..last).map(|index| self.refblock(index)).collect();
        (first..last).zip(offsets).map(move |(index, offset)| {
            let own = index * per_block..(index + 1) * per_block;
            (index, offset, own.start.max(clusters.start)..own.end.min(clusters.end))
        })
    }

    /// Where a block of refcounts lies.
    pub(super) fn refblock(&self, index: u64) -> Option<u64> {
        let cluster = self.refblocks.get(index as usize).copied().unwrap_or(0) & !IS_SHARED;
        Some(u64::from(cluster) << self.header.cluster_bits).filter(|&offset| offset != 0)
    }

    /// The refcount that a cluster has in its block, which may be for more clusters than the file has.
    pub(super) fn refcount_of(&self, cluster: u64) -> io::Result<u64> {
        let per_block = self.refcounts_per_block();
        match self.refblock(cluster / per_block) {
            Some(offset) => Refblock::read_one(self.file, self.header, offset, cluster % per_block),
            None => Ok(0),
        }
    }

    /// Flags which clusters of the window have a refcount of one, as tables say that they know.
    pub(super) fn flag_ones(&mut self) -> io::Result<()> {
        let per_block = self.refcounts_per_block();
        for (index, offset, clusters) in self.refblocks_of(self.counts.window()) {
            let Some(offset) = offset else { continue };
            let block = Refblock::read(self.file, self.header, offset)?;
            for cluster in clusters {
                if block.get((cluster - index * per_block) as usize) == 1 {
                    self.counts.flag(cluster, ONE);
                }
            }
        }
        Ok(())
    }

    fn refcounts_per_block(&self) -> u64 {
        (self.header.cluster_bytes() * 8) >> self.header.refcount_order
    }

    /// Compares the refcounts of a window's clusters with what was counted.
    pub(super) fn compare(&mut self, window: Range<u64>) -> io::Result<()> {
        let per_block = self.refcounts_per_block();
        for (index, offset, clusters) in self.refblocks_of(window) {
            // What something else uses too is not written to.
            let is_own = self.refblocks.get(index as usize).is_some_and(|block| *block != 0 && block & IS_SHARED == 0);
            let mut block = match offset {
                Some(offset) => Refblock::read(self.file, self.header, offset)?,
                None => Refblock::empty(self.header.cluster_bits, self.header.refcount_order),
            };
            let mut is_mended = false;
            for cluster in clusters {
                let at = (cluster - index * per_block) as usize;
                let (refcount, (count, flags)) = (block.get(at), self.counts.known(cluster));
                if refcount > 0 || count > 0 {
                    self.highest = Some(cluster);
                }
                // Else that they are too few says enough.
                if refcount >= count && flags & TWICE != 0 {
                    self.corrupt(&format!("cluster {cluster} has two uses, refcount={refcount}"));
                }
                if refcount == count {
                    continue;
                }
                let is_mendable = is_own && self.may_mend(refcount, count);
                let is_mended_now = is_mendable && block.set(at, count);
                is_mended |= is_mended_now;
                self.lacks_refcounts |= !is_mended_now && count > refcount;
                self.tell_difference(cluster, refcount, count, is_mended_now);
            }
            if let Some(offset) = offset.filter(|_| is_mended) {
                self.file.write(&block.bytes, offset)?;
            }
        }
        Ok(())
    }

    fn may_mend(&self, refcount: u64, count: u64) -> bool {
        match self.repair {
            Repair::None => false,
            _ if refcount > count && self.is_incomplete => false,
            Repair::Leaks => refcount > count,
            Repair::All => true,
        }
    }

    fn tell_difference(&mut self, cluster: u64, refcount: u64, count: u64, is_mended: bool) {
        let is_leak = refcount > count;
        let (found, fixed) = match is_leak {
            true => (&mut self.report.leaks, &mut self.report.leaks_fixed),
            false => (&mut self.report.corruptions, &mut self.report.corruptions_fixed),
        };
        *(if is_mended { fixed } else { found }) += 1;
        let word = match (is_mended, is_leak) {
            (true, _) => "Repairing",
            (false, true) => "Leaked",
            (false, false) => "ERROR",
        };
        (self.tell)(&format!("{word} cluster {cluster} refcount={refcount} reference={count}"));
    }
}
