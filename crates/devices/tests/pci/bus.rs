//! What a well-behaved guest does.

use crate::rig::*;
use blockyard_devices::Interrupt;
use blockyard_devices::pci::{Bar, ConfigPorts, HostBridge, Message, MessageVector, PciBus, PciBusError, Signalling};
use std::sync::Arc;

const BAR_0: Bar = Bar { index: 0, bytes: 0x1000 };
const BAR_5: Bar = Bar { index: 5, bytes: 0x400 };
const MEMORY_ON: [u8; 2] = [2, 0];
const ABSENT: u32 = u32::MAX;

/// The configuration addresses of a device.
fn of(device: u64) -> u64 {
    device << 15
}

fn bus() -> (PciBus, Registry) {
    let registry = Registry::default();
    let mut bus = PciBus::new(WINDOW, Box::new(registry.clone()));
    assert_eq!(bus.attach(Box::new(HostBridge), Vec::new()), Ok(0));
    (bus, registry)
}

#[test]
fn functions_are_found_and_others_are_absent() {
    let (mut bus, _) = bus();
    assert_eq!(bus.attach(Box::new(Scratch::new(7, &[BAR_0], Signalling::None)), Vec::new()), Ok(1));
    assert_eq!([0, 8].map(|offset| read32(&bus, offset)), [0x0008_1b36, 0x0600_0000]);
    assert_eq!([0, 8].map(|offset| read32(&bus, of(1) + offset)), [0x0007_1b36, 0xff00_0002]);
    assert_eq!(read32(&bus, of(1) + 0xffc), 0, "a conventional function has no extended space");
    for absent in [of(1) + 0x1000, of(2), of(31), of(32), u64::MAX] {
        bus.write_config(absent, &[0; 4]);
        assert_eq!(read32(&bus, absent), ABSENT);
    }
}

#[test]
fn mechanism_1_reaches_the_same() {
    let (mut bus, _) = bus();
    bus.attach(Box::new(Scratch::new(7, &[BAR_0], Signalling::None)), Vec::new()).unwrap();
    let bus = Arc::new(bus);
    let mut ports = ConfigPorts::new(Arc::clone(&bus));
    let read = |ports: &ConfigPorts, offset, length| {
        let mut data = [0; 4];
        ports.read(offset, &mut data[..length]);
        u32::from_le_bytes(data)
    };
    assert_eq!(read(&ports, 4, 4), ABSENT);
    // As Linux looks whether the mechanism is there.
    ports.write(3, &[1]);
    ports.write(0, &0x8000_0000_u32.to_le_bytes());
    assert_eq!(read(&ports, 0, 4), 0x8000_0000);
    assert_eq!((read(&ports, 4, 4), read(&ports, 6, 2)), (0x0008_1b36, 8));
    ports.write(0, &0x8000_0810_u32.to_le_bytes());
    ports.write(4, &[0xff; 4]);
    ports.write(5, &[0x40]);
    assert_eq!((read(&ports, 4, 4), read32(&bus, of(1) + 0x10)), (0xffff_4000, 0xffff_4000));
    for elsewhere in [0x8001_0000_u32, 0x8000_0100, 0x0000_0800, 0x8000_1000] {
        ports.write(0, &elsewhere.to_le_bytes());
        ports.write(4, &[0; 4]);
        assert_eq!(read(&ports, 4, 4), ABSENT, "{elsewhere:#x}");
    }
    assert_eq!((read(&ports, 1, 1), read(&ports, 2, 2)), (0xff, 0xffff));
}

