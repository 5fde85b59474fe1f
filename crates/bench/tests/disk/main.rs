//! The block tester on a disk that remembers, and on one that fails.

mod scripted_disk;
mod settings;
mod verification;
mod workloads;

use blockyard_bench::disk::{Report, Workload, WorkloadError, run};
use scripted_disk::ScriptedDisk;
use std::ops::ControlFlow;

const KIB: u64 = 1024;

fn try_run(disk: &ScriptedDisk, workload: &Workload) -> Result<Report, anyhow::Error> {
    run(disk, workload, |_| ControlFlow::Continue(()))
}

#[track_caller]
fn report(disk: &ScriptedDisk, workload: &Workload) -> Report {
    try_run(disk, workload).unwrap()
}

/// The setting that is refused, and why.
#[track_caller]
fn refused(disk: &ScriptedDisk, workload: &Workload) -> WorkloadError {
    try_run(disk, workload).unwrap_err().downcast().unwrap()
}
