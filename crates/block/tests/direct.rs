//! Files past the page cache.

use blockyard_block::layers::{AlignOptions, AlignedDisk};
use blockyard_block::{
    AllowedDirectories, Completion, Disk, Engine, FileDisk, FileOptions, MemoryMap, Operation, Qcow2Disk, Queue,
    Request, RequestError, Segment,
};
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

const ENGINES: [Engine; 3] = [Engine::Auto, Engine::Threads, Engine::Sync];
const WRITE: Operation = Operation::Write { force_unit_access: false };

fn options(engine: Engine) -> FileOptions {
    FileOptions { engine, direct: true, ..FileOptions::default() }
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|n| (n / 511 * 7 + n) as u8).collect()
}

fn perform(queue: &mut dyn Queue, operation: Operation, offset: u64, segments: &[Segment]) -> Result<(), RequestError> {
    let has_memory = matches!(operation, Operation::Read | Operation::Write { .. });
    let segments = if has_memory { segments } else { &[] };
    queue.push(&Request { operation, offset_bytes: offset, segments, token: 1 }).unwrap();
    let mut completions = Vec::new();
    queue.drain(&mut completions).unwrap();
    let [Completion { token: 1, result }] = completions[..] else { panic!("{completions:?}") };
    result
}

fn segment(offset_bytes: u64, length_bytes: u64) -> Segment {
    Segment { region: 0, length_bytes: length_bytes as u32, offset_bytes }
}

fn read(disk: &dyn Disk, memory: &MemoryMap) -> Vec<u8> {
    let bytes = disk.geometry().capacity_bytes;
    let mut queue = disk.open_queue(memory, 4).unwrap();
    perform(&mut *queue, Operation::Read, 0, &[segment(0, bytes)]).unwrap();
    let mut read = vec![0; bytes as usize];
    memory.slice(segment(0, bytes)).unwrap().copy_to(&mut read[..]);
    read
}

#[test]
fn the_page_cache_holds_nothing_that_was_moved_directly() {
    for engine in ENGINES {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("disk.img");
        fs::write(&path, pattern(1 << 20)).unwrap();
        let file = File::open(&path).unwrap();
        file.sync_all().unwrap();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        let memory = MemoryMap::allocate(&[(0, 1 << 20)]).unwrap();
        for direct in [true, false] {
            let disk = FileDisk::open(&path, &FileOptions { direct, ..options(engine) }).unwrap();
            assert!(read(&disk, &memory) == pattern(1 << 20));
            let cached = cached_pages(&file);
            // How much of what it may hold is the kernel's affair.
            assert_eq!(cached == 0, direct, "{engine:?}: {cached} pages");
        }
    }
}

/// Pages of the file that are in the page cache.
fn cached_pages(file: &File) -> usize {
    let path = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap();
    let fincore = Command::new("fincore").args(["--noheadings", "--output", "PAGES"]).arg(path).output();
    let output = fincore.expect("fincore comes with the package util-linux-extra or util-linux");
    String::from_utf8(output.stdout).unwrap().trim().parse().unwrap()
}

/// Sizes that are whole blocks, and such that end in a page that goes through the page cache.
#[test]
fn a_file_of_any_length_is_read_and_written_up_to_the_disks_end() {
    for engine in ENGINES {
        for length in [1 << 20, (1 << 20) - 512, 70_000, 65_536 + 1, 100, 0] {
            let contents = pattern(length);
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("disk.img");
            fs::write(&path, &contents).unwrap();
            let disk = FileDisk::open(&path, &options(engine)).unwrap();
            let capacity_bytes = disk.geometry().capacity_bytes;
            assert_eq!(capacity_bytes, (length as u64).next_multiple_of(disk.geometry().logical_block_bytes.into()));
            let memory = MemoryMap::allocate(&[(0, 2 << 20)]).unwrap();
            if capacity_bytes == 0 {
                continue;
            }
            let mut padded = contents;
            padded.resize(capacity_bytes as usize, 0);
            assert!(read(&disk, &memory) == padded, "{engine:?} {length}");
            let mut changed: Vec<_> = padded.iter().map(|byte| !byte).collect();
            changed[length..].fill(0);
            memory.slice(segment(0, capacity_bytes)).unwrap().copy_from(&changed[..]);
            let mut queue = disk.open_queue(&memory, 4).unwrap();
            let halves = capacity_bytes / 1024 * 512;
            let segments = [segment(0, halves), segment(halves, capacity_bytes - halves)];
            perform(&mut *queue, Operation::Write { force_unit_access: true }, 0, &segments).unwrap();
            perform(&mut *queue, Operation::Flush, 0, &[]).unwrap();
            assert!(fs::read(&path).unwrap() == changed[..length], "{engine:?} {length}");
            changed[length..].fill(1);
            memory.slice(segment(0, capacity_bytes)).unwrap().copy_from(&changed[..]);
            for may_unmap in [false, true] {
                let zeroes = Operation::WriteZeroes { length_bytes: capacity_bytes, may_unmap };
                perform(&mut *queue, WRITE, 0, &segments).unwrap();
                assert!(fs::read(&path).unwrap() == changed, "{engine:?} {length}");
                perform(&mut *queue, zeroes, 0, &[]).unwrap();
                assert!(fs::read(&path).unwrap() == vec![0; capacity_bytes as usize]);
            }
        }
    }
}

