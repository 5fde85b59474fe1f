//! What the first cluster of a qcow2 image says, checked: QEMU's docs/interop/qcow2.txt, "Header" and "Header
//! extensions".

use super::encryption;
use super::entries::Layout;
use crate::Remedy;
use crate::formats::LocalName;
use std::io;
use std::ops::Range;

/// Bytes of a version 3 header that must be there.
pub(super) const HEADER_V3_BYTES: usize = 104;
/// Bytes of a version 2 header.
pub(super) const HEADER_V2_BYTES: usize = 72;

/// Where it is said how large clusters are.
const CLUSTER_BITS_AT: usize = 20;
const CLUSTER_BITS_MIN: u32 = 9;
/// Of clusters with 32 parts, each of which has a sector at least.
pub(super) const EXTENDED_CLUSTER_BITS_MIN: u32 = 14;
/// QEMU's limit: 2 MiB.
const CLUSTER_BITS_MAX: u32 = 21;

/// The first cluster at its largest.
const FIRST_CLUSTER_MAX_BYTES: u64 = 1 << CLUSTER_BITS_MAX;

/// Most bytes of an L1 table or a refcount table, which are held in memory: QEMU's limit for the first.
pub(super) const TABLE_MAX_BYTES: u64 = 32 << 20;

/// Most bytes of a disk: host offsets have 56 bits.
pub(super) const DISK_MAX_BYTES: u64 = 1 << 56;

const BACKING_NAME_MAX_BYTES: u32 = 1023;

pub(super) const INCOMPATIBLE_DIRTY: u64 = 1 << 0;
pub(super) const INCOMPATIBLE_CORRUPT: u64 = 1 << 1;
pub(super) const INCOMPATIBLE_DATA_FILE: u64 = 1 << 2;
pub(super) const INCOMPATIBLE_COMPRESSION: u64 = 1 << 3;
pub(super) const INCOMPATIBLE_EXTENDED_L2: u64 = 1 << 4;
/// Where the low bytes of the incompatible features are in the header.
pub(super) const INCOMPATIBLE_AT: u64 = 72;
/// Where the features are that nobody has to know.
pub(super) const COMPATIBLE_AT: u64 = 80;
/// Where the features are that who does not know them takes away when he writes to the image.
pub(super) const AUTOCLEAR_AT: u64 = 88;
/// Where the size of the disk is.
pub(super) const SIZE_AT: u64 = 24;
/// Where the sort of encryption is.
pub(super) const ENCRYPTION_AT: u64 = 32;
/// Where the L1 table's entries and its offset are.
pub(super) const L1_AT: u64 = 36;
/// What an image has whose header says of its refcounts what nobody can use, or nothing.
pub(super) const NO_REFCOUNT_TABLE: &str = "no refcount table, or one where none can be";
/// Where the refcount table's offset and its clusters are.
pub(super) const REFCOUNTS_AT: u64 = 48;
/// Where the number of snapshots and their table's offset are.
pub(super) const SNAPSHOTS_AT: u64 = 60;
/// What a check puts right.
pub(super) const INCOMPATIBLE_MARKS: u64 = INCOMPATIBLE_DIRTY | INCOMPATIBLE_CORRUPT;

/// Whether the bitmaps extension means anything; else a program wrote to the image that does not know bitmaps.
pub(super) const AUTOCLEAR_BITMAPS: u64 = 1 << 0;
/// Whether the external data file is a raw image of the disk: else somebody wrote to the image who did not keep it so.
pub(super) const AUTOCLEAR_DATA_FILE_RAW: u64 = 1 << 1;
pub(super) const COMPATIBLE_LAZY_REFCOUNTS: u64 = 1 << 0;

/// Where the type of compression is, in headers that are long enough.
const COMPRESSION_AT: usize = 104;
const COMPRESSION_ZLIB: u8 = 0;
pub(super) const COMPRESSION_ZSTD: u8 = 1;

