//! Partition tables: MBR with logical partitions, and GPT.
//!
//! [`read`] gives a [`PartitionTable`] that holds good values only: every range lies within the disk and is made of
//! whole logical blocks. What could do harm is marked: a [`Partition`] with a [`Restriction`] is not to be written,
//! because that would change another partition or the table. [`PartitionTable::range`] is how to ask for a partition,
//! and minds that.
//!
//! Which table counts is decided as Genode's part_block does, see [`TableChoice`]. A table is hostile input: reading
//! one takes bounded time and memory, whatever is in it.
//!
//! [`PartitionTable::create`] makes a new table, [`PartitionTable::change`] changes one in place.
//!
//! Deliberately absent: changing logical partitions, and older kinds of table (BSD disk labels, Sun, Amiga).

mod boot_sector;
mod change;
mod crc32;
mod error;
mod gpt;
mod guid;
mod kind;
mod mbr;
mod new_table;
mod restriction;

pub use change::{ChangeError, EntryChange, TableChange};
pub use error::{GptFault, LeftOut, PartitionError, PartitionTableError, Warning};
pub use guid::{Guid, NotAGuid};
pub use kind::PartitionKind;
pub use new_table::{NewPartition, NewTableError, lay_out};

use crate::{Disk, DiskReader};
use gpt::Gpt;
use mbr::Mbr;
use std::ops::Range;

/// Which table counts on a disk that may have two.
///
/// | MBR | GPT | [`TableChoice::Auto`] takes |
/// |---|---|---|
/// | protective | valid, or its backup is | the GPT |
/// | protective or hybrid | damaged or missing | an error |
/// | hybrid, entries are partitions of the GPT | valid | the GPT, with a warning |
/// | hybrid, entries are something else | valid | an error: choose |
/// | with partitions | valid | an error: choose |
/// | with partitions | damaged, or only its backup is valid | the MBR, with a warning |
/// | none, empty, or a file system's boot sector | valid | the GPT, with a warning |
/// | none, empty, or a file system's boot sector | damaged, or only its backup is valid | no table, with a warning |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TableChoice {
    /// The one that can be meant; two that contradict each other are an error.
    #[default]
    Auto,
    /// The MBR, whatever the GPT says.
    Mbr,
    /// The GPT, whatever the MBR says.
    Gpt,
}

/// The kind of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// The old one, also called DOS: four primary partitions, and logical ones in extended ones.
    Mbr,
    /// The GUID partition table.
    Gpt,
}

/// The partitions of a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionTable {
    /// `None` for a disk without a table: it is one file system, or unused.
    pub scheme: Option<Scheme>,
    /// By number.
    pub partitions: Vec<Partition>,
    /// What is odd; for people.
    pub warnings: Vec<Warning>,
    /// The disk's own GUID, in a GPT.
    pub disk_guid: Option<Guid>,
}

/// A partition. Its range lies within the disk, is not empty and is made of whole logical blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// Linux's number: in an MBR 1 to 4 for primary and 5 and up for logical partitions, in a GPT the entry's, from 1.
    pub number: u32,
    /// Its bytes on the disk.
    pub range_bytes: Range<u64>,
    /// What it says it is for.
    pub kind: PartitionKind,
    /// The name in a GPT; whatever its maker liked, so not fit for a terminal as it is.
    pub name: String,
    /// The partition's own GUID, in a GPT.
    pub guid: Option<Guid>,
    /// The attributes of a GPT's entry (UEFI 2.10, section 5.3.3); the boot indicator of an MBR's, 0x80 for active.
    pub attributes: u64,
    /// What forbids to use it as one likes.
    pub restriction: Option<Restriction>,
}

/// What forbids to use a partition as one likes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restriction {
    /// An extended partition, which only holds logical ones: not to be used at all.
    Container,
    /// It shares bytes with another partition: not to be written.
    Overlaps {
        /// One that it overlaps.
        other: u32,
    },
    /// It shares bytes with the table: not to be written.
    CoversTable,
    /// The disk ends before it does, and its range is what there is: not to be written.
    CutOff,
}

