//! Deltas on disks of any kind.

use crate::rig::{Random, Rig, pattern, qemu_img, text};
use blockyard_block::layers::{OverlayDisk, commit};
use blockyard_block::{Disk, FileDisk, FileOptions, MemoryDisk, Operation, Qcow2Backing};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;

fn directory() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().canonicalize().unwrap();
    (directory, path)
}

fn memory_disk(contents: &[u8], block_bytes: u32) -> Arc<dyn Disk> {
    let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::new(contents.len() as u64, block_bytes).unwrap());
    let mut rig = Rig::shared(Arc::clone(&disk), 1);
    for (n, piece) in contents.chunks(1 << 20).enumerate() {
        rig.write((n as u64) << 20, piece);
    }
    disk
}

/// Writes, zeroes and discards at random, in whole blocks; the contents afterwards.
fn scribble(rig: &mut Rig, contents: &mut [u8], seed: u64) {
    let block = rig.disk.geometry().logical_block_bytes as usize;
    let mut random = Random::new(seed);
    for n in 0..120 {
        let length = block * (1 + random.below(60) as usize);
        let offset = block * random.below(((contents.len() - length) / block + 1) as u64) as usize;
        match random.below(4) {
            0 => {
                let zeroes = Operation::WriteZeroes { length_bytes: length as u64, may_unmap: n % 2 == 0 };
                rig.perform(zeroes, offset as u64, &[]).unwrap();
                contents[offset..][..length].fill(0);
            }
            _ => {
                let bytes = pattern(length, n);
                rig.write(offset as u64, &bytes);
                contents[offset..][..length].copy_from_slice(&bytes);
            }
        }
    }
}

/// QEMU checks the delta without its base, which has no name.
fn check_clean_alone(path: &str) {
    let options = format!("driver=qcow2,file.driver=file,file.filename={path},backing=");
    let printed = qemu_img(&["check", "--image-opts", &options]);
    assert!(printed.contains("No errors were found"), "{printed}");
}

#[test]
fn a_delta_takes_the_writes_and_the_base_stays() {
    let (_directory, path) = directory();
    for block_bytes in [512, 4096] {
        let original = pattern(3 << 20, 1);
        let base = memory_disk(&original, block_bytes);
        let delta = path.join(format!("delta-{block_bytes}"));
        let mut contents = original.clone();
        for round in 0..2 {
            let overlay =
                OverlayDisk::open_or_create(Arc::clone(&base), &delta, None, None, &FileOptions::default()).unwrap();
            assert_eq!(overlay.geometry().logical_block_bytes, block_bytes);
            let mut rig = Rig::new(overlay);
            assert!(rig.read_all() == contents);
            scribble(&mut rig, &mut contents, round);
            assert!(rig.read_all() == contents);
            drop(rig);
            check_clean_alone(text(&delta));
        }
        assert!(Rig::shared(Arc::clone(&base), 1).read_all() == original);
        let overlay =
            OverlayDisk::open_or_create(Arc::clone(&base), &delta, None, None, &FileOptions::default()).unwrap();
        assert!(commit(&overlay, &*base).unwrap() > 0);
        assert!(Rig::shared(Arc::clone(&base), 1).read_all() == contents);
        assert!(Rig::new(overlay).read_all() == contents);
    }
}

#[test]
fn qemu_opens_a_delta_on_a_file_and_no_other() {
    let (_directory, path) = directory();
    let base_path = path.join("base.img");
    let mut contents = pattern(2 << 20, 1);
    std::fs::write(&base_path, &contents).unwrap();
    let base = || -> Arc<dyn Disk> {
        Arc::new(FileDisk::open(&base_path, &FileOptions { read_only: true, ..FileOptions::default() }).unwrap())
    };
    let delta = path.join("delta.qcow2");
    let name = Qcow2Backing { name: "base.img".into(), format: "raw".into() };
    let overlay = OverlayDisk::open_or_create(base(), &delta, Some(name), None, &FileOptions::default()).unwrap();
    let mut rig = Rig::new(overlay);
    scribble(&mut rig, &mut contents, 3);
    drop(rig);
    let raw = path.join("raw");
    std::fs::write(&raw, &contents).unwrap();
    qemu_img(&["compare", "-f", "raw", "-F", "qcow2", text(&raw), text(&delta)]);

    let nameless = path.join("nameless.qcow2");
    drop(OverlayDisk::open_or_create(base(), &nameless, None, None, &FileOptions::default()).unwrap());
    let output =
        std::process::Command::new("qemu-img").args(["convert", "-O", "raw", text(&nameless), text(&raw)]).output();
    let output = output.unwrap();
    assert!(!output.status.success() && String::from_utf8_lossy(&output.stderr).contains("blockyard-overlay-on"));
}

