//! New images with more compressed clusters than are remembered: refcounts are written in between.

use super::super::{Qcow2CreateOptions, Qcow2Features, Qcow2Writer};
use super::fuzz::{checked, open, options};
use super::output_of;
use crate::conversion::{Conversion, ConversionOptions, Qcow2Target};
use crate::formats::Repair;
use crate::{Disk, FileDisk, read_bytes};
use std::fs::{self, File};
use std::process::Command;

const DISK_BYTES: u64 = 4 << 20;

#[test]
fn refcounts_that_are_written_before_the_end_are_right() {
    let directory = blockyard_fuzz::memory_directory().unwrap();
    let [raw, path] = ["raw", "image"].map(|name| directory.path().join(name));
    // Clusters that become small, those that become little smaller, and those that do not.
    let mut state = 1_u32;
    let mut noise = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    let bytes: Vec<u8> = (0..DISK_BYTES)
        .map(|at| match at >> 16 & 3 {
            0 => (at / 16) as u8,
            1 if at % 4 == 0 => noise(),
            1 => 7,
            2 => noise(),
            _ => 0,
        })
        .collect();
    fs::write(&raw, &bytes).unwrap();
    for (cluster_bytes, refcount_order, version) in [(512, 4, 3), (512, 6, 3), (512, 1, 3), (512, 0, 3), (4096, 4, 2)] {
        let file = File::options().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
        let features = Qcow2Features { refcount_order, version, ..Qcow2Features::default() };
        let create = Qcow2CreateOptions { cluster_bytes, features, ..Qcow2CreateOptions::new(DISK_BYTES) };
        let writer = Qcow2Writer::new(file, &create).unwrap();
        writer.layout.lock().unwrap().sharers.clusters_max = 100;
        let source = FileDisk::open(&raw, &options(true)).unwrap();
        let conversion = ConversionOptions { threads: 2, depth: 1, zero_run_bytes: Some(4096) };
        let target = Qcow2Target { writer: &writer, compress: true, behind: None };
        Conversion::to_qcow2(&source, target, conversion).run(|_| true).unwrap();
        let blocks = writer.layout.lock().unwrap().sharers.blocks().len();
        writer.finish().unwrap();
        // Others have too few clusters for a block of wide ones.
        assert!(blocks > 0 || (cluster_bytes, refcount_order) != (512, 4), "{blocks}");

        let found = checked(&path, Repair::None).unwrap();
        assert_eq!((found.corruptions, found.leaks), (0, 0), "{cluster_bytes}, {refcount_order}");
        assert!(found.compressed_clusters > 0);
        let disk = open(&path, true).unwrap();
        assert!(read_bytes(&disk, 0..disk.geometry().capacity_bytes).unwrap() == bytes);
        let output = output_of(Command::new("qemu-img").args(["check", "-U", "-q", "-f", "qcow2"]).arg(&path));
        assert!(output.status.success(), "{output:?}");
    }
}
