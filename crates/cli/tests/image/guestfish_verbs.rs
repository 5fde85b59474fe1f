//! The shell's verbs with guestfish's names, each on a real image and judged by somebody else's tool where there is
//! one.

use crate::rig::{Rig, failure, key_file, tool};
use crate::shell::{good, script};
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::process::Command;

fn sfdisk(rig: &Rig, name: &str) -> String {
    let path = rig.path(name);
    tool("sfdisk", "fdisk", ["--verify".as_ref(), path.as_os_str()]);
    tool("sfdisk", "fdisk", ["--dump".as_ref(), path.as_os_str()])
}

/// A table of sfdisk's on a disk of 64 MiB.
fn partitioned(rig: &Rig, name: &str, table: &str) {
    File::create(rig.path(name)).unwrap().set_len(64 << 20).unwrap();
    fs::write(rig.path("table"), table).unwrap();
    let mut command = Command::new("sfdisk");
    command.arg("--quiet").arg(rig.path(name)).stdin(File::open(rig.path("table")).unwrap());
    assert!(command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").status().unwrap().success());
}

const GUID: &str = "11111111-2222-4333-8444-555555555555";

#[test]
fn tables_that_others_have_made_are_changed_and_the_rest_of_them_stays() {
    let rig = Rig::empty(8);
    let three = "start=2048,size=20480,name=one\nstart=22528,size=20480,name=two\nstart=43008,size=20480,name=three\n";
    partitioned(&rig, "gpt.img", &format!("label:gpt\nlabel-id:AAAAAAAA-BBBB-4CCC-8DDD-EEEEEEEEEEEE\n{three}"));
    let before = sfdisk(&rig, "gpt.img");
    let uuid = |dump: &str, name: &str| -> String {
        let line = dump.lines().find(|line| line.contains(&format!("name=\"{name}\""))).unwrap();
        line.split("uuid=").nth(1).unwrap()[..36].to_owned()
    };
    let said = good(
        &rig,
        &["-a", "gpt.img"],
        &format!(
            "part-del /dev/sda 2\npart-resize /dev/sda 1 30719\npart-set-name /dev/sda 3 third\n\
             part-set-gpt-type /dev/sda 3 C12A7328-F81F-11D2-BA4B-00A0C93EC93B\npart-get-bootable /dev/sda 3\n\
             part-get-bootable /dev/sda 1\npart-set-bootable /dev/sda 1 true\npart-get-bootable /dev/sda 1\n\
             part-set-gpt-attributes /dev/sda 3 0x8000000000000001\npart-get-gpt-attributes /dev/sda 3\n\
             part-set-gpt-guid /dev/sda 3 {GUID}\npart-get-gpt-guid /dev/sda 3\npart-get-disk-guid /dev/sda\n\
             part-set-disk-guid /dev/sda {GUID}\npart-get-disk-guid /dev/sda\npart-add /dev/sda p 30720 40959\n\
             -part-resize /dev/sda 1 31000\nlist-partitions\nmkfs ext4 /dev/sda2\nvfs-type /dev/sda2\n"
        ),
    );
    let expected = format!(
        "true\nfalse\ntrue\n9223372036854775809\n{GUID}\nAAAAAAAA-BBBB-4CCC-8DDD-EEEEEEEEEEEE\n{GUID}\n/dev/sda1\n/dev/sda2\n/dev/sda3\next4\n"
    );
    assert_eq!(said, expected);
    let after = sfdisk(&rig, "gpt.img");
    assert_eq!(uuid(&after, "one"), uuid(&before, "one"), "what was not named keeps its GUID");
    for part in [
        "gpt.img1 : start=        2048, size=       28672",
        "gpt.img2 : start=       30720, size=       10240",
        "attrs=\"LegacyBIOSBootable\"",
        "name=\"third\"",
        &format!("label-id: {GUID}"),
    ] {
        assert!(after.contains(part), "{part}: {after}");
    }
    // A disk that has become larger.
    File::options().write(true).open(rig.path("gpt.img")).unwrap().set_len(96 << 20).unwrap();
    good(
        &rig,
        &["-a", "gpt.img"],
        "part-expand-gpt /dev/sda\npart-set-disk-guid-random /dev/sda\npart-add /dev/sda p 140000 196000\n",
    );
    let larger = sfdisk(&rig, "gpt.img");
    assert!(larger.contains("gpt.img4 : start=      140000") && !larger.contains("label-id: 1111"), "{larger}");

    partitioned(
        &rig,
        "mbr.img",
        "label:dos\nlabel-id:0x12345678\nstart=2048,size=20480,type=83\nstart=22528,size=40960,type=5\nstart=24576,size=8192,type=83\n",
    );
    let said = good(
        &rig,
        &["-a", "mbr.img"],
        "part-set-mbr-id /dev/sda 1 0x82\npart-set-bootable /dev/sda 1 true\npart-get-bootable /dev/sda 1\npart-get-mbr-part-type /dev/sda 2\n\
         part-get-mbr-part-type /dev/sda 5\npart-resize /dev/sda 1 10239\npart-add /dev/sda p 65536 -1\n-part-set-name /dev/sda 1 x\n-part-del /dev/sda 5\n",
    );
    assert_eq!(said, "true\nextended\nlogical\n");
    let after = sfdisk(&rig, "mbr.img");
    for part in [
        "label-id: 0x12345678",
        "mbr.img1 : start=        2048, size=        8192, type=82, bootable",
        "mbr.img3 : start=       65536, size=       65536, type=83",
        "mbr.img5 : start=       24576, size=        8192, type=83",
    ] {
        assert!(after.contains(part), "{part}: {after}");
    }
}

#[test]
fn disks_have_exactly_the_size_that_was_asked_for_and_scratch_ones_are_gone() {
    let rig = Rig::empty(8);
    for verb in ["alloc", "sparse"] {
        good(&rig, &[], &format!("{verb} new.img 10000\nlist-devices\n"));
        let made = fs::metadata(rig.path("new.img")).unwrap();
        assert_eq!((made.len(), made.blocks() > 0), (10_000, verb == "alloc"));
    }
    let temporary = rig.path("tmp");
    fs::create_dir(&temporary).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_blockyard"));
    command.args(["image", "script", "job"]).current_dir(rig.directory.path()).env("TMPDIR", &temporary);
    let job = "scratch 16M\nscratch 8M\nmkfs ext4 /dev/sda\nglob vfs-type /dev/sd?\nreopen\n-list-devices\nadd-ro disk.img\nlist-devices\n";
    fs::write(rig.path("job"), job).unwrap();
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "ext4\n\n/dev/sda\n");
    assert_eq!(fs::read_dir(&temporary).unwrap().count(), 0);
}

