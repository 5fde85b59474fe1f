//! The block tester: asks anything of any [`Disk`] and says how fast and how right the answers were.
//!
//! A [`Workload`] says what to do: sequentially, at random, from both ends or as recorded ([`replay`]); reading,
//! writing or both. [`run`] checks it against the disk, gives each job a thread, a queue and buffers, and makes a
//! [`Report`]. It is the counterpart of genode's block_tester, whose names for things it keeps.
//!
//! Deliberately absent: whatever names disks or opens them; thresholds.

mod job;
mod ledger;
pub mod pattern;
pub mod replay;
mod report;
mod steps;
mod tally;
mod workload;

pub use report::{Latency, Report};
pub use workload::{
    AccessOrder, BUFFERS_BYTES_MAX, JOBS_MAX, Operations, Start, VERIFIED_UNITS_MAX, Workload, WorkloadError,
};

use crate::cpu_idle::{CpuTimes, IdleTime};
use anyhow::{Context, Result};
use blockyard_block::{Disk, MemoryMap};
use job::{Buffers, Job, Verification};
use ledger::Findings;
use std::io;
use std::ops::ControlFlow;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, Thread};
use std::time::{Duration, Instant, SystemTime};
use tally::Tally;

/// How often the run is looked at.
const WATCH_INTERVAL: Duration = Duration::from_millis(100);
/// The kernel counts CPU time in ticks of this length.
const TICK: Duration = Duration::from_millis(10);

/// How far a run has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Whether what was written is being read back.
    pub reading_back: bool,
    /// Bytes done in this phase.
    pub done_bytes: u64,
    /// Bytes to do in this phase; `None` if only time ends it.
    pub total_bytes: Option<u64>,
    /// Since the phase began.
    pub elapsed: Duration,
    /// When time ends the phase.
    pub runtime: Option<Duration>,
}

/// Runs a workload. `watch` is called ten times a second and may break it off: the report is about what was done until
/// then.
///
/// # Errors
/// [`WorkloadError`] when the workload makes no sense on this disk; otherwise a sentence on what failed: no memory, no
/// threads, or the first request that the disk failed, with its offset. Wrong data are no error: the report has them.
pub fn run(
    disk: &dyn Disk,
    workload: &Workload,
    mut watch: impl FnMut(&Progress) -> ControlFlow<()>,
) -> Result<Report> {
    let geometry = disk.geometry();
    let plan = workload.plan(&geometry)?;
    let each_job_bytes = plan.buffer_bytes * plan.buffers as u64;
    let memory = MemoryMap::allocate(&[(0, each_job_bytes as usize * plan.jobs.len())])?;
    let started = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos() as u64;
    let open = |(index, steps)| {
        let verification = workload.verify.then(|| Verification::new(workload.seed, started, &steps));
        let buffers = Buffers {
            first_offset_bytes: index as u64 * each_job_bytes,
            count: plan.buffers,
            each_bytes: plan.buffer_bytes,
        };
        Job::open(disk, &memory, buffers, steps, workload.copy, verification)
    };
    let mut jobs = plan.jobs.into_iter().enumerate().map(open).collect::<Result<Vec<_>>>()?;

    let stop = AtomicBool::new(false);
    let mut progress = Progress {
        reading_back: false,
        done_bytes: 0,
        total_bytes: plan.total_bytes,
        elapsed: Duration::ZERO,
        runtime: workload.runtime,
    };
    let before = CpuTimes::now().context("reading /proc/stat")?;
    on_threads(&mut jobs, &stop, &mut progress, &mut watch, |job| job.run(&stop, workload.runtime))?;
    let idle = idle_since(&before)?;

    let written = jobs.iter().map(|job| job.tally.written_bytes).sum();
    if workload.verify && written > 0 && !stop.load(Ordering::Relaxed) {
        let region = plan.units.region.end - plan.units.region.start;
        progress = Progress { reading_back: true, total_bytes: Some(region.min(written)), runtime: None, ..progress };
        on_threads(&mut jobs, &stop, &mut progress, &mut watch, |job| job.read_back(&stop))?;
    }
    let size_bytes = (!matches!(workload.access, AccessOrder::Replay(_))).then_some(plan.units.unit_bytes);
    Ok(Report { capacity_bytes: geometry.capacity_bytes, size_bytes, ..report(jobs, idle, stop.into_inner()) })
}

