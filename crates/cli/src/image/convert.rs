//! `blockyard image convert`: a disk into a new image, or into a disk that is there.

use super::image_options::ImageOptions;
use super::named_image::{self, directory_of};
use super::new_image::{NewImage, backing_path, open_backing};
use super::shut_in::shut_in;
use super::watch::Watch;
use crate::destination::{or_no_space, refuse_same_disk, replaced_file, suggest_in_place};
use crate::disk::{self, Access, OpenDisk};
use crate::{UsageError, print, size};
use anyhow::{Context, Result, anyhow, bail};
use blockyard_block::conversion::{
    Conversion, ConversionError, ConversionOptions, ConversionTarget, THREADS_MAX, ZERO_RUN_BYTES_MIN,
};
use blockyard_block::specification::{DiskSpecification, Format};
use blockyard_block::{
    Disk, Extent, ExtentKind, Preallocation, Qcow2Backing, Qcow2Disk, Qcow2Writer, ReplacementFile, flush,
    reads_as_zeros, shown, walk_extents, write_differences,
};
use clap::{Args, ValueEnum};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

/// Convert a disk into a new image, or write it to a disk that is there.
///
/// SRC is a disk in any format. DST is a new image, raw or qcow2, which takes its name when all is there; with -n, and when it
/// is a block device or no file, it is a disk that is written in place. What reads as zeros takes no room.
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
    /// Options of a new image: cluster_size=SIZE, preallocation=off|metadata|falloc|full, backing_file=NAME, backing_fmt=FORMAT.
    #[arg(short, value_name = "KEY=VALUE,...")]
    options: Vec<String>,
    /// Backing file of a new image (qcow2), which then holds only what differs from it. A name that is not absolute starts from DST's
    /// directory.
    #[arg(short = 'B', value_name = "FILE", conflicts_with_all = ["compress", "no_create"])]
    backing: Option<String>,
    /// Format of the backing file.
    #[arg(short = 'F', value_name = "FORMAT", value_parser = named_image::formats())]
    backing_format: Option<Format>,
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
    let source_named = named_image::parse(&args.source, args.format)?.read_only();
    let target_named = named_image::parse(&args.target, args.output_format)?;
    refuse_same_disk(&source_named, &target_named)?;
    let opened = disk::open(&source_named, &Access::to_read_once(&args.allow_dir))?;
    let (queues_max, depth) = (opened.queues_max(), opened.depth);
    let (source, permissions) = (opened.disk, opened.permissions);
    let length_bytes = source.geometry().capacity_bytes;
    let watch = Watch::new(args.progress && !args.quiet, length_bytes)?;
    let new = replaced_file(&target_named, args.no_create)?.map(PathBuf::from);
    let no_space = |error| match &new {
        Some(path) => or_no_space(error, path),
        None => error,
    };
    let target = Target::open(args, &target_named, &*source, permissions, &watch).map_err(no_space)?;
    // Each thread has a queue of either disk.
    let threads = args.threads().min(queues_max).min(target.queues_max());
    let options =
        ConversionOptions { threads, depth: depth.max(target.depth()), zero_run_bytes: args.zero_run_bytes() };
    shut_in(&[&source_named, &target_named], target.replaces_in(), threads)?;
    target.fill(&*source, options, args.compress, &watch).map_err(|error| {
        let error = match error {
            ConversionError::Stopped => watch.check().err().unwrap_or_else(|| anyhow!("stopped")),
            error => anyhow::Error::from(error).context(format!("cannot convert {} to {}", args.source, args.target)),
        };
        target.failed(no_space(error))
    })?;
    target.finish(args.cache == Cache::Writeback).map_err(no_space)?;
    drop(watch);
    if args.quiet {
        return Ok(());
    }
    let seconds = started.elapsed().as_secs_f64();
    print(&format!("{} -> {}: {} in {seconds:.2} s", args.source, args.target, size::human(length_bytes)))
}

impl ConvertArgs {
    fn threads(&self) -> usize {
        const UNCOMPRESSED_THREADS: usize = 4;
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let most = if self.compress { THREADS_MAX } else { UNCOMPRESSED_THREADS };
        self.threads.map_or(cpus.min(most), usize::from)
    }

    fn zero_run_bytes(&self) -> Option<u32> {
        let unit = u64::from(ZERO_RUN_BYTES_MIN);
        let bytes = self.sparse.checked_next_multiple_of(unit).and_then(|bytes| u32::try_from(bytes).ok());
        (self.sparse > 0).then(|| bytes.unwrap_or(u32::MAX - (ZERO_RUN_BYTES_MIN - 1)))
    }