#[test]
fn files_are_looked_at_with_guestfishs_verbs() {
    let rig = Rig::new(32, |root| {
        fs::create_dir_all(root.join("d/e")).unwrap();
        fs::write(root.join("d/f"), "a text\0\u{1}\nab\n\u{2}longer text").unwrap();
        fs::write(root.join("d/e/g"), "a text\0\u{1}\nab\n\u{2}longer texT").unwrap();
        fs::write(root.join("zeros"), [0; 70]).unwrap();
        std::os::unix::fs::symlink("../d", root.join("d/link")).unwrap();
    });
    let inode = rig.debugfs("stat /d/f").split_whitespace().nth(1).unwrap().to_owned();
    for (line, answer) in [
        ("find /d", "e\ne/g\nf\nlink\n".to_owned()),
        ("find /d -type d", "/d\n/d/e\n".to_owned()),
        ("stat /d/f | grep -E '^(ino|size|mode|nlink)'", format!("ino: {inode}\nmode: 33188\nnlink: 1\nsize: 24\n")),
        ("lstat /d/link | grep mode", "mode: 41471\n".to_owned()),
        ("statns /d/f | grep -c nsec", "3\n".to_owned()),
        ("equal /d/f /d/e/g", "false\n".to_owned()),
        ("equal /d/f /d/link/f", "true\n".to_owned()),
        ("realpath /d/link/e/../f", "/d/f\n".to_owned()),
        ("strings /d/f", "a text\nlonger text\n".to_owned()),
        ("setxattr user.x hello 5 /d/f", String::new()),
        ("getxattrs /d/f", "[0] = {\n  attrname: user.x\n  attrval: hello\n}\n".to_owned()),
        ("getxattr /d/f user.x", "hello".to_owned()),
        ("lsetxattr trusted.y z 1 /d/link", String::new()),
        ("lgetxattr /d/link trusted.y", "z".to_owned()),
        ("lremovexattr trusted.y /d/link", String::new()),
        ("lgetxattrs /d/link", String::new()),
        ("setxattr user.z w 1 /d/f", String::new()),
        ("removexattr user.x /d/f", String::new()),
        ("tune2fs-l /dev/sda | grep 'magic'", "Filesystem magic number: 0xEF53\n".to_owned()),
        ("blkid /dev/sda | grep ^TYPE", "TYPE: ext4\n".to_owned()),
        ("tar-out /d out.tar compress:gzip 'excludes:e l*' xattrs:true numericowner:true", String::new()),
        ("tar-in out.tar / compress:gzip acls:true", String::new()),
        ("ls /", "d\nf\nlost+found\nzeros\n".to_owned()),
    ] {
        assert_eq!(good(&rig, &["disk.img"], line), answer, "{line}");
    }
    for path in ["d/f", "zeros"] {
        let theirs = tool("hexdump", "bsdextrautils", ["-C".as_ref(), rig.path("root").join(path).as_os_str()]);
        assert_eq!(good(&rig, &["disk.img"], &format!("hexdump /{path}")), theirs);
    }
    assert_eq!(rig.debugfs("ea_get -V /d/f user.z").trim_end(), "w");
    let names = tool("tar", "tar", ["-tzf".as_ref(), rig.path("out.tar").as_os_str()]);
    assert_eq!(names.lines().collect::<Vec<_>>(), [".", "f"]);
    for (line, problem) in [
        ("getxattr /d/f user.none", "no attribute user.none"),
        ("find /d/f", "not a directory"),
        ("realpath /nothing", "No such file"),
        ("equal /d /d", "not a regular file"),
        ("tar-in out.tar / xattrs:false", "always xattrs:true"),
        ("tar-out /d x compress:xz", "gzip and zstd"),
        ("mkfifo 9 /x", "no mode"),
    ] {
        let said = failure(script(&rig, &["disk.img"], line));
        assert!(said.contains(problem), "{line}: {said}");
    }
    rig.check();
}