#[test]
fn bars_answer_once_they_are_switched_on() {
    let (mut bus, registry) = bus();
    let function = Scratch::new(7, &[BAR_0, BAR_5], Signalling::None);
    let bytes = Arc::clone(&function.bytes);
    bus.attach(Box::new(function), Vec::new()).unwrap();
    let [zero, five] = [0x10, 0x24].map(|offset| u64::from(read32(&bus, of(1) + offset)));
    assert_eq!((zero, five), (0xe000_0000, 0xe000_1000));
    assert_eq!(memory32(&bus, zero), ABSENT);
    bus.write_config(of(1) + 4, &MEMORY_ON);
    assert_eq!(memory32(&bus, zero), 0);
    assert_eq!(*registry.0.lock().unwrap(), [zero + DOORBELL]);
    bus.write_memory(five + 0x3fc, &[1, 2, 3, 4]);
    assert_eq!(memory32(&bus, five + 0x3fc), 0x0403_0201);
    bus.write_memory(five + 0x3fd, &[9; 4]);
    bus.write_memory(five + 0x400, &[9; 4]);
    assert_eq!(bytes.lock().unwrap().len(), 4, "nothing beyond its end");
    bus.write_config(of(1) + 4, &[0, 0]);
    assert_eq!((memory32(&bus, zero), registry.0.lock().unwrap().len()), (ABSENT, 0));
}

#[test]
fn bars_move_and_their_doorbells_with_them() {
    let (mut bus, registry) = bus();
    for device in [7, 8] {
        bus.attach(Box::new(Scratch::new(device, &[BAR_0], Signalling::None)), Vec::new()).unwrap();
    }
    let move_to = |device: u64, address: u64| bus.write_config(of(device) + 0x10, &(address as u32).to_le_bytes());
    let doorbells = || {
        let mut all = registry.0.lock().unwrap().clone();
        all.sort();
        all.iter().map(|address| address - DOORBELL).collect::<Vec<_>>()
    };
    let [first, second] = [WINDOW.start, WINDOW.start + 0x1000];
    (1..=2).for_each(|device| bus.write_config(of(device) + 4, &MEMORY_ON));
    bus.write_memory(second, &[7; 4]);
    assert_eq!(doorbells(), [first, second]);
    move_to(2, WINDOW.start + 0x8000);
    assert_eq!(memory32(&bus, WINDOW.start + 0x8000), 0x0707_0707);
    assert_eq!((memory32(&bus, second), doorbells()), (ABSENT, vec![first, WINDOW.start + 0x8000]));
    // Over the other, over memory, over what is not on the bus: nothing answers there.
    move_to(2, first);
    assert_eq!((memory32(&bus, first), doorbells()), (ABSENT, vec![]));
    for outside in [0, 0x10_0000, 0xfee0_0000, WINDOW.end] {
        move_to(2, outside);
        assert_eq!((memory32(&bus, outside), doorbells()), (ABSENT, vec![first]));
    }
    move_to(2, second);
    assert_eq!((memory32(&bus, second), doorbells()), (0x0707_0707, vec![first, second]));
}

#[test]
fn vectors_are_routed_by_msi() {
    let (mut bus, _) = bus();
    let vector = Arc::new(Vector::default());
    bus.attach(Box::new(Scratch::new(7, &[], Signalling::Msi)), vec![Arc::clone(&vector) as _]).unwrap();
    assert_eq!([0x34, 0x40].map(|offset| read32(&bus, of(1) + offset)), [0x40, 0x0080_0005]);
    bus.write_config(of(1) + 0x44, &0xfee0_1003_u32.to_le_bytes());
    bus.write_config(of(1) + 0x4c, &0xabcd_4021_u32.to_le_bytes());
    assert_eq!(*vector.routed.lock().unwrap(), None);
    bus.write_config(of(1) + 0x42, &[0xff; 2]);
    assert_eq!(read32(&bus, of(1) + 0x40), 0x0081_0005);
    assert_eq!(*vector.routed.lock().unwrap(), Some(Message { address: 0xfee0_1000, data: 0x4021 }));
    bus.write_config(of(1) + 0x42, &[0; 2]);
    assert_eq!(*vector.routed.lock().unwrap(), None);
}