    /// What a new image is like.
    fn new_image(&self, named: &DiskSpecification, size_bytes: u64) -> Result<NewImage> {
        let (path, format) = match (named.path(), named.format()) {
            (Some(path), Some(format)) => (path.to_owned(), format),
            _ => bail!(UsageError(format!("'{named}' is no new image: a file name"))),
        };
        let options = ImageOptions::parse(&self.options, format)?;
        if options.size_bytes.is_some() {
            bail!(UsageError("a new image has SRC's size: `blockyard image resize` changes it".to_owned()));
        }
        let backing = self.backing(&options, format)?;
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
        let cluster_bytes = options.cluster_bytes;
        Ok(NewImage { path, permissions: None, format, size_bytes, cluster_bytes, preallocation, backing })
    }

    fn backing(&self, options: &ImageOptions, format: Format) -> Result<Option<Qcow2Backing>> {
        let name = self.backing.clone().or_else(|| options.backing_name.clone());
        let backing_format = self.backing_format.map(|format| format.word().to_owned());
        match (name, backing_format.or_else(|| options.backing_format.clone())) {
            (None, None) => Ok(None),
            (Some(_), _) if format != Format::Qcow2 || self.compress => {
                bail!(UsageError("a backing file is for a qcow2 image without -c: add -O qcow2".to_owned()))
            }
            (Some(name), Some(format)) => Ok(Some(Qcow2Backing { name, format })),
            (Some(name), None) => bail!(UsageError(format!(
                "in which format is {name}? Add -F raw or -F qcow2: guessing would let whoever writes to it decide"
            ))),
            (None, Some(_)) => bail!(UsageError("-F is for a backing file: add -B FILE".to_owned())),
        }
    }
}

/// What is written.
enum Target {
    /// A new image, by a disk on it.
    Image { file: ReplacementFile, disk: Arc<dyn Disk>, unmap: bool },
    /// A new image over a backing file.
    Overlay { file: ReplacementFile, disk: Qcow2Disk, behind: Arc<dyn Disk> },
    /// A new image, by its own writer.
    Qcow2 { file: ReplacementFile, writer: Qcow2Writer },
    /// A disk that is there.
    InPlace { disk: OpenDisk, is_zero: bool, named: DiskSpecification },
}

impl Target {
    fn open(
        args: &ConvertArgs,
        named: &DiskSpecification,
        source: &dyn Disk,
        permissions: Option<u32>,
        watch: &Watch,
    ) -> Result<Self> {
        let length_bytes = source.geometry().capacity_bytes;
        if replaced_file(named, args.no_create)?.is_none() {
            return Self::in_place(args, named, length_bytes);
        }
        let image = NewImage { permissions, ..args.new_image(named, length_bytes)? };
        if let Some(backing) = &image.backing {
            // Who names it allows it.
            let allow_dirs = [&args.allow_dir[..], &[directory_of(&backing_path(&image.path, &backing.name))]].concat();
            let behind = open_backing(&image.path, backing, &allow_dirs)?;
            let file = image.make(watch).map_err(suggest_in_place)?;
            let disk = image.open_qcow2(&file, &allow_dirs)?;
            return Ok(Self::Overlay { file, disk, behind });
        }
        if image.format == Format::Qcow2 && image.preallocation == Preallocation::Off {
            let file = ReplacementFile::create_like(&image.path, permissions).map_err(suggest_in_place)?;
            let handle = file.file().try_clone().context("cannot duplicate a file descriptor")?;
            let writer = Qcow2Writer::new(handle, &image.qcow2_options())?;
            return Ok(Self::Qcow2 { file, writer });
        }
        let file = image.make(watch).map_err(suggest_in_place)?;
        let is_sparse = image.format == Format::Raw && image.preallocation == Preallocation::Off;
        let unmap = is_sparse && reserve(&file, source, length_bytes)?;
        let disk = image.open(&file, &[])?;
        Ok(Self::Image { file, disk, unmap })
    }

