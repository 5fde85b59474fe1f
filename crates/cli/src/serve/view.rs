//! What the clients of a server do, as tables and bars.

use blockyard_bench::table::Table;
use blockyard_block::layers::{LatencySnapshot, OperationKind};
use blockyard_block::size;
use blockyard_serve::{ClientView, ServerView};
use std::fmt::Write as _;
use std::time::Duration;

/// A screenful: what each client did from `earlier` to `now`, no wider than so many columns.
pub fn screen(now: &ServerView, earlier: &ServerView, columns: Option<usize>) -> String {
    let mut table = Table::new(&["client", "IOPS", "MiB/s", "read p50", "p99", "write p50", "p99", "depth"]);
    for client in &now.clients {
        table.row(row(client, earlier.clients.iter().find(|before| before.number == client.number)));
    }
    if now.clients.is_empty() {
        table.row(vec!["(none is connected)".into()]);
    }
    table.render_within(columns)
}

/// How long requests took since the server started, as bars.
pub fn histograms(view: &ServerView) -> String {
    let mut text = String::new();
    for client in &view.totals() {
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

/// What a client did since `earlier`; nothing yet if it was not there.
fn row(client: &ClientView, earlier: Option<&ClientView>) -> Vec<String> {
    let Some(earlier) = earlier else { return vec![client.name.clone(), "(has just come)".into()] };
    let seconds = client.taken_at.duration_since(earlier.taken_at).as_secs_f64().max(1e-3);
    let latencies = OperationKind::ALL.map(|kind| client.latency(kind).since(earlier.latency(kind)));
    let requests: u64 = latencies.iter().map(LatencySnapshot::count).sum();
    let moved = |client: &ClientView| client.bytes(OperationKind::Read) + client.bytes(OperationKind::Write);
    let quantile = |kind: OperationKind, quantile| {
        latencies[kind.index()].quantile(quantile).map_or_else(|| "–".to_owned(), short)
    };
    vec![
        client.name.clone(),
        format!("{:.0}", requests as f64 / seconds),
        format!("{:.1}", (moved(client) - moved(earlier)) as f64 / seconds / f64::from(1 << 20)),
        quantile(OperationKind::Read, 0.5),
        quantile(OperationKind::Read, 0.99),
        quantile(OperationKind::Write, 0.5),
        quantile(OperationKind::Write, 0.99),
        client.statistics.in_flight.to_string(),
    ]
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
