//! Images with spoiled headers, tables and ends.

use super::samples::{self, Sample};
use super::*;
use bolero::TypeGenerator;
use std::collections::BTreeSet;
use std::os::unix::fs::FileExt;
use std::sync::PoisonError;
use tempfile::TempDir;

/// Something else at a place.
#[derive(Clone, Debug, TypeGenerator)]
enum Spoil {
    /// In one of the pages that hold something.
    Byte {
        page: u8,
        offset: u16,
        value: u8,
    },
    Field {
        index: u8,
        value: Value,
    },
    Entry {
        index: u8,
        value: Value,
    },
    Truncate {
        length: u32,
    },
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

/// Whether checksums are made right, and what is spoiled.
type Input = (bool, Vec<Spoil>);

/// An image that is spoiled and put right again and again, for which no more is written than what differs.
struct Spoiler {
    sample: Sample,
    directory: TempDir,
    file: File,
    bytes: Vec<u8>,
    /// Pages that hold something.
    pages: Vec<usize>,
    touched: BTreeSet<usize>,
    /// Nothing put it right, as something panicked.
    is_spoiled: bool,
}

const PAGE_BYTES: usize = 4096;

impl Spoiler {
    fn of(sample: Sample) -> Self {
        let directory = directory();
        let path = directory.path().join("image");
        let file = File::options().read(true).write(true).create(true).truncate(true).open(path).unwrap();
        let bytes = sample.bytes.clone();
        let holds = |page: &usize| bytes[page * PAGE_BYTES..].iter().take(PAGE_BYTES).any(|&byte| byte != 0);
        let pages: Vec<_> = (0..bytes.len().div_ceil(PAGE_BYTES)).filter(holds).collect();
        let touched = pages.iter().copied().collect();
        let mut spoiler = Self { sample, directory, file, bytes, pages, touched, is_spoiled: false };
        spoiler.write(spoiler.bytes.len());
        spoiler
    }

    /// Writes what was touched, of a file of `length` bytes.
    fn write(&mut self, length: usize) {
        self.file.set_len(length as u64).unwrap();
        for page in &self.touched {
            let range = page * PAGE_BYTES..((page + 1) * PAGE_BYTES).min(length);
            if !range.is_empty() {
                self.file.write_all_at(&self.bytes[range.clone()], range.start as u64).unwrap();
            }
        }
    }

    /// A number in the place of another. Where there is no such place, nothing happens.
    fn put(&mut self, (at, width): (usize, usize), value: u64) {
        let Some(place) = self.bytes.get_mut(at..at + width) else { return };
        let number = value.to_le_bytes();
        place.copy_from_slice(&number[..width]);
        if self.sample.is_big_endian {
            place.reverse();
        }
        self.touched.extend(at / PAGE_BYTES..=(at + width - 1) / PAGE_BYTES);
    }

