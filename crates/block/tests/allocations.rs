//! After a queue has warmed up, requests allocate nothing.

#[path = "formats/block_map/vhd_image.rs"]
mod vhd_image;
#[path = "formats/block_map/vhdx_image.rs"]
mod vhdx_image;

use blockyard_block::layers::{AlignOptions, AlignedDisk, MeteredDisk, PartitionDisk, ThrottleLimits, ThrottledDisk};
use blockyard_block::{
    AllowedDirectories, BlockMapDisk, BlockMapFormat, CountingAllocator, Disk, Engine, FileDisk, FileOptions, KeyFile,
    LuksDisk, LuksOptions, MemoryMap, NewLuks, NullDisk, Operation, Qcow2CreateOptions, Qcow2Disk, Queue, Request,
    Segment,
};
use std::sync::Arc;
use std::time::Duration;
use vhdx_image::{LOG_BYTES, MIB, VhdxImage, put};

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

/// Whole blocks in aligned memory, parts of blocks anywhere in it, zeroes and discards: each takes another way.
fn aligned_disk(engine: Engine) -> AlignedDisk {
    let file = tempfile::tempfile().unwrap();
    file.set_len(1 << 20).unwrap();
    let options =
        FileOptions { engine, direct: true, logical_block_bytes: 4096, cache_unsafe: true, ..FileOptions::default() };
    let disk = Arc::new(FileDisk::from_file(file, &options).unwrap());
    AlignedDisk::new(disk, &AlignOptions::default()).unwrap()
}

fn run_aligned_and_not(queue: &mut dyn Queue, completions: &mut Vec<blockyard_block::Completion>, batches: u64) {
    let write = Operation::Write { force_unit_access: false };
    let zeroes = Operation::WriteZeroes { length_bytes: 10_000, may_unmap: true };
    for token in 0..batches {
        for n in 0..queue.depth() as u64 {
            let operation = [Operation::Read, write, Operation::Flush, zeroes][((token + n / 2) % 4) as usize];
            let whole = Segment { region: 0, length_bytes: 4096, offset_bytes: n * 8192 };
            let part = Segment { region: 0, length_bytes: 1000, offset_bytes: n * 8192 + 77 };
            let (segments, offset_bytes) = if n % 2 == 0 { ([whole; 3], n * 8192) } else { ([part; 3], n * 3000) };
            let segments =
                if matches!(operation, Operation::Read | Operation::Write { .. }) { &segments[..] } else { &[] };
            queue.push(&Request { operation, offset_bytes, segments, token }).unwrap();
        }
        queue.submit().unwrap();
        while queue.in_flight() > 0 {
            queue.wait(&[], Some(Duration::from_secs(10))).unwrap();
            queue.reap(completions);
        }
        let failed = completions.drain(..).find(|completion| completion.result.is_err());
        assert_eq!(failed, None);
    }
}

#[test]
fn an_aligned_disk_allocates_nothing_per_request() {
    for engine in [Engine::Auto, Engine::Sync] {
        let memory = MemoryMap::allocate(&[(0, 1 << 20)]).unwrap();
        let mut queue = aligned_disk(engine).open_queue(&memory, DEPTH).unwrap();
        let mut completions = Vec::with_capacity(DEPTH);
        run_aligned_and_not(&mut *queue, &mut completions, 40);
        let before = allocations();
        run_aligned_and_not(&mut *queue, &mut completions, 40);
        assert_eq!(allocations() - before, 0, "{engine:?}");
    }
}

