//! `blockyard image convert`: a disk into a new image, or into a disk that is there.

use super::behind;
use super::image_options::ImageOptions;
use super::shut_in::shut_in;
use super::snapshot;
use anyhow::{Result, bail};
use blockyard_block::conversion::THREADS_MAX;
use blockyard_block::specification::{DiskSpecification, Format};
use blockyard_block::{Preallocation, Qcow2Features, size};
use blockyard_command_line::disk;
use blockyard_command_line::failures::suggest_in_place;
use blockyard_command_line::image::at_terminal::AtTerminal;
use blockyard_command_line::image::named_image;
use blockyard_command_line::terminal::print;
use blockyard_command_line::usage_error::UsageError;
use blockyard_image::whole::convert::{Conversion, ConvertOptions, Target};
use blockyard_image::whole::{NewImage, WholeDisk};
use blockyard_session::open::open_disk;
use clap::{Args, ValueEnum};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Convert a disk into a new image, or write it to a disk that is there.
///
/// SRC is a disk in any format. DST is a new image, raw, qcow2, VDI, VHD or VHDX, which takes its name when all is
/// there; with -n, and when it is a block device or no file, it is a disk that is written in place. What reads as zeros
/// takes no room.
#[derive(Args)]
pub struct ConvertArgs {
    /// Disk to read: [KIND:]PATH[,KEY=VALUE...]
    source: String,
    /// Image to make, or disk to write.
    target: String,
    /// Format of SRC.
    #[arg(short, value_name = "FORMAT", value_parser = named_image::formats())]
    format: Option<Format>,
    /// Format of DST [default: what its name's ending says].
    #[arg(short = 'O', value_name = "FORMAT", value_parser = named_image::made_formats())]
    output_format: Option<Format>,
    /// Options of a new image: preallocation=off|metadata|falloc|full, and for qcow2 cluster_size=SIZE,
    /// backing_file=NAME, backing_fmt=FORMAT, compat=0.10|1.1, refcount_bits=N, compression_type=zlib|zstd,
    /// extended_l2=on|off, lazy_refcounts=on|off; for vdi static=on|off; for vpc and vhdx subformat=dynamic|fixed; for
    /// vpc force_size=on (whole MiB, as Azure wants); for vhdx block_size=SIZE.
    #[arg(short, value_name = "KEY=VALUE,...")]
    options: Vec<String>,
    /// Backing file of a new image (qcow2), which then holds only what differs from it. A name that is not absolute
    /// starts from DST's directory.
    #[arg(short = 'B', value_name = "FILE", conflicts_with_all = ["compress", "no_create"])]
    backing: Option<String>,
    /// Format of the backing file.
    #[arg(short = 'F', value_name = "FORMAT", value_parser = named_image::formats())]
    backing_format: Option<Format>,
    /// Convert a snapshot that SRC has inside: its name, its id, snapshot.name=NAME or snapshot.id=ID.
    #[arg(short = 'l', value_name = "SNAPSHOT")]
    snapshot: Option<String>,
    /// Compress the data (qcow2).
    #[arg(short)]
    compress: bool,
    /// Show progress.
    #[arg(short)]
    progress: bool,
    /// Write to an image or disk that is there, instead of making one.
    #[arg(short = 'n')]
    no_create: bool,
    /// With -n: the target reads as zeros already.
    #[arg(long, requires = "no_create")]
    target_is_zero: bool,
    /// Runs of zeros that are looked for in data, at least so long; 0: none, and all of a new image gets storage.
    #[arg(short = 'S', value_name = "SIZE", default_value = "4K", value_parser = size::parse)]
    sparse: u64,
    /// Threads [default: a CPU each, at most 4 without -c].
    #[arg(short = 'm', value_name = "N", value_parser = clap::value_parser!(u16).range(1..=THREADS_MAX as i64))]
    threads: Option<u16>,
    /// Write out of order, as is always done here.
    #[arg(short = 'W', hide = true)]
    out_of_order: bool,
    /// Whether to wait until all is on stable storage (writeback) or not (unsafe).
    #[arg(short = 't', value_name = "CACHE", value_enum, default_value = "writeback")]
    cache: Cache,
    /// Directory whose files an image may refer to; may be given more than once.
    #[arg(long, value_name = "DIR")]
    allow_dir: Vec<PathBuf>,
    /// Say nothing.
    #[arg(short, long)]
    quiet: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Cache {
    Writeback,
    Unsafe,
}

/// Runs the command.
///
/// # Errors
/// When something cannot be read or written. A new image does not appear then.
pub fn run(args: &ConvertArgs) -> Result<()> {
    let started = Instant::now();
    let from = named_image::parse(&args.source, args.format)?.read_only();
    let from = match &args.snapshot {
        Some(snapshot) => from.with_snapshot_name(snapshot::named(snapshot))?,
        None => from,
    };
    let to = named_image::parse(&args.target, args.output_format)?;
    from.differs_from(&to)?;
    let source = open_disk(&from, &disk::to_read(&args.allow_dir).streaming())?.into();
    let watch = AtTerminal::watching(args.progress && !args.quiet)?;
    let target = match to.replaced_file(args.no_create)? {
        Some(path) => args.new_image(path, &to, &source, &watch)?,
        None => args.in_place(&to, &source)?,
    };
    let options = ConvertOptions {
        threads: args.threads.map(usize::from),
        zero_run_bytes: args.sparse,
        compress: args.compress,
        durable: args.cache == Cache::Writeback,
    };
    let conversion = Conversion::new([&args.source, &args.target], source, target, options);
    let length_bytes = conversion.length_bytes();
    shut_in(&[&from, &to], conversion.replaces_in().into_iter().collect(), conversion.threads())?;
    conversion.run(&watch)?;
    drop(watch);
    if args.quiet {
        return Ok(());
    }
    if let (Some(format), Some(path)) = (args.output_format, to.replaced_file(args.no_create)?) {
        named_image::tell_of_name(path, format);
    }
    let seconds = started.elapsed().as_secs_f64();
    print(&format!("{} -> {}: {} in {seconds:.2} s", args.source, args.target, size::human(length_bytes)))
}

impl ConvertArgs {
    fn new_image(
        &self,
        path: &Path,
        named: &DiskSpecification,
        source: &WholeDisk,
        watch: &AtTerminal,
    ) -> Result<Target> {
        let image = self.layout(path, named.format().unwrap_or(Format::Raw), source)?;
        let allow_dirs = behind::allowed(path, image.backing.as_ref(), &self.allow_dir);
        let behind = image.backing.as_ref().map(|backing| behind::open(path, backing, &allow_dirs)).transpose()?;
        Target::new_image(&image, source, behind, &allow_dirs, watch).map_err(suggest_in_place)
    }

