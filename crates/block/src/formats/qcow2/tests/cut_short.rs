//! Power cuts while an image is repaired, emptied, or gets another backing file: at each of them it shows what it
//! showed, and is no worse.

use super::super::bitmaps::{self, Bitmap, Bits};
use super::super::header::Header;
use super::super::metadata::Bitmaps;
use super::super::{
    Preallocation, Qcow2Amendment, Qcow2Backing, Qcow2BitmapAction, Qcow2Check, Qcow2Commit, Qcow2CreateOptions,
    Qcow2Disk, Qcow2Features, Qcow2Rebase, chain, own_file, resize,
};
use super::open_to_change;
use crate::formats::Repair;
use crate::formats::recorded_file::{Recorded, Recorder};
use crate::read::perform;
use crate::{
    AllowedDirectories, Disk, FileOptions, MemoryMap, OpenedFile, Operation, Qcow2Info, read_bytes, write_bytes,
};
use std::fs;
use std::path::{Path, PathBuf};

const DISK_BYTES: u64 = 512 << 10;
const CLUSTER_BYTES: u32 = 4096;
/// What is written whole.
const SECTOR_BYTES: u32 = 512;
/// Ways in which what is uncertain at a cut may turn out.
const OUTCOMES: u64 = 6;

fn allowed(path: &Path) -> AllowedDirectories {
    AllowedDirectories::new(&[path.parent().unwrap()]).unwrap()
}

fn contents(path: &Path) -> Vec<u8> {
    let options = FileOptions { read_only: true, lock: false, ..FileOptions::default() };
    let disk = Qcow2Disk::open(path, &options, &allowed(path)).unwrap();
    read_bytes(&disk, 0..DISK_BYTES).unwrap()
}

/// An image with data here and there.
fn image(directory: &Path, name: &str, backing: Option<Qcow2Backing>) -> PathBuf {
    let path = directory.join(name);
    let options = Qcow2CreateOptions { cluster_bytes: CLUSTER_BYTES, backing, ..Qcow2CreateOptions::new(DISK_BYTES) };
    Qcow2Disk::create(&path, &options).unwrap();
    let disk = Qcow2Disk::open(&path, &FileOptions::default(), &allowed(&path)).unwrap();
    for (number, offset) in [0_u64, 40 << 10, 300 << 10, 500 << 10].into_iter().enumerate() {
        write_bytes(&disk, offset, &vec![number as u8 + name.len() as u8; 12 << 10]).unwrap();
    }
    path
}

/// What `action` writes to the image.
pub(super) fn recorded(path: &Path, action: impl FnOnce()) -> Recorded {
    let recorder = Recorder::of(&[path]);
    action();
    recorder.end(SECTOR_BYTES)
}

/// Puts the image back as it was, cuts the power behind each event, and lets `look` see what is there.
pub(super) fn at_each_cut(path: &Path, recorded: &Recorded, look: impl Fn(usize)) {
    let events = recorded.recording.event_count();
    assert!(events > 1);
    for seed in 0..OUTCOMES {
        let mut replay = recorded.replay();
        for cut in 0..=events {
            replay.cut(cut, seed << 32 | cut as u64).unwrap().write(&[path]);
            look(cut);
        }
    }
}

fn corruptions(path: &Path) -> u64 {
    let mut check = Qcow2Check::open(&OpenedFile::open(path, true).unwrap(), false).unwrap();
    check.run(Repair::None, &mut |_| ()).unwrap().corruptions
}

fn leaks(path: &Path) -> u64 {
    let mut check = Qcow2Check::open(&OpenedFile::open(path, true).unwrap(), false).unwrap();
    check.run(Repair::None, &mut |_| ()).unwrap().leaks
}

fn info(path: &Path) -> Qcow2Info {
    Qcow2Info::of_opened(&OpenedFile::open(path, true).unwrap()).unwrap()
}

fn be64(bytes: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(bytes[at..at + 8].try_into().unwrap())
}

/// Where the disk ends, and what it holds.
fn disk_of(path: &Path) -> (u64, Vec<u8>) {
    let options = FileOptions { read_only: true, lock: false, ..FileOptions::default() };
    let disk = Qcow2Disk::open(path, &options, &allowed(path)).unwrap();
    let size = disk.geometry().capacity_bytes;
    (size, read_bytes(&disk, 0..size).unwrap())
}

