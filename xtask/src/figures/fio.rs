//! fio by its engine on a session, beside `bench disk` on that session, and beside what the kernel has for fio on the
//! same file. Requests are of 4 KiB in random places of 1 GiB in the page cache, 64 under way, by a thread of fio's:
//! a process that it makes would be scheduled as one of another session's.

use super::Bar::AtLeast;
use super::Figure;
use super::times::iops;
use super::yard::Yard;
use crate::output;
use anyhow::{Context, ensure};
use serde_json::Value;
use std::process::Command;

pub(super) const FIGURES: &[Figure] = &[
    Figure {
        name: "fio's engine, random reads, batches of 16 / bench disk",
        bar: AtLeast(0.95),
        measure: |yard| beside_bench_disk(yard, "--rw=randread", ""),
    },
    Figure {
        name: "fio's engine, random writes, batches of 16 / bench disk",
        bar: AtLeast(0.95),
        measure: |yard| beside_bench_disk(yard, "--rw=randwrite", "--write"),
    },
    Figure {
        name: "fio's engine, random reads, fio's defaults / fio io_uring",
        bar: AtLeast(1.2),
        measure: |yard| beside_io_uring(yard, "--rw=randread"),
    },
    Figure {
        name: "fio's engine, random reads, batches of 16 / fio io_uring",
        bar: AtLeast(0.9),
        measure: |yard| beside_io_uring(yard, &format!("--rw=randread {BATCHES}")),
    },
];

const JOB: &str =
    "--name=x --bs=4k --iodepth=64 --size=1g --time_based --runtime=1s --invalidate=0 --thread --output-format=json";
const BATCHES: &str = "--iodepth_batch=16 --iodepth_batch_complete_min=1 --iodepth_batch_complete_max=16";

/// By the same server, one after the other.
fn beside_bench_disk(yard: &Yard, workload: &str, operations: &str) -> anyhow::Result<f64> {
    yard.data()?;
    let _server = yard.serve("data")?;
    let by_fio = by_engine(yard, &format!("{workload} {BATCHES}"))?;
    Ok(by_fio / iops(yard, &format!("--random --batch 64 --size 4K --runtime 1 {operations}"))?)
}

fn beside_io_uring(yard: &Yard, options: &str) -> anyhow::Result<f64> {
    yard.data()?;
    let server = yard.serve("data")?;
    let ours = by_engine(yard, options)?;
    drop(server);
    let mut theirs = yard.program("fio", JOB);
    theirs.args(options.split_ascii_whitespace()).args(["--ioengine=io_uring", "--filename=data"]);
    Ok(ours / requests(&mut theirs)?)
}

fn by_engine(yard: &Yard, options: &str) -> anyhow::Result<f64> {
    let mut fio = yard.program("fio", JOB);
    // fio knows the engine's options once it has loaded it.
    fio.arg(format!("--ioengine=external:{}", yard.fio_engine()?.display())).arg("--blockyard_disk=session:s");
    requests(fio.args(options.split_ascii_whitespace()))
}

/// What fio says of itself, a second.
fn requests(fio: &mut Command) -> anyhow::Result<f64> {
    let said = output(fio)?;
    // What it warns of comes first.
    let report: Value = serde_json::from_str(said.find('{').map_or("", |at| &said[at..])).context("it is no JSON")?;
    let rate = |way: &str| report["jobs"][0][way]["iops"].as_f64().unwrap_or(0.0);
    let requests = rate("read") + rate("write");
    ensure!(requests > 0.0, "fio made no request");
    Ok(requests)
}