#[test]
fn what_is_not_aligned_is_refused() {
    for engine in ENGINES {
        let disk = FileDisk::from_file(tempfile_of(1 << 20), &options(engine)).unwrap();
        let memory = MemoryMap::allocate(&[(0, 65536)]).unwrap();
        let mut queue = disk.open_queue(&memory, 4).unwrap();
        let unaligned = Err(RequestError::Unaligned);
        for operation in [Operation::Read, WRITE] {
            assert_eq!(perform(&mut *queue, operation, 100, &[segment(0, 4096)]), unaligned);
            assert_eq!(perform(&mut *queue, operation, 0, &[segment(0, 100)]), unaligned);
            assert_eq!(perform(&mut *queue, operation, 0, &[segment(100, 4096)]), unaligned);
            assert_eq!(perform(&mut *queue, operation, 0, &[segment(0, 100), segment(4096, 4096 - 100)]), unaligned);
            perform(&mut *queue, operation, 4096, &[segment(4096, 4096)]).unwrap();
        }
        let zeroes = Operation::WriteZeroes { length_bytes: 100, may_unmap: true };
        assert_eq!(perform(&mut *queue, zeroes, 0, &[]), unaligned);
    }
}

fn tempfile_of(length: u64) -> File {
    let file = tempfile::tempfile().unwrap();
    file.set_len(length).unwrap();
    file
}

#[test]
fn a_file_that_becomes_shorter_is_noticed() {
    for engine in ENGINES {
        let file = tempfile_of(1 << 20);
        let disk = FileDisk::from_file(file.try_clone().unwrap(), &options(engine)).unwrap();
        let memory = MemoryMap::allocate(&[(0, 1 << 20)]).unwrap();
        let mut queue = disk.open_queue(&memory, 4).unwrap();
        for length in [300_000, 8192] {
            file.set_len(length).unwrap();
            let result = perform(&mut *queue, Operation::Read, 0, &[segment(0, 1 << 20)]);
            assert_eq!(result, Err(RequestError::Truncated), "{engine:?}");
            perform(&mut *queue, Operation::Read, 0, &[segment(0, 4096)]).unwrap();
        }
    }
}

/// What a mounted file system says is asked of the kernel; here of one on a device of blocks of 4096 bytes.
#[test]
fn a_file_that_wants_larger_transfers_has_larger_blocks() {
    let directory = tempfile::tempdir().unwrap();
    let image = directory.path().join("device.img");
    File::create(&image).unwrap().set_len(64 << 20).unwrap();
    let device = LoopDevice::new(&image, 4096);
    let mount = Mount::new(&device.path, &["mkfs.ext4", "-q"], directory.path());
    let path = mount.0.join("disk.img");
    fs::write(&path, pattern(1 << 20)).unwrap();
    let disk = FileDisk::open(&path, &options(Engine::Auto)).unwrap();
    let geometry = disk.geometry();
    assert_eq!((geometry.logical_block_bytes, geometry.memory_align_bytes), (4096, 4096));
    let memory = MemoryMap::allocate(&[(0, 2 << 20)]).unwrap();
    let mut queue = disk.open_queue(&memory, 4).unwrap();
    assert_eq!(perform(&mut *queue, Operation::Read, 512, &[segment(0, 4096)]), Err(RequestError::Unaligned));
    drop(queue);
    let aligned = AlignedDisk::new(Arc::new(disk), &AlignOptions::default()).unwrap();
    assert_eq!(aligned.geometry().logical_block_bytes, 512);
    memory.slice(segment(77, 1024)).unwrap().copy_from(&[0xee_u8; 1024]);
    let mut queue = aligned.open_queue(&memory, 4).unwrap();
    perform(&mut *queue, WRITE, 512, &[segment(77, 1024)]).unwrap();
    let mut expected = pattern(1 << 20);
    expected[512..1536].fill(0xee);
    assert!(fs::read(&path).unwrap() == expected);
    // Of the device itself, too. It is mounted: only to be read.
    let disk = FileDisk::open(&device.path, &FileOptions { read_only: true, ..options(Engine::Auto) }).unwrap();
    assert_eq!(disk.geometry().logical_block_bytes, 4096);
}

