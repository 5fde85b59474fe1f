//! Whether the compressed clusters of an image become whole ones.

use super::decompressor::Decompressor;
use super::entries::Compressed;
use super::header::Header;
use super::references::{self, Part, Reference};
use super::snapshots;
use super::table_users::UsedTables;
use crate::formats::WritableFile;
use crate::formats::readers::{GoesOn, Take, try_blocks};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::iter::once;

/// Tries all of them, the snapshots' too, each once as far as the last million are remembered; `say` hears of those
/// that do not, and returned is how many. So many `entries` are for them in tables, of which several may be for one.
/// What else is wrong with the tables is the census's to say.
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
        let (mut tables, mut tried) = (UsedTables::default(), LatelyTried::new());
        let is_there = |reference: &Reference| reference.is_used() && file.has(reference.offset_bytes, 1);
        let snapshots = snapshots::snapshots(file, header)?;
        for l1 in once(header.l1).chain(snapshots.tables) {
            for table in references::in_l1(file, header, l1) {
                let table = table?;
                if is_there(&table) && table.is_aligned(header) {
                    tables.add(table.offset_bytes >> header.cluster_bits, 1, false);
                }
            }
        }
        tables.put_together();
        for table in tables.all() {
            for reference in references::in_l2(file, header, table.cluster() << header.cluster_bits) {
                let reference = reference?;
                let Reference { part, offset_bytes, length_bytes, .. } = reference;
                if part == Part::Compressed && is_there(&reference) {
                    let is_new = tried.insert(offset_bytes);
                    take(is_new.then_some(Compressed { offset_bytes, length_bytes }))?;
                }
            }
        }
        Ok(())
    };
    try_blocks(unpack, find, (header.cluster_bytes(), entries.saturating_mul(header.cluster_bytes())), say, goes_on)
}

/// Some of the offsets that were tried: each has one place, which is the last one's that has it.
struct LatelyTried {
    places: Vec<u64>,
    hasher: RandomState,
}

/// How many: 8 MiB of them.
const PLACES_BITS: u32 = 20;

impl LatelyTried {
    fn new() -> Self {
        Self { places: vec![0; 1 << PLACES_BITS], hasher: RandomState::new() }
    }

    /// Whether it is not known to have been tried.
    fn insert(&mut self, offset: u64) -> bool {
        let place = self.hasher.hash_one(offset) >> (u64::BITS - PLACES_BITS);
        // Where there is nothing, there are zeros.
        let place = self.places.get_mut(place as usize);
        place.is_none_or(|place| std::mem::replace(place, offset.wrapping_add(1)) != offset.wrapping_add(1))
    }
}
