//! Images with a spoiled header or spoiled tables.

use super::super::header::Header;
use super::super::{Qcow2BitmapAction, Qcow2Check, Qcow2CreateOptions, Qcow2Disk};
use super::{open_to_change, windows};
use crate::formats::{CheckReport, Repair};
use crate::{AllowedDirectories, Disk, FileOptions, MemoryMap, OpenedFile, Operation, Queue, Request, Segment};
use bolero::TypeGenerator;
use std::fs;
use std::path::Path;
use std::sync::OnceLock;

const DISK_BYTES: u64 = 512 << 10;
const CLUSTER_BYTES: u32 = 512;

/// Something else at a place.
#[derive(Clone, Debug, TypeGenerator)]
enum Spoil {
    Byte {
        offset: u16,
        value: u8,
    },
    /// A number of the header, or of a table if the index is large.
    Entry {
        index: u16,
        value: u64,
    },
    /// A table's entry that points to a cluster of the image, with some of the bits that mean something.
    Pointer {
        index: u16,
        cluster: u8,
        flags: u8,
    },
    Truncate {
        length: u16,
    },
}

/// A small image with all kinds of clusters.
fn image() -> &'static [u8] {
    static IMAGE: OnceLock<Vec<u8>> = OnceLock::new();
    IMAGE.get_or_init(|| {
        let directory = blockyard_fuzz::memory_directory().unwrap();
        let path = directory.path().join("image");
        let create = Qcow2CreateOptions { cluster_bytes: CLUSTER_BYTES, ..Qcow2CreateOptions::new(DISK_BYTES) };
        Qcow2Disk::create(&path, &create).unwrap();
        for name in ["one", "another"] {
            change_bitmap(&path, name, Qcow2BitmapAction::Add { granularity_bytes: Some(512) }).unwrap();
        }
        let disk = open(&path, false).unwrap();
        let mut user = User::new(&disk);
        user.perform(Operation::Write { force_unit_access: false }, 0, 8192);
        user.perform(Operation::Write { force_unit_access: false }, 100 << 10, 512);
        user.perform(Operation::WriteZeroes { length_bytes: 2048, may_unmap: false }, 1024, 0);
        drop(user);
        drop(disk);
        fs::read(path).unwrap()
    })
}

fn change_bitmap(path: &Path, name: &str, action: Qcow2BitmapAction) -> Result<(), crate::ImageError> {
    let image = open_to_change(path);
    Qcow2Disk::change_bitmap(&image, name, &[action], None)
}

pub(super) fn options(read_only: bool) -> FileOptions {
    FileOptions { read_only, engine: crate::Engine::Sync, ..FileOptions::default() }
}

pub(super) fn open(path: &Path, read_only: bool) -> Result<Qcow2Disk, crate::ImageError> {
    Qcow2Disk::open(path, &options(read_only), &AllowedDirectories::none())
}

pub(super) struct User {
    queue: Box<dyn Queue>,
}

impl User {
    pub(super) fn new(disk: &dyn Disk) -> Self {
        let memory = MemoryMap::allocate(&[(0, 64 << 10)]).unwrap();
        Self { queue: disk.open_queue(&memory, 1).unwrap() }
    }

    /// Whether it works does not matter, only that it ends.
    pub(super) fn perform(&mut self, operation: Operation, offset_bytes: u64, length_bytes: u32) {
        let segment = Segment { region: 0, length_bytes, offset_bytes: 0 };
        let segments: &[Segment] = if length_bytes > 0 { &[segment] } else { &[] };
        self.queue.push(&Request { operation, offset_bytes, segments, token: 0 }).unwrap();
        let mut completions = Vec::new();
        self.queue.drain(&mut completions).unwrap();
        assert_eq!(completions.len(), 1);
    }
}