    fn spoil(&mut self, spoils: &[Spoil], is_mended: bool) {
        if self.is_spoiled {
            self.bytes.copy_from_slice(&self.sample.bytes);
            self.touched = (0..self.bytes.len().div_ceil(PAGE_BYTES)).collect();
            self.write(self.bytes.len());
        }
        self.is_spoiled = true;
        self.touched.clear();
        let whole = self.bytes.len();
        let mut length = whole;
        for spoil in spoils {
            match spoil {
                Spoil::Byte { page, offset, value } => {
                    let page = self.pages[usize::from(*page) % self.pages.len()];
                    self.put((page * PAGE_BYTES + usize::from(*offset) % PAGE_BYTES, 1), u64::from(*value));
                }
                Spoil::Field { index, value } => {
                    let field = self.sample.fields[usize::from(*index) % self.sample.fields.len()];
                    self.put(field, value.number());
                }
                Spoil::Entry { index, value } => {
                    let (table, width) = self.sample.table;
                    self.put((table + usize::from(*index % 32) * width, width), value.number());
                }
                Spoil::Truncate { length: shorter } => length = length.min(*shorter as usize % (whole + 1)),
            }
        }
        if is_mended {
            (self.sample.mend)(&mut self.bytes);
            self.touched.extend(self.sample.mended.iter().map(|at| at / PAGE_BYTES));
        }
        self.write(length);
        use_it(&self.directory.path().join("image"), self.sample.format);
        if self.sample.format == BlockMapFormat::Vmdk {
            write_it(&self.directory.path().join("image"));
        }
        for page in &self.touched {
            let range = page * PAGE_BYTES..((page + 1) * PAGE_BYTES).min(whole);
            self.bytes[range.clone()].copy_from_slice(&self.sample.bytes[range]);
        }
        if length < whole {
            self.touched.extend(self.pages.iter().filter(|page| (*page + 1) * PAGE_BYTES > length));
        }
        self.write(whole);
        self.is_spoiled = false;
    }
}

/// Whatever is wrong with it: what is said is a sentence, and nothing else happens.
fn use_it(path: &Path, format: BlockMapFormat) {
    let options = FileOptions { read_only: true, engine: Engine::Sync, ..FileOptions::default() };
    let allowed = AllowedDirectories::new(&[path.parent().unwrap()]).unwrap();
    let disk = match BlockMapDisk::open(path, format, &options, &allowed) {
        Ok(disk) => disk,
        Err(error) => {
            let said = error.to_string();
            assert!(!said.is_empty() && !said.contains('\n') && said.len() < 8000, "{said}");
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
        // What is compressed is known when it is read.
        if let Ok((mapping, _)) = disk.map(at..capacity_bytes) {
            is_whole &= mapping.kind != Qcow2MappingKind::Compressed;
        }
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
        if let Ok((mapping, _)) = disk.map(offset..capacity_bytes) {
            assert!(mapping.length_bytes > 0 && mapping.length_bytes <= capacity_bytes - offset);
        }
    }
    if capacity_bytes < 1 << 24 {
        let mut say = |line: &str| assert!(!line.is_empty() && !line.contains('\n'));
        let _ = disk.check(&mut say).map(|report| disk.try_compressed(&report, &mut say, &mut |_, _| true));
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

/// A copy of it is written to. What was refused is as it was; else it holds what was written, and is in order.
fn write_it(path: &Path) {
    let written = path.with_extension("written");
    fs::copy(path, &written).unwrap();
    let allowed = AllowedDirectories::new(&[path.parent().unwrap()]).unwrap();
    let options = FileOptions { engine: Engine::Sync, ..FileOptions::default() };
    let disk = match BlockMapDisk::open(&written, BlockMapFormat::Vmdk, &options, &allowed) {
        Ok(disk) => disk,
        Err(error) => {
            let said = error.to_string();
            assert!(!said.is_empty() && !said.contains('\n') && said.len() < 8000, "{said}");
            return assert!(fs::read(path).unwrap() == fs::read(&written).unwrap());
        }
    };
    let capacity_bytes = disk.geometry().capacity_bytes;
    let memory = MemoryMap::allocate(&[(0, 8192)]).unwrap();
    let segment = |offset_bytes| Segment { region: 0, length_bytes: 4096, offset_bytes };
    let mut queue = disk.open_queue(&memory, 4).unwrap();
    let mut perform = |operation, offset_bytes, segments: &[Segment]| {
        queue.push(&Request { operation, offset_bytes, segments, token: 0 }).unwrap();
        let mut completions = Vec::new();
        queue.drain(&mut completions).unwrap();
        completions[0].result
    };
    let mut is_changed = false;
    for (offset, fill) in [0, 3 << 10, 128 << 10, capacity_bytes / 2 / 512 * 512].into_iter().zip(1..) {
        if offset + 4096 > capacity_bytes {
            continue;
        }
        memory.slice(segment(0)).unwrap().copy_from(&[fill; 4096]);
        let is_written = perform(Operation::Write { force_unit_access: fill == 2 }, offset, &[segment(0)]).is_ok();
        is_changed |= is_written;
        let is_zeroed =
            fill == 3 && perform(Operation::WriteZeroes { length_bytes: 4096, may_unmap: true }, offset, &[]).is_ok();
        if is_written && perform(Operation::Read, offset, &[segment(4096)]).is_ok() {
            let mut read = [0_u8; 4096];
            memory.slice(segment(4096)).unwrap().copy_to(&mut read);
            assert!(read == [if is_zeroed { 0 } else { fill }; 4096] || disk.geometry().read_only);
        }
    }
    drop((queue, disk));
    let options = FileOptions { read_only: true, ..options };
    let disk = BlockMapDisk::open(&written, BlockMapFormat::Vmdk, &options, &allowed).unwrap();
    if capacity_bytes < 1 << 24 {
        // Whoever changes nothing leaves a second set of tables as it was.
        let _ = disk.check(&mut |line| assert!(!is_changed && line.starts_with("NOTE "), "{line}"));
    }
}

fn vmdks() -> [Sample; 4] {
    [samples::vmdk(), samples::vmdk_stream(), samples::vmdk_cowd(), samples::vmdk_se()]
}

/// With what samples are differences from.
fn directory() -> TempDir {
    let directory = blockyard_fuzz::memory_directory().unwrap();
    fs::write(directory.path().join("base"), samples::vhd_base().bytes).unwrap();
    fs::write(directory.path().join("base.vhdx"), samples::vhdx_base().bytes).unwrap();
    fs::write(directory.path().join("base.vmdk"), samples::vmdk_base().bytes).unwrap();
    directory
}

#[test]
fn samples_are_in_order() {
    let vhds = [samples::vhd_base(), samples::vhd()];
    let vhdxs = [samples::vhdx_base(), samples::vhdx()];
    let all = [samples::vdi(), samples::qed(), samples::parallels()].into_iter().chain(vhds).chain(vhdxs);
    for sample in all.chain(vmdks()).chain([samples::vmdk_base()]) {
        let directory = directory();
        let path = directory.path().join("image");
        fs::write(&path, &sample.bytes).unwrap();
        let options = FileOptions { read_only: true, ..FileOptions::default() };
        let allowed = AllowedDirectories::new(&[directory.path()]).unwrap();
        let disk = BlockMapDisk::open(&path, sample.format, &options, &allowed).unwrap();
        let report = disk.check(&mut |line| panic!("{line}")).unwrap();
        let bad = disk.try_compressed(&report, &mut |line| panic!("{line}"), &mut |_, _| true).unwrap();
        assert_eq!((report.corruptions, bad), (0, 0));
        let mut mended = sample.bytes.clone();
        (sample.mend)(&mut mended);
        assert!(mended == sample.bytes);
    }
}

/// Each number of each header at its ends, whether the checksum that is over it is right or not.
#[test]
fn numbers_at_their_ends_are_refused_or_mean_something() {
    let samples = [samples::vdi(), samples::vhd(), samples::vhd_base(), samples::vhdx(), samples::qed()];
    for sample in samples.into_iter().chain([samples::parallels()]).chain(vmdks()) {
        let fields = sample.fields.len() as u8;
        let mut spoiler = Spoiler::of(sample);
        for (index, number) in (0..fields).flat_map(|index| [0, 1, u64::MAX - 1, u64::MAX].map(|end| (index, end))) {
            for is_mended in [true, false] {
                spoiler.spoil(&[Spoil::Field { index, value: Value::Any(number) }], is_mended);
                spoiler.spoil(&[Spoil::Entry { index, value: Value::Any(number) }], is_mended);
            }
        }
    }
}

#[test]
fn fuzz_a_spoiled_vdi_neither_panics_nor_hangs() {
    let spoiler = Mutex::new(Spoiler::of(samples::vdi()));
    blockyard_fuzz::check!(500).with_type::<Input>().for_each(|(is_mended, spoils)| {
        spoiler.lock().unwrap_or_else(PoisonError::into_inner).spoil(spoils, *is_mended);
    });
}

#[test]
fn fuzz_a_spoiled_vhd_neither_panics_nor_hangs() {
    let spoiler = Mutex::new(Spoiler::of(samples::vhd()));
    blockyard_fuzz::check!(500).with_type::<Input>().for_each(|(is_mended, spoils)| {
        spoiler.lock().unwrap_or_else(PoisonError::into_inner).spoil(spoils, *is_mended);
    });
}

#[test]
fn fuzz_a_spoiled_vhdx_neither_panics_nor_hangs() {
    let spoiler = Mutex::new(Spoiler::of(samples::vhdx()));
    blockyard_fuzz::check!(500).with_type::<Input>().for_each(|(is_mended, spoils)| {
        spoiler.lock().unwrap_or_else(PoisonError::into_inner).spoil(spoils, *is_mended);
    });
}

#[test]
fn fuzz_a_spoiled_qed_neither_panics_nor_hangs() {
    let spoiler = Mutex::new(Spoiler::of(samples::qed()));
    blockyard_fuzz::check!(500).with_type::<Input>().for_each(|(is_mended, spoils)| {
        spoiler.lock().unwrap_or_else(PoisonError::into_inner).spoil(spoils, *is_mended);
    });
}

#[test]
fn fuzz_a_spoiled_parallels_neither_panics_nor_hangs() {
    let spoiler = Mutex::new(Spoiler::of(samples::parallels()));
    blockyard_fuzz::check!(500).with_type::<Input>().for_each(|(is_mended, spoils)| {
        spoiler.lock().unwrap_or_else(PoisonError::into_inner).spoil(spoils, *is_mended);
    });
}

#[test]
fn fuzz_a_spoiled_vmdk_neither_panics_nor_hangs() {
    let spoiler = Mutex::new(Spoiler::of(samples::vmdk()));
    blockyard_fuzz::check!(500).with_type::<Input>().for_each(|(is_mended, spoils)| {
        spoiler.lock().unwrap_or_else(PoisonError::into_inner).spoil(spoils, *is_mended);
    });
}

#[test]
fn fuzz_a_spoiled_compressed_vmdk_neither_panics_nor_hangs() {
    let spoiler = Mutex::new(Spoiler::of(samples::vmdk_stream()));
    blockyard_fuzz::check!(500).with_type::<Input>().for_each(|(is_mended, spoils)| {
        spoiler.lock().unwrap_or_else(PoisonError::into_inner).spoil(spoils, *is_mended);
    });
}

#[test]
fn fuzz_a_spoiled_vmdk_of_esx_neither_panics_nor_hangs() {
    let spoiler = Mutex::new(Spoiler::of(samples::vmdk_cowd()));
    blockyard_fuzz::check!(500).with_type::<Input>().for_each(|(is_mended, spoils)| {
        spoiler.lock().unwrap_or_else(PoisonError::into_inner).spoil(spoils, *is_mended);
    });
}

#[test]
fn fuzz_a_spoiled_space_efficient_vmdk_neither_panics_nor_hangs() {
    let spoiler = Mutex::new(Spoiler::of(samples::vmdk_se()));
    blockyard_fuzz::check!(500).with_type::<Input>().for_each(|(is_mended, spoils)| {
        spoiler.lock().unwrap_or_else(PoisonError::into_inner).spoil(spoils, *is_mended);
    });
}
