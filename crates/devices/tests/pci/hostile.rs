//! Random guests: never a panic, never an access to a function beyond its BARs, never a doorbell where no BAR is.

use crate::rig::*;
use blockyard_devices::pci::{Bar, ConfigPorts, HostBridge, MessageVector, PciBus, Signalling};
use bolero::TypeGenerator;
use std::sync::Arc;

#[derive(Clone, Copy, Debug, TypeGenerator)]
enum Access {
    /// Of a device's first registers, where BARs and capabilities are.
    Header {
        device: u8,
        register: u8,
        width: Width,
        value: Option<Value>,
    },
    Config {
        offset: u32,
        width: Width,
        value: Option<u64>,
    },
    Ports {
        offset: u8,
        width: Width,
        value: Option<u32>,
    },
    Memory {
        page: u8,
        offset: u16,
        width: Width,
        value: Option<u64>,
    },
    Anywhere {
        address: u64,
        width: Width,
        value: Option<u64>,
    },
}

#[derive(Clone, Copy, Debug, TypeGenerator)]
enum Value {
    /// An address that BARs may have, or hardly may not.
    Place(u8),
    Ones,
    Any(u32),
}

impl Value {
    fn bits(self) -> u32 {
        match self {
            Self::Place(page) => (WINDOW.start - 0x1_0000) as u32 + u32::from(page) * 0x2000,
            Self::Ones => u32::MAX,
            Self::Any(value) => value,
        }
    }
}

#[derive(Clone, Copy, Debug, TypeGenerator)]
enum Width {
    One,
    Two,
    Four,
    Eight,
}

impl Width {
    fn bytes(self) -> usize {
        1 << self as usize
    }
}

fn bus() -> (PciBus, Registry) {
    let registry = Registry::default();
    let mut bus = PciBus::new(WINDOW, Box::new(registry.clone()));
    let vectors = |count| (0..count).map(|_| Arc::new(Vector::default()) as Arc<dyn MessageVector>).collect();
    bus.attach(Box::new(HostBridge), Vec::new()).unwrap();
    let bar = |index, bytes| Bar { index, bytes };
    let mut function = Scratch::new(1, &[bar(0, 0x4000), bar(3, 16)], Signalling::MsiX);
    function.has_window = true;
    bus.attach(Box::new(function), vectors(3)).unwrap();
    bus.attach(Box::new(Scratch::new(2, &[bar(5, 0x1000)], Signalling::Msi)), vectors(1)).unwrap();
    (bus, registry)
}

fn access(bytes: usize, value: Option<u64>, read: impl FnOnce(&mut [u8]), write: impl FnOnce(&[u8])) {
    let mut data = value.unwrap_or(0).to_le_bytes();
    match value {
        Some(_) => write(&data[..bytes]),
        None => read(&mut data[..bytes]),
    }
}

#[test]
fn random_bus_accesses() {
    blockyard_fuzz::check!(2000).with_type::<Vec<Access>>().for_each(|accesses| {
        let (bus, registry) = bus();
        let bus = Arc::new(bus);
        let mut ports = ConfigPorts::new(Arc::clone(&bus));
        // Answering at first, so that there is something to spoil.
        (1..3).for_each(|device| bus.write_config(device << 15 | 4, &[6, 0]));
        assert_eq!(registry.0.lock().unwrap().len(), 2);
        for &one in accesses {
            match one {
                Access::Header { device, register, width, value } => {
                    let offset = u64::from(device % 3) << 15 | u64::from(register & 0x7f);
                    let value = value.map(|value| value.bits().into());
                    let (read, write) =
                        (|data: &mut [u8]| bus.read_config(offset, data), |data: &[u8]| bus.write_config(offset, data));
                    access(width.bytes(), value, read, write);
                }
                Access::Config { offset, width, value } => access(
                    width.bytes(),
                    value,
                    |data| bus.read_config(offset.into(), data),
                    |data| bus.write_config(offset.into(), data),
                ),
                Access::Ports { offset, width, value } => {
                    let bytes = width.bytes().min(4);
                    let offset = u16::from(offset % 8);
                    match value {
                        Some(value) => ports.write(offset, &value.to_le_bytes()[..bytes]),
                        None => ports.read(offset, &mut [0; 4][..bytes]),
                    }
                }
                Access::Memory { page, offset, width, value } => {
                    let address = WINDOW.start + u64::from(page) * 0x1000 + u64::from(offset & 0xfff);
                    let (read, write) = (
                        |data: &mut [u8]| bus.read_memory(address, data),
                        |data: &[u8]| bus.write_memory(address, data),
                    );
                    access(width.bytes(), value, read, write);
                }
                Access::Anywhere { address, width, value } => access(
                    width.bytes(),
                    value,
                    |data| bus.read_memory(address, data),
                    |data| bus.write_memory(address, data),
                ),
            }
        }
        // Whatever came before, a guest that programs it properly has it.
        (1..3).for_each(|device| bus.write_config(device << 15 | 4, &[0, 0]));
        for (device, bar, address) in
            [(1, 0, 0xe000_8000_u32), (1, 3, 0xe000_0000), (1, 1, 0xe000_1000), (2, 5, 0xe000_4000)]
        {
            bus.write_config(device << 15 | (0x10 + 4 * bar), &address.to_le_bytes());
        }
        (1..3).for_each(|device| bus.write_config(device << 15 | 4, &[6, 0]));
        bus.write_memory(0xe000_8020, &[1, 2, 3, 4]);
        assert_eq!(memory32(&bus, 0xe000_8020), 0x0403_0201);
        assert_eq!(*registry.0.lock().unwrap(), [0xe000_8010, 0xe000_4010]);
    });
}
