//! `blockyard bench disk`: the block tester.

use super::contents;
use anyhow::{Context, Result, bail};
use blockyard_bench::cpu_idle::percent_text;
use blockyard_bench::disk::replay;
use blockyard_bench::disk::{self, AccessOrder, Operations, Progress, Report, Start, Workload, WorkloadError};
use blockyard_bench::table::Table;
use blockyard_block::specification::{DiskSpecification, Kind};
use blockyard_block::{shown, size};
use blockyard_command_line::progress::Line;
use blockyard_command_line::signals::EndSignals;
use blockyard_command_line::terminal::{self, print};
use blockyard_command_line::time;
use blockyard_command_line::usage_error::{UsageError, UsageLines};
use blockyard_session::open::{OpenOptions, open_disk};
use clap::{Args, ValueEnum};
use serde::Serialize;
use std::fmt::Write as _;
use std::fs::File;
use std::io::BufReader;
use std::num::NonZeroU64;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::Duration;

/// Test a disk: how fast it is, and with --verify whether it keeps what it was given.
///
/// Reads DISK sequentially unless told otherwise: --random, --ping-pong or --replay choose where, --write or --mix
/// what. Writing destroys what is on the disk, so one that holds anything is left alone without --force; without
/// --write or --mix the disk is opened read-only.
///
/// --verify writes blocks that carry their offset, the seed, how often they were written, and a checksum; then it
/// flushes, reads all of them back and checks them. When only reading it checks what an earlier run with --write
/// --verify and the same seed wrote.
///
/// Latency is from the submission of a batch to the moment a completion is seen. Exit status: 0 when all was done and,
/// with --verify, right; 1 on failure; 2 on wrong usage. Ctrl-C ends the run, whose figures so far are printed, with
/// status 130.
#[derive(Args)]
#[command(args_override_self = true)]
pub struct DiskBenchArgs {
    /// The disk: a file, a block device, mem:SIZE, null:SIZE, session:SOCKET, with ,KEY=VALUE options.
    #[arg(value_name = "DISK")]
    disk: String,
    /// Whole requests anywhere in the region, each place as likely as any other.
    #[arg(long, group = "access")]
    random: bool,
    /// Alternately from the region's start and from its end, until they meet.
    #[arg(long, group = "access")]
    ping_pong: bool,
    /// Do what a text file says, each line of it `read|write|flush|discard|zero OFFSET LENGTH`, in bytes.
    #[arg(long, value_name = "FILE", group = "access")]
    replay: Option<PathBuf>,
    /// Write instead of reading; with --replay: do also what changes the disk.
    #[arg(long, group = "operations")]
    write: bool,
    /// Write to a disk that has a partition table or anything but zeros.
    #[arg(short, long)]
    force: bool,
    /// Read and write, so many reads in a hundred requests.
    #[arg(long, value_name = "PERCENT", group = "operations", value_parser = clap::value_parser!(u8).range(0..=100))]
    mix: Option<u8>,
    /// Bytes in a request: a multiple of the disk's logical block, up to 64M [default: 4K, or a logical block].
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    size: Option<u64>,
    /// Where the region starts; with a minus, as in --start=-1G, so far before the disk's end.
    #[arg(long, value_name = "[-]OFFSET", default_value = "0", allow_hyphen_values = true, value_parser = start)]
    start: Start,
    /// The region's length, which is also how much is read or written if nothing else says [default: to the disk's
    /// end].
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    length: Option<u64>,
    /// How much to read and write, over and over the region or only a part of it [default: its length].
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    total: Option<u64>,
    /// Requests that each job keeps in flight, from 1 to 1024.
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u32).range(1..=1024))]
    batch: u32,
    /// Threads, each with a queue of its own, from 1 to 256; they share the region, except with --random.
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u32).range(1..=256))]
    jobs: u32,
    /// What random places, --mix and the pattern of --verify depend on; the same again is the same test.
    #[arg(long, value_name = "NUMBER", default_value = "42", value_parser = seed)]
    seed: u64,
    /// For a session: the size of its I/O buffer. Otherwise the most memory that requests in flight share.
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    io_buffer: Option<u64>,
    /// Copy the data between the memory shared with the disk and memory of our own, as most clients have to.
    #[arg(long, value_name = "WHETHER", default_value = "no")]
    copy: Copying,
    /// Check that what is read is what was written.
    #[arg(long)]
    verify: bool,
    /// Stop after so long, going over the region again and again until then.
    #[arg(long, value_name = "SECONDS", value_parser = time::seconds)]
    runtime: Option<Duration>,
    /// Flush after every N writes of a job.
    #[arg(long, value_name = "N")]
    flush_every: Option<NonZeroU64>,
    /// Directory whose files an image may refer to; may be given more than once.
    #[arg(long, value_name = "DIR")]
    allow_dir: Vec<PathBuf>,
    /// Print one JSON object instead of tables.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
