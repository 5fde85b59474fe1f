//! The hand-picked files of the fuzz targets' corpora, in a form that can be read.
//!
//! bolero replays what is in `__fuzz__/TARGET/corpus` beside a target's source whenever the target runs. It makes the
//! target's input from a file's bytes as its generators consume them; [`Seed`] writes bytes that are consumed as what
//! is meant. The files are checked in; `UPDATE_SEEDS=1 cargo test --package xtask seeds` writes them anew.

use crate::root;
use bolero::generator::bolero_generator::driver::{ByteSliceDriver, Options};
use bolero::{Driver, TypeGenerator};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::{env, fs};

mod aligned;
mod appliance;
mod devices;
mod frames;
mod images;
mod partition_tables;
mod replay;
mod sessions;
mod specifications;
mod traps;

/// The corpus of one target.
struct Corpus {
    /// The target's source, from the repository's root.
    source: &'static str,
    /// The target's function.
    function: &'static str,
    /// Modules that it is in, below its crate, joined as bolero joins them.
    modules: &'static str,
    /// By the name of the file.
    seeds: Vec<(&'static str, Seed)>,
}

impl Corpus {
    fn directory(&self) -> PathBuf {
        let function = self.function.strip_prefix("fuzz_").unwrap_or(self.function);
        let source = root().join(self.source);
        source.with_file_name("__fuzz__").join(format!("{}__{function}", self.modules)).join("corpus")
    }
}

/// A file of a corpus: values in the order in which the target's input type generates them.
#[derive(Clone, Default)]
struct Seed(Vec<u8>);

impl Seed {
    /// Integers and arrays of bytes are themselves.
    fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend(bytes);
        self
    }

    fn u8(self, value: u8) -> Self {
        self.bytes(&[value])
    }

    fn u16(self, value: u16) -> Self {
        self.bytes(&value.to_le_bytes())
    }

    fn u32(self, value: u32) -> Self {
        self.bytes(&value.to_le_bytes())
    }

    fn u64(self, value: u64) -> Self {
        self.bytes(&value.to_le_bytes())
    }

    /// True is what is below the middle.
    fn bool(self, value: bool) -> Self {
        self.u8(if value { 0 } else { 0xff })
    }

    /// One of `count`: the lowest byte that, as a part of 256, is that part of `count`.
    fn choice(self, index: u8, count: u16) -> Self {
        assert!(u16::from(index) < count);
        self.u8((u16::from(index) * 256).div_ceil(count) as u8)
    }

    /// Of a vector, which has no more than 64 items.
    fn length(self, items: usize) -> Self {
        self.choice(items as u8, 65)
    }

    fn vector(self, bytes: &[u8]) -> Self {
        self.length(bytes.len()).bytes(bytes)
    }
}

fn corpora() -> Vec<Corpus> {
    frames::corpora()
        .into_iter()
        .chain(partition_tables::corpora())
        .chain(traps::corpora())
        .chain(devices::corpora())
        .chain(images::corpora())
        .chain(sessions::corpora())
        .chain(aligned::corpora())
        .chain(appliance::corpora())
        .chain([replay::corpus(), specifications::corpus()])
        .collect()
}

#[test]
fn seeds_are_checked_in_as_they_are_here() {
    for corpus in corpora() {
        let source = fs::read_to_string(root().join(corpus.source)).unwrap();
        assert!(source.contains(&format!("fn {}(", corpus.function)), "{} in {}", corpus.function, corpus.source);
        let directory = corpus.directory();
        let names: BTreeMap<_, _> = corpus.seeds.iter().map(|(name, seed)| (*name, seed)).collect();
        assert_eq!(names.len(), corpus.seeds.len(), "a name twice in {}", directory.display());
        for (name, Seed(wanted)) in names {
            let file = directory.join(name);
            if env::var_os("UPDATE_SEEDS").is_some() {
                fs::create_dir_all(&directory).unwrap();
                fs::write(&file, wanted).unwrap();
            }
            let found = fs::read(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
            assert!(found == *wanted, "{} is not what seeds.rs says: UPDATE_SEEDS=1 writes it", file.display());
        }
    }
}

#[test]
fn bolero_reads_what_is_meant() {
    fn read<T: TypeGenerator>(seed: Seed) -> T {
        ByteSliceDriver::new(&seed.0, &Options::default()).produce().unwrap()
    }
    let seed = Seed::default();
    assert_eq!(read::<(u8, u16, u32)>(seed.clone().u8(1).u16(2).u32(3)), (1, 2, 3));
    assert_eq!(read::<(u64, [u8; 2])>(seed.clone().u64(1 << 63).bytes(&[4, 5])), (1 << 63, [4, 5]));
    assert_eq!(read::<(bool, bool)>(seed.clone().bool(true).bool(false)), (true, false));
    for length in 0..=64 {
        let bytes = vec![7; length];
        assert_eq!(read::<(Vec<u8>, u8)>(seed.clone().vector(&bytes).u8(9)), (bytes, 9));
    }
    #[derive(Debug, PartialEq, TypeGenerator)]
    enum Choice {
        First(u8),
        Second(u16),
        Third,
    }
    assert_eq!(read::<Choice>(seed.clone().choice(0, 3).u8(1)), Choice::First(1));
    assert_eq!(read::<Choice>(seed.clone().choice(1, 3).u16(2)), Choice::Second(2));
    assert_eq!(read::<Choice>(seed.choice(2, 3)), Choice::Third);
}
