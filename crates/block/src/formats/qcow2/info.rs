//! What images say of themselves, without opening them as disks.

use super::bitmaps::{self, Bitmap};
use super::encryption::{self, Qcow2Encryption};
use super::header::{Header, INCOMPATIBLE_CORRUPT, INCOMPATIBLE_DIRTY, INCOMPATIBLE_EXTENDED_L2, NO_REFCOUNT_TABLE};
use super::own_file::{image_file, parse_header};
use super::references::{self, Reference};
use super::snapshots::{self, Qcow2Snapshot};
use crate::OpenedFile;
use crate::formats::pending_check::CHECKED_AT_ONCE_BYTES;
use crate::formats::{ImageError, WritableFile};
use std::fs::File;
use std::io;
use std::path::Path;

/// What a qcow2 image says of itself, whether it can be used here or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Qcow2Info {
    /// 2 or 3: what QEMU calls compat 0.10 and 1.1.
    pub version: u32,
    /// The unit of allocation.
    pub cluster_bytes: u64,
    /// Size of the disk.
    pub size_bytes: u64,
    /// Width of a refcount.
    pub refcount_bits: u32,
    /// The internal snapshots.
    pub snapshots: Vec<Qcow2Snapshot>,
    /// Bitmaps that programs keep of changes.
    pub bitmaps: Vec<Qcow2Bitmap>,
    /// The backing file's name, as the header has it.
    pub backing_name: Option<String>,
    /// Its format, if the header says.
    pub backing_format: Option<String>,
    /// The name of the file that the data are in, if it is another.
    pub data_file: Option<String>,
    /// Whether that file is a raw image of the disk.
    pub is_data_file_raw: bool,
    /// How clusters are compressed: the number that the header has.
    pub compression: u8,
    /// How clusters are encrypted.
    pub encryption: Option<Qcow2Encryption>,
    /// Refcounts may be behind while somebody writes.
    pub has_lazy_refcounts: bool,
    /// Refcounts are behind, as after a crash.
    pub is_dirty: bool,
    /// A program found damage.
    pub is_corrupt: bool,
    /// L2 entries say more than where a cluster is.
    pub has_extended_l2: bool,
}

/// A bitmap of changes, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Qcow2Bitmap {
    /// Its name, as its maker liked.
    pub name: String,
    /// Bytes of the disk that a bit stands for.
    pub granularity_bytes: u64,
    /// It was not closed well, or the disk was written to by who does not keep it: it says nothing any more.
    pub is_in_use: bool,
    /// Who opens the image keeps it up to date.
    pub is_auto: bool,
    /// It can be kept: its entry says nothing that is not known here.
    pub can_be_kept: bool,
}

impl Qcow2Info {
    /// Reads what an open image says of itself. Nothing is locked, no other file is opened, and what cannot be used is
    /// told, too.
    ///
    /// # Errors
    /// When it cannot be read, or no qcow2 header can be made out.
    pub fn of_opened(image: &OpenedFile) -> Result<Self, ImageError> {
        Self::of(image.file(), image.path())
    }

    /// Where an L2 table lies that stands for two parts of the disk, if there is one: whoever reads both refuses the
    /// image. Of its tables, this reads the first alone.
    ///
    /// # Errors
    /// When it cannot be read, or no qcow2 header can be made out.
    pub fn shared_table(image: &OpenedFile) -> Result<Option<u64>, ImageError> {
        let failed = |source| ImageError::System { action: "read", path: image.path().to_owned(), source };
        let header = parse_header(image.file(), image.path(), Header::parse_to_check)?;
        let file = image_file(image.file()).map_err(failed)?;
        let tables = references::in_l1(&file, &header, header.l1).map(|found| found.map(|table| table.offset_bytes));
        let mut tables = tables.collect::<io::Result<Vec<_>>>().map_err(failed)?;
        tables.retain(|&offset_bytes| offset_bytes != 0);
        tables.sort_unstable();
        Ok(tables.array_windows().find_map(|[one, next]| (one == next).then_some(*one)))
    }

