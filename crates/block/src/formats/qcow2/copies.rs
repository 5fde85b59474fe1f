//! Of a cluster that the disk uses twice, a copy for its second use: afterwards each is written to alone, and shows
//! what it showed.
//!
//! Refcounts that say two would please QEMU, but of the two nobody knows which the data belong to, and what is written
//! in place relies on one use alone. Copies go behind the file's end and are stable before an entry leads there; their
//! refcounts are the census's to find. A table that is data, too, is changed once these have their copies. What bitmaps
//! and snapshots use twice stays as it is, as does a table in the place of another kind of table or of compressed data,
//! and all where an entry of the disk, of a snapshot or of a bitmap leads behind the file's end, or may: it would lead
//! to copies then.

use super::entries::{COPIED, Layout, OFFSET_MASK, ZERO};
use super::header::Header;
use super::references::{self, Part, Reference};
use super::use_map::{Use, UseMap};
use crate::formats::WritableFile;
use rustix::fs::{FileType, fstat};
use std::collections::BTreeMap;
use std::io;

/// Why there are no copies.
#[derive(Debug)]
pub(super) enum Stop {
    /// They would take more room than the file.
    TooMany,
    /// An entry leads to where they would be, or nobody can say that none does.
    InTheWay,
    Failed(io::Error),
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Self::Failed(error)
    }
}

/// Clusters of a file, and entries of its L1 table, that are remembered at once: two bits and 16 bytes of each.
const FILE_CLUSTERS_MAX: u64 = 1 << 26;
const L1_ENTRIES_MAX: u64 = 1 << 20;
/// Entries of tables that are changed last.
const CHANGES_MAX: usize = 1 << 20;

/// How many entries are to lead elsewhere. None of an image whose clusters cannot be copied: they are encrypted by
/// their place, or lie in another file; nor of one that cannot become longer, or is too long.
pub(super) fn needed(file: &WritableFile, header: &Header) -> Result<u64, Stop> {
    let is_file = FileType::from_raw_mode(fstat(&file.file).map_err(io::Error::from)?.st_mode).is_file();
    if !is_file || is_too_long(file, header) || header.encryption != 0 || header.data_file.is_some() {
        return Ok(0);
    }
    let mut copies = Copies::new(file, header, None);
    copies.make()?;
    if copies.leads_out && copies.count > 0 { Err(Stop::InTheWay) } else { Ok(copies.count) }
}

/// Whether the disk uses a cluster twice; of what is too long, nobody looks.
///
/// # Errors
/// When it cannot be read.
pub(super) fn has_two_uses(file: &WritableFile, header: &Header) -> io::Result<bool> {
    if is_too_long(file, header) {
        return Ok(false);
    }
    let mut copies = Copies::new(file, header, None);
    match copies.make() {
        Err(Stop::Failed(error)) => Err(error),
        Err(_) => Ok(true),
        Ok(()) => Ok(copies.count > 0),
    }
}

fn is_too_long(file: &WritableFile, header: &Header) -> bool {
    let clusters = file.length_bytes().div_ceil(header.cluster_bytes());
    clusters > FILE_CLUSTERS_MAX || header.l1.length_bytes / 8 > L1_ENTRIES_MAX
}

/// Makes the copies; `tell` hears of each. Where that fails, those that nothing leads to yet are gone again.
pub(super) fn make(file: &WritableFile, header: &Header, tell: &mut dyn FnMut(&str)) -> Result<u64, Stop> {
    let mut copies = Copies::new(file, header, Some(tell));
    if let Err(stop) = copies.make() {
        // What is behind the end is nothing, wherever that is.
        let _ = file.truncate(copies.used_bytes);
        return Err(stop);
    }
    Ok(copies.count)
}

struct Copies<'a> {
    file: &'a WritableFile,
    header: &'a Header,
    layout: Layout,
    uses: UseMap,
    /// Of what is not copies.
    end_bytes: u64,
    /// An entry leads behind it.
    leads_out: bool,
    /// So many more may be made: as many as the file has clusters.
    left: u64,
    /// Where the next goes.
    next_bytes: u64,
    /// How much of the file is in use: entries may lead to the copies before it.
    used_bytes: u64,
    /// Entries that were changed.
    count: u64,
    /// `None`: they are only counted.
    tell: Option<&'a mut dyn FnMut(&str)>,
}

