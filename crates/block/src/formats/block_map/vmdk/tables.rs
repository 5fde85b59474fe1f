//! The tables of a file of grains that is written to.
//!
//! Grains are put at the file's end, and stay where they are. A power cut keeps any part of what was not synced. So:
//!
//! - The file is long enough for a grain before anything leads there: it is made longer ahead, by [`RESERVED_BYTES`],
//!   and that is stable first. What lies there reads as zeros until it is written.
//! - An entry relies on its grain's contents where more than zeros was to be read before, or where the grain may hold
//!   something old: then all contents are stable before any entry is written.
//!
//! Entries are changed in memory and written for a batch of requests together, to both tables where there are two.

use super::SECTOR_BYTES;
use super::sparse::SparseMap;
use super::tables_check::{Checked, check};
use crate::formats::WritableFile;
use crate::formats::block_map::image_file::ImageFile;
use crate::formats::block_map::layer::Meaning;
use crate::formats::pending_check::CHECKED_AT_ONCE_BYTES;
use rustix::io::Errno;
use std::collections::BTreeMap;
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
    /// Tables whose redundant copies are not what they are.
    outdated: Vec<u64>,
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
        let Checked { next, outdated } = check(&read, &map, is_over)?;
        let (entries, needs_contents, spare) = (BTreeMap::new(), false, None);
        Ok(GrainTables { read, file, map, entries, needs_contents, next, reserved: 0, spare, outdated })
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
        self.file.write_stable(&[1], UNCLEAN_AT)?;
        for number in std::mem::take(&mut self.outdated) {
            self.copy_table(number)?;
        }
        Ok(())
    }

    /// The same of its end: all that was changed is stable.
    pub(in crate::formats::block_map) fn end(&mut self) -> io::Result<()> {
        if self.reserved > self.next {
            self.file.truncate(self.next)?;
        }
        self.file.write(&[0], UNCLEAN_AT)?;
        self.file.sync()
    }

    /// A place for a grain, and whether it reads as zeros until it is written, whatever of it is stable.
    pub(in crate::formats::block_map) fn allocate(&mut self) -> io::Result<(u64, bool)> {
        match self.spare.take() {
            Some(spare) => Ok((spare, false)),
            None => Ok((self.take(self.map.grain_bytes())?, true)),
        }
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
            // Where there is no room for more, for this.
            let mut reserved = end.saturating_add(RESERVED_BYTES);
            if self.file.reach(reserved).is_err() {
                reserved = end;
                self.file.reach(end)?;
            }
            self.file.barrier()?;
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
            self.file.barrier()?;
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
        Ok(())
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
        for (grain, bytes) in runs {
            for directory in self.map.directories() {
                let (number, within) = (grain / table_entries, grain % table_entries);
                let table = self.map.directory_entry(&self.read, directory, number)?;
                self.file.write(&bytes, table.ok_or(Errno::IO)? + within * 4)?;
            }
        }
        Ok(std::mem::take(&mut self.entries).into_keys().collect())
    }

    /// Sees to it that there are tables of a number.
    fn make_tables(&mut self, number: u64) -> io::Result<()> {
        let directories: Vec<u64> = self.map.directories().collect();
        let tables = directories.iter().map(|&directory| self.map.directory_entry(&self.read, directory, number));
        let tables = tables.collect::<io::Result<Vec<_>>>()?;
        if tables.iter().all(Option::is_some) {
            return Ok(());
        }
        let table_bytes = self.map.table_bytes().next_multiple_of(SECTOR_BYTES);
        let start = self.take(table_bytes * directories.len() as u64)?;
        // Where the first one is there, it stays, and another one is to be as it is.
        let kept = usize::from(matches!(tables.first(), Some(Some(_))));
        for (place, directory) in (start..).step_by(table_bytes as usize).zip(directories).skip(kept) {
            let entry = (place / SECTOR_BYTES) as u32;
            self.file.write(&entry.to_le_bytes(), directory + number * 4)?;
        }
        if kept > 0 { self.copy_table(number) } else { Ok(()) }
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
