//! Which system calls a request costs, counted by strace.

use blockyard_block::layers::{AlignOptions, AlignedDisk};
use blockyard_block::{Disk, Engine, FileDisk, FileOptions, MemoryMap, Operation, Request, Segment};
use rustix::process::getpid;
use rustix::thread::{CpuSet, sched_getaffinity};
use std::collections::HashMap;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

const BATCHES: &str = "BLOCKYARD_TEST_BATCHES";
const DIRECT: &str = "BLOCKYARD_TEST_DIRECT";
const WRITES: &str = "BLOCKYARD_TEST_WRITES";
const DEPTH: u64 = 64;
const DISK_BYTES: u64 = 16 << 20;
/// Requests whose calls are counted.
const REQUESTS: u64 = 200 * DEPTH;

/// Not a test: what the tests have strace watch. Full batches of 4 KiB, half of them writes if there are any, with a
/// wait for each to end.
#[test]
#[ignore = "run by other tests"]
fn run_batches() {
    let Ok(batches) = std::env::var(BATCHES) else { return };
    let direct = std::env::var_os(DIRECT).is_some();
    let writes = std::env::var_os(WRITES).is_some();
    let file = tempfile::tempfile().unwrap();
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, DISK_BYTES).unwrap();
    let options = FileOptions { engine: Engine::Uring, direct, ..FileOptions::default() };
    let file_disk: Arc<dyn Disk> = Arc::new(FileDisk::from_file(file, &options).unwrap());
    let disk = AlignedDisk::where_needed(file_disk, &AlignOptions::default()).unwrap();
    let memory = MemoryMap::allocate(&[(0, 1 << 20)]).unwrap();
    let mut queue = disk.open_queue(&memory, DEPTH as usize).unwrap();
    let mut completions = Vec::with_capacity(DEPTH as usize);
    for batch in 0..batches.parse::<u64>().unwrap() {
        for n in 0..DEPTH {
            let segment = Segment { region: 0, length_bytes: 4096, offset_bytes: n * 4096 };
            let write = Operation::Write { force_unit_access: false };
            let operation = if writes && n % 2 == 0 { write } else { Operation::Read };
            let offset_bytes = (batch * DEPTH + n) * 7919 % (DISK_BYTES / 4096) * 4096;
            queue.push(&Request { operation, offset_bytes, segments: &[segment], token: n }).unwrap();
        }
        queue.submit().unwrap();
        while queue.in_flight() > 0 {
            queue.wait(&[], None).unwrap();
            queue.reap(&mut completions);
        }
        assert!(completions.drain(..).all(|completion| completion.result.is_ok()));
    }
}

/// System calls of a run, by name.
fn calls(batches: u64, direct: bool, writes: bool) -> HashMap<String, u64> {
    let directory = tempfile::tempdir().unwrap();
    let counts = directory.path().join("counts");
    let mut strace = Command::new("strace");
    strace.args(["-f", "-c", "-o"]).arg(&counts).arg(std::env::current_exe().unwrap());
    strace.args(["--exact", "run_batches", "--ignored"]).env(BATCHES, batches.to_string());
    if direct {
        strace.env(DIRECT, "1");
    }
    if writes {
        strace.env(WRITES, "1");
    }
    let output = strace.output().expect("strace comes with the package strace");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    parse(&counts)
}

/// `% time seconds usecs/call calls errors syscall`, where errors may be missing.
fn parse(counts: &Path) -> HashMap<String, u64> {
    let text = std::fs::read_to_string(counts).unwrap();
    let rows = text.lines().map(|line| line.split_ascii_whitespace().collect::<Vec<_>>());
    let rows = rows.filter(|row| row.len() >= 5 && row.last() != Some(&"total"));
    rows.filter_map(|row| Some(((*row.last()?).to_owned(), row[3].parse().ok()?))).collect()
}

/// How often each system call was made for `REQUESTS` requests: how often a thread is woken, and so how many there are
/// of some, depends on who else has the processors. `cargo xtask figures` counts those.
fn calls_for_requests(direct: bool, writes: bool) -> HashMap<String, u64> {
    // A process that makes none has the same calls besides.
    let [none, mut many] = [0, REQUESTS / DEPTH].map(|batches| calls(batches, direct, writes));
    many.iter_mut().for_each(|(name, count)| *count = count.saturating_sub(none.get(name).copied().unwrap_or(0)));
    many.retain(|_, count| *count > 0);
    many
}

