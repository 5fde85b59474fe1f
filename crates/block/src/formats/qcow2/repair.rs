//! Checking an image as a whole, and putting right what can be.
//!
//! Each step is safe by itself, so that a crash leaves an image that is no worse: a cluster that nothing refers to is
//! freed; a refcount grows to what there is; an entry says what the refcount is. Refcounts that have no place, or a bad
//! one, are written anew behind the file's end, made stable, and then put in force by one write of the header. While
//! entries lead to copies ([`copies`]) that have no refcount yet, the image is marked corrupt. What begins behind the
//! file's end stays, unless it is to become zeros. That nobody else uses the image is the caller's to know.

use super::census::{Census, Tell, Windows, Zeroed};
use super::copies::{self, Stop};
use super::header::{
    Header, INCOMPATIBLE_AT, INCOMPATIBLE_CORRUPT, INCOMPATIBLE_MARKS, REFCOUNTS_AT, Table, read_first_cluster,
};
use super::new_refcounts::NewRefcounts;
use super::own_file;
use super::packed_check::try_compressed;
use super::references;
use crate::formats::{AllowedDirectories, CheckReport, ImageError, Repair, WritableFile};
use crate::{FileDisk, FileOptions, OpenedFile};
use std::io;
use std::num::NonZeroU64;
use std::path::PathBuf;

/// Most bytes of a table of refcounts that QEMU opens.
const REFCOUNT_TABLE_MAX_BYTES: u64 = 8 << 20;

/// A qcow2 image that is to be checked, and may be damaged. Its backing and data files are left alone.
#[derive(Debug)]
pub struct Qcow2Check {
    path: PathBuf,
    pub(super) file: WritableFile,
    header: Header,
    /// The file that has its data, if that is another one, and was opened.
    data_file: Option<WritableFile>,
    windows: Windows,
    /// A repair makes zeros of what is missing.
    salvages: bool,
    /// Entries for compressed clusters that the last count of its tables has seen.
    compressed_entries: u64,
}

impl Qcow2Check {
    /// Of an image that is open, and locked if nobody else is to write to it meanwhile; `is_writable`: for writing too,
    /// so that it can be repaired.
    ///
    /// # Errors
    /// When its header cannot be read or understood.
    pub fn open(image: &OpenedFile, is_writable: bool) -> Result<Self, ImageError> {
        let failed = |source| ImageError::System { action: "read", path: image.path().to_owned(), source };
        Self::of(image.path().to_owned(), own_file::opened(image.file(), is_writable).map_err(failed)?)
    }

    /// Of an image that is open.
    pub(super) fn of(path: PathBuf, file: WritableFile) -> Result<Self, ImageError> {
        let first = read_first_cluster(|length| {
            let mut first = vec![0; file.length_bytes().min(length) as usize];
            file.read(&mut first, 0)?;
            Ok(first)
        });
        let first = first.map_err(|source| ImageError::System { action: "read", path: path.clone(), source })?;
        let header = Header::parse_to_check(&first, file.length_bytes());
        let header = header.map_err(|problem| ImageError::Unusable { path: path.clone(), problem })?;
        Ok(Self {
            path,
            file,
            header,
            data_file: None,
            windows: Windows::default(),
            salvages: false,
            compressed_entries: 0,
        })
    }

    /// Opens the file that has the image's data, if that is another one: what its end cuts off is found then.
    /// `is_writable`: to make it longer, too. It is locked if the options say so.
    ///
    /// # Errors
    /// When it is not allowed, or cannot be opened.
    pub fn open_data_file(
        &mut self,
        allowed: &AllowedDirectories,
        is_writable: bool,
        options: &FileOptions,
    ) -> Result<(), ImageError> {
        let Some(name) = &self.header.data_file else { return Ok(()) };
        let found = allowed.find(&self.path, name)?;
        let path = found.path().to_owned();
        let (file, path) = found.open(is_writable, options.lock.then_some(&path))?;
        let failed = |source| ImageError::System { action: "open", path: path.clone(), source };
        if !is_writable {
            FileDisk::lock(&file, &path, &FileOptions { read_only: true, ..*options })?;
        }
        self.data_file = Some(own_file::opened(&file, is_writable).map_err(failed)?);
        Ok(())
    }