/// Reads the table of a disk, as [`TableChoice::Auto`] says.
///
/// # Errors
/// When the disk cannot be read, or there is no telling which partitions it has.
pub fn read(disk: &dyn Disk) -> Result<PartitionTable, PartitionTableError> {
    read_as(disk, TableChoice::Auto)
}

/// Reads the table that `choice` says.
///
/// # Errors
/// When the disk cannot be read, there is no telling which partitions it has, or the table asked for is not there.
pub fn read_as(disk: &dyn Disk, choice: TableChoice) -> Result<PartitionTable, PartitionTableError> {
    let geometry = disk.geometry();
    let block_bytes = geometry.logical_block_bytes;
    let blocks = geometry.capacity_bytes / u64::from(block_bytes);
    let mut tables = Tables { reader: DiskReader::new(disk)?, blocks, block_bytes };
    match choice {
        TableChoice::Auto => tables.either(),
        TableChoice::Mbr => tables.only_mbr(),
        TableChoice::Gpt => tables.only_gpt(),
    }
}

/// What a table says, before it is known who is in whose way.
#[derive(Default)]
struct Found {
    partitions: Vec<Partition>,
    /// Places of the table itself.
    table: Vec<Range<u64>>,
    warnings: Vec<Warning>,
}

struct Tables {
    reader: DiskReader,
    blocks: u64,
    block_bytes: u32,
}

impl Tables {
    fn either(&mut self) -> Result<PartitionTable, PartitionTableError> {
        let mbr = mbr::recognise(&mut self.reader, self.blocks)?;
        let gpt = Gpt::read(&mut self.reader, self.blocks, self.block_bytes);
        match mbr {
            Mbr::Protective => self.gpt(gpt, Vec::new()),
            Mbr::Hybrid(entries) => {
                let table = self.gpt(gpt, vec![Warning::HybridMbr])?;
                let repeats = |entry: &mbr::Entry| {
                    let range = entry.range_bytes(self.block_bytes);
                    table.partitions.iter().any(|partition| partition.range_bytes == range)
                };
                let mut own = entries.iter().filter(|entry| entry.is_used() && !entry.is_protective());
                if own.all(repeats) { Ok(table) } else { Err(PartitionTableError::Ambiguous) }
            }
            Mbr::Table(entries) if mbr::has_partitions(&entries) => {
                if gpt.has_primary() {
                    return Err(PartitionTableError::Ambiguous);
                }
                let found = mbr::partitions(&mut self.reader, &entries, self.blocks, self.block_bytes)?;
                Ok(PartitionTable::new(Scheme::Mbr, found, remains(&gpt)))
            }
            _ if gpt.has_primary() => self.gpt(gpt, vec![Warning::NoProtectiveMbr]),
            Mbr::Table(_) => Ok(PartitionTable::new(Scheme::Mbr, Found::default(), remains(&gpt))),
            Mbr::Absent | Mbr::FileSystem => Ok(PartitionTable::none(remains(&gpt))),
        }
    }

    fn only_mbr(&mut self) -> Result<PartitionTable, PartitionTableError> {
        if mbr::recognise(&mut self.reader, self.blocks)? == Mbr::Protective {
            return Err(PartitionTableError::OnlyProtective);
        }
        let entries = mbr::force(&mut self.reader)?.ok_or(PartitionTableError::NoMbr)?;
        let found = mbr::partitions(&mut self.reader, &entries, self.blocks, self.block_bytes)?;
        Ok(PartitionTable::new(Scheme::Mbr, found, Vec::new()))
    }

    fn only_gpt(&mut self) -> Result<PartitionTable, PartitionTableError> {
        let gpt = Gpt::read(&mut self.reader, self.blocks, self.block_bytes);
        if gpt.is_absent() {
            self.check_block_size()?;
            return Err(PartitionTableError::NoGpt);
        }
        self.gpt(gpt, Vec::new())
    }

