//! The tables of a file of grains that is written to.
//!
//! Grains are put at the file's end, and stay where they are. A power cut keeps any part of what was not synced. So:
//!
//! - The file is long enough for a grain before anything leads there: it is made longer ahead, by [`RESERVED_BYTES`],
//!   and that is stable first. What lies there reads as zeros until it is written.
//! - An entry relies on its grain's contents where more than zeros was to be read before, or where the grain may hold
//!   something old: then all contents are stable before any entry is written.
//!
//! Entries are changed in memory and written for a batch of requests together. Where there are redundant tables, an
//! entry goes to these when it is stable in the first ones: a power cut leaves them behind, and never ahead. So what
//! else differs is damage, and refused ([`super::tables_check`]).

use super::SECTOR_BYTES;
use super::sparse::SparseMap;
use super::tables_check::{Checked, check};
use crate::formats::WritableFile;
use crate::formats::block_map::image_file::ImageFile;
use crate::formats::block_map::layer::Meaning;
use crate::formats::pending_check::CHECKED_AT_ONCE_BYTES;
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// By how much a file is made longer ahead.
const RESERVED_BYTES: u64 = 16 << 20;

/// Where in the header it is said that the file was not closed.
const UNCLEAN_AT: u64 = 72;

/// An entry of a grain of zeros.
const ZEROED: u32 = 1;

/// A file of grains whose check has yet to be made.
pub(in crate::formats::block_map) struct UncheckedTables {
    read: ImageFile,
    file: Arc<WritableFile>,
    map: SparseMap,
}

/// The tables, for the one thread that changes them.
pub(in crate::formats::block_map) struct GrainTables {
    read: ImageFile,
    file: Arc<WritableFile>,
    map: SparseMap,
    /// Entries that are not in the file yet, by grain.
    entries: BTreeMap<u64, u32>,
    /// They rely on contents that are not stable.
    needs_contents: bool,
    /// Where the next grain goes.
    next: u64,
    /// Up to here, the file is long enough though the power be cut.
    reserved: u64,
    /// A grain that could not be written, and may hold something.
    spare: Option<u64>,
    /// Tables whose redundant copies are behind them.
    behind: BTreeSet<u64>,
    /// All entries in the file are known to be stable.
    is_stable: bool,
    /// The file says that it is being changed.
    has_begun: bool,
}

impl UncheckedTables {
    /// `read` and `file` are of one file.
    pub(in crate::formats::block_map) fn new(read: ImageFile, file: Arc<WritableFile>, map: SparseMap) -> Self {
        Self { read, file, map }
    }

    /// Whether a check does not take long.
    pub(in crate::formats::block_map) fn is_small(&self) -> bool {
        self.map.all_tables_bytes() <= CHECKED_AT_ONCE_BYTES
    }

    /// Looks at all tables.
    ///
    /// # Errors
    /// A sentence, which goes on after the file's path, when something is wrong.
    pub(in crate::formats::block_map) fn check(self, is_over: &AtomicBool) -> Result<GrainTables, String> {
        let Self { read, file, map } = self;
        let Checked { next, behind } = check(&read, &map, is_over)?;
        Ok(GrainTables {
            read,
            file,
            map,
            entries: BTreeMap::new(),
            needs_contents: false,
            next,
            reserved: 0,
            spare: None,
            behind,
            is_stable: false,
            has_begun: false,
        })
    }
}

impl GrainTables {
    pub(in crate::formats::block_map) fn file(&self) -> &WritableFile {
        &self.file
    }

    /// What a grain is from now on, where that is not in the file yet.
    pub(in crate::formats::block_map) fn changed(&self, grain: u64) -> Option<Meaning> {
        let entry = *self.entries.get(&grain)?;
        Some(match entry {
            ZEROED => Meaning::Zeros,
            _ => Meaning::There { offset_bytes: u64::from(entry) * SECTOR_BYTES },
        })
    }

    /// The first grain behind one for which that is so.
    pub(in crate::formats::block_map) fn next_changed(&self, grain: u64) -> Option<u64> {
        self.entries.range(grain + 1..).next().map(|(&grain, _)| grain)
    }

