//! Where the file is a block device rather than a file, and what reaches the disk.

use crate::rig::{MIB, Mounted, RecordingDisk, options, pattern, run, try_run};
use blockyard_block::{FileDisk, FileOptions, MemoryDisk, Operation};
use blockyard_session::fuse::FuseFile;
use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};
use rustix::io::Errno;
use std::fs;
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

fn errno<T>(result: io::Result<T>) -> Option<Errno> {
    result.err().and_then(|error| Errno::from_io_error(&error))
}

#[test]
fn stat_shows_a_regular_file_of_the_disk_s_size_that_is_the_caller_s_alone() {
    let mounted = Mounted::memory(3 * MIB + 512, 512);
    let stat = fs::metadata(mounted.path()).expect("stat");
    assert!(stat.is_file());
    assert_eq!(stat.blocks(), 1, "nothing is allocated, and yet it is worth reading");
    assert_eq!(stat.len(), 3 * MIB + 512);
    assert_eq!(stat.permissions().mode() & 0o7777, 0o600);
    assert_eq!(stat.uid(), rustix::process::geteuid().as_raw());
    assert_eq!(stat.gid(), rustix::process::getegid().as_raw());
}

#[test]
fn the_size_cannot_be_changed() {
    let mounted = Mounted::memory(MIB, 512);
    let bytes = pattern(1, 1 << 20);
    let file = mounted.open(0);
    file.write_all_at(&bytes, 0).expect("written");
    for size in [0, 512, MIB - 1, MIB + 1, 1 << 40] {
        assert_eq!(errno(file.set_len(size)), Some(Errno::PERM), "{size}");
    }
    file.set_len(MIB).expect("the size that it has");
    assert!(fs::read(mounted.path()).expect("read") == bytes);
    assert_eq!(errno(fs::set_permissions(mounted.path(), fs::Permissions::from_mode(0o666))), Some(Errno::PERM));
    assert_eq!(errno(std::os::unix::fs::chown(mounted.path(), Some(1), None)), Some(Errno::PERM));
}

#[test]
fn its_time_can_be_set_and_a_write_changes_it() {
    let mounted = Mounted::memory(MIB, 512);
    let then = SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000, 5);
    let file = mounted.open(0);
    file.set_modified(then).expect("set");
    assert_eq!(file.metadata().and_then(|stat| stat.modified()).expect("stat"), then);
    file.write_all_at(b"x", 0).expect("written");
    assert!(file.metadata().and_then(|stat| stat.modified()).expect("stat") > then + Duration::from_secs(1));
}

#[test]
fn the_end_is_the_end() {
    for flags in [0, libc::O_DIRECT] {
        let mounted = Mounted::memory(MIB + 512, 512);
        let file = mounted.open(flags);
        let end = MIB + 512;
        let mut buffer = vec![1; 8192];
        assert_eq!(file.read_at(&mut buffer, end - 100).expect("read"), 100);
        assert!(buffer[..100].iter().all(|&byte| byte == 0));
        assert_eq!(file.read_at(&mut buffer, end).expect("read"), 0);
        assert_eq!(file.read_at(&mut buffer, end + 12345).expect("read"), 0);
        assert_eq!(file.write_at(&[7; 1000], end - 300).expect("written"), 300);
        assert_eq!(errno(file.write_at(&[7; 1000], end)), Some(Errno::NOSPC));
        assert_eq!(errno(file.write_at(&[7; 10], end + 4096)), Some(Errno::NOSPC));
        assert_eq!(file.metadata().expect("stat").len(), end);
        let mut last = vec![0; 1000];
        assert_eq!(file.read_at(&mut last, end - 600).expect("read"), 600);
        assert!(last[..300].iter().all(|&byte| byte == 0) && last[300..600].iter().all(|&byte| byte == 7));
    }
}

#[test]
fn any_offset_and_length_is_read_and_written_on_disks_of_large_blocks() {
    for block_bytes in [512, 4096, 65536] {
        let mounted = Mounted::memory(MIB, block_bytes);
        let direct = mounted.open(libc::O_DIRECT);
        let mut model = pattern(9, 1 << 20);
        direct.write_all_at(&model, 0).expect("written");
        for step in 0..60_u64 {
            let offset = step.wrapping_mul(0x9e37_79b9_7f4a_7c15) % (MIB - 1);
            let length = (offset.wrapping_mul(step + 7) % (3 * u64::from(block_bytes)) + 1).min(MIB - offset) as usize;
            let bytes = pattern(step, length);
            direct.write_all_at(&bytes, offset).expect("written");
            model[offset as usize..][..length].copy_from_slice(&bytes);
            let start = offset.saturating_sub(step);
            let mut read = vec![0; (length + 2 * step as usize).min((MIB - start) as usize)];
            direct.read_exact_at(&mut read, start).expect("read");
            assert!(read == model[start as usize..][..read.len()], "{block_bytes}: {offset} {length}");
        }
        assert!(fs::read(mounted.path()).expect("read") == model, "{block_bytes}");
    }
}

