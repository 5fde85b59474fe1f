//! File systems that are made, checked, repaired, labelled and trimmed: each by its own tools, which have the last
//! word.

use crate::rig::{Rig, failure, noise, tool};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Output;

const MEGABYTE: u64 = 1 << 20;

/// A directory for an image that `image create` makes.
fn without_image() -> Rig {
    let rig = Rig::empty(1);
    fs::remove_file(&rig.image).unwrap();
    rig
}

/// The part of a raw image, as a file of its own: holes stay holes.
fn part(rig: &Rig, start: u64, length: u64, name: &str) -> PathBuf {
    let (path, image) = (rig.path(name), File::open(&rig.image).unwrap());
    let file = File::create(&path).unwrap();
    file.set_len(length).unwrap();
    let mut piece = vec![0; MEGABYTE as usize];
    for at in (0..length).step_by(piece.len()) {
        image.read_exact_at(&mut piece, start + at).unwrap();
        if piece.iter().any(|&byte| byte != 0) {
            file.write_all_at(&piece, at).unwrap();
        }
    }
    path
}

/// What the file system's own tool says of it: it changes nothing, and must find nothing.
fn check(kind: &str, path: &Path) {
    let path = path.to_str().unwrap();
    match kind {
        "ext2" | "ext3" | "ext4" => tool("e2fsck", "e2fsprogs", ["-f", "-n", path]),
        "xfs" => tool("xfs_repair", "xfsprogs", ["-n", path]),
        "btrfs" => tool("btrfs", "btrfs-progs", ["check", "--readonly", path]),
        "vfat" => tool("fsck.vfat", "dosfstools", ["-n", path]),
        _ => tool("swaplabel", "util-linux", [path]),
    };
}

