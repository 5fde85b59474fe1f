//! VHDXs as [MS-VHDX] has them: also differencing ones, which QEMU does not make, and ones that were not closed.

#![allow(dead_code, reason = "each test executable uses a part of it")]

pub(crate) const MIB: usize = 1 << 20;
pub(crate) const LOG_OFFSET: usize = MIB;
pub(crate) const LOG_BYTES: usize = MIB;
pub(crate) const METADATA_OFFSET: usize = 2 * MIB;
pub(crate) const TABLE_OFFSET: usize = 3 * MIB;
pub(crate) const HEADER_OFFSETS: [usize; 2] = [64 << 10, 128 << 10];
pub(crate) const REGION_TABLE_OFFSETS: [usize; 2] = [192 << 10, 256 << 10];

/// Which sectors of a block are in an image.
pub(crate) type Sectors = fn(usize) -> bool;

/// A block: its number, the state that its entry says, which sectors are there (for state 7), and its bytes.
pub(crate) type Block = (usize, u64, Sectors, Vec<u8>);

pub(crate) const ALL: Sectors = |_| true;

/// What is to be in an image.
#[derive(Clone)]
pub(crate) struct VhdxImage {
    pub(crate) size_bytes: u64,
    pub(crate) block_bytes: usize,
    pub(crate) sector_bytes: usize,
    /// Blocks keep their places (1), and there is a parent (2).
    pub(crate) flags: u32,
    pub(crate) data_write_id: [u8; 16],
    pub(crate) log_id: [u8; 16],
    /// Bytes of the log, from its beginning on.
    pub(crate) log: Vec<u8>,
    /// Keys and values of the parent locator.
    pub(crate) locator: Vec<(String, String)>,
    pub(crate) blocks: Vec<Block>,
}

/// A GUID as it lies in a file.
pub(crate) fn guid(text: &str) -> [u8; 16] {
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    let mut bytes = [0; 16];
    for (n, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&digits[n * 2..n * 2 + 2], 16).unwrap();
    }
    bytes[..4].reverse();
    bytes[4..6].reverse();
    bytes[6..8].reverse();
    bytes
}

pub(crate) fn set_checksum(bytes: &mut [u8]) {
    bytes[4..8].fill(0);
    let checksum = crc32c::crc32c(bytes);
    bytes[4..8].copy_from_slice(&checksum.to_le_bytes());
}

pub(crate) fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

impl VhdxImage {
    pub(crate) fn new(size_bytes: u64, block_bytes: usize) -> Self {
        Self {
            size_bytes,
            block_bytes,
            sector_bytes: 512,
            flags: 0,
            data_write_id: [1; 16],
            log_id: [0; 16],
            log: Vec::new(),
            locator: Vec::new(),
            blocks: Vec::new(),
        }
    }

    pub(crate) fn chunk_blocks(&self) -> usize {
        (self.sector_bytes << 23) / self.block_bytes
    }

    /// Where the entry of a block lies.
    pub(crate) fn entry_offset(&self, block: usize) -> usize {
        TABLE_OFFSET + (block + block / self.chunk_blocks()) * 8
    }

    /// Where that of the bitmap lies that has the block's sectors.
    pub(crate) fn bitmap_entry_offset(&self, block: usize) -> usize {
        TABLE_OFFSET + ((block / self.chunk_blocks() + 1) * (self.chunk_blocks() + 1) - 1) * 8
    }

    fn header(&self, sequence: u64) -> Vec<u8> {
        let mut header = vec![0; 4096];
        put(&mut header, 0, b"head");
        put(&mut header, 8, &sequence.to_le_bytes());
        put(&mut header, 16, &[9; 16]);
        put(&mut header, 32, &self.data_write_id);
        put(&mut header, 48, &self.log_id);
        put(&mut header, 66, &1_u16.to_le_bytes());
        put(&mut header, 68, &(LOG_BYTES as u32).to_le_bytes());
        put(&mut header, 72, &(LOG_OFFSET as u64).to_le_bytes());
        set_checksum(&mut header);
        header
    }