const EXTENSION_END: u32 = 0;
pub(super) const EXTENSION_BACKING_FORMAT: u32 = 0xe279_2aca;
pub(super) const EXTENSION_DATA_FILE: u32 = 0x4441_5441;
pub(super) const EXTENSION_BITMAPS: u32 = 0x2385_2875;
pub(super) const EXTENSION_ENCRYPTION: u32 = 0x0537_be77;

/// A checked header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) version: u32,
    pub(super) cluster_bits: u32,
    pub(super) size_bytes: u64,
    pub(super) l1: Table,
    pub(super) refcounts: Table,
    /// The width of a refcount is two to the power of this, in bits.
    pub(super) refcount_order: u32,
    pub(super) snapshots: u32,
    /// Where the table of snapshots is.
    pub(super) snapshots_offset_bytes: u64,
    /// The directory of bitmaps, if there are any.
    pub(super) bitmaps: Option<BitmapDirectory>,
    /// Incompatible features: what must be understood.
    pub(super) incompatible: u64,
    pub(super) backing: Option<Reference>,
    /// An external data file's name, where the data are in one.
    pub(super) data_file: Option<String>,
    /// Whether the external data file is a raw image of the disk.
    pub(super) is_data_file_raw: bool,
    /// Refcounts may be behind, which the dirty mark tells.
    pub(super) has_lazy_refcounts: bool,
    /// Of compressed clusters, as the header has it.
    pub(super) compression: u8,
    /// How clusters are encrypted, as the header has it: 0 if they are not.
    pub(super) encryption: u32,
    /// Where the header of the encryption is, if it has one.
    pub(super) encryption_header: Option<Table>,
}

/// A table of 64-bit entries in the file. None is one that is empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Table {
    pub(super) offset_bytes: u64,
    pub(super) length_bytes: u64,
}

/// Where bitmaps that programs keep of changes are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BitmapDirectory {
    pub(super) bitmaps: u32,
    pub(super) table: Table,
}

/// A backing file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reference {
    pub(super) name: String,
    pub(super) format: Option<String>,
}

impl Reference {
    /// The word of the format that it is in: what a name says of it goes for where the header says nothing.
    ///
    /// # Errors
    /// When nothing does, or the two contradict each other; the sentence goes on after the image's path.
    pub(super) fn said_format(&self) -> Result<Option<String>, String> {
        let named = LocalName::of(&self.name).ok().and_then(|local| local.format);
        match (&self.format, named) {
            (Some(said), Some(named)) if *said != named => {
                Err(format!("says that its backing file {:?} is {said}, and by that name it is {named}", self.name))
            }
            (said, named) => Ok(said.clone().or(named)),
        }
    }
}

impl Header {
    /// Parses the beginning of a file of `file_bytes`: `first` is its first cluster, or more. The error goes on after
    /// the image's path.
    pub(super) fn parse(first: &[u8], file_bytes: u64) -> Result<Self, String> {
        Self::parse_for(first, file_bytes, Purpose::Use)
    }

    /// The same, of an image that is only read: where refcounts are behind, or missing, that is no matter, and of what
    /// is damaged that is read which can be.
    pub(super) fn parse_to_read(first: &[u8], file_bytes: u64) -> Result<Self, String> {
        Self::parse_for(first, file_bytes, Purpose::Read)
    }

    /// The same, of an image that may be unusable: what it says is not judged, but for what the rest could not be
    /// understood without.
    pub(super) fn parse_to_look(first: &[u8], file_bytes: u64) -> Result<Self, String> {
        Self::parse_for(first, file_bytes, Purpose::Look)
    }

    /// The same, of an image that may need to be repaired, or cannot be used here but has tables like others.
    pub(super) fn parse_to_check(first: &[u8], file_bytes: u64) -> Result<Self, String> {
        Self::parse_for(first, file_bytes, Purpose::Check)
    }