#[test]
fn vectors_are_routed_by_msix() {
    let (mut bus, _) = bus();
    let vectors: Vec<_> = (0..2).map(|_| Arc::new(Vector::default())).collect();
    let shared = vectors.iter().map(|vector| Arc::clone(vector) as Arc<dyn MessageVector>).collect();
    bus.attach(Box::new(Scratch::new(7, &[BAR_0], Signalling::MsiX)), shared).unwrap();
    let table = u64::from(read32(&bus, of(1) + 0x14));
    assert_eq!([0x40, 0x44, 0x48].map(|offset| read32(&bus, of(1) + offset)), [0x0001_0011, 1, 0x801]);
    bus.write_config(of(1) + 4, &MEMORY_ON);
    bus.write_config(of(1) + 0x42, &0x8000_u16.to_le_bytes());
    vectors[1].signal();
    assert_eq!(memory32(&bus, table + 0x800), 2);
    for (offset, value) in [(16, 0xfee0_2000_u32), (24, 0x31), (28, 0)] {
        bus.write_memory(table + offset, &value.to_le_bytes());
    }
    assert_eq!(*vectors[1].routed.lock().unwrap(), Some(Message { address: 0xfee0_2000, data: 0x31 }));
    assert_eq!((memory32(&bus, table + 0x800), *vectors[0].routed.lock().unwrap()), (0, None));
}

#[test]
fn bars_are_reached_through_the_configuration_space() {
    let (mut bus, _) = bus();
    let mut function = Scratch::new(7, &[BAR_0], Signalling::None);
    function.has_window = true;
    bus.attach(Box::new(function), Vec::new()).unwrap();
    let point = |offset: u32, length: u32| {
        bus.write_config(of(1) + 0x48, &offset.to_le_bytes());
        bus.write_config(of(1) + 0x4c, &length.to_le_bytes());
    };
    point(0x20, 4);
    bus.write_config(of(1) + 0x50, &0x1234_5678_u32.to_le_bytes());
    point(0x22, 2);
    assert_eq!(read32(&bus, of(1) + 0x50), 0x1234);
    point(0x1000, 4);
    bus.write_config(of(1) + 0x50, &[9; 4]);
    assert_eq!(read32(&bus, of(1) + 0x50), 0x0909_0909, "it points nowhere, and is a register");
    bus.write_config(of(1) + 4, &MEMORY_ON);
    assert_eq!(memory32(&bus, WINDOW.start + 0x20), 0x1234_5678);
}

#[test]
fn functions_that_are_none_are_refused() {
    let (mut bus, _) = bus();
    let mut refused = |bars: &[Bar], signalling, vectors: usize| {
        let vectors = (0..vectors).map(|_| Arc::new(Vector::default()) as _).collect();
        bus.attach(Box::new(Scratch::new(7, bars, signalling)), vectors).unwrap_err()
    };
    for bar in [(6, 16), (0, 8), (0, 24), (0, 0), (0, 1 << 31)] {
        let (index, bytes) = bar;
        assert_eq!(refused(&[Bar { index, bytes }], Signalling::None, 0), PciBusError::Bar { index, bytes });
    }
    assert!(matches!(refused(&[BAR_0, BAR_0], Signalling::None, 0), PciBusError::Bar { .. }));
    let all: Vec<_> = (0..6).map(|index| Bar { index, bytes: 16 }).collect();
    assert!(matches!(refused(&all, Signalling::MsiX, 1), PciBusError::Bar { index: 6, .. }));
    assert_eq!(
        refused(&[Bar { index: 0, bytes: 1 << 21 }], Signalling::None, 0),
        PciBusError::Window { bytes: 1 << 21 }
    );
    for (signalling, vectors) in [
        (Signalling::None, 1),
        (Signalling::Msi, 0),
        (Signalling::Msi, 2),
        (Signalling::MsiX, 0),
        (Signalling::MsiX, 2049),
    ] {
        assert_eq!(refused(&[], signalling, vectors), PciBusError::Vectors { signalling, vectors });
    }
    let fits = || Box::new(Scratch::new(7, &[], Signalling::None));
    (1..32).for_each(|device| assert_eq!(bus.attach(fits(), Vec::new()), Ok(device)));
    assert_eq!(bus.attach(fits(), Vec::new()), Err(PciBusError::Devices));
}