    fn gpt(&mut self, gpt: Gpt, mut warnings: Vec<Warning>) -> Result<PartitionTable, PartitionTableError> {
        match gpt.choose() {
            Ok((copy, about_copies)) => {
                warnings.extend(about_copies);
                let found = copy.partitions(self.blocks, self.block_bytes);
                let table = PartitionTable::new(Scheme::Gpt, found, warnings);
                Ok(PartitionTable { disk_guid: Some(copy.header.disk), ..table })
            }
            Err((primary, backup)) => {
                self.check_block_size()?;
                Err(PartitionTableError::DamagedGpt { primary, backup })
            }
        }
    }

    /// An error if a GPT is where it would be with blocks of another size: the remedy is another than with a damaged
    /// one.
    fn check_block_size(&mut self) -> Result<(), PartitionTableError> {
        let block_bytes = u64::from(self.block_bytes);
        let others = (9..=16).map(|shift| 1 << shift).filter(|&other| other != block_bytes);
        match others.into_iter().find(|&other| gpt::has_signature(&mut self.reader, other)) {
            Some(found_bytes) => Err(PartitionTableError::OtherBlockSize { found_bytes, block_bytes }),
            None => Ok(()),
        }
    }
}

fn remains(gpt: &Gpt) -> Vec<Warning> {
    if gpt.is_absent() { Vec::new() } else { vec![Warning::RemainsOfGpt] }
}

impl PartitionTable {
    fn none(warnings: Vec<Warning>) -> Self {
        Self { scheme: None, partitions: Vec::new(), warnings, disk_guid: None }
    }

    fn new(scheme: Scheme, found: Found, mut warnings: Vec<Warning>) -> Self {
        let Found { mut partitions, table, warnings: about_partitions } = found;
        warnings.extend(about_partitions);
        restriction::restrict(&mut partitions, &table, &mut warnings);
        Self { scheme: Some(scheme), partitions, warnings, disk_guid: None }
    }

    /// The bytes of partition `number`, for reading only or for writing too.
    ///
    /// # Errors
    /// When there is no such partition, or it is not to be used so.
    pub fn range(&self, number: u32, read_only: bool) -> Result<Range<u64>, PartitionError> {
        let Some(partition) = self.partitions.iter().find(|partition| partition.number == number) else {
            return Err(self.why_absent(number));
        };
        match partition.restriction {
            Some(Restriction::Container) => Err(PartitionError::Container(number)),
            Some(Restriction::Overlaps { other }) if !read_only => Err(PartitionError::Overlaps { number, other }),
            Some(Restriction::CoversTable) if !read_only => Err(PartitionError::CoversTable(number)),
            Some(Restriction::CutOff) if !read_only => Err(PartitionError::CutOff(number)),
            _ => Ok(partition.range_bytes.clone()),
        }
    }

    fn why_absent(&self, number: u32) -> PartitionError {
        let left_out = self.warnings.iter().find_map(|warning| match warning {
            Warning::LeftOut { number: left_out, why } if *left_out == number => Some(*why),
            _ => None,
        });
        match left_out {
            Some(why) => PartitionError::LeftOut { number, why },
            None => PartitionError::Absent { number, there: self.numbers() },
        }
    }

    /// The first numbers, for people.
    fn numbers(&self) -> String {
        const SHOWN: usize = 16;
        let shown = self.partitions.iter().take(SHOWN).map(|partition| partition.number.to_string());
        let more = (self.partitions.len() > SHOWN).then(|| "…".to_owned());
        shown.chain(more).collect::<Vec<_>>().join(", ")
    }
}

impl Partition {
    /// Whether it lies in an extended partition of an MBR.
    pub fn is_logical(&self) -> bool {
        matches!(self.kind, PartitionKind::Mbr(_)) && self.number >= 5
    }
}
