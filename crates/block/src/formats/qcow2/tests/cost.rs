//! What an image costs: syncs for what is written, bytes read to open it.

use super::super::chain::{self, Opened};
use super::super::header::Header;
use super::super::image::Image;
use super::super::own_file::image_file;
use super::super::repair::Qcow2Check;
use super::super::{Qcow2Backing, Qcow2CreateOptions, Qcow2Disk, Qcow2Features, version_2};
use crate::formats::{Repair, WritableFile};
use crate::{AllowedDirectories, Disk, FileOptions, MemoryMap, Operation, Request, Segment};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const DEPTH: u64 = 16;

fn open(path: &Path) -> Qcow2Disk {
    let allowed = AllowedDirectories::new(&[path.parent().unwrap()]).unwrap();
    Qcow2Disk::open(path, &FileOptions::default(), &allowed).unwrap()
}

/// Carries out a request of `length_bytes` at each offset, [`DEPTH`] of them at a time.
fn carry_out(disk: &Qcow2Disk, operation: Operation, length_bytes: u32, mut offsets: impl Iterator<Item = u64>) {
    let memory = MemoryMap::allocate(&[(0, DEPTH as usize * length_bytes as usize)]).unwrap();
    let mut queue = disk.open_queue(&memory, DEPTH as usize).unwrap();
    let mut free: Vec<u64> = (0..DEPTH).collect();
    let mut completions = Vec::new();
    let began = Instant::now();
    loop {
        while !free.is_empty()
            && let Some(offset_bytes) = offsets.next()
        {
            let slot = free.pop().unwrap();
            let segments = [Segment { region: 0, length_bytes, offset_bytes: slot * u64::from(length_bytes) }];
            queue.push(&Request { operation, offset_bytes, segments: &segments, token: slot }).unwrap();
        }
        if free.len() as u64 == DEPTH {
            return;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "it hangs");
        queue.submit().unwrap();
        queue.wait(&[], Some(Duration::from_secs(10))).unwrap();
        queue.reap(&mut completions);
        assert!(completions.iter().all(|completion| completion.result == Ok(())));
        free.extend(completions.drain(..).map(|completion| completion.token));
    }
}

fn scattered(count: u64, end_bytes: u64) -> impl Iterator<Item = u64> {
    let blocks = end_bytes / 4096;
    // Odd, so it visits no block twice before all.
    (0..count).map(move |n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15) % blocks * 4096)
}

const WRITE: Operation = Operation::Write { force_unit_access: false };

fn syncs_of(disk: &Qcow2Disk) -> u64 {
    disk.worker.image().below[0].file.as_ref().unwrap().file.counts.syncs.load(Ordering::Relaxed)
}

#[test]
fn a_new_disk_is_filled_with_a_sync_for_16_mib() {
    let directory = blockyard_fuzz::memory_directory().unwrap();
    let path = directory.path().join("image");
    Qcow2Disk::create(&path, &Qcow2CreateOptions::new(1 << 30)).unwrap();
    let disk = open(&path);
    carry_out(&disk, WRITE, 64 << 10, (0..64 << 20).step_by(64 << 10));
    let syncs = syncs_of(&disk);
    println!("{syncs} syncs for 1024 writes");
    assert!((1..=8).contains(&syncs), "{syncs} syncs");
}

/// Each write is in a table that is not there yet.
#[test]
fn a_new_table_costs_no_sync_of_its_own() {
    let directory = blockyard_fuzz::memory_directory().unwrap();
    let path = directory.path().join("image");
    let tables = 128;
    Qcow2Disk::create(&path, &Qcow2CreateOptions::new(tables << 29)).unwrap();
    let disk = open(&path);
    carry_out(&disk, WRITE, 4096, (0..tables).map(|table| table << 29));
    let syncs = syncs_of(&disk);
    println!("{syncs} syncs for {tables} tables");
    assert!((1..=8).contains(&syncs), "{syncs} syncs");
}

