//! Images with spoiled headers, tables and ends.

use super::samples::{self, Sample};
use super::*;
use bolero::TypeGenerator;
use tempfile::TempDir;

/// Something else at a place.
#[derive(Clone, Debug, TypeGenerator)]
enum Spoil {
    Byte { offset: u32, value: u8 },
    Field { index: u8, value: Value },
    Entry { index: u8, value: Value },
    Truncate { length: u32 },
}

/// A number, more likely than not one where something ends.
#[derive(Clone, Debug, TypeGenerator)]
enum Value {
    Small(u8),
    /// So much less than the largest one.
    AlmostMax(u8),
    Power {
        bits: u8,
        less: u8,
    },
    Any(u64),
}

impl Value {
    fn number(&self) -> u64 {
        match *self {
            Self::Small(number) => number.into(),
            Self::AlmostMax(less) => u64::MAX - u64::from(less),
            Self::Power { bits, less } => (1_u64 << (bits % 64)).wrapping_sub(u64::from(less % 4)),
            Self::Any(number) => number,
        }
    }
}

fn spoiled(sample: &Sample, spoils: &[Spoil], is_mended: bool) -> Vec<u8> {
    let mut bytes = sample.bytes.clone();
    for spoil in spoils {
        match spoil {
            Spoil::Byte { offset, value } if !bytes.is_empty() => {
                let at = *offset as usize % bytes.len();
                bytes[at] = *value;
            }
            Spoil::Byte { .. } => {}
            Spoil::Field { index, value } => {
                let field = sample.fields[usize::from(*index) % sample.fields.len()];
                sample.put(&mut bytes, field, value.number());
            }
            Spoil::Entry { index, value } => {
                let (table, width) = sample.table;
                sample.put(&mut bytes, (table + usize::from(*index % 32) * width, width), value.number());
            }
            Spoil::Truncate { length } => bytes.truncate(*length as usize % (sample.bytes.len() + 1)),
        }
    }
    if is_mended {
        (sample.mend)(&mut bytes);
    }
    bytes
}

/// Whatever is wrong with it: what is said is a sentence, and nothing else happens.
fn use_it(path: &Path, format: BlockMapFormat) {
    let options = FileOptions { read_only: true, engine: Engine::Sync, ..FileOptions::default() };
    let allowed = AllowedDirectories::new(&[path.parent().unwrap()]).unwrap();
    let disk = match BlockMapDisk::open(path, format, &options, &allowed) {
        Ok(disk) => disk,
        Err(error) => {
            let said = error.to_string();
            assert!(!said.is_empty() && !said.contains('\n') && said.len() < 1000, "{said}");
            return;
        }
    };
    let capacity_bytes = disk.geometry().capacity_bytes;
    if capacity_bytes == 0 {
        return;
    }
    // A disk may claim to be large; a few steps are enough.
    let (mut at, mut is_whole) = (0, true);
    for _ in 0..64 {
        let Ok(Extent { offset_bytes, length_bytes, .. }) = disk.extents(at..capacity_bytes) else {
            is_whole = false;
            break;
        };
        assert!(offset_bytes == at && length_bytes > 0);
        at += length_bytes;
        assert!(at <= capacity_bytes);
        if at == capacity_bytes {
            break;
        }
    }
    for offset in [0, capacity_bytes / 2, capacity_bytes - 512] {
        if let Ok(mapping) = disk.map(offset..capacity_bytes) {
            assert!(mapping.length_bytes > 0 && mapping.length_bytes <= capacity_bytes - offset);
        }
    }
    if capacity_bytes < 1 << 24 {
        let _ = disk.check(&mut |line| assert!(!line.is_empty() && !line.contains('\n')));
    }
    let memory = MemoryMap::allocate(&[(0, 64 << 10)]).unwrap();
    let mut queue = disk.open_queue(&memory, 4).unwrap();
    let mut completions = Vec::new();
    for offset_bytes in [0, 3 << 10, 8192, capacity_bytes / 2 / 512 * 512, capacity_bytes.saturating_sub(16 << 10)] {
        let length_bytes = (capacity_bytes - offset_bytes.min(capacity_bytes)).min(16 << 10) as u32;
        let segments = [Segment { region: 0, length_bytes, offset_bytes: 0 }];
        let request = Request { operation: Operation::Read, offset_bytes, segments: &segments, token: 0 };
        queue.push(&request).unwrap();
        queue.drain(&mut completions).unwrap();
        assert_eq!(completions.len(), 1);
        let completion = completions.pop().unwrap();
        // What can be walked can be read.
        let is_small = at == capacity_bytes && u64::from(length_bytes) > 0;
        assert!(!(is_whole && is_small) || completion.result.is_ok(), "{completion:?} at {offset_bytes}");
    }
}

/// With what samples are differences from.
fn directory() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("base"), samples::vhd_base().bytes).unwrap();
    directory
}

fn neither_panics_nor_hangs(sample: &Sample, path: &Path, spoils: &[Spoil], is_mended: bool) {
    fs::write(path, spoiled(sample, spoils, is_mended)).unwrap();
    use_it(path, sample.format);
}

#[test]
fn samples_are_in_order() {
    for sample in [samples::vdi(), samples::vhd_base(), samples::vhd()] {
        let directory = directory();
        let path = directory.path().join("image");
        fs::write(&path, &sample.bytes).unwrap();
        let options = FileOptions { read_only: true, ..FileOptions::default() };
        let allowed = AllowedDirectories::new(&[directory.path()]).unwrap();
        let disk = BlockMapDisk::open(&path, sample.format, &options, &allowed).unwrap();
        assert_eq!(disk.check(&mut |line| panic!("{line}")).unwrap().corruptions, 0);
        let mut mended = sample.bytes.clone();
        (sample.mend)(&mut mended);
        assert!(mended == sample.bytes);
    }
}

#[test]
fn fuzz_a_spoiled_vdi_neither_panics_nor_hangs() {
    let (directory, sample) = (directory(), samples::vdi());
    let path = directory.path().join("image");
    blockyard_fuzz::check!(500).with_type::<Vec<Spoil>>().for_each(|spoils| {
        neither_panics_nor_hangs(&sample, &path, spoils, true);
    });
}

#[test]
fn fuzz_a_spoiled_vhd_neither_panics_nor_hangs() {
    let (directory, sample) = (directory(), samples::vhd());
    let path = directory.path().join("image");
    blockyard_fuzz::check!(500).with_type::<(bool, Vec<Spoil>)>().for_each(|(is_mended, spoils)| {
        neither_panics_nor_hangs(&sample, &path, spoils, *is_mended);
    });
}
