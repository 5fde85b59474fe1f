//! What must hold before an image is written to: every cluster has one use, and its refcount knows.
//!
//! Images come from anybody, and from programs that a crash may have stopped between a table and its refcount. A
//! cluster that is in use and called free would be given to other data as well: here its refcount is put right.
//! Whatever else is wrong is refused. Reads all L2 tables, as `qemu-img check` does: 2.5 MiB of them for 20 GiB of
//! data. It ends at the first thing that is wrong; [`super::census`] finds all, of the same references.

use super::bitmaps;
use super::header::{Header, Table};
use super::refblock::Refblock;
use super::references::{self, Part, Reference};
use super::snapshots::L1_MAX_BYTES;
use crate::Remedy;
use crate::formats::WritableFile;
use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

/// Most clusters of a file: 32 TiB in clusters of 64 KiB. Two bits are kept of each.
pub(super) const CLUSTERS_MAX: u64 = 1 << 29;

/// What a message goes on with.
fn repair() -> String {
    format!("{} says what else is, and repairs what can be", Remedy::RepairImage)
}

/// Checks an image, and puts right what a crash may have left. The error goes on after the image's path.
/// `is_over`: nobody wants to know any more, which is an error, too.
pub(super) fn check(file: &WritableFile, header: &Header, is_over: &AtomicBool) -> Result<(), String> {
    let mut scan = Scan::new(file, header, is_over)?;
    scan.claim_metadata().and_then(|()| scan.claim_data()).and_then(|()| scan.check_refcounts()).map_err(|problem| {
        match problem {
            Problem::Damage(what) => format!("is damaged: {what}; {}", repair()),
            Problem::Unreadable(error) => format!("cannot be checked: {error}"),
        }
    })
}

enum Problem {
    Damage(String),
    Unreadable(io::Error),
}

impl From<io::Error> for Problem {
    fn from(error: io::Error) -> Self {
        Self::Unreadable(error)
    }
}

fn damage<T>(what: impl Into<String>) -> Result<T, Problem> {
    Err(Problem::Damage(what.into()))
}

/// How a cluster is used.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    /// By one table or one cluster of the disk.
    Once,
    /// The same, and the entry that refers to it says that it may be written in place.
    OnceInPlace,
    /// By any number of compressed clusters.
    Compressed,
}

struct Scan<'a> {
    file: &'a WritableFile,
    header: &'a Header,
    /// Two bits for each cluster: 0 is free, else a [`Use`].
    uses: Vec<u8>,
    /// By cluster, from the first compressed one on: how many compressed clusters are in it, in part at least, up to
    /// 255; and how many where they are that many.
    sharers: Vec<u8>,
    many_sharers: HashMap<u64, u64>,
    refblocks: Vec<u64>,
    is_over: &'a AtomicBool,
}

impl<'a> Scan<'a> {
    fn new(file: &'a WritableFile, header: &'a Header, is_over: &'a AtomicBool) -> Result<Self, String> {
        let clusters = file.length_bytes().div_ceil(header.cluster_bytes());
        // After a crash the file may end before what refers into it.
        let clusters = clusters.saturating_mul(2).saturating_add(1 << 16);
        if clusters > CLUSTERS_MAX {
            let bytes = file.length_bytes();
            return Err(format!("has {bytes} bytes in clusters of {}: too many to write to", header.cluster_bytes()));
        }
        Ok(Self {
            file,
            header,
            uses: vec![0; clusters.div_ceil(4) as usize],
            sharers: Vec::new(),
            many_sharers: HashMap::new(),
            refblocks: Vec::new(),
            is_over,
        })
    }

    fn use_of(&self, cluster: u64) -> Option<Use> {
        let byte = self.uses.get((cluster / 4) as usize)?;
        match byte >> (cluster % 4 * 2) & 3 {
            0 => None,
            1 => Some(Use::Once),
            2 => Some(Use::OnceInPlace),
            _ => Some(Use::Compressed),
        }
    }

    fn claim(&mut self, reference: &Reference) -> Result<(), Problem> {
        let Reference { part, offset_bytes, length_bytes, .. } = *reference;
        if !reference.is_aligned(self.header) {
            let what = match part {
                Part::Refblock => "refcount block",
                Part::L2Table => "L2 table",
                _ => "cluster",
            };
            return damage(format!("the {what} at {offset_bytes} does not begin with a cluster"));
        }
        let how = match part {
            Part::Compressed => Use::Compressed,
            _ if reference.is_copied() => Use::OnceInPlace,
            _ => Use::Once,
        };
        let cluster_bits = self.header.cluster_bits;
        let end = offset_bytes.saturating_add(length_bytes).div_ceil(1 << cluster_bits);
        for cluster in offset_bytes >> cluster_bits..end {
            let used = self.use_of(cluster);
            let Some(byte) = self.uses.get_mut((cluster / 4) as usize) else {
                return damage(format!("something at {offset_bytes} lies far behind the end of the file"));
            };
            if used.is_some() && !(used == Some(Use::Compressed) && how == Use::Compressed) {
                return damage(format!("the cluster at {} has two uses", cluster << cluster_bits));
            }
            let bits = match how {
                Use::Once => 1,
                Use::OnceInPlace => 2,
                Use::Compressed => 3,
            };
            *byte |= bits << (cluster % 4 * 2);
            if how == Use::Compressed {
                self.share(cluster);
            }
        }
        Ok(())
    }

