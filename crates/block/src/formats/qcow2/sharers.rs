//! How many compressed clusters are in each cluster of a file that is written from its beginning to its end.
//!
//! Where these would be too many to be remembered, blocks of refcounts of what does not change any more are written
//! before the end.

use super::refblock::Refblock;
use std::io;

/// Clusters that are remembered at once, two bytes of each: with clusters of 64 KiB, those of 512 GiB.
const CLUSTERS_MAX: usize = 1 << 23;

/// By cluster: how many compressed ones are in it, in part at least.
#[derive(Debug)]
pub(super) struct Sharers {
    cluster_bits: u32,
    order: u32,
    /// Those of the first clusters that no block was written for. Absent ones have none.
    counts: Vec<u16>,
    /// Where the blocks are that were written.
    blocks: Vec<u64>,
    pub(super) clusters_max: usize,
}

impl Sharers {
    /// Of a file with refcounts of 2^order bits.
    pub(super) fn new(cluster_bits: u32, order: u32) -> Self {
        Self { cluster_bits, order, counts: Vec::new(), blocks: Vec::new(), clusters_max: CLUSTERS_MAX }
    }

    fn per_block(&self) -> u64 {
        1 << (self.cluster_bits + 3 - self.order)
    }

    /// The first cluster that no block was written for.
    fn first(&self) -> u64 {
        self.blocks.len() as u64 * self.per_block()
    }

    fn index(&self, cluster: u64) -> Option<usize> {
        cluster.checked_sub(self.first()).map(|index| index as usize)
    }

    /// Compressed clusters in one that no block was written for.
    pub(super) fn sharers(&self, cluster: u64) -> u16 {
        self.index(cluster).and_then(|index| self.counts.get(index)).copied().unwrap_or(0)
    }

    /// Its refcount, as it is in use.
    pub(super) fn users(&self, cluster: u64) -> u64 {
        self.sharers(cluster).max(1).into()
    }

    /// Counts another one, which is in part of each of these.
    pub(super) fn share(&mut self, clusters: std::ops::RangeInclusive<u64>) {
        let (Some(first), Some(last)) = (self.index(*clusters.start()), self.index(*clusters.end())) else { return };
        if self.counts.len() <= last {
            self.counts.resize(last + 1, 0);
        }
        // The smallest compressed cluster is a thousandth of a cluster: this does not overflow.
        self.counts[first..=last].iter_mut().for_each(|count| *count = count.saturating_add(1));
    }

    /// Where the blocks are that were written.
    pub(super) fn blocks(&self) -> &[u64] {
        &self.blocks
    }

    /// Writes blocks of refcounts of clusters before `settled`, all of which are in use and get no more sharers, if too
    /// many are remembered; `take` gives a cluster for each.
    ///
    /// # Errors
    /// As `write`, and when there are too many sharers of a cluster.
    pub(super) fn write_blocks(
        &mut self,
        settled: u64,
        mut take: impl FnMut() -> u64,
        mut write: impl FnMut(&[u8], u64) -> io::Result<()>,
    ) -> io::Result<()> {
        if self.counts.len() <= self.clusters_max {
            return Ok(());
        }
        let per_block = self.per_block();
        let end = settled - settled % per_block;
        let mut written = Vec::new();
        for first in (self.first()..end).step_by(per_block as usize) {
            let block =
                Refblock::of(self.cluster_bits, self.order, (first..first + per_block).map(|at| Ok(self.users(at))))?;
            let offset = take();
            write(&block.bytes, offset)?;
            written.push(offset);
        }
        let gone = written.len() as u64 * per_block;
        self.counts.drain(..self.counts.len().min(gone as usize));
        self.blocks.extend(written);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_settled_is_written_and_forgotten() {
        // 1024 refcounts of 4 bits in a block.
        let mut sharers = Sharers::new(9, 2);
        sharers.clusters_max = 1500;
        let (mut free, mut written) = (5000, Vec::new());
        for cluster in 0..2600_u64 {
            sharers.share(cluster..=cluster + 1);
            let take = || {
                free += 1;
                free << 9
            };
            sharers
                .write_blocks(cluster + 1, take, |bytes, at| {
                    written.push((bytes.to_vec(), at));
                    Ok(())
                })
                .unwrap();
            assert!(sharers.counts.len() <= 1501, "{cluster}");
        }
        assert_eq!(sharers.blocks(), [5001 << 9, 5002 << 9]);
        assert_eq!(written[0], ([&[0x21], &[0x22; 511][..]].concat(), 5001 << 9));
        assert_eq!(written[1], (vec![0x22; 512], 5002 << 9));
        assert_eq!([2048, 2599, 2600, 2601].map(|cluster| sharers.users(cluster)), [2, 2, 1, 1]);
        let mut narrow = Sharers::new(9, 0);
        narrow.clusters_max = 0;
        (0..2).for_each(|_| narrow.share(4095..=4095));
        let error = narrow.write_blocks(4096, || 0, |_, _| Ok(())).unwrap_err();
        assert_eq!(error.to_string(), "2 uses of a cluster are too many for its refcount");
    }
}