#[test]
fn what_a_disk_grows_by_is_zeros_at_every_cut() {
    let directory = blockyard_fuzz::memory_directory().unwrap();
    fs::write(directory.path().join("base"), [7; 1 << 20]).unwrap();
    let backing = |name: &str| Some(Qcow2Backing { name: name.into(), format: "raw".into() });
    // In the middle of a cluster with data; and where what is behind shows, of an image that ends there.
    for (backing, old, new) in [(backing("base"), 308_224, 700 << 10), (None, 308_224, 700 << 10)] {
        let has_backing = backing.is_some();
        let path = image(directory.path(), "image.qcow2", backing);
        resize::resize(open_to_change(&path).file(), &path, old, Preallocation::Off, &allowed(&path), &|| true)
            .unwrap();
        let (_, held) = disk_of(&path);
        let mut wanted = held.clone();
        wanted.resize(new as usize, 0);
        let recorded = recorded(&path, || {
            resize::resize(open_to_change(&path).file(), &path, new, Preallocation::Off, &allowed(&path), &|| true)
                .unwrap();
        });
        assert!(disk_of(&path) == (new, wanted.clone()), "with a backing file: {has_backing}");
        at_each_cut(&path, &recorded, |cut| {
            assert_eq!(corruptions(&path), 0, "cut behind {cut}");
            let (size, holds) = disk_of(&path);
            assert!((size == old && holds == held) || (size == new && holds == wanted), "cut behind {cut}");
            resize::resize(open_to_change(&path).file(), &path, new, Preallocation::Off, &allowed(&path), &|| true)
                .unwrap();
            assert!(disk_of(&path).1 == wanted, "done again after a cut behind {cut}");
        });
        fs::remove_file(&path).unwrap();
    }
}

#[test]
fn a_repair_that_is_cut_short_is_no_worse() {
    let directory = blockyard_fuzz::memory_directory().unwrap();
    let path = image(directory.path(), "image.qcow2", None);
    let good = fs::read(&path).unwrap();
    let table = be64(&good, 48) as usize;
    let refblock = be64(&good, table) as usize;
    let l2 = (be64(&good, be64(&good, 40) as usize) & !(1 << 63)) as usize;
    let in_use = (0..1000).filter(|at| good[refblock + at * 2 + 1] == 1).count();
    type Damage = fn(&mut [u8], usize);
    let damages: [(&str, usize, Damage); 5] = [
        ("leaks", refblock + in_use * 2, |bytes, at| bytes[at..at + 8].copy_from_slice(&[0, 1, 0, 1, 0, 2, 0, 1])),
        ("counts that are too low", refblock + 4, |bytes, at| bytes[at..at + 8].fill(0)),
        ("counts without a place", table, |bytes, at| bytes[at..at + 8].fill(0)),
        ("marks", l2, |bytes, at| bytes[at] ^= 0x80),
        ("a cluster with two uses", l2, |bytes, at| bytes.copy_within(at..at + 8, at + 8)),
    ];
    for (what, at, damage) in damages {
        let mut bytes = good.clone();
        damage(&mut bytes, at);
        fs::write(&path, &bytes).unwrap();
        let wanted = contents(&path);
        // Leaks behind the file's end are none.
        bytes.resize(bytes.len() + 4 * CLUSTER_BYTES as usize, 0);
        fs::write(&path, &bytes).unwrap();
        let bad = corruptions(&path);
        let recording = recorded(&path, || {
            let mut check = Qcow2Check::open(&open_to_change(&path), true).unwrap();
            let report = check.run(Repair::All, &mut |_| ()).unwrap();
            assert_eq!((report.corruptions, report.leaks), (0, 0), "{what}");
            assert!(report.corruptions_fixed + report.leaks_fixed > 0, "{what}");
        });
        at_each_cut(&path, &recording, |cut| {
            assert!(corruptions(&path) <= bad, "{what}, cut behind {cut}");
            assert!(contents(&path) == wanted, "{what}, cut behind {cut}");
        });
    }
}

