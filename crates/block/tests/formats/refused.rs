//! Images that are not opened, and what is said then.

use crate::rig::{Rig, WRITE, check_clean, open, open_allowed, pattern, qemu_img, qemu_io, read_only, text};
use blockyard_block::{AllowedDirectories, FileOptions, Qcow2Backing, Qcow2CreateOptions, Qcow2Disk, RequestError};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

fn directory() -> (TempDir, impl Fn(&str) -> PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().canonicalize().unwrap();
    (directory, move |name: &str| path.join(name))
}

fn refusal(path: &Path, options: &FileOptions) -> String {
    let allowed = AllowedDirectories::new(&[path.parent().unwrap()]).unwrap();
    let error = blockyard_block::explain(&Qcow2Disk::open(path, options, &allowed).expect_err("this must not open"));
    assert!(!error.contains('\n'), "{error}");
    error
}

/// An image with some data, as bytes to be spoiled.
fn image_bytes(path: &Path) -> Vec<u8> {
    let create = Qcow2CreateOptions { cluster_bytes: 4096, ..Qcow2CreateOptions::new(4 << 20) };
    Qcow2Disk::create(path, &create).unwrap();
    let mut rig = Rig::new(open(path));
    rig.write(0, &pattern(65_536, 1));
    drop(rig);
    fs::read(path).unwrap()
}

fn be64(bytes: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(bytes[at..at + 8].try_into().unwrap())
}

#[test]
fn marks_and_nonsense_in_the_header_are_refused() {
    let (_directory, path) = directory();
    let image = path("image.qcow2");
    let good = image_bytes(&image);
    let l1 = be64(&good, 40);
    for (at, bytes, wanted) in [
        (0, &b"QFI\0"[..], "is not a qcow2 image"),
        (4, &[0, 0, 0, 1], "is qcow2 version 1; versions 2 and 3 are supported"),
        (78, &[2], "needs features that are not known here (incompatible feature bits 9)"),
        (20, &[0, 0, 0, 8], "has clusters of 2^8 bytes"),
        (20, &[255; 4], "has clusters of 2^4294967295 bytes"),
        (24, &[255; 8], "claims to hold 18446744073709551615 bytes"),
        (32, &[0, 0, 0, 2], "has no readable header of LUKS 1"),
        (32, &[0, 0, 0, 3], "is encrypted in a way that is not known here (method 3)"),
        (36, &[255; 4], "has a L1 table of 34359738360 bytes"),
        (36, &[0, 16, 0, 0], "is damaged: its L1 table does not lie within the file"),
        (40, &[255; 8], "is damaged: its L1 table does not begin with a cluster"),
        (40, &[0; 8], "is damaged: its L1 table does not lie within the file"),
        (48, &[0, 0, 0, 0, 0, 0, 2, 1], "is damaged: its refcount table does not begin with a cluster"),
        (96, &[0, 0, 0, 7], "has refcounts of 2^7 bits"),
        (100, &[0, 0, 255, 255], "has a header of 65535 bytes"),
        (104, &[1], "is compressed in a way that is not known here (type 1)"),
        (112, &[1, 2, 3, 4, 0, 0, 255, 0], "is damaged: a header extension does not lie within the first cluster"),
        (112, &[0, 0, 0, 0, 0, 0, 255, 0], "is damaged: a header extension does not lie within the first cluster"),
        (112, &[1, 2, 3, 4, 0, 0, 15, 136], "is damaged: its header extensions do not end within the first cluster"),
        (8, &[0, 0, 0, 0, 0, 0, 255, 0, 0, 0, 3, 0], "its backing file's name does not lie within the first cluster"),
    ] {
        let mut bad = good.clone();
        bad[at..][..bytes.len()].copy_from_slice(bytes);
        fs::write(&image, &bad).unwrap();
        let error = refusal(&image, &read_only());
        assert!(error.contains(wanted), "at {at}: {error}");
    }
    assert!(l1 > 0);
    // Refcounts that are missing, or behind, are no matter to who only reads.
    for (at, bytes, wanted) in [
        (48, &[0, 0, 0, 0, 255, 255, 0, 0][..], "is damaged: its refcount table does not lie within the file"),
        (48, &[255, 255, 0, 0, 0, 0, 0, 0], "is damaged: its refcount table does not lie within the file"),
        (48, &[0; 8], "is damaged: its refcount table does not lie within the file"),
        (56, &[255; 4], "has a refcount table of"),
        (56, &[0; 4], "is damaged: it has no refcount table"),
    ] {
        let mut without = good.clone();
        without[at..][..bytes.len()].copy_from_slice(bytes);
        fs::write(&image, &without).unwrap();
        Qcow2Disk::open(&image, &read_only(), &AllowedDirectories::none()).unwrap();
        let error = refusal(&image, &FileOptions::default());
        assert!(error.contains(wanted), "at {at}: {error}");
        assert!(fs::read(&image).unwrap() == without, "it has changed");
    }
    let mut dirty = good.clone();
    dirty[79] = 1;
    fs::write(&image, &dirty).unwrap();
    Qcow2Disk::open(&image, &read_only(), &AllowedDirectories::none()).unwrap();
    assert!(fs::read(&image).unwrap() == dirty, "it has changed");
    // Who writes repairs them first.
    drop(Qcow2Disk::open(&image, &FileOptions::default(), &AllowedDirectories::none()).unwrap());
    assert_eq!(fs::read(&image).unwrap()[79], 0);
    // What is damaged by its own word is read, and not written to.
    let mut corrupt = good.clone();
    corrupt[79] = 3;
    fs::write(&image, &corrupt).unwrap();
    let disk = Qcow2Disk::open(&image, &read_only(), &AllowedDirectories::none()).unwrap();
    assert!(matches!(disk.notes(), [note] if note.contains("is marked corrupt")), "{:?}", disk.notes());
    drop(disk);
    assert!(refusal(&image, &FileOptions::default()).contains("is marked corrupt"));
    assert!(fs::read(&image).unwrap() == corrupt, "it has changed");
    for length in [0, 3, 71, 100] {
        fs::write(&image, &good[..length]).unwrap();
        refusal(&image, &read_only());
    }
    fs::remove_file(&image).unwrap();
    assert!(refusal(&image, &read_only()).contains("No such file"));
    assert!(refusal(image.parent().unwrap(), &read_only()).contains("a disk is a regular file or a block device"));
}

