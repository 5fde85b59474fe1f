//! Images of several kinds, of which numbers that say something are others.
//!
//! What is spoiled is chosen among the numbers that are not zero, and those behind them: nearly all of these are of
//! headers and tables, as the data are compressed, or zeros.

use super::super::header::Header;
use super::super::{Preallocation, Qcow2CreateOptions, Qcow2Disk, Qcow2Features, Qcow2Writer};
use super::fuzz::{User, checked, checked_with, is_for_others, options};
use super::{open_to_change, windows};
use crate::conversion::{Conversion, ConversionOptions, Qcow2Target};
use crate::formats::Repair;
use crate::{AllowedDirectories, Disk, FileDisk, KeyFile, LuksOptions, NewLuks, Operation, read_bytes};
use bolero::TypeGenerator;
use std::fs::{self, File};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::OnceLock;

const DISK_BYTES: u64 = 128 << 10;

/// Another number in the place of one.
#[derive(Clone, Debug, TypeGenerator)]
pub(super) enum Spoil {
    Byte {
        index: u16,
        at: u8,
        value: u8,
    },
    Small {
        index: u16,
        value: u8,
    },
    Any {
        index: u16,
        value: u64,
    },
    /// What leads to a cluster of the image, with some of the bits that mean something.
    Pointer {
        index: u16,
        cluster: u8,
        flags: u8,
    },
    /// What another one is.
    Copy {
        index: u16,
        from: u16,
    },
    Truncate {
        length: u32,
    },
}

pub(super) struct Sample {
    bytes: Vec<u8>,
    pub(super) cluster_bytes: u64,
    /// Where eight bytes are that say something.
    numbers: Vec<usize>,
    /// What opens it, if it is encrypted.
    pub(super) key: Option<KeyFile>,
}

fn samples() -> &'static [Sample] {
    static SAMPLES: OnceLock<Vec<Sample>> = OnceLock::new();
    SAMPLES.get_or_init(|| {
        let new = Qcow2Features::default();
        vec![
            sample(512, new, None),
            sample(512, Qcow2Features { version: 2, ..new }, None),
            sample(512, Qcow2Features { refcount_order: 6, has_lazy_refcounts: true, ..new }, None),
            sample(16 << 10, Qcow2Features { has_extended_l2: true, is_zstd: true, ..new }, None),
            sample(4096, new, Some(encryption())),
        ]
    })
}

/// One of them; the encrypted one seldom: it takes a millisecond to be opened.
pub(super) fn chosen(which: u8) -> &'static Sample {
    let (samples, which) = (samples(), usize::from(which));
    &samples[if which % 16 == 15 { samples.len() - 1 } else { which % (samples.len() - 1) }]
}

/// The one that is opened soonest: few iterations, and little key material.
fn encryption() -> NewLuks {
    let directory = blockyard_fuzz::memory_directory().unwrap();
    let path = directory.path().join("key");
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(&path).unwrap();
    std::io::Write::write_all(&mut file, b"word").unwrap();
    let (key, mut options) = (KeyFile::new(path), LuksOptions::default());
    // All clones have what was read.
    key.passphrase().unwrap();
    for (name, value) in [("cipher-alg", "aes-128"), ("cipher-mode", "cbc"), ("hash-alg", "sha1"), ("iter-time", "1")] {
        options.set(name, value).unwrap();
    }
    NewLuks { key, options }
}

