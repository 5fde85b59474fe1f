//! What a partition or a disk holds, by the magic numbers that blkid(8) knows it by.

use crate::sysfs::sector_bytes;
use crate::uuid::uuid_text;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// What a partition, or a disk without any, holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Content {
    /// As blkid(8) has it; `None` when it is nothing we know.
    pub(crate) kind: Option<&'static str>,
    /// Of a part of an array: the array's.
    pub(crate) uuid: String,
    pub(crate) label: String,
    /// Bytes of memory that it takes to make a key of a passphrase; 0 when nothing is known of that.
    pub(crate) key_memory_bytes: u64,
    /// Of the array that it is part of.
    pub(crate) array: Array,
}

/// An array, as each of its parts has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Array {
    /// As md(4) counts.
    pub(crate) level: i32,
    /// How many it has when it is complete.
    pub(crate) disks: u32,
}

/// Kinds that hold no files, with why not.
const NO_FILES: [(&str, &str); 10] = [
    ("swap", "is swap space"),
    (LUKS, "is encrypted (LUKS)"),
    (LVM_MEMBER, "is part of an LVM volume group"),
    (RAID_MEMBER, "is part of a RAID"),
    ("ntfs", "has an NTFS file system, which the appliance's kernel does not read"),
    ("BitLocker", "is encrypted (BitLocker), which is not supported"),
    ("zfs_member", "is part of a ZFS pool, which is not supported"),
    ("bcache", "is part of a bcache, which is not supported"),
    (
        GPT_4096,
        "has a partition table (GPT) for blocks of 4096 bytes: open the image with `,block-size=4096` behind its name",
    ),
    (
        GPT_512,
        "has a partition table (GPT) for blocks of 512 bytes: open the image with `,block-size=512` behind its name",
    ),
];

/// Partition tables that the kernel does not find, as they were made for disks with other blocks.
const GPT_4096: &str = "GPT, needs block-size=4096";
const GPT_512: &str = "GPT, needs block-size=512";

pub(crate) const LUKS: &str = "crypto_LUKS";
pub(crate) const LVM_MEMBER: &str = "LVM2_member";
pub(crate) const RAID_MEMBER: &str = "linux_raid_member";

/// Bytes at the start that magic numbers are in.
const HEAD_BYTES: usize = 0x11000;
/// Most bytes of a LUKS2 header (LUKS2 On-Disk Format Specification, 2.1).
const LUKS2_HEADER_BYTES_MAX: usize = 4 << 20;

impl Content {
    /// Why it has no files that this kernel may be able to read; `None` when it has.
    pub(crate) fn why_not(&self) -> Option<&'static str> {
        let Some(kind) = self.kind else { return Some("has no file system that is known") };
        NO_FILES.iter().find(|(name, _)| *name == kind).map(|&(_, why)| why)
    }

    /// Whether something has to be opened or put together before there are files.
    pub(crate) fn is_layer(&self) -> bool {
        matches!(self.kind, Some(LUKS | LVM_MEMBER | RAID_MEMBER))
    }

    /// The driver that mounts it.
    pub(crate) fn driver(&self) -> &'static str {
        match self.kind {
            Some("ext2" | "ext3" | "ext4") => "ext4",
            kind => kind.unwrap_or_default(),
        }
    }
}

/// Looks what is on the device at /dev/`node`, which has `size` bytes.
pub(crate) fn identify(node: &str, size: u64) -> Content {
    let Ok(device) = File::open(format!("/dev/{node}")) else { return Content::default() };
    // An array's parts may have a file system's first block: those of a mirror whose superblock is behind it.
    if let Some(array) = raid_member(&device, size) {
        return array;
    }
    let head = read(&device, 0, HEAD_BYTES);
    let mut content = content_of(&head);
    let has_table = |at: usize| Fields(&head).has(at, b"EFI PART");
    match sector_bytes(node) {
        _ if content.kind.is_some() => {}
        512 if has_table(4096) && !has_table(512) => content.kind = Some(GPT_4096),
        4096 if has_table(512) && !has_table(4096) => content.kind = Some(GPT_512),
        _ => {}
    }
    if content.kind == Some(LUKS) {
        content.key_memory_bytes = key_memory_bytes(&device, &head);
    }
    content
}

