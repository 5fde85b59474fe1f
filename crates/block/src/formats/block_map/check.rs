//! What is wrong with a map, told entry by entry.

use super::image::{Image, PackedBlock};
use super::layer::{Layer, Meaning, SliceBuffer};
use super::unpacker::Unpacker;
use crate::formats::readers::{GoesOn, PackedImage, Take, try_blocks};
use crate::formats::{CheckReport, ImageError};
use std::io;

/// Blocks of which it is checked whether two are one, at most: 32 MiB of their places.
const CHECKED_BLOCKS_MAX: usize = 4 << 20;

/// Lines about such blocks, at most; all are counted.
const DOUBLES_SAID_MAX: u64 = 20;

/// Layers of an image, each with its number and where its disk begins in the image's.
type Layers<'a> = [(usize, u64, &'a Layer)];

/// Looks at every entry of these layers.
pub(super) fn check_layers(layers: &Layers<'_>, say: &mut dyn FnMut(&str)) -> Result<CheckReport, ImageError> {
    let mut report = CheckReport::default();
    for &(_, start_bytes, layer) in layers {
        check_layer(layer, start_bytes, &mut report, say).map_err(|error| failed(layer, error))?;
    }
    Ok(report)
}

/// Tries whether the compressed blocks of these layers, which are in order and have so many of them, become whole.
pub(super) fn try_compressed(
    image: &Image,
    layers: &Layers<'_>,
    blocks: u64,
    say: &mut dyn FnMut(&str),
    goes_on: GoesOn<'_>,
) -> Result<u64, ImageError> {
    let Some(&(_, _, first)) = layers.first() else { return Ok(0) };
    let named = |layer, error: io::Error| io::Error::new(error.kind(), failed(layer, error));
    let find = |take: Take<'_, PackedBlock>| {
        let mut all = layers.iter();
        all.try_for_each(|&(number, _, layer)| {
            find_compressed(number, layer, take).map_err(|error| named(layer, error))
        })
    };
    let unpack = |block: PackedBlock, unpacker: &mut Unpacker| {
        let unpacked = image.unpacked(block, unpacker).map(drop);
        unpacked.map_err(|error| named(image.layer(block.layer).unwrap_or(first), error))
    };
    // Those of other files may have another size: what is shown is no more than about right.
    let block_bytes = first.shape.block_bytes;
    let of_disk = (block_bytes, blocks.saturating_mul(block_bytes));
    try_blocks(unpack, find, of_disk, say, goes_on).map_err(|error| failed(first, error))
}

/// What of a layer cannot be read, by its file's name.
fn failed(layer: &Layer, error: io::Error) -> ImageError {
    // What is damaged names the file.
    error.downcast().unwrap_or_else(|source| {
        let path = layer.file.path().to_owned();
        ImageError::System { action: "check", path, source }
    })
}

fn find_compressed(number: usize, layer: &Layer, take: Take<'_, PackedBlock>) -> io::Result<()> {
    let (block_bytes, size_bytes) = (layer.shape.block_bytes, layer.shape.size_bytes);
    each_entry(layer, |block, meaning| match meaning {
        Meaning::Compressed { offset_bytes } => {
            let length_bytes = block_bytes.min(size_bytes.saturating_sub(block * block_bytes));
            take(Some(PackedBlock { layer: number, offset_bytes, length_bytes }))
        }
        _ => Ok(()),
    })
}

/// Goes through all entries of a map that has them: each one's block, and what it says.
fn each_entry(layer: &Layer, mut see: impl FnMut(u64, Meaning) -> io::Result<()>) -> io::Result<()> {
    let (mut buffer, mut slice) = (SliceBuffer::new(), 0);
    while slice < layer.slices() {
        let Some(meanings) = layer.meanings(slice, &mut buffer)? else {
            slice = layer.slice_after_none(slice);
            continue;
        };
        slice += 1;
        { meanings }.try_for_each(|(block, meaning)| see(block, meaning))?;
    }
    Ok(())
}

/// Looks at every entry of a map, whose disk begins at `start_bytes` of the image's.
fn check_layer(layer: &Layer, start_bytes: u64, report: &mut CheckReport, say: &mut dyn FnMut(&str)) -> io::Result<()> {
    let block_bytes = layer.shape.block_bytes;
    report.total_clusters += layer.blocks();
    let mut last = None;
    // Where the first blocks begin.
    let mut starts = Vec::new();
    let (mut present, mut doubles) = (0, 0);
    each_entry(layer, |block, meaning| {
        let (offset_bytes, length_bytes) = match meaning {
            Meaning::There { offset_bytes } | Meaning::Partly { offset_bytes } => (offset_bytes, block_bytes),
            Meaning::Compressed { offset_bytes } => {
                report.compressed_clusters += 1;
                // How long it is, nobody knows who has not read it.
                (offset_bytes, 1)
            }
            Meaning::Damaged(problem) => {
                report.corruptions += 1;
                say(&format!("ERROR block {}: {problem}", start_bytes / block_bytes + block));
                return Ok(());
            }
            Meaning::Zeros | Meaning::Nothing => return Ok(()),
        };
        report.allocated_clusters += 1;
        present += 1;
        starts.extend((starts.len() < CHECKED_BLOCKS_MAX).then_some(offset_bytes));
        let follows = last.is_none_or(|last: u64| offset_bytes == last + block_bytes);
        report.fragmented_clusters += u64::from(!follows && length_bytes > 1);
        last = Some(offset_bytes);
        let end_bytes = offset_bytes.saturating_add(length_bytes).min(layer.end_bytes());
        report.image_end_bytes = report.image_end_bytes.max(end_bytes);
        Ok(())
    })?;
    report.corruptions += layer.map.check_copies(&layer.file, say)?;
    starts.sort_unstable();
    let apart_bytes = if report.compressed_clusters > 0 { 1 } else { block_bytes };
    if present > starts.len() {
        let unchecked = present - starts.len();
        say(&format!("NOTE of {unchecked} of {present} blocks, it was not looked for others in the same place"));
    }
    for pair in starts.windows(2) {
        if let [one, other] = *pair
            && other - one < apart_bytes
        {
            report.corruptions += 1;
            doubles += 1;
            if doubles <= DOUBLES_SAID_MAX {
                say(&format!("ERROR two blocks lie at {other} of the file"));
            }
        }
    }
    if doubles > DOUBLES_SAID_MAX {
        say(&format!("ERROR the same of {} more blocks", doubles - DOUBLES_SAID_MAX));
    }
    Ok(())
}
