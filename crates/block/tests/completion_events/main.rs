//! Every layer and backend, driven as a thread with many queues drives them: by completion event and reap alone,
//! without ever a [`Queue::wait`](blockyard_block::Queue::wait). The disk at the bottom tells no more than it must.

#[path = "../rig/mod.rs"]
mod rig;

use blockyard_block::layers::{
    AlignOptions, AlignedDisk, Faults, FaultyDisk, MeteredDisk, OverlayDisk, PartitionDisk, ThrottleLimits,
    ThrottledDisk, WriteLogDisk, ZerosAsHoles,
};
use blockyard_block::{
    AllowedDirectories, BlockMapDisk, BlockMapFormat, Disk, Engine, FileDisk, FileOptions, KeyFile, LuksDisk,
    LuksOptions, MemoryDisk, NewLuks, NullDisk, Operation, Qcow2CreateOptions, Qcow2Disk, write_bytes,
};
use rig::Rig;
use rig::demanding_disk::{DemandingDisk, Demands};
use rig::model::{Action, DISK_BYTES, Model};
use std::cell::Cell;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

const DEPTH: usize = 8;

/// Runs random requests on a disk of zeros made anew for each run.
fn requests_complete_by_event_alone(runs: usize, disk: &(dyn Fn() -> Arc<dyn Disk> + std::panic::RefUnwindSafe)) {
    blockyard_fuzz::check!(runs).with_type::<Vec<Action>>().for_each(|actions| {
        let mut model = Model::new(Rig::by_event(disk(), DEPTH));
        model.unit_bytes = 512;
        model.run(actions);
    });
}

thread_local! {
    /// Of the next reluctant disk. Each test has a thread of its own, and so the same disks in every run.
    static SEED: Cell<u64> = const { Cell::new(1) };
}

fn memory() -> Arc<dyn Disk> {
    Arc::new(MemoryDisk::new(DISK_BYTES as u64, 512).unwrap())
}

/// Completes what it has whenever it is reaped, in any order, and signals only after a reap that brought nothing.
fn reluctant(demands: Demands) -> Arc<dyn Disk> {
    Arc::new(DemandingDisk::new(memory(), demands, SEED.replace(SEED.get() + 1)))
}

/// One that has everything split, bounced, or read, merged and written.
fn demanding() -> Arc<dyn Disk> {
    let demands =
        Demands { block_bytes: 4096, transfer_bytes_max: 8192, segments_max: 2, memory_align_bytes: 512, depth: 3 };
    reluctant(demands)
}

/// The two kinds of disk below a layer: one that takes its time, and one that is done when `submit` returns.
fn below() -> [fn() -> Arc<dyn Disk>; 2] {
    [|| reluctant(Demands::NONE), memory]
}

fn aligned(disk: Arc<dyn Disk>) -> Arc<dyn Disk> {
    Arc::new(AlignedDisk::new(disk, &AlignOptions::default()).unwrap())
}

/// Holds most requests back, for some microseconds.
fn throttled(disk: Arc<dyn Disk>) -> Arc<dyn Disk> {
    let limits = ThrottleLimits {
        iops: 20_000.try_into().ok(),
        bytes_per_second: (1 << 30).try_into().ok(),
        burst: Duration::ZERO,
    };
    Arc::new(ThrottledDisk::new(disk, &limits))
}

fn delayed(disk: Arc<dyn Disk>) -> Arc<dyn Disk> {
    let faults: Faults = "latency:0s-300us+seed:5".parse().unwrap();
    Arc::new(FaultyDisk::new(disk, &faults))
}

#[test]
fn a_reluctant_disk_is_driven_by_its_event() {
    requests_complete_by_event_alone(100, &|| reluctant(Demands::NONE));
}

mod split_bounced_and_merged {
    use super::{aligned, demanding};

    #[test]
    fn requests_complete_by_event_alone() {
        super::requests_complete_by_event_alone(300, &|| aligned(demanding()));
    }
}

#[test]
fn throttled_requests_complete() {
    below().into_iter().for_each(|below| requests_complete_by_event_alone(30, &move || throttled(below())));
}

#[test]
fn delayed_requests_complete() {
    below().into_iter().for_each(|below| requests_complete_by_event_alone(30, &move || delayed(below())));
}