/// With compressed clusters unless it is encrypted, others, zeros and two snapshots.
fn sample(cluster_bytes: u32, features: Qcow2Features, encryption: Option<NewLuks>) -> Sample {
    let directory = blockyard_fuzz::memory_directory().unwrap();
    let (compress, key) = (encryption.is_none(), encryption.as_ref().map(|encryption| encryption.key.clone()));
    let (raw, path) = (directory.path().join("raw"), directory.path().join("image"));
    let text = (0..2 * cluster_bytes.max(4096)).map(|at| (at / 16) as u8).collect::<Vec<_>>();
    fs::write(&raw, text).unwrap();
    File::options().write(true).open(&raw).unwrap().set_len(DISK_BYTES).unwrap();
    let source = FileDisk::open(&raw, &options(true)).unwrap();
    let file = File::options().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
    let create = Qcow2CreateOptions { cluster_bytes, features, encryption, ..Qcow2CreateOptions::new(DISK_BYTES) };
    let writer = Qcow2Writer::new(file, &create).unwrap();
    let conversion = ConversionOptions { threads: 1, depth: 1, zero_run_bytes: Some(4096) };
    Conversion::to_qcow2(&source, Qcow2Target { writer: &writer, compress, behind: None }, conversion)
        .run(|_| true)
        .unwrap();
    writer.finish().unwrap();
    for snapshot in ["one", "another"] {
        Qcow2Disk::make_snapshot(&open_to_change(&path), snapshot, &allowed(key.as_ref())).unwrap();
        let disk = open(&path, false, key.as_ref()).unwrap();
        let mut user = User::new(&disk);
        user.perform(Operation::Write { force_unit_access: false }, 2048, 1024);
        user.perform(Operation::Write { force_unit_access: false }, 64 << 10, 4096);
        user.perform(Operation::WriteZeroes { length_bytes: 2048, may_unmap: false }, 96 << 10, 0);
    }
    let bytes = fs::read(path).unwrap();
    let header = Header::parse(&bytes, bytes.len() as u64).unwrap();
    // Numbers of that header are other targets', which bound the rounds that they ask for.
    let encryption = header
        .encryption_header
        .map_or(0..0, |table| table.offset_bytes as usize..(table.offset_bytes + table.length_bytes) as usize);
    let is_number = |at: &usize| {
        let is_there = at.saturating_sub(8) + 16 <= bytes.len() && !encryption.contains(at);
        is_there && bytes[at.saturating_sub(8)..][..16] != [0; 16]
    };
    let numbers = (0..bytes.len()).step_by(8).filter(is_number).collect();
    Sample { bytes, cluster_bytes: cluster_bytes.into(), numbers, key }
}

pub(super) fn allowed(key: Option<&KeyFile>) -> AllowedDirectories {
    AllowedDirectories::none().with_key(key.cloned())
}

fn open(path: &Path, read_only: bool, key: Option<&KeyFile>) -> Result<Qcow2Disk, crate::ImageError> {
    Qcow2Disk::open(path, &options(read_only), &allowed(key))
}

impl Sample {
    pub(super) fn spoiled(&self, spoils: &[Spoil]) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        let at = |index: u16| self.numbers[usize::from(index) % self.numbers.len()];
        for spoil in spoils {
            let (at, value) = match *spoil {
                Spoil::Byte { index, at: within, value } => (at(index) + usize::from(within % 8), vec![value]),
                Spoil::Small { index, value } => (at(index), u64::from(value).to_be_bytes().into()),
                Spoil::Any { index, value } => (at(index), value.to_be_bytes().into()),
                Spoil::Pointer { index, cluster, flags } => {
                    let clusters = self.bytes.len() as u64 / self.cluster_bytes + 2;
                    let flags = u64::from(flags & 3) << 62 | u64::from(flags >> 2 & 1);
                    (at(index), ((u64::from(cluster) % clusters * self.cluster_bytes) | flags).to_be_bytes().into())
                }
                Spoil::Copy { index, from } => (at(index), self.bytes[at(from)..][..8].to_vec()),
                Spoil::Truncate { length } => {
                    bytes.truncate(length as usize % self.bytes.len());
                    continue;
                }
            };
            if let Some(place) = bytes.get_mut(at..at + value.len()) {
                place.copy_from_slice(&value);
            }
        }
        bytes
    }
}

fn expect_clean(path: &Path) {
    let mut said = Vec::new();
    let found = checked_with(path, Repair::None, &mut |line| said.push(line.to_owned()));
    assert_eq!(found.map(|found| found.corruptions), Some(0), "{said:#?}");
}

