//! The log: changes to tables that were made stable before they were made. Section 2.3.
//!
//! Whoever closes an image leaves no log that counts. Else what the log holds is read in the place of what lies in the
//! file ([`Logged`]); the file stays as it is. A log whose entries make no whole sequence is damage, by section 2.3.3,
//! unless it is sure that nothing of it was done ([`unfinished`](super::unfinished)).

use super::super::fields::{Fields, lies_within};
use super::super::image_file::ImageFile;
use super::super::logged::{Logged, PAGE_BYTES};
use super::header::{Header, has_right_checksum};
use super::unfinished::{Unfinished, judge};
use crate::ImageError;
use std::collections::{BTreeMap, btree_map};

/// Longest log that is replayed: Hyper-V and QEMU make those of 1 MiB.
const LOG_MAX_BYTES: u64 = 8 << 20;

/// How often the log's bytes are checked at most: entries that overlap are none that anybody wrote.
const CHECKS_MAX: u64 = 4;

pub(super) const SECTOR: usize = PAGE_BYTES;
pub(super) const ENTRY_HEADER_BYTES: usize = 64;
pub(super) const DESCRIPTOR_BYTES: usize = 32;

/// In front of the region tables, nothing is changed by a log.
const HEADERS_END: u64 = 192 << 10;

/// What the beginning of an entry says, whether all of it is there or not.
pub(super) struct Start {
    at: usize,
    pub(super) has_signature: bool,
    pub(super) log_id: [u8; 16],
    length: usize,
    /// Where in the log the first entry lies that is to be replayed when this is the last one.
    pub(super) tail: usize,
    pub(super) sequence: u64,
    pub(super) descriptors: usize,
    /// How long the file was at least when it was written, and was to be.
    pub(super) flushed_bytes: u64,
    last_bytes: u64,
}

impl Start {
    /// What begins at a place in a log.
    pub(super) fn read(log: &[u8], at: usize) -> Option<Self> {
        let fields = Fields(log.get(at..at + SECTOR)?);
        let read = || {
            Ok::<_, String>(Self {
                at,
                has_signature: fields.begins_with(b"loge"),
                log_id: fields.bytes(32)?,
                length: fields.le32(8)? as usize,
                tail: fields.le32(12)? as usize,
                sequence: fields.le64(16)?,
                descriptors: fields.le32(24)? as usize,
                flushed_bytes: fields.le64(48)?,
                last_bytes: fields.le64(56)?,
            })
        };
        read().ok()
    }

    /// Whether it is of the log that counts.
    pub(super) fn is_of(&self, header: &Header) -> bool {
        self.has_signature && self.log_id == header.log_id
    }

    /// How long the entry is in its log; `None` if there can be none.
    pub(super) fn entry_length(&self, log: &[u8]) -> Option<usize> {
        let is_possible = self.length >= SECTOR
            && self.length.is_multiple_of(SECTOR)
            && self.length <= log.len()
            && self.tail.is_multiple_of(SECTOR)
            && self.tail < log.len()
            && self.sequence > 0;
        is_possible.then_some(self.length)
    }

    /// The bytes of the entry in its log, which goes on at its beginning where it ends; `None` if there can be none.
    pub(super) fn entry_bytes(&self, log: &[u8]) -> Option<Vec<u8>> {
        self.entry_length(log)?;
        let mut bytes = Vec::with_capacity(self.length);
        let to_the_end = self.length.min(log.len() - self.at);
        bytes.extend(log.get(self.at..self.at + to_the_end)?);
        bytes.extend(log.get(..self.length - to_the_end)?);
        Some(bytes)
    }

    /// Where data begin: behind the descriptors, with a sector.
    pub(super) fn data_offset(&self) -> Option<usize> {
        let end = self.descriptors.checked_mul(DESCRIPTOR_BYTES)?.checked_add(ENTRY_HEADER_BYTES)?;
        end.checked_next_multiple_of(SECTOR).filter(|&offset| offset <= self.length)
    }
}

/// An entry that is whole.
struct Entry {
    start: Start,
    bytes: Vec<u8>,
}

