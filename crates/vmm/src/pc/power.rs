//! The ports by which a guest switches its machine off or resets it: ACPI's sleep and reset registers.

use crate::bus::PortDevice;
use std::sync::Arc;

/// What a guest wants of its machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PowerRequest {
    /// To be switched off.
    Off,
    /// To begin anew.
    Reset,
}

/// Where the guest's requests go. Called from a vCPU's thread.
pub type PowerSink = Arc<dyn Fn(PowerRequest) + Send + Sync>;

/// The first of [`PORTS`] ports: sleep control, sleep status, reset.
pub(super) const PORT: u16 = 0x600;
pub(super) const PORTS: u16 = 3;
pub(super) const SLEEP_CONTROL_PORT: u16 = PORT;
pub(super) const SLEEP_STATUS_PORT: u16 = PORT + 1;
pub(super) const RESET_PORT: u16 = PORT + 2;

/// What `\_S5` names: the type of sleep that is off.
pub(super) const SLEEP_TYPE_OFF: u8 = 5;
/// What the reset port takes.
pub(super) const RESET_VALUE: u8 = 1;

/// Of the sleep control register (ACPI 6.5, 4.8.3.7).
const SLEEP_TYPE_SHIFT: u8 = 2;
const SLEEP_TYPE_MASK: u8 = 7;
const SLEEP_ENABLE: u8 = 1 << 5;

/// What lies at the reset vector, in real mode: Linux jumps there to begin anew where ACPI says that there is no legacy
/// hardware and no EFI tells it better.
pub(super) const RESET_CODE: [u8; 9] = {
    let [low, high] = RESET_PORT.to_le_bytes();
    // mov dx, RESET_PORT; mov al, RESET_VALUE; out dx, al; again: hlt; jmp again
    [0xba, low, high, 0xb0, RESET_VALUE, 0xee, 0xf4, 0xeb, 0xfd]
};

pub(super) struct PowerPorts(pub(super) PowerSink);

impl PortDevice for PowerPorts {
    fn read(&mut self, _offset: u16, _size: u8, data: &mut [u8]) {
        data.fill(0);
    }

    fn write(&mut self, offset: u16, _size: u8, data: &[u8]) {
        let Some(&value) = data.first() else { return };
        let request = match PORT + offset {
            SLEEP_CONTROL_PORT
                if value & SLEEP_ENABLE != 0 && value >> SLEEP_TYPE_SHIFT & SLEEP_TYPE_MASK == SLEEP_TYPE_OFF =>
            {
                PowerRequest::Off
            }
            RESET_PORT if value == RESET_VALUE => PowerRequest::Reset,
            _ => return,
        };
        (self.0)(request);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[test]
    fn only_off_and_reset_are_requests() {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&asked);
        let mut ports = PowerPorts(Arc::new(move |request| seen.lock().unwrap().push(request)));
        for (offset, value) in [(0, 0x20), (0, 0x14), (0, 0x2c), (1, 0x34), (2, 0), (3, 1)] {
            ports.write(offset, 1, &[value]);
        }
        assert!(asked.lock().unwrap().is_empty());
        ports.write(0, 1, &[0x34]);
        ports.write(2, 1, &[1]);
        ports.write(0, 1, &[]);
        assert_eq!(*asked.lock().unwrap(), [PowerRequest::Off, PowerRequest::Reset]);
    }
}