/// The calls that move data or wait, without those that the process makes beside it (memory, threads, time).
const MOVING: [&str; 10] =
    ["read", "write", "pread64", "pwrite64", "preadv", "pwritev", "preadv2", "pwritev2", "fdatasync", "fsync"];

fn moving(calls: &HashMap<String, u64>) -> u64 {
    MOVING.iter().filter_map(|name| calls.get(*name)).sum()
}

fn entered(calls: &HashMap<String, u64>) -> u64 {
    calls.get("io_uring_enter").copied().unwrap_or(0)
}

#[test]
fn reads_go_through_the_ring_and_make_no_call_of_their_own() {
    let calls = calls_for_requests(false, false);
    // A wait ends with a read of the event that it was woken by; it brings at least one request.
    let waits = calls.get("poll").max(calls.get("ppoll")).copied().unwrap_or(0);
    assert!(moving(&calls) <= waits + 100, "{calls:?}");
    assert!((1..=2 * REQUESTS).contains(&entered(&calls)), "{calls:?}");
}

#[test]
fn a_write_to_the_page_cache_is_at_most_one_call_of_its_own() {
    let calls = calls_for_requests(false, true);
    let waits = calls.get("poll").max(calls.get("ppoll")).copied().unwrap_or(0);
    assert!(moving(&calls) <= REQUESTS / 2 + waits + 100, "{calls:?}");
}

#[test]
fn requests_past_the_page_cache_go_through_the_ring() {
    let calls = calls_for_requests(true, true);
    let waits = calls.get("poll").max(calls.get("ppoll")).copied().unwrap_or(0);
    assert!(moving(&calls) <= waits + 100, "{calls:?}");
    assert!((1..=2 * REQUESTS).contains(&entered(&calls)), "{calls:?}");
}

/// The kernel's threads for a ring are named after the thread that submits, and end some seconds after their work.
#[test]
fn of_long_reads_that_are_submitted_together_the_kernel_has_a_thread_make_some() {
    const LONG: usize = 1 << 20;
    if io_uring::IoUring::new(1).is_err() {
        return;
    }
    let file = tempfile::tempfile().unwrap();
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, 2 * LONG as u64).unwrap();
    std::io::Read::read_to_end(&mut &file, &mut Vec::new()).unwrap();
    let disk = FileDisk::from_file(file, &FileOptions { engine: Engine::Uring, ..FileOptions::default() }).unwrap();
    let memory = MemoryMap::allocate(&[(0, 2 * LONG)]).unwrap();
    let mut queue = disk.open_queue(&memory, 2).unwrap();
    let mut read_both = || {
        for n in 0..2 {
            let segment = Segment { region: 0, length_bytes: LONG as u32, offset_bytes: (n * LONG) as u64 };
            let offset_bytes = (n * LONG) as u64;
            let request = Request { operation: Operation::Read, offset_bytes, segments: &[segment], token: n as u64 };
            queue.push(&request).unwrap();
        }
        let mut completions = Vec::new();
        queue.drain(&mut completions).unwrap();
        assert!(completions.len() == 2 && completions.iter().all(|completion| completion.result.is_ok()));
    };
    let name = format!("iou-wrk-{}\n", rustix::thread::gettid().as_raw_nonzero());
    let kernel_threads = || {
        let threads = std::fs::read_dir("/proc/self/task").unwrap();
        let names = threads.filter_map(|thread| std::fs::read_to_string(thread.ok()?.path().join("comm")).ok());
        names.filter(|comm| *comm == name).count()
    };
    let seen = (0..10).any(|_| {
        read_both();
        kernel_threads() > 0
    });
    assert_eq!(seen, process_cpus().count() > 1, "who has one CPU makes all itself");
}

#[test]
fn who_has_one_cpu_reads_without_threads() {
    let cpus = process_cpus();
    let cpu = (0..).find(|&cpu| cpus.is_set(cpu)).unwrap().to_string();
    let program = std::env::current_exe().unwrap();
    let test = "of_long_reads_that_are_submitted_together_the_kernel_has_a_thread_make_some";
    let output = Command::new("taskset").args(["-c", &cpu]).arg(program).args(["--exact", test]).output().unwrap();
    assert!(output.status.success() && String::from_utf8_lossy(&output.stdout).contains("1 passed"), "{output:?}");
}

/// The CPUs of this process's first thread.
fn process_cpus() -> CpuSet {
    sched_getaffinity(Some(getpid())).unwrap()
}