/// What is worth saying of an image with a log that counts.
const READ: &str = "it was not closed: what its log holds is read, and stays there";
const EMPTY: &str = "it was not closed, and its log has no entry: it is read as it is";
const TORN: &str = "it was not closed, and the only entry of its log was not written to its end: it is read as it is";

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
    let mut entries = active(&log, header).map_err(|problem| file.unusable(problem))?;
    let length_bytes = file.length_bytes();
    let is_cut = |was: u64| file.unusable(format!("is cut short: its log says that it had {was} bytes"));
    let mut note = READ;
    if entries.is_empty() {
        let pages = |offset| file.read_up_to(offset, SECTOR).ok().filter(|page| page.len() == SECTOR);
        note = match judge(&log, header, &pages) {
            Unfinished::Torn { flushed_bytes } if flushed_bytes > length_bytes => return Err(is_cut(flushed_bytes)),
            Unfinished::Torn { .. } => TORN,
            // QEMU names a new log in the header before it writes the first entry, and ended in between.
            Unfinished::Empty => EMPTY,
            Unfinished::Marks(bytes) => {
                entries.extend(Entry::of(bytes));
                READ
            }
            Unfinished::Damaged => READ,
        };
        if note == READ && entries.is_empty() {
            let advice = "attach it once to the hypervisor that wrote it, or take a copy";
            return Err(file.unusable(format!("is damaged: its log has entries, and no whole sequence: {advice}")));
        }
    }
    let mut logged = Logged::new(length_bytes);
    for entry in &entries {
        if entry.start.flushed_bytes > length_bytes {
            return Err(is_cut(entry.start.flushed_bytes));
        }
        logged.extend_to(entry.start.last_bytes).map_err(|problem| file.unusable(problem))?;
        entry.replay(&mut logged, header.log).map_err(|problem| file.unusable(problem))?;
    }
    file.put_in_front(logged);
    Ok(Some(note))
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
            let follows = last.is_none_or(|(sequence, _)| sequence.checked_add(1) == Some(entry.start.sequence));
            total_bytes += entry.bytes.len();
            if !follows || total_bytes > log.len() {
                break;
            }
            last = Some((entry.start.sequence, entry.start.tail));
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
    /// The entry at a place in the log; `None` if there is none that is whole. An error if more is to be checked than
    /// there can be.
    fn parse(log: &[u8], at: usize, header: &Header, left_bytes: &mut u64) -> Result<Option<Self>, String> {
        let Some(start) = Start::read(log, at).filter(|start| start.is_of(header)) else { return Ok(None) };
        let Some(length) = start.entry_length(log) else { return Ok(None) };
        let problem = "is damaged: entries of its log overlap";
        *left_bytes = left_bytes.checked_sub(length as u64).ok_or(problem)?;
        Ok(start.entry_bytes(log).and_then(Self::of))
    }

    /// The entry that these bytes are, if it is whole.
    fn of(bytes: Vec<u8>) -> Option<Self> {
        let entry = Self { start: Start::read(&bytes, 0)?, bytes };
        (has_right_checksum(&entry.bytes) && entry.is_whole()).then_some(entry)
    }

    /// Where data begin.
    fn data_offset(&self) -> Option<usize> {
        self.start.data_offset()
    }

    fn descriptor(&self, index: usize) -> Fields<'_> {
        let start = ENTRY_HEADER_BYTES + index * DESCRIPTOR_BYTES;
        Fields(self.bytes.get(start..start + DESCRIPTOR_BYTES).unwrap_or_default())
    }

    /// Whether every part of it was written with it.
    fn is_whole(&self) -> bool {
        let Some(mut data) = self.data_offset() else { return false };
        (0..self.start.descriptors).all(|index| {
            let descriptor = self.descriptor(index);
            let is_own = descriptor.le64(24) == Ok(self.start.sequence);
            if descriptor.begins_with(b"zero") {
                return is_own;
            }
            let sector = Fields(self.bytes.get(data..data + SECTOR).unwrap_or_default());
            data += SECTOR;
            let (high, low) = (sector.le32(4), sector.le32(SECTOR - 4));
            let is_of_it = high == Ok((self.start.sequence >> 32) as u32) && low == Ok(self.start.sequence as u32);
            is_own && descriptor.begins_with(b"desc") && sector.begins_with(b"data") && is_of_it
        })
    }

    /// The error goes on after the image's path.
    fn replay(&self, logged: &mut Logged, log: (u64, u64)) -> Result<(), String> {
        let mut data = self.data_offset().unwrap_or(self.bytes.len());
        for index in 0..self.start.descriptors {
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
