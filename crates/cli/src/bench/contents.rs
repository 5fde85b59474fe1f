//! Whether a disk that is to be written over holds anything.

use anyhow::{Context, Result, bail};
use blockyard_block::partition_table::{self, Scheme};
use blockyard_block::{Disk, DiskReader, ExtentKind, walk_extents};

/// Bytes with storage that are looked at from the beginning on. Whatever is kept on a disk says so there, at its end,
/// or in a table.
const LOOKED_AT_BYTES: u64 = 256 << 20;
/// Bytes that are looked at before the end.
const END_BYTES: u64 = 1 << 20;
const PIECE_BYTES: u64 = 64 << 10;

/// Refuses a disk that has a partition table, or anything but zeros as far as is looked.
///
/// # Errors
/// When it has, or cannot be read.
pub fn refuse(disk: &dyn Disk, name: &str) -> Result<()> {
    let found = what(disk).with_context(|| format!("cannot tell what is on {name}"))?;
    match found {
        Some(what) => bail!("{name} has {what}, which would be lost: add --force if that is what you want"),
        None => Ok(()),
    }
}

fn what(disk: &dyn Disk) -> Result<Option<String>> {
    // What it cannot read, or understand, is not all zeros.
    if let Ok(table) = partition_table::read(disk)
        && let Some(scheme) = table.scheme
    {
        let kind = match scheme {
            Scheme::Gpt => "a GPT",
            Scheme::Mbr => "an MBR",
        };
        return Ok(Some(format!("{kind} (partitions: {})", table.partitions.len())));
    }
    let capacity_bytes = disk.geometry().capacity_bytes;
    let mut reader = DiskReader::new(disk)?;
    let end = capacity_bytes.saturating_sub(END_BYTES)..capacity_bytes;
    for (range, mut left_bytes) in [(0..end.start, LOOKED_AT_BYTES), (end, END_BYTES)] {
        for extent in walk_extents(disk, range) {
            let extent = extent?;
            if extent.kind != ExtentKind::Data {
                continue;
            }
            let length_bytes = extent.length_bytes.min(left_bytes);
            if let Some(at) = first_not_zero(&mut reader, extent.offset_bytes, length_bytes)? {
                return Ok(Some(format!("something at byte {at}")));
            }
            left_bytes -= length_bytes;
            if left_bytes == 0 {
                break;
            }
        }
    }
    Ok(None)
}

fn first_not_zero(reader: &mut DiskReader, offset_bytes: u64, length_bytes: u64) -> Result<Option<u64>> {
    let mut piece = vec![0; PIECE_BYTES as usize];
    for at in (offset_bytes..offset_bytes + length_bytes).step_by(PIECE_BYTES as usize) {
        let bytes = &mut piece[..PIECE_BYTES.min(offset_bytes + length_bytes - at) as usize];
        reader.read(at, bytes)?;
        if let Some(index) = bytes.iter().position(|&byte| byte != 0) {
            return Ok(Some(at + index as u64));
        }
    }
    Ok(None)
}