    /// Says that the file is being changed.
    pub(in crate::formats::block_map) fn begin(&mut self) -> io::Result<()> {
        if !self.has_begun {
            self.file.write_stable(&[1], UNCLEAN_AT)?;
            self.has_begun = true;
        }
        Ok(())
    }

    /// The same of its end, if that was said.
    pub(in crate::formats::block_map) fn end(&mut self) -> io::Result<()> {
        if !self.has_begun {
            return Ok(());
        }
        self.barrier()?;
        if !self.behind.is_empty() {
            self.copy_tables()?;
            self.file.barrier()?;
        }
        self.cut()?;
        self.file.write(&[0], UNCLEAN_AT)?;
        self.file.sync()
    }

    /// Makes the file one without grains, once what it shows then is what it shows now. The redundant tables come
    /// first: a cut leaves them behind, and never ahead.
    pub(in crate::formats::block_map) fn empty(&mut self) -> io::Result<()> {
        self.begin()?;
        let nothing = vec![0; self.map.table_bytes() as usize];
        let directories: Vec<u64> = self.map.directories().collect();
        let mut end = self.map.own_end();
        for directory in directories.into_iter().rev() {
            for table in self.map.all_tables(&self.read, directory)?.into_iter().filter(|&table| table > 0) {
                self.file.write(&nothing, table)?;
                end = end.max(table + self.map.table_bytes());
            }
            self.barrier()?;
        }
        self.behind.clear();
        self.next = end.next_multiple_of(self.map.grain_bytes());
        self.end()
    }

    /// A place for a grain, and whether it reads as zeros until it is written, whatever of it is stable.
    pub(in crate::formats::block_map) fn allocate(&mut self) -> io::Result<(u64, bool)> {
        match self.spare.take() {
            Some(spare) => Ok((spare, false)),
            None => Ok((self.take(self.map.grain_bytes())?, true)),
        }
    }

    /// Cuts off what lies behind all that is in use: what was reserved, by us or who did not close the file.
    fn cut(&mut self) -> io::Result<()> {
        if self.file.length_bytes() > self.next { self.file.truncate(self.next) } else { Ok(()) }
    }

    /// Makes all that was written stable.
    fn barrier(&mut self) -> io::Result<()> {
        self.file.barrier()?;
        self.is_stable = true;
        Ok(())
    }

    /// Gives back what was allocated and could not be written.
    pub(in crate::formats::block_map) fn give_back(&mut self, place: u64) {
        self.spare = Some(place);
    }

    /// Takes as many bytes as whole grains have.
    fn take(&mut self, bytes: u64) -> io::Result<u64> {
        let start = self.next;
        let end = start.checked_add(bytes.next_multiple_of(self.map.grain_bytes())).ok_or(Errno::FBIG)?;
        if u32::try_from(end / SECTOR_BYTES).is_err() {
            return Err(Errno::FBIG.into());
        }
        if end > self.reserved {
            self.begin()?;
            if self.reserved == 0 {
                // What is used again is to be zeros.
                self.cut()?;
            }
            // Where there is no room for more, for this.
            let mut reserved = end.saturating_add(RESERVED_BYTES);
            if self.file.reach(reserved).is_err() {
                reserved = end;
                self.file.reach(end)?;
            }
            self.barrier()?;
            self.reserved = reserved;
        }
        self.next = end;
        Ok(start)
    }

    /// Says where a grain is from now on. `needs_contents`: what was written to the file before is to be stable first.
    pub(in crate::formats::block_map) fn set(&mut self, grain: u64, place: u64, needs_contents: bool) {
        // Places are bounded where they are taken.
        self.entries.insert(grain, (place / SECTOR_BYTES) as u32);
        self.needs_contents |= needs_contents;
    }

    /// Whether a grain can be zeros by its entry alone.
    pub(in crate::formats::block_map) fn can_be_zeroed(&self) -> bool {
        self.map.has_zeroed_grains()
    }

    /// Says that a grain is zeros from now on.
    pub(in crate::formats::block_map) fn set_zeroed(&mut self, grain: u64) {
        self.entries.insert(grain, ZEROED);
    }

