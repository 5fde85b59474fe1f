//! VMDKs with grains, by VMware's Virtual Disk Format 5.0 and libvmdk's pages: also those that QEMU does not make.

#![allow(dead_code, reason = "each test executable uses a part of it")]

use std::io::Write as _;

/// What a grain holds.
#[derive(Clone)]
pub(crate) enum Grain {
    Data(Vec<u8>),
    Zeros,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `KDMV`, with two sets of tables.
    Hosted,
    /// The same, compressed, with its only tables at its end.
    Stream,
    /// `COWD`.
    Cowd,
    SeSparse,
}

/// What is to be in an image.
#[derive(Clone)]
pub(crate) struct VmdkImage {
    pub(crate) kind: Kind,
    pub(crate) size_bytes: u64,
    pub(crate) grain_bytes: u64,
    pub(crate) table_entries: u64,
    /// Numbers of grains, and what they hold.
    pub(crate) grains: Vec<(u64, Grain)>,
    /// The text in it.
    pub(crate) descriptor: String,
}

pub(crate) const HEADER_BYTES: usize = 512;
const DESCRIPTOR_SECTORS: u64 = 4;

/// The text of an image with a parent, or without one.
pub(crate) fn descriptor(cid: u32, parent: Option<(u32, &str)>, extents: &str) -> String {
    let (parent_cid, hint) = match parent {
        Some((cid, name)) => (cid, format!("parentFileNameHint=\"{name}\"\n")),
        None => (u32::MAX, String::new()),
    };
    format!(
        "# Disk DescriptorFile\nversion=1\nCID={cid:08x}\nparentCID={parent_cid:08x}\ncreateType=\"twoGbMaxExtentSparse\"\n{hint}# Extents\n{extents}\n"
    )
}

fn put32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