    fn parse_for(first: &[u8], file_bytes: u64, purpose: Purpose) -> Result<Self, String> {
        let fields = Fields { bytes: first };
        if fields.bytes.get(..4) != Some(b"QFI\xfb") {
            return Err("is not a qcow2 image".into());
        }
        let cut_off = || "is cut off: its qcow2 header is not complete".to_owned();
        let version = fields.u32(4).ok_or_else(cut_off)?;
        let length = match version {
            2 => HEADER_V2_BYTES,
            3 => HEADER_V3_BYTES,
            _ => return Err(format!("is qcow2 version {version}; versions 2 and 3 are supported")),
        };
        if first.len() < length {
            return Err(cut_off());
        }
        let is_looked_at = purpose == Purpose::Look;
        let unless_looked_at = |checked: Result<(), String>| if is_looked_at { Ok(()) } else { checked };
        let features = |at: usize| if version == 3 { fields.u64_at(at) } else { 0 };
        let (incompatible, autoclear) = (features(INCOMPATIBLE_AT as usize), features(AUTOCLEAR_AT as usize));
        check_features(match purpose {
            Purpose::Use => incompatible,
            Purpose::Read | Purpose::Check => incompatible & !INCOMPATIBLE_MARKS,
            Purpose::Look => 0,
        })?;
        let encryption = fields.u32_at(ENCRYPTION_AT as usize);
        let cluster_bits = fields.u32_at(CLUSTER_BITS_AT);
        if !(CLUSTER_BITS_MIN..=CLUSTER_BITS_MAX).contains(&cluster_bits) {
            return Err(format!("has clusters of 2^{cluster_bits} bytes; 512 bytes to 2 MiB are possible"));
        }
        if incompatible & INCOMPATIBLE_EXTENDED_L2 != 0 && cluster_bits < EXTENDED_CLUSTER_BITS_MIN {
            return Err(format!("has clusters of 2^{cluster_bits} bytes, too small for extended L2 entries"));
        }
        let refcount_order = if version == 3 { fields.u32_at(96) } else { 4 };
        if refcount_order > 6 {
            return Err(format!("has refcounts of 2^{refcount_order} bits; 1 to 64 are possible"));
        }
        let size_bytes = fields.u64_at(24);
        if size_bytes > DISK_MAX_BYTES && !is_looked_at {
            return Err(format!("claims to hold {size_bytes} bytes, more than a qcow2 image can"));
        }
        let size_bytes = in_whole_sectors(size_bytes);
        let cluster_bytes = 1_u64 << cluster_bits;
        let first = &first[..first.len().min(cluster_bytes as usize)];
        let l1 = Table { offset_bytes: fields.u64_at(40), length_bytes: u64::from(fields.u32_at(36)) * 8 };
        unless_looked_at(l1.check("L1 table", cluster_bytes, file_bytes))?;
        let refcount_clusters = u64::from(fields.u32_at(56));
        let refcounts = Table { offset_bytes: fields.u64_at(48), length_bytes: refcount_clusters * cluster_bytes };
        let refcounts = match purpose {
            Purpose::Look => refcounts,
            Purpose::Use => {
                let checked = match refcount_clusters {
                    0 => Err("is damaged: it has no refcount table".to_owned()),
                    _ => refcounts.check("refcount table", cluster_bytes, file_bytes),
                };
                checked.map_err(|problem| format!("{problem}: repair it with {}", Remedy::RepairImage))?;
                refcounts
            }
            // Who only reads needs none, and a check counts what is missing of them, and writes them anew: all of them,
            // where no table can be. But one within a cluster says that clusters may be smaller than is said.
            Purpose::Read | Purpose::Check => match refcounts.check("refcount table", cluster_bytes, DISK_MAX_BYTES) {
                Err(_) if refcounts.offset_bytes.is_multiple_of(cluster_bytes) => Table::default(),
                checked => checked.map(|()| refcounts)?,
            },
        };
        let header_bytes = if version == 3 { fields.u32_at(100) as usize } else { HEADER_V2_BYTES };
        if header_bytes < length || header_bytes > first.len() || !header_bytes.is_multiple_of(8) {
            return Err(format!("has a header of {header_bytes} bytes, which cannot be"));
        }
        // QEMU ends them where the backing file's name begins, and old images have nothing else there to end them.
        let named_at = usize::try_from(fields.u64_at(8)).ok().filter(|named_at| version == 2 && *named_at != 0);
        let end = named_at.unwrap_or(usize::MAX).min(cluster_bytes as usize);
        let mut extensions = match Extensions::parse(first, header_bytes..end, version) {
            Err(_) if is_looked_at => Extensions::default(),
            parsed => parsed?,
        };
        if let (encryption::LUKS, Some(table)) = (encryption, extensions.encryption) {
            unless_looked_at(table.check("header of encryption", cluster_bytes, file_bytes))?;
        }
        let bitmaps = extensions.bitmaps.take().filter(|_| autoclear & AUTOCLEAR_BITMAPS != 0);
        let backing = match backing_name(first, &fields) {
            Err(_) if is_looked_at => None,
            found => found?,
        };
        let backing = backing.map(|name| Reference { name, format: extensions.backing_format });
        let data_file = match (incompatible & INCOMPATIBLE_DATA_FILE != 0, extensions.data_file) {
            (false, _) => None,
            (true, Some(name)) => Some(name),
            (true, None) if is_looked_at => None,
            (true, None) => return Err("has its data in another file, but does not say which".into()),
        };
        let compression = if header_bytes > COMPRESSION_AT { first[COMPRESSION_AT] } else { COMPRESSION_ZLIB };
        // What is not by zlib says so in the features, too.
        let is_said = (compression != COMPRESSION_ZLIB) == (incompatible & INCOMPATIBLE_COMPRESSION != 0);
        if !is_looked_at && (compression > COMPRESSION_ZSTD || !is_said) {
            return Err(format!("is compressed in a way that is not known here (type {compression})"));
        }
        let header = Self {
            version,
            cluster_bits,
            size_bytes,
            l1,
            refcounts,
            refcount_order,
            snapshots: fields.u32_at(60),
            snapshots_offset_bytes: fields.u64_at(64),
            bitmaps,
            incompatible,
            backing,
            data_file,
            is_data_file_raw: autoclear & AUTOCLEAR_DATA_FILE_RAW != 0,
            has_lazy_refcounts: features(COMPATIBLE_AT as usize) & COMPATIBLE_LAZY_REFCOUNTS != 0,
            compression,
            encryption,
            encryption_header: extensions.encryption,
        };
        unless_looked_at(header.check_l1())?;
        Ok(header)
    }