#[test]
fn clusters_with_two_uses_are_not_written_to() {
    let (_directory, path) = directory();
    let image = path("image.qcow2");
    let good = image_bytes(&image);
    let (l1, reftable) = (be64(&good, 40), be64(&good, 48));
    let l2 = be64(&good, l1 as usize) & !(1 << 63);
    for (target, wanted) in [
        (l1, "has two uses"),
        (l2, "has two uses"),
        (reftable, "has two uses"),
        (be64(&good, l2 as usize + 8) & !(1 << 63), "has two uses"),
        (1 << 50, "lies far behind the end of the file"),
        (l2 + 512, "does not begin with a cluster"),
    ] {
        let mut bad = good.clone();
        bad[l2 as usize..][..8].copy_from_slice(&(target | 1 << 63).to_be_bytes());
        fs::write(&image, &bad).unwrap();
        let error = refusal(&image, &FileOptions::default());
        assert!(error.contains(wanted) && error.ends_with("repairs what can be"), "{error}");
        // Reading does no harm.
        if target != l2 + 512 {
            Rig::new(open_allowed(&image, &read_only())).read(4096, 512);
        }
    }
}

#[test]
fn a_file_has_as_many_clusters_as_can_be_kept_in_mind() {
    let (_directory, path) = directory();
    let image = path("image.qcow2");
    image_bytes(&image);
    let file = fs::File::options().write(true).open(&image).unwrap();
    file.set_len(2 << 40).unwrap();
    Rig::new(open(&image)).write(2 << 20, &[7; 512]);
    file.set_len((2 << 40) + 1).unwrap();
    let error = refusal(&image, &FileOptions::default());
    let wanted = "in clusters of 4096 bytes, and with these at most 2.00 TiB can be written to: convert it";
    assert!(error.contains(wanted), "{error}");
    Rig::new(open_allowed(&image, &read_only())).read(4096, 512);
}

