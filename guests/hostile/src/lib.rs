//! What the hostile guests have in common: an honest beginning, a virtqueue that takes any lie, and a report.
//!
//! Each file in `src/bin` is one guest, and its first lines say what it does and what the VMM should make of it. A
//! guest that survives ends with an Error message ([`report`]) whose detail says what came of each attempt, in words
//! that tests can look for: [`Answer`]'s.
#![no_std]

use blockyard_guest_runtime::block::{BlockDevice, SECTOR_BYTES, STATUS_NONE};
use blockyard_guest_runtime::shared::{QueueAddresses, words16, words64};
use blockyard_guest_runtime::text::text;
use blockyard_guest_runtime::virtio_mmio::status::NEEDS_RESET;
use blockyard_guest_runtime::virtio_mmio::{VirtioMmio, feature, register};
use blockyard_guest_runtime::{debug, serial, vcpu};
use blockyard_protocol::layout::{DMA_POOL, INPUT_VIRTQUEUES, OUTPUT_VIRTQUEUES, QUEUE_SIZE, Region};
use blockyard_protocol::messages::{Error, GuestMessage, GuestOperation, Init, Stage, String, VmmConfig};
use blockyard_virtqueue::{available_words, descriptor_words, used_words};
use core::fmt::{self, Write};
use core::hint;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};

/// Descriptor flags (section 2.7.5).
pub const NEXT: u16 = 1;
/// The device writes the buffer.
pub const WRITE: u16 = 2;
/// The buffer is a table of descriptors.
pub const INDIRECT: u16 = 4;

/// Where requests' parts lie: a header, a status byte, room for a table, room for data.
pub const HEADER: u64 = DMA_POOL.start;
/// The status byte.
pub const STATUS: u64 = DMA_POOL.start + 16;
/// Room for a descriptor table.
pub const TABLE: u64 = DMA_POOL.start + 0x1000;
/// Room for data.
pub const DATA: u64 = DMA_POOL.start + 0x10000;

/// How long to wait for an answer: looks at the device's status register, and pauses between two.
const LOOKS: u32 = 100;
const PAUSES: u32 = 20_000;

/// Says that it has started and reads what it should do, as an honest guest.
pub fn begin() -> VmmConfig {
    serial::send(&GuestMessage::Init(Init { stage: Stage::Started }));
    let mut config = VmmConfig::default();
    if let Err(error) = serial::receive(&mut config) {
        report(GuestOperation::Config, 0, format_args!("{error}"));
    }
    config
}

/// The registers of the device called `name`.
pub fn registers(config: &VmmConfig, name: &str) -> VirtioMmio {
    let device = config.devices.iter().find(|device| device.name.as_str() == name);
    match device.and_then(|device| VirtioMmio::new(device.address)) {
        Some(registers) => registers,
        None => report(GuestOperation::Config, 0, format_args!("no device {name}")),
    }
}

/// Where the virtqueues of the device called `name` go.
pub fn region(name: &str) -> Region {
    if name == "input" { INPUT_VIRTQUEUES } else { OUTPUT_VIRTQUEUES }
}

/// Brings up the device called `name`, as an honest guest, with one virtqueue.
pub fn bring_up(config: &VmmConfig, name: &str) -> BlockDevice {
    match BlockDevice::bring_up(registers(config, name), region(name), 1) {
        Ok(device) => device,
        Err(error) => report(GuestOperation::Probe, 0, format_args!("{name}: {error}")),
    }
}

/// Ends the guest with an Error message.
pub fn report(operation: GuestOperation, status: u8, detail: fmt::Arguments<'_>) -> ! {
    debug!("{detail}");
    let error = Error { operation, status: u32::from(status), detail: text(detail), ..Error::default() };
    serial::send(&GuestMessage::Error(error));
    vcpu::halt()
}

/// Several attempts, and what came of them.
///
/// A VMM may stop a guest at its first attempt, and then the others would never be seen: so a guest begins with the
/// attempt whose number progress_percent is, from 1 on, which is what it is unless the user says otherwise.
pub struct Findings {
    skip: u32,
    detail: String<200>,
    status: u8,
}

impl Findings {
    /// No attempts yet.
    pub fn new(config: &VmmConfig) -> Self {
        Self { skip: config.progress_percent.saturating_sub(1), detail: String::new(), status: 0 }
    }

    /// Makes an attempt, unless it is one before the first to be made, and notes what comes of it.
    pub fn attempt(&mut self, what: &str, attempt: impl FnOnce() -> Answer) {
        if self.skip > 0 {
            self.skip -= 1;
            return;
        }
        let answer = attempt();
        debug!("{what}: {answer}");
        let separator = if self.detail.is_empty() { "" } else { "; " };
        // What does not fit is on COM2 all the same.
        _ = write!(self.detail, "{separator}{what}: {answer}");
        if let Answer::Used { status } = answer {
            self.status = status;
        }
    }

