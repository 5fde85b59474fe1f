//! Memory of another process that is cut short while it is used.

use blockyard_block::{
    Completion, Disk, Engine, FileDisk, FileOptions, MemoryMap, NullDisk, Operation, Request, SharedRegion,
};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use vm_memory::{Bytes, GuestAddress};

const LENGTH: u64 = 1 << 20;

fn shared(address: u64) -> (File, SharedRegion) {
    let file = File::from(memfd_create("client", MemfdFlags::CLOEXEC).unwrap());
    ftruncate(&file, LENGTH).unwrap();
    let region = SharedRegion { address, length_bytes: LENGTH, file: file.try_clone().unwrap(), file_offset_bytes: 0 };
    (file, region)
}

#[test]
fn an_access_beyond_the_end_finds_zeros_and_is_remembered() {
    let (file, region) = shared(0x1000);
    let (_other_file, other) = shared(0x1000_0000);
    let map = MemoryMap::from_files(vec![region, other]).unwrap();
    map.guest_memory().write_obj(7u64, GuestAddress(0x1000 + LENGTH - 8)).unwrap();
    assert!(map.is_intact());
    ftruncate(&file, 4096).unwrap();
    assert!(map.is_intact(), "nobody has looked");
    assert_eq!(map.read::<8>(0x1000 + LENGTH - 8), Some([0; 8]));
    assert!(!map.is_intact());
    assert!(map.write_byte(0x1000 + LENGTH - 1, 1));
    // A new map in the same place of the table knows nothing of it.
    drop(map);
    let (_file, region) = shared(0);
    assert!(MemoryMap::from_files(vec![region]).unwrap().is_intact());
}

#[test]
fn regions_that_cannot_be_are_refused() {
    let refused = |change: &dyn Fn(&mut SharedRegion)| {
        let (_file, mut region) = shared(0);
        change(&mut region);
        MemoryMap::from_files(vec![region]).unwrap_err().to_string()
    };
    assert!(refused(&|region| region.file_offset_bytes = 4096).contains("past the end of its file"));
    assert!(refused(&|region| region.length_bytes = LENGTH + 1).contains("past the end of its file"));
    assert!(refused(&|region| region.file_offset_bytes = u64::MAX).contains("wraps around"));
    assert!(refused(&|region| region.address = u64::MAX - 4096).contains("wraps around"));
    assert!(refused(&|region| region.length_bytes = 0).contains("cannot be mapped"));
    let unaligned = |region: &mut SharedRegion| (region.file_offset_bytes, region.length_bytes) = (512, 4096);
    assert!(refused(&unaligned).contains("cannot be mapped"));
    assert!(refused(&|region| region.file = File::open("/dev/null").unwrap()).contains("is not in a file"));
    let ((_a, first), (_b, second)) = (shared(0), shared(LENGTH - 1));
    assert!(MemoryMap::from_files(vec![first, second]).unwrap_err().to_string().contains("intersect"));
}

/// Requests of two disks go on while the memory they are for comes and goes.
#[test]
fn truncated_under_load() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("disk");
    std::fs::write(&path, vec![0x5a; LENGTH as usize]).unwrap();
    let options = FileOptions { engine: Engine::Sync, ..FileOptions::default() };
    let file_disk = FileDisk::open(&path, &options).unwrap();
    let null_disk = NullDisk::new(LENGTH, 512).unwrap();
    let disks: [&dyn Disk; 2] = [&file_disk, &null_disk];
    for round in 0..20 {
        let (file, region) = shared(0);
        let map = MemoryMap::from_files(vec![region]).unwrap();
        let (done, requests) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut queues = disks.map(|disk| disk.open_queue(&map, 8).unwrap());
                let mut completions: Vec<Completion> = Vec::with_capacity(8);
                let mut segments = Vec::new();
                assert!(map.find(0, LENGTH as u32, &mut segments));
                while !done.load(Ordering::Relaxed) {
                    for queue in &mut queues {
                        let request =
                            Request { operation: Operation::Read, offset_bytes: 0, segments: &segments, token: 0 };
                        queue.push(&request).unwrap();
                        queue.drain(&mut completions).unwrap();
                        completions.clear();
                    }
                    let _ = map.read::<16>(LENGTH - 16);
                    requests.fetch_add(1, Ordering::Relaxed);
                }
            });
            while requests.load(Ordering::Relaxed) < round % 3 {
                std::thread::yield_now();
            }
            ftruncate(&file, 4096 * round).unwrap();
            let seen = requests.load(Ordering::Relaxed);
            while requests.load(Ordering::Relaxed) < seen + 2 {
                std::thread::yield_now();
            }
            done.store(true, Ordering::Relaxed);
        });
        assert!(!map.is_intact());
    }
}

/// Any other SIGBUS still ends the process: here a mapping that nobody guards, in a process of its own.
#[test]
fn another_fault_is_passed_on() {
    const CHILD: &str = "BLOCKYARD_TEST_UNGUARDED_FAULT";
    if std::env::var_os(CHILD).is_some() {
        let (_file, region) = shared(0);
        let _map = MemoryMap::from_files(vec![region]).unwrap();
        let other = MemoryMap::allocate(&[(0, 4096)]).unwrap();
        let (_, length, memfd, _) = other.shared_regions().unwrap().next().unwrap();
        let plain: vm_memory::GuestMemoryMmap = vm_memory::GuestMemoryMmap::from_ranges_with_files([(
            GuestAddress(0),
            2 * length as usize,
            Some(vm_memory::FileOffset::new(memfd.try_clone().unwrap(), 0)),
        )])
        .unwrap_or_else(|_| std::process::abort());
        let _ = plain.read_obj::<u64>(GuestAddress(length));
        return;
    }
    let name = "another_fault_is_passed_on";
    let mut command = Command::new(std::env::current_exe().unwrap());
    let status = command.args(["--exact", name]).env(CHILD, "1").output().unwrap().status;
    assert_eq!(status.signal(), Some(libc::SIGBUS), "{status}");
}
