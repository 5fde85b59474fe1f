//! All that is wrong with an image: every reference in its tables is counted, and the counts are compared with its
//! refcounts.
//!
//! It counts as `qemu-img check` does, which finds the same, and says more where a cluster has two uses though its
//! refcount knows, or lies in a data file where it cannot be read. Nothing is read twice, whatever the image says: of
//! a table that several snapshots share, each entry counts so often. So the work is bounded by the file's length, and
//! the memory by two bytes for each of its clusters.

use super::bitmaps;
use super::check::clusters_of;
use super::entries::{COPIED, Layout, ZERO};
use super::header::{Header, Table};
use super::refblock::Refblock;
use super::references::{self, Part, Reference};
use super::snapshots::{self, Directory, L1_MAX_BYTES};
use crate::formats::{CheckReport, Repair, WritableFile};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;

/// Hears of each thing that is wrong, in a line.
pub(super) type Tell<'a> = &'a mut dyn FnMut(&str);

/// Of a cluster: its refcount is one.
const ONE: u8 = 1;
/// It is in use by a table,
const METADATA: u8 = 1 << 1;
/// by data of the disk,
const DATA: u8 = 1 << 2;
/// by compressed data,
const COMPRESSED: u8 = 1 << 3;
/// by data of snapshots alone, which share it with the disk and with each other,
const SNAPSHOT: u8 = 1 << 4;
/// or by two of them that cannot share it.
const TWICE: u8 = 1 << 5;

/// The largest count that a byte holds; the others are in a map.
const SMALL_MAX: u8 = 254;

pub(super) struct Census<'a> {
    file: &'a WritableFile,
    header: &'a Header,
    repair: Repair,
    /// Entries are to say what refcounts are. Those were put right before.
    pub(super) mends_marks: bool,
    tell: Tell<'a>,
    /// By cluster of the file.
    small_counts: Vec<u8>,
    large_counts: HashMap<u64, u64>,
    flags: Vec<u8>,
    /// By index in the refcount table: the blocks that can be used, else 0.
    refblocks: Vec<u64>,
    pub(super) report: CheckReport,
    /// Something was not looked into, so what seems to be used by nobody may be.
    pub(super) is_incomplete: bool,
    /// Refcounts have no place, or one that cannot be.
    pub(super) lacks_refcounts: bool,
    /// Entries for compressed clusters, those of tables that snapshots alone have too.
    pub(super) compressed_entries: u64,
}

impl<'a> Census<'a> {
    /// The error goes on after the image's path.
    pub(super) fn new(
        file: &'a WritableFile,
        header: &'a Header,
        repair: Repair,
        tell: Tell<'a>,
    ) -> Result<Self, String> {
        let clusters = clusters_of(file, header, "checked")?;
        let total_clusters = header.size_bytes.div_ceil(header.cluster_bytes());
        Ok(Self {
            file,
            header,
            repair,
            mends_marks: false,
            tell,
            small_counts: vec![0; clusters as usize],
            large_counts: HashMap::new(),
            flags: vec![0; clusters as usize],
            refblocks: Vec::new(),
            report: CheckReport { total_clusters, ..CheckReport::default() },
            is_incomplete: false,
            lacks_refcounts: false,
            compressed_entries: 0,
        })
    }

    /// Counts, compares, and repairs what it may.
    pub(super) fn take(&mut self) -> io::Result<()> {
        self.look_at_refcounts()?;
        self.count_tables(true)?;
        self.compare()
    }

    /// Counts what is referred to, but for the refcounts themselves.
    pub(super) fn count_without_refcounts(&mut self) -> io::Result<()> {
        self.count_tables(false)
    }

    /// Clusters of the file.
    pub(super) fn clusters(&self) -> u64 {
        self.flags.len() as u64
    }

    /// References to a cluster.
    pub(super) fn count(&self, cluster: usize) -> u64 {
        match self.small_counts.get(cluster) {
            Some(&small) if small <= SMALL_MAX => small.into(),
            _ => self.large_counts.get(&(cluster as u64)).copied().unwrap_or(0),
        }
    }

    fn corrupt(&mut self, what: &str) {
        self.corrupt_for(1, what);
    }

