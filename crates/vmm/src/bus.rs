//! Which device answers at which address.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A device behind I/O ports. Offsets count from the start of the range it is attached at.
pub trait PortDevice: Send {
    /// Fills `data`: `data.len() / size` items, more than one for a repeated string instruction.
    fn read(&mut self, offset: u16, size: u8, data: &mut [u8]);
    /// Takes `data`, likewise.
    fn write(&mut self, offset: u16, size: u8, data: &[u8]);
}

/// A device behind memory addresses. Offsets count from the start of the range it is attached at.
pub trait MmioDevice: Send {
    /// Fills `data`: 1, 2, 4 or 8 bytes.
    fn read(&mut self, offset: u64, data: &mut [u8]);
    /// Takes `data`: 1, 2, 4 or 8 bytes.
    fn write(&mut self, offset: u64, data: &[u8]);
}

/// Devices behind a range of memory addresses, which lock themselves. Of a single one the lock is a [`Mutex`].
pub trait MmioRange: Send + Sync {
    /// Fills `data`: 1, 2, 4 or 8 bytes.
    fn read(&self, offset: u64, data: &mut [u8]);
    /// Takes `data`: 1, 2, 4 or 8 bytes.
    fn write(&self, offset: u64, data: &[u8]);
}

impl<D: MmioDevice> MmioRange for Mutex<D> {
    fn read(&self, offset: u64, data: &mut [u8]) {
        lock(self).read(offset, data);
    }

    fn write(&self, offset: u64, data: &[u8]) {
        lock(self).write(offset, data);
    }
}

/// Locks a device. One that panicked has taken its vCPU down; what it left behind is still only registers.
pub(crate) fn lock<D: ?Sized>(device: &Mutex<D>) -> MutexGuard<'_, D> {
    device.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The range is empty, wraps around, or overlaps one that is attached already.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("device range {start:#x}+{length:#x} is bad or taken")]
pub struct RangeTaken {
    start: u64,
    length: u64,
}

/// Devices by address. `D` is `Mutex<dyn PortDevice>` or `dyn MmioRange`.
///
/// A vCPU locks one device for one access. This is the control path: requests never come by here.
pub struct Bus<D: ?Sized> {
    ranges: BTreeMap<u64, (u64, Arc<D>)>,
}

impl<D: ?Sized> Default for Bus<D> {
    fn default() -> Self {
        Self { ranges: BTreeMap::new() }
    }
}

impl<D: ?Sized> Bus<D> {
    /// Attaches `device` at `length` addresses from `start`.
    ///
    /// # Errors
    /// [`RangeTaken`].
    pub fn attach(&mut self, start: u64, length: u64, device: Arc<D>) -> Result<(), RangeTaken> {
        let taken = RangeTaken { start, length };
        let Some(last) = start.checked_add(length.wrapping_sub(1)).filter(|_| length > 0) else { return Err(taken) };
        if let Some((&below, &(below_length, _))) = self.ranges.range(..=last).next_back()
            && below + (below_length - 1) >= start
        {
            return Err(taken);
        }
        self.ranges.insert(start, (length, device));
        Ok(())
    }

    /// The device at `address`, and the offset of `address` in its range.
    pub fn at(&self, address: u64) -> Option<(&D, u64)> {
        let (&start, (length, device)) = self.ranges.range(..=address).next_back()?;
        let offset = address - start;
        (offset < *length).then_some((&**device, offset))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Echo;

    impl MmioDevice for Echo {
        fn read(&mut self, offset: u64, data: &mut [u8]) {
            data.fill(offset as u8);
        }
        fn write(&mut self, _: u64, _: &[u8]) {}
    }

    fn echo() -> Arc<dyn MmioRange> {
        Arc::new(Mutex::new(Echo))
    }

    #[test]
    fn finds_the_device_and_the_offset_in_it() {
        let mut bus = Bus::<dyn MmioRange>::default();
        bus.attach(0x1000, 0x10, echo()).unwrap();
        assert_eq!(bus.at(0x100f).map(|(_, offset)| offset), Some(15));
        assert!(bus.at(0x1010).is_none());
        assert!(bus.at(0xfff).is_none());
    }

    #[test]
    fn refuses_ranges_that_overlap_are_empty_or_wrap() {
        let mut bus = Bus::<dyn MmioRange>::default();
        bus.attach(0x1000, 0x10, echo()).unwrap();
        for (start, length) in [(0x100f, 1), (0xff0, 0x11), (0x0, 0x2000), (0x2000, 0), (u64::MAX, 2)] {
            assert_eq!(bus.attach(start, length, echo()), Err(RangeTaken { start, length }), "{start:#x}+{length:#x}");
        }
        bus.attach(0x1010, 1, echo()).unwrap();
        bus.attach(u64::MAX, 1, echo()).unwrap();
    }
}
