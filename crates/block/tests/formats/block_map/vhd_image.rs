//! VHDs as Microsoft's Virtual Hard Disk Image Format Specification 1.0 has them: also differencing ones, which QEMU
//! does not make.

#![allow(dead_code, reason = "each test executable uses a part of it")]

/// Which sectors of a block are in an image.
pub(crate) type Sectors = fn(usize) -> bool;

/// A block that is in an image: its number, its sectors that are, and all its bytes.
pub(crate) type Block = (usize, Sectors, Vec<u8>);

/// All of them.
pub(crate) const ALL: Sectors = |_| true;

/// What is to be in an image.
#[derive(Clone)]
pub(crate) struct VhdImage {
    /// 2 is fixed, 3 dynamic, 4 differencing.
    pub(crate) kind: u32,
    pub(crate) size_bytes: u64,
    pub(crate) block_bytes: u32,
    pub(crate) creator: [u8; 4],
    /// Cylinders, heads, sectors.
    pub(crate) geometry: (u16, u8, u8),
    pub(crate) id: [u8; 16],
    pub(crate) parent_id: [u8; 16],
    /// Platform codes with their data.
    pub(crate) locators: Vec<([u8; 4], Vec<u8>)>,
    pub(crate) parent_name: String,
    pub(crate) blocks: Vec<Block>,
}

impl VhdImage {
    pub(crate) fn new(kind: u32, size_bytes: u64, block_bytes: u32) -> Self {
        Self {
            kind,
            size_bytes,
            block_bytes,
            creator: *b"win ",
            geometry: (1, 1, 1),
            id: [1; 16],
            parent_id: [0; 16],
            locators: Vec::new(),
            parent_name: String::new(),
            blocks: Vec::new(),
        }
    }

    fn footer(&self) -> Vec<u8> {
        let mut footer = vec![0; 512];
        let mut put = |at: usize, bytes: &[u8]| footer[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, b"conectix");
        put(8, &2_u32.to_be_bytes());
        put(12, &0x1_0000_u32.to_be_bytes());
        put(16, &if self.kind == 2 { u64::MAX } else { 512 }.to_be_bytes());
        put(28, &self.creator);
        put(40, &self.size_bytes.to_be_bytes());
        put(48, &self.size_bytes.to_be_bytes());
        put(56, &self.geometry.0.to_be_bytes());
        put(58, &[self.geometry.1, self.geometry.2]);
        put(60, &self.kind.to_be_bytes());
        put(68, &self.id);
        set_checksum(&mut footer, 64);
        footer
    }

    /// Where its table lies.
    pub(crate) fn table_offset(&self) -> usize {
        1536 + self.locators.len() * 512
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        if self.kind == 2 {
            let mut bytes = vec![0; self.size_bytes as usize];
            for (block, _, data) in &self.blocks {
                bytes[block * self.block_bytes as usize..][..data.len()].copy_from_slice(data);
            }
            bytes.extend(self.footer());
            return bytes;
        }
        let mut header = vec![0; 1024];
        let entries = self.size_bytes.div_ceil(self.block_bytes.into()) as usize;
        let table_offset = self.table_offset();
        let mut put = |at: usize, bytes: &[u8]| header[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, b"cxsparse");
        put(8, &u64::MAX.to_be_bytes());
        put(16, &(table_offset as u64).to_be_bytes());
        put(24, &0x1_0000_u32.to_be_bytes());
        put(28, &(entries as u32).to_be_bytes());
        put(32, &self.block_bytes.to_be_bytes());
        put(40, &self.parent_id);
        let name: Vec<u8> = self.parent_name.encode_utf16().flat_map(u16::to_be_bytes).collect();
        put(64, &name);
        for (n, (platform, data)) in self.locators.iter().enumerate() {
            put(576 + n * 24, platform);
            put(580 + n * 24, &512_u32.to_be_bytes());
            put(584 + n * 24, &(data.len() as u32).to_be_bytes());
            put(592 + n * 24, &(1536 + n as u64 * 512).to_be_bytes());
        }
        set_checksum(&mut header, 36);
        let mut bytes = [self.footer(), header].concat();
        for (_, data) in &self.locators {
            bytes.extend(data);
            bytes.resize(bytes.len().next_multiple_of(512), 0);
        }
        bytes.resize(table_offset + (entries * 4).next_multiple_of(512), 0xff);
        for (block, is_there, data) in &self.blocks {
            let sector = (bytes.len() / 512) as u32;
            bytes[table_offset + block * 4..][..4].copy_from_slice(&sector.to_be_bytes());
            let sectors = self.block_bytes as usize / 512;
            let mut bitmap = vec![0_u8; sectors.div_ceil(8).next_multiple_of(512)];
            for sector in (0..sectors).filter(|&sector| is_there(sector)) {
                bitmap[sector / 8] |= 0x80 >> (sector % 8);
            }
            bytes.extend(bitmap);
            assert_eq!(data.len(), self.block_bytes as usize);
            bytes.extend(data);
        }
        bytes.extend(self.footer());
        bytes
    }
}

/// The one's complement of the sum of all other bytes.
pub(crate) fn set_checksum(bytes: &mut [u8], at: usize) {
    bytes[at..at + 4].fill(0);
    let sum = bytes.iter().fold(0_u32, |sum, &byte| sum.wrapping_add(byte.into()));
    bytes[at..at + 4].copy_from_slice(&(!sum).to_be_bytes());
}

/// Text as a locator of the platforms W2ku and W2ru has it.
pub(crate) fn utf16(text: &str) -> Vec<u8> {
    text.encode_utf16().flat_map(u16::to_le_bytes).collect()
}
