//! Whether what the disk has in a data file can be read there.

use super::Census;
use crate::formats::qcow2::entries::{Entry, Layout};
use crate::formats::qcow2::references::{self, Part, Reference};
use std::io;

impl Census<'_> {
    /// Judges whether what the disk has in a data file lies there where it does on the disk, which is how it is read,
    /// and before the file's end.
    pub(super) fn judge_places(&mut self) -> io::Result<()> {
        if self.header.data_file.is_none() {
            return Ok(());
        }
        for table in references::in_l1(self.file, self.header, self.header.l1) {
            let table = table?;
            let cluster = table.offset_bytes >> self.header.cluster_bits;
            // Each for the first part of the disk that it is for.
            if !table.is_used() || !table.is_aligned(self.header) || !self.tables.is_first_time(cluster) {
                continue;
            }
            for reference in references::in_l2(self.file, self.header, table.offset_bytes) {
                self.judge_place(&reference?, &table)?;
            }
        }
        Ok(())
    }

    fn judge_place(&mut self, reference: &Reference, table: &Reference) -> io::Result<()> {
        let Reference { part, index, entry, offset_bytes, .. } = *reference;
        if part != Part::External {
            return Ok(());
        }
        let layout = Layout::of(self.header);
        let disk_offset = ((table.index as u64) << layout.table_bits() | index as u64) << layout.cluster_bits;
        let what = format!("l2_entry={entry:x}: the cluster at {disk_offset:#x} of the disk");
        if offset_bytes != disk_offset && (offset_bytes != 0 || reference.is_copied()) {
            self.corrupt(&format!("{what} lies at {offset_bytes:#x} of the data file, the place of another"));
        } else if self.is_missing_data(reference, table.offset_bytes)? {
            self.report.missing += 1;
            self.corrupt(&format!("{what} lies behind the end of the data file"));
        }
        Ok(())
    }

    /// Whether an entry of the L2 table at an offset says that there are data behind the end of the data file.
    pub(super) fn is_missing_data(&self, reference: &Reference, table: u64) -> io::Result<bool> {
        let Reference { part, index, entry, offset_bytes, .. } = *reference;
        if part != Part::External || self.data_end_bytes.is_none_or(|end_bytes| offset_bytes < end_bytes) {
            return Ok(false);
        }
        let layout = Layout::of(self.header);
        let parts = if layout.is_extended { self.parts_of(table, index)? } else { 0 };
        Ok(matches!(layout.entry(entry, parts), Entry::Plain(mapping) if mapping.data != 0))
    }

    /// The second word of an extended entry.
    pub(super) fn parts_of(&self, table: u64, index: usize) -> io::Result<u64> {
        let mut parts = [0; 8];
        self.file.read(&mut parts, table + index as u64 * Layout::of(self.header).entry_bytes() + 8)?;
        Ok(u64::from_be_bytes(parts))
    }
}