/// qcow2 on a file system on such a device, and on the device itself: also what is forced, and what is no whole block.
#[test]
fn images_on_a_device_of_large_blocks_are_written_directly() {
    let directory = tempfile::tempdir().unwrap();
    let image = directory.path().join("device.img");
    File::create(&image).unwrap().set_len(64 << 20).unwrap();
    let device = LoopDevice::new(&image, 4096);
    for cluster_bytes in [512, 4096, 65_536] {
        write_directly(&device.path, cluster_bytes);
    }
    let mount = Mount::new(&device.path, &["mkfs.ext4", "-q", "-F"], directory.path());
    for cluster_bytes in [512, 4096, 65_536] {
        write_directly(&mount.0.join("disk.qcow2"), cluster_bytes);
    }
}

fn write_directly(path: &Path, cluster_bytes: u32) {
    let qemu_img = |arguments: &[&str]| {
        let status = Command::new("qemu-img").args(arguments).arg(path).status();
        assert!(status.expect("qemu-img comes with the package qemu-utils").success(), "{arguments:?} {path:?}");
    };
    let mut create = Command::new("qemu-img");
    create.args(["create", "-q", "-f", "qcow2", "-o", &format!("cluster_size={cluster_bytes}")]).arg(path).arg("4M");
    assert!(create.status().expect("qemu-img comes with the package qemu-utils").success());
    let mut expected = vec![0; 4 << 20];
    for engine in ENGINES {
        let disk = Qcow2Disk::open(path, &options(engine), &AllowedDirectories::none()).unwrap();
        let is_direct = cluster_bytes >= 4096;
        assert_eq!(disk.geometry().logical_block_bytes, if is_direct { 4096 } else { 512 });
        let disk = AlignedDisk::where_needed(Arc::new(disk), &AlignOptions::default()).unwrap();
        let disk: Arc<dyn Disk> = match disk.geometry().logical_block_bytes {
            512 => disk,
            _ => Arc::new(AlignedDisk::new(disk, &AlignOptions::default()).unwrap()),
        };
        let memory = MemoryMap::allocate(&[(0, 4 << 20)]).unwrap();
        let mut queue = disk.open_queue(&memory, 4).unwrap();
        for (offset, length, force_unit_access) in
            [(0, 8192, true), (512, 1024, true), (100 << 10, 3584, false), ((1 << 20) - 512, 70_144, true)]
        {
            let bytes: Vec<_> = pattern(length).into_iter().map(|byte| byte ^ offset as u8 ^ engine as u8).collect();
            memory.slice(segment(77, length as u64)).unwrap().copy_from(&bytes[..]);
            let write = Operation::Write { force_unit_access };
            perform(&mut *queue, write, offset as u64, &[segment(77, length as u64)]).unwrap();
            expected[offset..offset + length].copy_from_slice(&bytes);
        }
        perform(&mut *queue, Operation::Flush, 0, &[]).unwrap();
        assert!(read(&*disk, &memory) == expected, "{path:?} {cluster_bytes} {engine:?}");
    }
    qemu_img(&["check", "-q", "-f", "qcow2"]);
    let raw = tempfile::NamedTempFile::new().unwrap();
    let convert =
        Command::new("qemu-img").args(["convert", "-f", "qcow2", "-O", "raw"]).arg(path).arg(raw.path()).status();
    assert!(
        convert.unwrap().success() && fs::read(raw.path()).unwrap() == expected,
        "{path:?} {cluster_bytes}, by QEMU"
    );
}

#[test]
fn where_there_are_no_direct_transfers_the_error_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let mount = Mount::ram(directory.path());
    let path = mount.0.join("disk.img");
    fs::write(&path, [0; 4096]).unwrap();
    let error = blockyard_block::explain(&FileDisk::open(&path, &options(Engine::Auto)).unwrap_err());
    let reason = "which `direct` asks for: its file system cannot do that";
    assert_eq!(error, format!("cannot open {} for direct transfers, {reason}", path.display()));
}

/// A ring's registered buffers and files, as its descriptor's fdinfo counts them.
fn registered(queue: &dyn Queue, what: &str) -> usize {
    let ring = queue.completion_event().unwrap().as_raw_fd();
    let text = fs::read_to_string(format!("/proc/self/fdinfo/{ring}")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(what)).unwrap_or_else(|| panic!("{text}"));
    line.trim_start_matches(':').trim().parse().unwrap()
}

