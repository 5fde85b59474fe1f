//! A function's configuration space: the type 0 header and a list of capabilities (PCI Local Bus 3.0 §6.1, §6.2).

use super::{Bar, Identity};
use std::ops::Range;

const BYTES: usize = 256;
const COMMAND: usize = 0x04;
const COMMAND_MEMORY: u16 = 1 << 1;
const COMMAND_BUS_MASTER: u16 = 1 << 2;
const COMMAND_PIN_OFF: u16 = 1 << 10;
const STATUS: usize = 0x06;
const STATUS_CAPABILITIES: u16 = 1 << 4;
const REVISION: usize = 0x08;
const CACHE_LINE: usize = 0x0c;
const BARS: usize = 0x10;
const SUBSYSTEM: usize = 0x2c;
const FIRST_CAPABILITY: usize = 0x34;
const INTERRUPT_LINE: usize = 0x3c;
const HEADER_BYTES: usize = 0x40;
/// What follows the link of a window to BARs, up to the end of its data.
const BAR_WINDOW_BODY_BYTES: usize = 18;

/// Base address registers of a function.
pub(super) const BARS_MAX: u8 = 6;

/// An entry of the list of capabilities.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capability {
    /// Which kind.
    pub id: u8,
    /// What follows the identity and the link to the next.
    pub body: Vec<u8>,
    /// Which bits of the body the guest may change; those that it is too short for, it may not.
    pub writable: Vec<u8>,
    /// Whether it is a window to the function's BARs for who cannot reach them by memory addresses, as
    /// VIRTIO_PCI_CAP_PCI_CFG is (virtio 1.2 §4.1.4.9): BAR, offset and length at 4, 8 and 12 from the capability's
    /// start, and at 16 the data.
    pub is_bar_window: bool,
}

/// Where a window to BARs points now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BarWindow {
    pub(super) bar: u8,
    pub(super) offset: u32,
    pub(super) length: usize,
    /// Where in the configuration space its data are.
    pub(super) data: usize,
}

/// The 256 bytes of a function. Writes change the bits that are the guest's and no others.
#[derive(Debug)]
pub(super) struct ConfigSpace {
    registers: [u8; BYTES],
    writable: [u8; BYTES],
    bars: Vec<Bar>,
    /// Where the link to the next capability is to be written.
    link: usize,
    end: usize,
    bar_window: Option<usize>,
}

impl ConfigSpace {
    pub(super) fn new(identity: &Identity) -> Self {
        let &Identity { vendor, device, revision, class, subsystem_vendor, subsystem } = identity;
        let mut space = Self {
            registers: [0; BYTES],
            writable: [0; BYTES],
            bars: Vec::new(),
            link: FIRST_CAPABILITY,
            end: HEADER_BYTES,
            bar_window: None,
        };
        space.put(0, &vendor.to_le_bytes());
        space.put(2, &device.to_le_bytes());
        space.put(REVISION, &(class << 8 | u32::from(revision)).to_le_bytes());
        space.put(SUBSYSTEM, &subsystem_vendor.to_le_bytes());
        space.put(SUBSYSTEM + 2, &subsystem.to_le_bytes());
        space.make_writable(COMMAND, &(COMMAND_MEMORY | COMMAND_BUS_MASTER | COMMAND_PIN_OFF).to_le_bytes());
        // Of no use here, but kernels and firmware keep them.
        space.make_writable(CACHE_LINE, &[0xff]);
        space.make_writable(INTERRUPT_LINE, &[0xff]);
        space
    }

    /// Adds a memory BAR: its size is what its lowest bits cannot be set (§6.2.5.1).
    pub(super) fn add_bar(&mut self, bar: Bar) {
        let Bar { index, bytes } = bar;
        self.make_writable(BARS + 4 * usize::from(index), &(!(bytes - 1)).to_le_bytes());
        self.bars.push(bar);
    }

    /// Sets a BAR as firmware would.
    pub(super) fn set_bar_address(&mut self, index: u8, address: u32) {
        self.put(BARS + 4 * usize::from(index), &address.to_le_bytes());
    }