    /// What lies behind the L1 table would read as zeros, and seem to be nobody's.
    fn check_l1(&self) -> Result<(), String> {
        let entries = self.l1.length_bytes / 8;
        let wanted = self.size_bytes.div_ceil(1 << Layout::of(self).table_covers_bits());
        match entries < wanted {
            true => Err(format!("has an L1 table of {entries} entries, too small for its disk, which takes {wanted}")),
            false => Ok(()),
        }
    }

    pub(super) fn cluster_bytes(&self) -> u64 {
        1 << self.cluster_bits
    }

    /// Whether its table of refcounts ends within a file of so many bytes, of which the last cluster may be cut off; so
    /// does none.
    pub(super) fn has_refcount_table_in(&self, file_bytes: u64) -> bool {
        let Table { offset_bytes, length_bytes } = self.refcounts;
        length_bytes == 0 || offset_bytes + length_bytes <= file_bytes.next_multiple_of(self.cluster_bytes())
    }

    /// Whether refcounts may be behind.
    pub(super) fn is_dirty(&self) -> bool {
        self.incompatible & INCOMPATIBLE_DIRTY != 0
    }

    /// Whether it says that it is damaged.
    pub(super) fn is_corrupt(&self) -> bool {
        self.incompatible & INCOMPATIBLE_CORRUPT != 0
    }

