//! What begins behind the end of an image's file, or of its data file, becomes zeros: nobody can read it.
//!
//! A power cut of the host leaves images so whose writer had the entries reach the disk before the data. An entry is
//! changed by one write of its own, so a cut leaves each as it was or as zeros, and nothing else is touched.

use super::{Census, NamedTable};
use crate::formats::qcow2::decompressor::Decompressor;
use crate::formats::qcow2::encryption;
use crate::formats::qcow2::entries::{Compressed, Layout, ZERO};
use crate::formats::qcow2::header::Table;
use crate::formats::qcow2::references::{self, Part, Reference};
use std::io;
use std::ops::Range;

/// What became zeros.
#[derive(Debug, Default)]
pub(in crate::formats::qcow2) struct Zeroed {
    /// Entries that say so now.
    pub(in crate::formats::qcow2) entries: u64,
    /// Those that will be right when the data file ends where the disk does.
    pub(in crate::formats::qcow2) external_entries: u64,
    /// Bytes that were said to be data, of the disk and of snapshots.
    pub(in crate::formats::qcow2) bytes: u64,
    /// A range of the disk that has yet to be told.
    range: Range<u64>,
}

impl Census<'_> {
    /// Makes zeros of what the tables that were counted lead to, all or the rest of which is missing. Of an image that
    /// cannot say that, entries stay: over a backing file, in one of version 2, and for a whole L2 table, which is also
    /// left where a data file may well have what the table was for. So does what is in a table that is something else,
    /// too.
    pub(in crate::formats::qcow2) fn zero_missing(&mut self) -> io::Result<Zeroed> {
        let mut zeroed = Zeroed::default();
        self.tables.forget_seen();
        let covers_bits = Layout::of(self.header).table_covers_bits();
        for table in references::in_l1(self.file, self.header, self.header.l1) {
            let table = table?;
            let start = (table.index as u64) << covers_bits;
            let cluster = table.offset_bytes >> self.header.cluster_bits;
            if self.is_missing(&table) {
                self.zero_l1_entry(self.header.l1, &table, Some(start), &mut zeroed)?;
            } else if table.is_used() && table.is_aligned(self.header) && self.tables.is_first_time(cluster) {
                self.zero_l2_entries(table.offset_bytes, Some(start), &mut zeroed)?;
            }
        }
        self.tell_range(&mut zeroed);
        let is_table_alone = |snapshot: &NamedTable| snapshot.is_sound && !snapshot.holds_more;
        for snapshot in self.snapshots.clone().into_iter().filter(is_table_alone) {
            for table in references::in_l1(self.file, self.header, snapshot.table) {
                let table = table?;
                if self.is_missing(&table) {
                    self.zero_l1_entry(snapshot.table, &table, None, &mut zeroed)?;
                }
            }
        }
        for index in 0..self.tables.all().len() {
            let Some(&table) = self.tables.all().get(index) else { break };
            if self.tables.is_first_time(table.cluster()) {
                self.zero_l2_entries(table.cluster() << self.header.cluster_bits, None, &mut zeroed)?;
            }
        }
        Ok(zeroed)
    }

    /// Whether an entry leads behind the end of the image's own file, as is counted.
    fn is_missing(&self, reference: &Reference) -> bool {
        let Reference { part, offset_bytes, length_bytes, .. } = *reference;
        let (first, end) = (offset_bytes, offset_bytes.saturating_add(length_bytes - 1));
        let [first, last] = [first, end].map(|at| at >> self.header.cluster_bits);
        let is_cut_off = matches!(part, Part::L2Table | Part::Data | Part::Compressed)
            && reference.is_used()
            && reference.is_aligned(self.header)
            && last >= self.clusters;
        is_cut_off && (part != Part::Compressed || first >= self.clusters || !self.can_decompress(reference))
    }

    /// Whether a compressed cluster is whole: it may be shorter than its entry says.
    fn can_decompress(&self, reference: &Reference) -> bool {
        let Reference { offset_bytes, length_bytes, .. } = *reference;
        let mut cluster = vec![0; self.header.cluster_bytes() as usize];
        let place = Compressed { offset_bytes, length_bytes };
        Decompressor::default().decompress(self.file, self.header.is_zstd(), place, &mut cluster).is_ok()
    }

    /// Of a missing L2 table, which is for the disk from `start` on, or for snapshots.
    fn zero_l1_entry(
        &mut self,
        l1: Table,
        table: &Reference,
        start: Option<u64>,
        zeroed: &mut Zeroed,
    ) -> io::Result<()> {
        if self.header.backing.is_some() || self.header.data_file.is_some() || self.holds_more(l1.offset_bytes) {
            return Ok(());
        }
        self.file.write(&[0; 8], l1.offset_bytes + table.index as u64 * 8)?;
        zeroed.entries += 1;
        self.lose(table.offset_bytes, start, 1 << Layout::of(self.header).table_covers_bits(), zeroed);
        Ok(())
    }

    /// Of the L2 table at an offset, which is for the disk from `start` on, or for snapshots.
    fn zero_l2_entries(&mut self, table: u64, start: Option<u64>, zeroed: &mut Zeroed) -> io::Result<()> {
        let layout = Layout::of(self.header);
        if self.header.version < 3 && self.header.backing.is_some() || self.holds_more(table) {
            return Ok(());
        }
        for reference in references::in_l2(self.file, self.header, table) {
            let reference = reference?;
            let Reference { part, index, offset_bytes, .. } = reference;
            let at = start.map(|start| start + ((index as u64) << layout.cluster_bits));
            let is_external = at == Some(offset_bytes) && self.is_missing_data(&reference, table)?;
            if is_external && self.header.encryption == encryption::NONE {
                zeroed.external_entries += 1;
                self.lose(offset_bytes, at, layout.cluster_bytes(), zeroed);
            } else if is_external || self.is_missing(&reference) {
                let (words, were_data) = self.zeros_for(&reference, table)?;
                let entry = words.map(u64::to_be_bytes).concat();
                let at_bytes = table + index as u64 * layout.entry_bytes();
                self.file.write(&entry[..layout.entry_bytes() as usize], at_bytes)?;
                zeroed.entries += 1;
                if were_data || part == Part::Compressed {
                    self.lose(offset_bytes, at, layout.cluster_bytes(), zeroed);
                }
            }
        }
        Ok(())
    }

    /// The entry that says zeros instead, and whether there were data. Parts that are neither go on showing what is
    /// behind the image. A cluster of a data file keeps its place.
    fn zeros_for(&self, reference: &Reference, table: u64) -> io::Result<([u64; 2], bool)> {
        let Reference { part, index, entry, .. } = *reference;
        let place = if part == Part::External { entry & !ZERO } else { 0 };
        if !Layout::of(self.header).is_extended {
            let zeros = if self.header.version >= 3 { ZERO } else { 0 };
            return Ok(([place | zeros, 0], entry & ZERO == 0));
        }
        let parts = if part == Part::Compressed { u64::from(u32::MAX) } else { self.parts_of(table, index)? };
        let data = parts & u64::from(u32::MAX);
        Ok(([place, data << 32 | parts & !u64::from(u32::MAX)], data != 0))
    }

    /// Notes that so many bytes are lost: at `at` of the disk, or of snapshots. They would lie at that offset of the
    /// file.
    fn lose(&mut self, offset_bytes: u64, at: Option<u64>, length_bytes: u64, zeroed: &mut Zeroed) {
        let Some(start) = at else {
            zeroed.bytes = zeroed.bytes.saturating_add(length_bytes);
            let what = format!("{length_bytes} bytes of snapshots, at {offset_bytes:#x} behind the end of the file");
            (self.tell)(&format!("Repairing {what}: they are zeros now"));
            return;
        };
        let end = start.saturating_add(length_bytes).min(self.header.size_bytes);
        if start >= end {
            return;
        }
        zeroed.bytes += end - start;
        if zeroed.range.end != start {
            self.tell_range(zeroed);
            zeroed.range.start = start;
        }
        zeroed.range.end = end;
    }

    fn tell_range(&mut self, zeroed: &mut Zeroed) {
        let Range { start, end } = std::mem::take(&mut zeroed.range);
        if start < end {
            let file = if self.header.data_file.is_some() { "data file" } else { "file" };
            let what = format!("{} bytes at {start:#x} of the disk, behind the end of the {file}", end - start);
            (self.tell)(&format!("Repairing {what}: they are zeros now"));
        }
    }
}
