//! Entries that lead to clusters one after the other are checked together: what is wrong with one of them is found.

use super::super::header::Header;
use super::super::{Qcow2CreateOptions, Qcow2Disk, check};
use crate::formats::{Preallocation, WritableFile};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::AtomicBool;

const CLUSTER_BYTES: u64 = 4096;
const ENTRIES: u64 = 512;
const COPIED: u64 = 1 << 63;
const OFFSET_MASK: u64 = 0x00ff_ffff_ffff_fe00;

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
        let (was, length_bytes) = (word(&self.file, at), self.file.metadata().unwrap().len());
        self.file.write_all_at(&other.to_be_bytes(), at).unwrap();
        let file = WritableFile::new(self.file.try_clone().unwrap(), length_bytes, true, true);
        let mut first = vec![0; CLUSTER_BYTES as usize];
        file.read(&mut first, 0).unwrap();
        let header = Header::parse(&first, length_bytes).unwrap();
        let checked = check::check(&file, &header, &AtomicBool::new(false));
        self.file.write_all_at(&was.to_be_bytes(), at).unwrap();
        checked
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