fn report(jobs: Vec<Job>, idle: Vec<Option<f64>>, interrupted: bool) -> Report {
    let (mut tally, mut findings) = (Tally::default(), Findings::default());
    let count = jobs.len();
    let batch = jobs.iter().map(Job::depth).min().unwrap_or(0);
    for job in jobs {
        tally.merge(&job.tally);
        findings.merge(job.verification.map(|verification| verification.findings).unwrap_or_default());
    }
    Report {
        cpu_idle_percent: idle,
        verified: findings.checked_bytes > 0 && findings.mismatches == 0 && !interrupted,
        verified_bytes: findings.checked_bytes,
        mismatches: findings.mismatches,
        first_mismatches: findings.first,
        interrupted,
        jobs: count,
        batch,
        ..Report::new(&tally)
    }
}

/// A job at work: on its way out it counts itself off and wakes the watcher, panicking or not.
struct AtWork<'a> {
    count: &'a AtomicUsize,
    watcher: Thread,
}

impl Drop for AtWork<'_> {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Release);
        self.watcher.unpark();
    }
}

/// Runs `work` for each job on a thread of its own, all from the same moment, and watches.
fn on_threads(
    jobs: &mut [Job],
    stop: &AtomicBool,
    progress: &mut Progress,
    watch: &mut impl FnMut(&Progress) -> ControlFlow<()>,
    work: impl Fn(&mut Job) -> Result<()> + Sync,
) -> Result<()> {
    let done: Vec<_> = jobs.iter().map(|job| Arc::clone(&job.done_bytes)).collect();
    let at_work = AtomicUsize::new(jobs.len());
    // Opened when all are there; says whether there is anything to do.
    let gate = OnceLock::new();
    thread::scope(|scope| {
        let spawn = |job| {
            let here = AtWork { count: &at_work, watcher: thread::current() };
            let (gate, work) = (&gate, &work);
            thread::Builder::new().name("job".into()).spawn_scoped(scope, move || {
                let _here = here;
                let outcome = if *gate.wait() { work(job) } else { Ok(()) };
                if outcome.is_err() {
                    // The others' results are of no use any more.
                    stop.store(true, Ordering::Relaxed);
                }
                outcome
            })
        };
        let threads = jobs.iter_mut().map(spawn).collect::<io::Result<Vec<_>>>();
        let _ = gate.set(threads.is_ok());
        let threads = threads.context("cannot start a thread")?;
        let started = Instant::now();
        while at_work.load(Ordering::Acquire) > 0 {
            thread::park_timeout(WATCH_INTERVAL);
            progress.elapsed = started.elapsed();
            progress.done_bytes = done.iter().map(|bytes| bytes.get()).sum();
            if watch(progress).is_break() {
                stop.store(true, Ordering::Relaxed);
            }
        }
        let outcomes = threads.into_iter().map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)));
        // Each is looked at, and the first failure is told.
        outcomes.fold(Ok(()), Result::and)
    })
}

/// Each CPU's idle share since `before`. A run so short that a CPU's clock has not ticked is measured until it does.
fn idle_since(before: &CpuTimes) -> Result<Vec<Option<f64>>> {
    const TICKS_MAX: u32 = 5;
    let mut ticks = 0;
    loop {
        let mut idle = IdleTime::default();
        idle.add(before, &CpuTimes::now().context("reading /proc/stat")?);
        let percent = idle.percent();
        if ticks == TICKS_MAX || percent.iter().all(Option::is_some) {
            return Ok(percent);
        }
        thread::sleep(TICK);
        ticks += 1;
    }
}
