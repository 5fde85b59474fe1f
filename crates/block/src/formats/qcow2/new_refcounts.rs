//! Refcounts of an image, written in one go behind all that they count.

use super::refblock::Refblock;
use std::io;

/// Where they are: the table, then the blocks, which count themselves too.
pub(super) struct NewRefcounts {
    cluster_bits: u32,
    order: u32,
    table_cluster: u64,
    table_clusters: u64,
    blocks: u64,
}

impl NewRefcounts {
    /// For a file of `clusters`, of 2^order bits each.
    pub(super) fn of(clusters: u64, cluster_bits: u32, order: u32) -> Self {
        let per_block = 1_u64 << (cluster_bits + 3 - order);
        let (mut blocks, mut table_clusters) = (0, 0);
        loop {
            let end = clusters + blocks + table_clusters;
            let needed = (end.div_ceil(per_block), (end.div_ceil(per_block) * 8).div_ceil(1 << cluster_bits));
            if needed == (blocks, table_clusters) {
                return Self { cluster_bits, order, table_cluster: clusters, table_clusters, blocks };
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
        self.first_block() + self.blocks
    }

    fn first_block(&self) -> u64 {
        self.table_cluster + self.table_clusters
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
        (0..self.blocks)
            .for_each(|block| table.extend(((self.first_block() + block) << self.cluster_bits).to_be_bytes()));
        table.resize((self.table_clusters as usize) << self.cluster_bits, 0);
        write(&table, self.table_offset_bytes())?;
        let per_block = 1_u64 << (self.cluster_bits + 3 - self.order);
        for index in 0..self.blocks {
            let mut block = Refblock::empty(self.cluster_bits, self.order);
            let first = index * per_block;
            for cluster in first..(first + per_block).min(self.end_cluster()) {
                let count = if cluster < self.table_cluster { count(cluster)? } else { 1 };
                if !block.set((cluster - first) as usize, count) {
                    return Err(io::Error::other(format!("{count} uses of a cluster are too many for its refcount")));
                }
            }
            write(&block.bytes, (self.first_block() + index) << self.cluster_bits)?;
        }
        Ok(())
    }
}