    /// As `users` see it, to each of whom it counts.
    fn corrupt_for(&mut self, users: u64, what: &str) {
        self.report.corruptions = self.report.corruptions.saturating_add(users);
        (self.tell)(&format!("ERROR {what}"));
    }

    /// Which clusters have a refcount of one, as tables say that they know.
    fn look_at_refcounts(&mut self) -> io::Result<()> {
        let per_block = self.refcounts_per_block();
        let mut seen = HashSet::new();
        for refblock in references::in_refcount_table(self.file, self.header) {
            let refblock = refblock?;
            let Reference { index, offset_bytes, length_bytes, .. } = refblock;
            let is_usable = refblock.is_aligned(self.header) && self.file.has(offset_bytes, 1);
            if !is_usable {
                self.corrupt(&format!(
                    "refcount block {index} at {offset_bytes:#x} is not aligned or outside the image"
                ));
                self.lacks_refcounts = true;
                continue;
            }
            if !seen.insert(offset_bytes) {
                self.corrupt(&format!("refcount block {index} at {offset_bytes:#x} is that of other clusters, too"));
                self.lacks_refcounts = true;
                continue;
            }
            self.refblocks.resize(index, 0);
            self.refblocks.push(offset_bytes);
            debug_assert_eq!(length_bytes, self.header.cluster_bytes());
            let first = index as u64 * per_block;
            // What is behind the end of the file is not counted.
            let Some(flags) = self.flags.get_mut(first as usize..).filter(|flags| !flags.is_empty()) else { continue };
            let block = Refblock::read(self.file, self.header, offset_bytes)?;
            for (at, flags) in flags.iter_mut().take(per_block as usize).enumerate() {
                *flags |= if block.get(at) == 1 { ONE } else { 0 };
            }
        }
        Ok(())
    }

    fn refcounts_per_block(&self) -> u64 {
        (self.header.cluster_bytes() * 8) >> self.header.refcount_order
    }

    fn count_tables(&mut self, with_refcounts: bool) -> io::Result<()> {
        for reference in references::in_header(self.header) {
            if with_refcounts || reference.part != Part::RefcountTable {
                self.claim(&reference, METADATA, 1);
            }
        }
        for (index, offset_bytes) in self.refblocks.clone().into_iter().enumerate().filter(|&(_, offset)| offset != 0) {
            let length_bytes = self.header.cluster_bytes();
            let block = Reference { part: Part::Refblock, index, entry: 0, offset_bytes, length_bytes };
            self.lacks_refcounts |= !self.claim(&block, METADATA, 1);
        }
        let bitmaps = bitmaps::directory(self.file, self.header)?;
        for (table, users) in self.claim_directory(&bitmaps) {
            if users > 1 {
                // Snapshots may share a table, which does not change. What one bitmap says would be said by the other.
                self.flag(table.offset_bytes, TWICE);
            }
            for offset_bytes in bitmaps::in_table(self.file, table) {
                let bits = Table { offset_bytes: offset_bytes?, length_bytes: self.header.cluster_bytes() };
                self.claim_table(bits, users);
            }
        }
        let snapshots = snapshots::snapshots(self.file, self.header)?;
        let l1_tables = self.claim_directory(&snapshots);
        let l2_tables = self.count_l1_tables(&l1_tables)?;
        for (offset_bytes, users) in l2_tables {
            self.count_l2_table(offset_bytes, users)?;
        }
        Ok(())
    }

    /// Claims a directory and the tables that it names; those that can be looked into, each once, and how often it
    /// names them.
    fn claim_directory(&mut self, directory: &Directory) -> Vec<(Table, u64)> {
        if let Some(flaw) = &directory.flaw {
            self.is_incomplete = true;
            self.corrupt(flaw);
        }
        if let Some(own) = directory.own {
            self.claim_table(own, 1);
        }
        let mut tables = BTreeMap::<(u64, u64), u64>::new();
        for table in directory.tables.iter().filter(|table| table.length_bytes > 0) {
            *tables.entry((table.offset_bytes, table.length_bytes)).or_default() += 1;
        }
        let (mut sound, mut end_bytes) = (Vec::new(), 0);
        for ((offset_bytes, length_bytes), users) in tables {
            let table = Table { offset_bytes, length_bytes };
            // Any number of them, each of a length of its own, would be claimed for ever.
            if offset_bytes < end_bytes {
                self.is_incomplete = true;
                self.corrupt(&format!("a table of {length_bytes} bytes at {offset_bytes:#x} overlaps another"));
            } else if length_bytes > L1_MAX_BYTES {
                self.is_incomplete = true;
                self.corrupt(&format!("a table at {offset_bytes:#x} has {length_bytes} bytes, which is too large"));
            } else if self.claim_table(table, users) {
                sound.push((table, users));
                end_bytes = offset_bytes + length_bytes;
            }
        }
        sound
    }

