//! What is wrong with a map, told entry by entry.

use super::image::{Image, PackedBlock};
use super::layer::{Layer, Meaning, SliceBuffer};
use super::unpacker::Unpacker;
use crate::formats::CheckReport;
use crate::formats::readers::{PackedImage, try_blocks};
use std::io;

/// Blocks of which it is checked whether two are one, at most: 32 MiB of their places.
const CHECKED_BLOCKS_MAX: usize = 4 << 20;

/// Lines about such blocks, at most; all are counted.
const DOUBLES_SAID_MAX: u64 = 20;

/// Looks at every entry of these layers of an image, each with its number and where its disk begins in the image's. If
/// all are in order, tries whether what is compressed becomes whole.
pub(super) fn check_layers(
    image: &Image,
    layers: &[(usize, u64, &Layer)],
    say: &mut dyn FnMut(&str),
) -> io::Result<CheckReport> {
    let mut report = CheckReport::default();
    for &(_, start_bytes, layer) in layers {
        check_layer(layer, start_bytes, &mut report, say)?;
    }
    if report.corruptions == 0 && report.compressed_clusters > 0 {
        let find = |take: &mut dyn FnMut(PackedBlock)| {
            layers.iter().try_for_each(|&(number, _, layer)| find_compressed(number, layer, take))
        };
        let unpack = |block, unpacker: &mut Unpacker| image.unpacked(block, unpacker).map(drop);
        report.corruptions = try_blocks(unpack, find, say)?;
    }
    Ok(report)
}

fn find_compressed(number: usize, layer: &Layer, take: &mut dyn FnMut(PackedBlock)) -> io::Result<()> {
    let (block_bytes, size_bytes) = (layer.shape.block_bytes, layer.shape.size_bytes);
    each_entry(layer, |block, meaning| {
        if let Meaning::Compressed { offset_bytes } = meaning {
            let length_bytes = block_bytes.min(size_bytes.saturating_sub(block * block_bytes));
            take(PackedBlock { layer: number, offset_bytes, length_bytes });
        }
    })
}

/// Goes through all entries of a map that has them: each one's block, and what it says.
fn each_entry(layer: &Layer, mut see: impl FnMut(u64, Meaning)) -> io::Result<()> {
    let (mut buffer, mut slice) = (SliceBuffer::new(), 0);
    while slice < layer.slices() {
        let Some(meanings) = layer.meanings(slice, &mut buffer)? else {
            slice = layer.slice_after_none(slice);
            continue;
        };
        slice += 1;
        meanings.for_each(|(block, meaning)| see(block, meaning));
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
                return;
            }
            Meaning::Zeros | Meaning::Nothing => return,
        };
        report.allocated_clusters += 1;
        present += 1;
        starts.extend((starts.len() < CHECKED_BLOCKS_MAX).then_some(offset_bytes));
        let follows = last.is_none_or(|last: u64| offset_bytes == last + block_bytes);
        report.fragmented_clusters += u64::from(!follows && length_bytes > 1);
        last = Some(offset_bytes);
        let end_bytes = offset_bytes.saturating_add(length_bytes).min(layer.end_bytes());
        report.image_end_bytes = report.image_end_bytes.max(end_bytes);
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
