//! Conversions to extended L2 entries store what QEMU's does: those parts of clusters that have data.

use super::super::{Qcow2CreateOptions, Qcow2Disk, Qcow2Features, Qcow2MappingKind, Qcow2Writer};
use super::fuzz::{open, options};
use super::output_of;
use crate::conversion::{Conversion, ConversionOptions, Qcow2Target};
use crate::formats::random::Random;
use crate::{Disk, FileDisk, read_bytes};
use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

/// It ends within a cluster, and within a part of one.
const DISK_BYTES: u64 = (5 << 20) + 1536;

/// Data and zeros by turns, many shorter than a part of a large cluster.
fn contents() -> Vec<u8> {
    let (mut random, mut bytes) = (Random(1), Vec::new());
    while (bytes.len() as u64) < DISK_BYTES {
        let (pages, byte) = ([1, 1, 2, 3, 16, 40][random.below(6) as usize], 1 + random.below(255) as u8);
        bytes.resize(bytes.len() + pages * 4096, if random.one_of(2) { byte } else { 0 });
    }
    bytes.truncate(DISK_BYTES as usize);
    bytes
}

/// The runs of the disk that are data in the image.
fn data_of(disk: &Qcow2Disk) -> Vec<Range<u64>> {
    let (mut runs, mut at): (Vec<Range<u64>>, u64) = (Vec::new(), 0);
    while at < DISK_BYTES {
        let (mapping, _) = disk.map(at..DISK_BYTES).unwrap();
        let end = at + mapping.length_bytes;
        if matches!(mapping.kind, Qcow2MappingKind::Data { .. } | Qcow2MappingKind::Reserved { .. }) {
            match runs.last_mut() {
                Some(last) if last.end == at => last.end = end,
                _ => runs.push(at..end),
            }
        }
        at = end;
    }
    runs
}

#[test]
fn zeros_of_a_cluster_are_left_out_as_by_qemu() {
    let directory = blockyard_fuzz::memory_directory().unwrap();
    let [raw, ours, theirs] = ["raw", "ours", "theirs"].map(|name| directory.path().join(name));
    let bytes = contents();
    fs::write(&raw, &bytes).unwrap();
    let qemu_img = |arguments: &[&str], files: &[&Path]| {
        let output = output_of(Command::new("qemu-img").args(arguments).args(files));
        assert!(output.status.success(), "{output:?}");
    };
    for cluster_bytes in [16 << 10, 64 << 10, 128 << 10, 2 << 20] {
        let made = format!("cluster_size={cluster_bytes},extended_l2=on");
        qemu_img(&["convert", "-q", "-f", "raw", "-O", "qcow2", "-o", &made], &[&raw, &theirs]);
        let file = File::options().read(true).write(true).create(true).truncate(true).open(&ours).unwrap();
        let features = Qcow2Features { has_extended_l2: true, ..Qcow2Features::default() };
        let create = Qcow2CreateOptions { cluster_bytes, features, ..Qcow2CreateOptions::new(DISK_BYTES) };
        let writer = Qcow2Writer::new(file, &create).unwrap();
        let source = FileDisk::open(&raw, &options(true)).unwrap();
        let conversion = ConversionOptions { threads: 2, depth: 1, zero_run_bytes: Some(4096) };
        let target = Qcow2Target { writer: &writer, compress: false, behind: None };
        Conversion::to_qcow2(&source, target, conversion).run(|_| true).unwrap();
        writer.finish().unwrap();

        let disk = open(&ours, true).unwrap();
        assert_eq!(data_of(&disk), data_of(&open(&theirs, true).unwrap()), "{cluster_bytes}");
        assert!(read_bytes(&disk, 0..disk.geometry().capacity_bytes).unwrap() == bytes);
        qemu_img(&["check", "-U", "-q", "-f", "qcow2"], &[&ours]);
        qemu_img(&["compare", "-U", "-q", "-f", "raw", "-F", "qcow2"], &[&raw, &ours]);
        let [mine, yours] = [&ours, &theirs].map(|path| fs::metadata(path).unwrap());
        // QEMU's file may end within its last cluster.
        let is_as_small = mine.len() * 100 <= (yours.len() + u64::from(cluster_bytes)) * 101
            && mine.blocks() * 100 <= yours.blocks() * 101;
        let [mine, yours] = [mine, yours].map(|metadata| [metadata.len(), metadata.blocks()]);
        assert!(is_as_small, "with clusters of {cluster_bytes} bytes, ours has {mine:?}, theirs {yours:?}");
    }
}
