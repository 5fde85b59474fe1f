//! A new VDI: header, map and data begin at whole MiB, as VirtualBox has them.

use super::super::writer::{BlockMapCreateOptions, NewLayout, NewMap, Places, invalid, write_entries};
use super::{NEVER_WRITTEN, SECTOR_BYTES, SIGNATURE, VERSION};
use crate::formats::ImageError;
use crate::random_bytes::random_bytes;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// The only one that QEMU takes.
const BLOCK_BYTES: u32 = 1 << 20;
const MAP_OFFSET: u64 = 1 << 20;

/// Of 64 TiB: a map of 256 MiB.
const BLOCKS_MAX: u64 = 1 << 26;

#[derive(Debug)]
struct NewVdi {
    layout: NewLayout,
    is_static: bool,
}

pub(in super::super) fn map(options: &BlockMapCreateOptions) -> Result<Box<dyn NewMap>, ImageError> {
    if options.block_bytes.is_some_and(|bytes| bytes != BLOCK_BYTES) {
        return Err(invalid("a VDI has blocks of 1 MiB: nobody takes others"));
    }
    let block_bytes = u64::from(BLOCK_BYTES);
    let blocks = options.size_bytes.div_ceil(block_bytes);
    if blocks > BLOCKS_MAX {
        let bytes = options.size_bytes;
        return Err(invalid(format!("a disk of {bytes} bytes is not possible in a VDI made here: 64 TiB at most")));
    }
    let data_offset = MAP_OFFSET + (blocks * 4).next_multiple_of(block_bytes);
    let layout = NewLayout { size_bytes: options.size_bytes, block_bytes, lead_bytes: 0, data_offset };
    Ok(Box::new(NewVdi { layout, is_static: options.is_fixed }))
}

impl NewMap for NewVdi {
    fn layout(&self) -> NewLayout {
        self.layout
    }

    fn write(&self, file: &File, places: &Places) -> io::Result<()> {
        let NewLayout { size_bytes, data_offset, .. } = self.layout;
        let mut header = [0; SECTOR_BYTES as usize];
        let mut put = |at: usize, bytes: &[u8]| header[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, b"<<< Blockyard Virtual Disk Image >>>\n");
        for (at, value) in [
            (64, SIGNATURE),
            (68, VERSION),
            (72, 400), // Bytes of what follows.
            (76, if self.is_static { 2 } else { 1 }),
            (340, MAP_OFFSET as u32),
            // At most 258 MiB.
            (344, data_offset as u32),
            (360, SECTOR_BYTES as u32),
            (376, BLOCK_BYTES),
            (384, self.layout.blocks() as u32),
            (388, places.count()),
        ] {
            put(at, &value.to_le_bytes());
        }
        put(368, &size_bytes.to_le_bytes());
        // Its own identity, and that of its last change.
        put(392, &random_bytes::<16>()?);
        put(408, &random_bytes::<16>()?);
        let entry = |block| places.of(block).map_or(NEVER_WRITTEN, |place| place as u32).to_le_bytes();
        write_entries(file, MAP_OFFSET, 0..self.layout.blocks(), entry)?;
        file.write_all_at(&header, 0)
    }
}
