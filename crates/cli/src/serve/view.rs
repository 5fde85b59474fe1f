//! What can be said of a server at one moment, for the screen, for Prometheus and for SIGUSR1.

use blockyard_bench::table::Table;
use blockyard_block::layers::{LatencySnapshot, Meter, MeterSnapshot, OperationKind};
use blockyard_block::size;
use blockyard_devices::virtio::QueueCounts;
use blockyard_session::server::{Session, SessionStatistics};
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Clients, since each came.
#[derive(Clone, Debug, Default)]
pub struct ServerView {
    /// One for each that is there.
    pub clients: Vec<ClientView>,
}

/// A client since it came.
#[derive(Clone, Debug)]
pub struct ClientView {
    /// Which of all the clients there ever were it is.
    pub number: u64,
    /// What it is served.
    pub name: String,
    /// What it has done.
    pub statistics: SessionStatistics,
    taken_at: Instant,
}

/// Looks at a server's clients, at any time, from any thread.
pub type Look = Arc<dyn Fn() -> ServerView + Send + Sync>;

impl ServerView {
    /// A screenful: what each client did since `earlier`, no wider than so many columns.
    pub fn screen(&self, earlier: &Self, columns: Option<usize>) -> String {
        let mut table = Table::new(&["client", "IOPS", "MiB/s", "read p50", "p99", "write p50", "p99", "depth"]);
        for client in &self.clients {
            table.row(client.row(earlier.clients.iter().find(|before| before.number == client.number)));
        }
        if self.clients.is_empty() {
            table.row(vec!["(none is connected)".into()]);
        }
        table.render_within(columns)
    }

    /// How long requests took, as bars.
    pub fn histograms(&self) -> String {
        let mut text = String::new();
        for client in &self.clients {
            for kind in OperationKind::ALL {
                let latency = client.latency(kind);
                if latency.count() > 0 {
                    let (name, count, bytes) = (&client.name, latency.count(), size::human(client.bytes(kind)));
                    let _ = writeln!(text, "{name}: {count} × {}, {bytes}", kind.name());
                    text.push_str(&histogram(latency.buckets()));
                }
            }
        }
        if text.is_empty() { "no requests yet\n".to_owned() } else { text }
    }
}

impl ClientView {
    /// A session now.
    pub fn of(number: u64, session: &Session) -> Self {
        let (name, statistics) = (session.name().to_string(), session.statistics());
        Self { number, name, statistics, taken_at: Instant::now() }
    }

    /// A disk that is a file, as the one client that it has.
    pub fn of_file(name: String, meter: &Meter) -> Self {
        let MeterSnapshot { operations, depth, .. } = meter.snapshot();
        let bytes = |kind: OperationKind| operations[kind.index()].bytes;
        let counts = QueueCounts {
            bytes_read: bytes(OperationKind::Read),
            bytes_written: bytes(OperationKind::Write),
            bytes_discarded: bytes(OperationKind::Discard),
            bytes_zeroed: bytes(OperationKind::WriteZeroes),
            errors: operations.iter().map(|operation| operation.errors).sum(),
            ..QueueCounts::default()
        };
        let latencies = operations.map(|operation| operation.latency);
        let statistics = SessionStatistics { counts, in_flight: depth, latencies, first_fault: None };
        Self { number: 0, name, statistics, taken_at: Instant::now() }
    }

    /// How long requests of a kind took.
    pub fn latency(&self, kind: OperationKind) -> &LatencySnapshot {
        &self.statistics.latencies[kind.index()]
    }

    /// Bytes that requests of a kind touched which did not fail.
    pub fn bytes(&self, kind: OperationKind) -> u64 {
        let counts = &self.statistics.counts;
        match kind {
            OperationKind::Read => counts.bytes_read,
            OperationKind::Write => counts.bytes_written,
            OperationKind::Flush => 0,
            OperationKind::Discard => counts.bytes_discarded,
            OperationKind::WriteZeroes => counts.bytes_zeroed,
        }
    }

    fn row(&self, earlier: Option<&Self>) -> Vec<String> {
        let Some(earlier) = earlier else { return vec![self.name.clone(), "(has just come)".into()] };
        let seconds = self.taken_at.duration_since(earlier.taken_at).as_secs_f64().max(1e-3);
        let latencies = OperationKind::ALL.map(|kind| self.latency(kind).since(earlier.latency(kind)));
        let requests: u64 = latencies.iter().map(LatencySnapshot::count).sum();
        let moved = |client: &Self| client.bytes(OperationKind::Read) + client.bytes(OperationKind::Write);
        let quantile = |kind: OperationKind, quantile| {
            latencies[kind.index()].quantile(quantile).map_or_else(|| "–".to_owned(), short)
        };
        vec![
            self.name.clone(),
            format!("{:.0}", requests as f64 / seconds),
            format!("{:.1}", (moved(self) - moved(earlier)) as f64 / seconds / f64::from(1 << 20)),
            quantile(OperationKind::Read, 0.5),
            quantile(OperationKind::Read, 0.99),
            quantile(OperationKind::Write, 0.5),
            quantile(OperationKind::Write, 0.99),
            self.statistics.in_flight.to_string(),
        ]
    }
}

/// Longest bar, in characters.
const BAR: u64 = 40;

/// A line for each power of two of nanoseconds.
fn histogram(buckets: impl Iterator<Item = (Duration, u64)>) -> String {
    let mut octaves = [0u64; 64];
    for (latency, count) in buckets {
        octaves[(latency.as_nanos().max(1) as u64).ilog2() as usize] += count;
    }
    let largest = octaves.iter().copied().max().unwrap_or(0).max(1);
    let filled = octaves.iter().enumerate().filter(|&(_, &count)| count > 0);
    filled.fold(String::new(), |mut text, (octave, &count)| {
        let from = short(Duration::from_nanos(1 << octave));
        let bar = "█".repeat((count * BAR).div_ceil(largest) as usize);
        let _ = writeln!(text, "  from {from:>8} {count:>12} {bar}");
        text
    })
}

/// A time in three figures or so.
fn short(time: Duration) -> String {
    match time.as_nanos() {
        nanoseconds @ 0..10_000 => format!("{nanoseconds} ns"),
        nanoseconds @ 10_000..10_000_000 => format!("{} µs", nanoseconds / 1000),
        nanoseconds @ 10_000_000..10_000_000_000 => format!("{} ms", nanoseconds / 1_000_000),
        nanoseconds => format!("{} s", nanoseconds / 1_000_000_000),
    }
}