    /// Looks at so many clusters of the file at a time, and goes through all tables for each of these windows: at as
    /// many as there is memory for, if nobody says otherwise. What is found is the same.
    pub fn set_window(&mut self, clusters: NonZeroU64) {
        self.windows = Windows { memory_bytes: 0, clusters_min: clusters.get() };
    }

    /// From now on, a repair of all makes zeros of what begins behind the end of the file, or of the data file: it says
    /// which parts of the disk these are, and what else can be read stays.
    pub fn salvage(&mut self) {
        self.salvages = true;
    }

    /// Cuts off what lies behind all that is in use.
    pub(in crate::formats) fn truncate(&self, length_bytes: u64) -> io::Result<()> {
        self.file.truncate(length_bytes)
    }

    /// Checks its tables, after repairing what `repair` allows, which is on stable storage then. `tell` hears of each
    /// thing that is wrong, in a line.
    ///
    /// # Errors
    /// When the image cannot be read or written.
    pub fn run(&mut self, repair: Repair, tell: &mut dyn FnMut(&str)) -> Result<CheckReport, ImageError> {
        let marks = self.header.incompatible & INCOMPATIBLE_MARKS;
        let zeroed = if repair == Repair::All && self.salvages { self.zero_missing(tell)? } else { Zeroed::default() };
        let (repair, rebuilt) = self.with_refcount_table(repair, tell)?;
        let mut fixed = self.repair(repair, true, tell)?;
        fixed.corruptions += rebuilt + zeroed.entries + zeroed.external_entries;
        let mut report = self.finish(repair, &fixed, tell)?;
        report.zeroed_bytes = zeroed.bytes;
        // What else is wrong is as it was; but whoever finds no refcount of a copy gives it out again.
        if report.corruptions > 0 && fixed.copied > 0 && !self.count(Repair::None, &mut |_| ())?.lacks_refcounts {
            self.set_marks(marks).map_err(|error| self.failed("write to", error))?;
        }
        Ok(report)
    }

    /// The same, and a cluster that has two uses keeps them: for who does not ask what becomes of them.
    pub(super) fn run_without_copies(&mut self, repair: Repair, tell: Tell<'_>) -> Result<CheckReport, ImageError> {
        let (repair, rebuilt) = self.with_refcount_table(repair, tell)?;
        let mut fixed = self.repair(repair, false, tell)?;
        fixed.corruptions += rebuilt;
        self.finish(repair, &fixed, tell)
    }

    /// Counts what there is after a repair that has fixed something, and says that it is in order, if it is.
    fn finish(&mut self, repair: Repair, fixed: &Fixed, tell: Tell<'_>) -> Result<CheckReport, ImageError> {
        let Counted { mut report, compressed_entries, .. } = self.count(Repair::None, tell)?;
        self.compressed_entries = compressed_entries;
        // What does not decompress is damage, too, and the mark keeps others from writing to it.
        let is_whole = || {
            !self.header.is_corrupt() || self.try_compressed(&mut |_| (), &mut |_, _| true).is_ok_and(|bad| bad == 0)
        };
        if repair == Repair::All && report.corruptions == 0 && is_whole() {
            self.set_marks(0).map_err(|error| self.failed("write to", error))?;
        }
        report.corruptions_fixed = fixed.corruptions + fixed.copied;
        report.leaks_fixed = fixed.leaks;
        Ok(report)
    }

