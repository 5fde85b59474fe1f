//! What can be said of a server at one moment, for Prometheus and for people.

use blockyard_block::layers::{LatencySnapshot, Meter, MeterSnapshot, OperationKind};
use blockyard_session::server::{QueueCounts, Session, SessionStatistics};
use std::sync::Arc;
use std::time::Instant;

/// Clients, since each came.
#[derive(Clone, Debug, Default)]
pub struct ServerView {
    /// One for each that is there.
    pub clients: Vec<ClientView>,
    /// What those have done that have left, all of a name together.
    pub left: Vec<ClientView>,
}

impl ServerView {
    /// All that was done since the server started, by name: by whoever is there, and by those that have left.
    pub fn totals(&self) -> Vec<ClientView> {
        let mut totals = self.left.clone();
        for client in &self.clients {
            match totals.iter_mut().find(|total| total.name == client.name) {
                Some(total) => total.add(client),
                None => totals.push(client.clone()),
            }
        }
        totals
    }
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
    /// When that was.
    pub taken_at: Instant,
}

/// Looks at a server's clients, at any time, from any thread.
pub type Look = Arc<dyn Fn() -> ServerView + Send + Sync>;

impl ClientView {
    /// A session now.
    pub(crate) fn of(number: u64, session: &Session) -> Self {
        let (name, statistics) = (session.name().to_string(), session.statistics());
        Self { number, name, statistics, taken_at: Instant::now() }
    }

    /// Adds what another client has done, which has the same name.
    pub(crate) fn add(&mut self, other: &Self) {
        self.statistics.add(&other.statistics);
        self.taken_at = self.taken_at.max(other.taken_at);
    }

    /// A disk that is a file, as the one client that it has.
    pub(crate) fn of_file(name: String, meter: &Meter) -> Self {
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
        let statistics = SessionStatistics { counts, in_flight: depth, latencies, ..SessionStatistics::default() };
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
}
