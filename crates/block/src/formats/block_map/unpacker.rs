//! Compressed blocks, made whole again.

use super::image::{Image, PackedBlock};
use super::layer::PACKED_BLOCK_MAX_BYTES;
use crate::formats::inflate::inflate;
use crate::formats::readers::PackedImage;
use flate2::Decompress;
use std::io;

/// Bytes of blocks that are kept, but one at least: who reads one in small pieces has it unpacked once.
const KEPT_BYTES: u64 = 1 << 20;

/// What unpacks the blocks of one thread.
#[derive(Default)]
pub(super) struct Unpacker {
    decompress: Option<Decompress>,
    packed: Vec<u8>,
    /// Blocks that were asked for lately, the last one first.
    kept: Vec<(PackedBlock, Vec<u8>)>,
}

impl Unpacker {
    /// What a block holds.
    ///
    /// # Errors
    /// When it cannot be read, or does not become a whole block.
    pub(super) fn block(&mut self, image: &Image, block: PackedBlock) -> io::Result<&[u8]> {
        let known = self.kept.iter().position(|(kept, _)| *kept == block);
        let whole = match known {
            Some(index) => self.kept.remove(index).1,
            None => {
                let is_full = (self.kept.len() as u64 + 1) * block.length_bytes > KEPT_BYTES;
                let mut whole = if is_full { self.kept.pop().map(|kept| kept.1) } else { None }.unwrap_or_default();
                self.unpack(image, block, &mut whole)?;
                whole
            }
        };
        self.kept.insert(0, (block, whole));
        Ok(self.kept.first().map_or(&[][..], |(_, whole)| whole))
    }

    fn unpack(&mut self, image: &Image, block: PackedBlock, whole: &mut Vec<u8>) -> io::Result<()> {
        let layer = image.layer(block.layer).ok_or(io::ErrorKind::InvalidInput)?;
        // Headers were judged: no packed block is longer.
        whole.resize(layer.shape.block_bytes.min(PACKED_BLOCK_MAX_BYTES) as usize, 0);
        layer.load_packed(block.offset_bytes, &mut self.packed)?;
        let decompress = self.decompress.get_or_insert_with(|| Decompress::new(true));
        decompress.reset(true);
        let (length, has_ended) = inflate(decompress, &self.packed, whole);
        if has_ended && length as u64 >= block.length_bytes {
            return Ok(());
        }
        let offset = block.offset_bytes;
        Err(layer.file.damaged(format!("the compressed block at {offset} of the file does not become a whole one")))
    }
}

impl PackedImage for Image {
    type Block = PackedBlock;
    type Reader = Unpacker;

    fn unpacked<'r>(&self, block: PackedBlock, unpacker: &'r mut Unpacker) -> io::Result<&'r [u8]> {
        unpacker.block(self, block)
    }
}