#[test]
fn refcounts_that_a_crash_left_behind_are_put_right() {
    let (_directory, path) = directory();
    let image = path("image.qcow2");
    let mut bytes = image_bytes(&image);
    let refblock = be64(&bytes, be64(&bytes, 48) as usize) as usize;
    let last = (0..2048).rev().find(|&n| bytes[refblock + n * 2 + 1] == 1).unwrap();
    for n in [last, last - 3] {
        bytes[refblock + n * 2 + 1] = 0;
    }
    fs::write(&image, &bytes).unwrap();
    let mut rig = Rig::new(open(&image));
    rig.write(1 << 20, &pattern(65_536, 2));
    assert!(rig.read(0, 65_536) == pattern(65_536, 1));
    drop(rig);
    check_clean(text(&image));
}

/// An image with a snapshot, as bytes to be spoiled, and what lies where.
struct WithSnapshot {
    bytes: Vec<u8>,
    /// Of the disk.
    l2: usize,
    refblock: usize,
    /// The table of snapshots, and the snapshot's L1 table, L2 table and first cluster.
    own: [(&'static str, usize); 4],
}

impl WithSnapshot {
    fn at(image: &Path) -> Self {
        qemu_img(&["create", "-q", "-f", "qcow2", "-o", "cluster_size=4k", text(image), "4M"]);
        qemu_io(text(image), "qcow2", &["write -P 1 0 64k"]);
        qemu_img(&["snapshot", "-c", "s", text(image)]);
        qemu_io(text(image), "qcow2", &["write -P 2 0 64k"]);
        let bytes = fs::read(image).unwrap();
        let place = |at: usize| (be64(&bytes, at) & 0x00ff_ffff_ffff_fe00) as usize;
        let (l2, refblock, table) = (place(place(40)), place(place(48)), place(64));
        let l1 = place(table);
        let snapshot_l2 = place(l1);
        let own = [("table", table), ("L1 table", l1), ("L2 table", snapshot_l2), ("data", place(snapshot_l2))];
        Self { bytes, l2, refblock, own }
    }
}

#[test]
fn what_snapshots_use_is_not_written_to() {
    let (_directory, path) = directory();
    let image = path("image.qcow2");
    let good = WithSnapshot::at(&image);
    open(&image);
    for (what, place) in good.own {
        let mut bad = good.bytes.clone();
        bad[good.l2 + 8 * 40..][..8].copy_from_slice(&(place as u64 | 1 << 63).to_be_bytes());
        fs::write(&image, &bad).unwrap();
        let error = refusal(&image, &FileOptions::default());
        assert!(error.contains("has two uses"), "{what}: {error}");
    }
    // What a snapshot calls its data is a table.
    let [.., (_, snapshot_l2), _] = good.own;
    for place in [good.refblock, good.l2] {
        let mut bad = good.bytes.clone();
        bad[snapshot_l2 + 8 * 40..][..8].copy_from_slice(&(place as u64).to_be_bytes());
        fs::write(&image, &bad).unwrap();
        let error = refusal(&image, &FileOptions::default());
        assert!(error.contains("has two uses"), "{error}");
    }
}

/// Else a write to the disk would free, and empty, what the snapshot goes on showing.
#[test]
fn what_a_snapshot_uses_beside_the_disk_has_a_refcount_of_two() {
    let (_directory, path) = directory();
    let image = path("image.qcow2");
    WithSnapshot::at(&image);
    qemu_img(&["snapshot", "-c", "t", text(&image)]);
    let good = fs::read(&image).unwrap();
    let place = |at: usize| (be64(&good, at) & 0x00ff_ffff_ffff_fe00) as usize;
    let (l2, refblock) = (place(place(40)), place(place(48)));
    for (what, place) in [("table", l2), ("data", place(l2)), ("last", place(l2 + 8 * 15))] {
        for count in [0, 1] {
            let mut bad = good.clone();
            let at = refblock + place / 4096 * 2;
            assert_eq!(bad[at..at + 2], [0, 2], "{what}");
            bad[at + 1] = count;
            fs::write(&image, &bad).unwrap();
            let error = refusal(&image, &FileOptions::default());
            assert!(error.contains("too low a refcount"), "{what}: {error}");
        }
    }
    fs::write(&image, &good).unwrap();
    open(&image);
}

#[test]
fn what_snapshots_use_is_not_given_to_others_where_a_crash_left_it_free() {
    let (_directory, path) = directory();
    let image = path("image.qcow2");
    let good = WithSnapshot::at(&image);
    for (what, place) in good.own {
        let mut bad = good.bytes.clone();
        bad[good.refblock + place / 4096 * 2..][..2].fill(0);
        fs::write(&image, &bad).unwrap();
        let mut rig = Rig::new(open(&image));
        for at in 0..16 {
            rig.write((1 << 20) + at * 65_536, &pattern(65_536, at + 1));
        }
        drop(rig);
        check_clean(text(&image));
        qemu_img(&["convert", "-l", "s", "-O", "raw", text(&image), text(&path("raw"))]);
        let snapshot = fs::read(path("raw")).unwrap();
        assert!(snapshot[..65_536].iter().all(|&byte| byte == 1), "{what}");
    }
}

#[test]
fn a_data_file_has_a_cluster_where_the_disk_does() {
    let (_directory, path) = directory();
    let image = path("image.qcow2");
    for options in ["", ",extended_l2=on"] {
        let data = format!("cluster_size=64k,data_file={}{options}", text(&path("data")));
        let _ = fs::remove_file(path("data"));
        qemu_img(&["create", "-q", "-f", "qcow2", "-o", &data, text(&image), "4M"]);
        qemu_io(text(&image), "qcow2", &["write -P 1 0 64k", "write -P 2 448k 64k"]);
        let good = fs::read(&image).unwrap();
        let l2 = (be64(&good, be64(&good, 40) as usize) & !(1 << 63)) as usize;
        // The first cluster lies where the sixth is to be.
        let mut bad = good.clone();
        bad[l2..][..8].copy_from_slice(&(5 << 16 | 1_u64 << 63).to_be_bytes());
        fs::write(&image, &bad).unwrap();
        let mut rig = Rig::new(open_allowed(&image, &FileOptions::default()));
        let before = fs::read(path("data")).unwrap();
        assert!(rig.write_as(WRITE, 0, &pattern(4096, 1)).is_err());
        assert!(rig.write_as(WRITE, 65_536 / 2, &pattern(65_536, 1)).is_err());
        assert!(rig.read(448 << 10, 65_536).iter().all(|&byte| byte == 2));
        drop(rig);
        assert!(fs::read(path("data")).unwrap() == before);
        let raw = path("raw");
        let mut convert = Command::new("qemu-img");
        let status = convert.args(["convert", "-O", "raw", text(&image), text(&raw)]).stderr(Stdio::null()).status();
        assert!(!status.unwrap().success(), "QEMU reads it");
    }
}

#[test]
fn backing_and_data_files_need_permission() {
    let (_directory, path) = directory();
    let (base, top) = (path("base"), path("top.qcow2"));
    fs::write(&base, pattern(1 << 20, 1)).unwrap();
    qemu_img(&["create", "-q", "-f", "qcow2", "-b", "base", "-F", "raw", text(&top)]);
    let refuse =
        |image: &Path| Qcow2Disk::open(image, &read_only(), &AllowedDirectories::none()).unwrap_err().to_string();
    let wanted = format!(
        "{} refers to {}, which lies in no directory that was allowed; if you trust the image, allow {}",
        top.display(),
        base.display(),
        base.parent().unwrap().display()
    );
    assert_eq!(refuse(&top), wanted);
    let data = path("data.qcow2");
    qemu_img(&["create", "-q", "-f", "qcow2", "-o", &format!("data_file={}", text(&path("data"))), text(&data), "1M"]);
    assert!(refuse(&data).contains("which lies in no directory that was allowed"));
}

#[test]
fn a_backing_file_without_a_format_is_not_guessed_at() {
    let (_directory, path) = directory();
    let (base, top) = (path("base"), path("top.qcow2"));
    fs::write(&base, pattern(1 << 20, 1)).unwrap();
    let backing = Qcow2Backing { name: "base".into(), format: "raw".into() };
    Qcow2Disk::create(&top, &Qcow2CreateOptions { backing: Some(backing), ..Qcow2CreateOptions::new(1 << 20) })
        .unwrap();
    let mut bytes = fs::read(&top).unwrap();
    let at = bytes.windows(4).position(|bytes| bytes == [0xe2, 0x79, 0x2a, 0xca]).unwrap();
    bytes[at] = 0x12;
    fs::write(&top, bytes).unwrap();
    let error = refusal(&top, &read_only());
    assert!(
        error.contains("does not say in which format") && error.contains("blockyard image rebase -u -F raw -b"),
        "{error}"
    );
}

#[test]
fn chains_that_never_end_are_refused() {
    let (_directory, path) = directory();
    let (one, two) = (path("one.qcow2"), path("two.qcow2"));
    for (image, base) in [(&one, "two.qcow2"), (&two, "one.qcow2")] {
        let backing = Qcow2Backing { name: base.into(), format: "qcow2".into() };
        let create = Qcow2CreateOptions { backing: Some(backing), ..Qcow2CreateOptions::new(1 << 20) };
        Qcow2Disk::create(image, &create).unwrap();
    }
    assert!(refusal(&one, &read_only()).contains("depends on itself"));
    for n in 0..40 {
        let backing = Qcow2Backing { name: format!("{}", n + 1), format: "qcow2".into() };
        let create = Qcow2CreateOptions { backing: Some(backing), ..Qcow2CreateOptions::new(1 << 20) };
        Qcow2Disk::create(&path(&n.to_string()), &create).unwrap();
    }
    assert!(refusal(&path("0"), &read_only()).contains("more than 32 files"));
}

#[test]
fn a_backing_format_that_is_unknown_is_named() {
    let (_directory, path) = directory();
    qemu_img(&["create", "-q", "-f", "qcow", text(&path("base")), "1M"]);
    let top = path("top.qcow2");
    qemu_img(&["create", "-q", "-f", "qcow2", "-b", "base", "-F", "qcow", text(&top), "1M"]);
    assert!(refusal(&top, &read_only()).contains("a backing file in the format \"qcow\", which is not supported"));
}

#[test]
fn impossible_images_are_not_created() {
    let (_directory, path) = directory();
    let image = path("image.qcow2");
    let good = Qcow2CreateOptions::new(1 << 20);
    let backing = Some(Qcow2Backing { name: "base".into(), format: "dmg".into() });
    for options in [
        Qcow2CreateOptions { cluster_bytes: 256, ..good.clone() },
        Qcow2CreateOptions { cluster_bytes: 96 << 10, ..good.clone() },
        Qcow2CreateOptions { cluster_bytes: 4 << 20, ..good.clone() },
        Qcow2CreateOptions { size_bytes: 1000, ..good.clone() },
        Qcow2CreateOptions { size_bytes: 1 << 40, cluster_bytes: 512, ..good.clone() },
        Qcow2CreateOptions { size_bytes: u64::MAX, ..good.clone() },
        Qcow2CreateOptions { backing, ..good.clone() },
    ] {
        Qcow2Disk::create(&image, &options).unwrap_err();
        assert!(!image.exists());
    }
}

#[test]
fn a_disk_that_is_no_whole_block_is_padded() {
    let (_directory, path) = directory();
    let image = path("image.qcow2");
    Qcow2Disk::create(&image, &Qcow2CreateOptions::new((1 << 20) + 512)).unwrap();
    let options = FileOptions { logical_block_bytes: 4096, ..FileOptions::default() };
    let mut rig = Rig::new(open_allowed(&image, &options));
    assert_eq!(rig.disk.geometry().capacity_bytes, (1 << 20) + 4096);
    assert_eq!(rig.write_as(WRITE, 1 << 20, &[7; 4096]), Err(RequestError::Os(libc::ENOSPC)));
    rig.write(1 << 20, &[vec![7; 512], vec![0; 3584]].concat());
    assert_eq!(rig.read(1 << 20, 4096), [vec![7; 512], vec![0; 3584]].concat());
    drop(rig);
    check_clean(text(&image));
    qemu_io(text(&image), "qcow2", &["read -P 7 1M 512"]);
}

#[test]
fn an_image_that_somebody_writes_to_is_not_opened_again() {
    let (_directory, path) = directory();
    let image = path("image.qcow2");
    Qcow2Disk::create(&image, &Qcow2CreateOptions::new(1 << 20)).unwrap();
    let first = open(&image);
    let error = refusal(&image, &FileOptions::default());
    assert!(error.contains(text(&image)), "{error}");
    let output = std::process::Command::new("qemu-io").args(["-f", "qcow2", "-c", "read 0 1k", text(&image)]).output();
    assert!(!output.unwrap().status.success());
    drop(first);
    drop(open(&image));
}
