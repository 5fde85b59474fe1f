//! A 16550 serial port.

use crate::Interrupt;
use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use vm_superio::serial::NoEvents;
use vm_superio::{Serial, Trigger};

const DATA: u8 = 0;
const INTERRUPT_ENABLE: u8 = 1;
/// Interrupt identification when read, FIFO control when written.
const INTERRUPT_IDENTIFICATION: u8 = 2;
const LINE_CONTROL: u8 = 3;
const MODEM_CONTROL: u8 = 4;
const LINE_STATUS: u8 = 5;
/// Registers in the window.
const REGISTERS: u8 = 8;

const FIFO_CONTROL_CLEAR_RECEIVER: u8 = 0x02;
const LINE_CONTROL_DIVISOR_LATCH: u8 = 0x80;
const LINE_STATUS_DATA_READY: u8 = 0x01;
const MODEM_CONTROL_LOOPBACK: u8 = 0x10;

/// Where a port's output goes: called with the bytes of one instruction at a time.
pub type SerialOutput = Box<dyn FnMut(&[u8]) + Send>;

/// Where a port's input comes from.
pub trait SerialInput: Send {
    /// Appends what the guest may read next to `buffer`, which is empty: nothing when there is nothing now. Asked when
    /// the guest looks at a receiver that has run empty.
    fn fill(&mut self, buffer: &mut Vec<u8>);
}

impl<F: FnMut(&mut Vec<u8>) + Send> SerialInput for F {
    fn fill(&mut self, buffer: &mut Vec<u8>) {
        self(buffer);
    }
}

/// A port that nobody talks to.
#[derive(Clone, Copy, Debug)]
pub struct NoInput;

impl SerialInput for NoInput {
    fn fill(&mut self, _buffer: &mut Vec<u8>) {}
}

/// A 16550 at a window of eight I/O ports.
///
/// The registers are vm-superio's. In front of them are the two paths that matter here: bytes to the data register go
/// to the output as one slice, so that a guest's `rep outsb` of a whole frame costs one exit and one call; input is
/// pulled when the guest looks, so that it is made only when it is wanted.
pub struct SerialPort {
    registers: Serial<InterruptTrigger, NoEvents, io::Sink>,
    output: SerialOutput,
    input: Box<dyn SerialInput>,
    /// What the input gave and the receiver had no room for yet, from `taken` on.
    pending: Vec<u8>,
    taken: usize,
}

struct InterruptTrigger(Option<Arc<dyn Interrupt>>);

impl Trigger for InterruptTrigger {
    type E = Infallible;

    fn trigger(&self) -> Result<(), Infallible> {
        if let Some(interrupt) = &self.0 {
            interrupt.signal();
        }
        Ok(())
    }
}

impl SerialPort {
    /// A port as after power-on. Without `interrupt`, the driver has to poll.
    pub fn new(output: SerialOutput, input: Box<dyn SerialInput>, interrupt: Option<Arc<dyn Interrupt>>) -> Self {
        let registers = Serial::new(InterruptTrigger(interrupt), io::sink());
        Self { registers, output, input, pending: Vec::new(), taken: 0 }
    }

    /// The guest writes `data`, byte by byte, to the register at `offset` from the window's start: the many bytes of
    /// one string instruction, or the one of a plain `out`. Offsets outside the window are ignored.
    pub fn write(&mut self, offset: u8, data: &[u8]) {
        let Some(&last) = data.last() else { return };
        match offset {
            DATA if self.data_register_is_the_line() => {
                (self.output)(data);
                // What the registers do with a byte sent: the interrupt of an empty transmitter.
                self.write_register(DATA, last);
            }
            INTERRUPT_IDENTIFICATION if data.iter().any(|value| value & FIFO_CONTROL_CLEAR_RECEIVER != 0) => {
                self.clear_receiver();
            }
            0..REGISTERS => {
                data.iter().for_each(|&value| self.write_register(offset, value));
                if offset == INTERRUPT_ENABLE {
                    self.refill();
                }
            }
            _ => {}
        }
    }

