//! Tables that sfdisk makes are read as sfdisk reads them.

use crate::image::Image;
use blockyard_block::partition_table::{PartitionKind, PartitionTable, Scheme};
use serde_json::Value;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

pub(crate) const DOS_WITH_LOGICAL: &str = "label: dos
start=2048, size=4096, type=83, bootable
size=40960, type=f
size=4096, type=c
size=2048, type=83
size=4096, type=82
size=2048, type=83
start=30000, size=1000, type=8e
start=20480, size=1000, type=83
";

pub(crate) const GPT: &str = "label: gpt
start=2048, size=4096, type=uefi, name=\"EFI system\"
size=8192, type=linux, name=\"größer als 7 Ω\", attrs=\"RequiredPartition,GUID:60\"
start=40000, size=1000, type=swap
";

/// A disk of this many bytes with the table that `script` says.
pub(crate) fn image(script: &str, bytes: u64) -> Image {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("disk.img");
    File::create(&path).unwrap().set_len(bytes).unwrap();
    write_table(&path, script);
    Image { bytes: fs::read(&path).unwrap(), block_bytes: 512 }
}

fn sfdisk(arguments: &[&str], disk: &Path, input: &str) -> Vec<u8> {
    let mut command = Command::new("sfdisk");
    command.args(arguments).arg(disk).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("sfdisk comes with the package `fdisk`");
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "sfdisk {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

fn write_table(disk: &Path, script: &str) {
    sfdisk(&["--quiet", "--no-reread", "--no-tell-kernel"], disk, script);
}

/// Number, first block, length, type and name.
type Row = (u32, u64, u64, String, String);

fn rows_of_sfdisk(disk: &Path) -> Vec<Row> {
    let json: Value = serde_json::from_slice(&sfdisk(&["--json"], disk, "")).unwrap();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let row = |partition: &Value| {
        let node = text(&partition["node"]);
        let digits = node.len() - node.trim_end_matches(|letter: char| letter.is_ascii_digit()).len();
        let number = node[node.len() - digits..].parse().unwrap();
        let kind = text(&partition["type"]);
        let (start, size) = (partition["start"].as_u64().unwrap(), partition["size"].as_u64().unwrap());
        (number, start, size, if kind.len() == 1 { format!("0{kind}") } else { kind }, text(&partition["name"]))
    };
    let partitions = json["partitiontable"]["partitions"].as_array().expect("a table with partitions");
    let mut rows: Vec<Row> = partitions.iter().map(row).collect();
    rows.sort();
    rows
}

fn rows_of_ours(table: &PartitionTable, block_bytes: u32) -> Vec<Row> {
    let block_bytes = u64::from(block_bytes);
    let row = |partition: &blockyard_block::partition_table::Partition| {
        let range = &partition.range_bytes;
        let length = (range.end - range.start) / block_bytes;
        let (kind, name) = (partition.kind.to_string(), partition.name.clone());
        (partition.number, range.start / block_bytes, length, kind, name)
    };
    table.partitions.iter().map(row).collect()
}

fn reads_as_sfdisk_does(disk: &Path, block_bytes: u32) -> PartitionTable {
    let image = Image { bytes: fs::read(disk).unwrap(), block_bytes };
    let table = image.read().unwrap();
    assert_eq!(rows_of_ours(&table, block_bytes), rows_of_sfdisk(disk));
    assert_eq!(table.warnings, []);
    table
}

fn disk_file(directory: &tempfile::TempDir, bytes: u64) -> PathBuf {
    let path = directory.path().join("disk.img");
    File::create(&path).unwrap().set_len(bytes).unwrap();
    path
}

#[test]
fn a_dos_table_with_logical_partitions() {
    let directory = tempfile::tempdir().unwrap();
    let disk = disk_file(&directory, 64 << 20);
    write_table(&disk, DOS_WITH_LOGICAL);
    let table = reads_as_sfdisk_does(&disk, 512);
    assert_eq!(table.scheme, Some(Scheme::Mbr));
    assert_eq!(table.partitions.iter().map(|partition| partition.number).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(table.partitions[0].attributes, 0x80);
    assert_eq!(table.partitions[1].kind, PartitionKind::Mbr(0x0f));
}

#[test]
fn logical_partitions_move_up_when_one_is_deleted() {
    let directory = tempfile::tempdir().unwrap();
    let disk = disk_file(&directory, 64 << 20);
    write_table(&disk, DOS_WITH_LOGICAL);
    for number in ["5", "6"] {
        sfdisk_delete(&disk, number);
        reads_as_sfdisk_does(&disk, 512);
    }
}

fn sfdisk_delete(disk: &Path, number: &str) {
    let mut command = Command::new("sfdisk");
    command.args(["--quiet", "--no-reread", "--no-tell-kernel", "--delete"]).arg(disk).arg(number);
    assert!(command.status().unwrap().success());
}

#[test]
fn sixty_logical_partitions() {
    let directory = tempfile::tempdir().unwrap();
    let disk = disk_file(&directory, 256 << 20);
    let logical = "size=2048, type=83\n".repeat(56);
    write_table(&disk, &format!("label: dos\nstart=2048, type=5\n{logical}"));
    let table = reads_as_sfdisk_does(&disk, 512);
    assert!(table.partitions.len() > 50, "{}", table.partitions.len());
}

#[test]
fn a_gpt_with_names_and_attributes() {
    let directory = tempfile::tempdir().unwrap();
    let disk = disk_file(&directory, 64 << 20);
    write_table(&disk, GPT);
    let table = reads_as_sfdisk_does(&disk, 512);
    assert_eq!(table.scheme, Some(Scheme::Gpt));
    assert_eq!(table.partitions[1].attributes, 1 << 60 | 1);
    assert_eq!(table.partitions[0].kind.name(), Some("EFI System"));
}

#[test]
fn a_gpt_with_another_number_of_entries() {
    for entries in [4, 1000] {
        let directory = tempfile::tempdir().unwrap();
        let disk = disk_file(&directory, 64 << 20);
        write_table(&disk, &GPT.replace("label: gpt", &format!("label: gpt\ntable-length: {entries}")));
        reads_as_sfdisk_does(&disk, 512);
    }
}

/// A loop device has any block size; sfdisk takes a file's as 512 always.
struct LoopDevice(String);

impl LoopDevice {
    fn on(file: &Path, block_bytes: u32) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("not root: no loop device to test on");
            return None;
        }
        let mut losetup = Command::new("losetup");
        losetup.args(["--find", "--show", "--sector-size", &block_bytes.to_string()]).arg(file);
        let output = losetup.output().expect("losetup comes with the package `mount`");
        if !output.status.success() {
            eprintln!("no loop device to test on: {}", String::from_utf8_lossy(&output.stderr));
            return None;
        }
        Some(Self(String::from_utf8(output.stdout).unwrap().trim().into()))
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.0]).status();
    }
}

#[test]
fn tables_in_blocks_of_4096_bytes() {
    for script in [
        "label: dos\nstart=256, size=512, type=83\nsize=4096, type=5\nsize=512, type=c\nsize=256, type=83\nsize=256, type=83\nsize=256, type=83\n",
        "label: gpt\nstart=256, size=512, name=one\nsize=1024, name=two\n",
    ] {
        let directory = tempfile::tempdir().unwrap();
        let file = disk_file(&directory, 64 << 20);
        let Some(device) = LoopDevice::on(&file, 4096) else { return };
        let disk = Path::new(&device.0);
        write_table(disk, script);
        let table = reads_as_sfdisk_does(disk, 4096);
        assert!(table.partitions.len() >= 2);
        let as_512 = Image { bytes: fs::read(disk).unwrap(), block_bytes: 512 };
        if table.scheme == Some(Scheme::Gpt) {
            let error = as_512.read().unwrap_err().to_string();
            assert!(error.contains("open it with block-size=4096"), "{error}");
        }
    }
}
