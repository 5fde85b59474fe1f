//! What is found of an image does not depend on how much of its file is looked at together.

use super::super::check::{self, Windows};
use super::super::header::Header;
use super::super::{Qcow2Check, own_file};
use super::open_to_change;
use crate::formats::{CheckReport, Repair};
use crate::{FileOptions, OpenedFile, Qcow2BitmapAction, Qcow2CreateOptions, Qcow2Disk, write_bytes};
use std::fs::{self, File};
use std::num::NonZeroU64;
use std::path::Path;
use std::sync::atomic::AtomicBool;

/// Clusters that the check looks at together: as many as it likes, or so many.
const CHECKED: [Option<NonZeroU64>; 3] = [None, NonZeroU64::new(5), NonZeroU64::new(64)];

/// Clusters that the look before an image is written to has together, without snapshots, with them, and with compressed
/// clusters; what may lie behind the file's end is the same.
const SCANNED: [(u64, u64, u64); 3] = [(1 << 26, 1 << 25, 1 << 24), (96, 64, 32), (1 << 26, 32, 32)];
const BEHIND_CLUSTERS: u64 = 256;

/// Whether all windows find the same in the image of these bytes, and repair the same. `scratch` is written to.
pub(super) fn agree(bytes: &[u8], scratch: &Path) {
    let checked = |repair, window: Option<NonZeroU64>| -> Option<(CheckReport, Vec<String>)> {
        fs::write(scratch, bytes).unwrap();
        let image = OpenedFile::open(scratch, repair == Repair::None).ok()?;
        let mut check = Qcow2Check::open(&image, repair != Repair::None).ok()?;
        window.into_iter().for_each(|window| check.set_window(window));
        let mut lines = Vec::new();
        let report = check.run(repair, &mut |line| lines.push(line.to_owned()));
        lines.sort_unstable();
        // There may be more uses of a cluster than its refcount can say.
        report.ok().map(|report| (report, lines))
    };
    for repair in [Repair::None, Repair::Leaks, Repair::All] {
        let wanted = checked(repair, CHECKED[0]);
        let repaired = fs::read(scratch).unwrap();
        for window in &CHECKED[1..] {
            assert_eq!(checked(repair, *window), wanted, "{repair:?} in windows of {window:?} clusters");
            assert!(fs::read(scratch).unwrap() == repaired, "{repair:?} in windows of {window:?} clusters");
        }
    }
    let Ok(header) = Header::parse(bytes, bytes.len() as u64) else { return };
    let scanned = |(clusters, of_snapshots, of_compressed)| {
        fs::write(scratch, bytes).unwrap();
        let file = own_file::writable(&File::options().read(true).write(true).open(scratch).unwrap()).unwrap();
        let windows = Windows { clusters, of_snapshots, of_compressed, behind: BEHIND_CLUSTERS };
        check::check_in_windows(&file, &header, &AtomicBool::new(false), windows)
    };
    let wanted = scanned(SCANNED[0]);
    let mended = fs::read(scratch).unwrap();
    for windows in &SCANNED[1..] {
        let found = scanned(*windows);
        let (missing, wanted_missing) = (found.as_ref().ok(), wanted.as_ref().ok());
        assert_eq!(missing, wanted_missing, "in windows of {windows:?} clusters: {found:?} and {wanted:?}");
        // What is refused may have been mended in part.
        assert!(found.is_err() || fs::read(scratch).unwrap() == mended, "in windows of {windows:?} clusters");
    }
}

/// Snapshots, bitmaps, and damage that reaches from one window into another: two tables in one place, blocks of
/// refcounts that are others' tables, counts and marks that are wrong, entries behind the end of the file.
#[test]
fn damage_in_several_windows_is_found_as_in_one() {
    const CLUSTER_BYTES: u64 = 512;
    let directory = blockyard_fuzz::memory_directory().unwrap();
    let (path, scratch) = (directory.path().join("image"), directory.path().join("scratch"));
    let options = Qcow2CreateOptions { cluster_bytes: CLUSTER_BYTES as u32, ..Qcow2CreateOptions::new(256 << 10) };
    Qcow2Disk::create(&path, &options).unwrap();
    let nothing = crate::AllowedDirectories::none();
    Qcow2Disk::change_bitmap(
        &open_to_change(&path),
        "bitmap",
        &[Qcow2BitmapAction::Add { granularity_bytes: Some(512) }],
        None,
    )
    .unwrap();
    for (number, name) in [(1, "one"), (2, "two"), (3, "three")] {
        let disk = Qcow2Disk::open(&path, &FileOptions::default(), &nothing).unwrap();
        for offset in (number * 512..256 << 10).step_by(37 << 10) {
            write_bytes(&disk, offset, &[number as u8; 4096]).unwrap();
        }
        drop(disk);
        Qcow2Disk::make_snapshot(&open_to_change(&path), name, &nothing).unwrap();
    }
    let good = fs::read(&path).unwrap();
    agree(&good, &scratch);
    let number = |at: u64| u64::from_be_bytes(good[at as usize..][..8].try_into().unwrap());
    let (l1, refcounts) = (number(40), number(48));
    let tables: Vec<u64> = (0..4).map(|index| number(l1 + index * 8) & !(1 << 63)).collect();
    let clusters = good.len() as u64 / CLUSTER_BYTES;
    assert!(clusters > 200, "{clusters}");
    let places =
        [l1, l1 + 8, refcounts, tables[0], tables[1] + 8, tables[2] + 64, number(refcounts), number(refcounts) + 128];
    let values = [
        0,
        number(l1),
        number(refcounts),
        tables[3],
        tables[1] | 1 << 63,
        (clusters - 1) * 512,
        1 << 40,
        clusters * 512,
    ]
    .into_iter()
    .chain([refcounts, l1, number(tables[0]), 0x0003_0000_0001_0002, 1 << 62 | tables[2], 1 << 62 | 1 << 40]);
    for at in places {
        for value in values.clone() {
            let mut bytes = good.clone();
            bytes[at as usize..][..8].copy_from_slice(&value.to_be_bytes());
            agree(&bytes, &scratch);
        }
    }
}
