//! Images in which something is taken for a table that is none: a repair writes nothing over what can be read.

use super::super::{Qcow2Amendment, Qcow2Check, Qcow2CreateOptions, Qcow2Disk, Qcow2Features};
use super::{open_to_change, output_of};
use crate::formats::{CheckReport, Repair};
use crate::{AllowedDirectories, FileOptions, read_bytes, write_bytes};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const CLUSTER_BYTES: u64 = 4096;
const DISK_BYTES: u64 = 8 << 20;
const DATA_BYTES: u64 = 256 << 10;
const COPIED: u64 = 1 << 63;

/// An image with noise at the beginning of its disk, and, if wanted, a snapshot of that, of which the first half is
/// other noise now.
fn image(directory: &Path, has_snapshot: bool) -> (PathBuf, Vec<u8>) {
    image_with(directory, has_snapshot, Qcow2Features::default())
}

fn image_with(directory: &Path, has_snapshot: bool, features: Qcow2Features) -> (PathBuf, Vec<u8>) {
    let path = directory.join("image.qcow2");
    let allowed = AllowedDirectories::none();
    let cluster_bytes = if features.has_extended_l2 { 16 << 10 } else { CLUSTER_BYTES as u32 };
    let options = Qcow2CreateOptions { cluster_bytes, features, ..Qcow2CreateOptions::new(DISK_BYTES) };
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

pub(super) fn run(path: &Path, repair: Repair, salvages: bool) -> (CheckReport, String) {
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
    // Its date is all that something else than zeros says then.
    for (value, what) in [(0, "zeros"), (0xff, "something else")] {
        for repair in [Repair::None, Repair::Leaks, Repair::All] {
            let mut bytes = bytes.clone();
            bytes[snapshots..][..512].fill(0);
            bytes[snapshots + 16..][..8].fill(value);
            fs::write(&path, &bytes).unwrap();
            let (report, said) = run(&path, repair, false);
            assert!(report.corruptions > 0 && report.leaks_fixed == 0, "{repair:?}: {report:?}");
            assert!(said.contains(&format!("{what} in the place of a snapshot")), "{said}");
        }
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
    let bytes = fs::read(&path).unwrap();
    let amendment = Qcow2Amendment { refcount_order: Some(5), ..Qcow2Amendment::default() };
    amendment.apply(&open_to_change(&path), &AllowedDirectories::none()).unwrap();
    let (amended, said) = run(&path, Repair::None, false);
    assert!((amended.corruptions, amended.leaks) == (0, 0) && shown(&path) == before, "{amended:?}: {said}");
    fs::write(&path, bytes).unwrap();
    let (mended, said) = run(&path, Repair::Leaks, false);
    assert!((mended.corruptions, mended.leaks) == (0, 0) && mended.leaks_fixed == found.leaks, "{mended:?}: {said}");
    assert!(shown(&path) == before);
}

/// What cannot be read is no clean image: parts that are zeros and data, data that lie nowhere, and, of version 2,
/// zeros.
#[test]
fn entries_that_make_no_sense_are_found() {
    let directory = blockyard_fuzz::memory_directory().unwrap();
    let extended = Qcow2Features { has_extended_l2: true, ..Qcow2Features::default() };
    let (path, good) = image_with(directory.path(), false, extended);
    let l2 = number(&good, number(&good, 40)) & !COPIED;
    for (word, parts) in [(number(&good, l2), u64::MAX), (0, 1), (number(&good, l2) | 1, 1)] {
        let mut bytes = good.clone();
        put(&mut bytes, l2, word);
        put(&mut bytes, l2 + 8, parts);
        expect_found(&path, &bytes);
    }
    fs::remove_file(&path).unwrap();
    let (path, good) = image_with(directory.path(), false, Qcow2Features { version: 2, ..Qcow2Features::default() });
    let l2 = number(&good, number(&good, 40)) & !COPIED;
    for entry in [number(&good, l2) | 1, 1] {
        let mut bytes = good.clone();
        put(&mut bytes, l2, entry);
        expect_found(&path, &bytes);
    }
}

/// An entry that cannot be read, and that a check counts, whether it repairs or not.
fn expect_found(path: &Path, bytes: &[u8]) {
    for repair in [Repair::None, Repair::Leaks, Repair::All] {
        fs::write(path, bytes).unwrap();
        assert_eq!(shown(path)[0], None);
        assert!(run(path, repair, false).0.corruptions > 0, "{repair:?}");
    }
}

/// The end of a file within an L2 table is no damage to QEMU, and said.
#[test]
fn a_table_that_is_cut_off_is_noted() {
    let directory = blockyard_fuzz::memory_directory().unwrap();
    let (path, mut bytes) = image(directory.path(), false);
    let (l1, end) = (number(&bytes, 40), bytes.len() as u64);
    put(&mut bytes, l1 + 8, end | COPIED);
    bytes.extend([0; 512]);
    fs::write(&path, &bytes).unwrap();
    let (_, said) = run(&path, Repair::All, false);
    assert!(said.contains(&format!("NOTE the L2 table at {end:#x} is cut off")), "{said}");
}

/// What is compressed ends before the end of what its entry says: that the rest of this is behind the end of the file
/// is no loss.
#[test]
fn a_compressed_cluster_that_is_whole_is_not_lost() {
    let directory = blockyard_fuzz::memory_directory().unwrap();
    let [raw, path] = ["raw", "image.qcow2"].map(|name| directory.path().join(name));
    let text: Vec<_> = (0..DISK_BYTES).map(|at| (at % 251 * (at >> 12) % 256) as u8).collect();
    fs::write(&raw, text).unwrap();
    let mut command = Command::new("qemu-img");
    command.args(["convert", "-c", "-f", "raw", "-O", "qcow2", "-o", "cluster_size=4k"]).args([&raw, &path]);
    assert!(output_of(&mut command).status.success());
    let mut bytes = fs::read(&path).unwrap();
    // The last of them: 58 bits say where it is, and the next four how many sectors more there are.
    let place = |entry: u64| entry & ((1 << 58) - 1);
    let l1 = number(&bytes, 40);
    let tables = (0..DISK_BYTES / (CLUSTER_BYTES * 512)).map(|index| number(&bytes, l1 + index * 8) & !COPIED);
    let entries = tables.flat_map(|table| (0..512).map(move |index| table + index * 8));
    let last = entries.filter(|&at| number(&bytes, at) >> 62 == 1).max_by_key(|&at| place(number(&bytes, at))).unwrap();
    let entry = number(&bytes, last);
    let end = place(entry) / 512 + (entry >> 58 & 15) + 1;
    let file_end = (end * 512).next_multiple_of(CLUSTER_BYTES);
    let more = file_end / 512 + 1 - end;
    put(&mut bytes, last, entry + (more << 58));
    bytes.truncate(file_end as usize);
    fs::write(&path, &bytes).unwrap();
    let before = shown(&path);
    assert!(before.iter().all(Option::is_some));
    let (report, said) = run(&path, Repair::All, true);
    assert!(report.zeroed_bytes == 0 && shown(&path) == before, "{report:?}: {said}");
}

/// A snapshot that shows one cluster twice would make that of the disk.
#[test]
fn a_snapshot_with_two_uses_of_a_cluster_is_not_applied() {
    let directory = blockyard_fuzz::memory_directory().unwrap();
    let (path, good) = image(directory.path(), true);
    let l1 = number(&good, number(&good, 64));
    let l2 = number(&good, l1) & !COPIED;
    for (to, from) in [(l1 + 8, l1), (l2 + 8, l2)] {
        let mut bytes = good.clone();
        bytes.copy_within(from as usize..from as usize + 8, to as usize);
        fs::write(&path, &bytes).unwrap();
        run(&path, Repair::All, false);
        let applied = Qcow2Disk::apply_snapshot(&open_to_change(&path), "one", &AllowedDirectories::none());
        assert!(applied.unwrap_err().to_string().contains("two uses of one cluster"));
        assert_eq!(run(&path, Repair::None, false).0.corruptions, 0);
    }
    fs::write(&path, &good).unwrap();
    Qcow2Disk::apply_snapshot(&open_to_change(&path), "one", &AllowedDirectories::none()).unwrap();
}

/// Two snapshots with one table are refused by who writes, and no clean image.
#[test]
fn snapshots_that_share_a_table_are_damage() {
    let directory = blockyard_fuzz::memory_directory().unwrap();
    let (path, _) = image(directory.path(), true);
    Qcow2Disk::make_snapshot(&open_to_change(&path), "two", &AllowedDirectories::none()).unwrap();
    let mut bytes = fs::read(&path).unwrap();
    let first = number(&bytes, 64) as usize;
    let length = |at: usize| usize::from(bytes[at + 13]) + usize::from(bytes[at + 15]) + usize::from(bytes[at + 39]);
    let second = first + (40 + length(first)).next_multiple_of(8);
    bytes.copy_within(first..first + 8, second);
    fs::write(&path, &bytes).unwrap();
    assert!(run(&path, Repair::All, false).0.corruptions > 0);
    Qcow2Disk::open(&path, &FileOptions::default(), &AllowedDirectories::none()).unwrap_err();
}
