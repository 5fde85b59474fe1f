//! A serial port on the port bus.

use crate::bus::PortDevice;
use blockyard_devices::serial::SerialPort;

/// A 16550's eight ports.
pub struct SerialWindow(pub SerialPort);

impl PortDevice for SerialWindow {
    // A wider access reaches the registers one byte after the other, as it would an 8-bit device.
    fn read(&mut self, offset: u16, _size: u8, data: &mut [u8]) {
        self.0.read(offset as u8, data);
    }

    fn write(&mut self, offset: u16, _size: u8, data: &[u8]) {
        self.0.write(offset as u8, data);
    }
}
