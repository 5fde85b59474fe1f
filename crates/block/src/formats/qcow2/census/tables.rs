//! The tables of an image whose references are counted: which there are, and which can be looked into.

use super::{Census, NamedTable};
use crate::formats::qcow2::bitmaps;
use crate::formats::qcow2::header::Table;
use crate::formats::qcow2::references::{self, Part, Reference};
use crate::formats::qcow2::snapshots::{self, Directory, L1_MAX_BYTES};
use crate::formats::qcow2::use_counts::{METADATA, TWICE, UseCounts};
use std::collections::BTreeMap;
use std::io;
use std::iter::once;

impl Census<'_> {
    /// Which tables there are, and which of them can be looked into. What is there without any window is said.
    pub(super) fn look_at_tables(&mut self) -> io::Result<()> {
        let (bitmaps, snapshots) = (self.bitmap_directory()?, snapshots::snapshots(self.file, self.header)?);
        self.directories = [bitmaps.own, snapshots.own].into_iter().flatten().collect();
        self.bitmaps = self.look_at_directory(&bitmaps);
        self.snapshots = self.look_at_directory(&snapshots);
        // Those without entries, of which nothing is claimed.
        for table in snapshots.tables.iter().filter(|table| table.length_bytes == 0) {
            if !table.offset_bytes.is_multiple_of(self.header.cluster_bytes()) {
                self.corrupt(&format!("a table at {:#x} is not cluster aligned", table.offset_bytes));
            }
        }
        let named_max = self.bitmaps.iter().chain(&self.snapshots).map(|named| named.users).max().unwrap_or(0);
        self.set_windows(named_max);
        for window in self.windows() {
            self.tells = window.start == 0;
            self.begin(window);
            self.claim_metadata();
        }
        self.counts = UseCounts::none();
        self.tells = true;
        self.look_at_l1_tables()?;
        self.tells = false;
        let users_max = self.tables.all().iter().map(|table| table.users()).max().unwrap_or(0);
        self.set_windows(users_max.max(named_max));
        if self.windows().nth(1).is_some() {
            for window in self.windows() {
                self.begin(window);
                self.claim_metadata();
                self.claim_bitmaps()?;
                self.claim_l2_tables();
            }
        }
        self.counts = UseCounts::none();
        Ok(())
    }

    /// The bitmaps. Those that nobody can use are no damage of the disk, and told; QEMU opens no image that has one.
    fn bitmap_directory(&mut self) -> io::Result<Directory> {
        let (size_bytes, cluster_bytes, mut found) = (self.header.size_bytes, self.header.cluster_bytes(), Vec::new());
        let directory = bitmaps::walk(self.file, self.header, |bitmap, _| {
            let problem = bitmap.usable(size_bytes, cluster_bytes).err().filter(|_| !bitmap.is_in_use());
            found.extend(problem.map(|problem| (String::from_utf8_lossy(&bitmap.name).into_owned(), problem)));
        })?;
        for (name, problem) in found {
            (self.tell)(&format!(
                "NOTE the bitmap {name:?} {problem}, and QEMU may refuse the image for it: remove it"
            ));
        }
        Ok(directory)
    }

    /// The tables that a directory names, and how often it names them.
    fn look_at_directory(&mut self, directory: &Directory) -> Vec<NamedTable> {
        if let Some(flaw) = &directory.flaw {
            self.is_incomplete = true;
            self.corrupt(flaw);
        }
        let mut tables = BTreeMap::<(u64, u64), u64>::new();
        for table in directory.tables.iter().filter(|table| table.length_bytes > 0) {
            *tables.entry((table.offset_bytes, table.length_bytes)).or_default() += 1;
        }
        let (mut named, mut end_bytes) = (Vec::new(), 0);
        for ((offset_bytes, length_bytes), users) in tables {
            let table = Table { offset_bytes, length_bytes };
            // Any number of them, each of a length of its own, would be claimed for ever.
            if offset_bytes < end_bytes {
                self.is_incomplete = true;
                self.corrupt(&format!("a table of {length_bytes} bytes at {offset_bytes:#x} overlaps another"));
            } else if length_bytes > L1_MAX_BYTES {
                self.is_incomplete = true;
                self.corrupt(&format!("a table at {offset_bytes:#x} has {length_bytes} bytes, which is too large"));
            } else {
                named.push(NamedTable::of(table, users));
                if offset_bytes.is_multiple_of(self.header.cluster_bytes()) {
                    end_bytes = offset_bytes.saturating_add(length_bytes);
                }
            }
        }
        named
    }

    /// Claims, in the window, what the header and directories name. What of that clashes is not looked into.
    pub(super) fn claim_metadata(&mut self) {
        for reference in references::in_header(self.header) {
            if self.with_refcounts || reference.part != Part::RefcountTable {
                self.claim(&reference, METADATA, 1);
            }
        }
        for index in 0..self.refblocks.len() as u64 {
            if let Some(offset) = self.refblock(index) {
                let cluster = offset >> self.header.cluster_bits;
                self.counts.claim(cluster..cluster + 1, METADATA, 1);
            }
        }
        for directory in self.directories.clone() {
            self.claim_table(directory, 1);
        }
        let (mut bitmaps, mut snapshots) = (std::mem::take(&mut self.bitmaps), std::mem::take(&mut self.snapshots));
        for named in bitmaps.iter_mut().chain(&mut snapshots) {
            named.is_sound &= self.claim_table(named.table, named.users);
        }
        (self.bitmaps, self.snapshots) = (bitmaps, snapshots);
        // Whoever removes one of those that share a table frees it for the others.
        for snapshot in self.snapshots.iter().filter(|snapshot| snapshot.users > 1) {
            self.counts.flag(snapshot.table.offset_bytes >> self.header.cluster_bits, TWICE);
        }
    }

    /// The same, of what the tables of bitmaps name.
    pub(super) fn claim_bitmaps(&mut self) -> io::Result<()> {
        for NamedTable { table, users, .. } in self.bitmaps.clone().into_iter().filter(|bitmap| bitmap.is_sound) {
            if users > 1 {
                // Snapshots may share a table, which does not change. What one bitmap says would be said by the other.
                self.flag(table.offset_bytes, TWICE);
            }
            for offset_bytes in bitmaps::in_table(self.file, table) {
                let bits = Table { offset_bytes: offset_bytes?, length_bytes: self.header.cluster_bytes() };
                self.claim_table(bits, users);
            }
        }
        Ok(())
    }

    /// Whether the table may be looked into, as far as the window shows.
    fn claim_table(&mut self, table: Table, users: u64) -> bool {
        let Table { offset_bytes, length_bytes } = table;
        let reference = Reference { part: Part::L1Table, index: 0, entry: 0, offset_bytes, length_bytes };
        if !reference.is_aligned(self.header) {
            self.is_incomplete = true;
            self.corrupt_once(1, &format!("a table at {offset_bytes:#x} is not cluster aligned"));
            return false;
        }
        let is_sound = self.claim(&reference, METADATA, users);
        self.is_incomplete |= !is_sound;
        is_sound
    }

    /// Finds the L2 tables that lie in the file, each with how many use it.
    fn look_at_l1_tables(&mut self) -> io::Result<()> {
        let own = NamedTable::of(self.header.l1, 1);
        let snapshots = self.snapshots.clone().into_iter().filter(|snapshot| snapshot.is_sound);
        for (named, is_active) in once((own, true)).chain(snapshots.map(|snapshot| (snapshot, false))) {
            for reference in references::in_l1(self.file, self.header, named.table) {
                let reference = reference?;
                let leads_to_table = self.judge_l2_reference(&reference, named.users);
                if !reference.is_used() {
                    continue;
                }
                let cluster = reference.offset_bytes >> self.header.cluster_bits;
                if !leads_to_table {
                    self.is_incomplete = true;
                } else if cluster >= self.clusters {
                    self.is_incomplete = true;
                    self.leads_out(named.users, &reference);
                } else {
                    self.tables.add(cluster, named.users, is_active);
                }
            }
        }
        self.tables.put_together();
        Ok(())
    }

    /// Whether it leads to where a table may be.
    fn judge_l2_reference(&mut self, reference: &Reference, users: u64) -> bool {
        let Reference { entry, offset_bytes, .. } = *reference;
        if reference.has_reserved_bits() {
            self.corrupt_once(users, &format!("found L1 entry with reserved bits set: {entry:x}"));
        }
        if reference.is_used() && !reference.is_aligned(self.header) {
            let what = format!("l2_offset={offset_bytes:x}: Table is not cluster aligned; L1 entry corrupted");
            self.corrupt_once(users, &what);
        }
        reference.is_used() && reference.is_aligned(self.header)
    }

    /// Claims the L2 tables in the window. What of them clashes is not looked into.
    pub(super) fn claim_l2_tables(&mut self) {
        for table in self.tables.within(self.counts.window()) {
            let cluster = table.cluster();
            if !self.counts.claim(cluster..cluster + 1, METADATA, table.users()) {
                table.set_unsound();
                self.is_incomplete = true;
            }
            if table.is_twice_active() {
                self.counts.flag(cluster, TWICE);
            }
        }
    }
}