pub(super) enum Copying {
    Yes,
    No,
}

/// The JSON object: what was asked, and what came out of it.
#[derive(Serialize)]
struct Output<'a> {
    disk: &'a str,
    access: &'static str,
    operations: &'static str,
    seed: u64,
    verify: bool,
    #[serde(flatten)]
    report: &'a Report,
}

/// Runs the command.
///
/// # Errors
/// When the disk cannot be opened, fails, or does not hold what it should; when a signal came.
pub fn run(args: &DiskBenchArgs) -> Result<()> {
    let workload = args.workload()?;
    let named = args.specification()?;
    let read_only = workload.operations == Operations::Read;
    let options = OpenOptions { read_only, ..blockyard_command_line::disk::to_write(&args.allow_dir) };
    let disk = open_disk(&named, &options)?.disk;
    // What is in no file or session holds nothing yet.
    let keeps = matches!(named.kind(), Kind::File | Kind::Session);
    if keeps && workload.operations != Operations::Read && !args.force && !disk.geometry().read_only {
        contents::refuse(&*disk, &args.disk)?;
    }
    let signals = EndSignals::catch()?;
    let mut bar = Bar::new();
    let watch = |progress: &Progress| {
        bar.show(progress);
        if signals.name().is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let report = disk::run(disk.as_ref(), &workload, watch).map_err(|error| explain(error, &args.disk))?;
    bar.line.clear();
    print(&if args.json { args.json(&report)? } else { args.table(&report) })?;
    if let Some(name) = signals.name() {
        bail!("stopped by {name}");
    }
    check(&args.disk, &report)
}

/// A workload that does not suit the disk is wrong usage; anything else is about the disk.
pub(super) fn explain(error: anyhow::Error, disk: &str) -> anyhow::Error {
    match error.downcast::<WorkloadError>() {
        Ok(usage) => UsageError(format!("{disk}: {usage}")).into(),
        Err(other) => other.context(disk.to_owned()),
    }
}

fn check(disk: &str, report: &Report) -> Result<()> {
    let Some(first) = report.first_mismatches.first() else { return Ok(()) };
    match report.mismatches {
        1 => bail!("{disk}: {first}"),
        count => bail!("{disk}: {first}; and so on, {count} blocks in all"),
    }
}

impl DiskBenchArgs {
    /// A session has an I/O buffer of its own, which its specification sets.
    fn specification(&self) -> Result<DiskSpecification> {
        let named: DiskSpecification = self.disk.parse().map_err(UsageLines::from)?;
        match self.io_buffer.filter(|_| self.is_session()) {
            Some(bytes) => Ok(named.with_io_buffer(bytes).map_err(UsageLines::from)?),
            None => Ok(named),
        }
    }

    fn is_session(&self) -> bool {
        self.disk.starts_with("session:")
    }

    fn workload(&self) -> Result<Workload> {
        Ok(Workload {
            access: self.access()?,
            operations: match self.mix {
                _ if self.write => Operations::Write,
                Some(reads_percent) => Operations::Mixed { reads_percent },
                None => Operations::Read,
            },
            size_bytes: self.size,
            start: self.start,
            length_bytes: self.length,
            total_bytes: self.total,
            batch: self.batch as usize,
            jobs: self.jobs as usize,
            seed: self.seed,
            buffer_bytes: self.io_buffer.filter(|_| !self.is_session()),
            copy: matches!(self.copy, Copying::Yes),
            verify: self.verify,
            runtime: self.runtime,
            flush_every: self.flush_every,
        })
    }

    fn access(&self) -> Result<AccessOrder> {
        let Some(path) = &self.replay else {
            return Ok(match (self.random, self.ping_pong) {
                (true, _) => AccessOrder::Random,
                (_, true) => AccessOrder::PingPong,
                _ => AccessOrder::Sequential,
            });
        };
        let file = File::open(path).with_context(|| format!("cannot open {}", shown(path)))?;
        let steps = replay::parse(BufReader::new(file)).with_context(|| shown(path).to_string())?;
        Ok(AccessOrder::Replay(steps.into()))
    }

    fn access_name(&self) -> &'static str {
        match (self.random, self.ping_pong, &self.replay) {
            (true, ..) => "random",
            (_, true, _) => "ping-pong",
            (.., Some(_)) => "replay",
            _ => "sequential",
        }
    }

    fn operations_name(&self) -> &'static str {
        match (self.write, self.mix) {
            (true, _) => "write",
            (_, Some(_)) => "mixed",
            _ => "read",
        }
    }

    fn json(&self, report: &Report) -> Result<String> {
        let output = Output {
            disk: &self.disk,
            access: self.access_name(),
            operations: self.operations_name(),
            seed: self.seed,
            verify: self.verify,
            report,
        };
        terminal::json(&output)
    }

    fn table(&self, report: &Report) -> String {
        let mut table =
            Table::new(&["workload", "MiB/s", "IOPS", "p50 µs", "p99 µs", "p99.9 µs", "max µs", "CPU idle %"]);
        let latency = report.latency_ns;
        let mut cells = vec![format!("{} {}", self.access_name(), self.operations_name())];
        cells.extend([report.mib_per_s, report.iops].map(|rate| format!("{rate:.1}")));
        cells.extend([latency.p50, latency.p99, latency.p999, latency.max].map(microseconds));
        cells.push(percent_text(&report.cpu_idle_percent));
        table.row(cells);
        let columns = terminal::output_columns();
        table.render_within(columns) + "\n" + &terminal::filled(&self.details(report), columns)
    }

    fn details(&self, report: &Report) -> String {
        let Report { reads, writes, flushes, discards, write_zeroes, .. } = *report;
        let counts = [
            (reads, "reads"),
            (writes, "writes"),
            (flushes, "flushes"),
            (discards, "discards"),
            (write_zeroes, "zeroings"),
        ];
        let counts: Vec<_> =
            counts.iter().filter(|(count, _)| *count > 0).map(|(n, name)| format!("{n} {name}")).collect();
        let counts = if counts.is_empty() { "no request".to_owned() } else { counts.join(", ") };
        let bytes = size::human(report.read_bytes + report.written_bytes);
        let mut text = format!("\n{counts}, {bytes} in {:.2} s; ", report.seconds);
        let (jobs, batch) = (report.jobs, report.batch);
        let _ = write!(text, "{jobs} job{}, {batch} in flight", if jobs == 1 { "" } else { "s" });
        if batch < self.batch as usize {
            let _ = write!(text, " (the disk or the memory takes no more)");
        }
        let _ = write!(text, "; {} submits, {} waits", report.submits, report.waits);
        if let Some(allocations) = report.allocations {
            let _ = write!(text, ", {allocations} allocations");
        }
        if flushes > 0 {
            let latency = report.flush_latency_ns;
            let _ =
                write!(text, "\nflushes: p50 {} µs, max {} µs", microseconds(latency.p50), microseconds(latency.max));
        }
        if self.verify {
            let right = if report.verified { "all as it should be" } else { "not all of it right" };
            let _ = write!(text, "\nverified {}: {right}", size::human(report.verified_bytes));
        }
        text
    }
}