/// Where a table is data, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Shared {
    /// Of what gets a copy.
    UntilCopied,
    /// Of what stays: what is written to the table would be seen there.
    ForGood,
}

/// Tables that are data, too.
#[derive(Default)]
struct SharedTables(BTreeMap<u64, Shared>);

impl SharedTables {
    /// Adds those of `tables`, and the L1 table, where something leads.
    fn find(&mut self, reference: &Reference, header: &Header, tables: &[(u64, usize)], how: Shared) {
        let Reference { offset_bytes, length_bytes, .. } = *reference;
        if !reference.is_used() {
            return;
        }
        let first = offset_bytes - offset_bytes % header.cluster_bytes();
        let end = offset_bytes.saturating_add(length_bytes);
        let from = tables.partition_point(|&(table, _)| table < first);
        let within = tables[from..].iter().map(|&(table, _)| table).take_while(|&table| table < end);
        let l1 = header.l1;
        let is_l1 = first < l1.offset_bytes + l1.length_bytes && l1.offset_bytes < end;
        for table in within.chain(is_l1.then_some(l1.offset_bytes)) {
            let known = self.0.entry(table).or_insert(how);
            *known = how.max(*known);
        }
    }

    fn has(&self, table: u64) -> Option<Shared> {
        self.0.get(&table).copied()
    }
}

/// An entry of a table, by its index, as it shall be.
type Change = (usize, u64);

impl<'a> Copies<'a> {
    fn new(file: &'a WritableFile, header: &'a Header, tell: Option<&'a mut dyn FnMut(&str)>) -> Self {
        let clusters = file.length_bytes().div_ceil(header.cluster_bytes());
        Self {
            file,
            header,
            layout: Layout::of(header),
            uses: UseMap::new(0..clusters),
            end_bytes: clusters << header.cluster_bits,
            leads_out: false,
            left: clusters,
            next_bytes: clusters << header.cluster_bits,
            used_bytes: file.length_bytes(),
            count: 0,
            tell,
        }
    }

    fn make(&mut self) -> Result<(), Stop> {
        for table in references::in_header(self.header) {
            let end = table.offset_bytes.saturating_add(table.length_bytes).div_ceil(self.header.cluster_bytes());
            if self.uses.claim(table.offset_bytes >> self.header.cluster_bits..end, Use::Once).is_err() {
                return Ok(());
            }
        }
        for refblock in references::in_refcount_table(self.file, self.header) {
            self.claim(refblock?.offset_bytes);
        }
        let tables = self.l2_tables()?;
        let used_by = |one: &(u64, usize), other: &(u64, usize)| one.0 == other.0;
        let mut shared = SharedTables::default();
        for users in tables.chunk_by(used_by) {
            self.claim_compressed(users[0].0)?;
            self.find_shared(users[0].0, &tables, &mut shared)?;
        }
        if shared.has(self.header.l1.offset_bytes).is_some() {
            return Ok(());
        }
        let mut last = Vec::new();
        let mut left = CHANGES_MAX;
        for users in tables.chunk_by(used_by) {
            let (table, _) = users[0];
            let how = shared.has(table);
            if how == Some(Shared::ForGood) {
                continue;
            }
            // Before anything of it is changed.
            for &(table, l1_index) in &users[1..] {
                self.copy_table(table, l1_index)?;
            }
            let changes = self.changes(table, false)?;
            match how {
                None => self.change(table, &changes)?,
                _ => {
                    left = left.checked_sub(changes.len()).ok_or(Stop::TooMany)?;
                    last.push((table, changes));
                }
            }
        }
        for (table, changes) in last {
            self.change(table, &changes)?;
        }
        Ok(())
    }

    /// Whether nobody else uses the cluster, or what lies outside of the file.
    fn claim(&mut self, offset_bytes: u64) -> bool {
        let cluster = offset_bytes >> self.header.cluster_bits;
        self.uses.claim(cluster..cluster.saturating_add(1), Use::Once).is_ok()
    }

    /// Whether it leads to a cluster of the file.
    fn is_sound(&mut self, reference: &Reference) -> bool {
        let is_inside = reference.offset_bytes < self.end_bytes;
        self.leads_out |= !is_inside;
        is_inside && reference.is_used() && reference.is_aligned(self.header)
    }

