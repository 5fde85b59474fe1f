//! What is offered: partitions of a disk as it is, with the rights that the user gives.

use super::export::{EXPORTS_MAX, PartitionExport};
use super::message::Grant;
use blockyard_block::partition_table::{
    PartitionError, PartitionTable, PartitionTableError, TableChoice, Warning, read_as,
};
use blockyard_block::{Disk, Remedy};
use std::num::NonZeroU32;
use std::ops::Range;
use std::path::PathBuf;

/// A partition that is to be had at a socket. The range lies within the disk and is made of whole logical blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The partition's number.
    pub number: u32,
    /// For people.
    pub name: String,
    /// Where clients connect.
    pub socket: PathBuf,
    /// The partition's bytes on the disk.
    pub range_bytes: Range<u64>,
    /// Whether clients may only read.
    pub read_only: bool,
    /// The client's share of the disk's time, compared with other clients'.
    pub weight: NonZeroU32,
    /// Users who may connect; empty for the one who serves.
    pub uids: Vec<u32>,
}

impl Offer {
    /// What the client that has the offer gets, as session number `session`.
    pub fn grant(&self, session: u64) -> Grant {
        Grant {
            session,
            range_bytes: self.range_bytes.clone(),
            read_only: self.read_only,
            weight: self.weight,
            name: self.name.clone(),
        }
    }
}

/// All offers of a disk, and what is odd about its table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offers {
    /// In the order of the exports.
    pub offers: Vec<Offer>,
    /// For people.
    pub warnings: Vec<Warning>,
}

/// Why the exports that the user wants cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum OfferError {
    /// There is no telling which partitions the disk has.
    #[error("{}", .0.advising(&Remedy::ChooseTable.to_string()))]
    Table(PartitionTableError),
    /// A partition is not to be had.
    #[error(transparent)]
    Partition(#[from] PartitionError),
    /// More exports than there may be.
    #[error("{0} partitions are too many: at most {EXPORTS_MAX} are served at once")]
    TooMany(usize),
    /// Two exports at one place.
    #[error("{0} is the socket of two partitions")]
    SameSocket(PathBuf),
    /// Somebody would write what somebody else has.
    #[error("partition {0} is exported twice: then all its exports must be read-only")]
    SharedWriting(u32),
    /// The disk cannot be written.
    #[error("partition {0} cannot be written: the disk is read-only")]
    ReadOnlyDisk(u32),
}

/// Reads the disk's table and finds what `exports` say. `read_only` is whether what clients get at cannot be written:
/// the way that the table is read by usually cannot, whatever clients may.
///
/// # Errors
/// When the table cannot be read, a partition is not to be had with the rights asked for, or exports contradict each
/// other.
pub fn offers(
    disk: &dyn Disk,
    choice: TableChoice,
    exports: &[PartitionExport],
    read_only: bool,
) -> Result<Offers, OfferError> {
    check(exports)?;
    let table = read_as(disk, choice).map_err(OfferError::Table)?;
    let offers = exports.iter().map(|export| offer(&table, export, read_only)).collect::<Result<_, _>>()?;
    Ok(Offers { offers, warnings: table.warnings })
}

fn check(exports: &[PartitionExport]) -> Result<(), OfferError> {
    if exports.len() > EXPORTS_MAX {
        return Err(OfferError::TooMany(exports.len()));
    }
    for (index, export) in exports.iter().enumerate() {
        for other in &exports[..index] {
            if other.socket() == export.socket() {
                return Err(OfferError::SameSocket(export.socket().into()));
            }
            if other.number() == export.number() && !(other.is_read_only() && export.is_read_only()) {
                return Err(OfferError::SharedWriting(export.number()));
            }
        }
    }
    Ok(())
}

fn offer(table: &PartitionTable, export: &PartitionExport, read_only_disk: bool) -> Result<Offer, OfferError> {
    let (number, read_only) = (export.number(), export.is_read_only());
    if read_only_disk && !read_only {
        return Err(OfferError::ReadOnlyDisk(number));
    }
    Ok(Offer {
        number,
        name: format!("partition {number}"),
        socket: export.socket().into(),
        range_bytes: table.range(number, read_only)?,
        read_only,
        weight: export.weight(),
        uids: export.uids().to_vec(),
    })
}
