//! What to ask of a disk, and whether that disk can be asked it.

use super::replay::ReplayStep;
use super::steps::{Action, Choice, Order, Step, Steps, Units};
use crate::random::Random;
use blockyard_block::Geometry;
use blockyard_block::limits::{QUEUE_DEPTH_MAX, REQUEST_BYTES_MAX};
use std::num::NonZeroU64;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// Most threads.
pub const JOBS_MAX: usize = 256;
/// Most memory that the requests in flight share, in bytes.
pub const BUFFERS_BYTES_MAX: u64 = 4 << 30;
/// Most units whose contents a verifying run keeps in mind: a gigabyte of numbers.
pub const VERIFIED_UNITS_MAX: u64 = 1 << 28;
/// Buffers lie on whole pages, so that `O_DIRECT` takes them.
const BUFFER_ALIGN_BYTES: u64 = 4096;
/// Streams of random numbers that choose operations; those below choose offsets.
const CHOICE_STREAMS: u64 = 1 << 32;

/// In which order a region is gone over.
#[derive(Clone, Debug)]
pub enum AccessOrder {
    /// From start to end. Each job has its part of the region.
    Sequential,
    /// Whole units anywhere in the region, each as likely as any other. A region's rest shorter than a unit is left
    /// out.
    Random,
    /// Alternately from the start and from the end, meeting in the middle. Each job has its part of the region.
    PingPong,
    /// These requests, which say themselves what they do and where.
    Replay(Arc<[ReplayStep]>),
}

/// What is done there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operations {
    /// Only reads; of a replay, nothing that changes the disk.
    Read,
    /// Only writes; of a replay, everything.
    Write,
    /// So many reads in a hundred requests; the others are writes.
    Mixed {
        /// From 0 to 100.
        reads_percent: u8,
    },
}

/// Where a region starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// So many bytes after the disk's first.
    FromStart(u64),
    /// So many bytes before the disk's end.
    FromEnd(u64),
}

/// A test of a disk, as the block tester of the system this project follows has it: see its README, genode
/// `repos/os/src/app/block_tester`.
#[derive(Clone, Debug)]
pub struct Workload {
    /// In which order.
    pub access: AccessOrder,
    /// What.
    pub operations: Operations,
    /// Bytes in a request; `None` is 4096, or a logical block if that is larger.
    pub size_bytes: Option<u64>,
    /// Where the region starts.
    pub start: Start,
    /// The region's length; `None` is all that follows its start.
    pub length_bytes: Option<u64>,
    /// How much to read and write altogether; `None` is as much as the region has, or without end if there is a
    /// `runtime`.
    pub total_bytes: Option<u64>,
    /// Requests that each job keeps in flight.
    pub batch: usize,
    /// Threads, each with a queue of its own.
    pub jobs: usize,
    /// What random numbers, and the pattern of `verify`, come from.
    pub seed: u64,
    /// Most memory that the requests in flight share; `None` is as much as they need. Less means fewer in flight.
    pub buffer_bytes: Option<u64>,
    /// Copy what is read out of the memory shared with the disk, and what is written into it, as a client does whose
    /// data belong elsewhere.
    pub copy: bool,
    /// Write a pattern that knows its place and its time, and check whatever is read; see [`super::pattern`].
    pub verify: bool,
    /// Stop after so long.
    pub runtime: Option<Duration>,
    /// Flush after every so many writes of a job.
    pub flush_every: Option<NonZeroU64>,
}

impl Default for Workload {
    fn default() -> Self {
        Self {
            access: AccessOrder::Sequential,
            operations: Operations::Read,
            size_bytes: None,
            start: Start::FromStart(0),
            length_bytes: None,
            total_bytes: None,
            batch: 1,
            jobs: 1,
            seed: 42,
            buffer_bytes: None,
            copy: false,
            verify: false,
            runtime: None,
            flush_every: None,
        }
    }
}

/// A workload makes no sense, or not on this disk.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("--{setting}: {problem}")]
pub struct WorkloadError {
    /// The setting, as the command's option is called.
    pub setting: &'static str,
    /// What is wrong with it, and what would be right.
    pub problem: String,
}

fn wrong<T>(setting: &'static str, problem: impl Into<String>) -> Result<T, WorkloadError> {
    Err(WorkloadError { setting, problem: problem.into() })
}

/// A workload that suits its disk.
pub(super) struct Plan {
    /// The region, in units.
    pub(super) units: Units,
    /// The requests of each job; none is without.
    pub(super) jobs: Vec<Steps>,
    /// Bytes in a buffer: enough for the largest request.
    pub(super) buffer_bytes: u64,
    /// Buffers of a job.
    pub(super) buffers: usize,
    /// Bytes to read and write; `None` if only time ends it.
    pub(super) total_bytes: Option<u64>,
}

impl Workload {
    /// Plans the requests.
    ///
    /// # Errors
    /// When a setting is out of its range, contradicts another, or does not suit a disk of this geometry.
    pub(super) fn plan(&self, geometry: &Geometry) -> Result<Plan, WorkloadError> {
        self.check_ranges()?;
        self.check_right_to_change(geometry)?;
        match &self.access {
            AccessOrder::Replay(steps) => self.plan_replay(steps, geometry),
            _ => self.plan_units(geometry),
        }
    }