#[test]
fn a_backing_file_that_is_named_is_the_old_one_or_the_new_one() {
    let directory = blockyard_fuzz::memory_directory().unwrap();
    let on = |name: &str, format: &str| Some(Qcow2Backing { name: name.into(), format: format.into() });
    let long = format!("./{}old.qcow2", "./".repeat(400));
    image(directory.path(), "old.qcow2", None);
    fs::write(directory.path().join("new.raw"), vec![5; DISK_BYTES as usize]).unwrap();
    for (old, new) in [
        (None, on("new.raw", "raw")),
        (on("old.qcow2", "qcow2"), on("new.raw", "raw")),
        (on(&long, "qcow2"), on("old.qcow2", "qcow2")),
        (on("new.raw", "raw"), on(&long, "qcow2")),
        (on("old.qcow2", "qcow2"), None),
    ] {
        let path = image(directory.path(), "image.qcow2", old.clone());
        let rebase = Qcow2Rebase::open(open_to_change(&path)).unwrap();
        let recording = recorded(&path, || rebase.name_backing(new.as_ref()).unwrap());
        drop(rebase);
        at_each_cut(&path, &recording, |cut| {
            let bytes = fs::read(&path).unwrap();
            let found = Header::parse(&bytes, bytes.len() as u64).unwrap().backing;
            let found = found.map(|found| Qcow2Backing { name: found.name, format: found.format.unwrap() });
            let is_last = cut == recording.recording.event_count();
            assert!(found == new || (found == old && !is_last), "cut behind {cut}: {found:?}");
            contents(&path);
        });
    }
}

#[test]
fn an_image_that_is_amended_is_the_old_one_or_the_new_one() {
    let directory = blockyard_fuzz::memory_directory().unwrap();
    fs::write(directory.path().join("base.raw"), vec![5; DISK_BYTES as usize]).unwrap();
    let backing = Some(Qcow2Backing { name: "base.raw".into(), format: "raw".into() });
    for cluster_bytes in [512, CLUSTER_BYTES] {
        let path = directory.path().join("image.qcow2");
        let features = Qcow2Features { version: 2, ..Qcow2Features::default() };
        let options = Qcow2CreateOptions { features, backing: backing.clone(), ..Qcow2CreateOptions::new(DISK_BYTES) };
        Qcow2Disk::create(&path, &Qcow2CreateOptions { cluster_bytes, ..options }).unwrap();
        let wanted = contents(&path);
        let new = Qcow2Amendment { version: Some(3), has_lazy_refcounts: Some(true), ..Qcow2Amendment::default() };
        let image = open_to_change(&path);
        let recording = recorded(&path, || new.apply(&image, &allowed(&path)).unwrap());
        drop(image);
        at_each_cut(&path, &recording, |cut| {
            let bytes = fs::read(&path).unwrap();
            let found = Header::parse(&bytes, bytes.len() as u64).unwrap();
            let is_new = (found.version, found.has_lazy_refcounts) == (3, true);
            let is_old = (found.version, found.has_lazy_refcounts) == (2, false);
            assert_eq!(found.backing.as_ref().map(|backing| backing.name.as_str()), Some("base.raw"));
            let is_last = cut == recording.recording.event_count();
            assert!(is_new || (is_old && !is_last), "cut behind {cut}: {found:?}");
            assert!(contents(&path) == wanted, "cut behind {cut}");
            assert_eq!(corruptions(&path), 0, "cut behind {cut}");
        });
    }
}

/// With clusters that read as zeros by what their entries say, here and there, in snapshots as well.
fn image_with_zeros(directory: &Path, cluster_bytes: u32, backing: Option<Qcow2Backing>) -> PathBuf {
    let path = directory.join("image.qcow2");
    let options = Qcow2CreateOptions { cluster_bytes, backing, ..Qcow2CreateOptions::new(DISK_BYTES) };
    Qcow2Disk::create(&path, &options).unwrap();
    let change = |value: u8, zeros: &[(u64, bool)]| {
        let disk = Qcow2Disk::open(&path, &FileOptions::default(), &allowed(&path)).unwrap();
        write_bytes(&disk, 10 << 10, &vec![value; 50 << 10]).unwrap();
        let memory = MemoryMap::allocate(&[(0, 4096)]).unwrap();
        let mut queue = disk.open_queue(&memory, 1).unwrap();
        for &(at, may_unmap) in zeros {
            let zeroes = Operation::WriteZeroes { length_bytes: 2 * u64::from(cluster_bytes), may_unmap };
            perform(&mut *queue, zeroes, at, &[]).unwrap();
        }
    };
    change(1, &[(16 << 10, false), (300 << 10, true)]);
    Qcow2Disk::make_snapshot(&open_to_change(&path), "one", &allowed(&path)).unwrap();
    change(2, &[(16 << 10, true), (40 << 10, false), (304 << 10, true)]);
    path
}

