//! A virtio block device (virtio 1.2, section 5.2), as its driver sees it.

use crate::shared::{QueueAddresses, words64};
use crate::virtio_mmio::{ProbeError, VirtioMmio, feature};
use blockyard_protocol::layout::{CONTROL_BLOCK_BYTES, DMA_POOL, QUEUE_DEPTH_MAX, QUEUE_SIZE, QUEUES_MAX, Region};
use blockyard_protocol::messages::Vec;
use blockyard_virtqueue::{Buffer, Chain, DeviceError, DriverQueue, Table, Used, write_table};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The kind of device.
pub const DEVICE_ID: u32 = 2;
/// Bytes in the unit that requests and capacities count in, whatever the block size.
pub const SECTOR_BYTES: u64 = 512;

/// Its features (section 5.2.3).
const FLAG_BLOCK_SIZE: u64 = 1 << 6;
const FLAG_FLUSH: u64 = 1 << 9;
const FLAG_MULTIPLE_QUEUES: u64 = 1 << 12;
const FLAG_WRITE_ZEROES: u64 = 1 << 14;

/// Offsets in its configuration (section 5.2.4).
const CONFIG_CAPACITY: u64 = 0;
const CONFIG_BLOCK_SIZE: u64 = 20;
const CONFIG_QUEUES: u64 = 34;
const CONFIG_WRITE_ZEROES_SECTORS_MAX: u64 = 48;

/// What a request asks for: its type on the wire (section 5.2.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Operation {
    /// Read sectors.
    Read = 0,
    /// Write sectors.
    Write = 1,
    /// Make what was written durable.
    Flush = 4,
    /// Make sectors read as zeros.
    WriteZeroes = 13,
}

/// The status of a request that went well.
pub const STATUS_OK: u8 = 0;
/// The status byte before the device has written it.
pub const STATUS_NONE: u8 = 0xff;

/// In a write-zeroes segment's flags: the device may deallocate the sectors.
const UNMAP: u64 = 1;

/// A request's place in the DMA pool: its header, status, descriptor table.
#[derive(Clone, Copy, Debug)]
pub struct ControlBlock {
    address: u64,
    words: &'static [AtomicU64],
}

/// What lies where in it, in words of 8 bytes.
const HEADER: usize = 0;
const STATUS: usize = 2;
const SEGMENT: usize = 3;
const TABLE: usize = 6;
const WORDS: usize = 12;
const _: () = assert!(8 * WORDS as u64 <= CONTROL_BLOCK_BYTES);

impl ControlBlock {
    /// The `index`th of [`QUEUE_DEPTH_MAX`].
    ///
    /// # Panics
    /// When there are not so many.
    pub fn new(index: u16) -> Self {
        assert!(usize::from(index) < QUEUE_DEPTH_MAX, "no such control block");
        let address = DMA_POOL.start + u64::from(index) * CONTROL_BLOCK_BYTES;
        Self { address, words: words64(address, WORDS) }
    }

    /// Prepares a request for the sectors from `sector` on, with its data if it has any.
    pub fn prepare(&self, operation: Operation, sector: u64, data: Option<Buffer>) -> Table {
        self.words[HEADER].store(u64::from(operation as u32), Relaxed);
        self.words[HEADER + 1].store(sector, Relaxed);
        self.words[STATUS].store(u64::from(STATUS_NONE), Relaxed);
        let header = Buffer { address: self.address, length: 16, writable: false };
        let status = Buffer { address: self.address_of(STATUS), length: 1, writable: true };
        let (table, address) = (&self.words[TABLE..], self.address_of(TABLE));
        let written = match data {
            Some(data) => write_table(table, address, &[header, data, status]),
            None => write_table(table, address, &[header, status]),
        };
        match written {
            Ok(table) => table,
            Err(_) => unreachable!("three buffers fit, and the writable ones come last"),
        }
    }

    /// Prepares a request that makes `sectors` from `sector` on read as zeros.
    pub fn prepare_write_zeroes(&self, sector: u64, sectors: u32) -> Table {
        self.words[SEGMENT].store(sector, Relaxed);
        self.words[SEGMENT + 1].store(u64::from(sectors) | UNMAP << 32, Relaxed);
        let segment = Buffer { address: self.address_of(SEGMENT), length: 16, writable: false };
        self.prepare(Operation::WriteZeroes, 0, Some(segment))
    }

    /// What the device says of the request.
    pub fn status(&self) -> u8 {
        self.words[STATUS].load(Relaxed) as u8
    }

    const fn address_of(&self, word: usize) -> u64 {
        self.address + 8 * word as u64
    }
}

/// The driver's side of one of its virtqueues. Requests are known by their control blocks.
pub type Queue = DriverQueue<'static, { QUEUE_SIZE as usize }, u16>;

