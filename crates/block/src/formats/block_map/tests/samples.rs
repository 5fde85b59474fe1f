//! Small images, to be spoiled.

#[path = "../../../../tests/formats/block_map/vhd_image.rs"]
mod vhd_image;

#[path = "../../../../tests/formats/block_map/vhdx_image.rs"]
pub(in crate::formats::block_map) mod vhdx_image;

#[path = "../../../../tests/formats/block_map/vmdk_image.rs"]
pub(in crate::formats) mod vmdk_image;

use super::BlockMapFormat;
use vhd_image::{Sectors, VhdImage, set_checksum, utf16};
use vhdx_image::{
    ALL, Change, HEADER_OFFSETS, LOG_OFFSET, LogEntry, METADATA_OFFSET, REGION_TABLE_OFFSETS, TABLE_OFFSET, VhdxImage,
    guid,
};
use vmdk_image::{Grain, Kind, VmdkImage, descriptor};

/// An image, and what of it is worth spoiling.
pub(super) struct Sample {
    pub(super) format: BlockMapFormat,
    pub(super) bytes: Vec<u8>,
    /// Numbers of its headers: where, and how many bytes.
    pub(super) fields: Vec<(usize, usize)>,
    /// Where its table lies, and bytes of an entry.
    pub(super) table: (usize, usize),
    pub(super) is_big_endian: bool,
    /// Makes checksums right.
    pub(super) mend: fn(&mut [u8]),
    /// Where it writes.
    pub(super) mended: Vec<usize>,
}

fn put32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

/// 16 blocks of 4 KiB, of which four lie in the file.
pub(super) fn vdi() -> Sample {
    let mut bytes = vec![0; 1024 + 4 * 4096];
    for (at, value) in [
        (64, 0xbeda_107f),
        (68, 0x1_0001),
        (72, 400),
        (76, 1),
        (340, 512),
        (344, 1024),
        (360, 512),
        (368, 64 << 10),
        (376, 4096),
        (384, 16),
        (388, 4),
    ] {
        put32(&mut bytes, at, value);
    }
    for (block, entry) in [u32::MAX, 0, 1, u32::MAX - 1, 3, 2].into_iter().chain([u32::MAX; 10]).enumerate() {
        put32(&mut bytes, 512 + block * 4, entry);
    }
    for (n, byte) in bytes[1024..].iter_mut().enumerate() {
        *byte = (n / 512) as u8 + 1;
    }
    let fields = &[
        (64, 4),
        (68, 4),
        (72, 4),
        (76, 4),
        (340, 4),
        (344, 4),
        (360, 4),
        (368, 8),
        (376, 4),
        (380, 4),
        (384, 4),
        (388, 4),
        (424, 8),
        (440, 8),
    ];
    Sample {
        format: BlockMapFormat::Vdi,
        bytes,
        fields: fields.to_vec(),
        table: (512, 4),
        is_big_endian: false,
        mend: |_| (),
        mended: vec![],
    }
}

/// 16 blocks of 4 KiB in a difference, of which two lie in the file, each in part. What it is a difference from is not
/// there, but as it is spoiled.
fn vhd_of(kind: u32) -> Sample {
    let data = |seed: u8| (0..4096).map(|at| (at / 512) as u8 + seed).collect::<Vec<_>>();
    let is_there: Sectors = |sector| sector % 3 == 0;
    let locators = if kind == 4 { vec![(*b"W2ru", utf16(".\\base"))] } else { Vec::new() };
    let blocks = vec![(2, is_there, data(1)), (0, is_there, data(9))];
    let (id, parent_id) = ([kind as u8; 16], [3; 16]);
    let image = VhdImage { locators, blocks, id, parent_id, ..VhdImage::new(kind, 64 << 10, 4096) };
    // The footer's, at its places in the copy; then the header's and a locator's.
    let fields = &[
        (16, 8),
        (28, 4),
        (48, 8),
        (56, 4),
        (60, 4),
        (512 + 16, 8),
        (512 + 24, 4),
        (512 + 28, 4),
        (512 + 32, 4),
        (512 + 40, 8),
        (512 + 576, 4),
        (512 + 584, 4),
        (512 + 592, 8),
    ];
    let table = (image.table_offset(), 4);
    let mend = |bytes: &mut [u8]| {
        if bytes.len() < 2048 {
            return;
        }
        set_checksum(&mut bytes[..512], 64);
        set_checksum(&mut bytes[512..1536], 36);
        // What is changed in the copy is to count.
        let end = bytes.len() - 512;
        if bytes[end..].starts_with(b"conectix") {
            bytes.copy_within(..512, end);
        }
    };
    let bytes = image.bytes();
    let mended = vec![0, bytes.len() - 512];
    Sample { format: BlockMapFormat::Vhd, bytes, fields: fields.to_vec(), table, is_big_endian: true, mend, mended }
}

