//! The only entry of a log, of which a part is not there.
//!
//! What an entry changes is changed when all of the entry is stable, and entries that still count are never written
//! over. So where a log has one entry, which says that it is the first that counts, and was not written to its end,
//! nothing of it was done: the file is what it is without a log. A power cut leaves that, and so does a writer that is
//! killed.
//!
//! An entry that was whole once and was damaged afterwards may have been done in part, and must not be taken for one
//! of these. What tells them apart are the marks in each part of an entry: its number in every descriptor, and at both
//! ends of every sector of data. A part that was not written shows what was there before: zeros, or a sector of an
//! earlier log. And whatever the marks are: where the checksum is right as soon as they are, all bytes of the entry are
//! known, and doing it is right in both cases. So no damage to marks alone, nor to one place elsewhere, makes an entry
//! that was whole look as if it had not been.
//!
//! QEMU begins each log with the same number in the same place, so that a sector of an earlier log has the marks of the
//! one that was to be there. What it holds was done long ago: of its page, the file has all that it says, and no single
//! bit is what the checksum misses.

use super::super::fields::Fields;
use super::MIB;
use super::header::{Header, has_right_checksum};
use super::log::{DESCRIPTOR_BYTES, ENTRY_HEADER_BYTES, SECTOR, Start};

/// The least that a disk writes, or does not.
const UNIT: usize = 512;

/// What a log is that has no sequence of whole entries.
pub(super) enum Unfinished {
    /// Nothing was written to it.
    Empty,
    /// Its only entry was not written to its end, and nothing of it was done.
    Torn { flushed_bytes: u64 },
    /// Of its only entry no more than marks are missing: this is all of it.
    Marks(Vec<u8>),
    /// It may have held what is missing now.
    Damaged,
}

/// Reads a page of the file as it is without the log.
pub(super) type Pages<'a> = &'a dyn Fn(u64) -> Option<Vec<u8>>;

/// Looks at a log that has no sequence of whole entries.
pub(super) fn judge(log: &[u8], header: &Header, pages: Pages<'_>) -> Unfinished {
    let is_of_log = |at: &usize| Start::read(log, *at).is_some_and(|start| start.is_of(header));
    let mut places = (0..log.len()).step_by(SECTOR).filter(is_of_log);
    match (places.next(), places.next()) {
        (None, _) => without_start(log, header),
        (Some(at), None) => alone(log, at, pages).unwrap_or(Unfinished::Damaged),
        _ => Unfinished::Damaged,
    }
}

/// A log of which no entry begins anywhere; or the sector in which one does was damaged.
fn without_start(log: &[u8], header: &Header) -> Unfinished {
    // What entries of earlier logs lie over each other is written over in parts: no more is looked at than there is.
    let mut left_bytes = log.len();
    for at in (0..log.len()).step_by(SECTOR) {
        let Some(start) = Start::read(log, at) else { continue };
        if !start.has_signature && start.log_id != header.log_id {
            continue;
        }
        let length = start.entry_length(log);
        let Some(rest) = length.and_then(|length| left_bytes.checked_sub(length)) else { continue };
        left_bytes = rest;
        let Some(mut bytes) = start.entry_bytes(log) else { continue };
        bytes[..4].copy_from_slice(b"loge");
        bytes[32..48].copy_from_slice(&header.log_id);
        if has_right_checksum(&bytes) {
            return if start.tail == at { Unfinished::Marks(bytes) } else { Unfinished::Damaged };
        }
    }
    Unfinished::Empty
}

