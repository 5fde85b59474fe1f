//! What a layer remembers of the requests that are with the disk below it.

/// A fixed number of values, each under a number that travels as the inner request's token: the caller's own tokens may
/// be anything, and the same one twice.
pub(super) struct Slots<T> {
    values: Box<[Option<T>]>,
    free: Vec<u32>,
}

impl<T> Slots<T> {
    pub(super) fn new(count: usize) -> Self {
        // The last is taken first: slot 0, whose memory is then the warmest.
        Self { values: (0..count).map(|_| None).collect(), free: (0..count as u32).rev().collect() }
    }

    pub(super) fn in_use(&self) -> usize {
        self.values.len() - self.free.len()
    }

    /// The value's number; `None` when there is no room.
    pub(super) fn insert(&mut self, value: T) -> Option<u64> {
        let slot = self.free.pop()?;
        self.values[slot as usize] = Some(value);
        Some(slot.into())
    }

    pub(super) fn get_mut(&mut self, number: u64) -> Option<&mut T> {
        self.values.get_mut(usize::try_from(number).ok()?)?.as_mut()
    }

    /// The value, whose number is free from now on; `None` for a number that is not in use.
    pub(super) fn take(&mut self, number: u64) -> Option<T> {
        let value = self.values.get_mut(usize::try_from(number).ok()?)?.take()?;
        self.free.push(number as u32);
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_good_for_one_value() {
        let mut slots = Slots::new(2);
        let (first, second) = (slots.insert('a').unwrap(), slots.insert('b').unwrap());
        assert_eq!((slots.insert('c'), slots.in_use()), (None, 2));
        assert_eq!((slots.take(first), slots.take(first)), (Some('a'), None));
        assert_eq!((slots.get_mut(second).copied(), slots.take(7), slots.in_use()), (Some('b'), None, 1));
    }
}
