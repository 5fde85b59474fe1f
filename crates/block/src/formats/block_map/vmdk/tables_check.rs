//! The check of a file of grains before it is written to: nothing that is in use lies in two places' way.

use super::SECTOR_BYTES;
use super::sparse::SparseMap;
use crate::formats::block_map::fields::lies_within;
use crate::formats::block_map::image_file::ImageFile;
use crate::formats::block_map::layer::SLICE_WORDS;
use std::collections::BTreeSet;
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
    /// Tables whose redundant copies are behind them, as a power cut leaves them.
    pub(super) behind: BTreeSet<u64>,
}

/// Lines about copies that differ, at most; all are counted.
const DIFFERENCES_SAID_MAX: u64 = 20;

/// What the redundant copy of a table is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Copy {
    Same,
    /// It lacks what was written last. An entry goes to the copy when it is stable in the table, so that a power cut
    /// leaves nothing else.
    Behind,
    /// One of the two is damaged, and nobody knows which.
    Other,
}

/// Of tables with entries of 32 bits.
fn compare(map: &SparseMap, entries: &[u8], copies: &[u8]) -> Copy {
    let number = |bytes: &[u8]| bytes.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
    let pairs = entries.chunks_exact(4).zip(copies.chunks_exact(4)).map(|(entry, copy)| (number(entry), number(copy)));
    pairs.filter(|(entry, copy)| entry != copy).fold(Copy::Same, |sum, (_, copy)| match copy {
        _ if sum == Copy::Other => Copy::Other,
        0 => Copy::Behind,
        1 if map.has_zeroed_grains() => Copy::Behind,
        _ => Copy::Other,
    })
}

/// Reads the table that a directory says lies at an offset. Where there is none, all its entries are 0.
fn read_table(file: &ImageFile, table: u64, entries: &mut [u8]) -> io::Result<()> {
    if table > 0 {
        return file.read(entries, table);
    }
    entries.fill(0);
    Ok(())
}

/// Compares all redundant tables with the first ones, as [`super::sparse::SparseMap`]'s `check_copies` says.
pub(super) fn compare_tables(file: &ImageFile, map: &SparseMap, say: &mut dyn FnMut(&str)) -> io::Result<u64> {
    let mut directories = map.directories();
    let (Some(first), Some(redundant)) = (directories.next(), directories.next()) else { return Ok(0) };
    let mut buffers = [vec![0; map.table_bytes() as usize], vec![0; map.table_bytes() as usize]];
    let (mut behind, mut others) = (0, 0);
    for start in (0..map.tables()).step_by(SLICE_WORDS) {
        let count = (map.tables() - start).min(SLICE_WORDS as u64) as usize;
        let mut sets = [[0; SLICE_WORDS]; 2];
        for (set, directory) in sets.iter_mut().zip([first, redundant]) {
            file.read_le32(&mut set[..count], directory + start * 4)?;
        }
        let [tables, copies] = &sets;
        for (number, (&table, &copy)) in (start..).zip(tables.iter().zip(copies)).take(count) {
            if (table, copy) == (0, 0) {
                continue;
            }
            let mut are_there = true;
            for (bytes, sector) in buffers.iter_mut().zip([table, copy]) {
                let is_there = lies_within(sector * SECTOR_BYTES, map.table_bytes(), file.length_bytes());
                read_table(file, if is_there { sector * SECTOR_BYTES } else { 0 }, bytes)?;
                are_there &= is_there;
            }
            let [entries, copied] = &buffers;
            match compare(map, entries, copied) {
                Copy::Same if are_there => {}
                Copy::Behind if are_there && map.is_unclean() => behind += 1,
                _ => {
                    others += 1;
                    if others <= DIFFERENCES_SAID_MAX {
                        say(&format!("ERROR the redundant grain table {number} is not what the first one is"));
                    }
                }
            }
        }
    }
    if others > DIFFERENCES_SAID_MAX {
        say(&format!("ERROR the same of {} more grain tables", others - DIFFERENCES_SAID_MAX));
    }
    if behind > 0 {
        say(&format!("NOTE {behind} redundant grain tables are behind: who writes to the file next sees to them"));
    }
    Ok(others)
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
    let mut behind = BTreeSet::new();
    let mut end = map.own_end().max(taken.end());
    let (first, redundant) = (sets.first().ok_or("has no tables")?, sets.get(1));
    let mut buffers = [vec![0; map.table_bytes() as usize], vec![0; map.table_bytes() as usize]];
    for (number, &table) in (0..).zip(first) {
        if is_over.load(Ordering::Acquire) {
            return Err("was closed".into());
        }
        let copy = redundant.map(|redundant| redundant.get(number as usize).map_or(0, |&copy| copy));
        if table == 0 && copy.unwrap_or(0) == 0 {
            continue;
        }
        let [entries, copies] = &mut buffers;
        read_table(file, table, entries).map_err(failed)?;
        if let Some(copy) = copy {
            read_table(file, copy, copies).map_err(failed)?;
            match compare(map, entries, copies) {
                Copy::Same => {}
                Copy::Behind if map.is_unclean() => _ = behind.insert(number),
                Copy::Behind | Copy::Other => {
                    return Err(format!("is damaged: its redundant grain table {number} is not what the first one is"));
                }
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
            end = end.max(start + map.grain_bytes());
        }
    }
    // What lies behind all that is in use, whoever did not close the file left there.
    let end = if map.is_unclean() { end.min(file.length_bytes()) } else { file.length_bytes() };
    Ok(Checked { next: places.next(end), behind })
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

    fn end(&self) -> u64 {
        self.starts.last().map_or(0, |table| table + self.table_bytes)
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

    /// The first place behind an end.
    fn next(&self, end: u64) -> u64 {
        let phase = self.phase.unwrap_or(0);
        end.saturating_sub(phase).next_multiple_of(self.grain_bytes) + phase
    }
}
