//! Opening files as disks, and where their data are.

use blockyard_block::{
    Disk, Engine, Extent, ExtentKind, FileDisk, FileOptions, MemoryDisk, MemoryMap, NullDisk, Operation, Request,
    Segment, same_file,
};
use std::ffi::CString;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;

const READ_ONLY: FileOptions = FileOptions {
    read_only: true,
    engine: Engine::Sync,
    logical_block_bytes: 512,
    cache_unsafe: false,
    direct: false,
    lock: true,
};

fn options(logical_block_bytes: u32) -> FileOptions {
    FileOptions { logical_block_bytes, engine: Engine::Sync, ..FileOptions::default() }
}

fn message(path: &Path, options: &FileOptions) -> String {
    blockyard_block::explain(&FileDisk::open(path, options).expect_err("must be refused"))
}

#[test]
fn what_holds_no_blocks_is_refused_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    assert!(message(path, &READ_ONLY).ends_with("is a directory; a disk is a regular file or a block device"));
    assert!(message(Path::new("/dev/null"), &READ_ONLY).starts_with("/dev/null is a character device"));
    let fifo = path.join("fifo");
    let name = CString::new(fifo.as_os_str().as_bytes()).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, &*name, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    assert!(message(&fifo, &READ_ONLY).contains("fifo is a FIFO"));
    let socket = path.join("socket");
    let _listener = UnixListener::bind(&socket).unwrap();
    assert!(message(&socket, &READ_ONLY).contains("socket is a socket"));
    let missing = path.join("missing.img");
    let expected = format!("cannot open {} for reading: No such file or directory", missing.display());
    assert!(message(&missing, &READ_ONLY).starts_with(&expected));
    assert!(!missing.exists());
}

#[test]
fn odd_block_sizes_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("disk.img");
    fs::write(&path, [0; 1000]).unwrap();
    for bytes in [0, 1, 256, 513, 1000, 131_072, u32::MAX] {
        let expected = format!("the logical block size is {bytes} bytes; it must be a power of two from 512 to 65536");
        assert_eq!(message(&path, &options(bytes)), expected);
        assert!(MemoryDisk::new(4096, bytes).is_err());
        assert!(NullDisk::new(4096, bytes).is_err());
    }
    for bytes in [512, 1024, 4096, 65536] {
        let geometry = FileDisk::open(&path, &options(bytes)).unwrap().geometry();
        assert_eq!(geometry.logical_block_bytes, bytes);
        assert_eq!(geometry.capacity_bytes, 1000u64.next_multiple_of(u64::from(bytes)));
        assert!(geometry.physical_block_bytes >= bytes && geometry.physical_block_bytes.is_power_of_two());
    }
}

#[test]
fn an_open_file_must_suit() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("disk.img");
    fs::write(&path, [0; 1024]).unwrap();
    let refused = |file: File, options: &FileOptions| FileDisk::from_file(file, options).unwrap_err().to_string();
    let name = path.canonicalize().unwrap().display().to_string();
    let reading = || File::open(&path).unwrap();
    assert_eq!(refused(reading(), &options(512)), format!("{name} is not open for writing"));
    FileDisk::from_file(reading(), &READ_ONLY).unwrap();
    let writing = File::options().write(true).open(&path).unwrap();
    assert_eq!(refused(writing, &options(512)), format!("{name} is not open for reading"));
    let appending = File::options().read(true).append(true).open(&path).unwrap();
    assert!(refused(appending, &options(512)).contains("appending"));
    assert!(refused(File::open("/").unwrap(), &READ_ONLY).starts_with("/ is a directory"));
}

/// A file of 1 MiB with data in 256K..320K and in its last 100 bytes.
fn sparse_file(path: &Path, extra: u64) -> File {
    let file = File::options().read(true).write(true).create_new(true).open(path).unwrap();
    file.set_len((1 << 20) + extra).unwrap();
    file.write_all_at(&[1; 65536], 256 << 10).unwrap();
    file.write_all_at(&[1; 100], (1 << 20) + extra - 100).unwrap();
    file
}

fn walk(disk: &dyn Disk) -> Vec<Extent> {
    let capacity_bytes = disk.geometry().capacity_bytes;
    let mut extents: Vec<Extent> = Vec::new();
    let mut offset_bytes = 0;
    while offset_bytes < capacity_bytes {
        let extent = disk.extents(offset_bytes..capacity_bytes).unwrap();
        assert_eq!(extent.offset_bytes, offset_bytes);
        assert!(extent.length_bytes > 0 && extent.offset_bytes + extent.length_bytes <= capacity_bytes);
        offset_bytes += extent.length_bytes;
        extents.push(extent);
    }
    extents
}

#[test]
fn extents_tell_data_from_holes() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("disk.img");
    sparse_file(&path, 0);
    let disk = FileDisk::open(&path, &options(512)).unwrap();
    let extent = |offset_bytes, length_bytes, kind| Extent { offset_bytes, length_bytes, kind };
    let found = walk(&disk);
    assert_eq!(found[0], extent(0, 256 << 10, ExtentKind::Hole));
    assert_eq!(found[1], extent(256 << 10, 64 << 10, ExtentKind::Data));
    assert_eq!(found[2].kind, ExtentKind::Hole);
    assert_eq!(found[3].kind, ExtentKind::Data);
    assert_eq!(found.len(), 4);
    assert_eq!(disk.extents(300 << 10..310 << 10).unwrap(), extent(300 << 10, 10 << 10, ExtentKind::Data));
    assert_eq!(disk.extents(10..20).unwrap(), extent(10, 10, ExtentKind::Hole));
}

