//! `blockyard image measure`: how large a file a new image would be.

use super::image_options::ImageOptions;
use super::named_image;
use super::shut_in::shut_in;
use crate::disk::{self, Access};
use crate::{UsageError, print, size, terminal};
use anyhow::{Result, bail};
use blockyard_block::specification::Format;
use blockyard_block::{Disk, Extent, ExtentKind, Preallocation, walk_extents};
use clap::Args;
use serde::Serialize;
use std::path::PathBuf;

/// Say how large the file of a new image would be.
///
/// For an image converted as it is now, and for one in which everything has been written. What is counted for qcow2 is what
/// qemu-img counts: tables for a full disk either way.
#[derive(Args)]
#[command(
    override_usage = "blockyard image measure [OPTIONS] <IMAGE>\n       blockyard image measure [OPTIONS] --size <SIZE>"
)]
pub struct MeasureArgs {
    /// Disk to convert: [KIND:]PATH[,KEY=VALUE...]
    #[arg(required_unless_present = "size", conflicts_with = "size")]
    image: Option<String>,
    /// Size of an empty disk, instead.
    #[arg(long, value_parser = size::parse)]
    size: Option<u64>,
    /// Format of the disk to convert.
    #[arg(short, value_name = "FORMAT", value_parser = named_image::formats())]
    format: Option<Format>,
    /// Format of the new image.
    #[arg(short = 'O', value_name = "FORMAT", value_parser = named_image::made_formats(), default_value = "raw")]
    output_format: Format,
    /// Options of the new image.
    #[arg(short, value_name = "KEY=VALUE,...")]
    options: Vec<String>,
    /// Print one JSON object on stdout.
    #[arg(long)]
    json: bool,
    /// Directory whose files an image may refer to; may be given more than once.
    #[arg(long, value_name = "DIR")]
    allow_dir: Vec<PathBuf>,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
struct Measure {
    required: u64,
    fully_allocated: u64,
}

/// Runs the command.
///
/// # Errors
/// When the disk cannot be read.
pub fn run(args: &MeasureArgs) -> Result<()> {
    let options = ImageOptions::parse(&args.options, args.output_format)?;
    let cluster_bytes = u64::from(options.cluster_bytes.unwrap_or(64 << 10));
    if !(512..=2 << 20).contains(&cluster_bytes) || !cluster_bytes.is_power_of_two() {
        bail!(UsageError("clusters have 512 bytes to 2 MiB, a power of two".to_owned()));
    }
    if options.size_bytes.is_some() {
        bail!(UsageError(
            "the size of a disk that is not there is --size SIZE, and of one that is there its own".to_owned()
        ));
    }
    if options.backing_name.is_some() {
        bail!(UsageError(
            "how much of a disk differs from a backing file is not measured: leave backing_file out".to_owned()
        ));
    }
    let (size_bytes, data_bytes) = match (&args.image, args.size) {
        (Some(image), _) => {
            let named = named_image::parse(image, args.format)?.read_only();
            let disk = disk::open(&named, &Access::to_read_once(&args.allow_dir))?.disk;
            shut_in(&[&named], Vec::new(), 1)?;
            (disk.geometry().capacity_bytes, data_bytes(&*disk, cluster_bytes)?)
        }
        (None, size) => (size.unwrap_or(0), 0),
    };
    let data_bytes = match options.preallocation {
        None | Some(Preallocation::Off) => data_bytes,
        Some(_) => size_bytes.next_multiple_of(cluster_bytes),
    };
    let measure = match args.output_format {
        Format::Raw => Some(Measure { required: size_bytes, fully_allocated: size_bytes }),
        Format::Qcow2 => qcow2(size_bytes, data_bytes, cluster_bytes),
        Format::Vmdk => bail!(UsageError("VMDK images can be read, not made: choose raw or qcow2".to_owned())),
    };
    let Some(measure) = measure else { bail!("no file can hold a disk of {size_bytes} bytes in this format") };
    if args.json {
        return print(&terminal::json_pretty(&measure)?);
    }
    print(&format!("required size: {}\nfully allocated size: {}", measure.required, measure.fully_allocated))
}

/// Bytes of clusters that hold data.
fn data_bytes(disk: &dyn Disk, cluster_bytes: u64) -> Result<u64> {
    let capacity_bytes = disk.geometry().capacity_bytes;
    let (mut data_bytes, mut counted_to) = (0, 0);
    for extent in walk_extents(disk, 0..capacity_bytes) {
        let Extent { offset_bytes, length_bytes, kind } = extent?;
        if kind == ExtentKind::Data {
            let start = (offset_bytes - offset_bytes % cluster_bytes).max(counted_to);
            let end = (offset_bytes + length_bytes).next_multiple_of(cluster_bytes);
            data_bytes += end - start.min(end);
            counted_to = end;
        }
    }
    Ok(data_bytes)
}

/// As `qcow2_measure` in QEMU's block/qcow2.c; `None` when that is more than there can be.
fn qcow2(size_bytes: u64, data_bytes: u64, cluster_bytes: u64) -> Option<Measure> {
    const ENTRY_BYTES: u64 = 8;
    const REFCOUNT_BYTES: u64 = 2;
    let size_bytes = size_bytes.checked_next_multiple_of(cluster_bytes)?;
    let entries = cluster_bytes / ENTRY_BYTES;
    let l2_bytes = (size_bytes / cluster_bytes).next_multiple_of(entries) * ENTRY_BYTES;
    let l1_bytes = (l2_bytes / cluster_bytes).next_multiple_of(entries) * ENTRY_BYTES;
    let clusters = (cluster_bytes + l2_bytes + l1_bytes).checked_add(size_bytes)? / cluster_bytes;
    let (mut blocks, mut tables) = (0, 0);
    loop {
        let new_blocks = (clusters + blocks + tables).div_ceil(cluster_bytes / REFCOUNT_BYTES);
        let new_tables = new_blocks.div_ceil(entries);
        if (new_blocks, new_tables) == (blocks, tables) {
            break;
        }
        (blocks, tables) = (new_blocks, new_tables);
    }
    let fully_allocated = (clusters + blocks + tables).checked_mul(cluster_bytes)?;
    Some(Measure { required: fully_allocated - size_bytes + data_bytes, fully_allocated })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absurd_sizes_are_no_panic() {
        for size in [u64::MAX, u64::MAX - 65535, 1 << 63] {
            for cluster in [512, 65536, 2 << 20] {
                let _ = qcow2(size, 0, cluster);
            }
        }
        let empty = Measure { required: 393_216, fully_allocated: 1_074_135_040 };
        assert_eq!(qcow2(1 << 30, 0, 65536), Some(empty));
    }
}