#[test]
fn a_delta_that_somebody_else_has_put_there_is_not_written() {
    let (_directory, path) = directory();
    let shared = path.join("shared");
    std::fs::create_dir(&shared).unwrap();
    let delta = shared.join("delta.qcow2");
    let open = |read_only| {
        let options = FileOptions { read_only, ..FileOptions::default() };
        OverlayDisk::open_or_create(memory_disk(&[1; 4096], 512), &delta, None, None, &options)
    };
    drop(open(false).unwrap());
    std::fs::set_permissions(&shared, std::fs::Permissions::from_mode(0o1777)).unwrap();
    drop(open(false).unwrap());
    if chown(&delta, Some(1234), None).is_err() {
        eprintln!("not root: no file of somebody else's");
        return;
    }
    let error = open(false).unwrap_err().to_string();
    assert!(error.contains("somebody else's file in a directory that others write to"), "{error}");
    drop(open(true).unwrap());
}

#[test]
fn a_delta_of_another_size_is_refused() {
    let (_directory, path) = directory();
    let delta = path.join("delta");
    let small = memory_disk(&pattern(1 << 20, 1), 512);
    drop(OverlayDisk::open_or_create(small, &delta, None, None, &FileOptions::default()).unwrap());
    let large = memory_disk(&pattern(2 << 20, 1), 512);
    let error = OverlayDisk::open_or_create(large, &delta, None, None, &FileOptions::default()).unwrap_err();
    assert!(error.to_string().ends_with("is a delta of 1048576 bytes, but its base has 2097152"), "{error}");
}

#[test]
fn an_image_of_its_own_or_of_another_base_is_no_delta() {
    let (_directory, path) = directory();
    let [base, other, moved] = ["base.img", "other.img", "moved.img"].map(|name| path.join(name));
    for name in [&base, &other] {
        std::fs::write(name, pattern(1 << 20, 1)).unwrap();
    }
    let named = |path: &Path| Qcow2Backing { name: text(path).into(), format: "raw".into() };
    let open = |base: &Path, delta: &str| {
        let disk = Arc::new(FileDisk::open(base, &FileOptions { read_only: true, ..FileOptions::default() }).unwrap());
        OverlayDisk::open_or_create(disk, &path.join(delta), Some(named(base)), None, &FileOptions::default())
    };
    drop(open(&base, "delta").unwrap());
    drop(open(&base, "delta").unwrap());
    let before = std::fs::read(path.join("delta")).unwrap();
    let error = open(&other, "delta").unwrap_err().to_string();
    assert!(error.contains("base.img, and not of ") && error.contains("other.img"), "{error}");
    assert!(before == std::fs::read(path.join("delta")).unwrap());
    // Whatever it is called now: only one of them is there.
    std::fs::rename(&base, &moved).unwrap();
    drop(open(&moved, "delta").unwrap());
    qemu_img(&["convert", "-f", "raw", "-O", "qcow2", text(&other), text(&path.join("whole"))]);
    let error = open(&other, "whole").unwrap_err().to_string();
    assert!(error.contains("is an image of its own, over no other"), "{error}");
    // QEMU's name for it starts from the delta.
    qemu_img(&["create", "-q", "-f", "qcow2", "-F", "raw", "-b", "other.img", text(&path.join("theirs"))]);
    drop(open(&other, "theirs").unwrap());
}

#[test]
fn a_snapshot_leaves_nothing_behind() {
    let (_directory, path) = directory();
    let original = pattern(3 << 20, 1);
    let base = memory_disk(&original, 512);
    let overlay = OverlayDisk::temporary(Arc::clone(&base), &path, &FileOptions::default()).unwrap();
    assert_eq!(std::fs::read_dir(&path).unwrap().count(), 0);
    let mut rig = Rig::new(overlay);
    let mut contents = original.clone();
    scribble(&mut rig, &mut contents, 1);
    rig.perform(Operation::Flush, 0, &[]).unwrap();
    rig.write_as(Operation::Write { force_unit_access: true }, 0, &contents[..4096]).unwrap();
    assert!(rig.read_all() == contents);
    drop(rig);
    assert!(Rig::shared(base, 1).read_all() == original);
}

#[test]
fn a_delta_on_a_delta() {
    let (_directory, path) = directory();
    let original = pattern(1 << 20, 1);
    let base = memory_disk(&original, 512);
    let lower = OverlayDisk::open_or_create(base, &path.join("lower"), None, None, &FileOptions::default()).unwrap();
    let lower: Arc<dyn Disk> = Arc::new(lower);
    let mut contents = original.clone();
    scribble(&mut Rig::shared(Arc::clone(&lower), 4), &mut contents, 1);
    let frozen = contents.clone();
    let upper = OverlayDisk::temporary(Arc::clone(&lower), &path, &FileOptions::default()).unwrap();
    let mut rig = Rig::new(upper);
    scribble(&mut rig, &mut contents, 2);
    assert!(rig.read_all() == contents);
    assert!(Rig::shared(lower, 1).read_all() == frozen);
}
