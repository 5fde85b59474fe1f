//! Images in which something is taken for a table that is none: a repair writes nothing over what can be read.

use super::super::{Qcow2Check, Qcow2CreateOptions, Qcow2Disk};
use super::open_to_change;
use crate::formats::{CheckReport, Repair};
use crate::{AllowedDirectories, FileOptions, read_bytes, write_bytes};
use std::fs;
use std::path::{Path, PathBuf};

const CLUSTER_BYTES: u64 = 4096;
const DISK_BYTES: u64 = 8 << 20;
const DATA_BYTES: u64 = 256 << 10;
const COPIED: u64 = 1 << 63;

/// An image with noise at the beginning of its disk, and, if wanted, a snapshot of that, of which the first half is
/// other noise now.
fn image(directory: &Path, has_snapshot: bool) -> (PathBuf, Vec<u8>) {
    let path = directory.join("image.qcow2");
    let allowed = AllowedDirectories::none();
    let options = Qcow2CreateOptions { cluster_bytes: CLUSTER_BYTES as u32, ..Qcow2CreateOptions::new(DISK_BYTES) };
    Qcow2Disk::create(&path, &options).unwrap();
    let fill = |seed: u64, length_bytes: u64| {
        let mut state = seed;
        let words = (0..length_bytes / 8).flat_map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state ^ state >> 29).to_be_bytes()
        });
        let disk = Qcow2Disk::open(&path, &FileOptions::default(), &allowed).unwrap();
        write_bytes(&disk, 0, &words.collect::<Vec<_>>()).unwrap();
    };
    fill(1, DATA_BYTES);
    if has_snapshot {
        Qcow2Disk::make_snapshot(&open_to_change(&path), "one", &allowed).unwrap();
        fill(2, DATA_BYTES / 2);
    }
    let bytes = fs::read(&path).unwrap();
    (path, bytes)
}

fn number(bytes: &[u8], at: u64) -> u64 {
    u64::from_be_bytes(bytes[at as usize..][..8].try_into().unwrap())
}

fn put(bytes: &mut [u8], at: u64, value: u64) {
    bytes[at as usize..][..8].copy_from_slice(&value.to_be_bytes());
}

/// Where a cluster of the disk lies that has noise.
fn data_at(bytes: &[u8], cluster: u64) -> u64 {
    let l2 = number(bytes, number(bytes, 40)) & !COPIED;
    number(bytes, l2 + cluster * 8) & !COPIED
}

/// What can be read, by clusters.
fn shown(path: &Path) -> Vec<Option<Vec<u8>>> {
    let options = FileOptions { read_only: true, lock: false, ..FileOptions::default() };
    let disk = Qcow2Disk::open(path, &options, &AllowedDirectories::none()).unwrap();
    let clusters = (0..DISK_BYTES).step_by(CLUSTER_BYTES as usize);
    clusters.map(|offset| read_bytes(&disk, offset..offset + CLUSTER_BYTES).ok()).collect()
}

fn run(path: &Path, repair: Repair, salvages: bool) -> (CheckReport, String) {
    let mut check = Qcow2Check::open(&open_to_change(path), true).unwrap();
    if salvages {
        check.salvage();
    }
    let mut said = String::new();
    let report = check.run(repair, &mut |line| said.extend([line, "\n"])).unwrap();
    (report, said)
}

/// What could be read at the beginning of the disk reads the same after each repair.
fn expect_data_to_stay(path: &Path, bytes: &[u8]) {
    let data = ..(DATA_BYTES / CLUSTER_BYTES) as usize;
    for (repair, salvages) in [(Repair::Leaks, false), (Repair::All, false), (Repair::All, true)] {
        fs::write(path, bytes).unwrap();
        let before = shown(path);
        assert!(before[data].iter().all(Option::is_some));
        assert!(run(path, repair, salvages).0.corruptions > 0, "{repair:?}");
        assert!(shown(path)[data] == before[data], "{repair:?}, {salvages}");
    }
}

#[test]
fn data_that_an_entry_takes_for_a_table_stay_as_they_are() {
    let directory = blockyard_fuzz::memory_directory().unwrap();
    let (path, mut bytes) = image(directory.path(), false);
    let (l1, data) = (number(&bytes, 40), data_at(&bytes, 10));
    put(&mut bytes, l1 + 3 * 8, data | COPIED);
    expect_data_to_stay(&path, &bytes);
    // The same in words that look like entries: their marks are wrong, and one leads behind the end.
    let end = bytes.len() as u64;
    for (word, entry) in [(0, data), (1, data_at(&bytes, 11)), (2, end + CLUSTER_BYTES), (3, 1 << 9 | 1)] {
        put(&mut bytes, data + word * 8, entry);
    }
    expect_data_to_stay(&path, &bytes);
    // Without one that leads out, so that there may be copies.
    put(&mut bytes, data + 2 * 8, 0);
    bytes[data as usize + 32..][..CLUSTER_BYTES as usize - 32].fill(0);
    expect_data_to_stay(&path, &bytes);
}

#[test]
fn data_that_a_snapshot_takes_for_its_table_stay_as_they_are() {
    let directory = blockyard_fuzz::memory_directory().unwrap();
    let (path, mut bytes) = image(directory.path(), true);
    let (snapshots, data) = (number(&bytes, 64), data_at(&bytes, 10));
    put(&mut bytes, snapshots, data);
    expect_data_to_stay(&path, &bytes);
}

/// Whose clusters they are is not known, so that nobody gets them.
#[test]
fn a_snapshot_that_is_lost_keeps_what_it_had() {
    let directory = blockyard_fuzz::memory_directory().unwrap();
    let (path, bytes) = image(directory.path(), true);
    let snapshots = number(&bytes, 64) as usize;
    for repair in [Repair::None, Repair::Leaks, Repair::All] {
        let mut bytes = bytes.clone();
        bytes[snapshots..][..512].fill(0);
        fs::write(&path, &bytes).unwrap();
        let (report, said) = run(&path, repair, false);
        assert!(report.corruptions > 0 && report.leaks_fixed == 0, "{repair:?}: {report:?}");
        assert!(said.contains("zeros in the place of a snapshot"), "{said}");
    }
}

/// A cluster that has one use alone from then on is marked so, as it is by qemu-img.
#[test]
fn leaks_that_are_mended_leave_nothing_that_is_wrong() {
    let directory = blockyard_fuzz::memory_directory().unwrap();
    let (path, mut bytes) = image(directory.path(), true);
    // The snapshot's L1 table has lost its entries.
    let l1 = number(&bytes, number(&bytes, 64)) as usize;
    bytes[l1..][..16].fill(0);
    fs::write(&path, &bytes).unwrap();
    let before = shown(&path);
    let (found, _) = run(&path, Repair::None, false);
    assert!(found.corruptions == 0 && found.leaks > 0, "{found:?}");
    let (mended, said) = run(&path, Repair::Leaks, false);
    assert!((mended.corruptions, mended.leaks) == (0, 0) && mended.leaks_fixed == found.leaks, "{mended:?}: {said}");
    assert!(shown(&path) == before);
}
