//! What our images and QEMU's are to each other.

use crate::rig::{Rig, WRITE, check_clean, open, open_allowed, options, pattern, qemu_img, qemu_io, read_only, text};
use blockyard_block::layers::{AlignOptions, AlignedDisk};
use blockyard_block::{
    AllowedDirectories, Disk, Engine, ExtentKind, FileOptions, OpenedFile, Operation, Preallocation, Qcow2Backing,
    Qcow2CreateOptions, Qcow2Disk, Qcow2Info, RequestError,
};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use tempfile::TempDir;

const MIB: u64 = 1 << 20;

fn directory() -> (TempDir, impl Fn(&str) -> PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().canonicalize().unwrap();
    (directory, move |name: &str| path.join(name))
}

#[test]
fn what_qemu_wrote_reads_as_qemu_says() {
    let (_directory, path) = directory();
    for (cluster, compat) in [("512", "1.1"), ("4k", "0.10"), ("64k", "1.1"), ("2M", "1.1")] {
        let image = path(&format!("{cluster}.qcow2"));
        let create = format!("cluster_size={cluster},compat={compat}");
        qemu_img(&["create", "-q", "-f", "qcow2", "-o", &create, text(&image), "8M"]);
        let commands = ["write -P 17 0 1000k", "write -P 18 3M 512", "write -P 19 8191k 1k"];
        qemu_io(text(&image), "qcow2", &commands);
        let raw = path("raw");
        qemu_img(&["convert", "-f", "qcow2", "-O", "raw", text(&image), text(&raw)]);
        let wanted = std::fs::read(raw).unwrap();
        for engine in [Engine::Auto, Engine::Threads, Engine::Sync] {
            for read_only in [true, false] {
                let mut rig = Rig::new(open_allowed(&image, &FileOptions { read_only, ..options(engine) }));
                assert!(rig.read_all() == wanted, "{cluster} {engine:?}");
            }
        }
    }
}

#[test]
fn compressed_clusters_read_and_can_be_written_over() {
    let (_directory, path) = directory();
    let (raw, image) = (path("raw"), path("image.qcow2"));
    let mut contents = [vec![7_u8; 300_000], pattern(200_000, 1), b"some text ".repeat(50_000)].concat();
    contents.resize(1 << 20, 3);
    std::fs::write(&raw, &contents).unwrap();
    qemu_img(&["convert", "-c", "-f", "raw", "-O", "qcow2", text(&raw), text(&image)]);
    let mut rig = Rig::new(open(&image));
    assert!(rig.read_all() == contents);
    let bytes = pattern(70_000, 2);
    let bytes = &bytes[..69_632];
    rig.write(100_352, bytes);
    contents[100_352..][..bytes.len()].copy_from_slice(bytes);
    assert!(rig.read_all() == contents);
    drop(rig);
    check_clean(text(&image));
    std::fs::write(&raw, &contents).unwrap();
    qemu_img(&["compare", "-f", "raw", "-F", "qcow2", text(&raw), text(&image)]);
}

#[test]
fn what_is_created_and_written_here_is_what_qemu_finds() {
    let (_directory, path) = directory();
    for cluster_bytes in [512, 4096, 65536, 2 << 20] {
        for preallocation in [Preallocation::Off, Preallocation::Metadata, Preallocation::Falloc, Preallocation::Full] {
            let image = path("image.qcow2");
            let create = Qcow2CreateOptions { cluster_bytes, preallocation, ..Qcow2CreateOptions::new(5 * MIB) };
            Qcow2Disk::create(&image, &create).unwrap();
            check_clean(text(&image));
            let mut rig = Rig::new(open(&image));
            rig.write(0, &pattern(4096, 1));
            rig.write(MIB - 512, &pattern(1 << 20, 2));
            rig.write(5 * MIB - 512, &pattern(512, 3));
            let all = rig.read_all();
            drop(rig);
            check_clean(text(&image));
            let raw = path("raw");
            std::fs::write(&raw, &all).unwrap();
            assert_eq!(all[MIB as usize - 512..][..1 << 20], pattern(1 << 20, 2));
            assert_eq!(all[..4096], pattern(4096, 1));
            assert!(all[4096..MIB as usize - 512].iter().all(|&byte| byte == 0));
            qemu_img(&["compare", "-f", "raw", "-F", "qcow2", text(&raw), text(&image)]);
            let blocks = std::fs::metadata(&image).unwrap().blocks() * 512;
            let is_allocated = matches!(preallocation, Preallocation::Falloc | Preallocation::Full);
            // Large clusters are all touched by what was written.
            assert_eq!(
                blocks >= 5 * MIB,
                is_allocated || cluster_bytes == 2 << 20,
                "{preallocation:?} {cluster_bytes}: {blocks}"
            );
        }
    }
}

