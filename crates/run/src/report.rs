//! What a run was, in numbers.

use blockyard_block::RequestError;
use blockyard_block::specification::DiskSpecification;
use blockyard_session::open::OpenDisk;
use blockyard_vmm::attached_disk::DiskCounts;
use blockyard_vmm::machine::ExitCounters;
use blockyard_vmm::placement::Placement;
use rustix::time::{ClockId, Timespec, clock_gettime};
use serde::Serialize;
use std::sync::atomic::Ordering;

/// A run that has ended, or what is known of it so far. Its names are an interface: programs read them in JSON.
#[derive(Clone, Debug, Default, Serialize)]
pub struct RunReport {
    /// Who executed the guest.
    pub backend: &'static str,
    /// Wall time from the first instruction to the end.
    pub seconds: f64,
    /// CPU time of this process before the guest's first instruction.
    pub start_cpu_seconds: f64,
    /// CPU time of this process, the guest's own instructions among it.
    pub cpu_seconds: f64,
    /// How often the guest rebooted.
    pub reboots: u32,
    /// Whether it ended because the guest wanted to reboot, and was not to (`no_reboot`).
    pub ended_by_reboot: bool,
    /// CPUs of the vCPUs, where they were placed: vCPU n on the nth, over and over.
    pub vcpu_cpus: Option<Vec<usize>>,
    /// CPUs of the I/O threads, likewise.
    pub io_cpus: Option<Vec<usize>>,
    /// Times that the guest came out to the VMM, since it last booted.
    pub exits: Exits,
    /// Each disk, since the guest last booted.
    pub disks: Vec<DiskReport>,
}

/// Exits by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Exits {
    /// All of them.
    pub total: u64,
    /// Ports read.
    pub port_in: u64,
    /// Ports written.
    pub port_out: u64,
    /// Device registers read.
    pub mmio_read: u64,
    /// Device registers written.
    pub mmio_write: u64,
}

/// What a disk was asked for.
#[derive(Clone, Debug, Default, Serialize)]
pub struct DiskReport {
    /// Its specification.
    pub name: String,
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Discards and write-zeroes.
    pub discards: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// Times that a doorbell of it rang: no exits.
    pub doorbells: u64,
    /// Interrupts raised by it.
    pub interrupts: u64,
    /// Why the first request failed that did, since the machine was first switched on. The guest hears only that it
    /// failed.
    pub first_error: Option<String>,
}

impl From<&ExitCounters> for Exits {
    fn from(counters: &ExitCounters) -> Self {
        let [port_in, port_out, mmio_read, mmio_write] =
            [&counters.port_in, &counters.port_out, &counters.mmio_read, &counters.mmio_write]
                .map(|counter| counter.load(Ordering::Relaxed));
        Self { total: port_in + port_out + mmio_read + mmio_write, port_in, port_out, mmio_read, mmio_write }
    }
}

impl DiskReport {
    pub(crate) fn new(name: String, counts: DiskCounts, first_error: Option<String>) -> Self {
        Self {
            name,
            first_error,
            reads: counts.reads,
            writes: counts.writes,
            flushes: counts.flushes,
            discards: counts.discards + counts.write_zeroes,
            bytes_read: counts.bytes_read,
            bytes_written: counts.bytes_written,
            doorbells: counts.doorbells,
            interrupts: counts.interrupts,
        }
    }
}

/// CPU time of this process so far.
pub(crate) fn cpu_seconds() -> f64 {
    let Timespec { tv_sec, tv_nsec } = clock_gettime(ClockId::ProcessCPUTime);
    tv_sec as f64 + tv_nsec as f64 / 1e9
}

impl RunReport {
    /// Whether the guest came to its first instruction.
    pub fn has_begun(&self) -> bool {
        self.start_cpu_seconds > 0.0
    }

    /// Takes in what the guest has done to its disks since it booted.
    pub(crate) fn boot_ended(
        &mut self,
        disks: &[(DiskSpecification, OpenDisk)],
        done: impl Iterator<Item = (DiskCounts, Option<RequestError>)>,
    ) {
        let mut before = std::mem::take(&mut self.disks).into_iter().map(|disk| disk.first_error);
        let reports = disks.iter().zip(done).map(|((name, disk), (counts, error))| {
            let error = before.next().flatten().or_else(|| error.map(|error| disk.reason(error)));
            DiskReport::new(name.to_string(), counts, error)
        });
        self.disks = reports.collect();
    }

    /// What the guest heard of as errors, and nobody else: a sentence for each disk that failed it.
    pub(crate) fn disk_failures(&self) -> impl Iterator<Item = String> {
        let failure = |disk: &DiskReport| {
            let error = disk.first_error.as_ref()?;
            Some(format!("{}: a request of the guest's failed: {error}", disk.name))
        };
        self.disks.iter().filter_map(failure)
    }

    pub(crate) fn placed(&mut self, placement: &Placement) {
        self.vcpu_cpus = placement.vcpus.as_ref().map(|list| list.cpus().to_vec());
        self.io_cpus = placement.io.as_ref().map(|list| list.cpus().to_vec());
    }
}