/// The disk below may have brought only the write: then the read is behind an event that tells nothing until it is
/// asked again.
#[test]
fn a_request_that_is_delayed_does_not_delay_another() {
    let attempt = |latency: Duration| {
        let faults: Faults = format!("write-latency:{}s", latency.as_secs()).parse().unwrap();
        let mut rig = Rig::by_event(Arc::new(FaultyDisk::new(reluctant(Demands::NONE), &faults)), DEPTH);
        let start = Instant::now();
        let segments = rig.segments(0, 4096);
        rig.push(rig::WRITE, 0, &segments, 0);
        (1..DEPTH as u64).for_each(|token| rig.push(Operation::Read, token * 4096, &segments, token));
        let reads = rig.drain_to(1);
        let in_time = reads.iter().all(|completion| completion.token > 0) && start.elapsed() < latency;
        assert!(rig.drain().len() + reads.len() == DEPTH && start.elapsed() >= latency);
        in_time
    };
    // All at once. A thread may be held up for longer than that: then it is tried again, with more time.
    let attempts = |seed| {
        SEED.set(seed);
        assert!([1, 4, 16, 40].map(Duration::from_secs).into_iter().any(attempt), "reads are delayed");
    };
    std::thread::scope(|scope| (0..6).for_each(|thread| drop(scope.spawn(move || attempts(10 * thread + 1)))));
}

#[test]
fn requests_through_layers_that_pass_them_on_complete() {
    for below in below() {
        requests_complete_by_event_alone(50, &move || Arc::new(MeteredDisk::new(below())));
        requests_complete_by_event_alone(50, &move || Arc::new(PartitionDisk::whole(below(), false)));
        requests_complete_by_event_alone(50, &move || Arc::new(WriteLogDisk::new(below())));
        requests_complete_by_event_alone(50, &move || Arc::new(ZerosAsHoles::new(below())));
    }
}

#[test]
fn requests_through_a_pile_of_layers_complete() {
    requests_complete_by_event_alone(60, &|| {
        let partition = Arc::new(PartitionDisk::new(aligned(demanding()), 0..DISK_BYTES as u64, false).unwrap());
        Arc::new(MeteredDisk::new(throttled(delayed(partition))))
    });
    // And the other way round: pieces that are held back and delayed.
    requests_complete_by_event_alone(60, &|| aligned(throttled(delayed(demanding()))));
}

#[test]
fn requests_to_an_overlay_complete() {
    let directory = tempfile::tempdir().unwrap();
    for below in below() {
        requests_complete_by_event_alone(30, &|| {
            Arc::new(OverlayDisk::temporary(below(), directory.path(), &FileOptions::default()).unwrap())
        });
    }
}

/// Two pieces from the base for one request: the first alone completes nothing.
#[test]
fn a_request_that_reads_the_base_twice_completes() {
    let directory = tempfile::tempdir().unwrap();
    for _ in 0..100 {
        let base = reluctant(Demands::NONE);
        let disk = OverlayDisk::temporary(base, directory.path(), &FileOptions::default()).unwrap();
        let mut rig = Rig::by_event(Arc::new(disk), DEPTH);
        rig.write(64 << 10, &[7; 512]).unwrap();
        rig.write(128 << 10, &[8; 512]).unwrap();
        let bytes = rig.read(0, DISK_BYTES).unwrap();
        assert_eq!([bytes[0], bytes[64 << 10], bytes[128 << 10], bytes[192 << 10]], [0, 7, 8, 0]);
    }
}

fn engines() -> impl Iterator<Item = Engine> {
    let uring = io_uring::IoUring::new(1).is_ok().then_some(Engine::Uring);
    uring.into_iter().chain([Engine::Threads, Engine::Sync])
}

/// Without syncs, which would take most of the time here and tell nothing.
fn options(engine: Engine) -> FileOptions {
    FileOptions { engine, cache_unsafe: true, ..FileOptions::default() }
}

#[test]
fn requests_to_a_file_complete() {
    for engine in engines() {
        requests_complete_by_event_alone(30, &|| {
            let file = tempfile::tempfile().unwrap();
            file.set_len(DISK_BYTES as u64).unwrap();
            Arc::new(FileDisk::from_file(file, &options(engine)).unwrap())
        });
    }
}