#[test]
fn a_backing_chain_shows_through_and_stays_as_it_is() {
    let (_directory, path) = directory();
    let (base, middle, top) = (path("base"), path("middle.qcow2"), path("top.qcow2"));
    let mut contents = pattern(3 << 20, 1);
    // Shorter than the disk, and no whole cluster.
    contents.truncate((3 << 20) - 1536);
    std::fs::write(&base, &contents).unwrap();
    contents.resize(4 << 20, 0);
    qemu_img(&["create", "-q", "-f", "qcow2", "-b", "base", "-F", "raw", text(&middle), "4M"]);
    qemu_io(text(&middle), "qcow2", &["write -P 5 100k 300k", "write -z 1M 64k", "write -P 6 3M 4k"]);
    contents[100 << 10..400 << 10].fill(5);
    contents[1 << 20..(1 << 20) + (64 << 10)].fill(0);
    contents[3 << 20..(3 << 20) + 4096].fill(6);
    let backing = Qcow2Backing { name: "middle.qcow2".into(), format: "qcow2".into() };
    Qcow2Disk::create(&top, &Qcow2CreateOptions { backing: Some(backing), ..Qcow2CreateOptions::new(4 * MIB) })
        .unwrap();
    let before = (std::fs::read(&base).unwrap(), std::fs::read(&middle).unwrap());
    let mut rig = Rig::new(open_allowed(&top, &FileOptions::default()));
    assert!(rig.read_all() == contents);
    for (offset, length) in [(300 << 10, 5120), ((1 << 20) - 512, 1024), ((3 << 20) - 2048, 4096), (0, 1 << 20)] {
        let bytes = pattern(length, offset as u64);
        rig.write(offset as u64, &bytes);
        contents[offset..][..length].copy_from_slice(&bytes);
    }
    assert!(rig.read_all() == contents);
    drop(rig);
    check_clean(text(&top));
    assert!(before == (std::fs::read(&base).unwrap(), std::fs::read(&middle).unwrap()));
    let raw = path("raw");
    std::fs::write(&raw, &contents).unwrap();
    qemu_img(&["compare", "-f", "raw", "-F", "qcow2", text(&raw), text(&top)]);
}

#[test]
fn extents_are_what_qemu_maps() {
    let (_directory, path) = directory();
    let (base, top) = (path("base.qcow2"), path("top.qcow2"));
    qemu_img(&["create", "-q", "-f", "qcow2", text(&base), "4M"]);
    qemu_io(text(&base), "qcow2", &["write -P 5 1M 128k"]);
    qemu_img(&["create", "-q", "-f", "qcow2", "-b", "base.qcow2", "-F", "qcow2", text(&top)]);
    qemu_io(text(&top), "qcow2", &["write -P 5 0 64k", "write -z 1M 64k", "write -z 2M 64k"]);
    let disk = open_allowed(&top, &read_only());
    let mut extents = Vec::new();
    let mut at = 0;
    while at < 4 * MIB {
        let extent = disk.extents(at..4 * MIB).unwrap();
        assert_eq!(extent.offset_bytes, at);
        extents.push((at >> 10, extent.length_bytes >> 10, extent.kind));
        at += extent.length_bytes;
    }
    assert_eq!(
        extents,
        [
            (0, 64, ExtentKind::Data),
            (64, 960, ExtentKind::Hole),
            (1024, 64, ExtentKind::Zero),
            (1088, 64, ExtentKind::Data),
            (1152, 896, ExtentKind::Hole),
            (2048, 64, ExtentKind::Zero),
            (2112, 1984, ExtentKind::Hole),
        ]
    );
}

