//! What a copy cost, for people and for machines.

use super::args::CopyOptions;
use blockyard_block::size;
use blockyard_vmm::machine::ExitCounters;
use serde::Serialize;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A finished copy. What `--json` prints.
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

impl CopyReport {
    /// The summary: one line.
    pub fn summary(&self, options: &CopyOptions) -> String {
        // Holes take no time.
        let rate = if self.seconds > 0.0 { self.bytes_read as f64 / self.seconds } else { 0.0 };
        let data = match self.bytes_read.min(self.bytes) {
            all if all == self.bytes => String::new(),
            data => format!(", {} of it data,", size::human(data)),
        };
        let mut text = format!(
            "{} -> {}: {}{data} in {} ({}/s)",
            options.input.named,
            options.output.named,
            size::human(self.bytes),
            seconds(self.seconds),
            size::human(rate as u64),
        );
        if !self.backend.is_empty() {
            let _ = write!(text, " through a VM ({})", self.backend);
        }
        text
    }

    /// The counters, as a block of lines.
    pub fn statistics(&self) -> String {
        let Exits { total, waits, port_in, port_out, mmio_read, mmio_write, halts } = self.exits;
        let phases = [
            ("prepare", self.phases.prepare_seconds),
            ("boot", self.phases.boot_seconds),
            ("copy", self.phases.copy_seconds),
            ("flush", self.phases.flush_seconds),
            ("finish", self.phases.finish_seconds),
        ];
        let phases: Vec<_> = phases.iter().map(|(name, time)| format!("{name} {}", seconds(*time))).collect();
        let rows = [
            (
                "exits",
                format!(
                    "{total}: {waits} waits, {port_in} port in, {port_out} port out, {mmio_read} mmio read, {mmio_write} mmio write, {halts} halts"
                ),
            ),
            ("doorbells", self.doorbells.to_string()),
            ("interrupts", self.interrupts.to_string()),
            ("requests", self.requests.to_string()),
            ("read", size::human(self.bytes_read)),
            ("written", size::human(self.bytes_written)),
            ("zeroed", size::human(self.bytes_zeroed)),
            ("frames", self.frames.to_string()),
            ("time", phases.join(", ")),
        ];
        rows.iter().map(|(name, value)| format!("{name:<11}{value}\n")).collect()
    }
}

fn seconds(seconds: f64) -> String {
    match Duration::try_from_secs_f64(seconds) {
        Ok(time) if time < Duration::from_secs(1) => format!("{:.1} ms", seconds * 1e3),
        _ => format!("{seconds:.2} s"),
    }
}
