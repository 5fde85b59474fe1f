//! However an image's tables point at each other, what is read of it is bounded by the length of its file.

use super::super::header::Header;
use super::super::repair::Qcow2Check;
use super::super::{chain, check};
use crate::formats::{Repair, WritableFile};
use crate::{AllowedDirectories, FileOptions};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

const CLUSTER_BITS: u32 = 12;
const CLUSTER_BYTES: u64 = 1 << CLUSTER_BITS;
const FILE_BYTES: u64 = 4 << 20;

/// What all of a table's entries point at.
const TARGET: u64 = CLUSTER_BYTES;
/// Where the tables are, each a quarter of the file but for the first, which has the header and their target.
const REFCOUNTS: u64 = 1 << 20;
const L1: u64 = 2 << 20;
const DIRECTORY: u64 = 3 << 20;
const TABLE_BYTES: u64 = 1 << 20;

/// An image as somebody made it who means ill.
#[derive(Default)]
struct Forged {
    refcount_clusters: u32,
    l1_entries: u32,
    snapshots: u32,
    bitmaps: u32,
    parts: Vec<(u64, Vec<u8>)>,
}

impl Forged {
    fn file(&self) -> std::fs::File {
        let mut header = b"QFI\xfb\0\0\0\x03".to_vec();
        header.extend([0; 12]);
        header.extend(CLUSTER_BITS.to_be_bytes());
        header.extend((u64::from(self.l1_entries) << 21).to_be_bytes());
        header.extend(0_u32.to_be_bytes());
        header.extend(self.l1_entries.to_be_bytes());
        header.extend(L1.to_be_bytes());
        header.extend(REFCOUNTS.to_be_bytes());
        header.extend(self.refcount_clusters.to_be_bytes());
        header.extend(self.snapshots.to_be_bytes());
        header.extend(DIRECTORY.to_be_bytes());
        header.extend([0; 16]);
        header.extend(u64::from(self.bitmaps > 0).to_be_bytes());
        header.extend(4_u32.to_be_bytes());
        header.extend(104_u32.to_be_bytes());
        if self.bitmaps > 0 {
            header.extend(0x2385_2875_u32.to_be_bytes());
            header.extend(24_u32.to_be_bytes());
            header.extend(self.bitmaps.to_be_bytes());
            header.extend([0; 4]);
            header.extend(TABLE_BYTES.to_be_bytes());
            header.extend(DIRECTORY.to_be_bytes());
        }
        let file = tempfile::tempfile().unwrap();
        file.set_len(FILE_BYTES).unwrap();
        file.write_all_at(&header, 0).unwrap();
        self.parts.iter().for_each(|(at, bytes)| file.write_all_at(bytes, *at).unwrap());
        file
    }

    /// Checks it, repairs it, and looks at it as it is before it is written to: each reads it a few times at most.
    #[track_caller]
    fn is_read_within_bounds(&self, name: &str) {
        let image = |writable| WritableFile::new(self.file(), FILE_BYTES, writable, true);
        for (repair, times) in [(Repair::None, 2), (Repair::All, 8)] {
            let mut check = Qcow2Check::of(PathBuf::from(name), image(repair == Repair::All)).unwrap();
            let mut lines = 0;
            // What is found, and whether it can be repaired, is another matter.
            let _ = check.run(repair, &mut |_| lines += 1);
            let length_bytes = check.file.length_bytes();
            assert!(length_bytes <= 3 * FILE_BYTES, "{name}: {length_bytes} bytes after {repair:?}");
            let read_bytes = check.file.file.counts.read_bytes.load(Ordering::Relaxed);
            assert!(read_bytes <= times * FILE_BYTES, "{name}: {read_bytes} bytes for {repair:?}, {lines} lines");
        }
        let file = image(true);
        let mut first = vec![0; CLUSTER_BYTES as usize];
        file.read(&mut first, 0).unwrap();
        let _ = check::check(&file, &Header::parse(&first, FILE_BYTES).unwrap(), &AtomicBool::new(false));
        let read_bytes = file.file.counts.read_bytes.load(Ordering::Relaxed);
        assert!(read_bytes <= 2 * FILE_BYTES, "{name}: {read_bytes} bytes before writing");
    }
}

impl Forged {
    /// Goes through the whole disk as whoever converts or maps the image does: what that read of the file, and how it
    /// ended.
    fn walked(&self) -> (u64, Result<(), String>) {
        let (nothing, path) = (AllowedDirectories::none(), PathBuf::from("forged"));
        let options = FileOptions { read_only: true, lock: false, ..FileOptions::default() };
        let image = chain::open_in(self.file(), &path, &options, &nothing).unwrap().image;
        let (mut at, mut ended) = (0, Ok(()));
        while at < image.size_bytes && ended.is_ok() {
            let found = image.extents(at..image.size_bytes);
            ended = found.map(|extent| at += extent.length_bytes).map_err(|error| error.to_string());
        }
        let file = image.below[0].file.as_ref().unwrap();
        (file.file.counts.read_bytes.load(Ordering::Relaxed), ended)
    }
}

