//! What our check finds and repairs, against `qemu-img check` (Debian package qemu-utils).

use crate::rig::{Random, Rig, check_clean, open, qemu_img, qemu_io, read_only, text};
use blockyard_block::{AllowedDirectories, CheckReport, OpenedFile, Qcow2Check, Qcow2Disk, Repair, read_bytes};
use serde_json::Value;
use std::fs;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

fn check(path: &Path, repair: Repair) -> CheckReport {
    let mut lines = 0;
    let image = OpenedFile::open(path, repair == Repair::None).unwrap();
    let mut check = Qcow2Check::open(&image, repair != Repair::None).unwrap();
    if repair == Repair::None && fs::metadata(path).unwrap().len() < 64 << 20 {
        // What is found does not depend on how much is looked at together.
        let found = [None, NonZeroU64::new(7), NonZeroU64::new(40)].map(|window| {
            let (mut check, mut lines) = (Qcow2Check::open(&image, false).unwrap(), Vec::new());
            window.into_iter().for_each(|window| check.set_window(window));
            let report = check.run(repair, &mut |line| lines.push(line.to_owned())).unwrap();
            lines.sort_unstable();
            (report, lines)
        });
        assert!(found.iter().all(|other| *other == found[0]), "{found:?}");
    }
    let report = check.run(repair, &mut |_| lines += 1).unwrap();
    let all = report.corruptions + report.leaks + report.corruptions_fixed + report.leaks_fixed;
    assert_eq!(lines > 0, all > 0, "what is counted is said");
    report
}

/// Its exit status and what it says; nothing where it cannot check.
fn qemu_check(path: &Path) -> Option<(i32, CheckReport)> {
    let output = Command::new("qemu-img").args(["check", "-U", "-f", "qcow2", "--output=json"]).arg(path).output();
    let output = output.expect("qemu-img is in the Debian package qemu-utils");
    let code = output.status.code().unwrap();
    let json: Value = if code == 1 { return None } else { serde_json::from_slice(&output.stdout).unwrap() };
    let number = |key: &str| json[key].as_u64().unwrap_or(0);
    let report = CheckReport {
        corruptions: number("corruptions"),
        missing: 0,
        zeroed_bytes: 0,
        leaks: number("leaks"),
        corruptions_fixed: 0,
        leaks_fixed: 0,
        total_clusters: number("total-clusters"),
        allocated_clusters: number("allocated-clusters"),
        fragmented_clusters: number("fragmented-clusters"),
        compressed_clusters: number("compressed-clusters"),
        image_end_bytes: number("image-end-offset"),
    };
    Some((code, report))
}

fn status(report: &CheckReport) -> i32 {
    match (report.corruptions, report.leaks) {
        (0, 0) => 0,
        (0, _) => 3,
        _ => 2,
    }
}

struct Images {
    _directory: TempDir,
    raw: PathBuf,
    image: PathBuf,
}

/// Clusters, refcounts, and what else is in an image.
const KINDS: [(u64, u64, &str); 6] = [
    (65536, 16, ""),
    (4096, 16, "snapshots"),
    (4096, 1, ""),
    (512, 16, "packed"),
    (65536, 64, "packed snapshots"),
    (4096, 16, "bitmap"),
];

impl Images {
    fn new((cluster_bytes, refcount_bits, also): (u64, u64, &str)) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (raw, image) = (directory.path().join("raw"), directory.path().join("image"));
        let mut bytes = vec![0_u8; 3 << 20];
        let mut random = Random::new(cluster_bytes);
        for offset in [0, 70_000, 1 << 20, 2_500_000] {
            bytes[offset..][..40_000].fill_with(|| random.below(256) as u8);
        }
        bytes[400_000..][..100_000].fill(b't');
        fs::write(&raw, bytes).unwrap();
        let options = format!("cluster_size={cluster_bytes},refcount_bits={refcount_bits}");
        let mut convert = vec!["convert", "-f", "raw", "-O", "qcow2", "-o", &options];
        convert.extend(also.contains("packed").then_some("-c"));
        convert.extend([text(&raw), text(&image)]);
        qemu_img(&convert);
        if also.contains("snapshots") {
            for (name, write) in [("a", "write -P 5 100k 64k"), ("b", "write -z 1M 64k"), ("c", "write -P 6 500k 64k")]
            {
                qemu_img(&["snapshot", "-c", name, text(&image)]);
                qemu_io(text(&image), "qcow2", &[write]);
            }
            qemu_img(&["snapshot", "-c", "d", text(&image)]);
        }
        if also == "bitmap" {
            qemu_img(&["bitmap", "--add", "-g", "64k", text(&image), "b"]);
            qemu_io(text(&image), "qcow2", &["write -P 5 0 640k"]);
        }
        Self { _directory: directory, raw, image }
    }
}

