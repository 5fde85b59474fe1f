//! `blockyard image measure`: how large a file a new image would be.

use super::create::list_options;
use super::image_options::ImageOptions;
use super::option_table;
use super::qemu_flags::{OutputFlags, ReadFlags};
use super::shut_in::shut_in;
use anyhow::{Context, Result, bail};
use blockyard_block::specification::Format;
use blockyard_block::{Qcow2Info, size};
use blockyard_command_line::disk;
use blockyard_command_line::image::named_image;
use blockyard_command_line::terminal::{self, print};
use blockyard_command_line::usage_error::{UsageError, UsageLines};
use blockyard_image::whole::measure::{Contents, Measured, Measuring};
use blockyard_session::open::open_disk;
use clap::Args;
use serde::Serialize;
use std::path::PathBuf;

/// Say how large the file of a new image would be.
///
/// For an image converted as it is now, and for one in which everything has been written. What is counted for qcow2 is
/// what qemu-img counts: tables for a full disk either way.
#[derive(Args)]
#[command(
    override_usage = "blockyard image measure [OPTIONS] <IMAGE>\n       blockyard image measure [OPTIONS] --size <SIZE>"
)]
pub struct MeasureArgs {
    /// Disk to convert: [KIND:]PATH[,KEY=VALUE...]
    #[arg(conflicts_with = "size")]
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
    /// Options of the new image (help: lists those of its format).
    #[arg(short, value_name = "KEY=VALUE,...")]
    options: Vec<String>,
    #[command(flatten)]
    output: OutputFlags,
    /// Directory whose files an image may refer to; may be given more than once.
    #[arg(long, value_name = "DIR")]
    allow_dir: Vec<PathBuf>,
    /// Measure a snapshot that IMAGE has inside: its name, its id, snapshot.name=NAME, snapshot.id=ID or
    /// both with a comma between.
    #[arg(short = 'l', value_name = "SNAPSHOT", conflicts_with = "size")]
    snapshot: Option<String>,
    #[command(flatten)]
    flags: ReadFlags,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Json {
    required: u64,
    fully_allocated: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    bitmaps: Option<u64>,
}

/// Runs the command.
///
/// # Errors
/// When the disk cannot be read.
pub fn run(args: &MeasureArgs) -> Result<()> {
    if option_table::is_asked_for(&args.options) {
        return list_options(None, Some(args.output_format));
    }
    let options = ImageOptions::parse(&args.options, args.output_format)?;
    let ImageOptions { cluster_bytes, is_fixed, vmdk, features, .. } = options;
    let preallocation = options.preallocation.unwrap_or_default();
    let measuring = Measuring {
        format: args.output_format,
        size_unit_bytes: options.size_unit_bytes(),
        cluster_bytes,
        is_fixed,
        vmdk,
        features,
        preallocation,
        is_encrypted: options.is_encrypted,
    };
    if options.size_bytes.is_some() {
        bail!(UsageError(
            "the size of a disk that is not there is --size SIZE, and of one that is there its own".to_owned()
        ));
    }
    options.check_encryption(args.output_format)?;
    if options.backing_name.is_some() {
        bail!(UsageError(
            "how much of a disk differs from a backing file is not measured: leave backing_file out".to_owned()
        ));
    }
    let (measured, bitmaps) = match &args.image {
        Some(name) => {
            let named = args.flags.applied(named_image::parse(name, args.format)?.read_only());
            let named = match &args.snapshot {
                Some(snapshot) => named.with_snapshot_name(snapshot).map_err(UsageLines::from)?,
                None => named,
            };
            let opened = open_disk(&named, &disk::to_read(&args.allow_dir).streaming())?;
            let image = opened.file.as_ref().filter(|_| named.format() == Some(Format::Qcow2));
            let info = image.map(Qcow2Info::of_opened).transpose()?;
            shut_in(&[&named], Vec::new(), 1)?;
            let measured = measuring.run(Contents::Of(&*opened.disk));
            let measured = measured.with_context(|| format!("cannot measure {name}"))?;
            (measured, info.and_then(|info| measuring.bitmaps_bytes(&info)))
        }
        None => match args.size {
            Some(size) => (measuring.run(Contents::Empty(size))?, None),
            None => bail!(UsageError("measure what? Give a disk, or --size SIZE".to_owned())),
        },
    };
    let Measured { required_bytes: required, full_bytes: fully_allocated } = measured;
    if args.output.is_json() {
        return print(&terminal::json_pretty(&Json { required, fully_allocated, bitmaps })?);
    }
    let bitmaps = bitmaps.map_or_else(String::new, |bitmaps| format!("\nbitmaps size: {bitmaps}"));
    print(&format!("required size: {required}\nfully allocated size: {fully_allocated}{bitmaps}"))
}
