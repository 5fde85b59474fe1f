//! The function by which a bus is recognised.

use super::{Bar, Identity, PciFunction, Signalling};

/// A host bridge without registers: kernels that probe configuration mechanism 1 look for one, or for a VGA adapter.
#[derive(Debug)]
pub struct HostBridge;

impl PciFunction for HostBridge {
    fn identity(&self) -> Identity {
        // As QEMU's generic host bridge, which has nothing either.
        Identity {
            vendor: 0x1b36,
            device: 0x0008,
            revision: 0,
            class: 0x06_0000,
            subsystem_vendor: 0x1af4,
            subsystem: 0x1100,
        }
    }

    fn bars(&self) -> &[Bar] {
        &[]
    }

    fn signalling(&self) -> Signalling {
        Signalling::None
    }

    fn read(&mut self, _bar: u8, _offset: u64, data: &mut [u8]) {
        data.fill(0xff);
    }

    fn write(&mut self, _bar: u8, _offset: u64, _data: &[u8]) {}
}
