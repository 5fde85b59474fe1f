//! A real block device as a disk: a loop device, which root can have.

use blockyard_block::{
    Disk, Engine, Extent, ExtentKind, FileDisk, FileOptions, MemoryMap, Operation, Queue, Request, RequestError,
    Segment, same_file,
};
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{PoisonError, RwLock, RwLockWriteGuard};

const DEVICE_BYTES: u64 = 8 << 20;

/// Whoever looks for a free device may open one that another has just got, for a moment, and be seen then.
static LOOKING: RwLock<()> = RwLock::new(());

/// Nobody looks for a device while this is held.
fn nobody_looks() -> RwLockWriteGuard<'static, ()> {
    LOOKING.write().unwrap_or_else(PoisonError::into_inner)
}

struct LoopDevice {
    path: PathBuf,
}

impl LoopDevice {
    fn on(file: &Path) -> Self {
        Self::with(file, &[])
    }

    fn with(file: &Path, options: &[&str]) -> Self {
        let _looking = LOOKING.read().unwrap_or_else(PoisonError::into_inner);
        let losetup = Command::new("losetup").args(["--find", "--show"]).args(options).arg(file).output();
        let output = losetup.expect("losetup comes with the package `mount`");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "this test needs root and loop devices: {error}");
        Self { path: String::from_utf8(output.stdout).unwrap().trim().into() }
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.path).status();
    }
}

fn perform(
    queue: &mut dyn Queue,
    operation: Operation,
    offset_bytes: u64,
    segment: Segment,
) -> Result<(), RequestError> {
    let segments = if matches!(operation, Operation::Read | Operation::Write { .. }) { &[segment][..] } else { &[] };
    queue.push(&Request { operation, offset_bytes, segments, token: 0 }).unwrap();
    let mut completions = Vec::new();
    queue.drain(&mut completions).unwrap();
    completions[0].result
}

#[test]
fn a_block_device_is_a_disk() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("disk.img");
    File::create(&file).unwrap().set_len(DEVICE_BYTES).unwrap();
    let device = LoopDevice::on(&file);
    for engine in [Engine::Auto, Engine::Threads, Engine::Sync] {
        check(&device.path, engine);
    }
    assert!(fs::read(&file).unwrap()[4096..8192] == [7; 4096]);
    let node = directory.path().join("node");
    let rdev = fs::metadata(&device.path).unwrap().rdev();
    rustix::fs::mknodat(rustix::fs::CWD, &node, rustix::fs::FileType::BlockDevice, 0o600.into(), rdev).unwrap();
    assert!(same_file(&node, &device.path).unwrap());
    assert!(!same_file(&file, &device.path).unwrap());
}

fn check(path: &Path, engine: Engine) {
    let disk = FileDisk::open(path, &FileOptions { engine, ..FileOptions::default() }).unwrap();
    assert_eq!(disk.geometry().capacity_bytes, DEVICE_BYTES);
    let whole = Extent { offset_bytes: 0, length_bytes: DEVICE_BYTES, kind: ExtentKind::Data };
    assert_eq!(disk.extents(0..DEVICE_BYTES).unwrap(), whole);
    let memory = MemoryMap::allocate(&[(0, 8192)]).unwrap();
    let [from, to] = [0, 4096].map(|offset_bytes| Segment { region: 0, length_bytes: 4096, offset_bytes });
    let mut queue = disk.open_queue(&memory, 4).unwrap();
    let reads = |offset, expected: u8, queue: &mut dyn Queue| {
        perform(queue, Operation::Read, offset, to).unwrap();
        let mut bytes = [0xee; 4096];
        memory.slice(to).unwrap().copy_to(&mut bytes);
        assert!(bytes == [expected; 4096], "{engine:?} at {offset}");
    };
    memory.slice(from).unwrap().copy_from(&[7u8; 4096]);
    for n in 0..16 {
        perform(&mut *queue, Operation::Write { force_unit_access: n % 2 == 0 }, n * 4096, from).unwrap();
    }
    perform(&mut *queue, Operation::Flush, 0, from).unwrap();
    reads(4096, 7, &mut *queue);
    for (n, may_unmap) in [(2, false), (3, true)] {
        perform(&mut *queue, Operation::WriteZeroes { length_bytes: 4096, may_unmap }, n * 4096, from).unwrap();
        reads(n * 4096, 0, &mut *queue);
    }
    // Not whole blocks of the device: zeros are written.
    for (start, may_unmap) in [(5 * 4096 - 100, false), (8 * 4096 - 100, true)] {
        let operation = Operation::WriteZeroes { length_bytes: 4096 + 200, may_unmap };
        perform(&mut *queue, operation, start, from).unwrap();
        reads(start + 100, 0, &mut *queue);
    }
    perform(&mut *queue, Operation::Discard { length_bytes: 4096 }, 12 * 4096, from).unwrap();
    perform(&mut *queue, Operation::Discard { length_bytes: 100 }, 13 * 4096 + 7, from).unwrap();
    reads(13 * 4096, 7, &mut *queue);
    assert_eq!(perform(&mut *queue, Operation::Read, DEVICE_BYTES - 512, to), Err(RequestError::OutOfRange));
    reads(DEVICE_BYTES - 4096, 0, &mut *queue);
}