fn be64(bytes: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(bytes[at..at + 8].try_into().unwrap())
}

/// Where things are in an image.
struct Anatomy {
    l1: usize,
    l1_entries: usize,
    l2_tables: Vec<usize>,
    table: usize,
    refblock: usize,
    /// Of the first block, that count clusters of the file.
    refcount_bytes: usize,
    cluster_bytes: usize,
}

impl Anatomy {
    fn of(bytes: &[u8]) -> Self {
        let cluster_bytes = 1 << bytes[23];
        let (l1, l1_entries) = (be64(bytes, 40) as usize, be64(bytes, 32) as u32 as usize);
        let entries = (0..l1_entries).map(|index| be64(bytes, l1 + index * 8) & 0x00ff_ffff_ffff_fe00);
        let table = be64(bytes, 48) as usize;
        let refcount_bits = 1 << bytes[99];
        Self {
            l1,
            l1_entries,
            l2_tables: entries.filter(|&entry| entry != 0).map(|entry| entry as usize).collect(),
            table,
            refblock: be64(bytes, table) as usize,
            refcount_bytes: (bytes.len() / cluster_bytes * refcount_bits / 8).min(cluster_bytes),
            cluster_bytes,
        }
    }

    fn entry_of_l2(&self, random: &mut Random) -> usize {
        let table = self.l2_tables[random.below(self.l2_tables.len() as u64) as usize];
        table + random.below((self.cluster_bytes / 8).min((3 << 20) / self.cluster_bytes) as u64) as usize * 8
    }
}

/// Spoils refcounts and marks: what can be put right.
fn spoil_counts(bytes: &mut [u8], anatomy: &Anatomy, random: &mut Random) {
    for _ in 0..=random.below(3) {
        if random.below(3) == 0 {
            let at = anatomy.entry_of_l2(random);
            bytes[at] ^= if be64(bytes, at) == 0 { 0 } else { 0x80 };
        } else {
            let at = anatomy.refblock + random.below(anatomy.refcount_bytes as u64) as usize;
            bytes[at] ^= 1 + random.below(3) as u8;
        }
    }
}

/// Spoils where things are.
fn spoil_places(bytes: &mut [u8], anatomy: &Anatomy, random: &mut Random) {
    let clusters = (bytes.len() / anatomy.cluster_bytes) as u64;
    let somewhere = (random.below(clusters * 2) * anatomy.cluster_bytes as u64) | (random.below(2) << 63);
    let value = [0, somewhere, 1 << 50, anatomy.l1 as u64][random.below(4) as usize];
    let at = match random.below(3) {
        0 => anatomy.l1 + random.below(anatomy.l1_entries as u64) as usize * 8,
        1 => anatomy.table,
        _ => anatomy.entry_of_l2(random),
    };
    bytes[at..at + 8].copy_from_slice(&value.to_be_bytes());
}

#[test]
fn what_is_found_is_what_qemu_img_finds() {
    for kind in KINDS {
        let images = Images::new(kind);
        let good = fs::read(&images.image).unwrap();
        let (code, theirs) = qemu_check(&images.image).unwrap();
        assert_eq!((code, &theirs), (0, &check(&images.image, Repair::None)), "{kind:?}");
        let anatomy = Anatomy::of(&good);
        for seed in 0..10 {
            let mut bytes = good.clone();
            let mut random = Random::new(seed);
            let counts_only = seed < 5;
            let spoil = if counts_only { spoil_counts } else { spoil_places };
            spoil(&mut bytes, &anatomy, &mut random);
            fs::write(&images.image, &bytes).unwrap();
            let ours = check(&images.image, Repair::None);
            assert!(fs::read(&images.image).unwrap() == bytes, "a check writes nothing");
            let Some((code, theirs)) = qemu_check(&images.image) else { continue };
            assert_eq!(code, status(&ours), "{kind:?}, seed {seed}: {ours:?}, {theirs:?}");
            // Where tables lead elsewhere, it depends on who looks into what how much there is to count.
            if counts_only {
                assert_eq!(ours, theirs, "{kind:?}, seed {seed}");
            }
        }
    }
}

