//! File systems whose drivers are modules of the kernel's, which come when they are wanted.

use crate::rig::{Rig, failure, failure_with, noise, tool};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;

/// An image of so many MiB with nothing in it, for a tool to make a file system in.
fn blank(megabytes: u64) -> Rig {
    let directory = tempfile::tempdir().unwrap();
    let image = directory.path().join("disk.img");
    File::create(&image).unwrap().set_len(megabytes << 20).unwrap();
    Rig { directory, image }
}

/// A file put into it comes out again.
fn takes_files(rig: &Rig) {
    fs::write(rig.path("input"), "hello\n").unwrap();
    rig.run("put", &["input", "/file"]);
    assert_eq!(rig.run("cat", &["/file"]), "hello\n");
}

#[test]
fn iso_9660_is_read() {
    let rig = blank(1);
    fs::create_dir(rig.path("tree")).unwrap();
    fs::write(rig.path("tree/greeting"), "hello\n").unwrap();
    let (image, tree) = (rig.image.to_str().unwrap(), rig.path("tree"));
    tool("genisoimage", "genisoimage", ["-quiet", "-R", "-o", image, tree.to_str().unwrap()]);
    assert_eq!(rig.run("ls", &["/"]), "greeting\n");
    assert_eq!(rig.run("cat", &["/greeting"]), "hello\n");
    assert!(rig.run("inspect", &[]).contains("iso9660"));
    let said = rig.fail("put", &["/dev/null", "/"]);
    assert!(said.contains("vda: cannot mount the iso9660 file system for writing: it can only be read\n"), "{said}");
}

#[test]
fn ext4_with_quota_is_written() {
    let rig = Rig::made(32, &["-O", "quota"], |_| {});
    takes_files(&rig);
    rig.check();
}

#[test]
fn f2fs_and_minix_are_read_and_written() {
    for (program, package) in [("mkfs.f2fs", "f2fs-tools"), ("mkfs.minix", "util-linux")] {
        let rig = blank(64);
        tool(program, package, [rig.image.to_str().unwrap()]);
        rig.run("mkdir", &["/made"]);
        assert_eq!(rig.run("ls", &["/"]), "made\n");
        let content = noise(70_001);
        fs::write(rig.path("input"), &content).unwrap();
        rig.run("put", &["input", "/made/file"]);
        rig.run("get", &["/made/file", "output"]);
        assert!(fs::read(rig.path("output")).unwrap() == content, "{program}");
    }
}

/// As many as there are letters for; on KVM, where there are fewer interrupt lines, some share one. The last one is
/// written and the one before it read while all others are there.
#[test]
fn there_are_24_disks_on_kvm_as_on_user_mode_linux() {
    let (rig, last, content) = (Rig::empty(16), Rig::empty(16), noise(3 << 20));
    let before = Rig::new(16, |root| {
        fs::write(root.join("file"), &content).unwrap();
        fs::create_dir(root.join("mnt")).unwrap();
    });
    let mut others: Vec<_> = (0..21).map(|number| rig.path(&format!("{number}.img"))).collect();
    for path in &others {
        File::create(path).unwrap().set_len(1 << 20).unwrap();
    }
    others.extend([before.image.clone(), last.image.clone()]);
    let mut arguments: Vec<_> = others.iter().flat_map(|path| ["--add", path.to_str().unwrap()]).collect();
    arguments.extend(["-m", "vdw:/", "-m", "vdx:/mnt", "/file", "/mnt/copy"]);
    rig.run("cp", &arguments);
    last.check();
    let copy = rig.path("copy");
    last.debugfs(&format!("dump /copy {}", copy.display()));
    assert!(fs::read(copy).unwrap() == content);
    let one_more = [&["--add", others[0].to_str().unwrap()], &arguments[..]].concat();
    let said = failure_with(2, rig.command("cp", &one_more).output().unwrap());
    assert!(said.starts_with("blockyard: an appliance has at most 24 disks\n"), "{said}");
}

#[test]
fn btrfs_over_two_disks_is_mounted() {
    let rig = blank(128);
    let second = rig.path("second.img");
    File::create(&second).unwrap().set_len(128 << 20).unwrap();
    let (first, second) = (rig.image.to_str().unwrap(), second.to_str().unwrap());
    tool("mkfs.btrfs", "btrfs-progs", ["-q", "-d", "raid0", first, second]);
    fs::write(rig.path("input"), "hello\n").unwrap();
    rig.run("put", &["--add", second, "input", "/file"]);
    assert_eq!(rig.run("cat", &["--add", second, "/file"]), "hello\n");
    assert_eq!(rig.run("cat", &["--add", second, "-m", "vdb", "/file"]), "hello\n");
    assert_eq!(rig.run("fsck", &["--add", second]), "vda (btrfs): clean\n");
    assert_eq!(rig.run("fstrim", &["--add", second]).lines().count(), 1);
}

/// What btrfs check takes for damage is missing, and its read-only look finds nothing wrong at all.
#[test]
fn nothing_is_repaired_of_a_btrfs_that_lacks_a_disk() {
    let rig = blank(128);
    let second = rig.path("second.img");
    File::create(&second).unwrap().set_len(128 << 20).unwrap();
    let (first, second) = (rig.image.to_str().unwrap(), second.to_str().unwrap());
    tool("mkfs.btrfs", "btrfs-progs", ["-q", "-d", "raid1", "-m", "raid1", first, second]);
    let before = fs::read(&rig.image).unwrap();
    let missing = "1 of its 2 disks are missing: --add them";
    for options in [&[][..], &["-y"], &["-n"], &["vda", "-y"]] {
        let output = rig.command("fsck", options).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), format!("vda (btrfs): not checked: {missing}\n"));
        assert!(failure(output).contains("disk.img: not checked: vda"));
    }
    assert!(rig.fail("label", &["vda", "new"]).contains(missing));
    let said = rig.fail("ls", &["/"]);
    assert!(said.contains(missing) && !said.contains("damaged"), "{said}");
    assert!(fs::read(&rig.image).unwrap() == before);
    assert_eq!(rig.run("fsck", &["-y", "--add", second]), "vda (btrfs): clean\n");
}

/// Nothing is damaged there: what was asked for cannot be done.
#[test]
fn a_mount_that_was_asked_for_wrongly_is_no_damage() {
    let rig = blank(128);
    tool("mkfs.btrfs", "btrfs-progs", ["-q", rig.image.to_str().unwrap()]);
    let said = rig.fail("ls", &["-m", "sda:/:subvol=@", "/"]);
    assert!(said.contains("vda: the btrfs file system has no such subvolume: subvol=@\n"), "{said}");
    let said = rig.fail("ls", &["-m", "sda:/:bogusopt", "/"]);
    assert!(said.contains("cannot mount the btrfs file system with bogusopt, which it may not know"), "{said}");
    assert!(!said.contains("damaged"), "{said}");
}

#[test]
fn a_driver_that_there_is_not_is_named() {
    let rig = blank(1);
    File::options().write(true).open(&rig.image).unwrap().write_all_at(b"EXFAT   ", 3).unwrap();
    let said = rig.fail("ls", &["/"]);
    assert!(said.contains("the appliance's kernel has no driver for exfat") && !said.contains("damaged"), "{said}");
}
