//! `blockyard image resize`: a larger or smaller disk.

use super::image_options::ImageOptions;
use super::named_image::{self, ImageFile};
use super::new_image::write_zeros;
use super::watch::Watch;
use crate::disk::{self, Access};
use crate::{UsageError, print, size};
use anyhow::{Context, Result, bail};
use blockyard_block::size::set_length;
use blockyard_block::specification::Format;
use blockyard_block::{AllowedDirectories, OpenedFile, Preallocation, Qcow2Disk, shown};
use clap::Args;
use rustix::fs::{FallocateFlags, fallocate};
use std::ops::Range;
use std::path::PathBuf;

/// Change the size of an image's disk.
///
/// What is new reads as zeros. Partitions and file systems stay as they are: a partition table's backup is not moved.
#[derive(Args)]
pub struct ResizeArgs {
    /// Image: raw or qcow2.
    image: String,
    /// New size such as 8G (of 1024) or 8GB (of 1000), or +SIZE to add, -SIZE to take away.
    #[arg(allow_hyphen_values = true, value_parser = change)]
    size: Change,
    /// Format of the image.
    #[arg(short, value_name = "FORMAT", value_parser = named_image::formats())]
    format: Option<Format>,
    /// Make the disk smaller: what is behind its new end is lost.
    #[arg(long)]
    shrink: bool,
    /// What is allocated of what is new: off, metadata (qcow2), falloc or full.
    #[arg(long, value_name = "MODE")]
    preallocation: Option<String>,
    /// Directory whose files an image may refer to; may be given more than once.
    #[arg(long, value_name = "DIR")]
    allow_dir: Vec<PathBuf>,
    /// Say nothing.
    #[arg(short, long)]
    quiet: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    To(u64),
    More(u64),
    Less(u64),
}

fn change(text: &str) -> Result<Change, String> {
    match (text.strip_prefix('+'), text.strip_prefix('-')) {
        (Some(more), _) => size::parse(more).map(Change::More),
        (_, Some(less)) => size::parse(less).map(Change::Less),
        _ => size::parse(text).map(Change::To),
    }
}

impl Change {
    /// The new size, of whole sectors.
    fn apply(self, old_bytes: u64) -> Option<u64> {
        let new = match self {
            Self::To(size) => Some(size),
            Self::More(more) => old_bytes.checked_add(more),
            Self::Less(less) => old_bytes.checked_sub(less),
        };
        new?.checked_next_multiple_of(512)
    }
}

/// Runs the command.
///
/// # Errors
/// When the image cannot be resized.
pub fn run(args: &ResizeArgs) -> Result<()> {
    let ImageFile { named, path, format } = named_image::parse_file(&args.image, args.format)?;
    let preallocation = args.preallocation.as_ref().map(|word| {
        let options = [format!("preallocation={word}")];
        ImageOptions::parse(&options, format).map(|options| options.preallocation.unwrap_or_default())
    });
    let preallocation = preallocation.transpose()?.unwrap_or_default();
    let access = Access { allow_dirs: &args.allow_dir, ..Access::default() };
    let file = disk::open_file(&named, &access)?.file;
    let old_bytes = disk::open(&named, &Access { file: Some(&file), read_only: true, ..access })?.length_bytes;
    let name = shown(&path);
    let Some(new_bytes) = args.size.apply(old_bytes) else {
        bail!(UsageError(format!("{name} has {old_bytes} bytes: such a change is not possible")));
    };
    if new_bytes < old_bytes && !args.shrink {
        bail!(
            "{name} would lose everything behind byte {new_bytes}: make file systems and partitions smaller first, then add --shrink"
        );
    }
    if new_bytes < old_bytes && preallocation != Preallocation::Off {
        bail!(UsageError("--preallocation is for a disk that becomes larger".to_owned()));
    }
    match format {
        Format::Raw => resize_raw(&file, old_bytes..new_bytes, preallocation)?,
        Format::Qcow2 => {
            let allowed = AllowedDirectories::new(&args.allow_dir)?;
            Qcow2Disk::resize(&file, new_bytes, preallocation, &allowed)?;
        }
        Format::Vmdk => bail!("{name}: VMDK images are only read"),
    }
    let sizes = (size::human(old_bytes), size::human(new_bytes));
    if args.quiet { Ok(()) } else { print(&format!("{name}: {} -> {}", sizes.0, sizes.1)) }
}

/// From the first size to the second.
fn resize_raw(opened: &OpenedFile, sizes: Range<u64>, preallocation: Preallocation) -> Result<()> {
    let (file, name) = (opened.file(), shown(opened.path()));
    let failed = || format!("cannot change the size of {name}");
    if !file.metadata().with_context(failed)?.is_file() {
        bail!("{name} is a device, whose size nobody can change from here");
    }
    let watch = Watch::new(false, 0)?;
    let grow = || -> Result<()> {
        set_length(file, sizes.end)?;
        match preallocation {
            Preallocation::Off | Preallocation::Metadata => {}
            Preallocation::Falloc if sizes.is_empty() => {}
            Preallocation::Falloc => fallocate(file, FallocateFlags::empty(), sizes.start, sizes.end - sizes.start)?,
            Preallocation::Full => write_zeros(file, sizes.clone(), &watch)?,
        }
        Ok(file.sync_all()?)
    };
    grow()
        .or_else(|error| {
            // What could not be had is given back.
            file.set_len(sizes.start.min(sizes.end))?;
            Err(error)
        })
        .with_context(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_absolute_or_relative() {
        let sizes = ["3G", "+1G", "-1G", "-2049M", "+18446744073709551615", "1000"].map(|text| {
            let change = change(text).unwrap();
            change.apply(2 << 30)
        });
        assert_eq!(sizes, [Some(3 << 30), Some(3 << 30), Some(1 << 30), None, None, Some(1024)]);
        assert!(change("x").is_err() && change("+").is_err() && change("--1").is_err());
    }
}