#[test]
fn what_is_repaired_pleases_qemu_img_and_holds_the_same() {
    for kind in KINDS {
        let images = Images::new(kind);
        let good = fs::read(&images.image).unwrap();
        let anatomy = Anatomy::of(&good);
        qemu_img(&["convert", "-O", "raw", text(&images.image), text(&images.raw)]);
        for seed in 0..6 {
            let mut bytes = good.clone();
            let mut random = Random::new(100 + seed);
            match seed {
                0 => bytes[anatomy.table..][..8].fill(0),
                1 => bytes[anatomy.table..][..8].copy_from_slice(&(anatomy.l1 as u64).to_be_bytes()),
                2 => bytes[79] |= 3,
                _ => spoil_counts(&mut bytes, &anatomy, &mut random),
            }
            fs::write(&images.image, &bytes).unwrap();
            let report = check(&images.image, Repair::All);
            assert_eq!((report.corruptions, report.leaks), (0, 0), "{kind:?}, seed {seed}");
            let (code, _) = qemu_check(&images.image).unwrap();
            assert_eq!(code, 0, "{kind:?}, seed {seed}");
            qemu_img(&["compare", "-q", "-f", "qcow2", "-F", "raw", text(&images.image), text(&images.raw)]);
        }
    }
}

/// What reads as zeros need lie nowhere.
#[test]
fn zeros_whose_place_cannot_be_lie_nowhere_after_a_repair() {
    for (options, kind) in [("", (65536, 16, "")), ("", KINDS[1]), (",extended_l2=on", (65536, 16, ""))] {
        let images = Images::new(kind);
        if !options.is_empty() {
            let options = format!("cluster_size={}{options}", kind.0);
            qemu_img(&["convert", "-f", "raw", "-O", "qcow2", "-o", &options, text(&images.raw), text(&images.image)]);
        }
        // They keep the clusters that they had.
        qemu_io(text(&images.image), "qcow2", &["write -z 1M 64k"]);
        qemu_img(&["convert", "-f", "qcow2", "-O", "raw", text(&images.image), text(&images.raw)]);
        let mut bytes = fs::read(&images.image).unwrap();
        let (table, cluster_bytes) = (Anatomy::of(&bytes).l2_tables[0], kind.0 as usize);
        let entry_bytes = if options.is_empty() { 8 } else { 16 };
        let at = table + (1 << 20) / cluster_bytes * entry_bytes;
        assert!(be64(&bytes, at) & 0x00ff_ffff_ffff_fe00 != 0, "{kind:?}");
        bytes[at + 6] |= 2;
        fs::write(&images.image, &bytes).unwrap();
        let (code, _) = qemu_check(&images.image).unwrap();
        assert_eq!((code, status(&check(&images.image, Repair::None))), (2, 2), "{kind:?}");
        let report = check(&images.image, Repair::All);
        assert!(report.corruptions_fixed > 0, "{kind:?}");
        assert_eq!((report.corruptions, report.leaks), (0, 0), "{kind:?}");
        assert_eq!(qemu_check(&images.image).unwrap().0, 0, "{kind:?}");
        qemu_img(&["compare", "-q", "-f", "qcow2", "-F", "raw", text(&images.image), text(&images.raw)]);
        assert!(Rig::new(open(&images.image)).read(0, 3 << 20) == fs::read(&images.raw).unwrap(), "{kind:?}");
    }
}

#[test]
fn leaks_are_freed_and_nothing_else_is_touched() {
    let images = Images::new(KINDS[1]);
    let good = fs::read(&images.image).unwrap();
    let anatomy = Anatomy::of(&good);
    let mut bytes = good.clone();
    // Free clusters at the end, and one that snapshots share: counted once more than there are users.
    let clusters = good.len().div_ceil(4096);
    bytes.resize((clusters + 3) * 4096, 0);
    let end = anatomy.refblock + clusters * 2;
    bytes[end..end + 6].copy_from_slice(&[0, 1, 0, 1, 0, 7]);
    let shared = (0..100).find(|at| bytes[anatomy.refblock + at * 2 + 1] == 4).unwrap();
    bytes[anatomy.refblock + shared * 2 + 1] = 5;
    let before = bytes.clone();
    fs::write(&images.image, &bytes).unwrap();
    let report = check(&images.image, Repair::Leaks);
    assert_eq!((report.leaks_fixed, report.leaks, report.corruptions), (4, 0, 0));
    bytes[end..end + 6].fill(0);
    bytes[anatomy.refblock + shared * 2 + 1] = 4;
    assert!(fs::read(&images.image).unwrap() == bytes);
    // Where a table cannot be looked into, what seems leaked may not be.
    bytes = before;
    bytes[anatomy.l1..][..8].copy_from_slice(&(1_u64 << 50).to_be_bytes());
    fs::write(&images.image, &bytes).unwrap();
    let report = check(&images.image, Repair::Leaks);
    assert!(report.corruptions > 0 && report.leaks > 0 && report.leaks_fixed == 0, "{report:?}");
    assert!(fs::read(&images.image).unwrap() == bytes);
}

