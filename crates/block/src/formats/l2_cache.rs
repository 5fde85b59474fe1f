//! Slices of the tables that say where an image's bytes lie (L2 tables, block allocation tables), as many as a number
//! of bytes holds: read by any number of threads without a lock, changed by one.
//!
//! A slot has a version, which is odd while the slot changes: whoever reads looks at it before and after, and takes
//! nothing that changed meanwhile (a sequence lock). Everything is atomic, so a torn look is a wrong number and never
//! worse.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Mutex, OnceLock, PoisonError};

/// Slots that a slice may be in.
const WAYS: usize = 8;

/// A slice of an image's tables. Never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SliceKey(u64);

impl SliceKey {
    /// A chain's images are few, and a disk's bytes are at most 2^56, of which a slice covers 2^15 or more.
    pub(super) fn new(image: usize, slice: u64) -> Self {
        Self((image as u64 + 1) << 48 | slice)
    }
}

pub(super) struct L2Cache {
    sets: Box<[Set]>,
    slice_entries: usize,
    /// How many slices were put in: the time for those who look.
    time: AtomicU64,
    /// Held by whoever changes anything.
    changing: Mutex<()>,
}

#[derive(Default)]
#[repr(align(64))]
struct Set {
    /// Of the slots; 0 is none.
    keys: [AtomicU64; WAYS],
    slots: [Slot; WAYS],
}

#[derive(Default)]
struct Slot {
    version: AtomicU32,
    /// When it was last looked at.
    last_look: AtomicU64,
    /// Whether there is a table for the slice.
    has_table: AtomicBool,
    /// There from the slot's first use on.
    entries: OnceLock<Box<[AtomicU64]>>,
}

impl L2Cache {
    /// At most `bytes` of entries, and no more than `slices` slices, of up to `slice_entries` each, take.
    pub(super) fn new(bytes: usize, slices: u64, slice_entries: usize) -> Self {
        let wanted = usize::try_from(slices).unwrap_or(usize::MAX).div_ceil(WAYS);
        let possible = (bytes / (slice_entries.max(1) * 8 * WAYS)).max(1);
        // A power of two, not more than possible.
        let sets = 1 << wanted.min(possible).checked_next_power_of_two().unwrap_or(possible).min(possible).ilog2();
        Self {
            sets: (0..sets).map(|_| Set::default()).collect(),
            slice_entries,
            time: AtomicU64::new(0),
            changing: Mutex::new(()),
        }
    }

    fn set_of(&self, SliceKey(key): SliceKey) -> usize {
        // Slices that follow each other go to different sets; so do the same ones of different images.
        let spread = (key >> 48).wrapping_mul(0x9e37_79b9) ^ key;
        spread as usize & (self.sets.len() - 1)
    }

    fn place_of(&self, key: SliceKey) -> Option<(&Set, usize)> {
        let set = &self.sets[self.set_of(key)];
        let way = set.keys.iter().position(|there| there.load(Ordering::Relaxed) == key.0)?;
        Some((set, way))
    }

    /// What `look` makes of a slice's entries, or of there being no table for them. `None` when the slice is not here,
    /// or changes at this moment. What `look` sees may be torn; then what it makes of it is dropped.
    pub(super) fn look<R>(&self, key: SliceKey, look: impl FnOnce(Option<&[AtomicU64]>) -> R) -> Option<R> {
        let (set, way) = self.place_of(key)?;
        let slot = &set.slots[way];
        let version = slot.version.load(Ordering::Acquire);
        if !version.is_multiple_of(2) || set.keys[way].load(Ordering::Relaxed) != key.0 {
            return None;
        }
        let has_table = slot.has_table.load(Ordering::Relaxed);
        let entries = if has_table { Some(&**slot.entries.get()?) } else { None };
        let seen = look(entries);
        fence(Ordering::Acquire);
        if slot.version.load(Ordering::Relaxed) != version {
            return None;
        }
        // Written only when it differs, so that threads that look at the same slice share it.
        let now = self.time.load(Ordering::Relaxed);
        if slot.last_look.load(Ordering::Relaxed) != now {
            slot.last_look.store(now, Ordering::Relaxed);
        }
        Some(seen)
    }

    pub(super) fn holds(&self, key: SliceKey) -> bool {
        self.place_of(key).is_some()
    }

