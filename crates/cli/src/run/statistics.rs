//! What a machine cost, for people.

use blockyard_block::size;
use blockyard_run::RunReport;
use blockyard_run::report::{DiskReport, Exits};

/// The counters, as a block of lines.
pub fn table(report: &RunReport) -> String {
    let Exits { total, port_in, port_out, mmio_read, mmio_write } = report.exits;
    let seconds = |seconds: f64| format!("{:.1} ms", seconds * 1e3);
    let placed = |cpus: &Option<Vec<usize>>| match cpus {
        Some(cpus) => cpus.iter().map(ToString::to_string).collect::<Vec<_>>().join(","),
        None => "any".to_owned(),
    };
    let mut rows = vec![
        ("backend".to_owned(), report.backend.to_owned()),
        ("ran".to_owned(), format!("{:.2} s, {} reboots", report.seconds, report.reboots)),
        (
            "cpu time".to_owned(),
            format!("{} to start, {} in all", seconds(report.start_cpu_seconds), seconds(report.cpu_seconds)),
        ),
        ("cpus".to_owned(), format!("vcpus {}, i/o {}", placed(&report.vcpu_cpus), placed(&report.io_cpus))),
        (
            "exits".to_owned(),
            format!("{total}: {port_in} port in, {port_out} port out, {mmio_read} mmio read, {mmio_write} mmio write"),
        ),
    ];
    for (index, disk) in report.disks.iter().enumerate() {
        let DiskReport { name, reads, writes, flushes, discards, doorbells, interrupts, .. } = disk;
        let (read, written) = (size::human(disk.bytes_read), size::human(disk.bytes_written));
        rows.push((
            format!("disk {index}"),
            format!(
                "{name}: {reads} reads ({read}), {writes} writes ({written}), {flushes} flushes, {discards} discards, \
                 {doorbells} doorbells, {interrupts} interrupts"
            ),
        ));
    }
    rows.iter().map(|(name, value)| format!("{name:<11}{value}\n")).collect()
}
