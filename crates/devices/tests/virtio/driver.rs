//! A driver's side: registers and rings.

use blockyard_block::{Disk, EventFd, MemoryMap};
use blockyard_devices::virtio::{
    BlockDevice, BlockDeviceOptions, BlockQueue, DeviceFailure, EntropyDevice, EntropyQueue, MmioTransport,
    VirtioDevice,
};
use blockyard_devices::{Interrupt, Limit, QueueSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use vm_memory::{Bytes, GuestAddress};

pub(crate) const MEMORY_BYTES: u64 = 0x40_0000;
/// Where the second region of memory starts, without a gap.
pub(crate) const SEAM: u64 = 0x20_0000;
pub(crate) const QUEUE_SIZE: u16 = 16;

pub(crate) const VERSION_1: u64 = 1 << 32;
pub(crate) const INDIRECT: u64 = 1 << 28;
pub(crate) const EVENT_IDX: u64 = 1 << 29;
pub(crate) const FLUSH: u64 = 1 << 9;
pub(crate) const DISCARD: u64 = 1 << 13;
pub(crate) const WRITE_ZEROES: u64 = 1 << 14;
pub(crate) const ALL_FEATURES: u64 = u64::MAX;

pub(crate) const OK: u8 = 0;
pub(crate) const IOERR: u8 = 1;
pub(crate) const UNSUPP: u8 = 2;

pub(crate) const NEXT: u16 = 1;
pub(crate) const WRITE: u16 = 2;
pub(crate) const INDIRECT_TABLE: u16 = 4;

/// Where requests put their parts.
pub(crate) const HEADER: u64 = 0x8_0000;
pub(crate) const STATUS: u64 = 0x8_1000;
pub(crate) const DATA: u64 = 0x10_0000;

/// What threads take at a turn.
pub(crate) const LIMIT: Limit = Limit { requests: QUEUE_SIZE, cost_bytes: 1 << 20, pairs: false };

/// A thread's work: serves queues until all were told to stop.
pub(crate) fn serve(queues: Vec<BlockQueue>) {
    let mut set = QueueSet::new(EventFd::new().unwrap()).unwrap();
    queues.into_iter().for_each(|queue| set.push(queue).unwrap());
    while !set.is_empty() {
        let round = set.round(LIMIT, |failure| panic!("{failure}"));
        if round.done == 0 && !set.is_empty() && !set.arm() {
            set.wait().unwrap();
        }
    }
}

#[derive(Default)]
pub(crate) struct Interrupts(pub(crate) AtomicUsize);

impl Interrupt for Interrupts {
    fn signal(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Memory for a machine, of zeros.
pub(crate) fn memory() -> MemoryMap {
    MemoryMap::allocate(&[(0, SEAM as usize), (SEAM, (MEMORY_BYTES - SEAM) as usize)]).unwrap()
}

/// A device with its driver. The queues are run by whoever takes them.
pub(crate) struct Machine<D = BlockDevice, Q = BlockQueue> {
    pub(crate) memory: MemoryMap,
    pub(crate) transport: MmioTransport<D>,
    pub(crate) queues: Arc<Mutex<Vec<Q>>>,
    pub(crate) interrupts: Arc<Interrupts>,
}

impl Machine {
    pub(crate) fn new(disk: Arc<dyn Disk>, queues: u16) -> Self {
        Self::with_queue_size(disk, queues, QUEUE_SIZE)
    }

    pub(crate) fn with_queue_size(disk: Arc<dyn Disk>, queues: u16, queue_size: u16) -> Self {
        Self::with_memory(disk, memory(), queues, queue_size)
    }

    /// What an earlier driver left in the memory stays there.
    pub(crate) fn with_memory(disk: Arc<dyn Disk>, memory: MemoryMap, queues: u16, queue_size: u16) -> Self {
        let options = BlockDeviceOptions { name: "test".into(), serial: "serial-0123".into(), queues, queue_size };
        let received = Arc::new(Mutex::new(Vec::new()));
        let sink = received.clone();
        let sink = Box::new(move |queues| *sink.lock().unwrap() = queues);
        let device = BlockDevice::new(disk, memory.clone(), &options, sink).unwrap();
        let interrupts = Arc::new(Interrupts::default());
        let transport = MmioTransport::new(device, interrupts.clone()).unwrap();
        Self { memory, transport, queues: received, interrupts }
    }

    /// Runs all queues until they have nothing more to do without waiting.
    pub(crate) fn run(&self) -> Result<(), DeviceFailure> {
        for queue in self.queues.lock().unwrap().iter_mut() {
            loop {
                while queue.process()? {}
                if !queue.arm() {
                    break;
                }
            }
        }
        Ok(())
    }
}

impl Machine<EntropyDevice, EntropyQueue> {
    /// With the entropy device.
    pub(crate) fn with_entropy(memory: MemoryMap) -> Self {
        let queues = Arc::new(Mutex::new(Vec::new()));
        let sink = queues.clone();
        let sink = Box::new(move |queue| *sink.lock().unwrap() = vec![queue]);
        let device = EntropyDevice::new("test", memory.clone(), sink);
        let interrupts = Arc::new(Interrupts::default());
        let transport = MmioTransport::new(device, interrupts.clone()).unwrap();
        Self { memory, transport, queues, interrupts }
    }
}

impl<D: VirtioDevice, Q> Machine<D, Q> {
    pub(crate) fn read(&self, offset: u64) -> u32 {
        let mut data = [0xaa; 4];
        self.transport.read(offset, &mut data);
        u32::from_le_bytes(data)
    }

    pub(crate) fn try_write(&mut self, offset: u64, value: u32) -> Result<(), DeviceFailure> {
        self.transport.write(offset, &value.to_le_bytes())
    }

    pub(crate) fn write(&mut self, offset: u64, value: u32) {
        self.try_write(offset, value).unwrap();
    }

    pub(crate) fn offered(&mut self) -> u64 {
        self.write(0x14, 0);
        let low = self.read(0x10);
        self.write(0x14, 1);
        u64::from(low) | u64::from(self.read(0x10)) << 32
    }

    /// Up to and including FEATURES_OK. What was accepted.
    pub(crate) fn negotiate(&mut self, wanted: u64) -> u64 {
        self.write(0x70, 0);
        self.write(0x70, 1);
        self.write(0x70, 3);
        let accepted = self.offered() & wanted;
        for page in 0..2 {
            self.write(0x24, page);
            self.write(0x20, (accepted >> (32 * page)) as u32);
        }
        self.write(0x70, 11);
        assert_eq!(self.read(0x70), 11);
        accepted
    }

    pub(crate) fn set_up_queue(&mut self, index: u16, size: u16) -> DriverQueue {
        let queue = DriverQueue::new(self.memory.clone(), 0x1_0000 + u64::from(index) * 0x1_0000, size);
        self.write(0x30, index.into());
        assert_ne!(self.read(0x34), 0);
        self.write(0x38, size.into());
        for (register, address) in [(0x80, queue.table), (0x90, queue.available), (0xa0, queue.used)] {
            self.write(register, address as u32);
            self.write(register + 4, (address >> 32) as u32);
        }
        self.write(0x44, 1);
        assert_eq!(self.read(0x44), 1);
        queue
    }

    /// A whole bring-up with every queue.
    pub(crate) fn start(&mut self, wanted: u64) -> Vec<DriverQueue> {
        self.negotiate(wanted | VERSION_1);
        let count = self.transport.doorbells().len() as u16;
        self.write(0x30, 0);
        let size = self.read(0x34) as u16;
        let queues = (0..count).map(|index| self.set_up_queue(index, size)).collect();
        self.write(0x70, 15);
        assert_eq!(self.read(0x70), 15);
        queues
    }
}

/// A driver's side of a virtqueue.
pub(crate) struct DriverQueue {
    pub(crate) memory: MemoryMap,
    pub(crate) table: u64,
    pub(crate) available: u64,
    pub(crate) used: u64,
    pub(crate) size: u16,
    pub(crate) available_index: u16,
    pub(crate) used_index: u16,
}

impl DriverQueue {
    pub(crate) fn new(memory: MemoryMap, base: u64, size: u16) -> Self {
        let (table, available, used) = (base, base + 0x4000, base + 0x8000);
        Self { memory, table, available, used, size, available_index: 0, used_index: 0 }
    }

    pub(crate) fn put<const N: usize>(&self, address: u64, bytes: [u8; N]) {
        self.memory.guest_memory().write_slice(&bytes, GuestAddress(address)).unwrap();
    }

    pub(crate) fn get16(&self, address: u64) -> u16 {
        self.memory.guest_memory().load(GuestAddress(address), Ordering::SeqCst).unwrap()
    }

    pub(crate) fn put16(&self, address: u64, value: u16) {
        self.memory.guest_memory().store(value, GuestAddress(address), Ordering::SeqCst).unwrap();
    }

    pub(crate) fn get_status(&self) -> u8 {
        self.memory.guest_memory().read_obj(GuestAddress(STATUS)).unwrap()
    }

    pub(crate) fn descriptor_at(&self, place: u64, address: u64, length: u32, flags: u16, next: u16) {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&address.to_le_bytes());
        bytes[8..12].copy_from_slice(&length.to_le_bytes());
        bytes[12..14].copy_from_slice(&flags.to_le_bytes());
        bytes[14..].copy_from_slice(&next.to_le_bytes());
        self.put(place, bytes);
    }

    /// Descriptors from `first` on, each linked to the one after it.
    pub(crate) fn chain_at(&self, first: u16, buffers: &[(u64, u32, bool)]) {
        self.table_at(self.table, first, buffers);
    }

    /// The same in a table anywhere.
    pub(crate) fn table_at(&self, table: u64, first: u16, buffers: &[(u64, u32, bool)]) {
        for (position, &(address, length, writable)) in buffers.iter().enumerate() {
            let index = first + position as u16;
            let last = position + 1 == buffers.len();
            let flags = if writable { WRITE } else { 0 } | if last { 0 } else { NEXT };
            self.descriptor_at(table + 16 * u64::from(index), address, length, flags, index + 1);
        }
    }

    pub(crate) fn header(&self, place: u64, request_type: u32, sector: u64) {
        self.put(place, request_type.to_le_bytes());
        self.put(place + 4, [0; 4]);
        self.put(place + 8, sector.to_le_bytes());
    }

    /// Makes the chain at `head` available.
    pub(crate) fn publish(&mut self, head: u16) {
        self.put16(self.available + 4 + 2 * u64::from(self.available_index % self.size), head);
        self.available_index = self.available_index.wrapping_add(1);
        self.put16(self.available + 2, self.available_index);
    }

    /// Whether EVENT_IDX demands to ring for what was published since `before`.
    pub(crate) fn must_ring(&self, before: u16) -> bool {
        let event = self.get16(self.used + 4 + 8 * u64::from(self.size));
        self.available_index.wrapping_sub(event).wrapping_sub(1) < self.available_index.wrapping_sub(before)
    }

    /// The next used element: (head, bytes).
    pub(crate) fn take_used(&mut self) -> Option<(u32, u32)> {
        if self.get16(self.used + 2) == self.used_index {
            return None;
        }
        let place = self.used + 4 + 8 * u64::from(self.used_index % self.size);
        self.used_index = self.used_index.wrapping_add(1);
        let [head, bytes] =
            [place, place + 4].map(|place| self.memory.guest_memory().read_obj(GuestAddress(place)).unwrap());
        Some((head, bytes))
    }

    /// Puts the ordinary request of header, data and status at descriptors 0 and following, with status 0xee.
    pub(crate) fn request(&mut self, request_type: u32, sector: u64, data: &[(u64, u32, bool)]) {
        self.header(HEADER, request_type, sector);
        self.put(STATUS, [0xee]);
        let mut buffers = vec![(HEADER, 16, false)];
        buffers.extend(data);
        buffers.push((STATUS, 1, true));
        self.chain_at(0, &buffers);
        self.publish(0);
    }
}
