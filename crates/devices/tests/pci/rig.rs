//! Functions that remember, and a VMM that notes what it is asked for.

use blockyard_block::EventFd;
use blockyard_devices::Interrupt;
use blockyard_devices::pci::{
    Bar, BarDoorbell, Capability, DoorbellRegistry, Identity, Message, MessageVector, PciBus, PciFunction, Signalling,
};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

pub(crate) const WINDOW: Range<u64> = 0xe000_0000..0xe010_0000;
pub(crate) const DOORBELL: u64 = 0x10;

/// A register file.
pub(crate) struct Scratch {
    pub(crate) device: u16,
    pub(crate) bars: Vec<Bar>,
    pub(crate) signalling: Signalling,
    pub(crate) bytes: Arc<Mutex<BTreeMap<(u8, u64), u8>>>,
    pub(crate) doorbell: Arc<EventFd>,
    /// Whether its configuration space has a window to its BARs.
    pub(crate) has_window: bool,
}

impl Scratch {
    pub(crate) fn new(device: u16, bars: &[Bar], signalling: Signalling) -> Self {
        let doorbell = Arc::new(EventFd::new().unwrap());
        Self { device, bars: bars.to_vec(), signalling, bytes: Arc::default(), doorbell, has_window: false }
    }

    fn check(&self, bar: u8, offset: u64, length: usize) {
        let bar = self.bars.iter().find(|there| there.index == bar).expect("a BAR of its own");
        assert!(offset + length as u64 <= u64::from(bar.bytes), "within the BAR");
    }
}

impl PciFunction for Scratch {
    fn identity(&self) -> Identity {
        let device = self.device;
        Identity { vendor: 0x1b36, device, revision: 2, class: 0xff_0000, subsystem_vendor: 0, subsystem: 0 }
    }

    fn bars(&self) -> &[Bar] {
        &self.bars
    }

    fn signalling(&self) -> Signalling {
        self.signalling
    }

    fn capabilities(&self) -> Vec<Capability> {
        let window = Capability { id: 9, body: vec![0; 18], writable: vec![0xff; 18], is_bar_window: true };
        self.has_window.then_some(window).into_iter().collect()
    }

    fn doorbells(&self) -> Vec<BarDoorbell> {
        let first = self.bars.first();
        let doorbell = |bar: &Bar| BarDoorbell { bar: bar.index, offset: DOORBELL, event: self.doorbell.clone() };
        first.map(doorbell).into_iter().collect()
    }

    fn read(&mut self, bar: u8, offset: u64, data: &mut [u8]) {
        self.check(bar, offset, data.len());
        let bytes = self.bytes.lock().unwrap();
        (offset..).zip(data).for_each(|(place, byte)| *byte = bytes.get(&(bar, place)).copied().unwrap_or(0));
    }

    fn write(&mut self, bar: u8, offset: u64, data: &[u8]) {
        self.check(bar, offset, data.len());
        self.bytes.lock().unwrap().extend((offset..).zip(data).map(|(place, &byte)| ((bar, place), byte)));
    }
}

#[derive(Default)]
pub(crate) struct Vector {
    pub(crate) routed: Mutex<Option<Message>>,
    pub(crate) pending: AtomicBool,
}

impl Interrupt for Vector {
    fn signal(&self) {
        self.pending.store(true, Ordering::SeqCst);
    }
}

impl MessageVector for Vector {
    fn unmask(&self, message: Message) {
        *self.routed.lock().unwrap() = Some(message);
    }
    fn mask(&self) {
        *self.routed.lock().unwrap() = None;
    }
    fn is_pending(&self) -> bool {
        self.pending.load(Ordering::SeqCst)
    }
}

/// Where doorbells are registered.
#[derive(Clone, Default)]
pub(crate) struct Registry(pub(crate) Arc<Mutex<Vec<u64>>>);

impl DoorbellRegistry for Registry {
    fn register(&self, address: u64, event: &EventFd) {
        event.ring();
        let mut all = self.0.lock().unwrap();
        assert!(!all.contains(&address) && WINDOW.contains(&address));
        all.push(address);
    }

    fn unregister(&self, address: u64) {
        let mut all = self.0.lock().unwrap();
        let place = all.iter().position(|&there| there == address).expect("it was registered");
        all.remove(place);
    }
}

pub(crate) fn read32(bus: &PciBus, offset: u64) -> u32 {
    let mut data = [0; 4];
    bus.read_config(offset, &mut data);
    u32::from_le_bytes(data)
}

pub(crate) fn memory32(bus: &PciBus, address: u64) -> u32 {
    let mut data = [0; 4];
    bus.read_memory(address, &mut data);
    u32::from_le_bytes(data)
}
