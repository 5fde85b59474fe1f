//! What a copy cost.

use blockyard_vmm::machine::ExitCounters;
use serde::Serialize;
use std::sync::atomic::{AtomicU64, Ordering};

/// A finished copy. Its names are an interface: programs read them in JSON.
#[derive(Clone, Debug, Default, Serialize)]
pub struct CopyReport {
    /// Bytes that are now in the destination, holes included.
    pub bytes: u64,
    /// Wall time of it all.
    pub seconds: f64,
    /// Hypervisor that ran the guest; empty when there was nothing to copy.
    pub backend: &'static str,
    /// virtio-blk requests that were completed, on both disks.
    pub requests: u64,
    /// Times a queue's doorbell rang. They cause no exits.
    pub doorbells: u64,
    /// Interrupts raised by the disks.
    pub interrupts: u64,
    /// Bytes the guest read from the input.
    pub bytes_read: u64,
    /// Bytes the guest wrote to the output.
    pub bytes_written: u64,
    /// Bytes the guest had zeroed on the output by write-zeroes.
    pub bytes_zeroed: u64,
    /// Messages from the guest.
    pub frames: u64,
    /// Times the guest came out to the VMM.
    pub exits: Exits,
    /// Where the time went.
    pub phases: Phases,
}

/// Exits by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Exits {
    /// All of them.
    pub total: u64,
    /// The guest had nothing to do until a disk interrupted.
    pub waits: u64,
    /// Other port input: frames to the guest.
    pub port_in: u64,
    /// Port output: frames and debug text from the guest.
    pub port_out: u64,
    /// Device registers read.
    pub mmio_read: u64,
    /// Device registers written.
    pub mmio_write: u64,
    /// `hlt`.
    pub halts: u64,
}

impl From<&ExitCounters> for Exits {
    fn from(counters: &ExitCounters) -> Self {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let mut exits = Self {
            total: 0,
            waits: load(&counters.waits),
            port_in: load(&counters.port_in),
            port_out: load(&counters.port_out),
            mmio_read: load(&counters.mmio_read),
            mmio_write: load(&counters.mmio_write),
            halts: load(&counters.halts),
        };
        exits.total = exits.waits + exits.port_in + exits.port_out + exits.mmio_read + exits.mmio_write + exits.halts;
        exits
    }
}

/// Seconds by phase; together they are the whole.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Phases {
    /// Opening the disks, allocating storage, creating the VM.
    pub prepare_seconds: f64,
    /// From the guest's first instruction until it copies.
    pub boot_seconds: f64,
    /// Copying.
    pub copy_seconds: f64,
    /// The guest's flush.
    pub flush_seconds: f64,
    /// Stopping the VM, giving the destination its name.
    pub finish_seconds: f64,
}