    /// Whether the table may be looked into.
    fn claim_table(&mut self, table: Table, users: u64) -> bool {
        let Table { offset_bytes, length_bytes } = table;
        let reference = Reference { part: Part::L1Table, index: 0, entry: 0, offset_bytes, length_bytes };
        if !reference.is_aligned(self.header) {
            self.is_incomplete = true;
            self.corrupt(&format!("a table at {offset_bytes:#x} is not cluster aligned"));
            return false;
        }
        let is_sound = self.claim(&reference, METADATA, users);
        self.is_incomplete |= !is_sound;
        is_sound
    }

    /// The L2 tables that can be looked into, each with how many use it.
    fn count_l1_tables(&mut self, of_snapshots: &[(Table, u64)]) -> io::Result<BTreeMap<u64, TableUsers>> {
        let mut found = BTreeMap::<u64, TableUsers>::new();
        for reference in references::in_l1(self.file, self.header, self.header.l1) {
            let reference = reference?;
            if self.judge_l2_reference(&reference, 1) && self.is_marked_wrong(&reference) {
                let Reference { index, entry, .. } = reference;
                let what = format!("OFLAG_COPIED L2 cluster: l1_index={index} l1_entry={entry:x}");
                self.judge_mark(&what, self.header.l1.offset_bytes, &reference, 1)?;
            }
            if !reference.is_used() {
                continue;
            }
            let users = found.entry(reference.offset_bytes).or_default();
            users.all += 1;
            users.active += 1;
            users.l1_index.get_or_insert(reference.index);
        }
        for &(l1, count) in of_snapshots {
            for reference in references::in_l1(self.file, self.header, l1) {
                let reference = reference?;
                self.judge_l2_reference(&reference, count);
                if reference.is_used() {
                    found.entry(reference.offset_bytes).or_default().all += count;
                }
            }
        }
        let mut sound = BTreeMap::new();
        for (offset_bytes, users) in found {
            let length_bytes = self.header.cluster_bytes();
            let reference = Reference { part: Part::L2Table, index: 0, entry: 0, offset_bytes, length_bytes };
            let may_be_read = reference.is_aligned(self.header) && self.claim(&reference, METADATA, users.all);
            self.is_incomplete |= !may_be_read;
            if users.active > 1 {
                self.flag(offset_bytes, TWICE);
            }
            if may_be_read {
                sound.insert(offset_bytes, users);
            }
        }
        Ok(sound)
    }

    /// Whether it leads to where a table may be.
    fn judge_l2_reference(&mut self, reference: &Reference, users: u64) -> bool {
        let Reference { entry, offset_bytes, .. } = *reference;
        if reference.has_reserved_bits() {
            self.corrupt_for(users, &format!("found L1 entry with reserved bits set: {entry:x}"));
        }
        if reference.is_used() && !reference.is_aligned(self.header) {
            let what = format!("l2_offset={offset_bytes:x}: Table is not cluster aligned; L1 entry corrupted");
            self.corrupt_for(users, &what);
        }
        reference.is_used() && reference.is_aligned(self.header)
    }

    /// Whether an entry says wrongly that what it refers to has or has not a refcount of one.
    fn is_marked_wrong(&self, reference: &Reference) -> bool {
        // What lies behind the file's end has none.
        reference.is_copied() != self.has_flag(reference.offset_bytes, ONE)
    }