#[test]
fn a_cluster_with_two_uses_is_damage_though_its_refcount_knows() {
    let images = Images::new((65536, 16, ""));
    let mut bytes = fs::read(&images.image).unwrap();
    let anatomy = Anatomy::of(&bytes);
    let (first, second) = (anatomy.l2_tables[0], anatomy.l2_tables[0] + 8);
    let cluster = be64(&bytes, first) & !(1 << 63);
    for at in [first, second] {
        bytes[at..at + 8].copy_from_slice(&cluster.to_be_bytes());
    }
    bytes[anatomy.refblock + (cluster / 65536) as usize * 2 + 1] = 2;
    fs::write(&images.image, &bytes).unwrap();
    let (code, _) = qemu_check(&images.image).unwrap();
    assert_eq!(code, 3, "the place that the second cluster had is leaked; that is all");
    assert_eq!(check(&images.image, Repair::None).corruptions, 1);
    assert_eq!(check(&images.image, Repair::Leaks).corruptions, 1);
    assert_eq!(check(&images.image, Repair::All).corruptions, 0);
}

/// What the disk uses twice, by the bytes that say so.
fn used_twice(bytes: &[u8], anatomy: &Anatomy) -> Vec<(&'static str, Vec<(usize, u64)>)> {
    let table = anatomy.l2_tables[0];
    let is_data = |&at: &usize| be64(bytes, at) != 0 && be64(bytes, at) & 1 << 62 == 0;
    let mut data = (table..table + anatomy.cluster_bytes).step_by(8).filter(is_data);
    let (one, other) = (data.next().unwrap(), data.next().unwrap());
    let copied = 1_u64 << 63;
    let mut found = vec![
        ("a cluster", vec![(one, be64(bytes, other))]),
        ("an L2 table that is data", vec![(one, copied | table as u64)]),
        ("refcounts that are data", vec![(one, copied | anatomy.refblock as u64), (other, be64(bytes, one))]),
    ];
    if anatomy.l2_tables.len() > 1 {
        let l1_index = (1..anatomy.l1_entries).rfind(|index| be64(bytes, anatomy.l1 + index * 8) != 0).unwrap();
        let table = (anatomy.l1 + l1_index * 8, be64(bytes, anatomy.l1));
        found.push(("an L2 table", vec![table]));
        found.push(("an L2 table and a cluster of it", vec![table, (one, be64(bytes, other))]));
    }
    found
}

#[test]
fn what_the_disk_uses_twice_is_copied_by_a_repair() {
    for kind in KINDS {
        let images = Images::new(kind);
        let good = fs::read(&images.image).unwrap();
        for (what, entries) in used_twice(&good, &Anatomy::of(&good)) {
            let mut bytes = good.clone();
            entries.iter().for_each(|&(at, entry)| bytes[at..at + 8].copy_from_slice(&entry.to_be_bytes()));
            fs::write(&images.image, &bytes).unwrap();
            qemu_img(&["convert", "-O", "raw", text(&images.image), text(&images.raw)]);
            let mut wanted = fs::read(&images.raw).unwrap();
            let report = check(&images.image, Repair::All);
            assert!(report.corruptions_fixed > 0, "{kind:?}, {what}");
            assert_eq!((report.corruptions, report.leaks), (0, 0), "{kind:?}, {what}");
            assert_eq!(qemu_check(&images.image).unwrap().0, 0, "{kind:?}, {what}");
            let mut rig = Rig::new(open(&images.image));
            assert!(rig.read(0, wanted.len()) == wanted, "{kind:?}, {what}");
            // What is written to one is not seen in the other.
            wanted[..8192].fill(9);
            rig.write(0, &wanted[..8192]);
            assert!(rig.read(0, wanted.len()) == wanted, "{kind:?}, {what}");
            drop(rig);
            check_clean(text(&images.image));
        }
    }
}