#[test]
fn what_is_discarded_is_given_back_and_used_again() {
    let (_directory, path) = directory();
    let image = path("image.qcow2");
    Qcow2Disk::create(&image, &Qcow2CreateOptions::new(64 * MIB)).unwrap();
    let mut rig = Rig::new(open(&image));
    for _ in 0..4 {
        for n in 0..16 {
            rig.write(n * MIB, &pattern(1 << 20, n));
        }
        let used = std::fs::metadata(&image).unwrap().blocks() * 512;
        assert!(used < 18 * MIB, "{used}");
        rig.perform(Operation::Discard { length_bytes: 8 * MIB }, 0, &[]).unwrap();
        let may_unmap = true;
        rig.perform(Operation::WriteZeroes { length_bytes: 8 * MIB - 512, may_unmap }, 8 * MIB, &[]).unwrap();
        assert_eq!(rig.read(16 * MIB - 512, 512), pattern(1 << 20, 15)[(1 << 20) - 512..]);
        assert!(rig.read(0, 1 << 20).iter().all(|&byte| byte == 0));
        assert!(rig.read(15 * MIB, (1 << 20) - 512).iter().all(|&byte| byte == 0));
        // The next job finds that nobody uses what was discarded.
        rig.perform(Operation::Discard { length_bytes: 0 }, 0, &[]).unwrap();
    }
    drop(rig);
    check_clean(text(&image));
    assert!(std::fs::metadata(&image).unwrap().blocks() * 512 < 2 * MIB);
}

#[test]
fn discarding_an_empty_disk_allocates_nothing() {
    let (_directory, path) = directory();
    let image = path("image.qcow2");
    Qcow2Disk::create(&image, &Qcow2CreateOptions::new(1 << 40)).unwrap();
    let before = std::fs::metadata(&image).unwrap().len();
    let mut rig = Rig::new(open(&image));
    rig.perform(Operation::Discard { length_bytes: 1 << 40 }, 0, &[]).unwrap();
    rig.perform(Operation::WriteZeroes { length_bytes: 1 << 40, may_unmap: true }, 0, &[]).unwrap();
    drop(rig);
    assert_eq!(std::fs::metadata(&image).unwrap().len(), before);
}

#[test]
fn a_version_2_image_is_zeroed_by_writing_zeros() {
    let (_directory, path) = directory();
    let image = path("image.qcow2");
    qemu_img(&["create", "-q", "-f", "qcow2", "-o", "compat=0.10", text(&image), "4M"]);
    let mut rig = Rig::new(open(&image));
    rig.write(0, &pattern(1 << 20, 1));
    rig.perform(Operation::WriteZeroes { length_bytes: 500 << 10, may_unmap: true }, 512, &[]).unwrap();
    rig.perform(Operation::Discard { length_bytes: 4 << 20 }, 0, &[]).unwrap();
    let mut wanted = pattern(1 << 20, 1);
    wanted[512..512 + (500 << 10)].fill(0);
    assert!(rig.read(0, 1 << 20) == wanted);
    drop(rig);
    check_clean(text(&image));
}

#[test]
fn an_image_with_snapshots_keeps_them() {
    let (_directory, path) = directory();
    let image = path("image.qcow2");
    qemu_img(&["create", "-q", "-f", "qcow2", text(&image), "4M"]);
    qemu_io(text(&image), "qcow2", &["write -P 9 0 1M"]);
    qemu_img(&["snapshot", "-c", "before", text(&image)]);
    let mut rig = Rig::new(open(&image));
    rig.write(4096, &pattern(8192, 1));
    rig.perform(Operation::Discard { length_bytes: 128 << 10 }, 256 << 10, &[]).unwrap();
    drop(rig);
    check_clean(text(&image));
    qemu_img(&["snapshot", "-a", "before", text(&image)]);
    qemu_io(text(&image), "qcow2", &["read -P 9 0 1M"]);
    assert!(Rig::new(open(&image)).read(0, 1 << 20).iter().all(|&byte| byte == 9));
}

#[test]
fn an_external_data_file_holds_the_data() {
    let (_directory, path) = directory();
    let image = path("image.qcow2");
    let data = path("data");
    let option = format!("data_file={}", text(&data));
    qemu_img(&["create", "-q", "-f", "qcow2", "-o", &option, text(&image), "4M"]);
    let mut rig = Rig::new(open_allowed(&image, &FileOptions::default()));
    rig.write(MIB, &pattern(65536, 1));
    rig.perform(Operation::Flush, 0, &[]).unwrap();
    rig.write_as(Operation::Write { force_unit_access: true }, MIB + 65536, &pattern(512, 2)).unwrap();
    assert_eq!(rig.read(MIB, 65536), pattern(65536, 1));
    drop(rig);
    check_clean(text(&image));
    assert_eq!(std::fs::read(&data).unwrap()[1 << 20..][..65536], pattern(65536, 1));
}