#[test]
fn holes_and_zeros_are_made_to_the_byte_and_reach_the_disk_as_such() {
    let (disk, record) = RecordingDisk::new(MemoryDisk::new(MIB, 512).expect("a disk"));
    let mounted = Mounted::new(disk);
    let file = mounted.open(0);
    let mut model = pattern(2, 1 << 20);
    file.write_all_at(&model, 0).expect("written");
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let zero = FallocateFlags::ZERO_RANGE;
    let ranges = [(punch, 4096, 65536), (zero, 200_000, 4096), (punch, 300_001, 10_000), (zero, 400_100, 37)];
    for (mode, offset, length) in ranges {
        fallocate(&file, mode, offset, length).expect("zeroed");
        model[offset as usize..(offset + length) as usize].fill(0);
    }
    let mut read = vec![0; 1 << 20];
    file.read_exact_at(&mut read, 0).expect("read");
    assert!(read == model);
    assert!(fs::read(mounted.path()).expect("read") == model);
    let zeroes = |wanted| {
        record.count(|operation| matches!(operation, Operation::WriteZeroes { may_unmap, .. } if *may_unmap == wanted))
    };
    assert_eq!((zeroes(true), zeroes(false)), (2, 1), "a range within a block is written");
    for mode in [FallocateFlags::empty(), FallocateFlags::KEEP_SIZE, FallocateFlags::COLLAPSE_RANGE] {
        assert_eq!(fallocate(&file, mode, 0, 4096), Err(Errno::OPNOTSUPP));
    }
    assert!(fallocate(&file, zero, MIB - 512, 1024).is_err());
    fallocate(&file, punch, MIB + 512, 1024).expect("nothing to do");
    assert_eq!(file.metadata().expect("stat").len(), MIB);
}

#[test]
fn the_fallocate_program_punches_and_zeroes() {
    let (mounted, image) = Mounted::on_file(4 * MIB);
    fs::write(&image, pattern(3, 4 << 20)).expect("written");
    let before = fs::metadata(&image).expect("stat").blocks();
    run("util-linux", "fallocate", "-p -o 1048576 -l 1048576 {}", mounted.path());
    run("util-linux", "fallocate", "-z -o 3145728 -l 4096 {}", mounted.path());
    let now = fs::read(mounted.path()).expect("read");
    assert!(now[1 << 20..2 << 20].iter().all(|&byte| byte == 0));
    assert!(now[3 << 20..][..4096].iter().all(|&byte| byte == 0));
    assert!(now[2 << 20..3 << 20] == pattern(3, 4 << 20)[2 << 20..3 << 20]);
    assert!(fs::metadata(&image).expect("stat").blocks() < before, "the storage was given back");
    assert!(!try_run("util-linux", "fallocate", "-l 8M {}", mounted.path()).status.success());
}

#[test]
fn data_and_holes_are_found() {
    let mounted = Mounted::memory(16 * MIB, 4096);
    let file = mounted.open(0);
    assert_eq!(seek(&file, SeekFrom::Data(0)), Err(Errno::NXIO));
    assert_eq!(seek(&file, SeekFrom::Hole(0)), Ok(0));
    file.write_all_at(&pattern(4, 65536), 4 * MIB).expect("written");
    assert_eq!(seek(&file, SeekFrom::Data(0)), Ok(4 * MIB));
    assert_eq!(seek(&file, SeekFrom::Hole(4 * MIB)), Ok(4 * MIB + 65536));
    assert_eq!(seek(&file, SeekFrom::Data(5 * MIB)), Err(Errno::NXIO));
    assert_eq!(seek(&file, SeekFrom::Hole(16 * MIB)), Err(Errno::NXIO));
    file.write_all_at(&[1], 16 * MIB - 1).expect("written");
    assert_eq!(seek(&file, SeekFrom::Hole(16 * MIB - 1)), Ok(16 * MIB));
}