    /// Puts a slice in, or what it is now, in the place of what was not used for long. `None`: there is no table for
    /// it.
    pub(super) fn put(&self, key: SliceKey, entries: Option<&[u64]>) {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.time.fetch_add(1, Ordering::Relaxed) + 1;
        let set = &self.sets[self.set_of(key)];
        let way = match self.place_of(key) {
            Some((_, way)) => way,
            None => set.way_to_use(),
        };
        set.change(way, || {
            set.keys[way].store(key.0, Ordering::Relaxed);
            let slot = &set.slots[way];
            slot.last_look.store(now, Ordering::Relaxed);
            slot.has_table.store(entries.is_some(), Ordering::Relaxed);
            if let Some(entries) = entries {
                let words = slot.entries.get_or_init(|| (0..self.slice_entries).map(|_| AtomicU64::new(0)).collect());
                words.iter().zip(entries).for_each(|(word, &entry)| word.store(entry, Ordering::Relaxed));
            }
        });
    }

    pub(super) fn remove(&self, key: SliceKey) {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((set, way)) = self.place_of(key) {
            set.change(way, || set.keys[way].store(0, Ordering::Relaxed));
        }
    }

    /// Removes what is there of an image.
    pub(super) fn remove_image(&self, image: usize) {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        for set in &self.sets {
            for way in 0..WAYS {
                if set.keys[way].load(Ordering::Relaxed) >> 48 == image as u64 + 1 {
                    set.change(way, || set.keys[way].store(0, Ordering::Relaxed));
                }
            }
        }
    }
}

impl Set {
    /// A free slot, or the one that nobody has looked at for the longest time.
    fn way_to_use(&self) -> usize {
        let age = |way: &usize| match self.keys[*way].load(Ordering::Relaxed) {
            0 => 0,
            _ => self.slots[*way].last_look.load(Ordering::Relaxed),
        };
        (0..WAYS).min_by_key(age).unwrap_or(0)
    }

    /// Changes a slot. The caller holds the lock: two changes at once would not be noticed by those who look.
    fn change(&self, way: usize, change: impl FnOnce()) {
        let version = &self.slots[way].version;
        let old = version.load(Ordering::Relaxed);
        version.store(old.wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release);
        change();
        version.store(old.wrapping_add(2), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of entries that it holds at most.
    fn limit_bytes(cache: &L2Cache) -> usize {
        cache.sets.len() * WAYS * cache.slice_entries * 8
    }

    fn first_of(cache: &L2Cache, key: SliceKey) -> Option<Option<u64>> {
        cache.look(key, |entries| entries.map(|entries| entries[0].load(Ordering::Relaxed)))
    }

    #[test]
    fn what_is_used_stays_and_memory_is_bounded() {
        let cache = L2Cache::new(1 << 20, u64::MAX, 512);
        assert_eq!(limit_bytes(&cache), 1 << 20);
        let favourite = SliceKey::new(3, 77);
        for slice in 0..10_000 {
            cache.put(SliceKey::new(0, slice), Some(&[slice; 512]));
            assert_eq!(first_of(&cache, SliceKey::new(0, slice)), Some(Some(slice)));
            if first_of(&cache, favourite).is_none() {
                assert_eq!(slice, 0, "it was put away though it is looked at all the time");
                cache.put(favourite, None);
            }
        }
        assert_eq!(first_of(&cache, favourite), Some(None));
        let held = (0..10_000).filter(|&slice| cache.holds(SliceKey::new(0, slice))).count();
        assert_eq!(held, 255, "256 slots, and one is the favourite's");
        cache.remove_image(0);
        assert!((0..10_000).all(|slice| !cache.holds(SliceKey::new(0, slice))) && cache.holds(favourite));
        cache.remove(favourite);
        assert!(!cache.holds(favourite));
    }

    #[test]
    fn a_small_disk_takes_little() {
        assert_eq!(limit_bytes(&L2Cache::new(8 << 20, 1, 512)), 8 * 4096);
        assert_eq!(limit_bytes(&L2Cache::new(8 << 20, 0, 64)), 8 * 512);
        assert_eq!(limit_bytes(&L2Cache::new(0, 100, 64)), 8 * 512);
        assert_eq!(limit_bytes(&L2Cache::new(3 << 20, u64::MAX, 512)), 2 << 20);
    }

    #[test]
    fn nobody_sees_half_a_change() {
        let cache = L2Cache::new(4096, 8, 64);
        let (one, other) = (SliceKey::new(0, 1), SliceKey::new(1, 2));
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) {
                        let seen = cache.look(one, |entries| {
                            entries.map(|entries| {
                                entries.iter().map(|word| word.load(Ordering::Relaxed)).collect::<Vec<_>>()
                            })
                        });
                        if let Some(Some(entries)) = seen {
                            assert!(entries.iter().all(|entry| *entry == entries[0] && entry % 2 == 0), "{entries:?}");
                        }
                    }
                });
            }
            for turn in 0..20_000 {
                cache.put(one, Some(&[turn * 2; 64]));
                cache.put(other, Some(&[turn * 2 + 1; 64]));
                if turn % 3 == 0 {
                    cache.remove(one);
                }
            }
            is_over.store(true, Ordering::Relaxed);
        });
    }
}