#[test]
fn extents_end_on_logical_blocks() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("disk.img");
    let file = sparse_file(&path, 0);
    // A hole of 60 KiB on both sides of 4 KiB of data: whole blocks of 64 KiB stay.
    file.write_all_at(&[1; 4096], (512 << 10) + 60 * 1024).unwrap();
    let disk = FileDisk::open(&path, &options(65536)).unwrap();
    let found = walk(&disk);
    assert!(found.iter().all(|extent| extent.offset_bytes % 65536 == 0 && extent.length_bytes % 65536 == 0));
    let data: Vec<_> = found
        .iter()
        .filter(|extent| extent.kind == ExtentKind::Data)
        .map(|extent| (extent.offset_bytes >> 10, extent.length_bytes >> 10))
        .collect();
    assert_eq!(data, [(256, 64), (512, 64), (960, 64)]);
}

#[test]
fn the_padding_is_a_hole() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("disk.img");
    sparse_file(&path, 1);
    let disk = FileDisk::open(&path, &options(512)).unwrap();
    let capacity_bytes = disk.geometry().capacity_bytes;
    assert_eq!(capacity_bytes, (1 << 20) + 512);
    assert_eq!(disk.extents((1 << 20) + 1..capacity_bytes).unwrap().kind, ExtentKind::Hole);
    walk(&disk);
}

#[test]
fn extents_outside_the_disk_are_refused() {
    let disk = MemoryDisk::new(8192, 512).unwrap();
    let null = NullDisk::new(8192, 512).unwrap();
    for range in [0..0, 8192..8192, 0..8193, 4096..u64::MAX] {
        assert!(disk.extents(range.clone()).is_err());
        assert!(null.extents(range).is_err());
    }
    assert_eq!(null.extents(512..8192).unwrap().kind, ExtentKind::Hole);
}

#[test]
fn what_was_cut_off_a_file_is_no_hole() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("disk.img");
    let file = sparse_file(&path, 0);
    let disk = FileDisk::open(&path, &options(512)).unwrap();
    file.set_len(300 << 10).unwrap();
    assert_eq!(disk.extents(256 << 10..1 << 20).unwrap().kind, ExtentKind::Data);
    for start in [300u64 << 10, 400 << 10] {
        let error = disk.extents(start..1 << 20).unwrap_err();
        assert_eq!(error.to_string(), "the file became shorter while it was in use");
    }
}

#[test]
fn files_are_recognised_through_links() {
    let directory = tempfile::tempdir().unwrap();
    let [file, hard, soft, other] = ["file", "hard", "soft", "other"].map(|name| directory.path().join(name));
    fs::write(&file, "x").unwrap();
    fs::write(&other, "x").unwrap();
    fs::hard_link(&file, &hard).unwrap();
    symlink(&file, &soft).unwrap();
    assert!(same_file(&file, &file).unwrap());
    assert!(same_file(&file, &hard).unwrap());
    assert!(same_file(&soft, &hard).unwrap());
    assert!(!same_file(&file, &other).unwrap());
    assert!(!same_file(&file, &directory.path().join("missing")).unwrap());
    let error = same_file(&file, &file.join("below")).unwrap_err().to_string();
    assert!(error.contains("file/below"), "{error}");
}

#[test]
fn a_memory_disk_keeps_what_is_written() {
    let disk = MemoryDisk::new(10_000, 4096).unwrap();
    assert_eq!(disk.geometry().capacity_bytes, 12_288);
    let memory = MemoryMap::allocate(&[(0, 8192)]).unwrap();
    let mut queue = disk.open_queue(&memory, 16).unwrap();
    let [from, to] = [0, 4096].map(|offset_bytes| Segment { region: 0, length_bytes: 4096, offset_bytes });
    memory.slice(from).unwrap().copy_from(&[7u8; 4096]);
    let mut completions = Vec::new();
    for (operation, segment) in
        [(Operation::Write { force_unit_access: true }, from), (Operation::Flush, from), (Operation::Read, to)]
    {
        let request = Request { operation, offset_bytes: 8192, segments: &[segment], token: 0 };
        queue.push(&request).unwrap();
        queue.drain(&mut completions).unwrap();
    }
    assert!(completions.iter().all(|completion| completion.result.is_ok()));
    let mut read = [0u8; 4096];
    memory.slice(to).unwrap().copy_to(&mut read);
    assert_eq!(read, [7; 4096]);
    assert_eq!(disk.extents(8192..12_288).unwrap().kind, ExtentKind::Data);
    assert_eq!(disk.extents(0..12_288).unwrap().kind, ExtentKind::Hole);
    assert!(MemoryDisk::new(u64::MAX, 512).is_err());
    assert!(MemoryDisk::new(1 << 63, 512).is_err());
}