/// The entry that begins at a place, and no other. `None` if it may have been whole once.
fn alone(log: &[u8], at: usize, pages: Pages<'_>) -> Option<Unfinished> {
    let start = Start::read(log, at)?;
    let bytes = start.entry_bytes(log)?;
    let data_offset = start.data_offset()?;
    if start.tail != at || start.descriptors == 0 || data_offset > bytes.len() {
        return None;
    }
    // Where the first descriptor has another number than the entry, either may be the damaged one.
    let number = Fields(&bytes).bytes::<8>(ENTRY_HEADER_BYTES + 24).ok()?;
    let mut renumbered = bytes.clone();
    renumbered[16..24].copy_from_slice(&number);
    if renumbered != bytes && has_right_checksum(&renumbered) {
        return Some(Unfinished::Marks(renumbered));
    }
    let mut parts = Parts { start: &start, restored: bytes.clone(), bytes, missing: 0 };
    let (mut places, mut unknown) = (Vec::new(), 0);
    for index in 0..start.descriptors {
        let at = ENTRY_HEADER_BYTES + index * DESCRIPTOR_BYTES;
        match parts.descriptor(at)? {
            Some(true) => places.push(Fields(&parts.bytes).le64(at + 16).ok()?),
            Some(false) => {}
            None => unknown += 1,
        }
    }
    let sectors = (parts.bytes.len() - data_offset) / SECTOR;
    if !(places.len()..=places.len() + unknown).contains(&sectors) {
        return None;
    }
    for offset in (data_offset..parts.bytes.len()).step_by(SECTOR) {
        parts.sector(offset)?;
    }
    let torn = Unfinished::Torn { flushed_bytes: start.flushed_bytes };
    if parts.missing == 0 {
        let mut sectors = parts.bytes[data_offset..].chunks(SECTOR).zip(places);
        let is_old = sectors.all(|(sector, place)| pages(place).is_some_and(|page| is_done(sector, &page)));
        return (is_old && data_offset < parts.bytes.len() && !misses_a_bit(&parts.bytes)).then_some(torn);
    }
    if unknown > 0 {
        // Descriptors are at the end of those that there are. Were they never there, the number of them is damaged.
        let count = (start.descriptors - unknown) as u32;
        parts.restored[24..28].copy_from_slice(&count.to_le_bytes());
    }
    Some(if has_right_checksum(&parts.restored) { Unfinished::Marks(parts.restored) } else { torn })
}

/// Whether a page has all that a sector of data says of it. Entries of a table that name no place say nothing: blocks
/// get theirs one after the other.
fn is_done(sector: &[u8], page: &[u8]) -> bool {
    let words = |bytes: &[u8]| -> Vec<u64> {
        let words = bytes.get(8..SECTOR - 4).unwrap_or_default().chunks(8);
        words.map(|word| word.iter().rev().fold(0, |number, &byte| (number << 8) | u64::from(byte))).collect()
    };
    let (said, there) = (words(sector), words(page));
    said.len() == there.len() && said.iter().zip(&there).all(|(said, there)| said == there || *said < MIB)
}

/// Whether the checksum of an entry, which is wrong, would be right if one bit were another.
fn misses_a_bit(bytes: &[u8]) -> bool {
    // CRC-32C's polynomial: what the last bit of all changes of a checksum. Each bit before it changes what comes of
    // that by another step.
    const POLYNOMIAL: u32 = 0x82f6_3b78;
    let mut whole = bytes.to_vec();
    whole[4..8].fill(0);
    let stored = Fields(bytes).le32(4).unwrap_or(0);
    let difference = crc32c::crc32c(&whole) ^ stored;
    let mut change = 1_u32;
    let mut steps = (0..bytes.len() * 8).map(|_| {
        change = (change >> 1) ^ if change & 1 == 1 { POLYNOMIAL } else { 0 };
        change
    });
    difference.count_ones() == 1 || steps.any(|change| change == difference)
}

/// The marks of an entry.
struct Parts<'a> {
    start: &'a Start,
    bytes: Vec<u8>,
    /// The same with all marks.
    restored: Vec<u8>,
    /// Marks that are not there.
    missing: usize,
}