#[test]
fn nodes_are_made_and_a_file_is_mounted_as_a_disk() {
    let rig = Rig::new(64, |root| fs::create_dir(root.join("inner")).unwrap());
    let inner = Rig::new(8, |root| fs::write(root.join("hello"), "from within\n").unwrap());
    fs::copy(&inner.image, rig.path("inner.img")).unwrap();
    let said = good(
        &rig,
        &["disk.img"],
        "mknod-b 0600 7 3 /block\nmknod-c 0620 1 3 /null\nmkfifo 0644 /fifo\nmknod 0020666 1 5 /zero\nis-fifo /fifo\nupload inner.img /inner.img\n\
         mount-loop /inner.img /inner\ncat /inner/hello\nwrite /inner/new content\nmountpoints\numount /inner\nls /inner\nmount-loop inner.img /inner\n\
         ls /inner\numount-all\n",
    );
    let expected = "true\nfrom within\n/dev/sda: /\nloop:/inner.img: /inner\nhello\nlost+found\nnew\n";
    assert_eq!(said, expected);
    for (name, wanted) in [("block", "major/minor number: 07:03"), ("zero", "Type: character special    Mode:  0644")] {
        let stat = rig.debugfs(&format!("stat /{name}"));
        assert!(stat.contains(wanted), "{stat}");
    }
    rig.run("get", &["/inner.img", "back.img"]);
    tool("e2fsck", "e2fsprogs", ["-fn".as_ref(), rig.path("back.img").as_os_str()]);
    let new = tool("debugfs", "e2fsprogs", ["-R".as_ref(), "cat /new".as_ref(), rig.path("back.img").as_os_str()]);
    assert_eq!(new, "content");
    rig.check();
}

#[test]
fn signatures_are_wiped_by_wipefs() {
    let rig = Rig::empty(16);
    assert_eq!(
        good(&rig, &["-a", "disk.img"], "wipefs /dev/sda\nvfs-type /dev/sda\nblkid /dev/sda | grep -c TYPE || true\n"),
        "\n0\n"
    );
    let found = Command::new("blkid").arg("-p").arg(&rig.image).env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").output();
    assert_eq!(found.unwrap().status.code(), Some(2));
}

#[test]
fn keys_are_added_and_what_lies_in_encrypted_volume_groups_is_listed() {
    let rig = Rig::empty(8);
    for (name, key) in [("key", "hush"), ("new", "two\nlines"), ("wrong", "no")] {
        key_file(&rig.path(name), key);
    }
    File::create(rig.path("luks.img")).unwrap().set_len(64 << 20).unwrap();
    good(
        &rig,
        &["-a", "luks.img"],
        "luks-format /dev/sda 0 keyfile:key itertime:10\nluks-add-key /dev/sda 3 keyfile:key newkeyfile:new itertime:10\n\
         cryptsetup-open /dev/sda secret keyfile:new\npvcreate /dev/mapper/secret\nvgcreate vg /dev/mapper/secret\nlvcreate data vg 16\n\
         mkfs ext4 /dev/vg/data label:inside\n",
    );
    let cryptsetup = |key: &str| {
        let mut command = Command::new("cryptsetup");
        command
            .args(["open", "--test-passphrase", "--key-slot", "3", "--key-file"])
            .arg(rig.path(key))
            .arg(rig.path("luks.img"));
        command
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .output()
            .expect("it is in Debian's cryptsetup-bin")
            .status
            .success()
    };
    assert!(cryptsetup("new") && !cryptsetup("key"));
    let said = failure(script(&rig, &["-a", "luks.img"], "luks-add-key /dev/sda 4 keyfile:wrong newkeyfile:new\n"));
    assert!(said.contains("cryptsetup says: No key available"), "{said}");
    let list = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_blockyard"));
        command.args(["image", "filesystems", "luks.img"]).args(arguments).current_dir(rig.directory.path());
        let output = command.output().unwrap();
        (output.status.success(), String::from_utf8(output.stdout).unwrap())
    };
    let (_, closed) = list(&[]);
    assert!(closed.contains("crypto_LUKS") && !closed.contains("inside"), "{closed}");
    let (well, open) = list(&["--key-file", "new"]);
    assert!(well && open.contains("vg/data") && open.contains("inside") && open.contains("LVM2_member"), "{open}");
    assert!(!list(&["--key-file", "wrong"]).0);
}