/// Some of what is done with images. Whether it works does not matter.
fn use_it(path: &Path, key: Option<&KeyFile>) {
    for read_only in [true, false] {
        let Ok(disk) = open(path, read_only, key) else { continue };
        let capacity_bytes = disk.geometry().capacity_bytes;
        let (mut at, mut steps) = (0, 0);
        while at < capacity_bytes && steps < 64 {
            let Ok(extent) = disk.extents(at..capacity_bytes) else { break };
            assert!(extent.offset_bytes == at && extent.length_bytes > 0);
            (at, steps) = (at + extent.length_bytes, steps + 1);
        }
        assert!(at <= capacity_bytes);
        let mut user = User::new(&disk);
        for offset in [0, 2048, 7 << 10, 64 << 10, 96 << 10] {
            user.perform(Operation::Read, offset, 4096);
            user.perform(Operation::Write { force_unit_access: false }, offset, 1536);
            user.perform(Operation::Discard { length_bytes: 8192 }, offset, 0);
            user.perform(Operation::WriteZeroes { length_bytes: 2048, may_unmap: true }, offset + 1024, 0);
            user.perform(Operation::Read, offset, 4096);
        }
        user.perform(Operation::Flush, 0, 0);
    }
    let allowed = allowed(key);
    let of_snapshot =
        |name| Qcow2Disk::open_snapshot_in(File::open(path).unwrap(), path, name, &options(true), &allowed);
    for name in ["one", "another"] {
        if let Ok(snapshot) = of_snapshot(name) {
            let mut user = User::new(&snapshot);
            user.perform(Operation::Read, 0, 8192);
            user.perform(Operation::Read, 64 << 10, 8192);
        }
    }
    let _ = Qcow2Disk::apply_snapshot(&open_to_change(path), "one", &allowed);
    let _ = Qcow2Disk::remove_snapshot(&open_to_change(path), "another", &allowed);
    let _ = Qcow2Disk::make_snapshot(&open_to_change(path), "third", &allowed);
    let _ = Qcow2Disk::resize(&open_to_change(path), DISK_BYTES + (64 << 10), Preallocation::Off, &allowed);
}

/// Also, what the checker calls clean opens, and whatever is done then, it stays clean.
#[test]
fn fuzz_an_image_of_any_kind_is_refused_or_stays_in_order() {
    let directory = blockyard_fuzz::memory_directory().unwrap();
    let path = directory.path().join("image");
    blockyard_fuzz::check!(400).with_type::<(u8, Vec<Spoil>)>().for_each(|(which, spoils)| {
        let sample = chosen(*which);
        let key = sample.key.as_ref();
        let bytes = sample.spoiled(spoils);
        windows::agree(&bytes, &path);
        fs::write(&path, &bytes).unwrap();
        let found = checked(&path, Repair::None);
        let is_clean = found.is_some_and(|found| found.corruptions == 0) && !is_for_others(&bytes);
        if is_clean {
            open(&path, false, key).unwrap();
        }
        use_it(&path, key);
        if is_clean {
            expect_clean(&path);
        }
        fs::write(&path, &bytes).unwrap();
        let Some(repaired) = checked(&path, Repair::All) else { return };
        assert_eq!(checked(&path, Repair::None).map(|again| again.corruptions), Some(repaired.corruptions));
        if repaired.corruptions == 0 && !is_for_others(&fs::read(&path).unwrap()) {
            open(&path, false, key).unwrap();
            use_it(&path, key);
            expect_clean(&path);
        }
    });
}

/// A snapshot whose L1 table has no entries is one wherever that lies, but within a cluster, as for QEMU.
#[test]
fn a_table_without_entries_is_judged_as_one_by_who_checks_and_who_opens() {
    let directory = blockyard_fuzz::memory_directory().unwrap();
    let path = directory.path().join("image");
    let sample = &samples()[0];
    let at = u64::from_be_bytes(sample.bytes[64..][..8].try_into().unwrap()) as usize;
    for (offset, corruptions) in [(0, 0), (1_u64 << 40, 0), (u64::MAX - sample.cluster_bytes + 1, 0), (1, 1)] {
        let mut bytes = sample.bytes.clone();
        bytes[at..][..8].copy_from_slice(&offset.to_be_bytes());
        bytes[at + 8..][..4].fill(0);
        fs::write(&path, &bytes).unwrap();
        assert_eq!(checked(&path, Repair::None).map(|found| found.corruptions), Some(corruptions), "{offset}");
        assert_eq!(open(&path, false, None).is_ok(), corruptions == 0, "{offset}");
        use_it(&path, None);
        if corruptions == 0 {
            expect_clean(&path);
        }
    }
}

#[test]
fn samples_are_in_order() {
    let directory = blockyard_fuzz::memory_directory().unwrap();
    let path = directory.path().join("image");
    for sample in samples() {
        fs::write(&path, &sample.bytes).unwrap();
        let found = checked(&path, Repair::None).unwrap();
        assert!((found.corruptions, found.leaks) == (0, 0), "{found:?}");
        assert_eq!(found.compressed_clusters > 0, sample.key.is_none());
        let disk = open(&path, true, sample.key.as_ref()).unwrap();
        assert!(read_bytes(&disk, 0..512).unwrap().iter().any(|&byte| byte != 0));
    }
}
