//! The names that a partition table gives partitions: fstab(5) calls them PARTUUID and PARTLABEL.
//!
//! The kernel has read the table and made the partitions; it does not tell these names.

use crate::uuid::uuid_text;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Entries and bytes of each that are looked at: the usual numbers are 128 and 128.
const ENTRIES_MAX: u32 = 1024;
const ENTRY_BYTES_MAX: u32 = 1024;

/// What a table calls a partition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PartitionNames {
    pub(crate) uuid: String,
    pub(crate) label: String,
}

/// The names in a disk's partition table.
pub(crate) enum Table {
    /// By partition number.
    Guid(BTreeMap<u32, PartitionNames>),
    /// An MBR's partitions are named after the disk, if that has a number.
    Mbr(u32),
    /// It names none, but its first sector says that it is one: Apple's, Sun's, SGI's.
    Nameless,
    /// The first sector says of no table. Linux still looks for the tables of old machines elsewhere, some of which
    /// have nothing to be known by but a checksum of eight bits.
    Unsaid,
}

impl Table {
    /// Reads the table of the disk at /dev/`node`, with sectors of so many bytes.
    pub(crate) fn read(node: &str, sector_bytes: u64) -> Self {
        let table = || {
            let disk = File::open(format!("/dev/{node}")).ok()?;
            guid_table(&disk, sector_bytes).map(Self::Guid).or_else(|| said_in_first_sector(&disk))
        };
        table().unwrap_or(Self::Unsaid)
    }

    /// What it calls a partition.
    pub(crate) fn names(&self, number: u32) -> PartitionNames {
        match self {
            Self::Guid(names) => names.get(&number).cloned().unwrap_or_default(),
            Self::Mbr(disk @ 1..) => PartitionNames { uuid: format!("{disk:08x}-{number:02x}"), label: String::new() },
            Self::Mbr(0) | Self::Nameless | Self::Unsaid => PartitionNames::default(),
        }
    }
}

/// UEFI Specification 2.10, 5.3.
fn guid_table(disk: &File, sector_bytes: u64) -> Option<BTreeMap<u32, PartitionNames>> {
    let mut header = [0; 92];
    disk.read_exact_at(&mut header, sector_bytes).ok()?;
    if &header[..8] != b"EFI PART" {
        return None;
    }
    let field = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    let first = u64::from(field(72)) | u64::from(field(76)) << 32;
    let (entries, entry_bytes) = (field(80).min(ENTRIES_MAX), field(84));
    if !(128..=ENTRY_BYTES_MAX).contains(&entry_bytes) {
        return None;
    }
    let mut bytes = vec![0; (entries * entry_bytes) as usize];
    disk.read_exact_at(&mut bytes, first.checked_mul(sector_bytes)?).ok()?;
    let used = (1..).zip(bytes.chunks(entry_bytes as usize)).filter(|(_, entry)| entry[..16] != [0; 16]);
    Some(used.map(|(number, entry)| (number, guid_entry(entry))).collect())
}

fn guid_entry(entry: &[u8]) -> PartitionNames {
    // Appendix A: the first three fields are little-endian.
    const ORDER: [usize; 16] = [3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15];
    let uuid = ORDER.map(|at| entry[16 + at]);
    let letters = entry[56..128].chunks(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]]));
    let letters: Vec<_> = letters.take_while(|&letter| letter != 0).collect();
    PartitionNames { uuid: uuid_text(&uuid), label: String::from_utf16_lossy(&letters) }
}

/// An MBR, with the disk's signature; and by their magic numbers those that Linux knows of (block/partitions/mac.h,
/// sun.h, sgi.c).
fn said_in_first_sector(disk: &File) -> Option<Table> {
    let mut sector = [0; 512];
    disk.read_exact_at(&mut sector, 0).ok()?;
    if sector[510..] == [0x55, 0xaa] {
        return Some(Table::Mbr(u32::from_le_bytes([sector[440], sector[441], sector[442], sector[443]])));
    }
    let is_said =
        sector.starts_with(b"ER") || sector[508..510] == [0xda, 0xbe] || sector.starts_with(&[0x0b, 0xe5, 0xa9, 0x41]);
    is_said.then_some(Table::Nameless)
}