    fn in_place(args: &ConvertArgs, named: &DiskSpecification, length_bytes: u64) -> Result<Self> {
        if args.compress || !args.options.is_empty() {
            bail!(UsageError(format!("-c and -o are for new images, and {named} is written in place")));
        }
        let access = Access { allow_dirs: &args.allow_dir, streams: true, ..Access::default() };
        let opened = disk::open(named, &access)?;
        let geometry = opened.disk.geometry();
        if geometry.read_only {
            bail!("{named} is read-only");
        }
        if geometry.capacity_bytes < length_bytes {
            let room = geometry.capacity_bytes;
            bail!("{named} has {room} bytes, too few for {length_bytes}: `blockyard image resize` makes images larger");
        }
        let is_zero = args.target_is_zero || reads_as_zeros(&*opened.disk, length_bytes)?;
        Ok(Self::InPlace { disk: opened, is_zero, named: named.clone() })
    }

    fn depth(&self) -> usize {
        match self {
            Self::InPlace { disk, .. } => disk.depth,
            Self::Image { .. } | Self::Overlay { .. } | Self::Qcow2 { .. } => 1,
        }
    }

    /// How many queues it can have open.
    fn queues_max(&self) -> usize {
        match self {
            Self::InPlace { disk, .. } => disk.queues_max(),
            Self::Image { .. } | Self::Overlay { .. } | Self::Qcow2 { .. } => usize::MAX,
        }
    }

    /// Says of a disk that was written in place that it is incomplete now. A new image does not appear.
    fn failed(&self, error: anyhow::Error) -> anyhow::Error {
        match self {
            Self::InPlace { named, .. } => error.context(format!("{named} is incomplete")),
            Self::Image { .. } | Self::Overlay { .. } | Self::Qcow2 { .. } => error,
        }
    }

    fn replaces_in(&self) -> Vec<PathBuf> {
        match self {
            Self::Image { file, .. } | Self::Overlay { file, .. } | Self::Qcow2 { file, .. } => {
                vec![directory_of(file.path())]
            }
            Self::InPlace { .. } => Vec::new(),
        }
    }

    fn fill(
        &self,
        source: &dyn Disk,
        options: ConversionOptions,
        compress: bool,
        watch: &Watch,
    ) -> Result<(), ConversionError> {
        let target = match self {
            Self::Overlay { disk, behind, .. } => {
                let done = write_differences(disk, source, Some(&**behind), &mut |at, data| watch.goes_on(at, data));
                return done.map_err(|error| match error.kind() {
                    io::ErrorKind::Interrupted => ConversionError::Stopped,
                    _ => ConversionError::System(error),
                });
            }
            Self::Image { disk, unmap, .. } => ConversionTarget::Disk { disk: &**disk, is_zero: true, unmap: *unmap },
            Self::Qcow2 { writer, .. } => ConversionTarget::Qcow2 { writer, compress },
            Self::InPlace { disk, is_zero, .. } => {
                ConversionTarget::Disk { disk: &*disk.disk, is_zero: *is_zero, unmap: false }
            }
        };
        let conversion = Conversion::new(source, target, options);
        conversion.run(|done_bytes| watch.goes_on(done_bytes, conversion.data_bytes()))
    }

    /// Gives a new image its name.
    fn finish(self, durable: bool) -> Result<()> {
        match self {
            Self::Image { file, disk, .. } => {
                if durable {
                    flush(&*disk).with_context(|| format!("cannot flush {}", shown(file.path())))?;
                }
                drop(disk);
                Ok(file.commit(durable)?)
            }
            Self::Overlay { file, disk, .. } => {
                drop(disk);
                Ok(file.commit(durable)?)
            }
            Self::Qcow2 { file, writer } => {
                writer.finish().with_context(|| format!("cannot complete {}", shown(file.path())))?;
                Ok(file.commit(durable)?)
            }
            Self::InPlace { disk, named, .. } if durable => {
                flush(&*disk.disk).with_context(|| format!("cannot flush {named}"))
            }
            Self::InPlace { .. } => Ok(()),
        }
    }
}

/// Reserves storage for what the source calls data, which makes writing it a third faster on ext4; zeros that are found there give
/// theirs back. False where there is not enough for that: there may be for what turns out to be needed.
fn reserve(file: &ReplacementFile, source: &dyn Disk, length_bytes: u64) -> Result<bool> {
    const WORTH_A_CALL_BYTES: u64 = 1 << 20;
    for extent in walk_extents(source, 0..length_bytes) {
        let Extent { offset_bytes, length_bytes: extent_bytes, kind } = extent?;
        let is_worth_it = kind == ExtentKind::Data && extent_bytes >= WORTH_A_CALL_BYTES;
        if is_worth_it && file.preallocate(offset_bytes..offset_bytes + extent_bytes).is_err() {
            file.set_length(0)?;
            file.set_length(length_bytes)?;
            return Ok(false);
        }
    }
    Ok(true)
}