    /// Where the disk's L2 tables lie, and the index of each entry that leads there, in this order; but those in the
    /// place of other tables.
    fn l2_tables(&mut self) -> io::Result<Vec<(u64, usize)>> {
        let mut found = Vec::new();
        for reference in references::in_l1(self.file, self.header, self.header.l1) {
            let reference = reference?;
            if self.is_sound(&reference) {
                found.push((reference.offset_bytes, reference.index));
            }
        }
        found.sort_unstable();
        let (mut last, mut is_own) = (None, false);
        found.retain(|&(table, _)| {
            if last.replace(table) != Some(table) {
                is_own = self.claim(table);
            }
            is_own
        });
        Ok(found)
    }

    fn claim_compressed(&mut self, table: u64) -> io::Result<()> {
        let bits = self.header.cluster_bits;
        for reference in references::in_l2(self.file, self.header, table) {
            let Reference { part, offset_bytes, length_bytes, .. } = reference?;
            let end = offset_bytes.saturating_add(length_bytes).div_ceil(1 << bits);
            if part == Part::Compressed {
                self.leads_out |= end > self.uses.clusters().end;
                for cluster in offset_bytes >> bits..end.min(self.uses.clusters().end) {
                    // What is in use by another is damage that stays.
                    let _ = self.uses.claim(cluster..cluster + 1, Use::Many);
                }
            }
        }
        Ok(())
    }

    /// Finds, of `tables` and the L1 table, those that the entries of one of them call data.
    fn find_shared(&self, table: u64, tables: &[(u64, usize)], shared: &mut SharedTables) -> io::Result<()> {
        for reference in references::in_l2(self.file, self.header, table) {
            let reference = reference?;
            // Data get a copy, which is made before the table is changed.
            let how = if reference.part == Part::Data { Shared::UntilCopied } else { Shared::ForGood };
            shared.find(&reference, self.header, tables, how);
        }
        Ok(())
    }

    /// The entries of an L2 table that have to lead to copies: those whose cluster has a use already, or all.
    fn changes(&mut self, table: u64, all: bool) -> Result<Vec<Change>, Stop> {
        let mut changes = Vec::new();
        for reference in references::in_l2(self.file, self.header, table) {
            let reference = reference?;
            let Reference { part, index, entry, offset_bytes, .. } = reference;
            if part != Part::Data || !self.is_sound(&reference) || (!all && self.claim(offset_bytes)) {
                continue;
            }
            let place = match !self.layout.is_extended && entry & ZERO != 0 {
                // Zeros need none.
                true => 0,
                false => self.copy(offset_bytes)?,
            };
            self.count += 1;
            changes.push((index, entry & !(OFFSET_MASK | COPIED) | place));
        }
        Ok(changes)
    }

    /// Has entries of an L2 table lead to their copies.
    fn change(&mut self, table: u64, changes: &[Change]) -> io::Result<()> {
        if self.tell.is_none() || changes.is_empty() {
            return Ok(());
        }
        self.file.barrier()?;
        self.used_bytes = self.next_bytes;
        for &(index, entry) in changes {
            self.file.write(&entry.to_be_bytes(), table + index as u64 * self.layout.entry_bytes())?;
        }
        Ok(())
    }

    /// Gives a part of the disk a copy of another's L2 table, and of its data.
    fn copy_table(&mut self, table: u64, l1_index: usize) -> Result<(), Stop> {
        let copy = self.copy(table)?;
        self.count += 1;
        let changes = self.changes(table, true)?;
        if self.tell.is_some() {
            for (index, entry) in changes {
                self.file.write(&entry.to_be_bytes(), copy + index as u64 * self.layout.entry_bytes())?;
            }
            self.file.barrier()?;
            self.used_bytes = self.next_bytes;
            self.file.write(&copy.to_be_bytes(), self.header.l1.offset_bytes + l1_index as u64 * 8)?;
        }
        Ok(())
    }

    /// Where a copy of the cluster is.
    fn copy(&mut self, offset_bytes: u64) -> Result<u64, Stop> {
        self.left = self.left.checked_sub(1).ok_or(Stop::TooMany)?;
        let place = self.next_bytes;
        self.next_bytes += self.header.cluster_bytes();
        if let Some(tell) = &mut self.tell {
            let mut cluster = vec![0; self.header.cluster_bytes() as usize];
            self.file.read(&mut cluster, offset_bytes)?;
            self.file.write(&cluster, place)?;
            let number = offset_bytes >> self.header.cluster_bits;
            tell(&format!("Repairing cluster {number}, which has two uses: a copy at {place:#x} is for the second"));
        }
        Ok(place)
    }
}