    /// Makes stable what the changed entries rely on. For what comes before [`GrainTables::write_entries`].
    pub(in crate::formats::block_map) fn prepare(&mut self) -> io::Result<()> {
        if self.needs_contents {
            self.barrier()?;
            self.needs_contents = false;
        }
        let table_entries = self.map.table_entries();
        let mut last = None;
        let changed: Vec<u64> = self.entries.keys().map(|grain| grain / table_entries).collect();
        for number in changed {
            if last.replace(number) != Some(number) {
                self.make_tables(number)?;
            }
        }
        if self.is_stable {
            self.copy_what_is_stable();
        }
        Ok(())
    }

    /// Says that all that was written is stable.
    pub(in crate::formats::block_map) fn set_stable(&mut self) {
        self.is_stable = true;
        self.copy_what_is_stable();
    }

    /// What a redundant table lacks for now is no reason for a request to fail: [`GrainTables::end`] tries again.
    fn copy_what_is_stable(&mut self) {
        drop(self.copy_tables());
    }

    /// Writes the changed entries to the file. Which grains they are of.
    pub(in crate::formats::block_map) fn write_entries(&mut self) -> io::Result<Vec<u64>> {
        let table_entries = self.map.table_entries();
        let mut runs: Vec<(u64, Vec<u8>)> = Vec::new();
        let mut next = None;
        for (&grain, entry) in &self.entries {
            match runs.last_mut() {
                Some((_, bytes)) if next == Some(grain) && !grain.is_multiple_of(table_entries) => {
                    bytes.extend(entry.to_le_bytes());
                }
                _ => runs.push((grain, entry.to_le_bytes().to_vec())),
            }
            next = Some(grain + 1);
        }
        let (mut directories, has_copies) = (self.map.directories(), self.map.directories().count() > 1);
        let directory = directories.next().ok_or(Errno::IO)?;
        self.is_stable &= runs.is_empty();
        for (grain, bytes) in runs {
            let (number, within) = (grain / table_entries, grain % table_entries);
            let table = self.map.directory_entry(&self.read, directory, number)?;
            if has_copies {
                self.behind.insert(number);
            }
            self.file.write(&bytes, table.ok_or(Errno::IO)? + within * 4)?;
        }
        Ok(std::mem::take(&mut self.entries).into_keys().collect())
    }

    /// Sees to it that there are tables of a number.
    fn make_tables(&mut self, number: u64) -> io::Result<()> {
        let mut missing = Vec::new();
        for directory in self.map.directories() {
            if self.map.directory_entry(&self.read, directory, number)?.is_none() {
                missing.push(directory);
            }
        }
        if missing.is_empty() {
            return Ok(());
        }
        let table_bytes = self.map.table_bytes().next_multiple_of(SECTOR_BYTES);
        let start = self.take(table_bytes * missing.len() as u64)?;
        for (place, directory) in (start..).step_by(table_bytes as usize).zip(missing) {
            let entry = (place / SECTOR_BYTES) as u32;
            self.file.write(&entry.to_le_bytes(), directory + number * 4)?;
        }
        Ok(())
    }

    /// Makes the redundant tables what the first ones are, whose entries in the file are all stable.
    fn copy_tables(&mut self) -> io::Result<()> {
        while let Some(&number) = self.behind.first() {
            self.make_tables(number)?;
            self.copy_table(number)?;
            self.behind.remove(&number);
        }
        Ok(())
    }

    /// Makes the redundant table of a number what the other one is.
    fn copy_table(&mut self, number: u64) -> io::Result<()> {
        let mut tables = self.map.directories().map(|directory| {
            let table = self.map.directory_entry(&self.read, directory, number);
            table.transpose().unwrap_or(Err(Errno::IO.into()))
        });
        let (Some(first), Some(redundant)) = (tables.next().transpose()?, tables.next().transpose()?) else {
            return Ok(());
        };
        let mut bytes = vec![0; self.map.table_bytes() as usize];
        self.read.read(&mut bytes, first)?;
        self.file.write(&bytes, redundant)
    }
}