fn microseconds(nanoseconds: u64) -> String {
    format!("{:.1}", nanoseconds as f64 / 1e3)
}

fn start(text: &str) -> Result<Start, String> {
    match text.strip_prefix('-') {
        Some(before_end) => size::parse(before_end).map(Start::FromEnd),
        None => size::parse(text).map(Start::FromStart),
    }
}

fn seed(text: &str) -> Result<u64, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| "a seed is a number such as 42 or 0xc0ffee".to_owned())
}

/// A line on the terminal, for runs over a second.
struct Bar {
    line: Line,
    is_shown: bool,
}

impl Bar {
    const AFTER: Duration = Duration::from_secs(1);

    fn new() -> Self {
        Self { line: Line::hidden(), is_shown: false }
    }

    fn show(&mut self, progress: &Progress) {
        if !self.is_shown && progress.elapsed >= Self::AFTER {
            self.is_shown = true;
            self.line.show();
        }
        if !self.is_shown {
            return;
        }
        let of_time = progress.runtime.map(|runtime| progress.elapsed.as_secs_f64() / runtime.as_secs_f64());
        let of_bytes = progress.total_bytes.map(|total| progress.done_bytes as f64 / total.max(1) as f64);
        let part = of_time.into_iter().chain(of_bytes).fold(0.0, f64::max);
        let rate = progress.done_bytes as f64 / progress.elapsed.as_secs_f64().max(1e-3);
        let what = if progress.reading_back { "reading back" } else { "testing" };
        self.line.set(
            part,
            vec![format!("{}/s", size::human(rate as u64)), size::human(progress.done_bytes), what.to_owned()],
        );
    }
}