    /// The guest reads `data`, byte by byte, from the register at `offset` from the window's start. Zeros where there
    /// is nothing to read.
    pub fn read(&mut self, offset: u8, data: &mut [u8]) {
        data.fill(0);
        if offset >= REGISTERS {
            return;
        }
        let looks = matches!(offset, DATA | INTERRUPT_IDENTIFICATION | LINE_STATUS);
        for value in data {
            if looks {
                self.refill();
            }
            *value = self.registers.read(offset);
        }
    }

    /// Tells the port that its input has something new, so that the guest is interrupted if it wants to be.
    pub fn input_ready(&mut self) {
        self.refill();
    }

    /// Neither the divisor latch nor the loopback stands between the data register and the line.
    fn data_register_is_the_line(&mut self) -> bool {
        !self.divisor_latch() && !self.loopback()
    }

    fn divisor_latch(&mut self) -> bool {
        self.registers.read(LINE_CONTROL) & LINE_CONTROL_DIVISOR_LATCH != 0
    }

    fn loopback(&mut self) -> bool {
        self.registers.read(MODEM_CONTROL) & MODEM_CONTROL_LOOPBACK != 0
    }

    fn receiver_is_empty(&mut self) -> bool {
        self.registers.read(LINE_STATUS) & LINE_STATUS_DATA_READY == 0
    }

    fn write_register(&mut self, offset: u8, value: u8) {
        // Neither an interrupt nor a sink fails.
        let _ = self.registers.write(offset, value);
    }

    /// Drops what the receiver holds, which is at most a FIFO full. What is pending has not arrived yet.
    fn clear_receiver(&mut self) {
        if self.divisor_latch() {
            return;
        }
        while !self.receiver_is_empty() {
            self.registers.read(DATA);
        }
    }