    fn judge_mark(&mut self, what: &str, table: u64, reference: &Reference, users: u64) -> io::Result<()> {
        if !self.mends_marks {
            let refcount = if reference.is_copied() { "is not" } else { "is" };
            self.corrupt_for(users, &format!("{what} refcount {refcount} 1"));
            return Ok(());
        }
        let entry = (reference.entry ^ COPIED).to_be_bytes();
        let entry_bytes = match reference.part {
            Part::L2Table => 8,
            _ => Layout::of(self.header).entry_bytes(),
        };
        self.file.write(&entry, table + reference.index as u64 * entry_bytes)?;
        self.report.corruptions_fixed += 1;
        (self.tell)(&format!("Repairing {what}"));
        Ok(())
    }

    fn count_l2_table(&mut self, table: u64, users: TableUsers) -> io::Result<()> {
        let mut next_contiguous = 0;
        let is_active = users.active > 0;
        for reference in references::in_l2(self.file, self.header, table) {
            let reference = reference?;
            let is_compressed = reference.part == Part::Compressed;
            self.compressed_entries += u64::from(is_compressed);
            self.judge_cluster(&reference, table, users)?;
            self.judge_place(&reference, users);
            // Zeros that lie at the beginning of a data file lie nowhere, for QEMU.
            let is_first = reference.part == Part::External && reference.offset_bytes == 0;
            let is_nowhere = is_first && !self.header.has_extended_l2() && reference.entry & ZERO != 0;
            if is_nowhere || (!reference.is_used() && reference.part != Part::External) {
                continue;
            }
            if is_active {
                self.report.allocated_clusters += 1;
                self.report.compressed_clusters += u64::from(is_compressed);
                let is_apart = next_contiguous != 0 && reference.offset_bytes != next_contiguous;
                self.report.fragmented_clusters += u64::from(is_compressed || is_apart);
                if !is_compressed {
                    next_contiguous = reference.offset_bytes.saturating_add(reference.length_bytes);
                }
            }
            if reference.part == Part::External {
                continue;
            }
            let how = match (is_compressed, is_active) {
                (true, _) => COMPRESSED,
                (false, true) => DATA,
                (false, false) => SNAPSHOT,
            };
            self.claim(&reference, how, users.all);
        }
        Ok(())
    }

    fn judge_cluster(&mut self, reference: &Reference, table: u64, users: TableUsers) -> io::Result<()> {
        let Reference { entry, offset_bytes, part, .. } = *reference;
        if part == Part::Compressed {
            if reference.is_copied() {
                let what = format!("coffset={offset_bytes:#x}: copied flag must never be set for compressed clusters,");
                self.judge_mark(&what, table, reference, users.all)?;
            }
            if self.header.data_file.is_some() {
                self.corrupt_for(users.all, &format!("compressed cluster with data file, entry={entry:#x}"));
            }
            return Ok(());
        }
        if reference.has_reserved_bits() {
            self.corrupt_for(users.all, &format!("found l2 entry with reserved bits set: {entry:x}"));
        }
        if !reference.is_used() {
            return Ok(());
        }
        if !reference.is_aligned(self.header) {
            let what = if entry & ZERO == 0 { "Data cluster" } else { "Preallocated cluster" };
            let what = format!("offset={offset_bytes:x}: {what} is not properly aligned; L2 entry corrupted");
            self.corrupt_for(users.all, &what);
        } else if users.active > 0 && self.is_marked_wrong(reference) {
            // Marks of a snapshot's tables mean nothing until it is applied.
            self.judge_mark(&format!("OFLAG_COPIED data cluster: l2_entry={entry:x}"), table, reference, 1)?;
        }
        Ok(())
    }

    /// Whether it lies in the data file where it does on the disk, which is how it is read.
    fn judge_place(&mut self, reference: &Reference, users: TableUsers) {
        let Reference { part, index, entry, offset_bytes, .. } = *reference;
        let Some(l1_index) = users.l1_index.filter(|_| part == Part::External) else { return };
        let layout = Layout::of(self.header);
        let disk_offset = ((l1_index as u64) << layout.table_bits() | index as u64) << layout.cluster_bits;
        if offset_bytes != disk_offset && (offset_bytes != 0 || reference.is_copied()) {
            let what = format!("l2_entry={entry:x}: the cluster at {disk_offset:#x} of the disk");
            self.corrupt(&format!("{what} lies at {offset_bytes:#x} of the data file, the place of another"));
        }
    }

