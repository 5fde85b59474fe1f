//! What a thread does for one session, and how much of its time that may take.
//!
//! Sessions on a thread share it by deficit round robin (Shreedhar and Varghese, 1995), in bytes: each round gives each
//! a quantum in proportion to its weight; a request that is larger than what is left is begun all the same and paid for
//! in the rounds to come. That shares the thread. The disk behind it is shared by bounding what is in flight there:
//! else whoever keeps a thousand requests outstanding would have everybody else's wait behind them.

use super::task::Task;
use blockyard_block::limits::{IN_FLIGHT_BYTES_MAX, PIECE_BYTES_MAX};
use blockyard_devices::virtio::Limit;

/// What a round gives the heaviest session that has something to do: 32 requests of 4 KiB, some 50 µs of work, which is
/// how long a session that just woke up waits for each of the others.
const QUANTUM_BYTES: u64 = 128 << 10;
/// And the lightest, at least.
const QUANTUM_BYTES_MIN: u64 = 512;

/// In flight at the disk for all sessions of a thread together, when there are several: enough to keep a disk of 7 GB/s
/// busy that takes 300 µs to answer, and no more than 2 ms of one that moves 1 GB/s.
const IN_FLIGHT_COST_BYTES: u64 = 2 << 20;
const _: () = assert!(IN_FLIGHT_COST_BYTES <= IN_FLIGHT_BYTES_MAX);
/// What a request counts as there at least: so 128 of the small ones, enough for most disks' queues. A disk that seeks
/// takes long for each, however small.
const IN_FLIGHT_REQUEST_COST_BYTES: u64 = 16 << 10;

/// A session has something to do if it had within this time: a client at depth 1 is idle between any two requests.
const ACTIVE_NS: u64 = 100_000_000;

/// Requests taken from a queue at a time. More would be a longer wait for the driver, which could go on with those that
/// are answered already; fewer would be more system calls for a disk that makes one for each batch.
const REQUESTS_A_PASS: u16 = 16;

/// And bytes, where no other session's share is less: what is in the page cache is copied while it is submitted, and
/// the driver is to go on with the first large requests while the next are copied. The largest come in twos.
const BYTES_A_PASS: u64 = 256 << 10;

/// And bytes from all of a session's queues, then: whoever comes next waits for a turn.
const BYTES_A_TURN: u64 = 2 * PIECE_BYTES_MAX;

/// How many sessions have something to do, and what they weigh.
#[derive(Clone, Copy, Debug)]
pub(super) struct Contention {
    active: usize,
    active_weight: u64,
    backlogged_weight_max: u64,
}

/// A session on a thread.
pub(super) struct Flow {
    pub(super) session: u64,
    pub(super) tasks: Vec<Task>,
    weight: u64,
    /// Bytes that it may begin now; below zero when it has begun more.
    deficit_bytes: i64,
    /// The task whose turn it is.
    next: usize,
    active_ns: Option<u64>,
    /// It has something to begin, and only its share keeps it from that.
    backlogged: bool,
}

/// What a turn has led to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Turn {
    /// Something was done.
    pub(super) progress: bool,
    /// The next round will do more, without anything happening in between.
    pub(super) more: bool,
}

impl Contention {
    pub(super) fn of(flows: &[Flow], now_ns: u64) -> Self {
        let mut contention = Self { active: 0, active_weight: 0, backlogged_weight_max: 0 };
        for flow in flows {
            if flow.is_active(now_ns) {
                contention.active += 1;
                contention.active_weight += flow.weight;
            }
            if flow.backlogged {
                contention.backlogged_weight_max = contention.backlogged_weight_max.max(flow.weight);
            }
        }
        contention
    }
}

impl Flow {
    pub(super) fn new(session: u64, weight: u32) -> Self {
        Self {
            session,
            tasks: Vec::new(),
            weight: weight.into(),
            deficit_bytes: 0,
            next: 0,
            active_ns: None,
            backlogged: false,
        }
    }