    /// Appends a capability; where it is. `None` when there is no room.
    pub(super) fn add_capability(&mut self, capability: &Capability) -> Option<usize> {
        let Capability { id, body, writable, is_bar_window } = capability;
        let start = self.end;
        let end = start + 2 + body.len();
        if end > BYTES {
            return None;
        }
        self.put(start, &[*id, 0]);
        self.put(start + 2, body);
        self.make_writable(start + 2, &writable[..writable.len().min(body.len())]);
        self.put(self.link, &[start as u8]);
        self.put(STATUS, &STATUS_CAPABILITIES.to_le_bytes());
        self.link = start + 1;
        self.end = end.next_multiple_of(4);
        if *is_bar_window && body.len() >= BAR_WINDOW_BODY_BYTES {
            self.bar_window = Some(start);
        }
        Some(start)
    }

    /// Reads bytes; there are none behind the end, which read as zero.
    pub(super) fn read(&self, offset: usize, data: &mut [u8]) {
        data.fill(0);
        let there = self.registers.get(offset..).unwrap_or_default();
        data.iter_mut().zip(there).for_each(|(byte, &register)| *byte = register);
    }

    /// Writes what may be written.
    pub(super) fn write(&mut self, offset: usize, data: &[u8]) {
        for (place, &byte) in (offset..BYTES).zip(data) {
            let writable = self.writable[place];
            self.registers[place] = self.registers[place] & !writable | byte & writable;
        }
    }

