//! `blockyard partitions`: what it prints, for people and as JSON, and how it fails.

use crate::support::{Yard, blockyard, run};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const DISK_BYTES: u64 = 64 << 20;

fn disk(yard: &Yard, script: &str) -> PathBuf {
    let path = yard.path("disk.img");
    File::create(&path).unwrap().set_len(DISK_BYTES).unwrap();
    let mut sfdisk = Command::new("sfdisk");
    sfdisk.args(["--quiet", "--no-reread", "--no-tell-kernel"]).arg(&path).stdin(Stdio::piped());
    let mut sfdisk = sfdisk.spawn().expect("sfdisk comes with the package `fdisk`");
    sfdisk.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    assert!(sfdisk.wait().unwrap().success());
    path
}

fn partitions(disk: &Path) -> Command {
    let mut command = blockyard();
    command.arg("partitions").arg(disk);
    command
}

const GPT: &str = "label: gpt
start=2048, size=4096, type=uefi, name=\"ESP\", attrs=\"RequiredPartition\"
size=8192, type=linux, name=\"root\"
";

#[test]
fn a_table_for_people() {
    let yard = Yard::new();
    let output = run(&mut partitions(&disk(&yard, GPT))).succeeded().stdout;
    assert_eq!(
        output,
        "| number |   start |     end |     size |             type | name |    flags |\n\
         | ------ | ------: | ------: | -------: | ---------------: | ---: | -------: |\n\
         | 1      | 1048576 | 3145728 | 2.00 MiB |       EFI System |  ESP | required |\n\
         | 2      | 3145728 | 7340032 | 4.00 MiB | Linux filesystem | root |          |\n"
    );
}

#[test]
fn json_for_programs() {
    let yard = Yard::new();
    let script = "label: dos\nstart=2048, size=4096, type=83, bootable\nsize=20480, type=5\nsize=2048, type=c\nsize=2048, type=83\nsize=2048, type=82\n";
    let json = run(partitions(&disk(&yard, script)).arg("--json")).succeeded().json();
    assert_eq!(json["scheme"], "mbr");
    assert_eq!(json["capacity_bytes"], DISK_BYTES);
    assert_eq!(json["warnings"], serde_json::json!([]));
    let rows = json["partitions"].as_array().unwrap();
    let numbers: Vec<_> = rows.iter().map(|row| row["number"].as_u64().unwrap()).collect();
    assert_eq!(numbers, [1, 2, 3, 4, 5]);
    let first = &rows[0];
    assert_eq!((&first["start_bytes"], &first["length_bytes"]), (&(2048 * 512).into(), &(4096 * 512).into()));
    assert_eq!((&first["type"], &first["type_name"]), (&"83".into(), &"Linux".into()));
    assert_eq!(first["flags"], serde_json::json!(["active"]));
    assert_eq!((&first["readable"], &first["writable"]), (&true.into(), &true.into()));
    assert_eq!((&rows[1]["readable"], &rows[1]["writable"]), (&false.into(), &false.into()));
}

#[test]
fn a_disk_without_a_table_is_no_error() {
    let yard = Yard::new();
    let plain = yard.sparse("disk.img", 1 << 20, &[(4096, 4096)], 1);
    assert_eq!(run(&mut partitions(&plain)).succeeded().stdout, "no partition table\n");
}

#[test]
fn a_damaged_copy_is_told_and_two_are_an_error() {
    let yard = Yard::new();
    let path = disk(&yard, GPT);
    let mut bytes = fs::read(&path).unwrap();
    bytes[512 + 40] ^= 1;
    fs::write(&path, &bytes).unwrap();
    let told = run(&mut partitions(&path));
    assert!(told.succeeded().stderr.contains("its backup counts"));
    let last = bytes.len() - 512;
    bytes[last + 40] ^= 1;
    fs::write(&path, &bytes).unwrap();
    run(&mut partitions(&path)).failed(1, &["disk.img", "is damaged", "checksum"]);
}

#[test]
fn two_tables_need_a_choice() {
    let yard = Yard::new();
    let path = disk(&yard, GPT);
    let mut bytes = fs::read(&path).unwrap();
    bytes[446 + 4] = 0x83;
    bytes[446 + 12..446 + 16].copy_from_slice(&1000u32.to_le_bytes());
    fs::write(&path, &bytes).unwrap();
    run(&mut partitions(&path)).failed(1, &["two valid partition tables", "with --table mbr or --table gpt"]);
    let part = format!("{},partition=1", path.display());
    run(&mut partitions(Path::new(&part))).failed(1, &["two valid partition tables", "with table=mbr or table=gpt"]);
    let mbr = run(partitions(&path).args(["--table", "mbr"])).succeeded().stdout;
    assert!(mbr.contains("Linux ") && !mbr.contains("root"), "{mbr}");
    let gpt = run(partitions(&path).args(["--table", "gpt"])).succeeded().stdout;
    assert!(gpt.contains("root"), "{gpt}");
}

/// As `qemu-img --force-share` would: listing is reading. What serves a disk has to have it for itself, even for
/// reading only, as with QEMU: a guest that caches what it reads is none the wiser when it changes.
#[test]
fn a_disk_that_another_program_writes_is_listed_but_not_served() {
    let yard = Yard::new();
    let path = disk(&yard, GPT);
    let socket = yard.path("qemu.sock");
    let blockdev = format!("driver=file,node-name=disk,filename={}", path.display());
    let export =
        format!("vhost-user-blk,id=e,node-name=disk,writable=on,addr.type=unix,addr.path={}", socket.display());
    let mut qemu = Command::new("qemu-storage-daemon");
    qemu.args(["--blockdev", &blockdev, "--export", &export]);
    let mut qemu = Ended(qemu.spawn().expect("qemu-storage-daemon comes with the package `qemu-system-common`"));
    while !socket.exists() {
        assert!(qemu.0.try_wait().unwrap().is_none(), "qemu-storage-daemon has ended");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }

    let told = run(&mut partitions(&path)).succeeded();
    let note = "has it open and may be changing it";
    assert!(told.stdout.contains("root"));
    assert!(told.stderr.contains("qemu-storage-d") && told.stderr.contains(note), "{}", told.stderr);
    let json = run(partitions(&path).arg("--json")).succeeded().json();
    assert!(json["warnings"][0].as_str().unwrap().contains(note));
    let mut serve = blockyard();
    serve.arg("serve").arg(format!("{},ro", path.display())).arg("--socket").arg(yard.path("ours.sock"));
    run(&mut serve).failed(1, &["disk.img is in use", "for writing"]);
}

/// Ends a process however the test ends.
struct Ended(std::process::Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_disk_that_is_not_there_is_one_sentence() {
    let yard = Yard::new();
    run(&mut partitions(&yard.path("absent.img"))).failed(1, &["absent.img"]);
}