    /// Whether clusters have parts.
    pub(super) fn has_extended_l2(&self) -> bool {
        self.incompatible & INCOMPATIBLE_EXTENDED_L2 != 0
    }

    /// Whether compressed clusters are by zstd; else by zlib.
    pub(super) fn is_zstd(&self) -> bool {
        self.compression == COMPRESSION_ZSTD
    }
}

/// What an image is looked at for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    Use,
    Read,
    Check,
    Look,
}

impl Table {
    fn check(&self, name: &str, cluster_bytes: u64, file_bytes: u64) -> Result<(), String> {
        let Self { offset_bytes, length_bytes } = *self;
        if length_bytes > TABLE_MAX_BYTES {
            return Err(format!("has a {name} of {length_bytes} bytes; at most {TABLE_MAX_BYTES} are supported"));
        }
        if !offset_bytes.is_multiple_of(cluster_bytes) {
            return Err(format!("is damaged: its {name} does not begin with a cluster"));
        }
        // The last cluster may be cut off, as long as something of it is there.
        let end = offset_bytes.checked_add(length_bytes);
        let file_end = file_bytes.checked_next_multiple_of(cluster_bytes).unwrap_or(u64::MAX);
        // An empty one lies nowhere, but where one could be.
        let (start_min, end_max) = if length_bytes > 0 { (1, file_end) } else { (0, DISK_MAX_BYTES) };
        if offset_bytes < start_min || end.is_none_or(|end| end > end_max) {
            return Err(format!("is damaged: its {name} does not lie within the file"));
        }
        Ok(())
    }
}

/// Incompatible features: what must be understood.
fn check_features(incompatible: u64) -> Result<(), String> {
    let bit = |bit: u32| incompatible & (1 << bit) != 0;
    if bit(1) {
        return Err(format!("is marked corrupt: repair it with {}", Remedy::RepairImage));
    }
    if bit(0) {
        return Err(format!(
            "is marked dirty, as after a crash of whoever wrote it: repair it with {}",
            Remedy::RepairImage
        ));
    }
    if incompatible >> 5 != 0 {
        let bits: Vec<_> = (5..64).filter(|&n| bit(n)).map(|n| n.to_string()).collect();
        return Err(format!("needs features that are not known here (incompatible feature bits {})", bits.join(", ")));
    }
    Ok(())
}

/// The bytes of a disk that is said to have so many: the format counts bytes, and a disk has sectors. The last one is
/// there as a whole, so that nothing is lost.
pub(super) fn in_whole_sectors(size_bytes: u64) -> u64 {
    size_bytes.checked_next_multiple_of(512).unwrap_or(size_bytes)
}

/// How many bytes the first cluster has, by an image's first sector; the most there are where that says nothing.
fn first_cluster_bytes(start: &[u8]) -> u64 {
    let bits = Fields { bytes: start }.u32(CLUSTER_BITS_AT);
    let bits = bits.filter(|bits| (CLUSTER_BITS_MIN..=CLUSTER_BITS_MAX).contains(bits));
    bits.map_or(FIRST_CLUSTER_MAX_BYTES, |bits| 1 << bits)
}

/// Reads the first cluster, as far as the file goes. `read` is told how many bytes to read of the file's beginning.
///
/// # Errors
/// When they cannot be read.
pub(super) fn read_first_cluster(mut read: impl FnMut(u64) -> io::Result<Vec<u8>>) -> io::Result<Vec<u8>> {
    let start = read(1 << CLUSTER_BITS_MIN)?;
    match first_cluster_bytes(&start) {
        length if length == start.len() as u64 => Ok(start),
        length => read(length),
    }
}