/// Refcounts that are somewhere else's are in the way of copies until they have been written anew: which those of one
/// bit are not, while a cluster has two uses.
#[test]
fn copies_are_made_once_refcounts_are_right() {
    for kind in KINDS.into_iter().filter(|kind| kind.1 > 1) {
        let images = Images::new(kind);
        let good = fs::read(&images.image).unwrap();
        let anatomy = Anatomy::of(&good);
        let table = be64(&good, 48) as usize;
        let end = good.len().next_multiple_of(anatomy.cluster_bytes) as u64;
        // Where snapshots are listed, if there are some; behind the end of the file; where data are.
        let places = [be64(&good, 64), end, anatomy.l2_tables[0] as u64];
        for place in places.into_iter().filter(|place| *place > 0) {
            let mut bytes = good.clone();
            let (what, twice) = used_twice(&bytes, &anatomy).swap_remove(0);
            twice.iter().for_each(|&(at, entry)| bytes[at..at + 8].copy_from_slice(&entry.to_be_bytes()));
            bytes[table..table + 8].copy_from_slice(&place.to_be_bytes());
            fs::write(&images.image, &bytes).unwrap();
            let disk = Qcow2Disk::open(&images.image, &read_only(), &AllowedDirectories::none()).unwrap();
            let wanted = Rig::new(disk).read(0, fs::metadata(&images.raw).unwrap().len() as usize);
            assert!(check(&images.image, Repair::None).corruptions > 0, "{kind:?}, {what}, {place}");
            let report = check(&images.image, Repair::All);
            assert_eq!((report.corruptions, report.leaks), (0, 0), "{kind:?}, {what}, {place}");
            assert!(Rig::new(open(&images.image)).read(0, wanted.len()) == wanted, "{kind:?}, {what}, {place}");
            check_clean(text(&images.image));
        }
    }
}

/// What of a snapshot or a bitmap is missing would show the copy, as that lies where the file ends.
#[test]
fn no_copy_is_made_where_something_else_leads_behind_the_end() {
    for kind in [KINDS[1], KINDS[5]] {
        let images = Images::new(kind);
        let mut bytes = fs::read(&images.image).unwrap();
        let anatomy = Anatomy::of(&bytes);
        let (_, twice) = used_twice(&bytes, &anatomy).swap_remove(0);
        twice.iter().for_each(|&(at, entry)| bytes[at..at + 8].copy_from_slice(&entry.to_be_bytes()));
        let end = bytes.len().next_multiple_of(anatomy.cluster_bytes) as u64;
        let at = if kind.2 == "bitmap" {
            // The directory's offset is behind its number of bitmaps and its length; an entry begins with its table.
            let extension = (104..).step_by(8).find(|&at| be64(&bytes, at) >> 32 == 0x2385_2875).unwrap();
            be64(&bytes, be64(&bytes, extension + 24) as usize) as usize
        } else {
            // The first snapshot's only L2 table is its own: the disk was written to afterwards.
            let l1 = be64(&bytes, be64(&bytes, 64) as usize) as usize;
            let table = be64(&bytes, l1) & 0x00ff_ffff_ffff_fe00;
            assert!(!anatomy.l2_tables.contains(&(table as usize)), "{kind:?}");
            table as usize
        };
        bytes[at..at + 8].copy_from_slice(&end.to_be_bytes());
        fs::write(&images.image, &bytes).unwrap();
        let repaired = |salvages: bool| {
            let image = OpenedFile::open(&images.image, false).unwrap();
            let mut check = Qcow2Check::open(&image, true).unwrap();
            if salvages {
                check.salvage();
            }
            let mut lines = Vec::new();
            let report = check.run(Repair::All, &mut |line| lines.push(line.to_owned())).unwrap();
            (report, lines.concat())
        };
        let (report, said) = repaired(false);
        assert!(
            report.corruptions > 1 && said.contains("clusters that have two uses get no copies"),
            "{kind:?}: {said}"
        );
        assert_eq!(fs::metadata(&images.image).unwrap().len().next_multiple_of(anatomy.cluster_bytes as u64), end);
        // Of a snapshot, what is missing can be zeros; then nothing is in the way.
        let (report, said) = repaired(true);
        let is_snapshot = kind.2 == "snapshots";
        assert_eq!(
            (report.corruptions == 0, said.contains("a copy at")),
            (is_snapshot, is_snapshot),
            "{kind:?}: {said}"
        );
    }
}