#[test]
fn a_disk_that_ends_within_a_sector_has_all_of_it() {
    let (_directory, path) = directory();
    let image = path("image.qcow2");
    for compat in ["1.1", "0.10"] {
        qemu_img(&["create", "-q", "-f", "qcow2", "-o", &format!("compat={compat}"), text(&image), "1M"]);
        qemu_io(text(&image), "qcow2", &["write -P 7 0 1M"]);
        std::fs::File::options()
            .write(true)
            .open(&image)
            .unwrap()
            .write_all_at(&(MIB - 100).to_be_bytes(), 24)
            .unwrap();
        let info = || Qcow2Info::of_opened(&OpenedFile::open(&image, true).unwrap()).unwrap();
        assert_eq!(info().size_bytes, MIB);
        let mut rig = Rig::new(open(&image));
        let mut wanted = vec![7; MIB as usize];
        assert!(rig.read_all() == wanted);
        wanted[MIB as usize - 512..].fill(8);
        rig.write(MIB - 512, &[8; 512]);
        drop(rig);
        // What is new begins where it ends now.
        let to_change = OpenedFile::open(&image, false).unwrap();
        to_change.lock(&FileOptions::default()).unwrap();
        Qcow2Disk::resize(&to_change, MIB + 512, Preallocation::Off, &AllowedDirectories::none()).unwrap();
        drop(to_change);
        wanted.extend([0; 512]);
        assert!(Rig::new(open(&image)).read_all() == wanted);
        check_clean(text(&image));
        qemu_io(text(&image), "qcow2", &["read -P 8 1048064 512", "read -P 0 1M 512"]);
    }
}

#[test]
fn many_requests_at_once_on_every_engine() {
    let (_directory, path) = directory();
    for engine in [Engine::Auto, Engine::Threads, Engine::Sync] {
        let image = path("image.qcow2");
        let create = Qcow2CreateOptions { cluster_bytes: 4096, ..Qcow2CreateOptions::new(4 * MIB) };
        Qcow2Disk::create(&image, &create).unwrap();
        let mut rig = Rig::new(open_allowed(&image, &options(engine)));
        let wanted = pattern(4 << 20, 5);
        rig.poke(0, &wanted);
        // Half of it, so that the rest is in pieces: some in place, some not.
        for (operation, step) in [(WRITE, 2), (WRITE, 1)] {
            transfer_all(&mut rig, operation, step, &wanted);
        }
        rig.poke(0, &vec![0; 4 << 20]);
        transfer_all(&mut rig, Operation::Read, 1, &wanted);
        assert!(rig.peek(0, 4 << 20) == wanted, "{engine:?}");
        drop(rig);
        check_clean(text(&image));
    }
}

/// Requests of 20 KiB, as many at once as go, every `step`th.
fn transfer_all(rig: &mut Rig, operation: Operation, step: usize, wanted: &[u8]) {
    let mut completions = Vec::new();
    for offset in (0..wanted.len()).step_by(20_480 * step) {
        let length_bytes = 20_480.min(wanted.len() - offset) as u32;
        let segments = [blockyard_block::Segment { region: 0, length_bytes, offset_bytes: offset as u64 }];
        let request =
            blockyard_block::Request { operation, offset_bytes: offset as u64, segments: &segments, token: 1 };
        while rig.queue.push(&request).is_err() {
            rig.queue.submit().unwrap();
            rig.queue.wait(&[], None).unwrap();
            rig.queue.reap(&mut completions);
        }
    }
    rig.queue.drain(&mut completions).unwrap();
    assert!(completions.iter().all(|completion| completion.result.is_ok()));
}

#[test]
fn data_go_past_the_page_cache_and_come_back() {
    let (_directory, path) = directory();
    let image = path("image.qcow2");
    for cluster_bytes in [512, 4096, 65536] {
        Qcow2Disk::create(&image, &Qcow2CreateOptions { cluster_bytes, ..Qcow2CreateOptions::new(4 * MIB) }).unwrap();
        let options = FileOptions { direct: true, ..FileOptions::default() };
        for round in 0..2 {
            let disk = std::sync::Arc::new(open_allowed(&image, &options));
            let aligned = AlignOptions { logical_block_bytes: 512 };
            let mut rig = Rig::new(AlignedDisk::new(disk, &aligned).unwrap());
            for n in 0..8 {
                let bytes = pattern(100 << 10, n + round);
                rig.write(n * 300 * 1024, &bytes);
                rig.write(n * 300 * 1024 + 512, &bytes[..4096]);
                assert!(rig.read(n * 300 * 1024 + 512, 4096) == bytes[..4096], "{cluster_bytes}");
                assert!(rig.read(n * 300 * 1024 + 8192, 65536) == bytes[8192..][..65536], "{cluster_bytes}");
            }
        }
        check_clean(text(&image));
    }
}