pub(super) fn vhd() -> Sample {
    vhd_of(4)
}

/// What [`vhd`] is a difference from.
pub(super) fn vhd_base() -> Sample {
    vhd_of(3)
}

const PARENT_ID: &str = "{83ed0ec3-24c8-49a6-a959-5e4bf1288bfb}";

/// What [`vhdx`] is a difference from: a block of four.
pub(super) fn vhdx_base() -> Sample {
    let image = VhdxImage {
        blocks: vec![(2, 6, ALL, vec![7; 1 << 20])],
        data_write_id: guid(PARENT_ID),
        ..VhdxImage::new(4 << 20, 1 << 20)
    };
    vhdx_of(&image)
}

/// A difference with a block of which some sectors are there, and a page of its table in the log.
pub(super) fn vhdx() -> Sample {
    let locator = vec![
        ("parent_linkage".to_owned(), PARENT_ID.to_owned()),
        ("relative_path".to_owned(), ".\\\\base.vhdx".to_owned()),
    ];
    let is_there: Sectors = |sector| sector % 3 == 0;
    let mut block = vec![0; 1 << 20];
    block[..8192].fill(9);
    let image =
        VhdxImage { flags: 2, locator, blocks: vec![(1, 7, is_there, block)], ..VhdxImage::new(4 << 20, 1 << 20) };
    let bytes = image.bytes();
    let page = bytes[TABLE_OFFSET..][..4096].to_vec();
    let changes = vec![
        Change::Zeros { offset: METADATA_OFFSET as u64 + (512 << 10), length: 8192 },
        Change::Page { offset: TABLE_OFFSET as u64, bytes: page },
    ];
    let length = bytes.len() as u64;
    let entry = LogEntry { sequence: 3, tail: 0, log_id: [3; 16], flushed_bytes: length, last_bytes: length, changes };
    vhdx_of(&VhdxImage { log_id: [3; 16], log: entry.bytes(), ..image })
}