    /// Moves input into an empty receiver.
    fn refill(&mut self) {
        if self.loopback() || !self.receiver_is_empty() {
            return;
        }
        if self.taken == self.pending.len() {
            self.pending.clear();
            self.taken = 0;
            self.input.fill(&mut self.pending);
        }
        // The receiver is empty, so it takes at least a byte if there is one.
        self.taken += self.registers.enqueue_raw_bytes(&self.pending[self.taken..]).unwrap_or(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[derive(Default)]
    struct Counter(AtomicUsize);

    impl Interrupt for Counter {
        fn signal(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    type Written = Arc<Mutex<Vec<Vec<u8>>>>;

    fn port(mut input: Vec<Vec<u8>>) -> (SerialPort, Written, Arc<Counter>) {
        let written = Written::default();
        let sink = written.clone();
        let interrupt = Arc::new(Counter::default());
        input.reverse();
        let port = SerialPort::new(
            Box::new(move |bytes: &[u8]| sink.lock().unwrap().push(bytes.to_vec())),
            Box::new(move |buffer: &mut Vec<u8>| buffer.extend(input.pop().unwrap_or_default())),
            Some(interrupt.clone()),
        );
        (port, written, interrupt)
    }

    fn read(port: &mut SerialPort, offset: u8) -> u8 {
        let mut value = [0xaa];
        port.read(offset, &mut value);
        value[0]
    }

    #[test]
    fn a_string_instruction_is_one_slice() {
        let (mut port, written, _) = port(vec![]);
        port.write(DATA, b"a whole frame");
        port.write(DATA, b"!");
        port.write(DATA, b"");
        assert_eq!(*written.lock().unwrap(), [b"a whole frame".to_vec(), b"!".to_vec()]);
        assert_eq!(read(&mut port, LINE_STATUS), 0x60, "the transmitter is always empty");
    }

    #[test]
    fn input_is_pulled_when_the_guest_looks() {
        let long: Vec<u8> = (0..200).collect();
        let (mut port, _, _) = port(vec![b"ab".to_vec(), vec![], long.clone()]);
        assert_eq!(read(&mut port, LINE_STATUS), 0x61);
        assert_eq!(read(&mut port, DATA), b'a');
        assert_eq!(read(&mut port, LINE_STATUS), 0x61);
        assert_eq!(read(&mut port, DATA), b'b');
        assert_eq!(read(&mut port, LINE_STATUS), 0x60, "the source had nothing");
        let mut slice = [0; 205];
        port.read(DATA, &mut slice);
        assert_eq!(slice[..200], long);
        assert_eq!(slice[200..], [0; 5]);
        assert_eq!(read(&mut port, LINE_STATUS), 0x60);
    }

    #[test]
    fn divisor_latch_and_scratch() {
        let (mut port, written, _) = port(vec![b"x".to_vec()]);
        port.write(7, &[0x5a]);
        assert_eq!(read(&mut port, 7), 0x5a);
        port.write(LINE_CONTROL, &[0x83]);
        port.write(0, &[1]);
        port.write(1, &[2]);
        assert_eq!((read(&mut port, 0), read(&mut port, 1)), (1, 2));
        port.write(LINE_CONTROL, &[0x03]);
        assert_eq!(read(&mut port, 1), 0);
        assert_eq!(read(&mut port, 0), b'x');
        assert!(written.lock().unwrap().is_empty());
    }

    #[test]
    fn loopback_keeps_the_line_silent() {
        let (mut port, written, _) = port(vec![b"from outside".to_vec()]);
        port.write(MODEM_CONTROL, &[0x10]);
        assert_eq!(read(&mut port, LINE_STATUS), 0x60);
        port.write(DATA, b"echo");
        let mut slice = [0; 4];
        port.read(DATA, &mut slice);
        assert_eq!(&slice, b"echo");
        port.write(MODEM_CONTROL, &[0x1f]);
        assert_eq!(read(&mut port, 6) & 0xf0, 0xf0);
        assert!(written.lock().unwrap().is_empty());
        port.write(MODEM_CONTROL, &[0x08]);
        assert_eq!(read(&mut port, DATA), b'f');
    }

    #[test]
    fn interrupts_when_enabled() {
        let (mut port, _, interrupt) = port(vec![vec![], b"ab".to_vec()]);
        port.write(INTERRUPT_ENABLE, &[0x01]);
        assert_eq!(interrupt.0.load(Ordering::Relaxed), 0);
        port.input_ready();
        assert_eq!(interrupt.0.load(Ordering::Relaxed), 1);
        assert_eq!(read(&mut port, INTERRUPT_IDENTIFICATION) & 0x0f, 0x04);
        port.write(INTERRUPT_ENABLE, &[0x02]);
        assert_eq!(interrupt.0.load(Ordering::Relaxed), 2);
        port.write(DATA, b"many bytes");
        assert_eq!(read(&mut port, INTERRUPT_IDENTIFICATION) & 0x0f, 0x02);
        assert_eq!(read(&mut port, INTERRUPT_IDENTIFICATION) & 0x0f, 0x01);
    }

    #[test]
    fn clearing_the_fifo_drops_what_has_arrived() {
        let (mut port, _, _) = port(vec![b"old".to_vec(), b"new".to_vec()]);
        assert_eq!(read(&mut port, DATA), b'o');
        port.write(INTERRUPT_IDENTIFICATION, &[0x07]);
        assert_eq!(read(&mut port, DATA), b'n');
    }

    #[test]
    fn outside_the_window_is_nothing() {
        let (mut port, written, _) = port(vec![b"x".to_vec()]);
        port.write(8, b"abc");
        port.write(255, b"abc");
        assert_eq!((read(&mut port, 8), read(&mut port, 255)), (0, 0));
        assert!(written.lock().unwrap().is_empty());
    }

    /// Nothing a driver does makes the port panic or hang, and what it sends arrives in order.
    #[test]
    fn random_accesses() {
        blockyard_fuzz::check!(2000).with_type::<Vec<(u8, bool, Vec<u8>)>>().for_each(|accesses| {
            let (mut port, _, _) = port(vec![vec![7; 300]; 3]);
            for (offset, write, bytes) in accesses {
                if *write {
                    port.write(offset % 10, bytes);
                } else {
                    port.read(offset % 10, &mut bytes.clone());
                }
                assert_eq!(read(&mut port, LINE_STATUS) & 0x60, 0x60);
            }
        });
    }
}