#[test]
fn fsync_reaches_the_disk_and_close_does_not() {
    let (disk, record) = RecordingDisk::new(MemoryDisk::new(MIB, 512).expect("a disk"));
    let mounted = Mounted::new(disk);
    let file = mounted.open(0);
    file.write_all_at(&[1; 4096], 0).expect("written");
    drop(file);
    assert_eq!(record.flushes(), 0);
    let file = mounted.open(0);
    file.write_all_at(&[2; 4096], 0).expect("written");
    file.sync_all().expect("synced");
    assert_eq!(record.flushes(), 1);
    file.sync_data().expect("synced");
    assert_eq!(record.flushes(), 2);
    for flags in [libc::O_SYNC, libc::O_DSYNC] {
        let before = record.flushes();
        mounted.open(flags).write_all_at(&[3; 100], 9).expect("written");
        assert!(record.flushes() > before, "a write through the cache is followed by a flush");
    }
}

#[test]
fn a_direct_write_that_is_to_be_durable_is_when_it_returns() {
    let (disk, record) = RecordingDisk::new(MemoryDisk::new(MIB, 512).expect("a disk"));
    let mounted = Mounted::new(disk);
    let durable = || record.count(|operation| *operation == Operation::Write { force_unit_access: true });
    mounted.open(libc::O_DIRECT).write_all_at(&[1; 4096], 0).expect("written");
    assert_eq!(durable(), 0);
    mounted.open(libc::O_DIRECT | libc::O_DSYNC).write_all_at(&[1; 4096], 0).expect("written");
    assert_eq!(durable(), 1);
    mounted.open(libc::O_DIRECT | libc::O_SYNC).write_all_at(&[1; 1000], 300).expect("written");
    assert_eq!(durable(), 4, "two edges and the block between them");
    run(
        "coreutils",
        "dd",
        "if=/dev/zero of={} bs=4k count=1 oflag=direct,dsync conv=notrunc status=none",
        mounted.path(),
    );
    assert!(durable() + record.flushes() > 4);
}

#[test]
fn the_cache_and_direct_access_see_each_other() {
    let mounted = Mounted::memory(MIB, 512);
    let (cached, direct) = (mounted.open(0), mounted.open(libc::O_DIRECT));
    let mut read = [0; 3000];
    for round in 0..20_u8 {
        let offset = u64::from(round) * 1111;
        cached.write_all_at(&[round + 1; 3000], offset).expect("written");
        direct.read_exact_at(&mut read, offset).expect("read");
        assert_eq!(read, [round + 1; 3000]);
        direct.write_all_at(&[round + 101; 3000], offset).expect("written");
        cached.read_exact_at(&mut read, offset).expect("read");
        assert_eq!(read, [round + 101; 3000]);
    }
}

#[test]
fn truncating_on_open_discards_the_contents_and_keeps_the_size() {
    let mounted = Mounted::memory(MIB, 512);
    mounted.open(0).write_all_at(&pattern(5, 1 << 20), 0).expect("written");
    let mut file = mounted.open(libc::O_TRUNC);
    assert_eq!(file.metadata().expect("stat").len(), MIB);
    file.write_all(b"new").expect("written");
    file.rewind().expect("rewound");
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).expect("read");
    assert!(bytes.len() as u64 == MIB && bytes[..3] == *b"new" && bytes[3..].iter().all(|&byte| byte == 0));
}

#[test]
fn a_read_only_disk_is_a_read_only_file() {
    let directory = tempfile::tempdir().expect("a directory");
    let image = directory.path().join("image");
    let bytes = pattern(6, 65536);
    fs::write(&image, &bytes).expect("written");
    let options_of_disk = FileOptions { read_only: true, ..FileOptions::default() };
    let disk = FileDisk::open(&image, &options_of_disk).expect("a disk");
    let file = FuseFile::mount(Arc::new(disk), &directory.path().join("disk"), &options()).expect("mounted");
    assert_eq!(fs::metadata(file.path()).expect("stat").permissions().mode() & 0o7777, 0o400);
    assert!(fs::read(file.path()).expect("read") == bytes);
    for open in [fs::OpenOptions::new().write(true), fs::OpenOptions::new().write(true).truncate(true)] {
        let refused = errno(open.open(file.path()));
        assert!(matches!(refused, Some(Errno::ROFS | Errno::ACCESS)), "{refused:?}");
    }
    assert!(fs::read(&image).expect("read") == bytes);
}
