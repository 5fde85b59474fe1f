//! The guest's memory map and I/O addresses: the one place that says where things are.
//!
//! The first 8 MiB are as the system that this one follows had them; a larger data pool comes after. Relations between
//! the regions are asserted when this is compiled.

/// Bytes from `start` up to `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// Guest-physical address of the first byte.
    pub start: u64,
    /// Guest-physical address after the last byte.
    pub end: u64,
}

impl Region {
    const fn new(start: u64, length: u64) -> Self {
        Self { start, end: start + length }
    }

    /// Length in bytes.
    pub const fn length(&self) -> u64 {
        self.end - self.start
    }
}

/// Global descriptor table, three entries.
pub const GDT: Region = Region::new(0x1000, 32);
/// PML4, PDPT and PD: the first GiB at its own addresses.
pub const PAGE_TABLES: Region = Region::new(0x2000, 0x3000);
/// The flat binary with its zero-initialised data; entered at its first byte.
pub const CODE: Region = Region::new(0x1_0000, 0xf_0000);
/// Virtqueues of the input device.
pub const INPUT_VIRTQUEUES: Region = Region::new(0x10_0000, 0x1_0000);
/// Virtqueues of the output device.
pub const OUTPUT_VIRTQUEUES: Region = Region::new(0x11_0000, 0x1_0000);
/// Request headers, status bytes and descriptor tables; data buffers too where they fit.
pub const DMA_POOL: Region = Region::new(0x20_0000, 0x10_0000);
/// The stack grows down from [`STACK_TOP`].
pub const STACK: Region = Region::new(0x30_0000, 0x10_0000);
/// Initial stack pointer: as after a call, so that the entry point is an ordinary function.
pub const STACK_TOP: u64 = STACK.end - 8;
/// What is fixed ends here: the least memory a guest can have.
pub const MEMORY_MIN_BYTES: u64 = 0x80_0000;
/// Data buffers start here in a guest that has more than the least.
pub const DATA_POOL_START: u64 = MEMORY_MIN_BYTES;
/// The most memory a guest can have: devices come after it, within the page tables' GiB.
pub const MEMORY_MAX_BYTES: u64 = 0x2000_0000;

/// virtio-mmio register blocks, one after the other.
pub const VIRTIO_MMIO: Region = Region::new(0x3000_0000, 0x1_0000);
/// Length of one device's register block.
pub const VIRTIO_MMIO_STRIDE: u64 = 0x1000;

/// COM1: protobuf frames.
pub const COM1_PORT: u16 = 0x3f8;
/// COM2: plain text, line by line.
pub const COM2_PORT: u16 = 0x2f8;
/// A 4-byte read here returns when a device has interrupted since the last such read: bit n set for device n. At once,
/// if one has already. It is how a guest without interrupt handlers waits.
pub const WAIT_PORT: u16 = 0x600;

/// Virtqueues a device may have.
pub const QUEUES_MAX: usize = 4;
/// Descriptors in a virtqueue: one per request, each pointing to an indirect table.
pub const QUEUE_SIZE: u16 = 256;
/// Room for one virtqueue: descriptors 4096, available ring 518, used ring 2054 bytes, each aligned.
pub const VIRTQUEUE_STRIDE: u64 = 0x2000;
/// Bytes in [`DMA_POOL`] for one request in flight: header, status, descriptor table.
pub const CONTROL_BLOCK_BYTES: u64 = 128;
/// Requests in flight at most, all queues of a device together.
pub const QUEUE_DEPTH_MAX: usize = 256;

/// Largest sector size, in bytes; the smallest is [`SECTOR_SIZE_MIN`], and all are powers of two.
pub const SECTOR_SIZE_MAX: u32 = 65536;
/// Smallest sector size, in bytes.
pub const SECTOR_SIZE_MIN: u32 = 512;

/// Where the data buffers of `depth` requests of `request_bytes` go in a guest with `memory_bytes`: the address of the
/// first, each following the one before. `None` when they do not fit.
pub const fn data_buffers(memory_bytes: u64, request_bytes: u64, depth: u64) -> Option<u64> {
    let Some(needed) = request_bytes.checked_mul(depth) else { return None };
    let small = DMA_POOL.start + QUEUE_DEPTH_MAX as u64 * CONTROL_BLOCK_BYTES;
    // Buffers start on a page, so that direct I/O could use them.
    let small = small.next_multiple_of(4096);
    if needed <= DMA_POOL.end - small {
        return Some(small);
    }
    if memory_bytes >= DATA_POOL_START && needed <= memory_bytes - DATA_POOL_START {
        return Some(DATA_POOL_START);
    }
    None
}

/// The least memory, in whole MiB, in which `depth` buffers of `request_bytes` fit; `None` when no guest is large
/// enough.
pub const fn memory_bytes(request_bytes: u64, depth: u64) -> Option<u64> {
    if data_buffers(MEMORY_MIN_BYTES, request_bytes, depth).is_some() {
        return Some(MEMORY_MIN_BYTES);
    }
    let Some(needed) = request_bytes.checked_mul(depth) else { return None };
    let Some(end) = DATA_POOL_START.checked_add(needed) else { return None };
    if end > MEMORY_MAX_BYTES {
        return None;
    }
    Some(end.next_multiple_of(1 << 20))
}

const _: () = {
    let fixed = [GDT, PAGE_TABLES, CODE, INPUT_VIRTQUEUES, OUTPUT_VIRTQUEUES, DMA_POOL, STACK];
    let mut index = 1;
    while index < fixed.len() {
        assert!(fixed[index - 1].end <= fixed[index].start, "regions are in order and apart");
        index += 1;
    }
    assert!(STACK.end <= MEMORY_MIN_BYTES);
    assert!(MEMORY_MAX_BYTES <= VIRTIO_MMIO.start);
    assert!(VIRTIO_MMIO.end <= 1 << 30, "the page tables cover one GiB");
    assert!(PAGE_TABLES.start.is_multiple_of(4096));
    assert!(QUEUES_MAX as u64 * VIRTQUEUE_STRIDE <= INPUT_VIRTQUEUES.length());
    assert!(QUEUES_MAX as u64 * VIRTQUEUE_STRIDE <= OUTPUT_VIRTQUEUES.length());
    assert!(QUEUE_DEPTH_MAX <= QUEUE_SIZE as usize);
    assert!(STACK_TOP % 16 == 8, "the ABI's alignment on entry to a function");
    assert!(data_buffers(MEMORY_MIN_BYTES, SECTOR_SIZE_MAX as u64, 1).is_some());
};
