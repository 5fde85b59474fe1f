//! Whether the compressed clusters of an image become whole ones.

use super::decompressor::Decompressor;
use super::entries::Compressed;
use super::header::Header;
use super::references::{self, Part, Reference};
use super::snapshots;
use crate::formats::WritableFile;
use crate::formats::readers::{GoesOn, Take, try_blocks};
use std::collections::HashSet;
use std::io;
use std::iter::once;

/// Tries all of them, the snapshots' too, each once; `say` hears of those that do not, and returned is how many. So
/// many `entries` are for them in tables, of which several may be for one. What else is wrong with the tables is the
/// census's to say.
pub(super) fn try_compressed(
    file: &WritableFile,
    header: &Header,
    entries: u64,
    say: &mut dyn FnMut(&str),
    goes_on: GoesOn<'_>,
) -> io::Result<u64> {
    let cluster_bytes = header.cluster_bytes() as usize;
    let unpack = |compressed, (decompressor, cluster): &mut (Decompressor, Vec<u8>)| {
        cluster.resize(cluster_bytes, 0);
        decompressor.decompress(file, header.is_zstd(), compressed, cluster)
    };
    let find = |take: Take<'_, Compressed>| {
        // Tables may say the same again and again.
        let (mut seen, mut tried) = (HashSet::new(), HashSet::new());
        let is_there = |reference: &Reference| reference.is_used() && file.has(reference.offset_bytes, 1);
        let snapshots = snapshots::snapshots(file, header)?;
        for l1 in once(header.l1).chain(snapshots.tables) {
            for table in references::in_l1(file, header, l1) {
                let table = table?;
                if !is_there(&table) || !table.is_aligned(header) || !seen.insert(table.offset_bytes) {
                    continue;
                }
                for reference in references::in_l2(file, header, table.offset_bytes) {
                    let reference = reference?;
                    let Reference { part, offset_bytes, length_bytes, .. } = reference;
                    if part == Part::Compressed && is_there(&reference) {
                        let is_new = tried.insert(offset_bytes);
                        take(is_new.then_some(Compressed { offset_bytes, length_bytes }))?;
                    }
                }
            }
        }
        Ok(())
    };
    try_blocks(unpack, find, (header.cluster_bytes(), entries.saturating_mul(header.cluster_bytes())), say, goes_on)
}