    fn region_table(table_bytes: usize) -> Vec<u8> {
        let mut table = vec![0; 64 << 10];
        put(&mut table, 0, b"regi");
        put(&mut table, 8, &2_u32.to_le_bytes());
        for (n, (id, offset, length)) in [
            ("2DC27766-F623-4200-9D64-115E9BFD4A08", TABLE_OFFSET, table_bytes),
            ("8B7CA206-4790-4B9A-B8FE-575F050F886E", METADATA_OFFSET, MIB),
        ]
        .into_iter()
        .enumerate()
        {
            let at = 16 + n * 32;
            put(&mut table, at, &guid(id));
            put(&mut table, at + 16, &(offset as u64).to_le_bytes());
            put(&mut table, at + 24, &(length as u32).to_le_bytes());
            put(&mut table, at + 28, &1_u32.to_le_bytes());
        }
        set_checksum(&mut table);
        table
    }

    fn locator(&self) -> Vec<u8> {
        let utf16 = |text: &str| text.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<u8>>();
        let mut bytes = guid("B04AEFB7-D19E-4A81-B789-25B8E9445913").to_vec();
        bytes.extend([0, 0]);
        bytes.extend((self.locator.len() as u16).to_le_bytes());
        bytes.resize(20 + self.locator.len() * 12, 0);
        for (n, (key, value)) in self.locator.iter().enumerate() {
            let (key, value) = (utf16(key), utf16(value));
            let at = 20 + n * 12;
            let start = bytes.len() as u32;
            put(&mut bytes, at, &start.to_le_bytes());
            put(&mut bytes, at + 4, &(start + key.len() as u32).to_le_bytes());
            put(&mut bytes, at + 8, &(key.len() as u16).to_le_bytes());
            put(&mut bytes, at + 10, &(value.len() as u16).to_le_bytes());
            bytes.extend(key);
            bytes.extend(value);
        }
        bytes
    }

    /// Items lie 64 KiB into the region, 4 KiB each.
    fn metadata(&self) -> Vec<u8> {
        let parameters = [(self.block_bytes as u32).to_le_bytes(), self.flags.to_le_bytes()].concat();
        let mut items = vec![
            ("CAA16737-FA36-4D43-B3B6-33F0AA44E76B", 4, parameters),
            ("2FA54224-CD1B-4876-B211-5DBED83BF4B8", 6, self.size_bytes.to_le_bytes().to_vec()),
            ("BECA12AB-B2E6-4523-93EF-C309E000C746", 6, vec![5; 16]),
            ("8141BF1D-A96F-4709-BA47-F233A8FAAB5F", 6, (self.sector_bytes as u32).to_le_bytes().to_vec()),
            ("CDA348C7-445D-4471-9CC9-E9885251C556", 6, 4096_u32.to_le_bytes().to_vec()),
        ];
        if self.flags & 2 == 2 {
            items.push(("A8D35F2D-B30B-454D-ABF7-D3D84834AB0C", 4, self.locator()));
        }
        let mut region = vec![0; MIB];
        put(&mut region, 0, b"metadata");
        put(&mut region, 10, &(items.len() as u16).to_le_bytes());
        for (n, (id, flags, bytes)) in items.into_iter().enumerate() {
            let (at, offset) = (32 + n * 32, (64 << 10) + n * 4096);
            put(&mut region, at, &guid(id));
            put(&mut region, at + 16, &(offset as u32).to_le_bytes());
            put(&mut region, at + 20, &(bytes.len() as u32).to_le_bytes());
            put(&mut region, at + 24, &(flags as u32).to_le_bytes());
            put(&mut region, offset, &bytes);
        }
        region
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let blocks = self.size_bytes.div_ceil(self.block_bytes as u64) as usize;
        let entries = blocks.div_ceil(self.chunk_blocks()) * (self.chunk_blocks() + 1);
        let table_bytes = (entries * 8).next_multiple_of(MIB);
        let mut bytes = vec![0; TABLE_OFFSET + table_bytes];
        put(&mut bytes, 0, b"vhdxfile");
        for (sequence, offset) in (4..).zip(HEADER_OFFSETS) {
            put(&mut bytes, offset, &self.header(sequence));
        }
        for offset in REGION_TABLE_OFFSETS {
            put(&mut bytes, offset, &Self::region_table(table_bytes));
        }
        put(&mut bytes, LOG_OFFSET, &self.log);
        put(&mut bytes, METADATA_OFFSET, &self.metadata());
        for (block, state, is_there, data) in &self.blocks {
            let entry = if data.is_empty() { *state } else { bytes.len() as u64 | state };
            put(&mut bytes, self.entry_offset(*block), &entry.to_le_bytes());
            bytes.extend(data);
            bytes.resize(bytes.len().next_multiple_of(MIB), 0);
            if *state != 7 {
                continue;
            }
            let bitmap_entry = self.bitmap_entry_offset(*block);
            let mut bitmap = u64::from_le_bytes(bytes[bitmap_entry..][..8].try_into().unwrap()) as usize & !7;
            if bitmap == 0 {
                bitmap = bytes.len();
                put(&mut bytes, bitmap_entry, &(bitmap as u64 | 6).to_le_bytes());
                bytes.resize(bitmap + MIB, 0);
            }
            let sectors = self.block_bytes / self.sector_bytes;
            let first = block % self.chunk_blocks() * sectors;
            for sector in (0..sectors).filter(|&sector| is_there(sector)).map(|sector| first + sector) {
                bytes[bitmap + sector / 8] |= 1 << (sector % 8);
            }
        }
        bytes
    }
}

