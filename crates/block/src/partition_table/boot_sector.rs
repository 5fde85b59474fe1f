//! File systems that have a whole disk, recognised by its start.
//!
//! Their boot sectors end in 55 aa as an MBR does, and what is where the entries would be is code or text.

/// The first bytes of a disk, zeros behind its end.
#[derive(Clone, Debug)]
pub(super) struct Start([u8; 2048]);

impl Default for Start {
    fn default() -> Self {
        Self([0; 2048])
    }
}

impl std::ops::Deref for Start {
    type Target = [u8; 2048];

    fn deref(&self) -> &[u8; 2048] {
        &self.0
    }
}

impl std::ops::DerefMut for Start {
    fn deref_mut(&mut self) -> &mut [u8; 2048] {
        &mut self.0
    }
}

/// Whether the boot sector is a FAT's (its BIOS parameter block makes sense), an exFAT's or an NTFS's.
pub(super) fn is_fat_or_ntfs(start: &Start) -> bool {
    if matches!(&start[3..11], b"EXFAT   " | b"NTFS    ") {
        return true;
    }
    let half = |at: usize| u16::from_le_bytes([start[at], start[at + 1]]);
    let jumps = matches!(start[0], 0xeb | 0xe9);
    let sector_bytes = matches!(half(11), 512 | 1024 | 2048 | 4096);
    let cluster_sectors = start[13].is_power_of_two();
    let reserved_sectors = half(14) != 0;
    let tables = matches!(start[16], 1..=4);
    let media = matches!(start[21], 0xf0 | 0xf8..);
    jumps && sector_bytes && cluster_sectors && reserved_sectors && tables && media
}

/// Whether an ext2, ext3 or ext4 superblock is where it belongs: 1024 bytes in (kernel, fs/ext4/ext4.h).
pub(super) fn is_ext(start: &Start) -> bool {
    let superblock = &start[1024..];
    let word =
        |at: usize| u32::from_le_bytes([superblock[at], superblock[at + 1], superblock[at + 2], superblock[at + 3]]);
    let magic = superblock[56..58] == [0x53, 0xef];
    let (blocks_count, log_block_size, blocks_per_group) = (word(4), word(24), word(32));
    magic && blocks_count > 0 && log_block_size <= 6 && blocks_per_group > 0
}