    fn is_active(&self, now_ns: u64) -> bool {
        self.active_ns.is_some_and(|active_ns| now_ns - active_ns < ACTIVE_NS)
    }

    /// A round's turn.
    pub(super) fn serve(&mut self, now_ns: u64, contention: Contention) -> Turn {
        let alone = contention.active == usize::from(self.is_active(now_ns));
        let quantum = self.quantum_bytes(contention) as i64;
        self.deficit_bytes = match alone {
            true => quantum,
            false => self.deficit_bytes.saturating_add(quantum).min(quantum),
        };
        let mut turn = Turn::default();
        let mut room_alone_bytes = if alone { self.allowance_alone_bytes().min(BYTES_A_TURN) } else { 0 };
        self.backlogged = false;
        for step in 0..self.tasks.len() {
            let index = (self.next + step) % self.tasks.len();
            let limit = if alone { Self::limit_alone(room_alone_bytes) } else { self.limit(contention) };
            let pass = self.tasks[index].pass(now_ns, limit);
            room_alone_bytes = room_alone_bytes.saturating_sub(pass.cost_bytes);
            self.deficit_bytes = self.deficit_bytes.saturating_sub_unsigned(pass.cost_bytes);
            turn.progress |= pass.progress();
            self.backlogged |= pass.limited || (limit.requests == 0 && self.tasks[index].has_more());
        }
        self.next = self.next.wrapping_add(1);
        if turn.progress {
            self.active_ns = Some(now_ns);
        }
        // Without room at the disk, a completion is what leads on.
        let allowance_bytes = || if alone { self.allowance_alone_bytes() } else { self.allowance_bytes(contention) };
        turn.more = self.backlogged && allowance_bytes() > 0;
        turn
    }

    /// Has the drivers ring from now on. Whether there is something that may be begun already.
    pub(super) fn arm(&mut self) -> bool {
        let mut more = false;
        for task in &mut self.tasks {
            more |= task.arm();
        }
        // What its share kept it from is begun after a completion.
        more && !self.backlogged
    }

    fn quantum_bytes(&self, contention: Contention) -> u64 {
        let heaviest = contention.backlogged_weight_max.max(self.weight);
        (QUANTUM_BYTES * self.weight / heaviest).max(QUANTUM_BYTES_MIN)
    }

    fn limit(&self, contention: Contention) -> Limit {
        let allowance = self.allowance_bytes(contention);
        let requests = allowance.div_ceil(IN_FLIGHT_REQUEST_COST_BYTES).min(REQUESTS_A_PASS.into()) as u16;
        let cost_bytes = u64::try_from(self.deficit_bytes).unwrap_or(0).min(allowance);
        Limit { requests: if cost_bytes == 0 { 0 } else { requests }, cost_bytes, pairs: false }
    }

    /// As [`Flow::limit`], where nobody else has something to do and there is this room.
    fn limit_alone(room_bytes: u64) -> Limit {
        match room_bytes {
            0 => Limit::NOTHING,
            _ => Limit { requests: REQUESTS_A_PASS, cost_bytes: BYTES_A_PASS, pairs: true },
        }
    }

    /// Requests in flight, and what they cost.
    fn in_flight(&self) -> (usize, u64) {
        self.tasks.iter().map(Task::in_flight).fold((0, 0), |sum, task| (sum.0 + task.0, sum.1 + task.1))
    }

    /// What may still go in flight where nobody else has something to do: whoever comes next waits for what is there.
    fn allowance_alone_bytes(&self) -> u64 {
        IN_FLIGHT_BYTES_MAX.saturating_sub(self.in_flight().1)
    }

    /// What may still go in flight: something, whenever nothing is.
    fn allowance_bytes(&self, contention: Contention) -> u64 {
        let in_flight = self.in_flight();
        let cost_bytes = in_flight.1.max(in_flight.0 as u64 * IN_FLIGHT_REQUEST_COST_BYTES);
        let share = IN_FLIGHT_COST_BYTES * self.weight / contention.active_weight.max(self.weight);
        share.max(1).saturating_sub(cost_bytes)
    }
}
