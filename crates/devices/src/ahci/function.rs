//! The controller as a PCI function.

use super::controller::AhciController;
use super::registers::WINDOW_BYTES;
use crate::pci::{Bar, Identity, PciFunction, Signalling};

/// ABAR: the base address register that AHCI has its registers behind (§2.1.11).
const BARS: &[Bar] = &[Bar { index: 5, bytes: WINDOW_BYTES as u32 }];

/// Found by its class, which every driver of AHCI's goes by. It interrupts by MSI, with one message for all ports.
impl PciFunction for AhciController {
    fn identity(&self) -> Identity {
        Identity {
            vendor: 0x1b36,
            device: 0x0106,
            revision: 0,
            // SATA controller, AHCI.
            class: 0x01_0601,
            subsystem_vendor: 0x1af4,
            subsystem: 0x1100,
        }
    }

    fn bars(&self) -> &[Bar] {
        BARS
    }

    fn signalling(&self) -> Signalling {
        Signalling::Msi
    }

    fn read(&mut self, _bar: u8, offset: u64, data: &mut [u8]) {
        AhciController::read(self, offset, data);
    }

    fn write(&mut self, _bar: u8, offset: u64, data: &[u8]) {
        AhciController::write(self, offset, data);
    }
}