/// A cut may keep a table's entry and not what made the file longer.
#[test]
fn clusters_that_are_counted_lie_in_the_file_and_it_is_cut_when_it_is_closed() {
    let directory = blockyard_fuzz::memory_directory().unwrap();
    let path = directory.path().join("image");
    Qcow2Disk::create(&path, &Qcow2CreateOptions::new(1 << 30)).unwrap();
    let disk = open(&path);
    for written in 1..=40_u64 {
        carry_out(&disk, WRITE, 4096, [(written * 7 % 40) << 24].into_iter());
        let file = std::fs::File::open(&path).unwrap();
        // There is one block of refcounts, which the refcount table begins with; the header says where that is.
        let mut entry = [0; 8];
        file.read_exact_at(&mut entry, 48).unwrap();
        let table = u64::from_be_bytes(entry);
        file.read_exact_at(&mut entry, table).unwrap();
        let mut counts = vec![0; 1 << 16];
        file.read_exact_at(&mut counts, u64::from_be_bytes(entry)).unwrap();
        let counted = counts.chunks(2).rposition(|count| count != [0, 0]).unwrap() as u64 + 1;
        assert!(counted << 16 <= file.metadata().unwrap().len(), "{counted} clusters");
    }
    drop(disk);
    // A header, the refcount table and its block, the L1 table, 2 L2 tables, 40 clusters.
    assert_eq!(std::fs::metadata(&path).unwrap().len(), (1 + 1 + 1 + 1 + 2 + 40) << 16);
}

#[test]
fn copies_from_a_backing_file_share_a_sync() {
    let directory = blockyard_fuzz::memory_directory().unwrap();
    let path = directory.path().join("image");
    std::fs::File::create(directory.path().join("base")).unwrap().set_len(1 << 30).unwrap();
    let backing = Some(Qcow2Backing { name: "base".into(), format: "raw".into() });
    Qcow2Disk::create(&path, &Qcow2CreateOptions { backing, ..Qcow2CreateOptions::new(1 << 30) }).unwrap();
    let disk = open(&path);
    let writes = 1024;
    carry_out(&disk, WRITE, 4096, scattered(writes, 1 << 30));
    let syncs = syncs_of(&disk);
    println!("{syncs} syncs for {writes} writes");
    assert!((1..=writes / 3).contains(&syncs), "{syncs} syncs");
}

/// Set for the process whose memory is measured.
const MEASURED: &str = "BLOCKYARD_TEST_MEASURED_IMAGE";

/// Has a test of this file run in a process of its own, with an image; what it prints.
fn measured(test: &str, path: &Path) -> String {
    let name = format!("formats::qcow2::tests::cost::{test}");
    let mut child = Command::new(std::env::current_exe().unwrap());
    let output = child.args(["--exact", &name, "--nocapture"]).env(MEASURED, path).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The most memory that this process ever had, in KiB.
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")).unwrap();
    peak.parse().unwrap()
}

#[test]
fn a_disk_of_1_tib_with_all_its_tables_is_read_in_64_mib() {
    if let Some(path) = std::env::var_os(MEASURED) {
        let disk = open(path.as_ref());
        carry_out(&disk, Operation::Read, 4096, scattered(20_000, 1 << 40));
        let peak = peak_kib();
        assert!(peak <= 64 << 10, "{peak} KiB");
        return;
    }
    let directory = blockyard_fuzz::memory_directory().unwrap();
    let path = directory.path().join("image");
    let mut create = Command::new("qemu-img");
    let created =
        create.args(["create", "-q", "-f", "qcow2", "-o", "preallocation=metadata"]).arg(&path).arg("1T").status();
    assert!(created.expect("qemu-img, of the Debian package qemu-utils").success());
    measured("a_disk_of_1_tib_with_all_its_tables_is_read_in_64_mib", &path);
}