#[test]
fn requests_that_are_wrong_fail_alone() {
    let (_directory, path) = directory();
    let image = path("image.qcow2");
    Qcow2Disk::create(&image, &Qcow2CreateOptions::new(4 * MIB)).unwrap();
    let mut rig = Rig::new(open(&image));
    let outside = blockyard_block::Segment { region: 0, length_bytes: 512, offset_bytes: u64::MAX - 100 };
    assert_eq!(rig.perform(WRITE, 0, &[outside]), Err(RequestError::BadSegment));
    assert_eq!(rig.perform(Operation::Read, 0, &[outside]), Err(RequestError::BadSegment));
    rig.write(0, &pattern(512, 1));
    assert_eq!(rig.perform(WRITE, 0, &[outside]), Err(RequestError::BadSegment));
    assert_eq!(rig.perform(Operation::Read, 4 * MIB, &Rig::segments(512)), Err(RequestError::OutOfRange));
    assert_eq!(rig.read(0, 512), pattern(512, 1));
    drop(rig);
    let mut rig = Rig::new(open_allowed(&image, &read_only()));
    assert_eq!(rig.write_as(WRITE, 0, &[1; 512]), Err(RequestError::ReadOnly));
}

#[test]
fn a_completion_event_tells_of_what_needed_no_io() {
    let (_directory, path) = directory();
    let image = path("image.qcow2");
    Qcow2Disk::create(&image, &Qcow2CreateOptions::new(4 * MIB)).unwrap();
    let mut rig = Rig::new(open(&image));
    for operation in [Operation::Read, WRITE, Operation::Read, Operation::Flush] {
        let segments = if operation == Operation::Flush { Vec::new() } else { Rig::segments(4096) };
        let request = blockyard_block::Request { operation, offset_bytes: 0, segments: &segments, token: 1 };
        rig.queue.push(&request).unwrap();
        rig.queue.submit().unwrap();
        let mut completions = Vec::new();
        while completions.is_empty() {
            let event = rig.queue.completion_event().unwrap();
            let mut fds = [rustix::event::PollFd::from_borrowed_fd(event, rustix::event::PollFlags::IN)];
            let timeout = rustix::event::Timespec { tv_sec: 10, tv_nsec: 0 };
            assert_eq!(rustix::event::poll(&mut fds, Some(&timeout)).unwrap(), 1, "{operation:?}");
            rig.queue.reap(&mut completions);
        }
        assert_eq!(completions[0].result, Ok(()));
    }
    let event = rig.queue.completion_event().unwrap();
    let mut fds = [rustix::event::PollFd::from_borrowed_fd(event, rustix::event::PollFlags::IN)];
    let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    assert_eq!(rustix::event::poll(&mut fds, Some(&now)).unwrap(), 0, "nothing is ready");
}

/// A request that was pushed and not submitted has looked up where its bytes lie, and gets there late.
#[test]
fn a_cluster_is_not_given_away_while_a_request_is_on_its_way_to_it() {
    let (_directory, path) = directory();
    let image = path("image.qcow2");
    Qcow2Disk::create(&image, &Qcow2CreateOptions::new(4 * MIB)).unwrap();
    let disk: std::sync::Arc<dyn Disk> = std::sync::Arc::new(open(&image));
    let mut late = Rig::shared(std::sync::Arc::clone(&disk), 4);
    let mut rig = Rig::shared(disk, 4);
    let (old, new) = (pattern(65536, 1), pattern(65536, 2));
    for late_operation in [Operation::Read, WRITE] {
        rig.write(0, &old);
        late.poke(0, &pattern(65536, 3));
        let segments = Rig::segments(65536);
        let request =
            blockyard_block::Request { operation: late_operation, offset_bytes: 0, segments: &segments, token: 1 };
        late.queue.push(&request).unwrap();
        rig.perform(Operation::Discard { length_bytes: 65536 }, 0, &[]).unwrap();
        // The worker looks every now and then, and with every job.
        std::thread::sleep(std::time::Duration::from_millis(100));
        for n in 1..6 {
            rig.write(n * 65536, &new);
        }
        let mut completions = Vec::new();
        late.queue.drain(&mut completions).unwrap();
        assert_eq!(completions[0].result, Ok(()));
        if late_operation == Operation::Read {
            let found = late.peek(0, 65536);
            assert!(found == old || found.iter().all(|&byte| byte == 0));
        }
        for n in 1..6 {
            assert!(rig.read(n * 65536, 65536) == new, "{late_operation:?} {n}");
        }
        rig.perform(Operation::Discard { length_bytes: 4 * MIB }, 0, &[]).unwrap();
    }
    drop((late, rig));
    check_clean(text(&image));
}
