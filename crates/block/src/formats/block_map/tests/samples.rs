//! Small images, to be spoiled.

#[path = "../../../../tests/formats/block_map/vhd_image.rs"]
mod vhd_image;

use super::BlockMapFormat;
use vhd_image::{Sectors, VhdImage, set_checksum, utf16};

/// An image, and what of it is worth spoiling.
pub(super) struct Sample {
    pub(super) format: BlockMapFormat,
    pub(super) bytes: Vec<u8>,
    /// Numbers of its headers: where, and how many bytes.
    pub(super) fields: &'static [(usize, usize)],
    /// Where its table lies, and bytes of an entry.
    pub(super) table: (usize, usize),
    pub(super) is_big_endian: bool,
    /// Makes checksums right.
    pub(super) mend: fn(&mut [u8]),
}

impl Sample {
    /// A number in the place of a header's or a table's. Where there is none any more, nothing happens.
    pub(super) fn put(&self, bytes: &mut [u8], (at, width): (usize, usize), value: u64) {
        let Some(place) = bytes.get_mut(at..at + width) else { return };
        let number = value.to_le_bytes();
        place.copy_from_slice(&number[..width]);
        if self.is_big_endian {
            place.reverse();
        }
    }
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
    Sample { format: BlockMapFormat::Vdi, bytes, fields, table: (512, 4), is_big_endian: false, mend: |_| () }
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
    Sample { format: BlockMapFormat::Vhd, bytes: image.bytes(), fields, table, is_big_endian: true, mend }
}

pub(super) fn vhd() -> Sample {
    vhd_of(4)
}

/// What [`vhd`] is a difference from.
pub(super) fn vhd_base() -> Sample {
    vhd_of(3)
}