/// Of 8 TiB in clusters of 4 KiB: it has 32 MiB. Each entry leads to a table without storage, in no order.
#[test]
fn the_largest_l1_table_is_not_read_to_open_a_disk() {
    let opened = |path: &Path, read_only| {
        let options = FileOptions { read_only, ..FileOptions::default() };
        chain::open(path, &options, &AllowedDirectories::none()).unwrap()
    };
    let read_of = |image: &Image| image.below[0].file.as_ref().unwrap().file.counts.read_bytes.load(Ordering::Relaxed);
    if let Some(path) = std::env::var_os(MEASURED) {
        let before = peak_kib();
        for read_only in [true, false] {
            let (read_bytes, more) = (read_of(&opened(path.as_ref(), read_only).image), peak_kib() - before);
            assert!(read_bytes <= 64 << 10 && more <= 4 << 10, "{read_bytes} bytes are read, {more} KiB are needed");
        }
        let Opened { image, unchecked, .. } = opened(path.as_ref(), false);
        let said = unchecked.unwrap().check(&AtomicBool::new(false)).unwrap_err();
        assert!(said.contains("clusters that are in use have no refcount"), "{said}");
        let (read_bytes, more) = (read_of(&image), peak_kib() - before);
        assert!(read_bytes <= 33 << 20 && more <= 12 << 10, "{read_bytes} bytes are read, {more} KiB are needed");
        return;
    }
    let directory = blockyard_fuzz::memory_directory().unwrap();
    let path = directory.path().join("image");
    let options = Qcow2CreateOptions { cluster_bytes: 4096, ..Qcow2CreateOptions::new(8 << 40) };
    Qcow2Disk::create(&path, &options).unwrap();
    let file = std::fs::File::options().read(true).write(true).open(&path).unwrap();
    let mut l1 = [0; 8];
    file.read_exact_at(&mut l1, 40).unwrap();
    let (end, count) = (file.metadata().unwrap().len().next_multiple_of(4096), 4_u64 << 20);
    let tables = (0..count).map(|index| end + (index * 0x9e37_79b1) % count * 4096);
    let entries: Vec<u8> = tables.flat_map(|table| (table | 1 << 63).to_be_bytes()).collect();
    file.write_all_at(&entries, u64::from_be_bytes(l1)).unwrap();
    file.set_len(end + count * 4096).unwrap();
    measured("the_largest_l1_table_is_not_read_to_open_a_disk", &path);
}

/// Of 2 TiB in clusters of 64 KiB, every 4096th of which holds a compressed cluster: each check takes several windows.
#[test]
fn compressed_clusters_all_over_a_long_file_are_checked_in_56_mib() {
    const COUNT: u64 = 8 << 10;
    if let Some(path) = std::env::var_os(MEASURED) {
        let before = peak_kib();
        let (nothing, options) = (AllowedDirectories::none(), FileOptions::default());
        let Opened { unchecked, .. } = chain::open(path.as_ref(), &options, &nothing).unwrap();
        assert_eq!(unchecked.unwrap().check(&AtomicBool::new(false)), Ok(()));
        let more = peak_kib() - before;
        assert!(more <= 32 << 10, "{more} KiB are needed before it is written to");
        let file = std::fs::File::options().read(true).write(true).open(&path).unwrap();
        let length_bytes = file.metadata().unwrap().len();
        let image = WritableFile::new(file.try_clone().unwrap(), length_bytes, true, true);
        let mut check = Qcow2Check::of(path.into(), image).unwrap();
        let mut found = |repair: Repair| {
            let report = check.run(repair, &mut |line| println!("{line}")).unwrap();
            assert_eq!(report.compressed_clusters, COUNT);
            (report.corruptions, report.leaks, report.corruptions_fixed, report.leaks_fixed)
        };
        assert_eq!(found(Repair::None), (0, 0, 0, 0));
        // The last cluster of the file, and one of the first window, which nobody uses.
        let (mut fields, mut table) = ([0; 8], [0; 8]);
        file.read_exact_at(&mut fields, 48).unwrap();
        file.read_exact_at(&mut table, u64::from_be_bytes(fields)).unwrap();
        let byte_of = |cluster: u64| u64::from_be_bytes(table) + cluster / 8;
        file.write_all_at(&[0], byte_of((COUNT << 12) - 1)).unwrap();
        file.write_all_at(&[0x80], byte_of(1_000_007)).unwrap();
        assert_eq!(found(Repair::None), (1, 1, 0, 0));
        assert_eq!(found(Repair::All), (0, 0, 1, 1));
        let more = peak_kib() - before;
        assert!(more <= 56 << 10, "{more} KiB are needed");
        return;
    }
    const CLUSTER_BYTES: u64 = 64 << 10;
    const PER_BLOCK: u64 = CLUSTER_BYTES * 8;
    let directory = blockyard_fuzz::memory_directory().unwrap();
    let path = directory.path().join("image");
    let features = Qcow2Features { refcount_order: 0, ..Qcow2Features::default() };
    let size_bytes = COUNT * CLUSTER_BYTES;
    Qcow2Disk::create(&path, &Qcow2CreateOptions { features, ..Qcow2CreateOptions::new(size_bytes) }).unwrap();
    let file = std::fs::File::options().read(true).write(true).open(&path).unwrap();
    let number = |at: u64| {
        let mut bytes = [0; 8];
        file.read_exact_at(&mut bytes, at).unwrap();
        u64::from_be_bytes(bytes)
    };
    let (l1, refcount_table) = (number(40), number(48));
    // Nobody's from now on.
    let old_block = number(refcount_table) / CLUSTER_BYTES;
    let tables = file.metadata().unwrap().len().div_ceil(CLUSTER_BYTES);
    let blocks = tables + COUNT * 8 / CLUSTER_BYTES;
    let end = blocks + (COUNT << 12) / PER_BLOCK;
    let bytes_of = |entries: &mut dyn Iterator<Item = u64>| -> Vec<u8> { entries.flat_map(u64::to_be_bytes).collect() };
    let places = (0..COUNT).map(|index| (index << 12) + 4095);
    let entries = bytes_of(&mut places.clone().map(|cluster| (1 << 62) | (cluster * CLUSTER_BYTES)));
    file.write_all_at(&entries, tables * CLUSTER_BYTES).unwrap();
    file.write_all_at(&bytes_of(&mut (tables..blocks).map(|table| (table * CLUSTER_BYTES) | (1 << 63))), l1).unwrap();
    file.write_all_at(&bytes_of(&mut (blocks..end).map(|block| block * CLUSTER_BYTES)), refcount_table).unwrap();
    file.set_len((COUNT << 12) * CLUSTER_BYTES).unwrap();
    for cluster in (0..end).filter(|&cluster| cluster != old_block).chain(places) {
        let at = blocks * CLUSTER_BYTES + cluster / 8;
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] | (1 << (cluster % 8))], at).unwrap();
    }
    measured("compressed_clusters_all_over_a_long_file_are_checked_in_56_mib", &path);
}