fn file_of(directory: &Path, length: u64) -> PathBuf {
    let file = directory.join("disk.img");
    File::create(&file).unwrap().set_len(length).unwrap();
    file
}

#[test]
fn a_mounted_device_is_not_written_to() {
    let directory = tempfile::tempdir().unwrap();
    let device = LoopDevice::on(&file_of(directory.path(), DEVICE_BYTES));
    let mkfs = Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&device.path).status();
    assert!(mkfs.expect("mkfs.ext4 comes with the package e2fsprogs").success());
    FileDisk::open(&device.path, &FileOptions::default()).unwrap();
    let point = directory.path().join("mounted");
    fs::create_dir(&point).unwrap();
    assert!(Command::new("mount").arg(&device.path).arg(&point).status().unwrap().success(), "root may not mount");
    let refused = FileDisk::open(&device.path, &FileOptions::default()).unwrap_err().to_string();
    let read = FileDisk::open(&device.path, &FileOptions { read_only: true, ..FileOptions::default() });
    assert!(Command::new("umount").arg(&point).status().unwrap().success());
    let remedy = "is in use by the system: unmount it, or take it out of swap, RAID or volume group, first";
    assert_eq!(refused, format!("{} {remedy}", device.path.display()));
    read.unwrap();
}

#[test]
fn a_read_only_device_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let device = LoopDevice::with(&file_of(directory.path(), DEVICE_BYTES), &["--read-only"]);
    for options in [FileOptions::default(), FileOptions { direct: true, ..FileOptions::default() }] {
        let refused = FileDisk::open(&device.path, &options).unwrap_err().to_string();
        let expected = format!("{} is a read-only device; open it for reading only", device.path.display());
        assert_eq!(refused, expected);
        let disk = FileDisk::open(&device.path, &FileOptions { read_only: true, ..options }).unwrap();
        assert!(disk.geometry().read_only);
    }
}

#[test]
fn a_discard_gives_storage_back() {
    for engine in [Engine::Auto, Engine::Threads, Engine::Sync] {
        for direct in [false, true] {
            let directory = tempfile::tempdir().unwrap();
            let file = file_of(directory.path(), DEVICE_BYTES);
            fs::write(&file, vec![7; DEVICE_BYTES as usize]).unwrap();
            File::open(&file).unwrap().sync_all().unwrap();
            let device = LoopDevice::on(&file);
            let disk = FileDisk::open(&device.path, &FileOptions { engine, direct, ..FileOptions::default() }).unwrap();
            assert!(disk.geometry().discard && disk.geometry().write_zeroes);
            let stored_bytes = || fs::metadata(&file).unwrap().blocks() * 512;
            let before = stored_bytes();
            let memory = MemoryMap::allocate(&[(0, 8192)]).unwrap();
            let segment = Segment { region: 0, length_bytes: 4096, offset_bytes: 0 };
            let mut queue = disk.open_queue(&memory, 4).unwrap();
            perform(&mut *queue, Operation::Discard { length_bytes: 1 << 20 }, 1 << 20, segment).unwrap();
            assert!(stored_bytes() <= before - (1 << 20), "{engine:?}, direct {direct}");
            let zeroes = Operation::WriteZeroes { length_bytes: 1 << 20, may_unmap: true };
            perform(&mut *queue, zeroes, 4 << 20, segment).unwrap();
            assert!(stored_bytes() <= before - (2 << 20), "{engine:?}, direct {direct}");
            perform(&mut *queue, Operation::Read, 4 << 20, segment).unwrap();
            let mut read = [0xee_u8; 4096];
            memory.slice(segment).unwrap().copy_to(&mut read);
            assert!(read == [0; 4096]);
        }
    }
}