/// Up to `bytes` at `offset`: as far as they can be read.
fn read(device: &File, offset: u64, bytes: usize) -> Vec<u8> {
    let mut buffer = vec![0; bytes];
    let mut filled = 0;
    while let Ok(read @ 1..) = device.read_at(&mut buffer[filled..], offset.saturating_add(filled as u64)) {
        filled += read;
    }
    buffer.truncate(filled);
    buffer
}

/// Fields of a header.
struct Fields<'bytes>(&'bytes [u8]);

impl<'bytes> Fields<'bytes> {
    fn has(&self, offset: usize, magic: &[u8]) -> bool {
        self.0.get(offset..offset + magic.len()) == Some(magic)
    }

    /// Nothing where there is nothing.
    fn bytes(&self, offset: usize, length: usize) -> &'bytes [u8] {
        self.0.get(offset..offset + length).unwrap_or_default()
    }

    /// Up to the first NUL.
    fn text(&self, offset: usize, length: usize) -> String {
        let bytes = self.bytes(offset, length);
        let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
        String::from_utf8_lossy(&bytes[..end]).trim_end().to_owned()
    }

    /// Up to the first NUL, of letters of two bytes.
    fn utf16(&self, offset: usize, letters: usize) -> String {
        let pairs = self.bytes(offset, 2 * letters).chunks_exact(2);
        let letters = pairs.map(|pair| u16::from_le_bytes([pair[0], pair[1]])).take_while(|letter| *letter != 0);
        char::decode_utf16(letters).map(|letter| letter.unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
    }

    fn le32(&self, offset: usize) -> u32 {
        self.bytes(offset, 4).try_into().map_or(0, u32::from_le_bytes)
    }

    fn le64(&self, offset: usize) -> u64 {
        self.bytes(offset, 8).try_into().map_or(0, u64::from_le_bytes)
    }
}

