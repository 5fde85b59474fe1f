//! A driver's side: registers, a command list and command tables.

use blockyard_block::{Disk, MemoryMap};
use blockyard_devices::ahci::{AhciController, AhciDisk, PortQueue};
use blockyard_devices::{Interrupt, IoQueue, IoQueueFailure, Limit, QueueStatistics};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use vm_memory::{Bytes, GuestAddress};

pub(crate) const MEMORY_BYTES: u64 = 0x10_0000;
/// Where the second region of memory starts, without a gap.
pub(crate) const SEAM: u64 = 0x8_0000;
/// Where data go.
pub(crate) const DATA: u64 = 0x6_0000;

pub(crate) const READ_QUEUED: u8 = 0x60;
pub(crate) const WRITE_QUEUED: u8 = 0x61;
pub(crate) const READ_DMA_EXT: u8 = 0x25;
pub(crate) const WRITE_DMA_EXT: u8 = 0x35;
pub(crate) const IDENTIFY: u8 = 0xec;
pub(crate) const FLUSH_EXT: u8 = 0xea;
pub(crate) const TRIM: u8 = 0x06;
pub(crate) const READ_LOG: u8 = 0x2f;

pub(crate) const GHC: u64 = 0x04;
pub(crate) const IS: u64 = 0x08;

/// A port's registers.
pub(crate) const CLB: u64 = 0x00;
pub(crate) const FB: u64 = 0x08;
pub(crate) const PORT_IS: u64 = 0x10;
pub(crate) const PORT_IE: u64 = 0x14;
pub(crate) const CMD: u64 = 0x18;
pub(crate) const TFD: u64 = 0x20;
pub(crate) const SIG: u64 = 0x24;
pub(crate) const SSTS: u64 = 0x28;
pub(crate) const SCTL: u64 = 0x2c;
pub(crate) const SERR: u64 = 0x30;
pub(crate) const SACT: u64 = 0x34;
pub(crate) const CI: u64 = 0x38;

/// Ready, without an error.
pub(crate) const READY: u32 = 0x50;
/// Causes in PxIS.
pub(crate) const REGISTERS: u32 = 1;
pub(crate) const PIO_SETUP: u32 = 1 << 1;
pub(crate) const DEVICE_BITS: u32 = 1 << 3;
pub(crate) const TASK_FILE_ERROR: u32 = 1 << 30;

#[derive(Default)]
pub(crate) struct Interrupts(AtomicUsize);