/// A value that blkid sees.
fn blkid(path: &Path, what: &str) -> String {
    let path = path.to_str().unwrap();
    tool("blkid", "util-linux", ["-p", "-o", "value", "-s", what, path]).trim().to_owned()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn every_file_system_is_made_and_takes_files() {
    let mut rig = without_image();
    let (raw, qcow2) = (rig.image.clone(), rig.path("disk.qcow2"));
    rig.image = qcow2;
    let kinds = [("ext4", 64), ("ext2", 32), ("ext3", 32), ("xfs", 320), ("btrfs", 128), ("vfat", 64), ("swap", 16)];
    let mut arguments = vec!["2G".to_owned(), "--table".into(), "gpt".into()];
    for (kind, megabytes) in kinds {
        arguments.extend(["--part".to_owned(), format!("{megabytes}M,fs={kind},label=my{kind}")]);
    }
    rig.run("create", &arguments.iter().map(String::as_str).collect::<Vec<_>>());
    let listed = rig.run("filesystems", &[]);
    for (index, (kind, _)) in kinds.iter().enumerate() {
        let line = listed.lines().nth(index + 2).unwrap();
        for word in [&format!("vda{}", index + 1), *kind, &format!("my{kind}")] {
            assert!(line.contains(word), "{listed}");
        }
    }

    // One tree, whose directories are the other file systems.
    let points: Vec<_> = (2..7).map(|number| format!("{number}:/{}", kinds[number - 1].0)).collect();
    let mut mounts = vec!["-m", "1"];
    points.iter().for_each(|point| mounts.extend(["-m", point]));
    let tree = rig.path("tree");
    let directories: Vec<_> = kinds[1..6].iter().map(|(kind, _)| format!("/{kind}")).collect();
    rig.run("mkdir", &[&["-m", "1"], &directories.iter().map(String::as_str).collect::<Vec<_>>()[..]].concat());
    for (index, (kind, _)) in kinds[..6].iter().enumerate() {
        let directory = if index == 0 { tree.clone() } else { tree.join(kind) };
        fs::create_dir_all(directory.join("below")).unwrap();
        fs::write(directory.join("below/data"), noise(700_000 + index)).unwrap();
    }
    let sources: Vec<_> = ["below", "ext2", "ext3", "xfs", "btrfs", "vfat"].map(|name| format!("tree/{name}")).into();
    let put: Vec<_> = sources.iter().map(String::as_str).chain(["/"]).collect();
    rig.run("put", &[&mounts[..], &put].concat());
    fs::create_dir(rig.path("out")).unwrap();
    let got: Vec<_> = directories.iter().map(String::as_str).chain(["/below", "out"]).collect();
    rig.run("get", &[&mounts[..], &got[..]].concat());
    for (index, (kind, _)) in kinds[..6].iter().enumerate() {
        let data = if index == 0 { "below/data".into() } else { Path::new(kind).join("below/data") };
        assert!(fs::read(rig.path("out").join(data)).unwrap() == noise(700_000 + index), "{kind}");
    }
    let shown = rig.run("ls", &[&mounts[..], &["/xfs/below"]].concat());
    assert_eq!(shown, "data\n");

    let qcow2 = rig.image.to_str().unwrap().to_owned();
    tool("qemu-img", "qemu-utils", ["check", "-q", &qcow2]);
    tool("qemu-img", "qemu-utils", ["convert", "-O", "raw", &qcow2, raw.to_str().unwrap()]);
    rig.image = raw;
    assert!(tool("sfdisk", "fdisk", ["--verify", rig.image.to_str().unwrap()]).contains("No errors"));
    let mut start = MEGABYTE;
    for (kind, megabytes) in kinds {
        let path = part(&rig, start, megabytes * MEGABYTE, kind);
        assert_eq!((blkid(&path, "TYPE"), blkid(&path, "LABEL")), (kind.to_owned(), format!("my{kind}")));
        check(kind, &path);
        start += megabytes * MEGABYTE;
    }
}

#[test]
fn a_disk_without_partitions_has_a_file_system_too() {
    let rig = without_image();
    let shown = rig.run("create", &["64M", "--fs", "ext4", "--label", "data"]);
    assert!(shown.contains("ext4 'data'"), "{shown}");
    rig.check();
    assert_eq!(rig.run("label", &["sda"]), "data\n");
    // What is zero takes no room: neither tables of inodes nor the journal.
    assert!(fs::metadata(&rig.image).unwrap().blocks() * 512 < 2 * MEGABYTE);

    // Its own options, another label, another kind.
    let living = fs::read(&rig.image).unwrap();
    for arguments in [&["ext4"][..], &["sda", "xfs", "-L", "other"]] {
        let said = rig.fail("mkfs", arguments);
        assert!(said.contains("vda holds ext4 with the label 'data', which would be lost: add -f"), "{said}");
        assert!(fs::read(&rig.image).unwrap() == living, "it has changed");
    }
    rig.run("mkfs", &["-f", "ext4", "-L", "second", "--", "-b", "4096", "-N", "64"]);
    rig.check();
    assert!(rig.debugfs("stats").contains("Inode count:              64"), "{}", rig.debugfs("stats"));
    rig.run("label", &["vda", "third"]);
    assert_eq!(blkid(&rig.image, "LABEL"), "third");
    rig.run("mkfs", &["vda", "vfat", "--force"]);
    rig.run("label", &["vda", "FOURTH"]);
    check("vfat", &rig.image);
    assert_eq!(blkid(&rig.image, "LABEL"), "FOURTH");
    rig.run("mkfs", &["-f", "vda", "btrfs", "--label", "", "--", "--mixed"]);
    rig.run("label", &["vda", "fifth"]);
    check("btrfs", &rig.image);
    assert_eq!((blkid(&rig.image, "TYPE"), blkid(&rig.image, "LABEL")), ("btrfs".to_owned(), "fifth".to_owned()));
}

/// LUKS, swap and the others are as easily lost as a file system; a new partition holds nothing.
#[test]
fn a_partition_that_holds_something_is_not_made_anew_by_mistake() {
    let rig = without_image();
    rig.run(
        "create",
        &["200M", "--table", "gpt", "--part", "50M,fs=swap,label=pages", "--part", "50M,fs=vfat", "--part", "rest"],
    );
    for (arguments, word) in [
        (["sda1", "ext4"], "vda1 holds swap with the label 'pages'"),
        (["ext4", "sda2"], "vda2 holds vfat"),
        (["sda", "ext4"], "sda has partitions, and what it holds is in those: name one of vda1, vda2, vda3"),
    ] {
        let said = rig.fail("mkfs", &arguments);
        assert!(said.contains(word), "{said}");
    }
    rig.run("mkfs", &["sda3", "ext4"]);
    assert!(rig.fail("mkfs", &["sda3", "xfs"]).contains("vda3 holds ext4"));
    rig.run("mkfs", &["sda1", "ext4", "-f"]);
}

#[test]
fn what_cannot_be_made_is_said_and_leaves_nothing_behind() {
    let rig = without_image();
    let said = rig.fail("create", &["64M", "--fs", "xfs"]);
    assert!(said.contains("cannot make xfs on vda: mkfs.xfs says: "), "{said}");
    assert!(!rig.image.exists());
    for (arguments, word) in [
        (&["64M", "--fs", "ntfs"][..], "ext2, ext3, ext4, xfs, btrfs, vfat, swap"),
        (&["64M", "--fs", "vfat", "--label", "twelve-bytes"], "11 bytes"),
        (&["64M", "--table", "gpt", "--part", "rest,label=x"], "fs=ext4"),
    ] {
        let output = rig.command("create", arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        assert!(String::from_utf8_lossy(&output.stderr).contains(word), "{output:?}");
    }
    let rig = Rig::empty(16);
    assert!(rig.fail("mkfs", &["vda1", "ext4"]).contains("there is no vda1: the image has vda"));
    assert!(rig.fail("mkfs", &["-m", "vda", "-f", "ext4"]).contains("vda is mounted on /: unmount it first"));
    let said = rig.fail("mkfs", &["-f", "ext4", "--", "--no-such-option"]);
    assert!(said.contains("mke2fs says: "), "{said}");
    rig.check();
}

#[test]
fn a_damaged_ext4_is_told_and_repaired() {
    let rig = Rig::new(32, |root| {
        fs::create_dir(root.join("directory")).unwrap();
        (0..20).for_each(|number| fs::write(root.join(format!("directory/{number}")), noise(3000)).unwrap());
    });
    assert_eq!(rig.run("fsck", &[]), "vda (ext4): clean\n");
    // Files that nobody owns any more, and blocks that are both free and in use.
    tool("debugfs", "e2fsprogs", ["-w", "-R", "clri /directory", rig.image.to_str().unwrap()]);
    tool("debugfs", "e2fsprogs", ["-w", "-R", "freeb 200 400", rig.image.to_str().unwrap()]);
    let before = fs::read(&rig.image).unwrap();
    let looked = rig.command("fsck", &["-n"]).output().unwrap();
    assert!(said(&looked).contains("vda (ext4): damaged") && said(&looked).contains("directory"), "{looked:?}");
    assert!(failure(looked).contains("damaged: vda: `blockyard image fsck -y` repairs"));
    assert!(fs::read(&rig.image).unwrap() == before, "a look changes nothing");
    // Not without being told to: files may be lost.
    assert!(rig.fail("fsck", &["vda"]).contains("damaged: vda"));
    assert!(rig.run("fsck", &["-y", "sda"]).ends_with("vda (ext4): repaired\n"));
    rig.check();
    assert_eq!(rig.run("fsck", &["-n"]), "vda (ext4): clean\n");
    assert_eq!(rig.run("ls", &["/lost+found"]).lines().count(), 20);
}

#[test]
fn a_journal_that_a_look_must_not_carry_out_is_told() {
    let rig = Rig::empty(16);
    let image = rig.image.to_str().unwrap();
    for request in ["feature needs_recovery", "freeb 200 100"] {
        tool("debugfs", "e2fsprogs", ["-w", "-R", request, image]);
    }
    let looked = rig.command("fsck", &["-n"]).output().unwrap();
    assert!(said(&looked).contains("vda (ext4): not unmounted, so that this may be nothing"), "{looked:?}");
    assert!(failure(looked).contains("damaged: vda"));
    assert!(rig.run("fsck", &[]).ends_with("vda (ext4): repaired\n"));
    rig.check();
}

#[test]
fn damaged_xfs_and_fat_are_repaired() {
    let rig = without_image();
    rig.run("create", &["512M", "--table", "dos", "--part", "400M,fs=xfs", "--part", "rest,fs=vfat"]);
    let image = File::options().write(true).open(&rig.image).unwrap();
    // The first allocation group's inodes (the third sector of 4096 bytes), and the first clusters of one of the two
    // tables of FAT.
    image.write_all_at(&[0; 512], MEGABYTE + 2 * 4096).unwrap();
    image.write_all_at(&noise(64), 401 * MEGABYTE + 4 * 512 + 16).unwrap();
    let looked = rig.command("fsck", &["-n"]).output().unwrap();
    assert!(failure(looked).contains("damaged: vda1, vda2"));
    let repaired = rig.run("fsck", &["-y"]);
    for line in ["vda1 (xfs): repaired", "vda2 (vfat): repaired"] {
        assert!(repaired.contains(line), "{repaired}");
    }
    check("xfs", &part(&rig, MEGABYTE, 400 * MEGABYTE, "xfs"));
    check("vfat", &part(&rig, 401 * MEGABYTE, 111 * MEGABYTE, "vfat"));
}

#[test]
fn free_blocks_are_given_back_and_zeroed() {
    let rig = Rig::new(64, |root| fs::write(root.join("kept"), noise(1_000_000)).unwrap());
    let occupied = || fs::metadata(&rig.image).unwrap().blocks() * 512;
    let before = occupied();
    for (command, name) in [("fstrim", "first"), ("zero-free", "second")] {
        fs::write(rig.path(name), noise(20_000_000)).unwrap();
        rig.run("put", &[name, "/"]);
        rig.run("rm", &[&format!("/{name}")]);
        assert!(occupied() > before + 15_000_000);
        let told = rig.run(command, &[]);
        assert!(told.starts_with("vda: ") && told.ends_with(" free\n"), "{told}");
        assert!(occupied() < before + MEGABYTE, "{command}: {before} {}", occupied());
        rig.check();
    }
    rig.run("get", &["/kept", "kept"]);
    assert!(fs::read(rig.path("kept")).unwrap() == noise(1_000_000));
    // Nothing of them is left.
    let content = fs::read(&rig.image).unwrap();
    let needle = &noise(20_000_000)[10_000_000..][..64];
    assert!(!content.chunks(1024).any(|block| block.starts_with(needle)));
}

#[test]
fn no_space_in_the_image_is_one_sentence() {
    let rig = Rig::empty(16);
    fs::write(rig.path("large"), noise(20_000_000)).unwrap();
    let said = rig.fail("put", &["large", "/"]);
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("/large: cannot write: No space left on device"), "{said}");
    rig.check();
}

#[test]
fn tools_are_not_executed_on_the_host() {
    let rig = Rig::empty(16);
    let (program, trace) = (rig.path("e2fsck"), rig.path("trace"));
    fs::write(&program, format!("#!/bin/sh\ntouch {}\n", trace.display())).unwrap();
    fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
    let output = rig.command("fsck", &[]).env("PATH", rig.directory.path()).output().unwrap();
    let said = failure(output);
    assert!(said.contains("e2fsck into the appliance: it is no ELF file for x86-64"), "{said}");
    assert!(!trace.exists());
}

#[test]
fn nothing_is_taken_from_the_current_directory_where_path_says_nothing() {
    let rig = Rig::new(16, |root| fs::write(root.join("file"), "a\nb\n").unwrap());
    let trace = rig.path("trace");
    for name in ["linux.uml", "e2fsck", "wc"] {
        let program = rig.path(name);
        fs::write(&program, format!("#!/bin/sh\ntouch {}\n", trace.display())).unwrap();
        fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
    }
    for path in [None, Some(""), Some("."), Some(":/nowhere")] {
        let said = |subcommand: &str, arguments: &[&str]| {
            let mut command = rig.command(subcommand, arguments);
            command.env_remove("PATH").envs(path.map(|path| ("PATH", path)));
            let output = command.output().unwrap();
            assert!(!trace.exists(), "{subcommand} with {path:?}");
            (output.status.success(), String::from_utf8(output.stdout).unwrap())
        };
        let (is_good, names) = said("ls", &["/"]);
        assert!(is_good && names.contains("file"), "{path:?}: {names}");
        assert!(said("fsck", &[]).0, "{path:?}");
        let count = said("wc-l", &["/file"]);
        assert!(path == Some(":/nowhere") || count == (true, "2\n".to_owned()), "{path:?}: {count:?}");
    }
}
