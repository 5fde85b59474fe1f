//! The check of a file of grains before it is written to: nothing that is in use lies in two places' way.

use super::SECTOR_BYTES;
use super::sparse::SparseMap;
use crate::formats::block_map::fields::lies_within;
use crate::formats::block_map::image_file::ImageFile;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

/// Most tables, of both sorts together: those of 16 TiB with the usual grains.
const TABLES_MAX: u64 = 1 << 20;

/// Most grains that a file has room for: 16 MiB of bits.
const PLACES_MAX: u64 = 1 << 27;

/// What is found out about a file that is in order.
pub(super) struct Checked {
    /// Where the next grain goes.
    pub(super) next: u64,
    /// Tables whose redundant copies differ, as a power cut leaves them.
    pub(super) outdated: Vec<u64>,
}

/// Looks at all tables. The error goes on after the file's path.
pub(super) fn check(file: &ImageFile, map: &SparseMap, is_over: &AtomicBool) -> Result<Checked, String> {
    if map.tables() * 2 > TABLES_MAX {
        return Err(format!("has {} grain tables, and with so many it is only read", map.tables()));
    }
    map.check_own()?;
    let failed = |error: io::Error| format!("cannot be read: {error}");
    let sets = map.directories().map(|directory| map.all_tables(file, directory)).collect::<io::Result<Vec<_>>>();
    let sets = sets.map_err(failed)?;
    let taken = Taken::of(map, file.length_bytes(), &sets)?;
    let mut places = Places::new(map, file.length_bytes())?;
    let mut outdated = Vec::new();
    let (first, redundant) = (sets.first().ok_or("has no tables")?, sets.get(1));
    let mut buffers = [vec![0; map.table_bytes() as usize], vec![0; map.table_bytes() as usize]];
    for (number, &table) in (0..).zip(first) {
        if is_over.load(Ordering::Acquire) {
            return Err("was closed".into());
        }
        if table == 0 {
            continue;
        }
        let [entries, copies] = &mut buffers;
        file.read(entries, table).map_err(failed)?;
        if let Some(&copy) = redundant.and_then(|redundant| redundant.get(number as usize)).filter(|&&copy| copy > 0) {
            file.read(copies, copy).map_err(failed)?;
            if entries != copies {
                outdated.push(number);
            }
        }
        for (grain, entry) in map.grains_of(number).zip(entries.chunks_exact(4)) {
            let entry = entry.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
            if entry == 0 || (entry == 1 && map.has_zeroed_grains()) {
                continue;
            }
            let start = u64::from(entry) * SECTOR_BYTES;
            let wrong = |why: &str| format!("is damaged: its grain {grain} lies at {start}, {why}");
            let used = map.grain_bytes().min(map.size_bytes().saturating_sub(grain * map.grain_bytes()));
            if !lies_within(start, used, file.length_bytes()) {
                return Err(wrong("which is behind its end"));
            }
            if map.is_over_own(start, map.grain_bytes()) || taken.has_any_of(start, map.grain_bytes()) {
                return Err(wrong("over its header or tables"));
            }
            places.take(start).map_err(|why| wrong(&why))?;
        }
    }
    Ok(Checked { next: places.next(file.length_bytes()), outdated })
}

/// Where tables lie.
struct Taken {
    starts: Vec<u64>,
    table_bytes: u64,
}

impl Taken {
    fn of(map: &SparseMap, length_bytes: u64, sets: &[Vec<u64>]) -> Result<Self, String> {
        let table_bytes = map.table_bytes();
        let mut starts: Vec<u64> = sets.iter().flatten().copied().filter(|&table| table > 0).collect();
        starts.sort_unstable();
        let far = starts.iter().find(|&&table| !lies_within(table, table_bytes, length_bytes));
        if let Some(table) = far.or_else(|| starts.iter().find(|&&table| map.is_over_own(table, table_bytes))) {
            return Err(format!("is damaged: a grain table cannot lie at {table}"));
        }
        let double = starts.windows(2).find(|pair| matches!(pair, [one, other] if other - one < table_bytes));
        match double.and_then(<[u64]>::last) {
            Some(table) => Err(format!("is damaged: two grain tables lie at {table}")),
            None => Ok(Self { starts, table_bytes }),
        }
    }

    fn has_any_of(&self, offset: u64, length: u64) -> bool {
        let next = self.starts.partition_point(|&table| table + self.table_bytes <= offset);
        self.starts.get(next).is_some_and(|&table| table < offset + length)
    }
}

/// Which grains' places are taken. All lie in one grid, so that a bit for each says it.
struct Places {
    grain_bytes: u64,
    /// Where in its grid's unit each begins.
    phase: Option<u64>,
    bits: Vec<u64>,
}

impl Places {
    fn new(map: &SparseMap, length_bytes: u64) -> Result<Self, String> {
        let (grain_bytes, phase) = (map.grain_bytes(), None);
        let places = length_bytes / grain_bytes + 1;
        if places > PLACES_MAX {
            return Err(format!("has room for {places} grains, and so large it is only read"));
        }
        Ok(Self { grain_bytes, phase, bits: vec![0; places.div_ceil(64) as usize] })
    }

    fn take(&mut self, start: u64) -> Result<(), String> {
        let phase = start % self.grain_bytes;
        if *self.phase.get_or_insert(phase) != phase {
            return Err("which is not a whole number of grains from others: such a file is only read".into());
        }
        let place = start / self.grain_bytes;
        let word = self.bits.get_mut((place / 64) as usize).ok_or("which is behind its end")?;
        let bit = 1 << (place % 64);
        if *word & bit != 0 {
            return Err("where another one lies".into());
        }
        *word |= bit;
        Ok(())
    }

    /// The first place behind all that is there.
    fn next(&self, length_bytes: u64) -> u64 {
        let phase = self.phase.unwrap_or(0);
        length_bytes.saturating_sub(phase).next_multiple_of(self.grain_bytes) + phase
    }
}