/// What begins with `head`, but for an array's part.
fn content_of(head: &[u8]) -> Content {
    let head = Fields(head);
    let content = |kind, uuid: String, label: String| Content { kind: Some(kind), uuid, label, ..Content::default() };
    let plain = |kind| content(kind, String::new(), String::new());
    if head.has(0, b"LUKS\xba\xbe") {
        // The first version has no label, but part of a cipher's name there.
        let label = if head.has(6, &[0, 2]) { head.text(24, 48) } else { String::new() };
        return content(LUKS, head.text(168, 40), label);
    }
    // In one of the first four sectors (lvm2, lib/label/label.h).
    if let Some(at) = [0, 512, 1024, 1536].into_iter().find(|&at| head.has(at, b"LABELONE")) {
        return content(LVM_MEMBER, physical_volume_uuid(&head.text(at + 32, 32)), String::new());
    }
    if head.has(0, b"XFSB") {
        return content("xfs", uuid_text(head.bytes(32, 16)), head.text(108, 12));
    }
    if head.has(0x438, &[0x53, 0xef]) {
        return content(ext_kind(&head), uuid_text(head.bytes(0x468, 16)), head.text(0x478, 16));
    }
    if head.has(0x10040, b"_BHRfS_M") {
        let found = content("btrfs", uuid_text(head.bytes(0x10020, 16)), head.text(0x1012b, 256));
        // How many devices it is on (Linux, include/uapi/linux/btrfs_tree.h, struct btrfs_super_block).
        let disks = u32::try_from(head.le64(0x10088)).unwrap_or(u32::MAX);
        return Content { array: Array { disks, ..Array::default() }, ..found };
    }
    if head.has(0x8000, b"JFS1") {
        return content("jfs", uuid_text(head.bytes(0x8088, 16)), head.text(0x8098, 16));
    }
    if head.has(0x8001, b"CD001") {
        return content("iso9660", String::new(), head.text(0x8028, 32));
    }
    // In one of the descriptors that follow the first (ECMA-167, 2/9.1).
    if (0x8800..0xd000).step_by(0x800).any(|at| head.has(at + 1, b"NSR0")) {
        return plain("udf");
    }
    if head.has(0, b"hsqs") {
        return plain("squashfs");
    }
    if head.has(0x400, &[0x10, 0x20, 0xf5, 0xf2]) {
        return content("f2fs", uuid_text(head.bytes(0x400 + 108, 16)), head.utf16(0x400 + 124, 512));
    }
    if head.has(0x400, b"H+\0\x04") || head.has(0x400, b"HX\0\x05") {
        return plain("hfsplus");
    }
    // Versions 1 and 2, with names of 14 and 30 bytes, and version 3 (Linux, include/uapi/linux/magic.h).
    let minix = [(0x410, 0x137f), (0x410, 0x138f), (0x410, 0x2468), (0x410, 0x2478), (0x418, 0x4d5a)];
    if minix.into_iter().any(|(at, magic): (usize, u16)| head.has(at, &magic.to_le_bytes())) && head.has(0, &[0; 16]) {
        return plain("minix");
    }
    if head.has(3, b"EXFAT   ") {
        return plain("exfat");
    }
    if head.has(4086, b"SWAPSPACE2") || head.has(4086, b"SWAP-SPACE") {
        return content("swap", uuid_text(head.bytes(0x40c, 16)), head.text(0x41c, 16));
    }
    if head.has(3, b"NTFS    ") {
        return plain("ntfs");
    }
    if head.has(3, b"-FVE-FS-") {
        return plain("BitLocker");
    }
    if head.has(0x1018, &BCACHE_MAGIC) {
        return plain("bcache");
    }
    fat(&head).or_else(|| zfs(&head).then(|| plain("zfs_member"))).unwrap_or_default()
}

/// LVM's UUIDs are letters, with dashes in other places than everybody's.
fn physical_volume_uuid(letters: &str) -> String {
    let dash = |index: usize| if matches!(index, 6 | 10 | 14 | 18 | 22 | 26) { "-" } else { "" };
    letters.chars().enumerate().map(|(index, letter)| format!("{}{letter}", dash(index))).collect()
}

/// Linux, include/uapi/linux/bcache.h.
const BCACHE_MAGIC: [u8; 16] =
    [0xc6, 0x85, 0x73, 0xf6, 0x4e, 0x1a, 0x45, 0xca, 0x82, 0x65, 0xf5, 0x7f, 0x48, 0xba, 0x6d, 0x81];

/// One of the first label's uberblocks is there.
fn zfs(head: &Fields<'_>) -> bool {
    const UBERBLOCK: u64 = 0x00ba_b10c;
    [0, 0x1000].iter().any(|at| matches!(head.le64(0x8000 + at), UBERBLOCK)) && head.0.len() > 0x8000
}