    fn share(&mut self, cluster: u64) {
        if self.sharers.is_empty() {
            // Zeros, which take no memory until one of them is changed.
            self.sharers = vec![0; self.uses.len() * 4];
        }
        let Some(count) = self.sharers.get_mut(cluster as usize) else { return };
        *count = count.saturating_add(1);
        if *count == u8::MAX {
            *self.many_sharers.entry(cluster).or_insert(u64::from(u8::MAX) - 1) += 1;
        }
    }

    fn sharers_of(&self, cluster: u64) -> u64 {
        let few = self.sharers.get(cluster as usize).copied().unwrap_or(0);
        self.many_sharers.get(&cluster).copied().unwrap_or(few.into())
    }

    fn claim_metadata(&mut self) -> Result<(), Problem> {
        references::in_header(self.header).try_for_each(|reference| self.claim(&reference))?;
        for refblock in references::in_refcount_table(self.file, self.header) {
            let refblock = refblock?;
            self.claim(&refblock)?;
            self.refblocks.resize(refblock.index, 0);
            self.refblocks.push(refblock.offset_bytes);
        }
        self.claim_bitmaps()
    }

    /// What is written of them when the image is lies there alone.
    fn claim_bitmaps(&mut self) -> Result<(), Problem> {
        let directory = bitmaps::directory(self.file, self.header)?;
        if let Some(flaw) = directory.flaw {
            return damage(flaw);
        }
        directory.own.map_or(Ok(()), |own| self.claim_table(own))?;
        for table in directory.tables.into_iter().filter(|table| table.length_bytes > 0) {
            if table.length_bytes > L1_MAX_BYTES {
                return damage(format!("the table of a bitmap at {} is too large", table.offset_bytes));
            }
            self.claim_table(table)?;
            for offset_bytes in bitmaps::in_table(self.file, table) {
                self.claim_table(Table { offset_bytes: offset_bytes?, length_bytes: self.header.cluster_bytes() })?;
            }
        }
        Ok(())
    }

    fn claim_table(&mut self, table: Table) -> Result<(), Problem> {
        let Table { offset_bytes, length_bytes } = table;
        self.claim(&Reference { part: Part::L1Table, index: 0, entry: 0, offset_bytes, length_bytes })
    }

    fn claim_data(&mut self) -> Result<(), Problem> {
        for table in references::in_l1(self.file, self.header, self.header.l1) {
            let table = table?;
            if !table.is_used() {
                continue;
            }
            if self.is_over.load(Ordering::Acquire) {
                return Err(Problem::Unreadable(io::ErrorKind::Interrupted.into()));
            }
            self.claim(&table)?;
            for cluster in references::in_l2(self.file, self.header, table.offset_bytes) {
                let cluster = cluster?;
                if cluster.is_used() {
                    self.claim(&cluster)?;
                }
            }
        }
        Ok(())
    }

    fn check_refcounts(&mut self) -> Result<(), Problem> {
        let per_block = (self.header.cluster_bytes() * 8) >> self.header.refcount_order;
        let clusters = self.uses.len() as u64 * 4;
        for (index, first) in (0..clusters).step_by(per_block as usize).enumerate() {
            let end = (first + per_block).min(clusters);
            if (first..end).any(|cluster| self.use_of(cluster).is_some()) {
                match self.refblocks.get(index) {
                    None | Some(0) => return damage("clusters that are in use have no refcount"),
                    Some(&refblock) => self.check_refblock(refblock, first..end)?,
                }
            }
        }
        Ok(())
    }

    fn check_refblock(&self, offset: u64, clusters: Range<u64>) -> Result<(), Problem> {
        let mut block = Refblock::read(self.file, self.header, offset)?;
        let mut is_mended = false;
        for (index, cluster) in clusters.enumerate() {
            let Some(used) = self.use_of(cluster) else { continue };
            match (block.get(index), used) {
                (count, Use::Compressed) if count < self.sharers_of(cluster) => {
                    return damage("compressed data that are in use have too low a refcount");
                }
                (0, _) => {
                    block.set_to_one(index);
                    is_mended = true;
                }
                (1, _) | (_, Use::Once | Use::Compressed) => {}
                (_, Use::OnceInPlace) => {
                    return damage("a cluster that others use too is said to be used once");
                }
            }
        }
        if is_mended {
            self.file.write_stable(&block.bytes, offset)?;
        }
        Ok(())
    }
}
