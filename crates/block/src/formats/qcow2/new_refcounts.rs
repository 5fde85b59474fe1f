//! Refcounts of an image, written in one go behind all that they count, but for blocks that were written before.

use super::refblock::Refblock;
use std::io;

/// Where they are: the table, then the blocks, which count themselves too.
pub(super) struct NewRefcounts {
    cluster_bits: u32,
    order: u32,
    table_cluster: u64,
    table_clusters: u64,
    /// Blocks of the first clusters that were written before: where they are.
    before: Vec<u64>,
    /// All blocks, those included.
    blocks: u64,
}

impl NewRefcounts {
    /// For a file of `clusters`, of 2^order bits each. The first ones have blocks already, which are in the file.
    pub(super) fn of(clusters: u64, cluster_bits: u32, order: u32, before: Vec<u64>) -> Self {
        let per_block = 1_u64 << (cluster_bits + 3 - order);
        let (mut blocks, mut table_clusters) = (before.len() as u64, 0);
        loop {
            let end = clusters + blocks - before.len() as u64 + table_clusters;
            let needed = (end.div_ceil(per_block), (end.div_ceil(per_block) * 8).div_ceil(1 << cluster_bits));
            if needed == (blocks, table_clusters) {
                return Self { cluster_bits, order, table_cluster: clusters, table_clusters, before, blocks };
            }
            // They only grow, and each by less than what they are for.
            (blocks, table_clusters) = needed;
        }
    }

    pub(super) fn table_offset_bytes(&self) -> u64 {
        self.table_cluster << self.cluster_bits
    }

    pub(super) fn table_clusters(&self) -> u32 {
        // At most 2^29 clusters are counted.
        self.table_clusters as u32
    }

    pub(super) fn end_cluster(&self) -> u64 {
        self.block_cluster(self.blocks)
    }

    /// Where a block is, of those that are written in one go.
    fn block_cluster(&self, index: u64) -> u64 {
        self.table_cluster + self.table_clusters + index - self.before.len() as u64
    }

    /// Writes them; `count` says that of a cluster before the table, one after the other.
    ///
    /// # Errors
    /// As `write` and `count`, and when a count is too large.
    pub(super) fn write(
        &self,
        mut count: impl FnMut(u64) -> io::Result<u64>,
        mut write: impl FnMut(&[u8], u64) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut table = Vec::with_capacity((self.table_clusters as usize) << self.cluster_bits);
        let new = self.before.len() as u64..self.blocks;
        let offsets = new.clone().map(|block| self.block_cluster(block) << self.cluster_bits);
        table.extend(self.before.iter().copied().chain(offsets).flat_map(u64::to_be_bytes));
        table.resize((self.table_clusters as usize) << self.cluster_bits, 0);
        write(&table, self.table_offset_bytes())?;
        let per_block = 1_u64 << (self.cluster_bits + 3 - self.order);
        for index in new {
            let first = index * per_block;
            let clusters = first..(first + per_block).min(self.end_cluster());
            let counts = clusters.map(|cluster| if cluster < self.table_cluster { count(cluster) } else { Ok(1) });
            let block = Refblock::of(self.cluster_bits, self.order, counts)?;
            write(&block.bytes, self.block_cluster(index) << self.cluster_bits)?;
        }
        Ok(())
    }
}