/// A device that is ready for requests.
#[derive(Debug)]
pub struct BlockDevice {
    registers: VirtioMmio,
    queues: Vec<Queue, QUEUES_MAX>,
    /// Bytes in it.
    pub capacity_bytes: u64,
    /// Bytes in its logical block.
    pub block_bytes: u32,
    /// Whether it keeps what was written only when told to flush.
    pub flushes: bool,
    /// Most bytes that one request may make zero; 0 when it knows no such request.
    pub zero_bytes_max: u64,
}

/// Why a block device cannot be driven.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BringUpError {
    /// The device is not as virtio devices are.
    Probe(ProbeError),
    /// It has fewer virtqueues than it shall be used with: how many it has.
    Queues(u16),
}

impl core::fmt::Display for BringUpError {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Probe(error) => error.fmt(formatter),
            Self::Queues(count) => write!(formatter, "it has only {count} virtqueues"),
        }
    }
}

impl From<ProbeError> for BringUpError {
    fn from(error: ProbeError) -> Self {
        Self::Probe(error)
    }
}

impl BlockDevice {
    /// Brings up the device at `registers` with `queues` virtqueues in `region`.
    ///
    /// # Errors
    /// When it cannot be used so.
    pub fn bring_up(registers: VirtioMmio, region: Region, queues: usize) -> Result<Self, BringUpError> {
        registers.identify(DEVICE_ID)?;
        let features = registers.negotiate(
            feature::VERSION_1 | feature::INDIRECT_DESCRIPTORS,
            feature::EVENT_IDX | FLAG_BLOCK_SIZE | FLAG_FLUSH | FLAG_MULTIPLE_QUEUES | FLAG_WRITE_ZEROES,
        )?;
        let has = |flag: u64| features & flag != 0;
        let queues_available = if has(FLAG_MULTIPLE_QUEUES) { registers.config16(CONFIG_QUEUES) } else { 1 };
        if queues > usize::from(queues_available) {
            return Err(BringUpError::Queues(queues_available));
        }
        let mut device = Self {
            registers,
            queues: Vec::new(),
            capacity_bytes: registers.config64(CONFIG_CAPACITY)?.saturating_mul(SECTOR_BYTES),
            block_bytes: if has(FLAG_BLOCK_SIZE) { registers.config32(CONFIG_BLOCK_SIZE) } else { SECTOR_BYTES as u32 },
            flushes: has(FLAG_FLUSH),
            zero_bytes_max: match has(FLAG_WRITE_ZEROES) {
                true => u64::from(registers.config32(CONFIG_WRITE_ZEROES_SECTORS_MAX)) * SECTOR_BYTES,
                false => 0,
            },
        };
        for index in 0..queues.min(QUEUES_MAX) {
            let addresses = QueueAddresses::new(region, index);
            let Ok(queue) = Queue::new(addresses.rings(), has(feature::EVENT_IDX)) else {
                unreachable!("the queue has room for as many descriptors as the rings");
            };
            registers.set_up_queue(index as u32, QUEUE_SIZE, &addresses)?;
            // There is room: no more than QUEUES_MAX are set up.
            _ = device.queues.push(queue);
        }
        registers.start();
        Ok(device)
    }

    /// Its registers.
    pub const fn registers(&self) -> &VirtioMmio {
        &self.registers
    }

    /// Its virtqueues.
    pub fn queues(&mut self) -> &mut [Queue] {
        &mut self.queues
    }

    /// Adds the request in control block `token` to virtqueue `queue`.
    ///
    /// # Panics
    /// When the virtqueue is full: it has room for every control block.
    pub fn add(&mut self, queue: usize, token: u16, table: Table) {
        if self.queues[queue].add(token, &Chain::Indirect(table)).is_err() {
            unreachable!("each control block is in flight once, and has a descriptor");
        }
    }

    /// Shows the device what was added, and rings where it wants that.
    pub fn publish(&mut self) {
        for (index, queue) in self.queues.iter_mut().enumerate() {
            if queue.publish() {
                self.registers.notify(index as u32);
            }
        }
    }

    /// Takes back a request of virtqueue `queue` that is done, if one is.
    ///
    /// # Errors
    /// When the device lies.
    pub fn pop_used(&mut self, queue: usize) -> Result<Option<Used<u16>>, DeviceError> {
        self.queues[queue].pop_used()
    }

    /// Whether a request is done and not taken back.
    pub fn has_used(&self) -> bool {
        self.queues.iter().any(Queue::has_used)
    }

    /// Asks for an interrupt when half of what one of the queues has in flight is done: the device goes on with the
    /// other half meanwhile. Returns whether it is already.
    pub fn enable_interrupts(&mut self) -> bool {
        // All of them, not only up to the first that says so.
        self.queues.iter_mut().fold(false, |any, queue| {
            let in_flight = queue.in_flight();
            any | (in_flight > 0 && queue.enable_interrupt_after(in_flight.div_ceil(2)))
        })
    }

    /// Asks for no interrupts.
    pub fn disable_interrupts(&mut self) {
        self.queues.iter_mut().for_each(|queue| queue.disable_interrupts());
    }
}
