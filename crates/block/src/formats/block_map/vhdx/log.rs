//! The log: changes to tables that were made stable before they were made. Section 2.3.
//!
//! Whoever closes an image leaves no log that counts. Else what the log holds is read in the place of what lies in the
//! file ([`Logged`]); the file stays as it is. A log whose entries make no whole sequence is damage, by section 2.3.3.

use super::super::fields::{Fields, lies_within};
use super::super::image_file::ImageFile;
use super::super::logged::{Logged, PAGE_BYTES};
use super::header::{Header, has_right_checksum};
use crate::ImageError;
use std::collections::{BTreeMap, btree_map};

/// Longest log that is replayed: Hyper-V and QEMU make those of 1 MiB.
const LOG_MAX_BYTES: u64 = 8 << 20;

/// How often the log's bytes are checked at most: entries that overlap are none that anybody wrote.
const CHECKS_MAX: u64 = 4;

const SECTOR: usize = PAGE_BYTES;
const ENTRY_HEADER_BYTES: usize = 64;
const DESCRIPTOR_BYTES: usize = 32;

/// In front of the region tables, nothing is changed by a log.
const HEADERS_END: u64 = 192 << 10;

/// An entry that is whole.
struct Entry {
    sequence: u64,
    /// Where in the log the first entry lies that is to be replayed when this is the last one.
    tail: usize,
    /// How long the file was at least when it was written, and was to be.
    flushed_bytes: u64,
    last_bytes: u64,
    bytes: Vec<u8>,
    descriptors: usize,
}

/// What is worth saying of an image with a log that counts.
const READ: &str = "it was not closed: what its log holds is read, and stays there";
const EMPTY: &str = "it was not closed, and its log has no entry: it is read as it is";

/// Puts what the log holds in front of the file. What is worth saying, if there is a log that counts.
pub(super) fn replay(file: &mut ImageFile, header: &Header) -> Result<Option<&'static str>, ImageError> {
    let (offset, length) = header.log;
    if header.log_id == [0; 16] || length == 0 {
        return Ok(None);
    }
    if length > LOG_MAX_BYTES {
        let advice = "attach it once to the hypervisor that wrote it";
        return Err(file.unusable(format!("was not closed, and has a log of {length} bytes, too many: {advice}")));
    }
    let log = file.read_up_to(offset, length as usize)?;
    let entries = active(&log, header).map_err(|problem| file.unusable(problem))?;
    let length_bytes = file.length_bytes();
    let mut logged = Logged::new(length_bytes);
    if entries.is_empty() {
        if log.chunks(SECTOR).any(|sector| is_of_log(Fields(sector), header)) {
            let advice = "attach it once to the hypervisor that wrote it, or take a copy";
            return Err(file.unusable(format!("is damaged: its log has entries, and no whole sequence: {advice}")));
        }
        // QEMU names a new log in the header before it writes the first entry, and ended in between: nothing was done.
        file.put_in_front(logged);
        return Ok(Some(EMPTY));
    }
    for entry in &entries {
        if entry.flushed_bytes > length_bytes {
            let was = entry.flushed_bytes;
            return Err(file.unusable(format!("is cut short: its log says that it had {was} bytes")));
        }
        logged.extend_to(entry.last_bytes).map_err(|problem| file.unusable(problem))?;
        entry.replay(&mut logged, header.log).map_err(|problem| file.unusable(problem))?;
    }
    file.put_in_front(logged);
    Ok(Some(READ))
}

/// Whether an entry of the log that counts begins with these bytes.
fn is_of_log(fields: Fields<'_>, header: &Header) -> bool {
    fields.begins_with(b"loge") && fields.bytes(32) == Ok(header.log_id)
}

/// The entries to be replayed, in order: of the sequences of entries that follow each other in the log and are whole,
/// that one with the latest entry.
fn active(log: &[u8], header: &Header) -> Result<Vec<Entry>, String> {
    // By their places. What is nowhere in it was not looked at.
    let mut known: BTreeMap<usize, Option<Entry>> = BTreeMap::new();
    let mut left_bytes = log.len() as u64 * CHECKS_MAX;
    let mut best: Option<(u64, Vec<usize>)> = None;
    for start in (0..log.len()).step_by(SECTOR) {
        let (mut at, mut total_bytes, mut places, mut last) = (start, 0, Vec::new(), None::<(u64, usize)>);
        loop {
            let entry = match known.entry(at) {
                btree_map::Entry::Occupied(entry) => entry.into_mut(),
                btree_map::Entry::Vacant(entry) => entry.insert(Entry::parse(log, at, header, &mut left_bytes)?),
            };
            let Some(entry) = entry else { break };
            let follows = last.is_none_or(|(sequence, _)| sequence.checked_add(1) == Some(entry.sequence));
            total_bytes += entry.bytes.len();
            if !follows || total_bytes > log.len() {
                break;
            }
            last = Some((entry.sequence, entry.tail));
            places.push(at);
            at = (at + entry.bytes.len()) % log.len();
        }
        let Some((sequence, tail)) = last else { continue };
        let Some(first) = places.iter().position(|&place| place == tail) else { continue };
        if best.as_ref().is_none_or(|(other, _)| sequence > *other) {
            best = Some((sequence, places.split_off(first)));
        }
    }
    let places = best.map_or_else(Vec::new, |(_, places)| places);
    Ok(places.iter().filter_map(|place| known.remove(place).flatten()).collect())
}

