//! What the thread of an image reads of it, and of those behind it, by itself.

use super::image::{Image, Place};
use super::layer::SliceBuffer;
use super::unpacker::Unpacker;
use crate::DiskReader;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::io;

/// What is kept between reads.
#[derive(Default)]
pub(super) struct Reader {
    pub(super) slice: Box<SliceBuffer>,
    unpacker: Unpacker,
    /// Of disks below that are no layer's file.
    disks: BTreeMap<usize, DiskReader>,
}

impl Reader {
    /// Fills `bytes` with what the so manyth image of the chain and those behind it show from an offset on.
    ///
    /// # Errors
    /// When that cannot be read, or nobody may.
    pub(super) fn read(&mut self, image: &Image, depth: usize, mut at: u64, mut bytes: &mut [u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let (place, length_bytes) = image.find_now(depth, at, bytes.len() as u64, &mut self.slice)?;
            // At most as much as was asked for.
            let (now, later) = std::mem::take(&mut bytes).split_at_mut(length_bytes as usize);
            match place {
                Place::There { index, offset_bytes } => self.read_below(image, index, offset_bytes, now)?,
                Place::Logged { layer, offset_bytes } => image.read_logged(layer, now, offset_bytes)?,
                Place::Compressed { block, skip_bytes } => {
                    let whole = self.unpacker.block(image, block)?;
                    let part = whole.get(skip_bytes as usize..).and_then(|rest| rest.get(..now.len()));
                    now.copy_from_slice(part.ok_or(Errno::IO)?);
                }
                Place::Zeros => now.fill(0),
                Place::Forbidden => return Err(Errno::ACCESS.into()),
                Place::Nowhere | Place::Unknown | Place::ReadOnly | Place::Elsewhere | Place::Unbegun => {
                    return Err(Errno::IO.into());
                }
            }
            at += length_bytes;
            bytes = later;
        }
        Ok(())
    }

    fn read_below(&mut self, image: &Image, index: usize, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        if let Some(layer) = image.layer_in(index) {
            return layer.file.read(bytes, offset - layer.file.start_bytes());
        }
        let below = image.below().get(index).ok_or(Errno::IO)?;
        let reader = match self.disks.entry(index) {
            std::collections::btree_map::Entry::Occupied(known) => known.into_mut(),
            std::collections::btree_map::Entry::Vacant(free) => free.insert(DiskReader::new(&**below)?),
        };
        reader.read(offset, bytes)
    }
}
