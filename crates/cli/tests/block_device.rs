//! Copies from and onto block devices: loop devices, which take root.

mod support;

use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use support::{Yard, blockyard, copy_command, finish, random_bytes, run, wait_until};

const MIB: u64 = 1 << 20;

/// A loop device over a file, gone with the test.
struct Loop(PathBuf);

impl Loop {
    /// `None`, with a word why, where there are no loop devices to be had.
    fn over(file: &Path) -> Option<Self> {
        let output = Command::new("losetup").args(["--find", "--show"]).arg(file).output();
        let output = output.expect("losetup is missing: it comes with the package util-linux");
        if !output.status.success() {
            eprintln!("no loop device, which takes root: {}", String::from_utf8_lossy(&output.stderr).trim());
            assert!(!rustix::process::geteuid().is_root() || !Path::new("/dev/loop-control").exists());
            return None;
        }
        Some(Self(String::from_utf8(output.stdout).unwrap().trim().into()))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.0).status();
    }
}

fn contents(device: &Path, length: u64) -> Vec<u8> {
    let mut bytes = vec![0; length as usize];
    File::open(device).unwrap().read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

/// As what keeps images on logical volumes makes them.
#[test]
fn a_device_becomes_a_qcow2_image() {
    let yard = Yard::new();
    let backing = yard.path("backing");
    fs::write(&backing, random_bytes(16 * MIB as usize, 3)).unwrap();
    let Some(device) = Loop::over(&backing) else { return };
    let device = device.0.to_str().unwrap();
    let data = yard.random("data.img", 3 * MIB, 5);
    let ours = |line: &str| {
        let mut command = support::blockyard();
        run(command.current_dir(yard.path("")).arg("image").args(line.split(' ')))
    };
    let theirs = |line: &str| {
        let mut command = Command::new("qemu-img");
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        run(command.current_dir(yard.path("")).args(line.split(' '))).succeeded()
    };
    // Larger than the device: it need not hold all of it.
    ours(&format!("create -q -f qcow2 -o compat=1.1 {device} 64M")).succeeded();
    theirs(&format!("check -q -f qcow2 {device}"));
    let info = theirs(&format!("info -f qcow2 --output=json {device}")).json();
    assert_eq!((&info["virtual-size"], &info["format"]), (&(64 * MIB).into(), &"qcow2".into()));
    ours(&format!("convert -q -n -O qcow2 data.img {device}")).succeeded();
    theirs(&format!("compare -q -f qcow2 -F raw {device} data.img"));
    // Nothing of what was there shows, and what is behind it does.
    ours(&format!("create -q -f qcow2 -b {} -F raw {device}", data.display())).succeeded();
    theirs(&format!("check -q -f qcow2 {device}"));
    theirs(&format!("compare -q -f qcow2 -F raw {device} data.img"));
    for (line, status, said) in [
        ("create -f qcow2 -o preallocation=metadata DEVICE 64M", 1, "is not preallocated"),
        ("create -f qcow2 -o cluster_size=4k DEVICE 8T", 1, "the tables of such an image alone have"),
        ("create -f raw DEVICE 17M", 1, "has 16777216 bytes, and not 17825792"),
        ("create -f vhdx DEVICE 4M", 2, "raw or qcow2"),
        ("create -f raw --table gpt DEVICE 4M", 2, "is a block device"),
        ("convert -O vhdx data.img DEVICE", 2, "raw or qcow2"),
        (
            "convert -O qcow2 -o encrypt.format=luks --key-file absent data.img DEVICE",
            1,
            "cannot read the key file absent",
        ),
    ] {
        ours(&line.replace("DEVICE", device)).failed(status, &[said]);
    }
    theirs(&format!("compare -q -f qcow2 -F raw {device} data.img"));
    ours(&format!("create -q -f raw {device} 16M")).succeeded();
    theirs(&format!("check -q -f qcow2 {device}"));
}

#[test]
fn a_disk_becomes_a_qcow2_image_on_a_device() {
    let yard = Yard::new();
    let backing = yard.path("backing");
    fs::write(&backing, random_bytes(16 * MIB as usize, 3)).unwrap();
    let Some(device) = Loop::over(&backing) else { return };
    let name = device.0.to_str().unwrap();
    let base = yard.random("base.img", 3 * MIB, 5);
    yard.sparse("disk.img", 8 * MIB + 512, &[(0, 4096), (5 * MIB - 512, MIB), (8 * MIB, 512)], 7);
    yard.random("large.img", 20 * MIB, 11);
    fs::write(yard.path("key"), "secret").unwrap();
    fs::set_permissions(yard.path("key"), fs::Permissions::from_mode(0o600)).unwrap();
    let ours = |line: &str| run(blockyard().current_dir(yard.path("")).arg("image").args(line.split(' ')));
    let theirs = |line: &str| {
        let mut command = Command::new("qemu-img");
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        run(command.current_dir(yard.path("")).args(line.split(' '))).succeeded()
    };
    for options in [
        "",
        " -c",
        " -c -o cluster_size=4k,compression_type=zstd",
        " -o extended_l2=on",
        " -o compat=0.10,cluster_size=1M",
        " -S 0",
        &format!(" -B {} -F raw", base.display()),
        &format!(" -c -B {} -F raw", base.display()),
    ] {
        let done = ours(&format!("convert -O qcow2{options} disk.img {name}")).succeeded();
        assert!(done.stderr.contains(&format!("{name},format=qcow2")), "{done:?}");
        theirs(&format!("check -q -f qcow2 {name}"));
        theirs(&format!("compare -q -f qcow2 -F raw {name} disk.img"));
    }
    let luks = "-o encrypt.format=luks,encrypt.iter-time=10 --key-file key";
    ours(&format!("convert -q -O qcow2 {luks} disk.img {name}")).succeeded();
    ours(&format!("check -q -f qcow2 {name}")).succeeded();
    ours(&format!("compare -q {name},format=qcow2,key-file=key disk.img")).succeeded();
    ours("convert -q disk.img disk.qcow2").succeeded();
    theirs("bitmap --add disk.qcow2 changed");
    ours(&format!("convert -q --bitmaps -O qcow2 disk.qcow2 {name}")).succeeded();
    let info = theirs(&format!("info -f qcow2 --output=json {name}")).json();
    assert_eq!(info["format-specific"]["data"]["bitmaps"][0]["name"], "changed");
    ours(&format!("dd -q -O qcow2 if=disk.img of={name} bs=1M count=7")).succeeded();
    theirs(&format!("check -q -f qcow2 {name}"));
    ours("dd -q if=disk.img of=begins.img bs=1M count=7").succeeded();
    theirs(&format!("compare -q -f qcow2 -F raw {name} begins.img"));
    for (options, status, said) in [
        ("-o preallocation=full", 1, "is not preallocated"),
        ("-o data_file=new", 1, "has its data in itself"),
        (&format!("-o compat=0.10 -B {} -F raw", base.display()), 1, "with compat=1.1"),
        (&format!("-B {name} -F raw"), 1, "cannot be behind itself"),
    ] {
        ours(&format!("convert -O qcow2 {options} disk.img {name}")).failed(status, &[said]);
    }
    // With -n, what it holds is written to.
    ours(&format!("convert -n -O qcow2 large.img {name}")).failed(1, &["too few for 20971520"]);
    theirs(&format!("compare -q -f qcow2 -F raw {name} begins.img"));
    // What is not complete is no image, and not the old one.
    let said = [&format!("{name} is incomplete: "), "has 16777216 bytes, too few", "image measure"];
    ours(&format!("convert -O qcow2 large.img {name}")).failed(1, &said);
    let is_nothing = || contents(&device.0, 65536).iter().all(|&byte| byte == 0);
    assert!(is_nothing());
    ours(&format!("convert -q -O qcow2 disk.img {name}")).succeeded();
    let mut slow = blockyard();
    slow.current_dir(yard.path("")).args([
        "image",
        "convert",
        "-O",
        "qcow2",
        "-m",
        "1",
        "-r",
        "256K",
        "large.img",
        name,
    ]);
    let slow = slow.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until("it is no image any more", is_nothing);
    kill_process(Pid::from_child(&slow), Signal::TERM).unwrap();
    finish(slow).failed(143, &[&format!("{name} is incomplete: stopped by SIGTERM")]);
    assert!(is_nothing());
}

#[test]
fn onto_a_device_with_old_contents() {
    let yard = Yard::new();
    let old = random_bytes(17 * MIB as usize, 9);
    let backing = yard.path("backing");
    fs::write(&backing, &old).unwrap();
    let input = yard.sparse("input", 16 * MIB - 300, &[(0, 4096), (5 * MIB, MIB), (16 * MIB - 1000, 700)], 1);
    let expected = fs::read(&input).unwrap();
    for options in [&["--detect-zeroes"][..], &[], &["--output-sector-size", "4096"]] {
        fs::write(&backing, &old).unwrap();
        let Some(device) = Loop::over(&backing) else { return };
        run(copy_command(options).arg(&input).arg(&device.0)).succeeded();
        let bytes = contents(&device.0, 17 * MIB);
        assert!(bytes[..expected.len()] == expected, "{options:?}");
        // What follows the last sector is none of our business.
        assert!(bytes[16 * MIB as usize..] == old[16 * MIB as usize..], "{options:?}");
    }
}

#[test]
fn from_a_device_and_onto_one_that_is_too_small() {
    let yard = Yard::new();
    let (large, small) = (yard.random("large", 8 * MIB, 1), yard.random("small", 4 * MIB, 2));
    let Some(device) = Loop::over(&large) else { return };
    let output = yard.path("output");
    run(&mut copy_command([&device.0, &output])).succeeded();
    assert!(support::same(&large, &output));
    let Some(small_device) = Loop::over(&small) else { return };
    let before = fs::read(&small).unwrap();
    run(&mut copy_command([&device.0, &small_device.0])).failed(1, &["too few", "8388608"]);
    assert!(fs::read(&small).unwrap() == before);
    run(&mut copy_command([&device.0, &device.0])).failed(1, &["same"]);
}

/// On a device there is no end of a file to write behind: what an image uses ends before the device does.
#[test]
fn an_image_on_a_device_gets_other_refcounts() {
    let yard = Yard::new();
    let backing = yard.sparse("backing", 16 * MIB, &[], 1);
    let Some(device) = Loop::over(&backing) else { return };
    let disk = yard.random("disk.img", 2 * MIB, 37);
    let name = device.0.to_str().unwrap();
    let run_image = |line: &str| run(blockyard().current_dir(yard.path("")).arg("image").args(line.split(' ')));
    run_image("create -q -f qcow2 -o cluster_size=4k made.qcow2 6M").succeeded();
    fs::write(&device.0, fs::read(yard.path("made.qcow2")).unwrap()).unwrap();
    run_image(&format!("convert -q -n disk.img {name},format=qcow2")).succeeded();
    for bits in [32, 1, 64] {
        run_image(&format!("amend -q -f qcow2 -o refcount_bits={bits} {name}")).succeeded();
        let info = run_image(&format!("info --json -f qcow2 {name}")).succeeded().json();
        assert_eq!(info["format-specific"]["data"]["refcount-bits"], bits);
        let check = Command::new("qemu-img").args(["check", "-q", "-f", "qcow2", name]).status();
        assert!(check.expect("qemu-img, of the Debian package qemu-utils").success());
    }
    run_image(&format!("convert -q -f qcow2 {name} out.img")).succeeded();
    let out = fs::read(yard.path("out.img")).unwrap();
    assert!(
        out[..2 * MIB as usize] == fs::read(disk).unwrap() && out[2 * MIB as usize..].iter().all(|&byte| byte == 0)
    );
}
