//! Entries that lead to clusters one after the other are checked together: what is wrong with one of them is found.

use super::super::entries::{COMPRESSED, COPIED, Layout, OFFSET_MASK};
use super::super::header::Header;
use super::super::refblock::refcount;
use super::super::references::{self, Part};
use super::super::{Qcow2CreateOptions, Qcow2Disk, check};
use crate::formats::random::Random;
use crate::formats::{Preallocation, WritableFile};
use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::AtomicBool;

const CLUSTER_BYTES: u64 = 4096;
const ENTRIES: u64 = 512;
/// Refcounts in a block.
const COUNTS: u64 = CLUSTER_BYTES / 2;

/// An image of one L2 table, all of whose entries lead somewhere.
struct Full {
    file: File,
    table: u64,
    refblock: u64,
}

impl Full {
    fn new(path: &Path) -> Self {
        let options = Qcow2CreateOptions {
            cluster_bytes: CLUSTER_BYTES as u32,
            preallocation: Preallocation::Metadata,
            ..Qcow2CreateOptions::new(ENTRIES * CLUSTER_BYTES)
        };
        Qcow2Disk::create(path, &options).unwrap();
        let file = File::options().read(true).write(true).open(path).unwrap();
        let at = |offset| word(&file, word(&file, offset)) & OFFSET_MASK;
        let (table, refblock) = (at(40), at(48));
        Self { table, refblock, file }
    }

    fn entry_at(&self, index: u64) -> u64 {
        self.table + index * 8
    }

    /// What the check says when a word is another.
    #[track_caller]
    fn with(&self, at: u64, other: u64) -> Result<(), String> {
        let was = word(&self.file, at);
        self.file.write_all_at(&other.to_be_bytes(), at).unwrap();
        let (file, header) = self.opened();
        let checked = check::check(&file, &header, &AtomicBool::new(false)).map(drop);
        self.file.write_all_at(&was.to_be_bytes(), at).unwrap();
        checked
    }

    fn opened(&self) -> (WritableFile, Header) {
        let length_bytes = self.file.metadata().unwrap().len();
        let file = WritableFile::new(self.file.try_clone().unwrap(), length_bytes, true, true);
        let mut first = vec![0; CLUSTER_BYTES as usize];
        file.read(&mut first, 0).unwrap();
        (file, Header::parse(&first, length_bytes).unwrap())
    }

    /// Whether entries are in order, one looked at after the other.
    fn are_in_order(&self, entries: &[u64]) -> bool {
        let (file, header) = self.opened();
        let layout = Layout::of(&header);
        let tables = references::in_refcount_table(&file, &header).chain(references::in_l1(&file, &header, header.l1));
        let clusters =
            entries.iter().enumerate().filter_map(|(index, &entry)| references::of_l2_entry(index, entry, layout));
        let all = references::in_header(&header).chain(tables.map(Result::unwrap)).chain(clusters);
        let mut uses = HashMap::<u64, Vec<_>>::new();
        for reference in all.filter(|reference| reference.is_used()) {
            if !reference.is_aligned(&header) {
                return false;
            }
            let end = reference.offset_bytes + reference.length_bytes;
            for cluster in reference.offset_bytes / CLUSTER_BYTES..end.div_ceil(CLUSTER_BYTES) {
                uses.entry(cluster).or_default().push((reference.part == Part::Compressed, reference.is_copied()));
            }
        }
        let mut counts = vec![0; CLUSTER_BYTES as usize];
        file.read(&mut counts, self.refblock).unwrap();
        uses.into_iter().all(|(cluster, uses)| {
            // There is one block.
            let count = if cluster < COUNTS { refcount(&counts, 4, cluster as usize) } else { return false };
            match uses[..] {
                [(false, in_place)] => count <= 1 || !in_place,
                _ => uses.iter().all(|(is_compressed, _)| *is_compressed) && count >= uses.len() as u64,
            }
        })
    }
}

fn word(file: &File, at: u64) -> u64 {
    let mut bytes = [0; 8];
    file.read_exact_at(&mut bytes, at).unwrap();
    u64::from_be_bytes(bytes)
}

