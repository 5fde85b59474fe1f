//! All that is wrong with an image: every reference in its tables is counted, and the counts are compared with its
//! refcounts.
//!
//! It counts as `qemu-img check` does, which finds the same, and says more where a cluster has two uses though its
//! refcount knows, or lies in a data file where it cannot be read. Nothing is read twice because an image says so: of a
//! table that several snapshots share, each entry counts so often. So the work is bounded by the file's length.
//!
//! So is the memory, by three bytes for each cluster of a window ([`UseCounts`]) and eight for each L2 table
//! ([`UsedTables`]): what is too long for one window is gone through window by window, all tables for each. What does
//! not depend on the window is said once.

mod data_file;
mod missing;
mod refcounts;
mod tables;

pub(super) use missing::Zeroed;

use super::check::{CLUSTERS_MAX, clusters_of};
use super::entries::{COMPRESSED as ENTRY_COMPRESSED, COPIED, Entry, Layout, OFFSET_MASK, ZERO};
use super::header::{Header, Table};
use super::references::{self, Part, Reference};
use super::table_users::{UsedTable, UsedTables};
use super::use_counts::{COMPRESSED, DATA, ONE, SNAPSHOT, TWICE, UseCounts};
use crate::formats::{CheckReport, Repair, WritableFile};
use std::io;
use std::ops::Range;

/// Hears of each thing that is wrong, in a line.
pub(super) type Tell<'a> = &'a mut dyn FnMut(&str);

/// How much of a file is looked at together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Windows {
    /// What windows, tables and blocks of refcounts are to take together, if that is enough for the smallest window.
    pub(super) memory_bytes: u64,
    /// The smallest window.
    pub(super) clusters_min: u64,
}

impl Default for Windows {
    fn default() -> Self {
        Self { memory_bytes: 36 << 20, clusters_min: 1 << 22 }
    }
}

/// Of a block of refcounts: something else uses it, too, so it is not written to.
const IS_SHARED: u32 = 1 << 31;

const _: () = assert!(CLUSTERS_MAX <= IS_SHARED as u64);

/// What an entry of an L2 table was found to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Judged {
    /// It is counted where it leads to.
    Somewhere,
    /// It leads nowhere, or will not.
    Nowhere,
}

/// A table that a directory names, and how often it does.
#[derive(Clone, Copy, Debug)]
struct NamedTable {
    table: Table,
    users: u64,
    /// It may be looked into.
    is_sound: bool,
    /// Data, or another table, lie there, too.
    holds_more: bool,
}

impl NamedTable {
    /// One that may be looked into, as far as is known.
    fn of(table: Table, users: u64) -> Self {
        Self { table, users, is_sound: true, holds_more: false }
    }
}