    /// What of an image makes no sense, that opening it to read it does not show: its table of snapshots, where its
    /// refcounts are, and what leads behind its file's end, as far as the tables are looked at: as many of them as for
    /// who opens it to write to it. Goes on after the image's path.
    ///
    /// # Errors
    /// When it cannot be read, or no qcow2 header can be made out.
    pub fn damage_in(image: &OpenedFile) -> Result<Option<String>, ImageError> {
        let failed = |source| ImageError::System { action: "read", path: image.path().to_owned(), source };
        let header = parse_header(image.file(), image.path(), Header::parse_to_check)?;
        let file = image_file(image.file()).map_err(failed)?;
        let snapshots = snapshots::snapshots(&file, &header).map_err(failed)?.flaw;
        let found = snapshots.map_or_else(|| behind_the_end(&file, &header), |flaw| Ok(Some(flaw)));
        Ok(found.map_err(failed)?.map(|what| format!("is damaged: {what}")))
    }

    fn of(file: &File, path: &Path) -> Result<Self, ImageError> {
        let failed = |source| ImageError::System { action: "read", path: path.to_owned(), source };
        let header = parse_header(file, path, Header::parse_to_look)?;
        Self::of_header(&image_file(file).map_err(failed)?, header).map_err(failed)
    }

    fn of_header(file: &WritableFile, header: Header) -> io::Result<Self> {
        let snapshots = snapshots::described(file, &header)?;
        let mut found = Vec::new();
        bitmaps::walk(file, &header, |bitmap, _| found.push(Qcow2Bitmap::of(&bitmap, &header)))?;
        let encryption = encryption::of(file, &header)?;
        let is = |feature: u64| header.incompatible & feature != 0;
        Ok(Self {
            version: header.version,
            cluster_bytes: header.cluster_bytes(),
            size_bytes: header.size_bytes,
            refcount_bits: 1 << header.refcount_order,
            snapshots,
            bitmaps: found,
            is_data_file_raw: header.is_data_file_raw,
            compression: header.compression,
            encryption,
            has_lazy_refcounts: header.has_lazy_refcounts,
            is_dirty: is(INCOMPATIBLE_DIRTY),
            is_corrupt: is(INCOMPATIBLE_CORRUPT),
            has_extended_l2: is(INCOMPATIBLE_EXTENDED_L2),
            backing_name: header.backing.as_ref().map(|backing| backing.name.clone()),
            backing_format: header.backing.and_then(|backing| backing.format),
            data_file: header.data_file,
        })
    }
}

/// The first thing of the file that begins behind its end and that a table leads to, or the table of refcounts that
/// ends there, or is none.
fn behind_the_end(file: &WritableFile, header: &Header) -> io::Result<Option<String>> {
    let end = file.length_bytes().next_multiple_of(header.cluster_bytes());
    let is_behind = |found: &Reference| found.is_used() && found.offset_bytes >= end;
    if header.refcounts.length_bytes == 0 {
        return Ok(Some(format!("it has {NO_REFCOUNT_TABLE}")));
    }
    if !header.has_refcount_table_in(file.length_bytes()) {
        let at = header.refcounts.offset_bytes;
        return Ok(Some(format!("its refcount table at {at} does not end within the file")));
    }
    let tables_max = CHECKED_AT_ONCE_BYTES / header.cluster_bytes();
    for table in references::in_l1(file, header, header.l1).take(tables_max as usize) {
        let table = table?;
        let mut found = Some(table).filter(is_behind);
        if found.is_none() && table.is_used() {
            found = references::in_l2(file, header, table.offset_bytes)
                .find(|found| found.as_ref().map_or(true, is_behind))
                .transpose()?;
        }
        if let Some(Reference { offset_bytes, .. }) = found {
            return Ok(Some(format!("something at {offset_bytes} lies behind the end of the file")));
        }
    }
    Ok(None)
}

impl Qcow2Bitmap {
    fn of(bitmap: &Bitmap, header: &Header) -> Self {
        Self {
            name: String::from_utf8_lossy(&bitmap.name).into_owned(),
            granularity_bytes: 1_u64.checked_shl(bitmap.granularity_bits.into()).unwrap_or(0),
            is_in_use: bitmap.is_in_use(),
            is_auto: bitmap.is_auto(),
            can_be_kept: bitmap.usable(header.size_bytes, header.cluster_bytes()).is_ok(),
        }
    }
}