impl Entry {
    /// The entry at a place in the log, which goes on at its beginning where it ends; `None` if there is none that is
    /// whole. An error if more is to be checked than there can be.
    fn parse(log: &[u8], at: usize, header: &Header, left_bytes: &mut u64) -> Result<Option<Self>, String> {
        let Some(sector) = log.get(at..at + SECTOR) else { return Ok(None) };
        let fields = Fields(sector);
        let (length, tail, sequence) = (fields.le32(8)? as usize, fields.le32(12)? as usize, fields.le64(16)?);
        let is_possible = is_of_log(fields, header)
            && length >= SECTOR
            && length.is_multiple_of(SECTOR)
            && length <= log.len()
            && tail.is_multiple_of(SECTOR)
            && tail < log.len()
            && sequence > 0;
        if !is_possible {
            return Ok(None);
        }
        *left_bytes = left_bytes.checked_sub(length as u64).ok_or("is damaged: entries of its log overlap")?;
        let mut bytes = Vec::with_capacity(length);
        let to_the_end = length.min(log.len() - at);
        bytes.extend(log.get(at..at + to_the_end).unwrap_or_default());
        bytes.extend(log.get(..length - to_the_end).unwrap_or_default());
        let descriptors = fields.le32(24)? as usize;
        let entry =
            Self { sequence, tail, flushed_bytes: fields.le64(48)?, last_bytes: fields.le64(56)?, bytes, descriptors };
        Ok((has_right_checksum(&entry.bytes) && entry.is_whole()).then_some(entry))
    }

    /// Where data begin: behind the descriptors, with a sector.
    fn data_offset(&self) -> Option<usize> {
        let end = self.descriptors.checked_mul(DESCRIPTOR_BYTES)?.checked_add(ENTRY_HEADER_BYTES)?;
        end.checked_next_multiple_of(SECTOR).filter(|&offset| offset <= self.bytes.len())
    }

    fn descriptor(&self, index: usize) -> Fields<'_> {
        let start = ENTRY_HEADER_BYTES + index * DESCRIPTOR_BYTES;
        Fields(self.bytes.get(start..start + DESCRIPTOR_BYTES).unwrap_or_default())
    }

    /// Whether every part of it was written with it.
    fn is_whole(&self) -> bool {
        let Some(mut data) = self.data_offset() else { return false };
        (0..self.descriptors).all(|index| {
            let descriptor = self.descriptor(index);
            let is_own = descriptor.le64(24) == Ok(self.sequence);
            if descriptor.begins_with(b"zero") {
                return is_own;
            }
            let sector = Fields(self.bytes.get(data..data + SECTOR).unwrap_or_default());
            data += SECTOR;
            let (high, low) = (sector.le32(4), sector.le32(SECTOR - 4));
            let is_of_it = high == Ok((self.sequence >> 32) as u32) && low == Ok(self.sequence as u32);
            is_own && descriptor.begins_with(b"desc") && sector.begins_with(b"data") && is_of_it
        })
    }

    /// The error goes on after the image's path.
    fn replay(&self, logged: &mut Logged, log: (u64, u64)) -> Result<(), String> {
        let mut data = self.data_offset().unwrap_or(self.bytes.len());
        for index in 0..self.descriptors {
            let descriptor = self.descriptor(index);
            let offset = descriptor.le64(16)?;
            let is_zeros = descriptor.begins_with(b"zero");
            let length = if is_zeros { descriptor.le64(8)? } else { PAGE_BYTES as u64 };
            if !offset.is_multiple_of(PAGE_BYTES as u64) || !length.is_multiple_of(PAGE_BYTES as u64) {
                return Err("is damaged: its log changes what is no whole page".into());
            }
            if !lies_within(offset, length, logged.end_bytes()) {
                return Err("is damaged: its log changes what lies behind the end of the file".into());
            }
            if offset < HEADERS_END || (offset < log.0 + log.1 && log.0 < offset + length) {
                return Err("is damaged: its log changes the headers or itself".into());
            }
            if is_zeros {
                logged.put(offset..offset + length, None);
                continue;
            }
            let sector = Fields(self.bytes.get(data..data + SECTOR).unwrap_or_default());
            data += SECTOR;
            let mut page = Box::new(sector.bytes::<SECTOR>(0)?);
            // The signature and the numbers are in the place of bytes that the descriptor has.
            let (leading, trailing): ([u8; 8], [u8; 4]) = (descriptor.bytes(8)?, descriptor.bytes(4)?);
            page[..8].copy_from_slice(&leading);
            page[SECTOR - 4..].copy_from_slice(&trailing);
            logged.put(offset..offset + length, Some(page));
        }
        Ok(())
    }
}