#[test]
fn what_is_wrong_is_found_wherever_it_is() {
    let directory = blockyard_fuzz::memory_directory().unwrap();
    let path = directory.path().join("image");
    let full = Full::new(&path);
    let entry = |index: u64| word(&full.file, full.entry_at(index % ENTRIES));
    assert!((1..ENTRIES).all(|index| entry(index) == entry(0) + index * CLUSTER_BYTES && entry(0) & COPIED != 0));
    for index in [0, 1, 30, 31, 32, 33, 255, 510, 511] {
        let (at, own) = (full.entry_at(index), entry(index));
        let other = entry(index + 100);
        for (wrong, said) in [
            (other, format!("the cluster at {} has two uses", other & OFFSET_MASK)),
            (full.table | COPIED, format!("the cluster at {} has two uses", full.table)),
            (own + 512, format!("the cluster at {} does not begin with a cluster", (own + 512) & OFFSET_MASK)),
            (1 << 50, format!("something at {} lies far behind the end of the file", 1_u64 << 50)),
        ] {
            let found = full.with(at, wrong).unwrap_err();
            assert!(found.contains(&said), "entry {index} is {wrong:#x}: {found}, not {said}");
        }
        // Nothing, zeros with and without a cluster, and what does not say that it is alone are in order.
        for right in [0, 1, own | 1, own & !COPIED] {
            full.with(at, right).unwrap();
        }
    }
}

#[test]
fn refcounts_are_looked_at_each() {
    let directory = blockyard_fuzz::memory_directory().unwrap();
    let path = directory.path().join("image");
    let full = Full::new(&path);
    let first = (word(&full.file, full.table) & OFFSET_MASK) / CLUSTER_BYTES;
    for cluster in [first, first + 29, first + 64, first + ENTRIES - 4] {
        let at = full.refblock + cluster / 4 * 8;
        let was = word(&full.file, at);
        let shift = 48 - cluster % 4 * 16;
        assert_eq!(was >> shift & 0xffff, 1);
        // In use though it is called free: that is mended.
        full.with(at, was & !(0xffff << shift)).unwrap();
        let said = full.with(at, was | 2 << shift).unwrap_err();
        assert!(said.contains("a cluster that others use too is said to be used once"), "{said}");
    }
}

#[test]
fn runs_are_judged_as_their_entries_are() {
    let directory = blockyard_fuzz::memory_directory().unwrap();
    let full = Full::new(&directory.path().join("image"));
    let random = &mut Random(4711);
    let entries: Vec<u64> = (0..ENTRIES).map(|index| word(&full.file, full.entry_at(index))).collect();
    let mut counts = vec![0; CLUSTER_BYTES as usize];
    full.file.read_exact_at(&mut counts, full.refblock).unwrap();
    let mut in_order = 0;
    for round in 0..2000 {
        let mut entries = entries.clone();
        for _ in 0..random.below(4) {
            let start = random.below(ENTRIES) as usize;
            let end = (start + 1 + random.below(80) as usize).min(entries.len());
            let (by, kind) = ((1 + random.below(3)) * CLUSTER_BYTES, random.below(12));
            for entry in &mut entries[start..end] {
                *entry = match kind {
                    0..4 => 0,
                    4 => 1,
                    5 | 6 => *entry & !COPIED,
                    7 => *entry | 1,
                    8 => COMPRESSED | (*entry & OFFSET_MASK),
                    9 => entry.wrapping_add(by),
                    10 => *entry + 512,
                    _ => *entry + (COUNTS << 12),
                };
            }
            if random.below(4) == 0 {
                entries.swap(start, end - 1);
            }
            if random.below(8) == 0 {
                // Its last cluster is another's.
                entries[start] = COMPRESSED | 1 << 61 | (entries[start] & OFFSET_MASK);
            }
        }
        let mut counts = counts.clone();
        if random.below(3) == 0 {
            counts[2 * random.below(COUNTS) as usize + 1] = random.below(3) as u8;
        }
        full.file.write_all_at(&counts, full.refblock).unwrap();
        let bytes: Vec<u8> = entries.iter().flat_map(|entry| entry.to_be_bytes()).collect();
        full.file.write_all_at(&bytes, full.table).unwrap();
        let expected = full.are_in_order(&entries);
        let (file, header) = full.opened();
        let checked = check::check(&file, &header, &AtomicBool::new(false));
        assert_eq!(checked.is_ok(), expected, "round {round}: {checked:?}");
        in_order += u32::from(expected);
    }
    assert!((500..1500).contains(&in_order), "{in_order} images are in order");
}