impl Interrupt for Interrupts {
    fn signal(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Interrupts {
    /// How many there were since the last time.
    pub(crate) fn take(&self) -> usize {
        self.0.swap(0, Ordering::SeqCst)
    }
}

/// A controller with its driver. The tests run the queues.
pub(crate) struct Hba {
    pub(crate) memory: MemoryMap,
    pub(crate) controller: AhciController,
    pub(crate) queues: Vec<PortQueue>,
    pub(crate) statistics: Vec<Arc<QueueStatistics>>,
    pub(crate) interrupts: Arc<Interrupts>,
}

/// A command to be put into a slot.
#[derive(Clone, Copy, Default)]
pub(crate) struct Ata {
    pub(crate) command: u8,
    pub(crate) features: u16,
    pub(crate) lba: u64,
    pub(crate) count: u16,
    pub(crate) device: u8,
}

impl Ata {
    /// A queued read or write of a slot.
    pub(crate) fn queued(command: u8, slot: u8, lba: u64, blocks: u16) -> Self {
        Self { command, features: blocks, lba, count: u16::from(slot) << 3, device: 0x40 }
    }

    pub(crate) fn frame(&self) -> [u8; 20] {
        let (lba, features, count) = (self.lba.to_le_bytes(), self.features.to_le_bytes(), self.count.to_le_bytes());
        let mut frame = [0; 20];
        frame[..4].copy_from_slice(&[0x27, 0x80, self.command, features[0]]);
        frame[4..8].copy_from_slice(&[lba[0], lba[1], lba[2], self.device]);
        frame[8..14].copy_from_slice(&[lba[3], lba[4], lba[5], features[1], count[0], count[1]]);
        frame
    }
}

pub(crate) fn memory() -> MemoryMap {
    MemoryMap::allocate(&[(0, SEAM as usize), (SEAM, (MEMORY_BYTES - SEAM) as usize)]).unwrap()
}

impl Hba {
    /// As after power-on.
    pub(crate) fn new(disks: Vec<Arc<dyn Disk>>) -> Self {
        Self::with_memory(disks, memory())
    }

    pub(crate) fn with_memory(disks: Vec<Arc<dyn Disk>>, memory: MemoryMap) -> Self {
        let interrupts = Arc::new(Interrupts::default());
        let mut controller = AhciController::new(memory.clone());
        let statistics: Vec<_> = disks.iter().map(|_| Arc::default()).collect();
        let attach = |(index, disk)| {
            let (name, serial) = (format!("sd{index}"), format!("serial-{index}"));
            let disk = AhciDisk { name, serial, disk, interrupt: Arc::clone(&interrupts) as _ };
            controller.attach(disk, Arc::clone(&statistics[index])).unwrap()
        };
        let queues = disks.into_iter().enumerate().map(attach).collect();
        Self { memory, controller, queues, statistics, interrupts }
    }

    /// One disk, whose port is started and has interrupts.
    pub(crate) fn started(disk: Arc<dyn Disk>) -> Self {
        let mut hba = Self::new(vec![disk]);
        hba.start(0);
        hba
    }

    pub(crate) fn read(&self, offset: u64) -> u32 {
        let mut data = [0xaa; 4];
        self.controller.read(offset, &mut data);
        u32::from_le_bytes(data)
    }

    pub(crate) fn write(&self, offset: u64, value: u32) {
        self.controller.write(offset, &value.to_le_bytes());
    }

    pub(crate) fn port(&self, port: u64, register: u64) -> u32 {
        self.read(0x100 + 0x80 * port + register)
    }

    pub(crate) fn set_port(&self, port: u64, register: u64, value: u32) {
        self.write(0x100 + 0x80 * port + register, value);
    }

    /// Brings a port up, as a driver does.
    pub(crate) fn start(&mut self, port: u64) {
        self.write(GHC, 1 << 31 | 1 << 1);
        self.set_port(port, CLB, list(port) as u32);
        self.set_port(port, FB, frames(port) as u32);
        self.set_port(port, CMD, 1 << 4);
        self.run();
        assert_eq!((self.port(port, TFD), self.port(port, SIG)), (0x150, 0x101));
        self.set_port(port, PORT_IE, !0);
        self.set_port(port, CMD, 1 << 4 | 1);
        assert_eq!(self.port(port, CMD) & 0xc011, 0xc011);
        self.interrupts.take();
    }

    /// After an error: stops the port, and starts it again.
    pub(crate) fn restart(&mut self, port: u64) {
        self.set_port(port, CMD, 1 << 4);
        self.run();
        assert_eq!(self.port(port, CMD) & 1 << 15, 0, "the port has not stopped");
        self.acknowledge(port);
        self.set_port(port, CMD, 1 << 4 | 1);
    }

    /// What the port's interrupts were for, acknowledged.
    pub(crate) fn acknowledge(&self, port: u64) -> u32 {
        let causes = self.port(port, PORT_IS);
        self.set_port(port, PORT_IS, causes);
        self.write(IS, 1 << port);
        causes
    }

    pub(crate) fn put(&self, address: u64, bytes: &[u8]) {
        self.memory.guest_memory().write_slice(bytes, GuestAddress(address)).unwrap();
    }

    pub(crate) fn get<const N: usize>(&self, address: u64) -> [u8; N] {
        self.memory.read(address).unwrap()
    }

    /// Puts a command into a slot.
    pub(crate) fn prepare(&self, port: u64, slot: u8, ata: &Ata, buffers: &[(u64, u32)]) {
        self.prepare_frame(port, slot, &ata.frame(), buffers);
    }

    pub(crate) fn prepare_frame(&self, port: u64, slot: u8, frame: &[u8; 20], buffers: &[(u64, u32)]) {
        let table = table(port, slot);
        let mut header = [0; 32];
        header[..4].copy_from_slice(&(5 | (buffers.len() as u32) << 16).to_le_bytes());
        header[8..16].copy_from_slice(&table.to_le_bytes());
        self.put(list(port) + 32 * u64::from(slot), &header);
        self.put(table, frame);
        for (place, (address, bytes)) in (table + 0x80..).step_by(16).zip(buffers) {
            self.put(place, &address.to_le_bytes());
            self.put(place + 12, &(bytes - 1).to_le_bytes());
        }
    }

    /// Issues slots, of queued commands or not.
    pub(crate) fn issue(&self, port: u64, slots: u32, queued: bool) {
        if queued {
            self.set_port(port, SACT, slots);
        }
        self.set_port(port, CI, slots);
    }

    /// Runs a command that is not queued in slot 0 of port 0. Its causes.
    pub(crate) fn command(&mut self, ata: &Ata, buffers: &[(u64, u32)]) -> u32 {
        self.prepare(0, 0, ata, buffers);
        self.issue(0, 1, false);
        self.run();
        self.acknowledge(0)
    }

    /// The same, which succeeds.
    pub(crate) fn succeed(&mut self, ata: &Ata, buffers: &[(u64, u32)]) {
        let causes = self.command(ata, buffers);
        assert_eq!((causes & TASK_FILE_ERROR, self.port(0, CI)), (0, 0), "{:#x}", ata.command);
        assert_eq!(self.port(0, TFD), READY);
    }

    /// The same, which fails with an error register. The port is started again.
    pub(crate) fn fail(&mut self, ata: &Ata, buffers: &[(u64, u32)]) -> u32 {
        let causes = self.command(ata, buffers);
        let task_file = self.port(0, TFD);
        assert_eq!(task_file & 1, 1, "{:#x} succeeds", ata.command);
        assert_eq!((causes & TASK_FILE_ERROR, self.port(0, CI)), (TASK_FILE_ERROR, 1));
        self.restart(0);
        task_file >> 8
    }

    /// Runs all queues until they have nothing more to do without waiting.
    pub(crate) fn run(&mut self) {
        self.try_run().unwrap();
    }

    pub(crate) fn try_run(&mut self) -> Result<(), IoQueueFailure> {
        let all = Limit { requests: u16::MAX, cost_bytes: u64::MAX, pairs: false };
        for queue in &mut self.queues {
            loop {
                while queue.process_up_to(all)? > 0 {}
                if !queue.arm() {
                    break;
                }
            }
        }
        Ok(())
    }
}

/// Where a port's command list lies.
pub(crate) fn list(port: u64) -> u64 {
    0x1000 + 0x1000 * port
}

/// Where a port's received frames lie.
pub(crate) fn frames(port: u64) -> u64 {
    0x1800 + 0x1000 * port
}

/// Where a slot's command table lies.
pub(crate) fn table(port: u64, slot: u8) -> u64 {
    0x1_0000 + 0x1_0000 * port + 0x400 * u64::from(slot)
}
