//! Programs that only know files.

use crate::rig::{MIB, Mounted, RecordingDisk, pattern, run};
use blockyard_block::{FileDisk, FileOptions};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

fn source(mounted: &Mounted, bytes: &[u8]) -> String {
    let path = mounted.beside("source");
    fs::write(&path, bytes).expect("written");
    path.to_str().expect("a plain path").to_owned()
}

#[test]
fn dd_writes_odd_lengths_at_odd_places() {
    let (mounted, image) = Mounted::on_file(2 * MIB);
    let mut model = pattern(1, 2 << 20);
    fs::write(&image, &model).expect("written");
    let bytes = pattern(2, 777_777);
    let from = source(&mounted, &bytes);
    for (block, seek, direct) in [(1000, 13, ""), (4097, 3, ""), (777, 1, ",direct"), (70_001, 9, ",direct")] {
        let flags = format!("oflag=seek_bytes{direct} iflag=fullblock conv=fsync,notrunc status=none");
        run("coreutils", "dd", &format!("if={from} of={{}} bs={block} seek={seek} {flags}"), mounted.path());
        model[seek..seek + bytes.len()].copy_from_slice(&bytes);
        assert!(fs::read(&image).expect("read") == model, "bs={block} {direct}");
        assert!(fs::read(mounted.path()).expect("read") == model, "bs={block} {direct}");
    }
}

#[test]
fn dd_reads_odd_lengths_from_odd_places() {
    let (mounted, image) = Mounted::on_file(2 * MIB);
    let model = pattern(3, 2 << 20);
    fs::write(&image, &model).expect("written");
    let to = mounted.beside("copy");
    for (block, skip, direct) in
        [(1000, 13, ""), (65_537, 511, ""), (777, 1, ",direct"), (2_000_000, 99_999, ",direct")]
    {
        let words = format!("if={{}} of={} bs={block} skip={skip} iflag=skip_bytes{direct} status=none", to.display());
        run("coreutils", "dd", &words, mounted.path());
        assert!(fs::read(&to).expect("read") == model[skip..], "bs={block} {direct}");
    }
}

#[test]
fn dd_that_truncates_leaves_zeros_behind_what_it_wrote() {
    let (mounted, image) = Mounted::on_file(MIB);
    fs::write(&image, pattern(4, 1 << 20)).expect("written");
    let bytes = pattern(5, 100_000);
    let from = source(&mounted, &bytes);
    run("coreutils", "dd", &format!("if={from} of={{}} bs=64k conv=fsync status=none"), mounted.path());
    let now = fs::read(mounted.path()).expect("read");
    assert_eq!(now.len() as u64, MIB);
    assert!(now[..bytes.len()] == bytes && now[bytes.len()..].iter().all(|&byte| byte == 0));
    assert!(now == fs::read(&image).expect("read"));
}

#[test]
fn mkfs_debugfs_and_e2fsck_agree_on_a_file_system() {
    let mounted = Mounted::memory(16 * MIB, 512);
    let from = source(&mounted, &pattern(6, 1_234_567));
    let back = mounted.beside("back");
    run("e2fsprogs", "mkfs.ext4", "-q -F -O ^has_journal {}", mounted.path());
    let request = mounted.beside("request");
    fs::write(&request, format!("write {from} hello\ndump hello {}\n", back.display())).expect("written");
    run("e2fsprogs", "debugfs", &format!("-w -f {} {{}}", request.display()), mounted.path());
    assert!(fs::read(&back).expect("read") == fs::read(&from).expect("read"));
    run("e2fsprogs", "e2fsck", "-fn {}", mounted.path());
}

#[test]
fn qemu_img_converts_in_and_out() {
    let (mounted, image) = Mounted::on_file(8 * MIB);
    let mut bytes = pattern(7, 8 << 20);
    bytes[MIB as usize..3 << 20].fill(0);
    let from = source(&mounted, &bytes);
    run("qemu-utils", "qemu-img", &format!("convert -n -f raw -O raw {from} {{}}"), mounted.path());
    run("qemu-utils", "qemu-img", &format!("compare -f raw -F raw {from} {{}}"), mounted.path());
    assert!(fs::read(&image).expect("read") == bytes);
    for cache in ["none", "writeback"] {
        let out = mounted.beside("out.qcow2");
        let words = format!("convert -T {cache} -f raw -O qcow2 {{}} {}", out.display());
        run("qemu-utils", "qemu-img", &words, mounted.path());
        run("qemu-utils", "qemu-img", &format!("compare -f raw -F qcow2 {from} {{}}"), &out);
    }
}

fn fio(mounted: &Mounted, job: &str) {
    // What fio would save of its place in a job goes into the working directory.
    let common = "--verify_state_save=0 --name=job --filename={} --size=4m --verify=crc32c --verify_fatal=1 --randseed=7 --minimal";
    run("fio", "fio", &format!("{common} {job}"), mounted.path());
}

#[test]
fn fio_verifies_direct_io_at_depth_and_it_is_in_flight_together() {
    let directory = tempfile::tempdir().expect("a directory");
    let image = directory.path().join("image");
    fs::write(&image, vec![0; 8 << 20]).expect("written");
    let disk = FileDisk::open(&image, &FileOptions::default()).expect("a disk");
    let (disk, record) = RecordingDisk::new(disk);
    let mounted = Mounted::new(Arc::clone(&disk) as Arc<_>);
    fio(&mounted, "--ioengine=libaio --direct=1 --iodepth=32 --rw=randwrite --bsrange=512-64k --bs_unaligned=0");
    fio(&mounted, "--ioengine=libaio --direct=1 --iodepth=16 --rw=randrw --bs=4k");
    assert!(record.in_flight_max.load(Ordering::Relaxed) > 1);
}

#[test]
fn fio_verifies_what_processes_write_side_by_side() {
    let mounted = Mounted::memory(32 * MIB, 512);
    fio(&mounted, "--ioengine=psync --direct=1 --rw=randwrite --bs=4k --numjobs=3 --offset_increment=4m");
    fio(&mounted, "--ioengine=psync --direct=0 --rw=write --bs=128k --fsync=8");
    fio(&mounted, "--ioengine=mmap --rw=randwrite --bs=4k");
}

#[test]
fn cp_keeps_holes_as_holes() {
    let (mounted, image) = Mounted::on_file(16 * MIB);
    let island = pattern(8, 100_000);
    let file = mounted.open(0);
    for offset in [0, 5 * MIB, 16 * MIB - 100_000] {
        std::os::unix::fs::FileExt::write_all_at(&file, &island, offset).expect("written");
    }
    drop(file);
    let copy = mounted.beside("copy");
    run("coreutils", "cp", &format!("--sparse=auto {{}} {}", copy.display()), mounted.path());
    assert!(fs::read(&copy).expect("read") == fs::read(&image).expect("read"));
    let allocated = |path: &Path| fs::metadata(path).expect("stat").blocks() * 512;
    assert!(allocated(&copy) < MIB, "{} bytes allocated", allocated(&copy));
    assert!(allocated(mounted.path()) < MIB, "{} bytes shown", allocated(mounted.path()));
}