/// One end of the device to the other, past the page cache.
#[test]
fn a_device_is_read_and_written_directly() {
    for sector_bytes in [512, 4096] {
        let directory = tempfile::tempdir().unwrap();
        let file = file_of(directory.path(), DEVICE_BYTES);
        let device = LoopDevice::with(&file, &["--sector-size", &sector_bytes.to_string()]);
        let disk = FileDisk::open(&device.path, &FileOptions { direct: true, ..FileOptions::default() }).unwrap();
        let geometry = disk.geometry();
        assert_eq!((geometry.logical_block_bytes, geometry.capacity_bytes), (sector_bytes, DEVICE_BYTES));
        let memory = MemoryMap::allocate(&[(0, 8192)]).unwrap();
        let [from, to] = [0, 4096].map(|offset_bytes| Segment { region: 0, length_bytes: 4096, offset_bytes });
        memory.slice(from).unwrap().copy_from(&[9_u8; 4096]);
        let mut queue = disk.open_queue(&memory, 4).unwrap();
        for offset in [0, DEVICE_BYTES - 4096] {
            perform(&mut *queue, Operation::Write { force_unit_access: true }, offset, from).unwrap();
            perform(&mut *queue, Operation::Read, offset, to).unwrap();
            let mut read = [0_u8; 4096];
            memory.slice(to).unwrap().copy_to(&mut read);
            assert!(read == [9; 4096]);
        }
        drop(queue);
        drop(disk);
        let contents = fs::read(&file).unwrap();
        assert!(contents[..4096] == [9; 4096] && contents[DEVICE_BYTES as usize - 4096..] == [9; 4096]);
    }
}

/// Opens the device for itself, as a mount and a server do.
fn exclusively(path: &Path, writable: bool) -> File {
    use std::os::unix::fs::OpenOptionsExt;
    let mut how = File::options();
    how.read(true).write(writable).custom_flags(rustix::fs::OFlags::EXCL.bits().cast_signed()).open(path).unwrap()
}

/// What a killed server had is taken down by the kernel, which on a busy machine takes longer than a moment. No process
/// is to be seen then that writes to the device.
#[test]
fn a_device_that_nobody_is_known_to_have_is_waited_for_as_a_file_is() {
    let directory = tempfile::tempdir().unwrap();
    let device = LoopDevice::on(&file_of(directory.path(), DEVICE_BYTES));
    let _alone = nobody_looks();
    let holder = exclusively(&device.path, false);
    std::thread::scope(|scope| {
        let opening = scope.spawn(|| FileDisk::open(&device.path, &FileOptions::default()).map(drop));
        std::thread::sleep(std::time::Duration::from_millis(1200));
        drop(holder);
        opening.join().unwrap().unwrap();
    });
}

#[test]
fn who_has_a_device_is_named_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let device = LoopDevice::on(&file_of(directory.path(), DEVICE_BYTES));
    let _alone = nobody_looks();
    let holder = exclusively(&device.path, true);
    let refused = FileDisk::open(&device.path, &FileOptions::default()).unwrap_err().to_string();
    assert_eq!(refused, format!("{} is in use: this process itself has it open for writing", device.path.display()));
    drop(holder);
    FileDisk::open(&device.path, &FileOptions::default()).unwrap();
}