fn put64(bytes: &mut [u8], at: usize, value: u64) {
    bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

pub(crate) fn zlib(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// Puts bytes behind others, from a sector on: which one.
fn append(bytes: &mut Vec<u8>, more: &[u8]) -> u64 {
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    let sector = bytes.len() as u64 / 512;
    bytes.extend(more);
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    sector
}

impl VmdkImage {
    pub(crate) fn new(kind: Kind, size_bytes: u64) -> Self {
        let (grain_bytes, table_entries) = match kind {
            Kind::Hosted | Kind::Stream => (4096, 512),
            Kind::Cowd => (512, 4096),
            Kind::SeSparse => (4096, 4096),
        };
        Self { kind, size_bytes, grain_bytes, table_entries, grains: Vec::new(), descriptor: descriptor(1, None, "") }
    }

    /// With the grains of a disk that are no zeros.
    pub(crate) fn of(kind: Kind, disk: &[u8]) -> Self {
        let mut image = Self::new(kind, disk.len() as u64);
        for (number, grain) in disk.chunks(image.grain_bytes as usize).enumerate() {
            if grain.iter().any(|&byte| byte != 0) {
                let mut whole = grain.to_vec();
                whole.resize(image.grain_bytes as usize, 0);
                image.grains.push((number as u64, Grain::Data(whole)));
            }
        }
        image
    }

    /// Where the first grain directory lies, by the image's header.
    pub(crate) fn directory_offset(bytes: &[u8]) -> usize {
        u64::from_le_bytes(bytes[56..64].try_into().unwrap()) as usize * 512
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        match self.kind {
            Kind::Hosted => self.hosted(),
            Kind::Stream => self.stream(),
            Kind::Cowd => self.cowd(),
            Kind::SeSparse => self.se_sparse(),
        }
    }

    fn tables(&self) -> u64 {
        self.size_bytes.div_ceil(self.grain_bytes * self.table_entries)
    }

    fn header(&self, flags: u32) -> Vec<u8> {
        let mut header = vec![0; HEADER_BYTES];
        header[..4].copy_from_slice(b"KDMV");
        put32(&mut header, 4, if self.kind == Kind::Stream { 3 } else { 1 });
        put32(&mut header, 8, flags);
        put64(&mut header, 12, self.size_bytes / 512);
        put64(&mut header, 20, self.grain_bytes / 512);
        put64(&mut header, 28, 1);
        put64(&mut header, 36, DESCRIPTOR_SECTORS);
        put32(&mut header, 44, self.table_entries as u32);
        header[73..77].copy_from_slice(b"\n \r\n");
        header[77] = u8::from(self.kind == Kind::Stream);
        header
    }

    /// Header and descriptor.
    fn start(&self, flags: u32) -> Vec<u8> {
        let mut bytes = self.header(flags);
        bytes.extend(self.descriptor.as_bytes());
        bytes.resize((1 + DESCRIPTOR_SECTORS as usize) * 512, 0);
        bytes
    }

    /// Tables as they lie one behind the other, by the sectors of grains.
    fn table_bytes(&self, sectors: &[(u64, u32)]) -> Vec<u8> {
        let mut tables = vec![0; (self.tables() * self.table_entries * 4) as usize];
        for &(number, sector) in sectors {
            put32(&mut tables, number as usize * 4, sector);
        }
        tables
    }

    fn directory(&self, tables_sector: u64) -> Vec<u8> {
        let table_sectors = self.table_entries * 4 / 512;
        (0..self.tables()).flat_map(|table| ((tables_sector + table * table_sectors) as u32).to_le_bytes()).collect()
    }

    fn hosted(&self) -> Vec<u8> {
        let mut bytes = self.start(0b111);
        let mut places = Vec::new();
        for field in [48, 56] {
            let directory = append(&mut bytes, &vec![0; self.tables() as usize * 4]);
            let tables = append(&mut bytes, &self.table_bytes(&[]));
            put64(&mut bytes, field, directory);
            places.push((directory, tables));
        }
        let overhead = bytes.len() as u64 / 512;
        put64(&mut bytes, 64, overhead);
        let mut sectors = Vec::new();
        for (number, grain) in &self.grains {
            let sector = match grain {
                Grain::Data(data) => append(&mut bytes, data) as u32,
                Grain::Zeros => 1,
            };
            sectors.push((*number, sector));
        }
        for (directory, tables) in places {
            let (of_directory, of_tables) = (self.directory(tables), self.table_bytes(&sectors));
            bytes[directory as usize * 512..][..of_directory.len()].copy_from_slice(&of_directory);
            bytes[tables as usize * 512..][..of_tables.len()].copy_from_slice(&of_tables);
        }
        bytes
    }

    fn stream(&self) -> Vec<u8> {
        let marker = |sectors: u64, kind: u32| {
            let mut marker = vec![0; 512];
            put64(&mut marker, 0, sectors);
            put32(&mut marker, 12, kind);
            marker
        };
        let flags = 0b1 | 1 << 16 | 1 << 17;
        let mut bytes = self.start(flags);
        put64(&mut bytes, 56, u64::MAX);
        let mut sectors = Vec::new();
        for (number, grain) in &self.grains {
            let Grain::Data(data) = grain else { continue };
            let packed = zlib(data);
            let mut marked = (number * self.grain_bytes / 512).to_le_bytes().to_vec();
            marked.extend((packed.len() as u32).to_le_bytes());
            marked.extend(packed);
            sectors.push((*number, append(&mut bytes, &marked) as u32));
        }
        append(&mut bytes, &marker(self.tables() * self.table_entries * 4 / 512, 1));
        let tables = append(&mut bytes, &self.table_bytes(&sectors));
        append(&mut bytes, &marker((self.tables() * 4).div_ceil(512), 2));
        let directory = append(&mut bytes, &self.directory(tables));
        append(&mut bytes, &marker(1, 3));
        let mut footer = self.header(flags);
        put64(&mut footer, 56, directory);
        append(&mut bytes, &footer);
        append(&mut bytes, &marker(0, 0));
        bytes
    }

    fn cowd(&self) -> Vec<u8> {
        let mut bytes = vec![0; 4 * 512];
        bytes[..4].copy_from_slice(b"COWD");
        let numbers = [1, 3, self.size_bytes / 512, self.grain_bytes / 512, 4, self.tables()];
        for (index, number) in numbers.into_iter().enumerate() {
            put32(&mut bytes, 4 + index * 4, number as u32);
        }
        let directory = append(&mut bytes, &vec![0; self.tables() as usize * 4]);
        let tables = append(&mut bytes, &self.table_bytes(&[]));
        let mut sectors = Vec::new();
        for (number, grain) in &self.grains {
            if let Grain::Data(data) = grain {
                sectors.push((*number, append(&mut bytes, data) as u32));
            }
        }
        let free = bytes.len() as u32 / 512;
        put32(&mut bytes, 28, free);
        let (of_directory, of_tables) = (self.directory(tables), self.table_bytes(&sectors));
        bytes[directory as usize * 512..][..of_directory.len()].copy_from_slice(&of_directory);
        bytes[tables as usize * 512..][..of_tables.len()].copy_from_slice(&of_tables);
        bytes
    }

    fn se_sparse(&self) -> Vec<u8> {
        let mut bytes = vec![0; 512];
        put64(&mut bytes, 0, 0xcafe_babe);
        put64(&mut bytes, 8, 0x2_0000_0001);
        put64(&mut bytes, 16, self.size_bytes / 512);
        put64(&mut bytes, 24, 8);
        put64(&mut bytes, 32, 64);
        let mut volatile = vec![0; 512];
        put64(&mut volatile, 0, 0xcafe_cafe);
        let place = |bytes: &mut Vec<u8>, at: usize, more: &[u8]| {
            let sector = append(bytes, more);
            put64(bytes, at, sector);
            put64(bytes, at + 8, more.len().div_ceil(512) as u64);
        };
        place(&mut bytes, 80, &volatile);
        place(&mut bytes, 96, &[0; 512]);
        place(&mut bytes, 112, &[0; 512]);
        // Tables lie in the other order than their numbers.
        let tables = self.tables();
        let directory: Vec<u8> =
            (0..tables).flat_map(|table| (0x1000_0000_0000_0000 | (tables - 1 - table)).to_le_bytes()).collect();
        place(&mut bytes, 128, &directory);
        let mut of_tables = vec![0; (tables * self.table_entries * 8) as usize];
        let mut grains = Vec::new();
        for (number, grain) in &self.grains {
            let (table, within) = (number / self.table_entries, number % self.table_entries);
            let entry = match grain {
                Grain::Data(data) => {
                    let index = grains.len() as u64 / 4096;
                    grains.extend(data);
                    3 << 60 | (index & 0xfff) << 48 | index >> 12
                }
                Grain::Zeros => 2 << 60,
            };
            put64(&mut of_tables, ((tables - 1 - table) * self.table_entries + within) as usize * 8, entry);
        }
        place(&mut bytes, 144, &of_tables);
        place(&mut bytes, 160, &[0; 512]);
        place(&mut bytes, 176, &[0; 512]);
        place(&mut bytes, 192, &grains);
        bytes
    }
}
