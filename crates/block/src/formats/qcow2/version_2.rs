//! Taking out of an image's tables what version 2 cannot say: that a cluster reads as zeros, wherever it lies.
//!
//! Without a backing file it is not there; over one it is data, all zeros. A table that several snapshots have stays
//! theirs: it says the same, in other words. A power cut leaves entries of either sort, and clusters that nobody uses.

use super::allocator::Allocator;
use super::entries::{COMPRESSED, COPIED, OFFSET_MASK, ZERO};
use super::header::{Header, Table};
use super::header_change;
use super::references::{self, Part};
use super::snapshots;
use super::table_users::UsedTables;
use crate::formats::WritableFile;
use std::io;
use std::sync::Arc;

/// Of an image that is in order, and has no extended L2 entries and no data file.
///
/// # Errors
/// When it cannot be read or written, or has no room. Then it shows what it did.
pub(super) fn expand_zeros(file: &Arc<WritableFile>, header: &Header) -> io::Result<()> {
    header_change::clear_unknown(file, header)?;
    let tables = l2_tables(file, header)?;
    let bits = header.cluster_bits;
    let allocator = Allocator::new(Arc::clone(file), header);
    let mut expansion = Expansion { file, header, allocator, zeros: vec![0; header.cluster_bytes() as usize] };
    let expanded = tables.all().iter().try_for_each(|table| expansion.expand(table.cluster() << bits, table.users()));
    expanded.and(expansion.allocator.close())?;
    file.sync()
}

/// Whether anything is compressed in an image that is in order, or in a snapshot of it.
///
/// # Errors
/// When it cannot be read.
pub(super) fn has_compressed_clusters(file: &WritableFile, header: &Header) -> io::Result<bool> {
    for table in l2_tables(file, header)?.all() {
        for reference in references::in_l2(file, header, table.cluster() << header.cluster_bits) {
            if reference?.part == Part::Compressed {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// All L2 tables, and how many L1 tables have each.
fn l2_tables(file: &WritableFile, header: &Header) -> io::Result<UsedTables> {
    let mut tables = UsedTables::default();
    for l1 in snapshots::snapshots(file, header)?.tables.into_iter().chain([header.l1]) {
        for table in references::in_l1(file, header, l1) {
            let table = table?;
            if table.is_used() {
                tables.add(table.offset_bytes >> header.cluster_bits, 1, false);
            }
        }
    }
    tables.put_together();
    Ok(tables)
}

struct Expansion<'a> {
    file: &'a WritableFile,
    header: &'a Header,
    allocator: Allocator,
    zeros: Vec<u8>,
}

impl Expansion<'_> {
    /// Of the L2 table at an offset, which so many L1 tables have.
    fn expand(&mut self, table: u64, users: u64) -> io::Result<()> {
        let length_bytes = self.header.cluster_bytes();
        if self.file.is_hole(table, length_bytes) {
            return Ok(());
        }
        let mut entries = self.file.entries(Table { offset_bytes: table, length_bytes })?;
        let is_zero = |entry: &&mut u64| **entry & COMPRESSED == 0 && **entry & ZERO != 0;
        let (mut new, mut gone) = (Vec::new(), Vec::new());
        for entry in entries.iter_mut().filter(is_zero) {
            if *entry & OFFSET_MASK != 0 {
                gone.push((*entry & OFFSET_MASK) >> self.header.cluster_bits);
            }
            *entry = 0;
            if self.header.backing.is_some() {
                let cluster = self.allocator.allocate(1)?.start;
                new.push(cluster);
                *entry = cluster << self.header.cluster_bits | if users == 1 { COPIED } else { 0 };
            }
        }
        if new.is_empty() && gone.is_empty() {
            return self.write(table, &entries);
        }
        self.fill(new, users)?;
        self.file.barrier()?;
        self.write(table, &entries)?;
        self.file.barrier()?;
        gone.sort_unstable();
        for &cluster in gone.iter().filter(|_| users == 1) {
            self.allocator.empty(cluster..cluster + 1)?;
        }
        self.file.barrier()?;
        self.allocator.lower_by(&gone, users)
    }

    /// Clusters become zeros that so many tables have.
    fn fill(&mut self, mut clusters: Vec<u64>, users: u64) -> io::Result<()> {
        clusters.sort_unstable();
        if users > 1 {
            self.allocator.raise_by(&clusters, users - 1)?;
        }
        let is_plain = self.file.cipher().is_none();
        let written = clusters.iter().filter(|&&cluster| !is_plain || !self.allocator.is_fresh(cluster));
        written
            .into_iter()
            .try_for_each(|&cluster| self.file.write_data(&self.zeros, cluster << self.header.cluster_bits))
    }

    fn write(&self, table: u64, entries: &[u64]) -> io::Result<()> {
        let bytes: Vec<u8> = entries.iter().flat_map(|entry| entry.to_be_bytes()).collect();
        self.file.write(&bytes, table)
    }
}