/// Reads and writes, each within one run of clusters: those that lie in the file, and those that read as zeros.
fn run_in_place(queue: &mut dyn Queue, completions: &mut Vec<blockyard_block::Completion>) {
    for token in 0..BATCHES {
        for n in 0..queue.depth() as u64 {
            let write = Operation::Write { force_unit_access: false };
            let operation = if (token + n).is_multiple_of(3) { write } else { Operation::Read };
            let segments = [Segment { region: 0, length_bytes: 4096, offset_bytes: n * 4096 }];
            // The second half has never been written to.
            let is_zeros = operation == Operation::Read && n.is_multiple_of(5);
            let offset_bytes = n * 16384 + if is_zeros { 1 << 20 } else { 0 };
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

#[test]
fn an_allocated_qcow2_image_allocates_nothing_per_request() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("image");
    Qcow2Disk::create(&path, &Qcow2CreateOptions::new(2 << 20)).unwrap();
    let disk = Qcow2Disk::open(&path, &FileOptions::default(), &AllowedDirectories::none()).unwrap();
    let memory = MemoryMap::allocate(&[(0, 1 << 20)]).unwrap();
    let mut queue = disk.open_queue(&memory, DEPTH).unwrap();
    let mut completions = Vec::with_capacity(DEPTH);
    run_in_place(&mut *queue, &mut completions);
    let before = allocations();
    run_in_place(&mut *queue, &mut completions);
    assert_eq!(allocations() - before, 0);
}

/// Which goes through buffers that the queue has from the start.
#[test]
fn an_encrypted_disk_allocates_nothing_per_request() {
    let directory = tempfile::tempdir().unwrap();
    let (path, key) = (directory.path().join("volume"), directory.path().join("key"));
    std::fs::write(&key, "passphrase").unwrap();
    std::fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let mut options = LuksOptions::default();
    options.set("iter-time", "1").unwrap();
    let encryption = NewLuks { key: KeyFile::new(key), options };
    let file = std::fs::File::options().read(true).write(true).create_new(true).open(&path).unwrap();
    LuksDisk::create_in(&file, &path, 2 << 20, &encryption).unwrap();
    for engine in [Engine::Sync, Engine::Threads] {
        let options = FileOptions { engine, ..FileOptions::default() };
        let disk = LuksDisk::open_in(file.try_clone().unwrap(), &path, Some(&encryption.key), &options).unwrap();
        let memory = MemoryMap::allocate(&[(0, 1 << 20)]).unwrap();
        let mut queue = disk.open_queue(&memory, DEPTH).unwrap();
        let mut completions = Vec::with_capacity(DEPTH);
        run_in_place(&mut *queue, &mut completions);
        let before = allocations();
        run_in_place(&mut *queue, &mut completions);
        assert_eq!(allocations() - before, 0);
    }
}

#[test]
fn an_image_of_another_hypervisor_allocates_nothing_per_request() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("image");
    let blocks = (0..16).map(|block| (block, vhd_image::ALL, vec![7; 65536])).collect();
    let image = vhd_image::VhdImage { blocks, ..vhd_image::VhdImage::new(3, 2 << 20, 65536) };
    std::fs::write(&path, image.bytes()).unwrap();
    let options = FileOptions { read_only: true, ..FileOptions::default() };
    let disk = BlockMapDisk::open(&path, BlockMapFormat::Vhd, &options, &AllowedDirectories::none()).unwrap();
    let memory = MemoryMap::allocate(&[(0, 1 << 20)]).unwrap();
    let mut queue = disk.open_queue(&memory, DEPTH).unwrap();
    let mut completions = Vec::with_capacity(DEPTH);
    run_in_place(&mut *queue, &mut completions);
    let before = allocations();
    run_in_place(&mut *queue, &mut completions);
    assert_eq!(allocations() - before, 0);
}

#[test]
fn a_partition_allocates_nothing_per_request() {
    let disk = PartitionDisk::new(Arc::new(NullDisk::new(2 << 20, 512).unwrap()), 1 << 20..2 << 20, false).unwrap();
    assert_eq!(allocations_after_warm_up(&disk), 0);
    let read_only = PartitionDisk::new(Arc::new(disk), 0..1 << 20, true).unwrap();
    assert_eq!(allocations_after_warm_up(&read_only), 0);
}

#[test]
fn a_meter_allocates_nothing_per_request() {
    let disk = MeteredDisk::new(Arc::new(NullDisk::new(1 << 20, 512).unwrap()));
    assert_eq!(allocations_after_warm_up(&disk), 0);
    // Those of the warm-up, too.
    assert_eq!(disk.meter().snapshot().requests(), DEPTH as u64 * (BATCHES + 3));
}

#[test]
fn a_throttle_allocates_nothing_per_request_whether_it_holds_them_back_or_not() {
    for iops in [1_000_000_000, 200_000] {
        let limits = ThrottleLimits { iops: iops.try_into().ok(), bytes_per_second: None, burst: Duration::ZERO };
        let disk = ThrottledDisk::new(Arc::new(NullDisk::new(1 << 20, 512).unwrap()), &limits);
        assert_eq!(allocations_after_warm_up(&disk), 0, "{iops}");
    }
}

/// Each sector of a log that nobody closed may say that an entry as long as the log begins there.
#[test]
fn a_log_of_nothing_but_beginnings_is_copied_once() {
    let allocations_of = |beginnings: usize| {
        let mut log = vec![0; LOG_BYTES];
        for sector in log.chunks_mut(4096).take(beginnings) {
            put(sector, 0, b"loge");
            put(sector, 8, &(LOG_BYTES as u32).to_le_bytes());
            put(sector, 16, &7_u64.to_le_bytes());
            put(sector, 32, &[4; 16]);
        }
        let image = VhdxImage { log_id: [3; 16], log, ..VhdxImage::new(1 << 20, MIB) };
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("image.vhdx");
        std::fs::write(&path, image.bytes()).unwrap();
        let options = FileOptions { read_only: true, ..FileOptions::default() };
        let before = allocations();
        BlockMapDisk::open(&path, BlockMapFormat::Vhdx, &options, &AllowedDirectories::none()).unwrap();
        allocations() - before
    };
    let (one, all) = (allocations_of(1), allocations_of(LOG_BYTES / 4096));
    assert!(all < one + 16, "{all} allocations instead of {one}");
}