    fn flag(&mut self, offset: u64, flag: u8) {
        if let Some(flags) = self.flags.get_mut((offset >> self.header.cluster_bits) as usize) {
            *flags |= flag;
        }
    }

    fn has_flag(&self, offset: u64, flag: u8) -> bool {
        self.flags.get((offset >> self.header.cluster_bits) as usize).is_some_and(|flags| flags & flag != 0)
    }

    /// Counts a reference to each cluster of a range, `users` times. False when it reaches out of the file, or into
    /// what something else uses.
    fn claim(&mut self, reference: &Reference, how: u8, users: u64) -> bool {
        let Reference { offset_bytes, length_bytes, .. } = *reference;
        if length_bytes == 0 {
            return true;
        }
        let bits = self.header.cluster_bits;
        // The last cluster may be cut off, as long as something of it is there.
        let last = offset_bytes.checked_add(length_bytes - 1).map(|last| (last >> bits) as usize);
        let Some(last) = last.filter(|&last| last < self.flags.len()) else {
            let what = format!(
                "counting reference for region exceeding the end of the file by one cluster or more: \
                 offset {offset_bytes:#x} size {length_bytes:#x}"
            );
            self.corrupt_for(users, &what);
            return false;
        };
        let clashes_with = match how {
            METADATA => METADATA | DATA | COMPRESSED,
            DATA => METADATA | DATA | COMPRESSED,
            COMPRESSED => METADATA | DATA | SNAPSHOT,
            _ => METADATA | COMPRESSED,
        };
        let mut is_sound = true;
        for cluster in (offset_bytes >> bits) as usize..=last {
            let flags = &mut self.flags[cluster];
            if *flags & clashes_with != 0 {
                *flags |= TWICE;
                is_sound = false;
            }
            *flags |= how;
            let count = self.count(cluster).saturating_add(users);
            match u8::try_from(count) {
                Ok(small) if small <= SMALL_MAX => self.small_counts[cluster] = small,
                _ => {
                    self.small_counts[cluster] = u8::MAX;
                    self.large_counts.insert(cluster as u64, count);
                }
            }
        }
        is_sound
    }

    fn compare(&mut self) -> io::Result<()> {
        let (per_block, clusters) = (self.refcounts_per_block() as usize, self.flags.len());
        let mut highest = None;
        for (index, first) in (0..clusters).step_by(per_block).enumerate() {
            let offset = self.refblocks.get(index).copied().filter(|&offset| offset != 0);
            // What something else uses too is not written to.
            let is_own = offset.is_some_and(|offset| !self.has_flag(offset, TWICE));
            self.lacks_refcounts |= offset.is_some() && !is_own;
            let mut block = match offset {
                Some(offset) => Refblock::read(self.file, self.header, offset)?,
                None => Refblock::empty(self.header.cluster_bits, self.header.refcount_order),
            };
            let mut is_mended = false;
            for cluster in first..clusters.min(first + per_block) {
                let (refcount, count) = (block.get(cluster - first), self.count(cluster));
                if refcount > 0 || count > 0 {
                    highest = Some(cluster as u64);
                }
                // Else that they are too few says enough.
                if refcount >= count && self.flags[cluster] & TWICE != 0 {
                    self.corrupt(&format!("cluster {cluster} has two uses, refcount={refcount}"));
                }
                if refcount == count {
                    continue;
                }
                let is_mendable = is_own && self.may_mend(refcount, count);
                let is_mended_now = is_mendable && block.set(cluster - first, count);
                is_mended |= is_mended_now;
                self.lacks_refcounts |= !is_mended_now && count > refcount;
                self.tell_difference(cluster, refcount, count, is_mended_now);
            }
            if let Some(offset) = offset.filter(|_| is_mended) {
                self.file.write(&block.bytes, offset)?;
            }
        }
        self.report.image_end_bytes = highest.map_or(0, |highest| (highest + 1) << self.header.cluster_bits);
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

    fn tell_difference(&mut self, cluster: usize, refcount: u64, count: u64, is_mended: bool) {
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

/// How many L1 entries refer to an L2 table.
#[derive(Clone, Copy, Debug, Default)]
struct TableUsers {
    all: u64,
    /// Of the disk's own L1 table.
    active: u64,
    /// The first of those.
    l1_index: Option<usize>,
}