    /// Fills registers in that the guest sees next.
    pub(super) fn put(&mut self, offset: usize, bytes: &[u8]) {
        self.registers[offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    pub(super) fn get16(&self, offset: usize) -> u16 {
        let mut bytes = [0; 2];
        self.read(offset, &mut bytes);
        u16::from_le_bytes(bytes)
    }

    pub(super) fn get32(&self, offset: usize) -> u32 {
        let mut bytes = [0; 4];
        self.read(offset, &mut bytes);
        u32::from_le_bytes(bytes)
    }

    pub(super) fn bars(&self) -> &[Bar] {
        &self.bars
    }

    /// The addresses of each BAR that the guest wants to answer now, wherever that is.
    pub(super) fn wanted(&self) -> impl Iterator<Item = (u8, Range<u64>)> {
        let decodes = self.get16(COMMAND) & COMMAND_MEMORY != 0;
        let bars = self.bars.iter().filter(move |_| decodes);
        bars.map(|&Bar { index, bytes }| {
            let start = u64::from(self.get32(BARS + 4 * usize::from(index)));
            (index, start..start + u64::from(bytes))
        })
    }

    /// Where the window to BARs points, if a guest's access at `offset` touches its data and it points to something.
    pub(super) fn bar_window(&self, offset: usize, length: usize) -> Option<BarWindow> {
        let capability = self.bar_window?;
        let data = capability + 16;
        if offset >= data + 4 || offset + length <= data {
            return None;
        }
        let mut bar = [0];
        self.read(capability + 4, &mut bar);
        let (offset, length) = (self.get32(capability + 8), self.get32(capability + 12));
        let is_access = matches!(length, 1 | 2 | 4) && offset.is_multiple_of(length);
        let there = self.bars.iter().find(|there| there.index == bar[0]);
        let is_within = there.is_some_and(|there| offset.checked_add(length).is_some_and(|end| end <= there.bytes));
        (is_access && is_within).then_some(BarWindow { bar: bar[0], offset, length: length as usize, data })
    }

    fn make_writable(&mut self, offset: usize, bits: &[u8]) {
        self.writable[offset..offset + bits.len()].copy_from_slice(bits);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDENTITY: Identity = Identity {
        vendor: 0x1af4,
        device: 0x1042,
        revision: 1,
        class: 0x01_0000,
        subsystem_vendor: 0x1af4,
        subsystem: 0x1100,
    };

    #[test]
    fn a_header_says_what_it_is_and_keeps_it() {
        let mut space = ConfigSpace::new(&IDENTITY);
        space.write(0, &[0xff; 256]);
        assert_eq!([0, 8, 0x2c].map(|offset| space.get32(offset)), [0x1042_1af4, 0x0100_0001, 0x1100_1af4]);
        assert_eq!(space.get32(COMMAND), 0x406, "memory, bus master, no pin");
        assert_eq!((space.get32(0x10), space.get32(0x34), space.get32(0x3c)), (0, 0, 0xff));
        let mut behind = [0xaa; 8];
        space.read(252, &mut behind);
        space.write(254, &[0xff; 100]);
        assert_eq!(behind, [0; 8]);
    }

    #[test]
    fn bars_are_sized_by_writing_ones() {
        let mut space = ConfigSpace::new(&IDENTITY);
        space.add_bar(Bar { index: 1, bytes: 0x4000 });
        space.set_bar_address(1, 0xe000_4000);
        assert_eq!(space.wanted().count(), 0, "memory is off");
        space.write(COMMAND, &COMMAND_MEMORY.to_le_bytes());
        assert_eq!(space.wanted().collect::<Vec<_>>(), [(1, 0xe000_4000..0xe000_8000)]);
        space.write(BARS, &[0xff; 12]);
        assert_eq!([0x10, 0x14, 0x18].map(|offset| space.get32(offset)), [0, 0xffff_c000, 0]);
        space.write(BARS + 5, &[0x12]);
        assert_eq!(space.get32(0x14), 0xffff_0000, "byte by byte, and what is too low is cut off");
        assert_eq!(space.wanted().collect::<Vec<_>>(), [(1, 0xffff_0000..0xffff_4000)]);
    }

    #[test]
    fn capabilities_are_a_list() {
        let mut space = ConfigSpace::new(&IDENTITY);
        let capability =
            |id, length| Capability { id, body: vec![7; length], writable: vec![0xf0], is_bar_window: false };
        assert_eq!(space.get16(STATUS) & STATUS_CAPABILITIES, 0);
        assert_eq!(space.add_capability(&capability(5, 12)), Some(0x40));
        assert_eq!(space.add_capability(&capability(9, 1)), Some(0x50));
        assert_eq!(space.add_capability(&capability(9, 200)), None);
        assert_eq!(space.add_capability(&capability(0x11, 10)), Some(0x54));
        space.write(0x34, &[0xff; 256 - 0x34]);
        let links: Vec<_> = std::iter::successors(Some(space.get16(FIRST_CAPABILITY) & 0xff), |&at| {
            Some(space.get16(usize::from(at)) >> 8).filter(|&next| next != 0)
        })
        .collect();
        assert_eq!(links, [0x40, 0x50, 0x54]);
        let ids: Vec<_> = links.iter().map(|&at| space.get16(at.into()) & 0xff).collect();
        assert_eq!(ids, [5, 9, 0x11]);
        assert_eq!(space.get16(0x42), 0x07f7);
    }

    #[test]
    fn a_window_to_bars_points_within_them() {
        let mut space = ConfigSpace::new(&IDENTITY);
        space.add_bar(Bar { index: 2, bytes: 0x100 });
        let body = vec![0; 18];
        let at =
            space.add_capability(&Capability { id: 9, writable: vec![0xff; 18], body, is_bar_window: true }).unwrap();
        let mut point = |bar: u8, offset: u32, length: u32| {
            space.write(at + 4, &[bar]);
            space.write(at + 8, &offset.to_le_bytes());
            space.write(at + 12, &length.to_le_bytes());
            space.bar_window(at + 16, 4)
        };
        let window = BarWindow { bar: 2, offset: 0xfc, length: 4, data: at + 16 };
        assert_eq!(point(2, 0xfc, 4), Some(window));
        let bad =
            [(1, 0, 4), (2, 0x100, 4), (2, 0xfe, 4), (2, 2, 3), (2, 1, 2), (2, 0, 0), (2, u32::MAX, 1), (2, 0, 8)];
        assert_eq!(bad.map(|(bar, offset, length)| point(bar, offset, length)), [None; 8]);
        point(2, 0xfc, 4);
        assert_eq!([(at + 12, 4), (at + 20, 4)].map(|(at, length)| space.bar_window(at, length)), [None; 2]);
        assert_eq!(space.bar_window(at + 14, 4), Some(window));
    }
}