fn vhdx_of(image: &VhdxImage) -> Sample {
    const LATER: usize = HEADER_OFFSETS[1];
    const REGIONS: usize = REGION_TABLE_OFFSETS[0];
    const ITEMS: usize = METADATA_OFFSET + (64 << 10);
    // The later header's; the region table's; those of the first items, and the items; the log entry's and its
    // changes'.
    let fields = &[
        (LATER + 8, 8),
        (LATER + 48, 8),
        (LATER + 64, 2),
        (LATER + 66, 2),
        (LATER + 68, 4),
        (LATER + 72, 8),
        (REGIONS + 8, 4),
        (REGIONS + 32, 8),
        (REGIONS + 40, 4),
        (REGIONS + 44, 4),
        (REGIONS + 64, 8),
        (REGIONS + 72, 4),
        (METADATA_OFFSET + 10, 2),
        (METADATA_OFFSET + 48, 4),
        (METADATA_OFFSET + 52, 4),
        (METADATA_OFFSET + 56, 4),
        (METADATA_OFFSET + 80, 4),
        (METADATA_OFFSET + 212, 4),
        (ITEMS, 4),
        (ITEMS + 4, 4),
        (ITEMS + 4096, 8),
        (ITEMS + 3 * 4096, 4),
        (ITEMS + 5 * 4096 + 18, 2),
        (ITEMS + 5 * 4096 + 20, 4),
        (ITEMS + 5 * 4096 + 24, 4),
        (ITEMS + 5 * 4096 + 28, 2),
        (ITEMS + 5 * 4096 + 30, 2),
        (LOG_OFFSET + 8, 4),
        (LOG_OFFSET + 12, 4),
        (LOG_OFFSET + 16, 8),
        (LOG_OFFSET + 24, 4),
        (LOG_OFFSET + 48, 8),
        (LOG_OFFSET + 56, 8),
        (LOG_OFFSET + 72, 8),
        (LOG_OFFSET + 80, 8),
        (LOG_OFFSET + 88, 8),
        (LOG_OFFSET + 112, 8),
        (LOG_OFFSET + 120, 8),
    ];
    let mend = |bytes: &mut [u8]| {
        for (offset, length) in [(LATER, 4096), (REGIONS, 64 << 10)] {
            vhdx_image::set_checksum(&mut bytes[offset..][..length]);
        }
        let length = u32::from_le_bytes(bytes[LOG_OFFSET + 8..][..4].try_into().unwrap()) as usize;
        if (8..=1 << 20).contains(&length) && bytes[LOG_OFFSET..].starts_with(b"loge") {
            vhdx_image::set_checksum(&mut bytes[LOG_OFFSET..][..length]);
        }
    };
    let table = (if image.log.is_empty() { TABLE_OFFSET } else { LOG_OFFSET + 4096 }, 8);
    let mended = vec![LATER, REGIONS, LOG_OFFSET];
    Sample {
        format: BlockMapFormat::Vhdx,
        bytes: image.bytes(),
        fields: fields.to_vec(),
        table,
        is_big_endian: false,
        mend,
        mended,
    }
}

/// 16 clusters of 4 KiB, of which three lie in the file and one is zeros.
pub(super) fn qed() -> Sample {
    let mut bytes = vec![0; 6 * 4096];
    bytes[..4].copy_from_slice(b"QED\0");
    // Clusters, tables and header; the L1 table; the disk; the backing file's name.
    for (at, value) in [(4, 4096), (8, 1), (12, 1), (16, 5), (40, 4096), (48, 64 << 10), (56, 64), (60, 4)] {
        put32(&mut bytes, at, value);
    }
    bytes[64..68].copy_from_slice(b"base");
    put32(&mut bytes, 4096, 8192);
    for (cluster, entry) in [(0, 5 * 4096), (1, 1), (4, 3 * 4096), (5, 4 * 4096)] {
        put32(&mut bytes, 8192 + cluster * 8, entry);
    }
    for (n, byte) in bytes[3 * 4096..].iter_mut().enumerate() {
        *byte = (n / 512) as u8 + 1;
    }
    let fields = &[
        (4, 4),
        (8, 4),
        (12, 4),
        (16, 8),
        (24, 8),
        (32, 8),
        (40, 8),
        (48, 8),
        (56, 4),
        (60, 4),
        (64, 8),
        (4096, 8),
        (4104, 8),
    ];
    let format = BlockMapFormat::Qed;
    Sample {
        format,
        bytes,
        fields: fields.to_vec(),
        table: (8192, 8),
        is_big_endian: false,
        mend: |_| (),
        mended: vec![],
    }
}

/// 16 clusters of 4 KiB, of which three lie in the file.
pub(super) fn parallels() -> Sample {
    let mut bytes = vec![0; 4 * 4096];
    bytes[..16].copy_from_slice(b"WithouFreSpacExt");
    for (at, value) in [(16, 2), (28, 8), (32, 16), (36, 128), (44, 0x312e_3276), (48, 8), (64, 1), (68, 3), (80, 2)] {
        put32(&mut bytes, at, value);
    }
    for (n, byte) in bytes[4096..].iter_mut().enumerate() {
        *byte = (n / 512) as u8 + 1;
    }
    let fields =
        &[(0, 8), (8, 8), (16, 4), (20, 4), (24, 4), (28, 4), (32, 4), (36, 8), (44, 4), (48, 4), (52, 4), (56, 8)];
    let format = BlockMapFormat::Parallels;
    Sample {
        format,
        bytes,
        fields: fields.to_vec(),
        table: (64, 4),
        is_big_endian: false,
        mend: |_| (),
        mended: vec![],
    }
}