#[test]
fn a_cluster_in_anothers_place_of_a_data_file_is_damage() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("image");
    let data = directory.path().join("data");
    for more in ["", ",data_file_raw=on", ",extended_l2=on"] {
        let options = format!("cluster_size=16k,data_file={}{more}", text(&data));
        qemu_img(&["create", "-q", "-f", "qcow2", "-o", &options, text(&path), "64M"]);
        // In the second table; one covers 32 MiB, or 16.
        qemu_io(text(&path), "qcow2", &["write 0 32k", "write 32M 64k"]);
        let good = fs::read(&path).unwrap();
        assert_eq!(check(&path, Repair::None).corruptions, 0, "{more}");
        let table = *Anatomy::of(&good).l2_tables.iter().max().unwrap();
        let (first, second) = (table, table + if more.contains("extended") { 16 } else { 8 });
        for (at, entry) in [
            (second, be64(&good, first)),
            (second, be64(&good, second) + (1 << 30)),
            (first, 1 << 63),
            (second, be64(&good, second) + 512),
        ] {
            let mut bytes = good.clone();
            bytes[at..at + 8].copy_from_slice(&entry.to_be_bytes());
            fs::write(&path, &bytes).unwrap();
            for repair in [Repair::None, Repair::All] {
                assert_eq!(check(&path, repair).corruptions, 1, "{more}: {entry:#x}");
            }
            assert!(fs::read(&path).unwrap() == bytes, "nobody knows where it belongs");
            // Who reads it says so, too.
            let output = Command::new("qemu-io").args(["-r", "-c", "read 32M 64k"]).arg(&path).output().unwrap();
            assert!(!output.status.success(), "{more}: {entry:#x}");
            let allowed = AllowedDirectories::new(&[directory.path()]).unwrap();
            let disk = Qcow2Disk::open(&path, &read_only(), &allowed).unwrap();
            assert!(read_bytes(&disk, 32 << 20..33 << 20).is_err(), "{more}: {entry:#x}");
        }
        fs::remove_file(&data).unwrap();
    }
}

#[test]
fn absurd_images_are_checked_in_little_time_and_memory() {
    let images = Images::new((65536, 16, ""));
    let good = fs::read(&images.image).unwrap();
    let anatomy = Anatomy::of(&good);
    // An L1 table of 32 MiB whose entries all lead to one table, or to tables in a hole.
    for spread in [0, 65536] {
        let mut bytes = good.clone();
        let l1 = good.len().next_multiple_of(65536);
        bytes.resize(l1, 0);
        let first = if spread == 0 { anatomy.l2_tables[0] as u64 } else { (l1 + (64 << 20)) as u64 };
        bytes.extend((0..(32 << 20) / 8).flat_map(|index| ((first + index * spread) | 1 << 63).to_be_bytes()));
        bytes[36..40].copy_from_slice(&(4_u32 << 20).to_be_bytes());
        bytes[40..48].copy_from_slice(&(l1 as u64).to_be_bytes());
        fs::write(&images.image, &bytes).unwrap();
        fs::File::options().write(true).open(&images.image).unwrap().set_len(1 << 40).unwrap();
        let began = std::time::Instant::now();
        assert!(check(&images.image, Repair::None).corruptions > 0);
        println!("{:?} for a spread of {spread}", began.elapsed());
    }
    // As many snapshots as there can be, all of the same table.
    let mut bytes = good;
    let table = bytes.len().next_multiple_of(65536);
    bytes.resize(table, 0);
    let snapshot: Vec<u8> =
        [&(anatomy.l1 as u64).to_be_bytes()[..], &(anatomy.l1_entries as u32).to_be_bytes(), &[0; 28]].concat();
    (0..65536).for_each(|_| bytes.extend(&snapshot));
    bytes[60..64].copy_from_slice(&65536_u32.to_be_bytes());
    bytes[64..72].copy_from_slice(&(table as u64).to_be_bytes());
    fs::write(&images.image, &bytes).unwrap();
    assert!(check(&images.image, Repair::None).corruptions > 0);
}
