//! Configuration mechanism 1: an address port and a data port (PCI Local Bus 3.0 §3.2.2.3.2).

use super::{FUNCTION_CONFIG_BYTES, PciBus};
use std::sync::Arc;

/// Ports that it takes, 0xcf8 and those after it on a PC.
pub const CONFIG_PORTS: u16 = 8;
/// Where the data begin.
const DATA: u16 = 4;
/// Of the address: without it, the data port is none.
const ENABLE: u32 = 1 << 31;

/// The two ports.
pub struct ConfigPorts {
    bus: Arc<PciBus>,
    address: u32,
}

impl ConfigPorts {
    /// Ports to the functions of `bus`, which is number 0.
    pub fn new(bus: Arc<PciBus>) -> Self {
        Self { bus, address: 0 }
    }

    /// Input of 1, 2 or 4 bytes, `offset` ports from the first.
    pub fn read(&self, offset: u16, data: &mut [u8]) {
        if let (0, Ok(data)) = (offset, <&mut [u8; 4]>::try_from(&mut *data)) {
            *data = self.address.to_le_bytes();
        } else if let Some(place) = self.place(offset) {
            self.bus.read_config(place, data);
        } else {
            data.fill(0xff);
        }
    }

    /// Output, likewise.
    pub fn write(&mut self, offset: u16, data: &[u8]) {
        // The address port is one of 32 bits: narrower writes there are for other devices (§3.2.2.3.2).
        if let (0, Ok(address)) = (offset, <[u8; 4]>::try_from(data)) {
            self.address = u32::from_le_bytes(address);
        } else if let Some(place) = self.place(offset) {
            self.bus.write_config(place, data);
        }
    }

    /// What of the bus's configuration addresses the data port at `offset` reaches.
    fn place(&self, offset: u16) -> Option<u64> {
        let in_register = offset.checked_sub(DATA)?;
        let [register, function, bus, _] = self.address.to_le_bytes();
        let is_one = self.address & ENABLE != 0 && bus == 0;
        is_one.then(|| u64::from(function) * FUNCTION_CONFIG_BYTES + u64::from(register & !3) + u64::from(in_register))
    }
}
