//! After a queue has warmed up, requests allocate nothing.

use blockyard_block::{
    CountingAllocator, Disk, Engine, FileDisk, FileOptions, MemoryMap, NullDisk, Operation, Queue, Request, Segment,
};
use std::time::Duration;

#[global_allocator]
static COUNTING: CountingAllocator = CountingAllocator;

fn allocations() -> u64 {
    CountingAllocator::of_this_thread().expect("it is installed")
}

const DEPTH: usize = 32;
const BATCHES: u64 = 200;

/// Every operation, good and bad, full batches of them.
fn run_batches(queue: &mut dyn Queue, completions: &mut Vec<blockyard_block::Completion>) {
    let segments: [Segment; 16] =
        std::array::from_fn(|n| Segment { region: 0, length_bytes: 1000, offset_bytes: n as u64 * 4096 });
    let operations = [
        Operation::Read,
        Operation::Write { force_unit_access: false },
        Operation::Read,
        Operation::Flush,
        Operation::Write { force_unit_access: true },
        Operation::WriteZeroes { length_bytes: 70_000, may_unmap: false },
        Operation::WriteZeroes { length_bytes: 4096, may_unmap: true },
        Operation::Discard { length_bytes: 4096 },
    ];
    for token in 0..BATCHES {
        for n in 0..queue.depth() as u64 {
            let operation = operations[((token + n) % 8) as usize];
            let offset_bytes = if n == 7 { u64::MAX } else { n * 4096 };
            queue.push(&Request { operation, offset_bytes, segments: &segments, token }).unwrap();
        }
        queue.submit().unwrap();
        while queue.in_flight() > 0 {
            queue.wait(&[], Some(Duration::from_secs(10))).unwrap();
            queue.reap(completions);
        }
        completions.clear();
    }
}

/// The largest requests, one in every slot at once.
fn warm_up(queue: &mut dyn Queue, completions: &mut Vec<blockyard_block::Completion>) {
    let zeroes = Operation::WriteZeroes { length_bytes: 70_000, may_unmap: false };
    let segments = [Segment { region: 0, length_bytes: 1000, offset_bytes: 0 }; 16];
    for operation in [Operation::Read, zeroes, zeroes] {
        for token in 0..queue.depth() as u64 {
            queue.push(&Request { operation, offset_bytes: 0, segments: &segments, token }).unwrap();
        }
        queue.drain(completions).unwrap();
        completions.clear();
    }
}

fn allocations_after_warm_up(disk: &dyn Disk) -> u64 {
    let memory = MemoryMap::allocate(&[(0, 1 << 20)]).unwrap();
    let mut queue = disk.open_queue(&memory, DEPTH).unwrap();
    let mut completions = Vec::with_capacity(DEPTH);
    warm_up(&mut *queue, &mut completions);
    let before = allocations();
    run_batches(&mut *queue, &mut completions);
    allocations() - before
}

fn file_disk(engine: Engine) -> FileDisk {
    // tmpfs cannot zero ranges in place: the fallback is counted, too.
    let memfd = rustix::fs::memfd_create("allocations", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    let file = std::fs::File::from(memfd);
    file.set_len((1 << 20) + 100).unwrap();
    FileDisk::from_file(file, &FileOptions { engine, ..FileOptions::default() }).unwrap()
}

#[test]
fn the_counter_counts() {
    let before = allocations();
    drop(std::hint::black_box(Box::new(1)));
    assert_eq!(allocations() - before, 1);
}

#[test]
fn the_sync_engine_allocates_nothing_per_request() {
    assert_eq!(allocations_after_warm_up(&file_disk(Engine::Sync)), 0);
}

#[test]
fn the_uring_engine_allocates_nothing_per_request() {
    if let Err(error) = io_uring::IoUring::new(1) {
        eprintln!("io_uring is refused here ({error})");
        return;
    }
    assert_eq!(allocations_after_warm_up(&file_disk(Engine::Uring)), 0);
}

#[test]
fn the_threads_engine_allocates_nothing_per_request_in_its_caller() {
    assert_eq!(allocations_after_warm_up(&file_disk(Engine::Threads)), 0);
}

#[test]
fn a_null_disk_allocates_nothing_per_request() {
    assert_eq!(allocations_after_warm_up(&NullDisk::new(1 << 20, 512).unwrap()), 0);
}