    fn check_ranges(&self) -> Result<(), WorkloadError> {
        if !(1..=QUEUE_DEPTH_MAX).contains(&self.batch) {
            return wrong("batch", format!("from 1 to {QUEUE_DEPTH_MAX} requests can be in flight"));
        }
        if !(1..=JOBS_MAX).contains(&self.jobs) {
            return wrong("jobs", format!("there can be from 1 to {JOBS_MAX} jobs"));
        }
        match self.operations {
            Operations::Mixed { reads_percent: 101.. } => wrong("mix", "the share of reads is from 0 to 100 percent"),
            _ if self.runtime.is_some_and(|runtime| runtime.is_zero()) => wrong("runtime", "it must not be zero"),
            Operations::Read if self.flush_every.is_some() => {
                wrong("flush-every", "there are no writes to flush: add --write or --mix")
            }
            _ => Ok(()),
        }
    }

    fn check_right_to_change(&self, geometry: &Geometry) -> Result<(), WorkloadError> {
        let setting = match self.operations {
            Operations::Read => return Ok(()),
            Operations::Write => "write",
            Operations::Mixed { .. } => "mix",
        };
        if geometry.read_only { wrong(setting, "the disk is read-only") } else { Ok(()) }
    }

    fn plan_units(&self, geometry: &Geometry) -> Result<Plan, WorkloadError> {
        let block = u64::from(geometry.logical_block_bytes);
        let unit_bytes = self.size_bytes.unwrap_or(block.max(4096));
        if unit_bytes == 0 || !unit_bytes.is_multiple_of(block) || unit_bytes > REQUEST_BYTES_MAX {
            let problem = format!(
                "{unit_bytes} is not a multiple of the disk's block of {block} bytes, up to {REQUEST_BYTES_MAX}"
            );
            return wrong("size", problem);
        }
        let region = self.region(geometry)?;
        let length = region.end - region.start;
        let random = matches!(self.access, AccessOrder::Random);
        let count = if random { length / unit_bytes } else { length.div_ceil(unit_bytes) };
        if count == 0 {
            let problem = format!("a request of {unit_bytes} bytes is larger than the region of {length}");
            return wrong("size", problem);
        }
        if self.verify && count > VERIFIED_UNITS_MAX {
            let problem = format!(
                "{count} requests are too many to keep in mind: at most {VERIFIED_UNITS_MAX}, so take a larger --size or a shorter --length"
            );
            return wrong("verify", problem);
        }
        let requests = match (self.total_bytes, self.runtime) {
            (Some(0), _) => return wrong("total", "it must not be zero"),
            (Some(total), _) => total.div_ceil(unit_bytes),
            (None, Some(_)) => u64::MAX,
            (None, None) => count,
        };
        let units = Units { region, unit_bytes };
        let (buffer_bytes, buffers) = self.buffers(unit_bytes)?;
        let jobs = self.jobs_over(count, requests, &units);
        let total_bytes = match requests {
            u64::MAX => None,
            _ if self.total_bytes.is_none() && !random => Some(length),
            _ => Some(requests.saturating_mul(unit_bytes)),
        };
        Ok(Plan { units, jobs, buffer_bytes, buffers, total_bytes })
    }

    /// The region on the disk: whole logical blocks, not empty.
    fn region(&self, geometry: &Geometry) -> Result<Range<u64>, WorkloadError> {
        let (block, capacity) = (u64::from(geometry.logical_block_bytes), geometry.capacity_bytes);
        let start = match self.start {
            Start::FromStart(bytes) => Some(bytes),
            Start::FromEnd(bytes) => capacity.checked_sub(bytes),
        };
        let Some(start) = start.filter(|&start| start < capacity) else {
            return wrong("start", format!("it does not lie on the disk, which has {capacity} bytes"));
        };
        if !start.is_multiple_of(block) {
            return wrong("start", format!("it is not a multiple of the disk's block of {block} bytes"));
        }
        let room = capacity - start;
        let length = self.length_bytes.unwrap_or(room);
        if length == 0 || !length.is_multiple_of(block) {
            return wrong("length", format!("{length} is not a multiple of the disk's block of {block} bytes"));
        }
        if length > room {
            return wrong("length", format!("{length} is more than the {room} bytes from the start to the disk's end"));
        }
        Ok(start..start + length)
    }