    /// Whether its compressed clusters become whole ones, all of which are decompressed: how many do not, of which
    /// `tell` hears. Only of an image whose tables [`Qcow2Check::run`] has found in order; else clusters need not be
    /// what they say. `goes_on` hears how many bytes are tried, of how many, and says whether to go on.
    ///
    /// # Errors
    /// When the image cannot be read, or it was told not to go on.
    pub fn try_compressed(
        &self,
        tell: &mut dyn FnMut(&str),
        goes_on: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<u64, ImageError> {
        if self.compressed_entries == 0 {
            return Ok(0);
        }
        try_compressed(&self.file, &self.header, self.compressed_entries, tell, goes_on)
            .map_err(|error| self.failed("check", error))
    }

    /// What of a repair can be done, as refcounts are nowhere outside of the file, or no longer, which is told; and how
    /// many corruptions that was. Else nothing is: what the rest of the file says of them is not known.
    fn with_refcount_table(&mut self, repair: Repair, tell: Tell<'_>) -> Result<(Repair, u64), ImageError> {
        match repair {
            _ if self.header.has_refcount_table_in(self.file.length_bytes()) => Ok((repair, 0)),
            Repair::All if self.rebuild_refcounts(tell)? => Ok((repair, 1)),
            _ => Ok((Repair::None, 0)),
        }
    }

    /// Repairs what it may; `makes_copies`: all, with copies of what the disk uses twice.
    fn repair(&mut self, repair: Repair, makes_copies: bool, tell: Tell<'_>) -> Result<Fixed, ImageError> {
        let mut fixed = Fixed::default();
        if repair == Repair::None {
            return Ok(fixed);
        }
        let makes_copies = makes_copies && repair == Repair::All;
        let mut made = if makes_copies { self.make_copies(tell)? } else { Ok(0) };
        fixed.copied = *made.as_ref().unwrap_or(&0);
        let first = self.count(repair, &mut only_repairs(tell))?;
        (fixed.corruptions, fixed.leaks) = (first.report.corruptions_fixed, first.report.leaks_fixed);
        let mends_marks = match repair {
            Repair::All if first.lacks_refcounts => {
                let is_rebuilt = self.rebuild_refcounts(tell)?;
                fixed.corruptions += u64::from(is_rebuilt);
                // The old ones may have been in the way of copies, which the new ones do not count.
                if is_rebuilt && makes_copies {
                    made = self.make_copies(tell)?;
                    if let Ok(more @ 1..) = made {
                        fixed.copied += more;
                        self.count(repair, &mut |_| ())?;
                    }
                }
                is_rebuilt
            }
            Repair::All => true,
            // Of what has one use alone from now on.
            _ => fixed.corruptions == 0 && fixed.leaks > 0,
        };
        match made {
            Ok(_) => (),
            Err(Stop::TooMany) => tell(
                "clusters have so many uses that copies for all would take more room than the image has: convert it",
            ),
            Err(_) => tell(
                "clusters that have two uses get no copies, as something leads behind the end of the file, where these \
                 would be, or cannot be looked into: convert it",
            ),
        }
        if mends_marks {
            // A mark that says more than its refcount is worse than none.
            self.file.barrier().map_err(|error| self.failed("repair", error))?;
            let mut tell_repairs = only_repairs(tell);
            let mut census = self.census(repair, &mut tell_repairs)?;
            census.mends_marks = true;
            census.take().map_err(|error| self.failed("repair", error))?;
            fixed.corruptions += census.report.corruptions_fixed;
        }
        self.file.sync().map_err(|error| self.failed("repair", error))?;
        Ok(fixed)
    }

    fn census<'a>(&'a self, repair: Repair, tell: Tell<'a>) -> Result<Census<'a>, ImageError> {
        let census = Census::new(&self.file, &self.header, repair, self.windows, tell)
            .map_err(|problem| ImageError::Unusable { path: self.path.clone(), problem })?;
        Ok(match &self.data_file {
            Some(data_file) => census.with_data_file(data_file.length_bytes()),
            None => census,
        })
    }

    /// Makes zeros of what is missing, which is stable then.
    fn zero_missing(&self, tell: Tell<'_>) -> Result<Zeroed, ImageError> {
        let failed = |error| self.failed("make zeros of what is missing of", error);
        let zeroed = {
            let mut tell_repairs = only_repairs(tell);
            let mut census = self.census(Repair::None, &mut tell_repairs)?;
            census.take().map_err(failed)?;
            census.zero_missing().map_err(failed)?
        };
        if let Some(data_file) = self.data_file.as_ref().filter(|_| zeroed.external_entries > 0) {
            data_file.extend(self.header.size_bytes).and_then(|()| data_file.sync()).map_err(failed)?;
        }
        self.file.sync().map_err(failed)?;
        if zeroed.bytes > 0 && self.header.bitmaps.is_some_and(|bitmaps| bitmaps.bitmaps > 0) {
            tell("bitmaps do not say what became zeros: make the next backup a full one");
        }
        Ok(zeroed)
    }

    fn count(&self, repair: Repair, tell: Tell<'_>) -> Result<Counted, ImageError> {
        let mut census = self.census(repair, tell)?;
        census.take().map_err(|error| self.failed("check", error))?;
        let Census { report, lacks_refcounts, compressed_entries, .. } = census;
        Ok(Counted { report, lacks_refcounts, compressed_entries })
    }

    /// Writes refcounts anew, in force; false as [`Qcow2Check::write_refcounts`] has none. Either is told.
    fn rebuild_refcounts(&mut self, tell: Tell<'_>) -> Result<bool, ImageError> {
        let table = match self.write_refcounts(self.header.refcount_order)? {
            Ok(table) => table,
            Err(in_the_way) => {
                let (why, first) = match in_the_way {
                    InTheWay::Unknown => ("there are tables that cannot be looked into", ""),
                    InTheWay::Missing if self.salvages => ("something leads to where these would be", ""),
                    InTheWay::Missing => ("something leads to where these would be", "salvage it, or "),
                };
                tell(&format!("refcounts are not written anew, as {why}: {first}convert what can be read"));
                return Ok(false);
            }
        };
        let failed = |error| self.failed("write new refcounts to", error);
        self.file.write_header(&table_fields(table, self.header.cluster_bits), REFCOUNTS_AT).map_err(failed)?;
        self.header.refcounts = table;
        tell("Repairing refcounts: they have been written anew");
        Ok(true)
    }

    /// Writes refcounts of 2^order bits anew behind the file's end, on stable storage: where nothing leads to them yet.
    /// Those that there are are not in use by them.
    ///
    /// # Errors
    /// When they cannot be written, or are too narrow; then the file is as it was.
    pub(super) fn write_refcounts(&self, order: u32) -> Result<Result<Table, InTheWay>, ImageError> {
        let failed = |error| self.failed("write new refcounts to", error);
        let mut ignore = |_: &str| ();
        let mut census = self.census(Repair::None, &mut ignore)?;
        census.count_without_refcounts().map_err(failed)?;
        if census.is_incomplete {
            return Ok(Err(InTheWay::Unknown));
        }
        let cluster_bits = self.header.cluster_bits;
        let end = self.end_of_used(&mut census).map_err(failed)?;
        let new = NewRefcounts::of(end, cluster_bits, order, Vec::new());
        if census.leads_out_at.is_some_and(|at| at < new.end_cluster() << cluster_bits) {
            return Ok(Err(InTheWay::Missing));
        }
        let length_bytes = u64::from(new.table_clusters()) << cluster_bits;
        if length_bytes > REFCOUNT_TABLE_MAX_BYTES {
            return Err(failed(io::Error::other("there are too many of them for one table of theirs")));
        }
        let (count, end_bytes) = (|cluster: u64| census.count(cluster), self.file.length_bytes());
        let written = new.write(count, |bytes, offset| self.file.write(bytes, offset)).and_then(|()| self.file.sync());
        if let Err(error) = written {
            // What is behind the end is nothing, wherever that is.
            let _ = self.file.truncate(end_bytes);
            return Err(failed(error));
        }
        Ok(Ok(Table { offset_bytes: new.table_offset_bytes(), length_bytes }))
    }

    /// From which cluster on nothing is used, refcounts included: behind the end of a file; on a device, which has more
    /// room than its image, behind the last that is.
    fn end_of_used(&self, census: &mut Census<'_>) -> io::Result<u64> {
        let mut end = census.clusters();
        if self.file.is_growing() {
            return Ok(end);
        }
        while end > 0 && census.count(end - 1)? == 0 {
            end -= 1;
        }
        let blocks = references::in_refcount_table(&self.file, &self.header);
        let blocks = blocks.map(|block| block.map(|block| (block.offset_bytes, block.length_bytes)));
        let Table { offset_bytes, length_bytes } = self.header.refcounts;
        let mut end_bytes = 0;
        for place in blocks.chain([Ok((offset_bytes, length_bytes))]) {
            let (offset_bytes, length_bytes) = place?;
            // What begins behind the end is damage, and nowhere.
            if offset_bytes < self.file.length_bytes() {
                end_bytes = end_bytes.max((offset_bytes + length_bytes).min(self.file.length_bytes()));
            }
        }
        Ok(end.max(end_bytes.div_ceil(self.header.cluster_bytes())))
    }

    /// How many entries lead to copies now, or why there are none: no failure.
    fn make_copies(&mut self, tell: Tell<'_>) -> Result<Result<u64, Stop>, ImageError> {
        let mut made = copies::needed(&self.file, &self.header);
        if matches!(made, Ok(1..)) {
            made = match self.may_lead_out()? {
                true => Err(Stop::InTheWay),
                false => {
                    let marks = self.header.incompatible & INCOMPATIBLE_MARKS | INCOMPATIBLE_CORRUPT;
                    self.set_marks(marks).map_err(|error| self.failed("write to", error))?;
                    copies::make(&self.file, &self.header, tell)
                }
            };
        }
        match made {
            Err(Stop::Failed(error)) => Err(self.failed("repair", error)),
            made => Ok(made),
        }
    }

    /// Whether anything leads behind the end of the file, or may, as it is in a table that cannot be looked into.
    fn may_lead_out(&self) -> Result<bool, ImageError> {
        let mut ignore = |_: &str| ();
        let mut census = self.census(Repair::None, &mut ignore)?;
        census.take().map_err(|error| self.failed("check", error))?;
        Ok(census.leads_out_at.is_some() || census.is_incomplete)
    }

    /// Says whether the image is in order; none of version 2 can.
    fn set_marks(&mut self, marks: u64) -> io::Result<()> {
        let incompatible = self.header.incompatible & !INCOMPATIBLE_MARKS | marks;
        if self.header.version < 3 || incompatible == self.header.incompatible {
            return Ok(());
        }
        self.header.incompatible = incompatible;
        self.file.write_header(&incompatible.to_be_bytes(), INCOMPATIBLE_AT)
    }

    fn failed(&self, action: &'static str, source: io::Error) -> ImageError {
        ImageError::System { action, path: self.path.clone(), source }
    }
}

/// Hears of what is repaired alone.
fn only_repairs(tell: Tell<'_>) -> impl FnMut(&str) {
    |line| {
        if line.starts_with("Repairing") {
            tell(line);
        }
    }
}

/// What a header says of where refcounts are.
pub(super) fn table_fields(table: Table, cluster_bits: u32) -> Vec<u8> {
    // The number fits, as the table's size is bounded.
    let clusters = (table.length_bytes >> cluster_bits) as u32;
    [&table.offset_bytes.to_be_bytes()[..], &clusters.to_be_bytes()].concat()
}

/// Why refcounts are not written anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InTheWay {
    /// It cannot be known what is in use.
    Unknown,
    /// Something that is missing is to be where they would be.
    Missing,
}

/// How much a repair has put right: corruptions, `copied` of them apart, as entries lead to copies now, and leaks.
#[derive(Default)]
struct Fixed {
    corruptions: u64,
    leaks: u64,
    copied: u64,
}

/// What of a count is kept.
struct Counted {
    report: CheckReport,
    lacks_refcounts: bool,
    compressed_entries: u64,
}