#[test]
fn an_image_of_another_version_and_other_refcounts_shows_the_same_at_every_cut() {
    let directory = blockyard_fuzz::memory_directory().unwrap();
    fs::write(directory.path().join("base.raw"), vec![5; DISK_BYTES as usize]).unwrap();
    let base = || Some(Qcow2Backing { name: "base.raw".into(), format: "raw".into() });
    let amendment = |version, order| Qcow2Amendment {
        version: Some(version),
        refcount_order: Some(order),
        ..Qcow2Amendment::default()
    };
    for (cluster_bytes, backing, new) in [
        (CLUSTER_BYTES, None, amendment(3, 6)),
        (512, base(), amendment(3, 1)),
        (CLUSTER_BYTES, base(), amendment(2, 4)),
        (512, None, amendment(2, 4)),
    ] {
        let path = image_with_zeros(directory.path(), cluster_bytes, backing);
        let wanted = disk_and_snapshots(&path);
        let image = open_to_change(&path);
        let recording = recorded(&path, || new.apply(&image, &allowed(&path)).unwrap());
        drop(image);
        let made = (new.version.unwrap(), new.refcount_order.unwrap());
        at_each_cut(&path, &recording, |cut| {
            let bytes = fs::read(&path).unwrap();
            let found = Header::parse(&bytes, bytes.len() as u64).unwrap();
            let found = (found.version, found.refcount_order);
            let is_last = cut == recording.recording.event_count();
            assert!(found == made || (found == (3, 4) && !is_last), "cut behind {cut}: {found:?}");
            assert!(disk_and_snapshots(&path) == wanted, "{new:?}, cut behind {cut}");
            assert_eq!(corruptions(&path), 0, "{new:?}, cut behind {cut}");
        });
        assert_eq!(leaks(&path), 0, "{new:?}");
        fs::remove_file(&path).unwrap();
    }
}

#[test]
fn an_image_that_is_emptied_shows_the_same_all_the_time() {
    let directory = blockyard_fuzz::memory_directory().unwrap();
    let base = directory.path().join("base.raw");
    for has_snapshot in [false, true] {
        fs::write(&base, vec![9; DISK_BYTES as usize]).unwrap();
        let backing = Some(Qcow2Backing { name: "base.raw".into(), format: "raw".into() });
        let path = image(directory.path(), "top.qcow2", backing);
        if has_snapshot {
            Qcow2Disk::make_snapshot(&open_to_change(&path), "held", &allowed(&path)).unwrap();
            let disk = Qcow2Disk::open(&path, &FileOptions::default(), &allowed(&path)).unwrap();
            write_bytes(&disk, 40 << 10, &[3; 12 << 10]).unwrap();
        }
        let (before, wanted) = (fs::read(&path).unwrap(), disk_and_snapshots(&path));
        let commit = Qcow2Commit::open(open_to_change(&path), None, &allowed(&path)).unwrap();
        commit.fold(&mut |_, _| true).unwrap();
        assert!(fs::read(&base).unwrap() == wanted.0);
        let recording = recorded(&path, || commit.empty().unwrap());
        assert!(has_snapshot || fs::metadata(&path).unwrap().len() < before.len() as u64 - (40 << 10));
        at_each_cut(&path, &recording, |cut| {
            assert!(disk_and_snapshots(&path) == wanted, "cut behind {cut}");
            assert_eq!(corruptions(&path), 0, "cut behind {cut}");
        });
        fs::remove_file(&path).unwrap();
    }
}

/// The disk, and what each snapshot has, by its name.
fn disk_and_snapshots(path: &Path) -> (Vec<u8>, Vec<(String, Vec<u8>)>) {
    let listed = Qcow2Disk::snapshots(&OpenedFile::open(path, true).unwrap()).unwrap();
    let options = FileOptions { read_only: true, lock: false, ..FileOptions::default() };
    let held = |name: &str| {
        let file = fs::File::open(path).unwrap();
        let disk = Qcow2Disk::open_snapshot_in(file, path, name, &options, &allowed(path)).unwrap();
        read_bytes(&disk, 0..disk.geometry().capacity_bytes).unwrap()
    };
    (contents(path), listed.into_iter().map(|snapshot| (snapshot.name.clone(), held(&snapshot.name))).collect())
}