fn spoiled(spoils: &[Spoil]) -> Vec<u8> {
    let mut bytes = image().to_vec();
    for spoil in spoils {
        match *spoil {
            Spoil::Byte { offset, value } => put(&mut bytes, usize::from(offset), &[value]),
            Spoil::Entry { index, value } => put(&mut bytes, usize::from(index) * 8, &value.to_be_bytes()),
            Spoil::Pointer { index, cluster, flags } => {
                let flags = u64::from(flags & 3) << 62 | u64::from(flags >> 2 & 1);
                let entry = (u64::from(cluster) * u64::from(CLUSTER_BYTES)) | flags;
                put(&mut bytes, usize::from(index) * 8, &entry.to_be_bytes());
            }
            Spoil::Truncate { length } => bytes.truncate(usize::from(length)),
        }
    }
    bytes
}

/// Where there is no such place, there is nothing to spoil.
fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    if !bytes.is_empty() {
        let at = at % bytes.len();
        let length = value.len().min(bytes.len() - at);
        bytes[at..][..length].copy_from_slice(&value[..length]);
    }
}

/// What can be done with an image that matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Read,
    Write,
    MergeBitmaps,
    ClearBitmap,
    RemoveBitmap,
}

impl Use {
    const ALL: [Self; 5] = [Self::Read, Self::Write, Self::MergeBitmaps, Self::ClearBitmap, Self::RemoveBitmap];

    /// One of them: in the time that all take, five times as many images are seen. 0, which cases of the corpus have,
    /// is all.
    fn chosen(which: u8) -> impl Iterator<Item = Self> {
        let one = usize::from(which) % Self::ALL.len();
        let uses = Self::ALL.into_iter().enumerate();
        uses.filter(move |(index, _)| which == 0 || *index == one).map(|(_, chosen)| chosen)
    }

    /// Whether it works does not matter, only that it ends.
    fn perform(self, path: &Path) {
        let action = match self {
            Self::Read | Self::Write => {
                if let Ok(disk) = open(path, self == Self::Read) {
                    use_it(&disk);
                }
                return;
            }
            Self::MergeBitmaps => Qcow2BitmapAction::Merge { source: "another".to_owned() },
            Self::ClearBitmap => Qcow2BitmapAction::Clear,
            Self::RemoveBitmap => Qcow2BitmapAction::Remove,
        };
        let _ = change_bitmap(path, "one", action);
    }
}

#[test]
fn fuzz_a_spoiled_image_neither_panics_nor_hangs() {
    let directory = blockyard_fuzz::memory_directory().unwrap();
    let path = directory.path().join("image");
    blockyard_fuzz::check!(1500).with_type::<(u8, Vec<Spoil>)>().for_each(|(which, spoils)| {
        let bytes = spoiled(spoils);
        let _ = Header::parse(&bytes, bytes.len() as u64);
        for chosen in Use::chosen(*which) {
            fs::write(&path, &bytes).unwrap();
            chosen.perform(&path);
        }
    });
}

/// What the checker says, unless the header makes no sense at all.
pub(super) fn checked(path: &Path, repair: Repair) -> Option<CheckReport> {
    checked_with(path, repair, &mut |line| assert!(!line.is_empty() && !line.contains('\n')))
}

pub(super) fn checked_with(path: &Path, repair: Repair, tell: &mut dyn FnMut(&str)) -> Option<CheckReport> {
    let image = OpenedFile::open(path, repair == Repair::None).ok()?;
    let mut check = Qcow2Check::open(&image, repair != Repair::None).ok()?;
    // There may be more uses of a cluster than its refcount can say.
    check.run(repair, tell).inspect_err(|error| assert!(repair != Repair::None, "{error}")).ok()
}

/// Whether opening has a reason of its own: what is not supported or encrypted, or refers to another file.
pub(super) fn is_for_others(bytes: &[u8]) -> bool {
    Header::parse(bytes, bytes.len() as u64)
        .map_or(true, |header| header.backing.is_some() || header.data_file.is_some() || header.encryption != 0)
}