/// 16 grains, of which some lie in the file and one is zeros where a kind has such.
fn vmdk_image(kind: Kind) -> VmdkImage {
    let mut image = VmdkImage::new(kind, 64 << 10);
    image.grain_bytes = 4096;
    if matches!(kind, Kind::Hosted | Kind::Stream) {
        image.table_entries = 128;
    }
    for number in [0, 3, 4, 9] {
        let data = (0..4096).map(|at| (at / 512) as u8 + number as u8 + 1).collect();
        image.grains.push((number, Grain::Data(data)));
    }
    if matches!(kind, Kind::Hosted | Kind::SeSparse) {
        image.grains.push((6, Grain::Zeros));
    }
    image
}

/// Numbers of a hosted extent's header, which begins at an offset.
const VMDK_FIELDS: [(usize, usize); 12] =
    [(4, 4), (8, 4), (12, 8), (20, 8), (28, 8), (36, 8), (44, 4), (48, 8), (56, 8), (72, 1), (73, 4), (77, 2)];

fn sample_of(image: &VmdkImage, fields: Vec<(usize, usize)>, table: (usize, usize)) -> Sample {
    let (bytes, format) = (image.bytes(), BlockMapFormat::Vmdk);
    Sample { format, bytes, fields, table, is_big_endian: false, mend: |_| (), mended: vec![] }
}

/// What [`vmdk`] is a difference from.
pub(super) fn vmdk_base() -> Sample {
    let image = VmdkImage { descriptor: descriptor(7, None, ""), ..vmdk_image(Kind::Hosted) };
    sample_of(&image, VMDK_FIELDS.to_vec(), (4096, 4))
}

/// A difference with both sets of tables.
pub(super) fn vmdk() -> Sample {
    let image = VmdkImage { descriptor: descriptor(1, Some((7, "base.vmdk")), ""), ..vmdk_image(Kind::Hosted) };
    let mut fields = VMDK_FIELDS.to_vec();
    // The directories, the redundant one first, and its table.
    fields.extend([(2560, 4), (3584, 4), (3072, 4)]);
    sample_of(&image, fields, (4096, 4))
}

/// Compressed, with its tables and a footer at its end.
pub(super) fn vmdk_stream() -> Sample {
    let image = vmdk_image(Kind::Stream);
    let footer = image.bytes().len() - 1536;
    let mut fields = VMDK_FIELDS.to_vec();
    fields.extend(VMDK_FIELDS.map(|(at, width)| (footer + 512 + at, width)));
    fields.extend([(footer, 8), (footer + 8, 4), (footer + 12, 4), (footer + 1024, 8), (footer + 1036, 4)]);
    // The directory; the first grain's marker, and what it packs.
    fields.extend([(footer - 512, 4), (2560, 8), (2568, 4), (2572, 8), (2580, 8)]);
    sample_of(&image, fields, (footer - 1536, 4))
}

pub(super) fn vmdk_cowd() -> Sample {
    let mut fields: Vec<_> = (4..32).step_by(4).map(|at| (at, 4)).collect();
    fields.push((2048, 4));
    sample_of(&vmdk_image(Kind::Cowd), fields, (2560, 4))
}

pub(super) fn vmdk_se() -> Sample {
    let image = vmdk_image(Kind::SeSparse);
    let bytes = image.bytes();
    let place = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()) as usize * 512;
    let mut fields: Vec<_> = (8..208).step_by(8).map(|at| (at, 8)).collect();
    fields.extend([(place(80), 8), (place(80) + 24, 8), (place(128), 8)]);
    sample_of(&image, fields, (place(144), 8))
}