/// The beginning of an image in clusters of 4 KiB, in a new file: its header has one cluster, and behind that come
/// tables of so many bytes, first the L1 table, then that of refcounts, and where they end is returned.
fn with_tables(path: &Path, l1_entries: u64, refcount_bytes: u64, snapshots: (u32, u64)) -> (std::fs::File, u64) {
    let l1_bytes = (l1_entries * 8).next_multiple_of(4096);
    let refcounts = 4096 + l1_bytes;
    let header = [
        &b"QFI\xfb\0\0\0\x03\0\0\0\0\0\0\0\0\0\0\0\0"[..],
        &12_u32.to_be_bytes(),
        &(l1_entries << 21).to_be_bytes(),
        &[0; 4],
        &(l1_entries as u32).to_be_bytes(),
        &4096_u64.to_be_bytes(),
        &refcounts.to_be_bytes(),
        &((refcount_bytes / 4096) as u32).to_be_bytes(),
        &snapshots.0.to_be_bytes(),
        &snapshots.1.to_be_bytes(),
        &[0; 24],
        &4_u32.to_be_bytes(),
        &104_u32.to_be_bytes(),
    ];
    let file = std::fs::File::options().read(true).write(true).create_new(true).open(path).unwrap();
    file.write_all_at(&header.concat(), 0).unwrap();
    (file, refcounts + refcount_bytes)
}

fn put_entries(file: &std::fs::File, at: u64, entries: impl Iterator<Item = u64>) {
    let bytes: Vec<u8> = entries.flat_map(u64::to_be_bytes).collect();
    file.write_all_at(&bytes, at).unwrap();
}

/// Compressed clusters of which 256 share each 2048th cluster of a file.
#[test]
fn clusters_with_many_uses_are_counted_in_48_mib() {
    const CLUSTERS: u64 = 18_800_000;
    const USERS: u64 = 256;
    if let Some(path) = std::env::var_os(MEASURED) {
        let before = peak_kib();
        let file = std::fs::File::open(&path).unwrap();
        let image = WritableFile::new(file, CLUSTERS << 12, false, true);
        let report = Qcow2Check::of(path.into(), image).unwrap().run(Repair::None, &mut |_| ()).unwrap();
        assert!(report.compressed_clusters > CLUSTERS / 2048 * USERS - USERS * 10, "{report:?}");
        let more = peak_kib() - before;
        assert!(more <= 48 << 10, "{more} KiB are needed");
        return;
    }
    let directory = blockyard_fuzz::memory_directory().unwrap();
    let path = directory.path().join("image");
    let places = (10_000..CLUSTERS).step_by(2048);
    let entries = places.clone().count() as u64 * USERS;
    let (file, tables) = with_tables(&path, entries.div_ceil(512), 4096, (0, 0));
    put_entries(&file, 4096, (0..entries.div_ceil(512)).map(|index| (tables + (index << 12)) | 1 << 63));
    put_entries(&file, tables, places.flat_map(|place| std::iter::repeat_n(1 << 62 | place << 12, USERS as usize)));
    assert!(tables + entries * 8 < 10_000 << 12);
    file.set_len(CLUSTERS << 12).unwrap();
    measured("clusters_with_many_uses_are_counted_in_48_mib", &path);
}