/// A change that a log entry has.
#[derive(Clone)]
pub(crate) enum Change {
    Zeros { offset: u64, length: u64 },
    Page { offset: u64, bytes: Vec<u8> },
}

/// An entry of a log: section 2.3.1 of the specification.
#[derive(Clone)]
pub(crate) struct LogEntry {
    pub(crate) sequence: u64,
    pub(crate) tail: u32,
    pub(crate) log_id: [u8; 16],
    pub(crate) flushed_bytes: u64,
    pub(crate) last_bytes: u64,
    pub(crate) changes: Vec<Change>,
}

impl LogEntry {
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let descriptors = (64 + self.changes.len() * 32).next_multiple_of(4096);
        let mut bytes = vec![0; descriptors];
        put(&mut bytes, 0, b"loge");
        put(&mut bytes, 12, &self.tail.to_le_bytes());
        put(&mut bytes, 16, &self.sequence.to_le_bytes());
        put(&mut bytes, 24, &(self.changes.len() as u32).to_le_bytes());
        put(&mut bytes, 32, &self.log_id);
        put(&mut bytes, 48, &self.flushed_bytes.to_le_bytes());
        put(&mut bytes, 56, &self.last_bytes.to_le_bytes());
        for (n, change) in self.changes.iter().enumerate() {
            let at = 64 + n * 32;
            put(&mut bytes, at + 24, &self.sequence.to_le_bytes());
            match change {
                Change::Zeros { offset, length } => {
                    put(&mut bytes, at, b"zero");
                    put(&mut bytes, at + 8, &length.to_le_bytes());
                    put(&mut bytes, at + 16, &offset.to_le_bytes());
                }
                Change::Page { offset, bytes: page } => {
                    put(&mut bytes, at, b"desc");
                    put(&mut bytes, at + 4, &page[4092..]);
                    put(&mut bytes, at + 8, &page[..8]);
                    put(&mut bytes, at + 16, &offset.to_le_bytes());
                    let data = bytes.len();
                    bytes.extend(b"data");
                    bytes.extend(((self.sequence >> 32) as u32).to_le_bytes());
                    bytes.extend(&page[8..4092]);
                    bytes.extend((self.sequence as u32).to_le_bytes());
                    assert_eq!(bytes.len(), data + 4096);
                }
            }
        }
        let length = bytes.len() as u32;
        put(&mut bytes, 8, &length.to_le_bytes());
        set_checksum(&mut bytes);
        bytes
    }
}