impl Parts<'_> {
    /// Whether a descriptor is of a page of data; the inner `None` if it was not written: what is damaged is something
    /// else.
    fn descriptor(&mut self, at: usize) -> Option<Option<bool>> {
        let number = self.start.sequence.to_le_bytes();
        if at >= SECTOR && self.is_of_another(at / SECTOR * SECTOR) {
            self.missing += 1;
            return Some(None);
        }
        for (signature, is_page) in [(b"desc", true), (b"zero", false)] {
            if self.bytes[at..].starts_with(signature) {
                self.mark(at + 24, &number)?;
                return Some(Some(is_page));
            }
        }
        // Cut off within its signature, or in front of it.
        let is_cut = [b"desc", b"zero"].into_iter().any(|signature| self.is_cut(at, signature));
        self.missing += 1;
        is_cut.then_some(None)
    }

    /// A sector of data.
    fn sector(&mut self, at: usize) -> Option<()> {
        let number = self.start.sequence;
        let (high, low) = (((number >> 32) as u32).to_le_bytes(), (number as u32).to_le_bytes());
        let first = [*b"data", high].concat();
        if self.is_of_another(at) {
            self.missing += 1;
            self.restored[at..at + 8].copy_from_slice(&first);
            self.restored[at + SECTOR - 4..at + SECTOR].copy_from_slice(&low);
            return Some(());
        }
        self.mark(at, &first)?;
        self.mark(at + SECTOR - 4, &low)
    }

    /// A mark, which is there, or was not written.
    fn mark(&mut self, at: usize, mark: &[u8]) -> Option<()> {
        if self.bytes[at..].starts_with(mark) {
            return Some(());
        }
        self.missing += 1;
        self.restored[at..at + mark.len()].copy_from_slice(mark);
        self.is_cut(at, mark).then_some(())
    }

    /// Whether zeros follow, as far as a disk writes at once, from where a mark is no longer there.
    fn is_cut(&self, at: usize, mark: &[u8]) -> bool {
        let there = self.bytes[at..].iter().zip(mark).take_while(|(byte, wanted)| byte == wanted).count();
        let unit_end = (at / UNIT + 1) * UNIT;
        self.bytes[at + there..unit_end].iter().all(|&byte| byte == 0)
    }

    /// Whether the sector at an offset is one of another entry, which was there before.
    fn is_of_another(&self, at: usize) -> bool {
        let sector = Fields(&self.bytes[at..at + SECTOR]);
        let is_another = |number: u64| number != 0 && number != self.start.sequence;
        if sector.begins_with(b"data") {
            let (high, low) = (sector.le32(4).unwrap_or(0), sector.le32(SECTOR - 4).unwrap_or(0));
            return is_another((u64::from(high) << 32) | u64::from(low));
        }
        if sector.begins_with(b"loge") {
            return sector.le64(16).is_ok_and(|number| number != 0) && sector.bytes(32) != Ok([0; 16]);
        }
        let number = sector.le64(24).unwrap_or(0);
        let are_descriptors = self.bytes[at..at + SECTOR].chunks(DESCRIPTOR_BYTES).all(|descriptor| {
            let is_one = descriptor.starts_with(b"desc") || descriptor.starts_with(b"zero");
            let is_of_it = Fields(descriptor).le64(24) == Ok(number);
            (is_one && is_of_it) || descriptor.iter().all(|&byte| byte == 0)
        });
        is_another(number) && are_descriptors
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::tests::samples::vhdx_image::{Change, LogEntry};
    use super::*;
    use bolero::TypeGenerator;

    const LOG_ID: [u8; 16] = [3; 16];
    const LOG_BYTES: usize = 64 << 10;
    const HEADER: Header = Header { sequence: 1, data_write_id: [1; 16], log_id: LOG_ID, log: (1 << 20, 1 << 20) };

    /// Zeros, a page that is zeros but for its beginning, and one that is full.
    fn changes() -> Vec<Change> {
        let page = |offset, filled: usize| Change::Page {
            offset,
            bytes: (0..4096).map(|n| if n < filled { n as u8 | 1 } else { 0 }).collect(),
        };
        vec![page(4 << 20, 4096), Change::Zeros { offset: 3 << 20, length: 4096 }, page(5 << 20, 600)]
    }

    fn entry(sequence: u64, log_id: [u8; 16], changes: Vec<Change>) -> Vec<u8> {
        LogEntry { sequence, tail: 0, log_id, flushed_bytes: 6 << 20, last_bytes: 6 << 20, changes }.bytes()
    }

    /// What there was before an entry: nothing; entries of earlier logs, the last of which has its number, and says
    /// less of the same pages.
    fn earlier_logs() -> Vec<Vec<u8>> {
        let zeros = vec![0; LOG_BYTES];
        let with = |bytes: &[u8]| [bytes, &zeros[bytes.len()..]].concat();
        let page = |n: u64| Change::Page { offset: n << 20, bytes: vec![n as u8; 4096] };
        let one = entry(4, [2; 16], (10..13).map(page).collect());
        let many = (10..200).map(|n| Change::Zeros { offset: n << 20, length: 4096 }).collect();
        let before = |n: u64| Change::Page { offset: n << 20, bytes: page_before(n << 20).unwrap() };
        let same = entry(5, [2; 16], vec![before(4), Change::Zeros { offset: 3 << 20, length: 4096 }, before(5)]);
        let lies = [with(&one), with(&entry(9, [2; 16], many)), with(&[&one[..4096], &one].concat()), with(&same)];
        [vec![zeros.clone()], lies.to_vec()].concat()
    }

    /// A page of the file before what the entry says is done.
    fn page_before(_: u64) -> Option<Vec<u8>> {
        Some((0..4096).map(|n| if (800..1600).contains(&n) { 7 } else { 0 }).collect())
    }

    /// And after it.
    fn page_after(place: u64) -> Option<Vec<u8>> {
        changes().into_iter().find_map(|change| match change {
            Change::Page { offset, bytes } if offset == place => Some(bytes),
            _ => None,
        })
    }

    /// A log in which these bytes were put where nothing else was.
    fn judged(log: &[u8], bytes: &[u8]) -> Unfinished {
        judge(&[bytes, &log[bytes.len()..]].concat(), &HEADER, &page_before)
    }

    /// A log that lies in zeros, cut at every byte.
    #[test]
    fn every_beginning_of_an_entry_is_one_of_which_nothing_was_done() {
        let zeros = Change::Zeros { offset: 3 << 20, length: 8192 };
        for changes in [changes(), vec![zeros.clone()], vec![zeros; 20]] {
            let whole = entry(5, LOG_ID, changes);
            for end in 0..whole.len() {
                match judged(&vec![0; LOG_BYTES], &whole[..end]) {
                    // Of its beginning, too little is there to know it, or of its end, nothing is missing.
                    Unfinished::Empty => assert!(end < 48, "{end}"),
                    Unfinished::Torn { flushed_bytes } => {
                        assert!(flushed_bytes <= 6 << 20);
                        assert!(end >= 48 && whole[end..].iter().any(|&byte| byte != 0), "{end}");
                    }
                    Unfinished::Marks(bytes) => assert!(end >= 64 && bytes == whole, "{end}"),
                    Unfinished::Damaged => assert!(whole[end..].iter().all(|&byte| byte == 0), "{end}"),
                }
            }
        }
    }

    /// In any order, as a disk writes them; over whatever earlier logs left.
    #[test]
    fn sectors_of_an_entry_that_were_not_written_are_known() {
        let whole = entry(5, LOG_ID, changes());
        for (number, before) in earlier_logs().into_iter().enumerate() {
            for written in 1..1 << (whole.len() / SECTOR) {
                let mut bytes = before[..whole.len()].to_vec();
                for n in (0..whole.len() / SECTOR).filter(|n| written >> n & 1 == 1) {
                    bytes[n * SECTOR..][..SECTOR].copy_from_slice(&whole[n * SECTOR..][..SECTOR]);
                }
                let is_right = match judged(&before, &bytes) {
                    Unfinished::Empty => written & 1 == 0,
                    Unfinished::Torn { .. } => written & 1 == 1 && bytes != whole,
                    // Whoever looks here has found that no entry is whole. Of a sector with the same marks as one that
                    // was written, nobody knows whether it is an earlier log's.
                    Unfinished::Damaged => bytes == whole || (number == 4 && written & 1 == 1 && written > 1),
                    Unfinished::Marks(_) => false,
                };
                assert!(is_right, "{written:b}");
            }
        }
    }

    /// Each bit of what says something, and one of some other bytes.
    #[test]
    fn an_entry_that_was_whole_is_not_taken_for_one_that_was_not() {
        let zeros = Change::Zeros { offset: 3 << 20, length: 8192 };
        for changes in [changes(), vec![zeros.clone()], vec![zeros; 20]] {
            let whole = entry(5, LOG_ID, changes);
            let before = vec![0; LOG_BYTES];
            for at in 0..whole.len() {
                let says_something = at % SECTOR < 256 || at % SECTOR >= SECTOR - 4;
                if !says_something && at % 5 > 0 {
                    continue;
                }
                for bit in if says_something { 0..8 } else { at % 8..at % 8 + 1 } {
                    let mut bytes = whole.clone();
                    bytes[at] ^= 1 << bit;
                    let log = [&bytes, &before[bytes.len()..]].concat();
                    for pages in [page_before, page_after] {
                        match judge(&log, &HEADER, &pages) {
                            Unfinished::Damaged => {}
                            Unfinished::Marks(restored) => assert!(restored == whole, "bit {bit} of {at}"),
                            Unfinished::Torn { .. } | Unfinished::Empty => panic!("bit {bit} of {at}"),
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn an_entry_that_is_not_alone_may_have_been_done() {
        let mut torn = entry(5, LOG_ID, changes());
        torn[4096..].fill(0);
        let next = entry(6, LOG_ID, changes());
        assert!(matches!(judged(&vec![0; LOG_BYTES], &[&torn[..], &next].concat()), Unfinished::Damaged));
        // One that says that others count, too, which are not there.
        torn[12..16].copy_from_slice(&8192_u32.to_le_bytes());
        assert!(matches!(judged(&vec![0; LOG_BYTES], &torn), Unfinished::Damaged));
        // Round the end, an entry is one, too.
        let mut log = vec![0; LOG_BYTES];
        let mut torn = entry(5, LOG_ID, changes());
        torn[12..16].copy_from_slice(&(LOG_BYTES as u32 - 4096).to_le_bytes());
        log[LOG_BYTES - 4096..].copy_from_slice(&torn[..4096]);
        assert!(
            matches!(judge(&log, &HEADER, &page_before), Unfinished::Torn { flushed_bytes } if flushed_bytes == 6 << 20)
        );
    }

    /// An entry, in parts of 512 bytes that were not written, and with bytes that were damaged, over an earlier log.
    #[derive(Clone, Debug, TypeGenerator)]
    struct Spoiled {
        earlier: u8,
        not_written: Vec<u8>,
        damaged: Vec<(u16, u8)>,
        is_checksum_right: bool,
    }

    #[test]
    fn fuzz_a_spoiled_entry_is_judged_and_never_whole_when_it_is_not() {
        let logs = earlier_logs();
        let whole = entry(5, LOG_ID, changes());
        blockyard_fuzz::check!(2000).with_type::<Spoiled>().for_each(|spoiled| {
            let before = &logs[usize::from(spoiled.earlier) % logs.len()];
            let mut bytes = whole.clone();
            for unit in spoiled.not_written.iter().map(|&unit| usize::from(unit) % (whole.len() / UNIT) * UNIT) {
                bytes[unit..unit + UNIT].copy_from_slice(&before[unit..unit + UNIT]);
            }
            for &(at, value) in &spoiled.damaged {
                bytes[usize::from(at) % whole.len()] = value;
            }
            if spoiled.is_checksum_right {
                super::super::header::set_checksum({
                    bytes[4..8].fill(0);
                    &mut bytes
                });
            }
            match judged(before, &bytes) {
                Unfinished::Marks(restored) => assert!(has_right_checksum(&restored)),
                Unfinished::Torn { .. } => assert!(bytes != whole),
                Unfinished::Empty | Unfinished::Damaged => {}
            }
        });
    }
}