    /// Ends the guest with an Error message that has them all, and the status of the last.
    pub fn report(self, operation: GuestOperation) -> ! {
        let detail = if self.detail.is_empty() { "no such attempt" } else { self.detail.as_str() };
        report(operation, self.status, format_args!("{detail}"))
    }
}

/// What a device did about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It used the chain, and this is the status byte: 255 when it did not write any.
    Used {
        /// The status byte.
        status: u8,
    },
    /// It said that it needs a reset.
    NeedsReset,
    /// It did nothing for quite some time.
    Nothing,
}

impl fmt::Display for Answer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Used { status } => write!(formatter, "status {status}"),
            Self::NeedsReset => formatter.write_str("needs reset"),
            Self::Nothing => formatter.write_str("no answer"),
        }
    }
}

/// A device with one virtqueue that nobody checks.
pub struct RawQueue {
    registers: VirtioMmio,
    addresses: QueueAddresses,
}

impl RawQueue {
    /// Brings up the device called `name` afresh, as an honest guest, and forgets the honest driver.
    pub fn new(config: &VmmConfig, name: &str) -> Self {
        let device = bring_up(config, name);
        let addresses = QueueAddresses::new(region(name), 0);
        // No interrupts, and no EVENT_IDX to think about: every change is notified.
        Self { registers: *device.registers(), addresses }
    }

    /// The device's registers.
    pub const fn registers(&self) -> &VirtioMmio {
        &self.registers
    }

    /// Writes a descriptor of the ring.
    pub fn descriptor(&self, index: u16, address: u64, length: u32, flags: u16, next: u16) {
        let words = words64(self.addresses.descriptors, descriptor_words(QUEUE_SIZE));
        write_descriptor(&words[2 * usize::from(index)..], address, length, flags, next);
    }

    /// Writes descriptors 0, 1 and 2 of an honest request: header, data, status.
    pub fn request(&self, operation: u32, sector: u64, address: u64, length: u32) {
        self.header(operation, sector);
        let data_flags = if operation == 0 { NEXT | WRITE } else { NEXT };
        self.descriptor(0, HEADER, 16, NEXT, 1);
        self.descriptor(1, address, length, data_flags, 2);
        self.descriptor(2, STATUS, 1, WRITE, 0);
    }

    /// Writes a request's header, and a status byte that says nothing.
    pub fn header(&self, operation: u32, sector: u64) {
        let words = words64(HEADER, 3);
        words[0].store(u64::from(operation), Relaxed);
        words[1].store(sector, Relaxed);
        words[2].store(u64::from(STATUS_NONE), Relaxed);
    }

    /// Makes the chain that begins at `head` available, and waits for an answer.
    pub fn offer(&self, head: u16) -> Answer {
        let available = words16(self.addresses.available, available_words(QUEUE_SIZE));
        let index = available[1].load(Relaxed);
        available[2 + usize::from(index % QUEUE_SIZE)].store(head, Relaxed);
        self.set_available_index(index.wrapping_add(1))
    }

    /// Sets the available ring's index to anything, and waits for an answer.
    pub fn set_available_index(&self, index: u16) -> Answer {
        let used = words16(self.addresses.used, used_words(QUEUE_SIZE));
        let before = used[1].load(Relaxed);
        words16(self.addresses.available, available_words(QUEUE_SIZE))[1].store(index, SeqCst);
        self.registers.notify(0);
        self.answer(|| used[1].load(SeqCst) != before)
    }

    /// Waits until the device has used something, or given up, or long enough.
    pub fn answer(&self, used: impl Fn() -> bool) -> Answer {
        for _ in 0..LOOKS {
            for _ in 0..PAUSES {
                if used() {
                    return Answer::Used { status: words64(HEADER, 3)[2].load(SeqCst) as u8 };
                }
                hint::spin_loop();
            }
            if self.registers.read(register::STATUS) & NEEDS_RESET != 0 {
                return Answer::NeedsReset;
            }
        }
        Answer::Nothing
    }
}

/// Brings a device as far as its virtqueues, which are left to the caller.
pub fn negotiate(registers: &VirtioMmio) {
    if let Err(error) = registers.negotiate(feature::VERSION_1 | feature::INDIRECT_DESCRIPTORS, 0) {
        report(GuestOperation::Probe, 0, format_args!("{error}"));
    }
}

/// Writes a descriptor into a table at [`TABLE`].
pub fn table_descriptor(index: u16, address: u64, length: u32, flags: u16, next: u16) {
    write_descriptor(&words64(TABLE, 512)[2 * usize::from(index)..], address, length, flags, next);
}

/// Sectors, as virtio counts them, in the device.
pub fn sectors(device: &BlockDevice) -> u64 {
    device.capacity_bytes / SECTOR_BYTES
}

fn write_descriptor(words: &[AtomicU64], address: u64, length: u32, flags: u16, next: u16) {
    words[0].store(address, Relaxed);
    words[1].store(u64::from(length) | u64::from(flags) << 32 | u64::from(next) << 48, Relaxed);
}