#[test]
fn disk_and_snapshots_are_whole_at_every_cut() {
    let directory = blockyard_fuzz::memory_directory().unwrap();
    let make = |path: &Path, name: &str| {
        Qcow2Disk::make_snapshot(&open_to_change(path), name, &allowed(path)).unwrap();
    };
    let write = |path: &Path, value: u8| {
        let disk = Qcow2Disk::open(path, &FileOptions::default(), &allowed(path)).unwrap();
        write_bytes(&disk, 41 << 10, &vec![value; 9 << 10]).unwrap();
        write_bytes(&disk, 200 << 10, &vec![value; 9 << 10]).unwrap();
    };
    for what in ["make", "apply", "remove"] {
        let path = image(directory.path(), "image.qcow2", None);
        make(&path, "first");
        write(&path, 77);
        make(&path, "second");
        write(&path, 78);
        let old = disk_and_snapshots(&path);
        let recording = recorded(&path, || match what {
            "make" => make(&path, "third"),
            "apply" => Qcow2Disk::apply_snapshot(&open_to_change(&path), "first", &allowed(&path)).unwrap(),
            _ => Qcow2Disk::remove_snapshot(&open_to_change(&path), "first", &allowed(&path)).unwrap(),
        });
        assert_eq!(corruptions(&path), 0, "{what}");
        let new = disk_and_snapshots(&path);
        assert!(old != new);
        at_each_cut(&path, &recording, |cut| {
            let found = disk_and_snapshots(&path);
            assert!(found == old || found == new, "{what}, cut behind {cut}");
            // What is written to the disk is nothing to a snapshot, whatever the marks say.
            write(&path, 99);
            let after = disk_and_snapshots(&path);
            assert!(after.1 == found.1 && after.0 != found.0, "{what}, cut behind {cut}, then written to");
            let mut check = Qcow2Check::open(&open_to_change(&path), true).unwrap();
            check.run(Repair::All, &mut |_| ()).unwrap();
            assert!(
                corruptions(&path) == 0 && disk_and_snapshots(&path) == after,
                "{what}, cut behind {cut}, repaired"
            );
        });
        fs::remove_file(&path).unwrap();
    }
}

/// What a bitmap says was written: blocks of its granularity.
fn set_in(path: &Path, which: &Bitmap) -> Vec<u64> {
    let image = OpenedFile::open(path, true).unwrap();
    let header = own_file::read_header(image.file(), path).unwrap();
    let file = own_file::image_file(image.file()).unwrap();
    let entries = file.entries(which.table).unwrap();
    let mut bits = Bits::new(&file, &header, which.granularity_bits, &entries);
    let (mut set, mut at) = (Vec::new(), 0);
    while let Some(run) = bits.next_run(at).unwrap() {
        at = run.end;
        set.extend(run.start >> which.granularity_bits..run.end.div_ceil(1 << which.granularity_bits));
    }
    set
}

fn bitmaps_of(path: &Path) -> Vec<Bitmap> {
    let image = OpenedFile::open(path, true).unwrap();
    let header = own_file::read_header(image.file(), path).unwrap();
    let found = bitmaps::bitmaps(&own_file::image_file(image.file()).unwrap(), &header).unwrap();
    found.into_iter().map(|(bitmap, _)| bitmap).collect()
}

/// Of each that is not in use: its name, and what it says was written.
fn bitmaps_and_bits(path: &Path) -> Vec<(Vec<u8>, u32, Vec<u64>)> {
    let usable = bitmaps_of(path).into_iter().filter(|bitmap| !bitmap.is_in_use());
    usable.map(|bitmap| (bitmap.name.clone(), bitmap.flags, set_in(path, &bitmap))).collect()
}

fn change_bitmap(path: &Path, name: &str, actions: &[Qcow2BitmapAction]) {
    Qcow2Disk::change_bitmap(&open_to_change(path), name, actions, None).unwrap();
}

