//! Discard and write-zeroes.

use crate::on_every_engine;
use crate::rig::{Rig, options, pattern};
use blockyard_block::{Disk, Engine, ExtentKind, MemoryDisk, Operation};
use rustix::fs::{MemfdFlags, memfd_create};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::process::Command;

on_every_engine!(
    zeroes_are_written,
    unmapping_gives_storage_back,
    zeroing_without_unmapping_keeps_storage,
    zeroes_are_written_where_ranges_cannot_be_zeroed,
    zeroes_are_written_where_nothing_can_be_allocated,
);

const ALL: [Operation; 2] = [
    Operation::WriteZeroes { length_bytes: 100_000, may_unmap: true },
    Operation::WriteZeroes { length_bytes: 100_000, may_unmap: false },
];

fn zeroes_are_written(engine: Engine) {
    for operation in ALL {
        let mut contents = pattern(1 << 20, 1);
        let mut rig = Rig::new(engine, &contents);
        rig.perform(operation, 50_000, &[]).unwrap();
        contents[50_000..150_000].fill(0);
        assert!(rig.contents() == contents);
    }
}

/// Storage of the file, in bytes.
fn stored_bytes(rig: &Rig) -> u64 {
    fs::metadata(&rig.path).unwrap().blocks() * 512
}

fn unmapping_gives_storage_back(engine: Engine) {
    let length_bytes = 1 << 20;
    for operation in [Operation::Discard { length_bytes }, Operation::WriteZeroes { length_bytes, may_unmap: true }] {
        let mut rig = Rig::new(engine, &pattern(4 << 20, 2));
        rig.perform(Operation::Flush, 0, &[]).unwrap();
        let before = stored_bytes(&rig);
        rig.perform(operation, 1 << 20, &[]).unwrap();
        assert!(stored_bytes(&rig) <= before - length_bytes);
        assert_eq!(rig.contents().len(), 4 << 20);
        assert_eq!(rig.disk.extents(1 << 20..4 << 20).unwrap().kind, ExtentKind::Hole);
    }
}

fn zeroing_without_unmapping_keeps_storage(engine: Engine) {
    let mut rig = Rig::new(engine, &pattern(4 << 20, 3));
    rig.perform(Operation::Flush, 0, &[]).unwrap();
    let before = stored_bytes(&rig);
    rig.perform(Operation::WriteZeroes { length_bytes: 4 << 20, may_unmap: false }, 0, &[]).unwrap();
    rig.perform(Operation::Flush, 0, &[]).unwrap();
    assert!(stored_bytes(&rig) >= before);
    assert!(rig.contents() == vec![0; 4 << 20]);
}

/// tmpfs punches holes and does not zero ranges.
fn zeroes_are_written_where_ranges_cannot_be_zeroed(engine: Engine) {
    let mut contents = pattern(5_000_001, 4);
    let mut file = File::from(memfd_create("zeros", MemfdFlags::CLOEXEC).unwrap());
    file.write_all(&contents).unwrap();
    let mut rig = Rig::from_file(file.try_clone().unwrap(), &options(engine));
    let end = rig.disk.geometry().capacity_bytes;
    rig.perform(Operation::WriteZeroes { length_bytes: end - 1001, may_unmap: false }, 1001, &[]).unwrap();
    contents[1001..].fill(0);
    let mut read = vec![0xee; contents.len()];
    file.read_exact_at(&mut read, 0).unwrap();
    assert!(read == contents);
    assert_eq!(file.metadata().unwrap().len(), 5_000_001);
}

/// ramfs allocates nothing on request.
fn zeroes_are_written_where_nothing_can_be_allocated(engine: Engine) {
    if !rustix::process::geteuid().is_root() {
        eprintln!("not root: no ramfs to test on");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let mounted = Command::new("mount").args(["-t", "ramfs", "ramfs"]).arg(directory.path()).status().unwrap();
    if !mounted.success() {
        eprintln!("root may not mount here: no ramfs to test on");
        return;
    }
    let outcome = std::panic::catch_unwind(|| zero_in(&directory.path().join("disk.img"), engine));
    let unmounted = Command::new("umount").arg("--lazy").arg(directory.path()).status().unwrap();
    assert!(unmounted.success());
    outcome.unwrap();
}

fn zero_in(path: &std::path::Path, engine: Engine) {
    let mut contents = pattern(3_000_000, 5);
    fs::write(path, &contents).unwrap();
    let file = File::options().read(true).write(true).open(path).unwrap();
    let mut rig = Rig::from_file(file, &options(engine));
    rig.perform(Operation::Discard { length_bytes: 4096 }, 0, &[]).unwrap();
    rig.perform(Operation::WriteZeroes { length_bytes: 2_500_000, may_unmap: true }, 10, &[]).unwrap();
    contents[10..2_500_010].fill(0);
    assert!(fs::read(path).unwrap() == contents);
    rig.perform(Operation::WriteZeroes { length_bytes: 100, may_unmap: false }, 2_600_000, &[]).unwrap();
    contents[2_600_000..2_600_100].fill(0);
    assert!(fs::read(path).unwrap() == contents);
}

#[test]
fn a_memory_disk_is_sparse() {
    let disk = MemoryDisk::new(1 << 40, 4096).unwrap();
    assert_eq!(disk.geometry().capacity_bytes, 1 << 40);
    let extent = disk.extents(4096..1 << 40).unwrap();
    assert_eq!((extent.kind, extent.length_bytes), (ExtentKind::Hole, (1 << 40) - 4096));
}
