//! The references that an image's tables make to parts of its file: QEMU's docs/interop/qcow2.txt, "Cluster mapping",
//! "Host cluster management", "Snapshots" and "Bitmaps".
//!
//! Who counts them decides what may be referred to twice, and what is wrong. What an entry says is decided here.

use super::encryption;
use super::entries::{COMPRESSED, COPIED, Compressed, L1_RESERVED, L2_RESERVED, Layout, OFFSET_MASK};
use super::header::{Header, Table};
use crate::formats::WritableFile;
use std::io;

/// What an entry refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Header,
    RefcountTable,
    Refblock,
    L1Table,
    L2Table,
    Data,
    /// A cluster of an external data file.
    External,
    Compressed,
}

/// A reference to a range of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reference {
    pub(super) part: Part,
    /// Of the entry, in its table.
    pub(super) index: usize,
    /// The entry itself; zero where the header refers.
    pub(super) entry: u64,
    pub(super) offset_bytes: u64,
    pub(super) length_bytes: u64,
}

impl Reference {
    /// Whether the entry says that what it refers to is its alone, and may be written in place.
    pub(super) fn is_copied(&self) -> bool {
        self.entry & COPIED != 0
    }

    /// Whether it leads anywhere in the image's own file.
    pub(super) fn is_used(&self) -> bool {
        self.part != Part::External && (self.offset_bytes != 0 || !matches!(self.part, Part::L2Table | Part::Data))
    }

    /// Whether it begins where it must.
    pub(super) fn is_aligned(&self, header: &Header) -> bool {
        self.part == Part::Compressed || self.offset_bytes.is_multiple_of(header.cluster_bytes())
    }

    /// Whether the entry has bits that mean nothing.
    pub(super) fn has_reserved_bits(&self) -> bool {
        let reserved = match self.part {
            Part::L2Table => L1_RESERVED,
            Part::Data => L2_RESERVED,
            _ => 0,
        };
        self.entry & reserved != 0
    }

    fn of_table(part: Part, table: Table) -> Self {
        Self { part, index: 0, entry: 0, offset_bytes: table.offset_bytes, length_bytes: table.length_bytes }
    }
}

/// What the header refers to, itself included.
pub(super) fn in_header(header: &Header) -> impl Iterator<Item = Reference> {
    let encryption = header.encryption_header.filter(|_| header.encryption == encryption::LUKS);
    let tables = [
        Reference::of_table(Part::Header, Table { offset_bytes: 0, length_bytes: header.cluster_bytes() }),
        Reference::of_table(Part::RefcountTable, header.refcounts),
        Reference::of_table(Part::L1Table, header.l1),
    ];
    tables.into_iter().chain(encryption.map(|table| Reference::of_table(Part::Header, table)))
}

/// The blocks of refcounts. Entries without one are left out.
pub(super) fn in_refcount_table(file: &WritableFile, header: &Header) -> impl Iterator<Item = io::Result<Reference>> {
    let length_bytes = header.cluster_bytes();
    let refblock =
        move |(index, entry)| Reference { part: Part::Refblock, index, entry, offset_bytes: entry, length_bytes };
    file.used_entries(header.refcounts).map(move |found| found.map(refblock))
}

/// The L2 tables that an L1 table refers to; also entries that refer to none, at offset 0, but say something.
pub(super) fn in_l1(file: &WritableFile, header: &Header, l1: Table) -> impl Iterator<Item = io::Result<Reference>> {
    let length_bytes = header.cluster_bytes();
    file.used_entries(l1).map(move |found| found.map(|(index, entry)| of_l1_entry(index, entry, length_bytes)))
}

/// What an entry of an L1 table refers to.
pub(super) fn of_l1_entry(index: usize, entry: u64, length_bytes: u64) -> Reference {
    Reference { part: Part::L2Table, index, entry, offset_bytes: entry & OFFSET_MASK, length_bytes }
}

/// The clusters that the L2 table at an offset refers to; also entries that refer to none, at offset 0, but have bits
/// that mean nothing.
pub(super) fn in_l2(file: &WritableFile, header: &Header, table: u64) -> impl Iterator<Item = io::Result<Reference>> {
    let layout = Layout::of(header);
    let words = file.used_entries(Table { offset_bytes: table, length_bytes: header.cluster_bytes() });
    words.filter_map(move |found| match found {
        Ok((index, _)) if !index.is_multiple_of(layout.entry_words()) => None,
        Ok((index, entry)) => of_l2_entry(index / layout.entry_words(), entry, layout).map(Ok),
        Err(error) => Some(Err(error)),
    })
}

/// What the first word of an entry of an L2 table refers to.
pub(super) fn of_l2_entry(index: usize, entry: u64, layout: Layout) -> Option<Reference> {
    if entry & COMPRESSED != 0 {
        let Compressed { offset_bytes, length_bytes } = layout.compressed(entry);
        return Some(Reference { part: Part::Compressed, index, entry, offset_bytes, length_bytes });
    }
    let offset_bytes = entry & OFFSET_MASK;
    let part = if layout.has_data_file { Part::External } else { Part::Data };
    let reference = Reference { part, index, entry, offset_bytes, length_bytes: layout.cluster_bytes() };
    // In a data file a cluster can lie at its beginning.
    let is_first = layout.has_data_file && reference.is_copied();
    (offset_bytes != 0 || is_first || reference.has_reserved_bits()).then_some(reference)
}