pub(super) struct Census<'a> {
    file: &'a WritableFile,
    header: &'a Header,
    repair: Repair,
    /// Entries are to say what refcounts are. Those were put right before.
    pub(super) mends_marks: bool,
    tell: Tell<'a>,
    /// Clusters of the file.
    clusters: u64,
    /// Where the data file's last cluster ends, if there is such a file and it is known.
    data_end_bytes: Option<u64>,
    windows: Windows,
    window_clusters: u64,
    /// Some reference may count often.
    are_counts_large: bool,
    /// Those of the window that is gone through.
    counts: UseCounts,
    /// What does not depend on the window is said now.
    tells: bool,
    /// By index in the refcount table: the clusters of the blocks that can be used, else 0.
    refblocks: Vec<u32>,
    with_refcounts: bool,
    /// The directories, what their entries name, and L2 tables.
    directories: Vec<Table>,
    bitmaps: Vec<NamedTable>,
    snapshots: Vec<NamedTable>,
    tables: UsedTables,
    /// Data, or another table, lie where the disk's L1 table does.
    l1_holds_more: bool,
    highest: Option<u64>,
    pub(super) report: CheckReport,
    /// Something was not looked into, so what seems to be used by nobody may be.
    pub(super) is_incomplete: bool,
    /// The first place behind the end of the file that something leads to, but for the table of refcounts.
    pub(super) leads_out_at: Option<u64>,
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
        windows: Windows,
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
            clusters,
            data_end_bytes: None,
            windows,
            window_clusters: windows.clusters_min,
            are_counts_large: false,
            counts: UseCounts::none(),
            tells: false,
            refblocks: Vec::new(),
            with_refcounts: true,
            directories: Vec::new(),
            bitmaps: Vec::new(),
            snapshots: Vec::new(),
            tables: UsedTables::default(),
            l1_holds_more: false,
            highest: None,
            report: CheckReport { total_clusters, ..CheckReport::default() },
            is_incomplete: false,
            leads_out_at: None,
            lacks_refcounts: false,
            compressed_entries: 0,
        })
    }

    /// Looks at what leads behind the end of the data file, too, which has so many bytes.
    pub(super) fn with_data_file(self, length_bytes: u64) -> Self {
        let end_bytes = length_bytes.checked_next_multiple_of(self.header.cluster_bytes());
        Self { data_end_bytes: Some(end_bytes.unwrap_or(u64::MAX)), ..self }
    }

    /// Counts, compares, and repairs what it may.
    pub(super) fn take(&mut self) -> io::Result<()> {
        self.look_at_refblocks()?;
        self.look_at_tables()?;
        let mends_marks = std::mem::take(&mut self.mends_marks);
        if mends_marks || (self.repair != Repair::None && self.windows().nth(1).is_some()) {
            // Which tables and blocks of refcounts something else uses has to be known before one is written to.
            for window in self.windows() {
                self.count_window(window, false)?;
                self.find_mixed_tables();
            }
        }
        self.mends_marks = mends_marks;
        for window in self.windows() {
            self.count_window(window.clone(), window.start == 0)?;
            self.find_mixed_tables();
            self.compare(window)?;
        }
        self.judge_places()?;
        self.report.image_end_bytes = self.highest.map_or(0, |highest| (highest + 1) << self.header.cluster_bits);
        Ok(())
    }

    /// Prepares to count what is referred to, but for the refcounts themselves ([`Census::count`]).
    pub(super) fn count_without_refcounts(&mut self) -> io::Result<()> {
        self.with_refcounts = false;
        self.look_at_tables()?;
        self.count_window(0..self.clusters.min(self.window_clusters), false)
    }

    /// Clusters of the file.
    pub(super) fn clusters(&self) -> u64 {
        self.clusters
    }

    /// References to a cluster. Whoever asks for one after the other has each window counted once.
    pub(super) fn count(&mut self, cluster: u64) -> io::Result<u64> {
        let start = cluster - cluster % self.window_clusters;
        if self.counts.window().start != start {
            self.count_window(start..self.clusters.min(start + self.window_clusters), false)?;
        }
        Ok(self.counts.count(cluster))
    }

    fn windows(&self) -> impl Iterator<Item = Range<u64>> + use<> {
        let (clusters, window_clusters) = (self.clusters, self.window_clusters);
        let starts = (0..clusters).step_by(window_clusters as usize);
        starts.map(move |start| start..clusters.min(start + window_clusters))
    }

    /// Makes windows as large as there is memory for, where references count so often at most.
    fn set_windows(&mut self, users_max: u64) {
        self.are_counts_large = users_max > UseCounts::FEW;
        let cluster_bytes = if self.are_counts_large { UseCounts::LARGE_BYTES } else { UseCounts::SMALL_BYTES };
        let tables_bytes = self.refblocks.len() as u64 * 4 + self.tables.all().len() as u64 * 8;
        let clusters = self.windows.memory_bytes.saturating_sub(tables_bytes) / cluster_bytes;
        self.window_clusters = clusters.max(self.windows.clusters_min);
    }

    /// Goes on with the clusters of a window, of which nothing is known yet.
    fn begin(&mut self, window: Range<u64>) {
        // Not both at once.
        self.counts = UseCounts::none();
        self.counts = UseCounts::new(window, self.are_counts_large);
    }

    fn corrupt(&mut self, what: &str) {
        self.corrupt_for(1, what);
    }

    /// As `users` see it, to each of whom it counts.
    fn corrupt_for(&mut self, users: u64, what: &str) {
        self.report.corruptions = self.report.corruptions.saturating_add(users);
        (self.tell)(&format!("ERROR {what}"));
    }

    /// The same of what does not depend on the window.
    fn corrupt_once(&mut self, users: u64, what: &str) {
        if self.tells {
            self.corrupt_for(users, what);
        }
    }

    /// Judges what the disk's L1 entries say of the refcounts of tables in the window.
    fn judge_l1_marks(&mut self) -> io::Result<()> {
        for reference in references::in_l1(self.file, self.header, self.header.l1) {
            let reference = reference?;
            if reference.is_used() && reference.is_aligned(self.header) && self.is_marked_wrong(&reference)? {
                let Reference { index, entry, .. } = reference;
                let what = format!("OFLAG_COPIED L2 cluster: l1_index={index} l1_entry={entry:x}");
                self.judge_mark(&what, self.header.l1.offset_bytes, &reference, 1)?;
            }
        }
        Ok(())
    }

    /// Counts what refers to clusters of a window; what of that is wrong wherever it leads is said if it `tells`.
    fn count_window(&mut self, window: Range<u64>, tells: bool) -> io::Result<()> {
        self.tells = false;
        self.begin(window);
        self.flag_ones()?;
        self.claim_metadata();
        self.tells = tells;
        self.claim_bitmaps()?;
        self.judge_l1_marks()?;
        self.claim_l2_tables();
        for index in 0..self.tables.all().len() {
            let Some(&table) = self.tables.all().get(index) else { break };
            if table.is_sound() {
                self.count_l2_table(table)?;
            }
        }
        for refblock in self.refblocks.iter_mut().filter(|refblock| **refblock != 0) {
            if self.counts.has(u64::from(*refblock & !IS_SHARED), TWICE) {
                *refblock |= IS_SHARED;
                self.lacks_refcounts = true;
            }
        }
        Ok(())
    }

    /// Finds which tables in the window that was counted are something else, too: whoever reads that has what is
    /// written to the table. L2 tables that are other tables, too, are not looked into.
    fn find_mixed_tables(&mut self) {
        let (counts, bits) = (&self.counts, self.header.cluster_bits);
        let is_data = |cluster: u64| counts.has(cluster, DATA | COMPRESSED | SNAPSHOT);
        for table in self.tables.within(counts.window()) {
            if is_data(table.cluster()) {
                table.set_holds_data();
            }
        }
        let holds_more = |NamedTable { table: Table { offset_bytes, length_bytes }, users, .. }: NamedTable| {
            let (start, end) = (offset_bytes >> bits, offset_bytes.saturating_add(length_bytes).div_ceil(1 << bits));
            let mut clusters = start.max(counts.window().start)..end.min(counts.window().end);
            // The first cluster of one that several snapshots share is said to be in use twice for that.
            let is_shared = |cluster: u64| users > 1 && cluster == start;
            clusters.any(|cluster| is_data(cluster) || (counts.has(cluster, TWICE) && !is_shared(cluster)))
        };
        self.l1_holds_more |= holds_more(NamedTable::of(self.header.l1, 1));
        for snapshot in self.snapshots.iter_mut().filter(|snapshot| snapshot.is_sound) {
            snapshot.holds_more |= holds_more(*snapshot);
        }
    }

    /// Whether something else lies where a table of entries does.
    fn holds_more(&mut self, table: u64) -> bool {
        let cluster = table >> self.header.cluster_bits;
        let is_l1 = table == self.header.l1.offset_bytes && self.l1_holds_more;
        is_l1 || self.tables.within(cluster..cluster + 1).first().is_some_and(|table| table.holds_data())
    }

    /// Whether an entry says wrongly that what it refers to, in the window, has or has not a refcount of one.
    fn is_marked_wrong(&self, reference: &Reference) -> io::Result<bool> {
        let (cluster, window) = (reference.offset_bytes >> self.header.cluster_bits, self.counts.window());
        let has_one = if cluster < self.clusters {
            self.counts.has(cluster, ONE)
        } else {
            // What lies behind the file's end may have one, too. That is said with the last of the windows.
            window.end == self.clusters && self.refcount_of(cluster)? == 1
        };
        let is_here = window.contains(&cluster) || cluster >= self.clusters && window.end == self.clusters;
        Ok(is_here && reference.is_copied() != has_one)
    }

    fn judge_mark(&mut self, what: &str, table: u64, reference: &Reference, users: u64) -> io::Result<()> {
        if !self.mends_marks || self.holds_more(table) {
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

    fn count_l2_table(&mut self, users: UsedTable) -> io::Result<()> {
        let (table, is_active) = (users.cluster() << self.header.cluster_bits, users.is_active());
        if self.tells {
            self.judge_entries(table, users)?;
        }
        let mut next_contiguous = 0;
        for reference in references::in_l2(self.file, self.header, table) {
            let reference = reference?;
            let is_compressed = reference.part == Part::Compressed;
            self.compressed_entries += u64::from(is_compressed && self.tells);
            if self.judge_cluster(&reference, table, users)? == Judged::Nowhere {
                continue;
            }
            // Zeros that lie at the beginning of a data file lie nowhere, for QEMU.
            let is_first = reference.part == Part::External && reference.offset_bytes == 0;
            let is_nowhere = is_first && !self.header.has_extended_l2() && reference.entry & ZERO != 0;
            if is_nowhere || (!reference.is_used() && reference.part != Part::External) {
                continue;
            }
            if is_active && self.tells {
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
            self.claim(&reference, how, users.users());
        }
        Ok(())
    }

    /// Finds entries of an L2 table that nobody can read, though each word of theirs may be one; and notes one that the
    /// file's end cuts off.
    fn judge_entries(&mut self, table: u64, users: UsedTable) -> io::Result<()> {
        let (layout, length_bytes) = (Layout::of(self.header), self.header.cluster_bytes());
        if !self.file.has(table, length_bytes) {
            (self.tell)(&format!(
                "NOTE the L2 table at {table:#x} is cut off by the end of the file, and says no more"
            ));
        }
        if layout.has_zeros && !layout.is_extended {
            return Ok(());
        }
        for words in self.file.entries(Table { offset_bytes: table, length_bytes })?.chunks(layout.entry_words()) {
            let (word, parts) = (words[0], words.get(1).copied().unwrap_or(0));
            let is_compressed = word & ENTRY_COMPRESSED != 0;
            // These are judged where they lead.
            let is_elsewhere = !is_compressed && !(word & OFFSET_MASK).is_multiple_of(length_bytes);
            if layout.entry(word, parts) != Entry::Invalid || is_elsewhere || (is_compressed && layout.has_data_file) {
                continue;
            }
            self.corrupt_once(users.users(), &format!("l2_entry={word:x} makes no sense with parts={parts:x}"));
            // What it had is somewhere.
            self.is_incomplete |= !is_compressed && word & OFFSET_MASK == 0;
        }
        Ok(())
    }

    fn judge_cluster(&mut self, reference: &Reference, table: u64, users: UsedTable) -> io::Result<Judged> {
        let Reference { entry, offset_bytes, part, .. } = *reference;
        if part == Part::Compressed {
            if reference.is_copied() && self.tells {
                let what = format!("coffset={offset_bytes:#x}: copied flag must never be set for compressed clusters,");
                self.judge_mark(&what, table, reference, users.users())?;
            }
            if self.header.data_file.is_some() {
                self.corrupt_once(users.users(), &format!("compressed cluster with data file, entry={entry:#x}"));
            }
            return Ok(Judged::Somewhere);
        }
        if reference.has_reserved_bits() {
            self.corrupt_once(users.users(), &format!("found l2 entry with reserved bits set: {entry:x}"));
        }
        if !reference.is_used() {
            return Ok(Judged::Somewhere);
        }
        if !reference.is_aligned(self.header) {
            let is_noise = reference.has_reserved_bits();
            if self.repair == Repair::All && !is_noise && !self.holds_data(reference, table)? {
                return self.forget_place(reference, table, users);
            }
            let what = if entry & ZERO == 0 { "Data cluster" } else { "Preallocated cluster" };
            let what = format!("offset={offset_bytes:x}: {what} is not properly aligned; L2 entry corrupted");
            self.corrupt_once(users.users(), &what);
        } else if users.is_active() && self.is_marked_wrong(reference)? {
            // Marks of a snapshot's tables mean nothing until it is applied.
            self.judge_mark(&format!("OFLAG_COPIED data cluster: l2_entry={entry:x}"), table, reference, 1)?;
        }
        Ok(Judged::Somewhere)
    }

    /// Whether anything of a cluster that lies in the image's own file is data, rather than zeros or what is behind it.
    fn holds_data(&self, reference: &Reference, table: u64) -> io::Result<bool> {
        match self.header.has_extended_l2() {
            true => Ok(self.parts_of(table, reference.index)? & u64::from(u32::MAX) != 0),
            false => Ok(self.header.version < 3 || reference.entry & ZERO == 0),
        }
    }

    /// A place that nothing was to be read from, and that can be none: it is not counted, and the entry says none once
    /// refcounts are in order.
    fn forget_place(&mut self, reference: &Reference, table: u64, users: UsedTable) -> io::Result<Judged> {
        let Reference { index, entry, offset_bytes, .. } = *reference;
        let what = format!("offset={offset_bytes:x}: Preallocated cluster is not properly aligned; L2 entry corrupted");
        if self.mends_marks && !self.holds_more(table) {
            let without = entry & !(OFFSET_MASK | COPIED);
            self.file.write(&without.to_be_bytes(), table + index as u64 * Layout::of(self.header).entry_bytes())?;
            self.report.corruptions_fixed += 1;
            (self.tell)(&format!("Repairing {what}"));
        } else {
            self.corrupt_once(users.users(), &what);
        }
        Ok(Judged::Nowhere)
    }

    fn flag(&mut self, offset: u64, flag: u8) {
        self.counts.flag(offset >> self.header.cluster_bits, flag);
    }

    /// Counts a reference to each cluster of a range, `users` times. False when it reaches out of the file, or into
    /// what something else uses in the window.
    fn claim(&mut self, reference: &Reference, how: u8, users: u64) -> bool {
        let Reference { offset_bytes, length_bytes, .. } = *reference;
        if length_bytes == 0 {
            return true;
        }
        let bits = self.header.cluster_bits;
        // The last cluster may be cut off, as long as something of it is there.
        let last = offset_bytes.checked_add(length_bytes - 1).map(|last| last >> bits);
        match last.filter(|&last| last < self.clusters) {
            Some(last) => self.counts.claim(offset_bytes >> bits..last + 1, how, users),
            None => {
                self.leads_out(users, reference);
                false
            }
        }
    }

    fn leads_out(&mut self, users: u64, reference: &Reference) {
        let Reference { part, offset_bytes, length_bytes, .. } = *reference;
        // Of a compressed cluster the beginning may be there, and the end is not.
        if part != Part::RefcountTable {
            let at = offset_bytes.max(self.clusters << self.header.cluster_bits);
            self.leads_out_at = Some(self.leads_out_at.map_or(at, |first| first.min(at)));
        }
        if self.tells {
            self.report.missing += u64::from(matches!(part, Part::L2Table | Part::Data | Part::Compressed));
            let what = format!(
                "counting reference for region exceeding the end of the file by one cluster or more: \
                 offset {offset_bytes:#x} size {length_bytes:#x}"
            );
            self.corrupt_for(users, &what);
        }
    }
}