#[derive(Default)]
struct Extensions {
    backing_format: Option<String>,
    data_file: Option<String>,
    bitmaps: Option<BitmapDirectory>,
    encryption: Option<Table>,
}

impl Extensions {
    /// Those within `range`. The first cluster may be cut off in `first`: zeros follow.
    fn parse(first: &[u8], range: Range<usize>, version: u32) -> Result<Self, String> {
        let Range { start: mut at, end } = range;
        let fields = Fields { bytes: first };
        let mut extensions = Self::default();
        // Every turn moves on by at least 8 bytes of a cluster.
        while at + 8 <= end {
            let (Some(kind), Some(length)) = (fields.u32(at), fields.u32(at + 4)) else { return Ok(extensions) };
            // Of the last one, which has no data, too: QEMU has it so.
            let data_end = (at + 8).checked_add(length as usize).filter(|data_end| *data_end <= end);
            let data_end = data_end.ok_or("is damaged: a header extension does not lie within the first cluster")?;
            if kind == EXTENSION_END {
                return Ok(extensions);
            }
            let text = || -> Result<String, String> {
                let bytes = first.get(at + 8..data_end).ok_or("is cut off: its header extensions are not complete")?;
                let text = String::from_utf8(bytes.to_vec()).map_err(|_| "has a file name that is not UTF-8")?;
                Ok(text)
            };
            if kind == EXTENSION_BITMAPS && length >= 24 {
                let table = Table { offset_bytes: fields.u64_at(at + 24), length_bytes: fields.u64_at(at + 16) };
                extensions.bitmaps = Some(BitmapDirectory { bitmaps: fields.u32_at(at + 8), table });
            }
            if kind == EXTENSION_ENCRYPTION && length >= 16 {
                let table = Table { offset_bytes: fields.u64_at(at + 8), length_bytes: fields.u64_at(at + 16) };
                extensions.encryption = Some(table);
            }
            let target = match kind {
                EXTENSION_BACKING_FORMAT => Some(&mut extensions.backing_format),
                EXTENSION_DATA_FILE => Some(&mut extensions.data_file),
                _ => None,
            };
            if let Some(target) = target {
                let text = text()?;
                if target.replace(text).is_some() {
                    return Err("is damaged: a header extension is there twice".into());
                }
            }
            at = at + 8 + (length as usize).next_multiple_of(8);
        }
        match version {
            2 => Ok(extensions),
            _ => Err("is damaged: its header extensions do not end within the first cluster".into()),
        }
    }
}

fn backing_name(first: &[u8], fields: &Fields<'_>) -> Result<Option<String>, String> {
    let (offset, length) = (fields.u64_at(8), fields.u32_at(16));
    if offset == 0 {
        return Ok(None);
    }
    let range = usize::try_from(offset).ok().and_then(|start| Some(start..start.checked_add(length as usize)?));
    let bytes = range.filter(|_| length <= BACKING_NAME_MAX_BYTES).and_then(|range| first.get(range));
    let bytes = bytes.ok_or("is damaged: its backing file's name does not lie within the first cluster")?;
    let name = std::str::from_utf8(bytes).map_err(|_| "has a backing file whose name is not UTF-8")?;
    Ok(Some(name.to_owned()))
}

/// Big-endian numbers in the file's beginning.
struct Fields<'a> {
    bytes: &'a [u8],
}

impl Fields<'_> {
    fn u32(&self, at: usize) -> Option<u32> {
        let bytes = self.bytes.get(at..at.checked_add(4)?)?;
        Some(u32::from_be_bytes(bytes.try_into().ok()?))
    }

    /// A field within the part whose length has been checked.
    fn u32_at(&self, at: usize) -> u32 {
        self.u32(at).unwrap_or(0)
    }

    fn u64_at(&self, at: usize) -> u64 {
        u64::from(self.u32_at(at)) << 32 | u64::from(self.u32_at(at + 4))
    }
}
