//! Interrupts for a guest that has no interrupt handlers: it waits by reading a port.

use crate::bus::PortDevice;
use blockyard_devices::Interrupt;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Arc, OnceLock};
use std::thread::{self, Thread};

/// One bit a device, set when the device interrupts, taken all at once by the vCPU that waits for them.
#[derive(Debug, Default)]
pub struct InterruptLatch {
    pending: AtomicU32,
    stopped: AtomicBool,
    waits: AtomicU64,
    waiter: OnceLock<Thread>,
}

impl InterruptLatch {
    /// Sets a device's bit and wakes the waiting vCPU, if it waits. Costs a system call only then.
    pub fn signal(&self, device: u32) {
        self.pending.fetch_or(1 << device, Ordering::SeqCst);
        self.wake();
    }

    /// Ends the current wait and all later ones: the VM is going away.
    pub fn stop(&self) {
        // A full barrier, as in `signal`: either the waiter sees this, or we see the waiter.
        self.stopped.swap(true, Ordering::SeqCst);
        self.wake();
    }

    /// Waits until a bit is set; takes and returns all that are. Zero once the latch is stopped. One thread waits: the
    /// first that ever did.
    pub fn wait(&self) -> u32 {
        self.waits.fetch_add(1, Ordering::Relaxed);
        self.waiter.get_or_init(thread::current);
        fence(Ordering::SeqCst);
        loop {
            let pending = self.pending.swap(0, Ordering::AcqRel);
            if pending != 0 || self.stopped.load(Ordering::Acquire) {
                return pending;
            }
            thread::park();
        }
    }

    /// How often the guest waited.
    pub fn waits(&self) -> u64 {
        self.waits.load(Ordering::Relaxed)
    }

    fn wake(&self) {
        if let Some(waiter) = self.waiter.get() {
            waiter.unpark();
        }
    }
}

/// One device's bit in a latch.
#[derive(Debug)]
pub struct LatchBit {
    /// Of the machine.
    pub latch: Arc<InterruptLatch>,
    /// The bit.
    pub device: u32,
}

impl Interrupt for LatchBit {
    fn signal(&self) {
        self.latch.signal(self.device);
    }
}

/// The port that a guest reads to wait on a latch.
#[derive(Debug)]
pub struct WaitPort(pub Arc<InterruptLatch>);

impl PortDevice for WaitPort {
    fn read(&mut self, _offset: u16, _size: u8, data: &mut [u8]) {
        let pending = self.0.wait().to_le_bytes();
        data.fill(0);
        data.iter_mut().zip(pending).for_each(|(byte, bits)| *byte = bits);
    }

    fn write(&mut self, _offset: u16, _size: u8, _data: &[u8]) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_before_the_wait_ends_it_at_once_and_is_taken() {
        let latch = InterruptLatch::default();
        latch.signal(0);
        latch.signal(3);
        assert_eq!(latch.wait(), 0b1001);
        latch.signal(1);
        assert_eq!(latch.wait(), 0b10);
        assert_eq!(latch.waits(), 2);
    }

    #[test]
    fn no_signal_is_lost_between_threads() {
        let latch = Arc::new(InterruptLatch::default());
        let (sender, receiver) = std::sync::mpsc::channel();
        let waiting = Arc::clone(&latch);
        let waiter = thread::spawn(move || {
            loop {
                match waiting.wait() {
                    0 => break,
                    bits => sender.send(bits).unwrap(),
                }
            }
        });
        for _ in 0..10_000 {
            latch.signal(2);
            assert_eq!(receiver.recv_timeout(std::time::Duration::from_secs(10)), Ok(4));
        }
        latch.stop();
        waiter.join().unwrap();
    }
}