/// Which of the three it is, by what older kernels would not understand, as blkid tells them apart.
fn ext_kind(head: &Fields<'_>) -> &'static str {
    let (compatible, incompatible, read_only) = (head.le32(0x45c), head.le32(0x460), head.le32(0x464));
    const HAS_JOURNAL: u32 = 4;
    // filetype, recover, meta_bg; sparse_super, large_file.
    const EXT3_INCOMPATIBLE: u32 = 0x2 | 0x4 | 0x10;
    const EXT3_READ_ONLY: u32 = 0x1 | 0x2 | 0x4;
    match (incompatible & !EXT3_INCOMPATIBLE, read_only & !EXT3_READ_ONLY, compatible & HAS_JOURNAL) {
        (0, 0, 0) => "ext2",
        (0, 0, _) => "ext3",
        _ => "ext4",
    }
}

/// The serial number and the label are at other places in FAT32.
fn fat(head: &Fields<'_>) -> Option<Content> {
    let places = [(0x52, 0x43), (0x36, 0x27)];
    let (_, serial_at) = places.into_iter().find(|&(kind_at, _)| head.has(kind_at, b"FAT"))?;
    let serial = head.le32(serial_at);
    let uuid = format!("{:04X}-{:04X}", serial >> 16, serial & 0xffff);
    let label = Some(head.text(serial_at + 4, 11)).filter(|label| label != "NO NAME").unwrap_or_default();
    head.has(510, &[0x55, 0xaa]).then(|| Content { kind: Some("vfat"), uuid, label, ..Content::default() })
}

/// Linux, include/uapi/linux/raid/md_p.h: a superblock at the start, or at one of two places at the end.
fn raid_member(device: &File, size: u64) -> Option<Content> {
    const OLD_RESERVED: u64 = 64 << 10;
    // Version 1.1, 1.2, 1.0.
    let found = [0, 8, last_superblock(size)].into_iter().find_map(|sector| raid_superblock(device, sector));
    if found.is_some() {
        return found;
    }
    let at = (size & !(OLD_RESERVED - 1)).checked_sub(OLD_RESERVED)?;
    let bytes = read(device, at, 256);
    let block = Fields(&bytes);
    if !block.has(0, &RAID_MAGIC) || block.le32(4) != 0 {
        return None;
    }
    let uuid = [block.bytes(20, 4), block.bytes(52, 12)].concat();
    let array = Array { level: block.le32(28) as i32, disks: block.le32(40) };
    Some(Content { kind: Some(RAID_MEMBER), uuid: uuid_text(&uuid), array, ..Content::default() })
}

const RAID_MAGIC: [u8; 4] = [0xfc, 0x4e, 0x2b, 0xa9];

/// In which sector version 1.0 has its superblock.
fn last_superblock(size: u64) -> u64 {
    (size / 512).saturating_sub(16) & !7
}

/// A superblock of version 1. It says where it is, so that a disk's is not taken for its last partition's.
fn raid_superblock(device: &File, sector: u64) -> Option<Content> {
    let bytes = read(device, sector * 512, 256);
    let block = Fields(&bytes);
    let here = block.has(0, &RAID_MAGIC) && block.le32(4) == 1 && block.le64(144) == sector;
    here.then(|| Content {
        kind: Some(RAID_MEMBER),
        uuid: uuid_text(block.bytes(16, 16)),
        label: block.text(32, 32),
        array: Array { level: block.le32(72) as i32, disks: block.le32(92) },
        ..Content::default()
    })
}

/// Whether a disk is part of a mirror, so that the partitions that it seems to have are the mirror's.
pub(crate) fn is_mirrored_disk(node: &str, size: u64) -> bool {
    File::open(format!("/dev/{node}")).is_ok_and(|disk| raid_superblock(&disk, last_superblock(size)).is_some())
}

/// The most that one of a LUKS2 header's key slots takes. Its JSON is looked at and not parsed: whoever opens it does
/// that.
fn key_memory_bytes(device: &File, head: &[u8]) -> u64 {
    let head = Fields(head);
    if !head.has(6, &[0, 2]) {
        return 0;
    }
    let size: u64 = head.bytes(8, 8).try_into().map_or(0, u64::from_be_bytes);
    let json = read(device, 4096, usize::try_from(size).unwrap_or(usize::MAX).min(LUKS2_HEADER_BYTES_MAX));
    const MEMORY: &str = "\"memory\":";
    let json = String::from_utf8_lossy(&json);
    let kibibytes = json.split(MEMORY).skip(1).filter_map(|rest| {
        let digits = rest.trim_start().split(|letter: char| !letter.is_ascii_digit()).next()?;
        digits.parse::<u32>().ok()
    });
    kibibytes.max().map_or(0, |kibibytes| u64::from(kibibytes) << 10)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn file_systems_are_known_by_their_magic_numbers() {
        let mut head = vec![0; 0x11000];
        assert_eq!(content_of(&head), Content::default());
        assert_eq!(content_of(&[]), Content::default());
        head[0x438..0x43a].copy_from_slice(&[0x53, 0xef]);
        head[0x460] = 0x40;
        head[0x468..0x478].copy_from_slice(&std::array::from_fn::<u8, 16, _>(|index| index as u8));
        head[0x478..0x47c].copy_from_slice(b"root");
        let uuid = "00010203-0405-0607-0809-0a0b0c0d0e0f".to_owned();
        let wanted = Content { kind: Some("ext4"), uuid, label: "root".into(), ..Content::default() };
        assert_eq!(content_of(&head), wanted);
        head[0x460] = 2;
        assert_eq!(content_of(&head).kind, Some("ext2"));
        head[0x45c] = 4;
        assert_eq!((content_of(&head).kind, content_of(&head).driver()), (Some("ext3"), "ext4"));
        let mut fat = vec![0; 512];
        fat[510..].copy_from_slice(&[0x55, 0xaa]);
        fat[0x52..0x55].copy_from_slice(b"FAT");
        fat[0x43..0x47].copy_from_slice(&[0xef, 0xbe, 0xad, 0xde]);
        assert_eq!((content_of(&fat).kind, content_of(&fat).uuid.as_str()), (Some("vfat"), "DEAD-BEEF"));
    }

    /// The first bytes of anything, cut anywhere.
    #[test]
    fn no_header_is_too_short() {
        for length in [0, 3, 512, 1024, 4096, 0x8000, 0x8001, 0x10041] {
            for fill in [0, 0xff, b'F'] {
                let _ = content_of(&vec![fill; length]);
            }
        }
    }

    #[test]
    fn a_mirrors_part_is_no_file_system() {
        const SIZE: u64 = 4 << 20;
        let with = |at: u64, version: u8, own: u64| {
            let mut file = tempfile();
            file.set_len(SIZE).unwrap();
            file.write_all(b"XFSB").unwrap();
            file.write_all_at(&[0xfc, 0x4e, 0x2b, 0xa9, version], at).unwrap();
            file.write_all_at(&own.to_le_bytes(), at + 144).unwrap();
            raid_member(&file, SIZE).and_then(|content| content.kind)
        };
        let last = (SIZE / 512 - 16) & !7;
        assert_eq!(with(4096, 1, 8), Some(RAID_MEMBER));
        assert_eq!(with(last * 512, 1, last), Some(RAID_MEMBER));
        assert_eq!(with(SIZE - (64 << 10), 0, 0), Some(RAID_MEMBER));
        // The disk's, whose last partition this is.
        assert_eq!(with(last * 512, 1, last + 2048), None);
    }

    #[test]
    fn the_most_demanding_key_slot_counts() {
        let mut file = tempfile();
        let mut head = [0; 4096];
        head[..8].copy_from_slice(b"LUKS\xba\xbe\0\x02");
        head[8..16].copy_from_slice(&16384u64.to_be_bytes());
        file.write_all(&head).unwrap();
        file.write_all(br#"{"0":{"kdf":{"memory":1048576}},"1":{"memory": 65536},"2":{"memory":99999999999}}"#)
            .unwrap();
        assert_eq!(key_memory_bytes(&file, &head), 1 << 30);
    }

    fn tempfile() -> File {
        let directory = std::env::temp_dir();
        rustix::fs::open(&directory, rustix::fs::OFlags::TMPFILE | rustix::fs::OFlags::RDWR, rustix::fs::Mode::RUSR)
            .unwrap()
            .into()
    }
}
