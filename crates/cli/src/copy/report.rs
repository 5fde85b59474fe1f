//! What a copy cost, for people.

use blockyard_block::size;
use blockyard_copy::{CopyPlan, CopyReport, Exits};
use std::fmt::Write;
use std::time::Duration;

/// The summary: one line.
pub fn summary(report: &CopyReport, plan: &CopyPlan) -> String {
    // Holes take no time.
    let rate = if report.seconds > 0.0 { report.bytes_read as f64 / report.seconds } else { 0.0 };
    let data = match report.bytes_read.min(report.bytes) {
        all if all == report.bytes => String::new(),
        data => format!(", {} of it data,", size::human(data)),
    };
    let mut text = format!(
        "{} -> {}: {}{data} in {} ({}/s)",
        plan.input.named,
        plan.output.named,
        size::human(report.bytes),
        seconds(report.seconds),
        size::human(rate as u64),
    );
    if !report.backend.is_empty() {
        let _ = write!(text, " through a VM ({})", report.backend);
    }
    text
}

/// The counters, as a block of lines.
pub fn statistics(report: &CopyReport) -> String {
    let Exits { total, waits, port_in, port_out, mmio_read, mmio_write, halts } = report.exits;
    let phases = [
        ("prepare", report.phases.prepare_seconds),
        ("boot", report.phases.boot_seconds),
        ("copy", report.phases.copy_seconds),
        ("flush", report.phases.flush_seconds),
        ("finish", report.phases.finish_seconds),
    ];
    let phases: Vec<_> = phases.iter().map(|(name, time)| format!("{name} {}", seconds(*time))).collect();
    let rows = [
        (
            "exits",
            format!(
                "{total}: {waits} waits, {port_in} port in, {port_out} port out, {mmio_read} mmio read, {mmio_write} mmio write, {halts} halts"
            ),
        ),
        ("doorbells", report.doorbells.to_string()),
        ("interrupts", report.interrupts.to_string()),
        ("requests", report.requests.to_string()),
        ("read", size::human(report.bytes_read)),
        ("written", size::human(report.bytes_written)),
        ("zeroed", size::human(report.bytes_zeroed)),
        ("frames", report.frames.to_string()),
        ("time", phases.join(", ")),
    ];
    rows.iter().map(|(name, value)| format!("{name:<11}{value}\n")).collect()
}

fn seconds(seconds: f64) -> String {
    match Duration::try_from_secs_f64(seconds) {
        Ok(time) if time < Duration::from_secs(1) => format!("{:.1} ms", seconds * 1e3),
        _ => format!("{seconds:.2} s"),
    }
}
