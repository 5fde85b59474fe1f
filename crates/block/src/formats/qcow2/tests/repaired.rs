//! What can be read of a damaged image reads the same after any repair.

use super::super::header::{Header, Table};
use super::super::references::{self, Part, Reference};
use super::super::snapshots::FoundSnapshot;
use super::super::{Qcow2Check, Qcow2Disk, bitmaps, own_file, snapshots};
use super::fuzz::options;
use super::fuzz_numbers::{Sample, Spoil, allowed, chosen};
use super::{mistaken_tables, open_to_change};
use crate::formats::{Repair, WritableFile};
use crate::{Disk, read_bytes};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::path::Path;

/// As much of a disk is looked at, where one claims to be larger.
const LOOKED_AT_BYTES: u64 = 256 << 10;

/// What an image shows: of its disk, and of each snapshot, the clusters that can be read.
type Shown = Vec<Vec<Option<Vec<u8>>>>;

/// The names of its snapshots, where each has one of its own.
fn names(path: &Path, header: &Header) -> Option<Vec<String>> {
    let file = own_file::writable(&File::open(path).unwrap()).unwrap();
    let found = snapshots::found(&file, header).ok()?;
    let described = found.iter().map(|snapshot| &snapshot.described);
    let words: BTreeSet<_> = described.clone().flat_map(|described| [&described.id, &described.name]).collect();
    (words.len() == 2 * found.len()).then(|| described.map(|described| described.name.clone()).collect())
}

/// Appends what each cluster of a range is, if it can be read: all at once, or else of each half.
fn read_into(found: &mut Vec<Option<Vec<u8>>>, disk: &Qcow2Disk, range: Range<u64>, cluster_bytes: u64) {
    let clusters = (range.end - range.start).div_ceil(cluster_bytes);
    match read_bytes(disk, range.clone()) {
        Ok(bytes) => found.extend(bytes.chunks(cluster_bytes as usize).map(|cluster| Some(cluster.to_vec()))),
        Err(_) if clusters <= 1 => found.push(None),
        Err(_) => {
            let middle = range.start + clusters / 2 * cluster_bytes;
            read_into(found, disk, range.start..middle, cluster_bytes);
            read_into(found, disk, middle..range.end, cluster_bytes);
        }
    }
}

fn shown(path: &Path, sample: &Sample, names: &[String]) -> Option<Shown> {
    let allowed = allowed(sample.key.as_ref());
    let clusters = |disk: Qcow2Disk| {
        let (end, mut found) = (disk.geometry().capacity_bytes.min(LOOKED_AT_BYTES), Vec::new());
        read_into(&mut found, &disk, 0..end, sample.cluster_bytes);
        found
    };
    let disk = Qcow2Disk::open(path, &options(true), &allowed).ok()?;
    let of_snapshot = |name: &String| {
        let file = File::open(path).unwrap();
        Qcow2Disk::open_snapshot_in(file, path, name, &options(true), &allowed).map_or_else(|_| Vec::new(), clusters)
    };
    Some([clusters(disk)].into_iter().chain(names.iter().map(of_snapshot)).collect())
}

/// The clusters of a file that tables lie in, each with those that do.
struct Tables {
    cluster_bytes: u64,
    users: BTreeMap<u64, BTreeSet<(&'static str, u64)>>,
}

impl Tables {
    fn of(file: &WritableFile, header: &Header, snapshots: &[FoundSnapshot]) -> io::Result<Self> {
        let mut tables = Self { cluster_bytes: header.cluster_bytes(), users: BTreeMap::new() };
        for Reference { part, offset_bytes, length_bytes, .. } in references::in_header(header) {
            let kind = if part == Part::L1Table { "L1" } else { "header" };
            tables.add(kind, Table { offset_bytes, length_bytes });
        }
        for block in references::in_refcount_table(file, header) {
            let Reference { offset_bytes, length_bytes, .. } = block?;
            tables.add("refcounts", Table { offset_bytes, length_bytes });
        }
        for directory in [bitmaps::directory(file, header)?, snapshots::snapshots(file, header)?] {
            directory.own.into_iter().for_each(|own| tables.add("directory", own));
            directory.tables.iter().for_each(|table| tables.add("L1", *table));
        }
        for l1 in [header.l1].into_iter().chain(snapshots.iter().map(|snapshot| snapshot.l1)) {
            for table in references::in_l1(file, header, l1) {
                let Reference { offset_bytes, length_bytes, .. } = table?;
                tables.add("L2", Table { offset_bytes, length_bytes });
            }
        }
        Ok(tables)
    }

    fn clusters(&self, table: Table) -> Range<u64> {
        let end = table.offset_bytes.saturating_add(table.length_bytes);
        table.offset_bytes / self.cluster_bytes..end.div_ceil(self.cluster_bytes)
    }

    fn add(&mut self, kind: &'static str, table: Table) {
        // Of what is longer than any image here, the beginning says enough.
        for cluster in self.clusters(table).take(1 << 12) {
            self.users.entry(cluster).or_default().insert((kind, table.offset_bytes));
        }
    }

