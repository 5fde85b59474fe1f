//! `blockyard image resize`: a larger or smaller disk.

use super::image_options::ImageOptions;
use super::qemu_flags::NameFlags;
use anyhow::Result;
use blockyard_block::specification::Format;
use blockyard_block::{LuksDisk, Qcow2Disk, shown, size};
use blockyard_command_line::disk;
use blockyard_command_line::image::at_terminal::AtTerminal;
use blockyard_command_line::image::named_image::{self, ImageFile};
use blockyard_command_line::terminal::print;
use blockyard_image::Nobody;
use blockyard_image::whole::resize::{NewSize, Resize};
use blockyard_session::open::{OpenOptions, open_disk, open_to_change};
use clap::Args;
use std::path::PathBuf;

/// Change the size of an image's disk.
///
/// What is new reads as zeros; of a LUKS volume (-f luks), as noise until it is written to. Partitions and file systems
/// stay as they are: a partition table's backup is not moved.
#[derive(Args)]
pub struct ResizeArgs {
    /// Image: raw, qcow2 or a LUKS volume.
    image: String,
    /// New size such as 8G (of 1024) or 8GB (of 1000), or +SIZE to add, -SIZE to take away.
    #[arg(allow_hyphen_values = true, value_parser = change)]
    size: NewSize,
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
    #[command(flatten)]
    names: NameFlags,
}

fn change(text: &str) -> Result<NewSize, String> {
    match (text.strip_prefix('+'), text.strip_prefix('-')) {
        (Some(more), _) => size::parse(more).map(NewSize::More),
        (_, Some(less)) => size::parse(less).map(NewSize::Less),
        _ => size::parse(text).map(NewSize::To),
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
    let access = disk::to_write(&args.allow_dir);
    let file = open_to_change(&named, &access)?.file;
    let old_bytes = match format {
        // Without its key, if it is encrypted.
        Format::Qcow2 if named.keys().is_empty() => Qcow2Disk::size_bytes_of(&file)?,
        Format::Luks if named.keys().is_empty() => {
            let place = LuksDisk::place_in(&file)?;
            place.end - place.start
        }
        _ => open_disk(&named, &OpenOptions { file: Some(&file), read_only: true, ..access })?.length_bytes,
    };
    let resize = Resize::new(&file, format, old_bytes, args.size, args.shrink, preallocation)?;
    let resize = resize.with_keys(named.keys());
    match resize.new_bytes() > old_bytes {
        // It may take long.
        true => resize.run(&args.allow_dir, &AtTerminal::catch()?)?,
        false => resize.run(&args.allow_dir, &Nobody)?,
    }
    let sizes = (size::human(old_bytes), size::human(resize.new_bytes()));
    if args.quiet { Ok(()) } else { print(&format!("{}: {} -> {}", shown(&path), sizes.0, sizes.1)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_absolute_or_relative() {
        let sizes = ["3G", "+1G", "-1G", "1000"].map(|text| change(text).unwrap());
        let expected = [NewSize::To(3 << 30), NewSize::More(1 << 30), NewSize::Less(1 << 30), NewSize::To(1000)];
        assert_eq!(sizes, expected);
        assert!(change("x").is_err() && change("+").is_err() && change("--1").is_err());
    }
}
