//! Which file system is the root, and what else is mounted.

use crate::rig::{Rig, failure, noise, tool};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};

const MEGABYTE: u64 = 1 << 20;

/// An image of three partitions: vfat (with nothing), a file system for /home, the root, whose fstab names the others.
fn partitioned() -> Rig {
    let rig = Rig::empty(16);
    let image = File::create(&rig.image).unwrap();
    image.set_len(100 * MEGABYTE).unwrap();
    let mut sfdisk = Command::new("/usr/sbin/sfdisk");
    let mut sfdisk = sfdisk.args(["--quiet"]).arg(&rig.image).stdin(Stdio::piped()).spawn().unwrap();
    let table = "label: gpt\nstart=2048, size=40960, type=uefi\nstart=43008, size=65536, \
                 uuid=AAAAAAAA-BBBB-CCCC-DDDD-EEEEEEEEEEEE\nstart=108544, size=65536, name=\"the system\"\n";
    sfdisk.stdin.take().unwrap().write_all(table.as_bytes()).unwrap();
    assert!(sfdisk.wait().unwrap().success());
    let put = |name: &str, uuid: &str, start: u64, fill: &dyn Fn(&std::path::Path)| {
        let (root, part) = (rig.path(&format!("root-{name}")), rig.path(name));
        fs::create_dir(&root).unwrap();
        fill(&root);
        File::create(&part).unwrap().set_len(32 * MEGABYTE).unwrap();
        let (root, part) = (root.to_str().unwrap(), part.to_str().unwrap());
        tool("mke2fs", "e2fsprogs", ["-q", "-t", "ext4", "-U", uuid, "-L", name, "-d", root, part]);
        image.write_all_at(&fs::read(part).unwrap(), start * 512).unwrap();
    };
    put("home", "11111111-2222-3333-4444-555555555555", 43008, &|root| {
        fs::write(root.join("letter"), "from home\n").unwrap();
    });
    put("system", "66666666-7777-8888-9999-000000000000", 108_544, &|root| {
        ["etc", "home", "boot/efi"].iter().for_each(|name| fs::create_dir_all(root.join(name)).unwrap());
        let fstab = "LABEL=system / ext4 defaults 0 1\n\
                     PARTUUID=aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee /home ext4 defaults 0 2\n\
                     /dev/sda9 /missing ext4 defaults 0 2\n";
        fs::write(root.join("etc/fstab"), fstab).unwrap();
    });
    rig
}

#[test]
fn the_root_is_found_and_what_its_fstab_says_is_mounted() {
    let rig = partitioned();
    assert_eq!(rig.run("ls", &["/"]), "boot\netc\nhome\nlost+found\n");
    assert_eq!(rig.run("cat", &["/home/letter"]), "from home\n");
    let space = rig.run("df", &[]);
    assert!(space.contains("vda3") && space.contains("vda2") && space.contains("/home"), "{space}");
    // What -x does not look into is what is mounted below.
    assert!(!rig.run("find", &["/", "-xdev", "-name", "letter"]).contains("letter"));

    fs::write(rig.path("in"), noise(300_000)).unwrap();
    rig.run("put", &["in", "/home"]);
    assert_eq!(rig.run("ls", &["-m", "sda2", "/"]), "in\nletter\nlost+found\n");
    assert_eq!(rig.run("ls", &["-m", "/dev/vda3", "-m", "2:/boot", "/boot"]), "in\nletter\nlost+found\n");
}

#[test]
fn partitions_that_cannot_be_mounted_are_said() {
    let rig = partitioned();
    assert!(rig.fail("ls", &["-m", "sda7"]).contains("there is no sda7: the image has vda1, vda2, vda3"));
    assert!(rig.fail("ls", &["-m", "1"]).contains("vda1 has no file system that is known"));
    assert!(rig.fail("ls", &["-m", "3", "-m", "2:/nowhere"]).contains("/nowhere: cannot mount there"));
    let usage = rig.command("ls", &["-m", "3:nowhere"]).output().unwrap();
    assert_eq!(usage.status.code(), Some(2));
}

/// Linux takes a disk for Acorn's when a checksum of eight bits in its seventh sector is right: one in 256 of the small
/// ext4 and squashfs images is.
#[test]
fn a_file_system_is_not_taken_for_a_partition_table_by_chance() {
    let rig = Rig::empty(16);
    let root = rig.path("tree");
    fs::create_dir(&root).unwrap();
    fs::write(root.join("letter"), "from home\n").unwrap();
    let (root, image) = (root.to_str().unwrap(), rig.image.to_str().unwrap());
    // With blocks of 4096 bytes, nothing of it lies between the superblock and the next block.
    tool("mke2fs", "e2fsprogs", ["-F", "-q", "-t", "ext4", "-b", "4096", "-d", root, image]);
    let mut sector = [0; 512];
    // The number of bytes in the disk, and the sum.
    sector[0x1d0..0x1d4].copy_from_slice(&0x0007_0000_u32.to_le_bytes());
    sector[511] = 7;
    File::options().write(true).open(&rig.image).unwrap().write_all_at(&sector, 6 * 512).unwrap();
    assert_eq!(rig.run("cat", &["/letter"]), "from home\n");
    let found = rig.run("filesystems", &[]);
    assert!(found.contains("vda ") && !found.contains("vda1"), "{found}");
}

#[test]
fn a_qcow2_is_an_image_too() {
    let rig = Rig::new(32, |root| fs::write(root.join("greeting"), "hello\n").unwrap());
    let qcow2 = rig.path("disk.qcow2");
    let (raw, new) = (rig.image.to_str().unwrap(), qcow2.to_str().unwrap());
    tool("qemu-img", "qemu-utils", ["convert", "-O", "qcow2", raw, new]);
    fs::write(rig.path("in"), noise(5 << 20)).unwrap();
    let blockyard = |subcommand: &str, arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_blockyard"));
        command.args(["image", subcommand, new]).args(arguments).current_dir(rig.directory.path());
        command.output().unwrap()
    };
    assert_eq!(blockyard("cat", &["/greeting"]).stdout, b"hello\n");
    assert!(blockyard("put", &["in", "/"]).status.success());
    tool("qemu-img", "qemu-utils", ["check", "-q", new]);
    tool("qemu-img", "qemu-utils", ["convert", "-O", "raw", new, raw]);
    rig.check();
    rig.debugfs(&format!("dump /in {}", rig.path("out").display()));
    assert!(fs::read(rig.path("in")).unwrap() == fs::read(rig.path("out")).unwrap());
    fs::write(rig.path("false.qcow2"), noise(100_000)).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_blockyard"));
    let said = failure(command.args(["image", "ls"]).arg(rig.path("false.qcow2")).output().unwrap());
    assert!(said.contains("false.qcow2"), "{said}");
}