/// Two million tables, none of which has storage.
#[test]
fn the_tables_that_another_version_needs_are_known_in_40_mib() {
    const TABLES: u64 = 2 << 20;
    if let Some(path) = std::env::var_os(MEASURED) {
        let before = peak_kib();
        let file = image_file(&std::fs::File::open(&path).unwrap()).unwrap();
        let mut first = vec![0; 4096];
        file.read(&mut first, 0).unwrap();
        let header = Header::parse(&first, file.length_bytes()).unwrap();
        assert!(!version_2::has_compressed_clusters(&file, &header).unwrap());
        let more = peak_kib() - before;
        assert!(more <= 40 << 10, "{more} KiB are needed");
        return;
    }
    let directory = blockyard_fuzz::memory_directory().unwrap();
    let path = directory.path().join("image");
    let (file, tables) = with_tables(&path, TABLES, 4096, (0, 0));
    put_entries(&file, 4096, (0..TABLES).map(|index| (tables + (index << 12)) | 1 << 63));
    file.set_len(tables + (TABLES << 12)).unwrap();
    measured("the_tables_that_another_version_needs_are_known_in_40_mib", &path);
}

/// As many as fit into a table that QEMU reads, each of which says a thousand bytes that nobody knows.
#[test]
fn snapshots_are_listed_without_what_is_not_known_of_them() {
    const SNAPSHOTS: u32 = 64_000;
    const EXTRA_BYTES: u32 = 984;
    if let Some(path) = std::env::var_os(MEASURED) {
        let before = peak_kib();
        let listed = Qcow2Disk::snapshots(&crate::OpenedFile::open(path.as_ref(), true).unwrap()).unwrap();
        assert_eq!((listed.len(), listed[9].name.as_str()), (SNAPSHOTS as usize, "00000009"));
        let more = peak_kib() - before;
        assert!(more <= 32 << 10, "{more} KiB are needed");
        return;
    }
    let directory = blockyard_fuzz::memory_directory().unwrap();
    let path = directory.path().join("image");
    let (file, _) = with_tables(&path, 1, 4096, (SNAPSHOTS, 5 << 12));
    for index in 0..SNAPSHOTS {
        let mut entry = vec![0; 40 + EXTRA_BYTES as usize];
        entry[..12].copy_from_slice(&[&4096_u64.to_be_bytes()[..], &1_u32.to_be_bytes()].concat());
        entry[15] = 8;
        entry[36..40].copy_from_slice(&EXTRA_BYTES.to_be_bytes());
        entry[48..56].copy_from_slice(&(1_u64 << 21).to_be_bytes());
        entry.extend(format!("{index:08}").bytes());
        file.write_all_at(&entry, (5 << 12) + u64::from(index) * entry.len() as u64).unwrap();
    }
    measured("snapshots_are_listed_without_what_is_not_known_of_them", &path);
}

#[test]
fn a_large_empty_disk_is_opened_as_a_small_one() {
    let directory = blockyard_fuzz::memory_directory().unwrap();
    let read_bytes = |size_bytes: u64| {
        let path = directory.path().join("image");
        Qcow2Disk::create(&path, &Qcow2CreateOptions::new(size_bytes)).unwrap();
        let disk = open(&path);
        disk.worker.image().below[0].file.as_ref().unwrap().file.counts.read_bytes.load(Ordering::Relaxed)
    };
    let (small, large) = (read_bytes(1 << 30), read_bytes(1 << 40));
    println!("{small} and {large} bytes");
    // The L1 table of 1 TiB has 16 KiB.
    assert!(large - small <= 3 * (16 << 10), "{small} bytes are read of a small one, {large} of a large one");
}