/// An image with bitmaps in which something is set, one of which is disabled.
fn image_with_bitmaps(directory: &Path) -> PathBuf {
    let path = image(directory, "image.qcow2", None);
    for (name, granularity_bytes) in [("first", 512), ("second", 4096), ("third", 512)] {
        change_bitmap(&path, name, &[Qcow2BitmapAction::Add { granularity_bytes: Some(granularity_bytes) }]);
        let disk = Qcow2Disk::open(&path, &FileOptions::default(), &allowed(&path)).unwrap();
        write_bytes(&disk, 40 << 10, &[name.len() as u8; 1 << 10]).unwrap();
    }
    change_bitmap(&path, "third", &[Qcow2BitmapAction::Disable]);
    path
}

#[test]
fn bitmaps_that_are_changed_are_the_old_ones_or_the_new_ones_at_every_cut() {
    let directory = blockyard_fuzz::memory_directory().unwrap();
    let path = image_with_bitmaps(directory.path());
    let (old, shown) = (bitmaps_and_bits(&path), contents(&path));
    let image = open_to_change(&path);
    let header = own_file::read_header(image.file(), &path).unwrap();
    let recording = recorded(&path, || {
        let file = image.file().try_clone().unwrap();
        let opened = chain::open_in(file, &path, &FileOptions::default(), &allowed(&path)).unwrap();
        let mut metadata = opened.metadata.unwrap();
        let file = own_file::image_file(image.file()).unwrap();
        let mut bitmaps = Bitmaps::read(&file, &header).unwrap();
        bitmaps.add(Bitmap::new(b"fourth", 9), 1);
        let entries = bitmaps.entries(&file, 0).unwrap();
        let mut bits = Bits::new(&file, &header, 9, &entries);
        for index in [1, 3] {
            metadata.merge_into_bitmap(&header, &mut bitmaps, index, |at| bits.next_run(at)).unwrap();
        }
        bitmaps.remove(&file, &header, 0).unwrap();
        bitmaps.set_flags(0, 0);
        metadata.put_bitmaps(&header, bitmaps, None).unwrap();
        metadata.close().unwrap();
        metadata.sync().unwrap();
    });
    drop(image);
    let new = bitmaps_and_bits(&path);
    assert!(old.len() == 3 && new.len() == 3 && old != new && new.iter().all(|(.., set)| !set.is_empty()));
    at_each_cut(&path, &recording, |cut| {
        let found = bitmaps_and_bits(&path);
        assert!(found == old || found == new, "cut behind {cut}: {found:?}");
        assert!(corruptions(&path) == 0 && contents(&path) == shown, "cut behind {cut}");
    });
}

#[test]
fn a_bitmap_that_is_kept_misses_nothing_or_is_in_use_at_every_cut() {
    let directory = blockyard_fuzz::memory_directory().unwrap();
    let path = image_with_bitmaps(directory.path());
    let (old, shown) = (bitmaps_and_bits(&path), contents(&path));
    let recording = recorded(&path, || {
        let disk = Qcow2Disk::open(&path, &FileOptions::default(), &allowed(&path)).unwrap();
        for offset in [0, 100 << 10, 300 << 10] {
            write_bytes(&disk, offset, &[55; 5 << 10]).unwrap();
        }
    });
    let new = bitmaps_and_bits(&path);
    assert!(new.len() == 3 && new[0].2.len() == old[0].2.len() + 30 && new[1].2.len() == old[1].2.len() + 6);
    let is_in_use = std::cell::Cell::new(false);
    at_each_cut(&path, &recording, |cut| {
        assert_eq!(corruptions(&path), 0, "cut behind {cut}");
        let (found, holds) = (bitmaps_and_bits(&path), contents(&path));
        is_in_use.set(is_in_use.get() || found.len() < 3);
        assert_eq!(found.last(), old.last(), "cut behind {cut}: the one that is disabled");
        for (name, _, set) in &found[..found.len() - 1] {
            let granularity = if name == b"first" { 512 } else { 4096 };
            for (block, (one, other)) in holds.chunks(granularity).zip(shown.chunks(granularity)).enumerate() {
                assert!(one == other || set.contains(&(block as u64)), "cut behind {cut}, block {block}");
            }
        }
        assert_eq!(info(&path).bitmaps.len(), 3, "cut behind {cut}");
    });
    assert!(is_in_use.get());
}
