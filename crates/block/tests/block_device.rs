//! A real block device as a disk: a loop device, which root can have.

use blockyard_block::{
    Disk, Engine, Extent, ExtentKind, FileDisk, FileOptions, MemoryMap, Operation, Queue, Request, RequestError,
    Segment, same_file,
};
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const DEVICE_BYTES: u64 = 8 << 20;

struct LoopDevice {
    path: PathBuf,
}

impl LoopDevice {
    /// `None` where this user may not have one.
    fn on(file: &Path) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("not root: no loop device to test on");
            return None;
        }
        let losetup = Command::new("losetup").args(["--find", "--show"]).arg(file).output();
        let output = losetup.expect("losetup comes with the package `mount`");
        if !output.status.success() {
            eprintln!("no loop device to test on: {}", String::from_utf8_lossy(&output.stderr));
            return None;
        }
        Some(Self { path: String::from_utf8(output.stdout).unwrap().trim().into() })
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
    let Some(device) = LoopDevice::on(&file) else { return };
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