    /// What a new image is like.
    fn layout(&self, path: &Path, format: Format, source: &WholeDisk) -> Result<NewImage> {
        let options = ImageOptions::parse(&self.options, format)?;
        if options.size_bytes.is_some() {
            bail!(UsageError("a new image has SRC's size: `blockyard image resize` changes it".to_owned()));
        }
        let refused = (format != Format::Qcow2 || self.compress)
            .then_some("a backing file is for a qcow2 image without -c: add -O qcow2");
        let backing = options.backing(self.backing.as_deref(), self.backing_format, refused, "-B")?;
        // Without looking for zeros, all of the image gets storage.
        let filled = if self.sparse == 0 && !self.compress && backing.is_none() {
            Preallocation::Falloc
        } else {
            Preallocation::Off
        };
        let preallocation = options.preallocation.unwrap_or(filled);
        if self.compress && (format != Format::Qcow2 || preallocation != Preallocation::Off) {
            bail!(UsageError("-c is for qcow2 without preallocation: add -O qcow2".to_owned()));
        }
        let permissions = source.permissions;
        let image = NewImage::new(path, format, options.size_for(source.disk.geometry().capacity_bytes));
        if self.compress && options.features.refcount_order < Qcow2Features::default().refcount_order {
            bail!(UsageError(
                "-c needs refcount_bits=16 or more: compressed clusters share those of the file".to_owned()
            ));
        }
        let ImageOptions { cluster_bytes, is_fixed, features, .. } = options;
        Ok(NewImage { permissions, cluster_bytes, is_fixed, features, preallocation, backing, ..image })
    }

    fn in_place(&self, named: &DiskSpecification, source: &WholeDisk) -> Result<Target> {
        if self.compress || !self.options.is_empty() {
            bail!(UsageError(format!("-c and -o are for new images, and {named} is written in place")));
        }
        let disk = open_disk(named, &disk::to_write(&self.allow_dir).streaming())?;
        Ok(Target::in_place(&named.to_string(), disk.into(), source, self.target_is_zero)?)
    }
}