#[test]
fn memory_is_registered_where_it_pays() {
    let file = tempfile_of(1 << 20);
    let open = |direct| {
        let options = FileOptions { engine: Engine::Uring, direct, ..FileOptions::default() };
        FileDisk::from_file(file.try_clone().unwrap(), &options).unwrap()
    };
    let small = MemoryMap::allocate(&[(0, 1 << 20), (1 << 30, 1 << 20)]).unwrap();
    let large = MemoryMap::allocate(&[(0, 1 << 30)]).unwrap();
    for (direct, memory, buffers) in [(false, &small, 0), (true, &small, 2), (true, &large, 0)] {
        let disk = open(direct);
        let mut queue = disk.open_queue(memory, 8).unwrap();
        assert_eq!((registered(&*queue, "UserFiles"), registered(&*queue, "UserBufs")), (2, buffers));
        perform(&mut *queue, WRITE, 4096, &[segment(0, 4096)]).unwrap();
        perform(&mut *queue, Operation::Read, 0, &[segment(0, 8192)]).unwrap();
    }
}

#[test]
fn memory_that_may_not_be_locked_is_not_registered() {
    use rustix::process::{Resource, Rlimit, setrlimit};
    use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
    let disk =
        FileDisk::from_file(tempfile_of(1 << 20), &FileOptions { engine: Engine::Uring, ..options(Engine::Uring) });
    let disk = disk.unwrap();
    std::thread::spawn(move || {
        let mut own = capabilities(None).unwrap();
        own.effective.remove(CapabilitySet::IPC_LOCK);
        set_capabilities(None, own).unwrap();
        // For the whole process, but only for whoever may not lock any amount.
        setrlimit(Resource::Memlock, Rlimit { current: Some(65536), maximum: Some(65536) }).unwrap();
        let memory = MemoryMap::allocate(&[(0, 4 << 20)]).unwrap();
        let mut queue = disk.open_queue(&memory, 8).unwrap();
        assert_eq!(registered(&*queue, "UserBufs"), 0);
        perform(&mut *queue, WRITE, 0, &[segment(0, 1 << 20)]).unwrap();
        perform(&mut *queue, Operation::Read, 0, &[segment(0, 1 << 20)]).unwrap();
    })
    .join()
    .unwrap();
}

struct LoopDevice {
    path: std::path::PathBuf,
}

impl LoopDevice {
    fn new(file: &Path, sector_bytes: u32) -> Self {
        let losetup = Command::new("losetup")
            .args(["--find", "--show", "--sector-size", &sector_bytes.to_string()])
            .arg(file)
            .output();
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

struct Mount(std::path::PathBuf);

impl Mount {
    fn new(device: &Path, mkfs: &[&str], directory: &Path) -> Self {
        let made = Command::new(mkfs[0]).args(&mkfs[1..]).arg(device).status();
        assert!(made.expect("mkfs.ext4 comes with the package e2fsprogs").success());
        Self::mounted(Command::new("mount").arg(device), directory)
    }

    fn ram(directory: &Path) -> Self {
        Self::mounted(Command::new("mount").args(["-t", "ramfs", "ramfs"]), directory)
    }

    fn mounted(mount: &mut Command, directory: &Path) -> Self {
        let point = directory.join("mounted");
        fs::create_dir(&point).unwrap();
        let mounted = mount.arg(&point).status().expect("mount comes with the package `mount`");
        assert!(mounted.success(), "this test needs root");
        Self(point)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

/// The last page of a file goes another way than the rest: both at once, over and over.
#[test]
fn the_end_of_a_file_and_what_lies_before_it_do_not_disturb_each_other() {
    let length = 65_536 + 1024 + 100;
    let file = tempfile_of(length);
    let disk = FileDisk::from_file(file.try_clone().unwrap(), &options(Engine::Auto)).unwrap();
    let memory = MemoryMap::allocate(&[(0, 65536)]).unwrap();
    let mut queue = disk.open_queue(&memory, 8).unwrap();
    let block = u64::from(disk.geometry().logical_block_bytes);
    let mut completions = Vec::new();
    for round in 1..200u8 {
        for (n, offset) in [65_536 - block, 65_536, 65_536 + block].into_iter().enumerate() {
            let segment = segment(n as u64 * block, block);
            memory.slice(segment).unwrap().copy_from(&vec![round.wrapping_add(n as u8); block as usize][..]);
            let request = Request { operation: WRITE, offset_bytes: offset, segments: &[segment], token: 0 };
            queue.push(&request).unwrap();
        }
        queue.drain(&mut completions).unwrap();
        assert!(completions.drain(..).all(|completion| completion.result.is_ok()));
        for (n, offset) in [65_536 - block, 65_536, 65_536 + block].into_iter().enumerate() {
            let mut byte = [0];
            file.read_exact_at(&mut byte, offset).unwrap();
            assert_eq!(byte[0], round.wrapping_add(n as u8), "round {round} at {offset}");
        }
    }
}