    /// Whether a place is in use by as many tables.
    fn are(&self, wanted: usize, offset_bytes: u64, length_bytes: u64) -> bool {
        let mut clusters = self.clusters(Table { offset_bytes, length_bytes });
        clusters.all(|cluster| self.users.get(&cluster).map_or(0, BTreeSet::len) == wanted)
    }

    /// The clusters of a disk that a repair has no reason to touch: neither they nor their tables are another table.
    fn apart(&self, file: &WritableFile, header: &Header, l1: Table) -> io::Result<BTreeSet<u64>> {
        let (mut mixed, entry_bytes) = (BTreeSet::new(), if header.has_extended_l2() { 16 } else { 8 });
        let in_table = header.cluster_bytes() / entry_bytes;
        for index in 0..(l1.length_bytes / 8).min(LOOKED_AT_BYTES) {
            if !self.are(1, l1.offset_bytes + index * 8, 8) {
                mixed.extend(index * in_table..(index + 1) * in_table);
            }
        }
        for table in references::in_l1(file, header, l1) {
            let Reference { index, offset_bytes, length_bytes, .. } = table?;
            let first = index as u64 * in_table;
            if !self.are(1, offset_bytes, length_bytes) {
                mixed.extend(first..first + in_table);
            }
            for cluster in references::in_l2(file, header, offset_bytes) {
                let Reference { index, offset_bytes, length_bytes, .. } = cluster?;
                if !self.are(0, offset_bytes, length_bytes) {
                    mixed.insert(first + index as u64);
                }
            }
        }
        let all = 0..LOOKED_AT_BYTES / header.cluster_bytes();
        Ok(all.filter(|cluster| !mixed.contains(cluster)).collect())
    }
}

/// Which clusters of the disk, and of each snapshot, are to read as they did.
fn apart(path: &Path, header: &Header) -> io::Result<Vec<BTreeSet<u64>>> {
    let file = own_file::writable(&File::open(path)?)?;
    let snapshots = snapshots::found(&file, header)?;
    let tables = Tables::of(&file, header, &snapshots)?;
    let l1_tables = [header.l1].into_iter().chain(snapshots.iter().map(|snapshot| snapshot.l1));
    l1_tables.map(|l1| tables.apart(&file, header, l1)).collect()
}

#[test]
fn fuzz_what_could_be_read_reads_the_same_after_any_repair() {
    let directory = blockyard_fuzz::memory_directory().unwrap();
    let path = directory.path().join("image");
    blockyard_fuzz::check!(300).with_type::<(u8, u8, Vec<Spoil>)>().for_each(|(which, repair, spoils)| {
        let sample = chosen(*which);
        let bytes = sample.spoiled(spoils);
        let header = Header::parse_to_read(&bytes, bytes.len() as u64);
        let Some(header) = header.ok().filter(|header| header.cluster_bytes() == sample.cluster_bytes) else { return };
        fs::write(&path, &bytes).unwrap();
        let Some(names) = names(&path, &header) else { return };
        let Some(before) = shown(&path, sample, &names) else { return };
        let Ok(apart) = apart(&path, &header) else { return };
        let Ok(mut check) = Qcow2Check::open(&open_to_change(&path), true) else { return };
        let (repair, salvages) =
            [(Repair::All, false), (Repair::All, true), (Repair::Leaks, false)][*repair as usize % 3];
        if salvages {
            check.salvage();
        }
        let mut said = Vec::new();
        let ended = check.run(repair, &mut |line| said.push(line.to_owned()));
        drop(check);
        let after = shown(&path, sample, &names).unwrap_or_default();
        for (disk, (before, apart)) in before.iter().zip(&apart).enumerate() {
            for (cluster, wanted) in before.iter().enumerate().filter(|(_, wanted)| wanted.is_some()) {
                if apart.contains(&(cluster as u64)) {
                    let found = after.get(disk).and_then(|after| after.get(cluster));
                    assert!(found == Some(wanted), "cluster {cluster} of {disk}, {repair:?}: {said:#?}, {ended:?}");
                }
            }
        }
    });
}

/// Key material is noise: every second entry of an L1 table that lies there seems to be marked wrongly.
#[test]
fn key_material_in_the_place_of_an_l1_table_stays_as_it_is() {
    let directory = blockyard_fuzz::memory_directory().unwrap();
    let path = directory.path().join("image");
    let sample = chosen(15);
    let mut bytes = sample.spoiled(&[]);
    let keys = Header::parse(&bytes, bytes.len() as u64).unwrap().encryption_header.unwrap();
    let keys = keys.offset_bytes as usize..(keys.offset_bytes + keys.length_bytes) as usize;
    bytes[36..40].copy_from_slice(&(keys.len() as u32 / 8).to_be_bytes());
    bytes[40..48].copy_from_slice(&(keys.start as u64).to_be_bytes());
    for salvages in [false, true] {
        fs::write(&path, &bytes).unwrap();
        assert!(mistaken_tables::run(&path, Repair::All, salvages).0.corruptions > 0);
        assert!(fs::read(&path).unwrap()[keys.clone()] == bytes[keys.clone()], "{salvages}");
    }
}
