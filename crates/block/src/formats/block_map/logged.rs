//! Changes to an image's file that are in its log only, and are read in the place of what lies in the file, or written
//! to it.

use std::collections::BTreeMap;
use std::ops::Range;

pub(super) const PAGE_BYTES: usize = 4096;

/// A page as it was to be written; `None`: zeros, for as long as its range is.
pub(super) type Change = Option<Box<[u8; PAGE_BYTES]>>;

/// Changes by where they begin, none over another. A change that is no zeros is of a page.
#[derive(Debug)]
pub(super) struct Logged {
    changes: BTreeMap<u64, (u64, Change)>,
    /// Where the file was to end.
    end_bytes: u64,
}

impl Logged {
    /// None, of a file of `length_bytes`.
    pub(super) fn new(length_bytes: u64) -> Self {
        Self { changes: BTreeMap::new(), end_bytes: length_bytes }
    }

    pub(super) fn end_bytes(&self) -> u64 {
        self.end_bytes
    }

    /// The file was to be as long as this at least: what is new is zeros. The error goes on after the image's path.
    pub(super) fn extend_to(&mut self, end_bytes: u64) -> Result<(), String> {
        if i64::try_from(end_bytes).is_err() {
            return Err("is damaged: its log says that it is longer than a file can be".into());
        }
        self.end_bytes = self.end_bytes.max(end_bytes);
        Ok(())
    }

    /// Puts a change over those before it. The range is of whole pages, and one page if the change is no zeros.
    pub(super) fn put(&mut self, range: Range<u64>, change: Change) {
        if range.is_empty() {
            return;
        }
        // What begins in front of it, and reaches into it, are zeros: a page is within the range or outside.
        if let Some((&start, (end, _))) = self.changes.range_mut(..range.start).next_back()
            && *end > range.start
        {
            let old_end = std::mem::replace(end, range.start);
            debug_assert!(start < range.start);
            if old_end > range.end {
                self.changes.insert(range.end, (old_end, None));
            }
        }
        while let Some((&start, _)) = self.changes.range(range.clone()).next() {
            if let Some((end, _)) = self.changes.remove(&start)
                && end > range.end
            {
                self.changes.insert(range.end, (end, None));
            }
        }
        self.changes.insert(range.start, (range.end, change));
    }

    /// All of them, each with its range.
    pub(super) fn changes(&self) -> impl Iterator<Item = (Range<u64>, Option<&[u8; PAGE_BYTES]>)> {
        self.changes.iter().map(|(&start, (end, change))| (start..*end, change.as_deref()))
    }

    /// The first changed range of a range.
    pub(super) fn first_in(&self, range: Range<u64>) -> Option<Range<u64>> {
        let reaches_in = self.changes.range(..=range.start).next_back().filter(|(_, (end, _))| *end > range.start);
        let (&start, &(end, _)) = reaches_in.or_else(|| self.changes.range(range.clone()).next())?;
        Some(start.max(range.start)..end.min(range.end))
    }

    /// Changes bytes that were read at an offset.
    pub(super) fn change(&self, bytes: &mut [u8], offset: u64) {
        let end = offset.saturating_add(bytes.len() as u64);
        let before = self.changes.range(..offset).next_back();
        for (&start, (change_end, change)) in before.into_iter().chain(self.changes.range(offset..end)) {
            let common = start.max(offset)..(*change_end).min(end);
            if common.is_empty() {
                continue;
            }
            // Both are within what they are cut to.
            let place = (common.start - offset) as usize..(common.end - offset) as usize;
            let Some(place) = bytes.get_mut(place) else { continue };
            match change {
                None => place.fill(0),
                Some(page) => {
                    let within = (common.start - start) as usize;
                    let page = page.get(within..within + place.len());
                    page.into_iter().for_each(|page| place.copy_from_slice(page));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Against a plain array of pages.
    #[test]
    fn later_changes_are_put_over_earlier_ones() {
        const PAGES: usize = 32;
        let mut state = 1_u64;
        let mut below = |bound: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % bound
        };
        for _ in 0..300 {
            let (mut logged, mut model) = (Logged::new(0), [None; PAGES]);
            for step in 0..below(12) {
                let (start, value) = (below(PAGES as u64), step as u8 + 1);
                let is_page = below(2) == 0;
                let pages = if is_page { 1 } else { 1 + below(PAGES as u64 - start) };
                let change = is_page.then(|| Box::new([value; PAGE_BYTES]));
                logged.put(start * 4096..(start + pages) * 4096, change);
                model[start as usize..][..pages as usize].fill(Some(if is_page { value } else { 0 }));
            }
            let mut bytes = vec![0xee; PAGES * PAGE_BYTES];
            logged.change(&mut bytes, 0);
            let wanted: Vec<u8> = model.iter().flat_map(|page| [page.unwrap_or(0xee); PAGE_BYTES]).collect();
            assert!(bytes == wanted);
            let (offset, length) = (below(100_000) as usize, 1 + below(20_000) as usize);
            let mut part = vec![0xee; length];
            logged.change(&mut part, offset as u64);
            assert!(part == wanted[offset..][..length]);
            for (page, value) in model.into_iter().enumerate() {
                let range = page as u64 * 4096 + 1..(page as u64 + 1) * 4096;
                let found = logged.first_in(range.clone());
                assert_eq!(found, value.map(|_| range), "{page}");
            }
        }
    }
}