/// A table of which each entry is `entry`.
fn all(entry: u64) -> Vec<u8> {
    entry.to_be_bytes().repeat(TABLE_BYTES as usize / 8)
}

/// A cluster that looks like an L2 table of which each entry is the same data cluster.
fn l2() -> (u64, Vec<u8>) {
    (TARGET, (TARGET + CLUSTER_BYTES).to_be_bytes().repeat(512))
}

const ENTRIES: u32 = (TABLE_BYTES / 8) as u32;
const COPIED: u64 = 1 << 63;

#[test]
fn tables_that_point_at_one_place_are_read_once() {
    let refcounts = Forged {
        refcount_clusters: (TABLE_BYTES >> CLUSTER_BITS) as u32,
        parts: vec![(REFCOUNTS, all(TARGET))],
        ..Forged::default()
    };
    refcounts.is_read_within_bounds("every block of refcounts");
    let spread = (0..u64::from(ENTRIES)).flat_map(|index| (index % 256 * CLUSTER_BYTES).to_be_bytes()).collect();
    let refcounts = Forged {
        refcount_clusters: (TABLE_BYTES >> CLUSTER_BITS) as u32,
        parts: vec![(REFCOUNTS, spread)],
        ..Forged::default()
    };
    refcounts.is_read_within_bounds("every block of refcounts, of a few");
    for entry in [TARGET, TARGET | COPIED] {
        let l1 = Forged {
            refcount_clusters: 1,
            l1_entries: ENTRIES,
            parts: vec![(L1, all(entry)), l2()],
            ..Forged::default()
        };
        l1.is_read_within_bounds("every L2 table");
    }
}

#[test]
fn a_disk_is_looked_through_within_the_bounds_of_its_file() {
    // 256 GiB in one table of 4 KiB.
    let forged =
        Forged { refcount_clusters: 1, l1_entries: ENTRIES, parts: vec![(L1, all(TARGET)), l2()], ..Forged::default() };
    let (read_bytes, ended) = forged.walked();
    let said = ended.unwrap_err();
    assert!(said.contains("forged is damaged: the L2 table at 4096 stands for two parts of the disk"), "{said}");
    assert!(read_bytes <= FILE_BYTES, "{read_bytes}");
    // As many tables as the file has room for, all of which name one cluster.
    let tables: Vec<_> = (1..255).map(|table| table * CLUSTER_BYTES).collect();
    let l1 = tables.iter().flat_map(|table| table.to_be_bytes()).collect();
    let l2s = tables.iter().flat_map(|_| DIRECTORY.to_be_bytes().repeat(512)).collect();
    let forged = Forged {
        refcount_clusters: 1,
        l1_entries: ENTRIES,
        parts: vec![(L1, l1), (CLUSTER_BYTES, l2s)],
        ..Forged::default()
    };
    let (read_bytes, ended) = forged.walked();
    assert_eq!(ended, Ok(()));
    assert!(read_bytes <= 2 * FILE_BYTES, "{read_bytes}");
}

/// Entries of 40 bytes: an L1 table's offset and its number of entries, and nothing else.
fn snapshots(lengths: impl Iterator<Item = u32>) -> Vec<u8> {
    let entry = |entries: u32| [&L1.to_be_bytes()[..], &entries.to_be_bytes(), &[0; 28]].concat();
    lengths.flat_map(entry).collect()
}

#[test]
fn snapshots_that_share_a_table_are_read_once() {
    const SNAPSHOTS: u32 = 20_000;
    let same = snapshots((0..SNAPSHOTS).map(|_| ENTRIES));
    let each_longer = snapshots((0..SNAPSHOTS).map(|index| ENTRIES - index));
    for directory in [same, each_longer] {
        let forged = Forged {
            refcount_clusters: 1,
            snapshots: SNAPSHOTS,
            parts: vec![(L1, all(TARGET)), (DIRECTORY, directory), l2()],
            ..Forged::default()
        };
        forged.is_read_within_bounds("every snapshot's L1 table");
    }
}

#[test]
fn bitmaps_that_share_a_table_are_read_once() {
    const BITMAPS: u32 = 30_000;
    let entry = |entries: u32| [&L1.to_be_bytes()[..], &entries.to_be_bytes(), &[0; 12]].concat();
    for shrinks in [0, 1] {
        let directory = (0..BITMAPS).flat_map(|index| entry(ENTRIES - index * shrinks)).collect();
        let forged = Forged {
            refcount_clusters: 1,
            bitmaps: BITMAPS,
            parts: vec![(L1, all(TARGET)), (DIRECTORY, directory)],
            ..Forged::default()
        };
        forged.is_read_within_bounds("every bitmap");
    }
}