#[test]
fn requests_to_a_qcow2_image_complete() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("image");
    for engine in engines() {
        requests_complete_by_event_alone(20, &|| {
            let _ = fs::remove_file(&path);
            Qcow2Disk::create(&path, &Qcow2CreateOptions::new(DISK_BYTES as u64)).unwrap();
            Arc::new(Qcow2Disk::open(&path, &options(engine), &AllowedDirectories::none()).unwrap())
        });
    }
}

fn encryption(directory: &Path) -> NewLuks {
    let path = directory.join("key");
    fs::write(&path, "passphrase").unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    let mut options = LuksOptions::default();
    options.set("iter-time", "1").unwrap();
    NewLuks { key: KeyFile::new(path), options }
}

#[test]
fn requests_through_encryption_complete() {
    let directory = tempfile::tempdir().unwrap();
    let encryption = encryption(directory.path());
    let path = directory.path().join("volume");
    let file = File::create_new(&path).unwrap();
    LuksDisk::create_in(&file, &path, DISK_BYTES as u64, &encryption).unwrap();
    let head = fs::read(&path).unwrap();
    let volume = || -> Arc<dyn Disk> {
        let disk = Arc::new(MemoryDisk::new(head.len() as u64, 512).unwrap());
        write_bytes(&*disk, 0, &head).unwrap();
        disk
    };
    let demands =
        Demands { block_bytes: 512, transfer_bytes_max: 65_536, segments_max: 3, memory_align_bytes: 512, depth: 3 };
    for demands in [None, Some(Demands::NONE), Some(demands)] {
        requests_complete_by_event_alone(60, &|| {
            let below: Arc<dyn Disk> = match demands {
                None => volume(),
                Some(demands) => Arc::new(DemandingDisk::new(volume(), demands, SEED.replace(SEED.get() + 1))),
            };
            let disk = LuksDisk::on(below, &path, Some(&encryption.key)).unwrap();
            // What was never written is noise.
            write_bytes(&disk, 0, &vec![0; DISK_BYTES]).unwrap();
            Arc::new(disk)
        });
    }
}

#[test]
fn requests_to_an_encrypted_qcow2_image_complete() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("image");
    let encryption = encryption(directory.path());
    let allowed = || AllowedDirectories::none().with_key(Some(encryption.key.clone()));
    for engine in engines() {
        requests_complete_by_event_alone(10, &|| {
            let _ = fs::remove_file(&path);
            let encryption = Some(encryption.clone());
            let new = Qcow2CreateOptions { encryption, ..Qcow2CreateOptions::new(DISK_BYTES as u64) };
            Qcow2Disk::create(&path, &new).unwrap();
            Arc::new(Qcow2Disk::open(&path, &options(engine), &allowed()).unwrap())
        });
    }
}

#[test]
fn requests_to_a_vmdk_complete() {
    let directory = tempfile::tempdir().unwrap();
    for engine in engines() {
        requests_complete_by_event_alone(30, &|| Arc::new(vmdk(directory.path(), engine)));
    }
}

/// Two files, whose ends meet in the middle of many requests.
fn vmdk(directory: &Path, engine: Engine) -> BlockMapDisk {
    let sectors = DISK_BYTES / 512;
    let (first, second) = (sectors / 3, sectors - sectors / 3);
    for (name, sectors) in [("a", first), ("b", second)] {
        File::create(directory.join(name)).unwrap().set_len(sectors as u64 * 512).unwrap();
    }
    let text =
        format!("# Disk DescriptorFile\nversion=1\nCID=12345678\nRW {first} FLAT \"a\" 0\nRW {second} FLAT \"b\" 0\n");
    let path = directory.join("disk.vmdk");
    fs::write(&path, text).unwrap();
    BlockMapDisk::open(&path, BlockMapFormat::Vmdk, &options(engine), &AllowedDirectories::new(&[directory]).unwrap())
        .unwrap()
}

/// It holds nothing, so there is no model of it: that all completes is all there is to see.
#[test]
fn requests_to_a_null_disk_complete() {
    let mut rig = Rig::by_event(throttled(Arc::new(NullDisk::new(1 << 20, 512).unwrap())), DEPTH);
    let segments = rig.segments(0, 4096);
    for round in 0..50 {
        for token in 0..DEPTH as u64 {
            let operation = if token % 2 == 0 { Operation::Read } else { rig::WRITE };
            rig.push(operation, round * 4096, &segments, token);
        }
        assert_eq!(rig.drain().len(), DEPTH);
    }
}
