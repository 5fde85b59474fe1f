//! What of a disk cannot be read while it is converted, where the rest of it is wanted all the same.

use blockyard_block::RequestError;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

/// Ranges that are remembered; of more, only how many bytes they have.
const RANGES_MAX: usize = 1 << 16;

/// A range of a disk that could not be read, and was zeros from then on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LostRange {
    /// Where it begins.
    pub offset_bytes: u64,
    /// How long it is.
    pub length_bytes: u64,
    /// Why its first block could not be read.
    pub reason: RequestError,
}

/// All of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// In the order of the disk, each as long as it can be; the first that were met, where they are very many.
    pub ranges: Vec<LostRange>,
    /// Bytes in all.
    pub bytes: u64,
}

/// Gathers them, in whichever order they are met.
#[derive(Default)]
pub(super) struct Losses(Mutex<Gathered>);

#[derive(Default)]
struct Gathered {
    /// By where they begin: where they end, and why.
    ranges: BTreeMap<u64, (u64, RequestError)>,
    bytes: u64,
}

impl Losses {
    pub(super) fn hear(&self, lost: Range<u64>, reason: RequestError) {
        let Gathered { ranges, bytes } = &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *bytes = bytes.saturating_add(lost.end - lost.start);
        if let Some((_, (end, _))) = ranges.range_mut(..=lost.start).next_back()
            && *end == lost.start
        {
            *end = lost.end;
        } else if ranges.len() < RANGES_MAX {
            ranges.insert(lost.start, (lost.end, reason));
        }
    }

    pub(super) fn end(self) -> Lost {
        let Gathered { ranges, bytes } = self.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        let mut joined: Vec<LostRange> = Vec::new();
        for (offset_bytes, (end, reason)) in ranges {
            match joined.last_mut() {
                Some(last) if last.offset_bytes + last.length_bytes == offset_bytes => {
                    last.length_bytes = end - last.offset_bytes;
                }
                _ => joined.push(LostRange { offset_bytes, length_bytes: end - offset_bytes, reason }),
            }
        }
        Lost { ranges: joined, bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_touches_is_one_range_in_whichever_order_it_came() {
        let losses = Losses::default();
        let reason = RequestError::Os(5);
        [512..1024, 4096..4608, 0..512, 1024..1536].into_iter().for_each(|range| losses.hear(range, reason));
        let range = |offset_bytes, length_bytes| LostRange { offset_bytes, length_bytes, reason };
        assert_eq!(losses.end(), Lost { ranges: vec![range(0, 1536), range(4096, 512)], bytes: 2048 });
    }
}