    /// Divides units and requests evenly, over no more jobs than have something to do.
    fn jobs_over(&self, count: u64, requests: u64, units: &Units) -> Vec<Steps> {
        // Only who verifies must know that nobody else writes to the same place.
        let whole = matches!(self.access, AccessOrder::Random) && !self.verify;
        let jobs = (self.jobs as u64).min(requests).min(if whole { u64::MAX } else { count });
        let part = |whole: u64, job: u64| (u128::from(whole) * u128::from(job) / u128::from(jobs)) as u64;
        let parts = |whole: u64, job: u64| part(whole, job)..part(whole, job + 1);
        let steps = |job: u64| {
            let own = if whole { 0..count } else { parts(count, job) };
            let own_requests = parts(requests, job);
            Steps {
                order: match self.access {
                    AccessOrder::Random => Order::Random(Random::new(self.seed, job)),
                    AccessOrder::PingPong => Order::PingPong,
                    AccessOrder::Sequential | AccessOrder::Replay(_) => Order::Sequential,
                },
                choice: match self.operations {
                    Operations::Read => Choice::Always(Action::Read),
                    Operations::Write => Choice::Always(Action::Write),
                    Operations::Mixed { reads_percent } => {
                        Choice::ReadsPercent(reads_percent, Random::new(self.seed, CHOICE_STREAMS + job))
                    }
                },
                units: units.clone(),
                own,
                left: own_requests.end - own_requests.start,
                made: 0,
                flush_every: self.flush_every.map(NonZeroU64::get),
                writes: 0,
            }
        };
        (0..jobs).map(steps).collect()
    }

    fn plan_replay(&self, steps: &[ReplayStep], geometry: &Geometry) -> Result<Plan, WorkloadError> {
        let settings = [
            ("jobs", self.jobs != 1),
            ("size", self.size_bytes.is_some()),
            ("start", self.start != Start::FromStart(0)),
            ("length", self.length_bytes.is_some()),
            ("total", self.total_bytes.is_some()),
            ("mix", matches!(self.operations, Operations::Mixed { .. })),
            ("verify", self.verify),
            ("flush-every", self.flush_every.is_some()),
        ];
        if let Some((setting, _)) = settings.into_iter().find(|&(_, given)| given) {
            return wrong(setting, "it does not go with --replay, whose lines say everything and are kept in order");
        }
        for &ReplayStep { step, line } in steps {
            self.check_replayed(step, geometry)
                .map_err(|problem| WorkloadError { setting: "replay", problem: format!("line {line}: {problem}") })?;
        }
        let moves = |step: &&ReplayStep| matches!(step.step.action, Action::Read | Action::Write);
        let largest = steps.iter().filter(moves).map(|step| step.step.length_bytes).max().unwrap_or(0);
        let (buffer_bytes, buffers) = self.buffers(largest.max(1))?;
        let (left, total_bytes) = match self.runtime {
            Some(_) => (u64::MAX, None),
            None => {
                let total = steps.iter().map(|step| step.step.length_bytes).fold(0, u64::saturating_add);
                (steps.len() as u64, Some(total))
            }
        };
        let units = Units { region: 0..geometry.capacity_bytes, unit_bytes: largest.max(1) };
        let job = Steps {
            order: Order::Replay(steps.iter().map(|step| step.step).collect()),
            choice: Choice::Always(Action::Read),
            units: units.clone(),
            own: 0..1,
            left,
            made: 0,
            flush_every: None,
            writes: 0,
        };
        Ok(Plan { units, jobs: vec![job], buffer_bytes, buffers, total_bytes })
    }

    fn check_replayed(&self, step: Step, geometry: &Geometry) -> Result<(), String> {
        let (block, capacity) = (u64::from(geometry.logical_block_bytes), geometry.capacity_bytes);
        let Step { action, offset_bytes, length_bytes } = step;
        if action.changes() && self.operations == Operations::Read {
            return Err(format!("a {} changes the disk: --write allows it", action.name()));
        }
        if !offset_bytes.is_multiple_of(block) || !length_bytes.is_multiple_of(block) {
            return Err(format!("the range is not of whole blocks of {block} bytes"));
        }
        if offset_bytes.checked_add(length_bytes).is_none_or(|end| end > capacity) {
            return Err(format!("the range reaches past the end of the disk, which has {capacity} bytes"));
        }
        if matches!(action, Action::Read | Action::Write) && length_bytes > REQUEST_BYTES_MAX {
            return Err(format!("a {} has {REQUEST_BYTES_MAX} bytes at most", action.name()));
        }
        Ok(())
    }

    /// Bytes in a buffer and buffers of a job.
    fn buffers(&self, request_bytes: u64) -> Result<(u64, usize), WorkloadError> {
        let buffer = request_bytes.next_multiple_of(BUFFER_ALIGN_BYTES);
        let jobs = self.jobs as u64;
        let Some(limit) = self.buffer_bytes else {
            // 2²⁶ × 2⁸ × 2¹⁰ at most.
            if buffer * jobs * self.batch as u64 > BUFFERS_BYTES_MAX {
                let problem = format!(
                    "{} requests of {request_bytes} bytes in flight need more than {BUFFERS_BYTES_MAX} bytes of memory",
                    self.jobs * self.batch
                );
                return wrong("batch", problem);
            }
            return Ok((buffer, self.batch));
        };
        if limit > BUFFERS_BYTES_MAX {
            return wrong("io-buffer", format!("it can have up to {BUFFERS_BYTES_MAX} bytes"));
        }
        match (limit / jobs / buffer) as usize {
            0 => {
                wrong("io-buffer", format!("{limit} bytes hold no request of {request_bytes} for each of {jobs} jobs"))
            }
            buffers => Ok((buffer, buffers.min(self.batch))),
        }
    }
}