#[test]
fn fuzz_what_the_checker_calls_clean_opens() {
    let directory = blockyard_fuzz::memory_directory().unwrap();
    let path = directory.path().join("image");
    blockyard_fuzz::check!(300).with_type::<Vec<Spoil>>().for_each(|spoils| {
        let bytes = spoiled(spoils);
        windows::agree(&bytes, &path);
        fs::write(&path, &bytes).unwrap();
        let Some(found) = checked(&path, Repair::None) else { return };
        assert!(fs::read(&path).unwrap() == bytes, "a check that repairs nothing has written");
        // Leaks are nothing that opening would mind.
        if found.corruptions == 0 && !is_for_others(&bytes) {
            open(&path, false).unwrap();
        }
        fs::write(&path, &bytes).unwrap();
        let repaired = checked(&path, Repair::All).unwrap();
        // A table in the place of refcounts, say, is looked into only when they are elsewhere: then there may be more.
        assert!(found.corruptions > 0 || repaired.corruptions <= 1, "{found:?} became {repaired:?}");
        assert_eq!(checked(&path, Repair::None).map(|again| again.corruptions), Some(repaired.corruptions));
        let bytes = fs::read(&path).unwrap();
        if repaired.corruptions == 0 && !is_for_others(&bytes) {
            open(&path, false).unwrap();
        }
    });
}

/// Their refcounts can be right, and a bit that one sets is set for the other.
#[test]
fn two_bitmaps_that_have_one_table_are_damage_that_stays() {
    let directory = blockyard_fuzz::memory_directory().unwrap();
    let path = directory.path().join("image");
    let mut bytes = image().to_vec();
    let bitmaps = Header::parse(&bytes, bytes.len() as u64).unwrap().bitmaps.unwrap();
    let entry = bitmaps.table.offset_bytes as usize;
    // An entry has 24 bytes and its name, and begins at a multiple of 8. It begins with where its table is.
    bytes.copy_within(entry..entry + 8, entry + 32);
    // The table's refcount, of 16 bits, is 1, which is too few, and can be 2, or more.
    let table = u64::from_be_bytes(bytes[entry..entry + 8].try_into().unwrap()) / u64::from(CLUSTER_BYTES);
    let refcounts = u64::from_be_bytes(bytes[1024..1032].try_into().unwrap());
    for refcount in [1, 2, 3] {
        bytes[(refcounts + table * 2) as usize + 1] = refcount;
        fs::write(&path, &bytes).unwrap();
        assert!(checked(&path, Repair::None).unwrap().corruptions > 0);
    }
    assert!(checked(&path, Repair::All).unwrap().corruptions > 0);
    assert!(open(&path, false).unwrap_err().to_string().contains("has two uses"));
}

fn use_it(disk: &Qcow2Disk) {
    let capacity_bytes = disk.geometry().capacity_bytes;
    if capacity_bytes == 0 {
        return;
    }
    // A disk may claim to be large; a few steps are enough.
    let mut at = 0;
    for _ in 0..64 {
        let Ok(extent) = disk.extents(at..capacity_bytes) else { break };
        assert!(extent.offset_bytes == at && extent.length_bytes > 0);
        at += extent.length_bytes;
        assert!(at <= capacity_bytes);
        if at == capacity_bytes {
            break;
        }
    }
    let mut user = User::new(disk);
    for offset in [0, 3 << 10, 100 << 10, DISK_BYTES - 4096] {
        user.perform(Operation::Read, offset, 4096);
        user.perform(Operation::Write { force_unit_access: false }, offset, 1536);
        user.perform(Operation::WriteZeroes { length_bytes: 2048, may_unmap: true }, offset, 0);
        user.perform(Operation::Discard { length_bytes: 4096 }, offset, 0);
        user.perform(Operation::Write { force_unit_access: true }, offset, 512);
        user.perform(Operation::Read, offset, 4096);
    }
    user.perform(Operation::Flush, 0, 0);
}
