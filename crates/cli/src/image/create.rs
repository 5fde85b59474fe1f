//! `blockyard image create`: a new, empty image.

use super::image_options::ImageOptions;
use super::named_image::{self, ImageFile, directory_of};
use super::new_file_systems;
use super::new_image::{NewImage, backing_path, open_backing};
use super::new_partitions::{self, TableKind, WantedFileSystem, WantedPartition};
use super::watch::Watch;
use crate::destination::or_no_space;
use crate::{UsageError, print, size};
use anyhow::{Context, Result, bail};
use blockyard_block::partition_table::{self, NewPartition, PartitionTable, Scheme};
use blockyard_block::specification::Format;
use blockyard_block::{Preallocation, Qcow2Backing, flush, shown};
use clap::Args;
use std::fmt::Write;
use std::path::PathBuf;

/// Make an empty image, with a partition table and file systems if they are wanted.
///
/// An image that is there is replaced, unless somebody uses it. The size may be left out with a backing file: it is the backing file's then.
#[derive(Args)]
pub struct CreateArgs {
    /// New image: a file name; its ending says the format (.qcow2, else raw).
    image: String,
    /// Size of the disk, such as 8G. K, M, G, T (and KiB ...) count in steps of 1024, KB, MB, GB, TB in steps of 1000.
    #[arg(value_parser = size::parse)]
    size: Option<u64>,
    /// Format of the image.
    #[arg(short, long, value_parser = named_image::made_formats())]
    format: Option<Format>,
    /// Options: cluster_size=SIZE, preallocation=off|metadata|falloc|full, backing_file=NAME, backing_fmt=FORMAT, size=SIZE.
    #[arg(short, value_name = "KEY=VALUE,...")]
    options: Vec<String>,
    /// Backing file, which shows where the image holds nothing. A name that is not absolute starts from the image's directory.
    #[arg(short, long, value_name = "FILE")]
    backing: Option<String>,
    /// Format of the backing file.
    #[arg(short = 'F', long, value_parser = named_image::formats())]
    backing_format: Option<Format>,
    /// Do not look at the backing file, which need not be there.
    #[arg(short)]
    unsafe_: bool,
    /// Put a partition table on the disk.
    #[arg(long, value_enum)]
    table: Option<TableKind>,
    /// A partition: SIZE or rest, then ,type=TYPE, ,name=NAME, ,bootable, ,fs=KIND, ,label=LABEL; may be given more than once.
    #[arg(long, value_name = "SIZE,...", requires = "table", long_help = new_partitions::help())]
    part: Vec<String>,
    /// Make a file system on the disk, which has no partitions: ext2, ext3, ext4, xfs, btrfs, vfat or swap.
    #[arg(long, value_name = "KIND", conflicts_with = "table")]
    fs: Option<String>,
    /// The file system's label.
    #[arg(long, requires = "fs")]
    label: Option<String>,
    /// Directory in which files behind the backing file may lie; may be given more than once.
    #[arg(long, value_name = "DIR")]
    allow_dir: Vec<PathBuf>,
    /// Say nothing.
    #[arg(short, long)]
    quiet: bool,
}

/// Runs the command.
///
/// # Errors
/// When the options make no sense or the image cannot be written. Then nothing has changed.
pub fn run(args: &CreateArgs) -> Result<()> {
    let ImageFile { path, format, .. } = named_image::parse_new(&args.image, args.format)?;
    if format == Format::Vmdk {
        bail!(UsageError("VMDK images can be read, not made: choose raw or qcow2".to_owned()));
    }
    let options = ImageOptions::parse(&args.options, format)?;
    let backing = backing(args, &options, format)?;
    let table = args.table.map(Scheme::from);
    let whole = WantedFileSystem::parse(args.fs.as_deref(), args.label.as_deref())?;
    let partitions = table.map(|scheme| new_partitions::parse(&args.part, scheme)).transpose()?.unwrap_or_default();
    let mut allow_dirs = args.allow_dir.clone();
    if let Some(backing) = &backing {
        // Who names it allows it.
        allow_dirs.push(directory_of(&backing_path(&path, &backing.name)));
    }
    if let (Some(size), Some(other)) = (args.size, options.size_bytes)
        && size != other
    {
        bail!(UsageError(format!("size={other} and a size of {size} bytes contradict each other: give one of them")));
    }
    let size_bytes = match (args.size.or(options.size_bytes), &backing) {
        (Some(size), _) => size,
        (None, Some(backing)) if !args.unsafe_ => backing_size(&path, backing, &allow_dirs)?,
        (None, _) => bail!(UsageError("how large? Give a size such as 8G".to_owned())),
    };
    if let (Some(backing), false, true) = (&backing, args.unsafe_, args.size.is_some()) {
        // It must be there, and be what it is said to be.
        backing_size(&path, backing, &allow_dirs)?;
    }
    let image = NewImage {
        path,
        permissions: None,
        format,
        // Nobody else's images end in the middle of a sector.
        size_bytes: size_bytes.checked_next_multiple_of(512).unwrap_or(u64::MAX),
        cluster_bytes: options.cluster_bytes,
        preallocation: options.preallocation.unwrap_or(Preallocation::Off),
        backing,
    };
    let contents = Contents { table, partitions, whole };
    make(&image, &contents, &allow_dirs).map_err(|error| or_no_space(error, &image.path))?;
    if args.quiet { Ok(()) } else { tell(&image, &contents) }
}

/// What is on a new disk.
struct Contents {
    table: Option<Scheme>,
    partitions: Vec<WantedPartition>,
    /// On a disk without a table.
    whole: Option<WantedFileSystem>,
}

impl Contents {
    fn new_partitions(&self) -> Vec<NewPartition> {
        self.partitions.iter().map(|wanted| wanted.partition.clone()).collect()
    }

    /// The file systems, with the numbers of their partitions; none for the disk.
    fn file_systems(&self) -> Vec<(Option<usize>, &WantedFileSystem)> {
        let numbered = self.partitions.iter().zip(1..).map(|(wanted, number)| (Some(number), &wanted.file_system));
        let all = numbered.chain([(None, &self.whole)]);
        all.filter_map(|(number, wanted)| Some((number, wanted.as_ref()?))).collect()
    }
}

fn make(image: &NewImage, contents: &Contents, allow_dirs: &[PathBuf]) -> Result<()> {
    let partitions = contents.new_partitions();
    if let Some(scheme) = contents.table {
        // Before anything is written.
        partition_table::lay_out(scheme, &partitions, image.size_bytes, 512)?;
    }
    let watch = Watch::new(false, image.size_bytes)?;
    let file = image.make(&watch)?;
    let file_systems = contents.file_systems();
    if contents.table.is_some() || !file_systems.is_empty() {
        let disk = image.open(&file, allow_dirs)?;
        if let Some(scheme) = contents.table {
            PartitionTable::create(&*disk, scheme, &partitions)?;
        }
        if !file_systems.is_empty() {
            let is_sparse = image.preallocation == Preallocation::Off;
            new_file_systems::make(&image.path, &disk, &file_systems, is_sparse, image.backing.is_none())?;
        }
        flush(&*disk).context("cannot write the partition table")?;
    }
    watch.check()?;
    Ok(file.commit(true)?)
}

fn backing(args: &CreateArgs, options: &ImageOptions, format: Format) -> Result<Option<Qcow2Backing>> {
    let name = args.backing.clone().or_else(|| options.backing_name.clone());
    let backing_format = args.backing_format.map(|format| format.word().to_owned());
    let backing_format = backing_format.or_else(|| options.backing_format.clone());
    match (name, backing_format) {
        (None, None) => Ok(None),
        (Some(_), _) if format != Format::Qcow2 => {
            bail!(UsageError("only qcow2 images have backing files: add -f qcow2".to_owned()))
        }
        (Some(name), Some(format)) => Ok(Some(Qcow2Backing { name, format })),
        (Some(name), None) => bail!(UsageError(format!(
            "in which format is {name}? Add -F raw or -F qcow2: guessing would let whoever writes to it decide"
        ))),
        (None, Some(_)) => bail!(UsageError("-F is for a backing file: add -b FILE".to_owned())),
    }
}

fn backing_size(image: &std::path::Path, backing: &Qcow2Backing, allow_dirs: &[PathBuf]) -> Result<u64> {
    Ok(open_backing(image, backing, allow_dirs)?.geometry().capacity_bytes)
}

fn tell(image: &NewImage, contents: &Contents) -> Result<()> {
    let mut text = format!("{}: {}, {}", shown(&image.path), image.format.word(), size::human(image.size_bytes));
    if let Some(backing) = &image.backing {
        let _ = write!(text, ", over {} ({})", backing.name, backing.format);
    }
    text.push_str(&described(contents.whole.as_ref()));
    if let Some(scheme) = contents.table {
        let ranges = partition_table::lay_out(scheme, &contents.new_partitions(), image.size_bytes, 512)?;
        for (index, (wanted, range)) in contents.partitions.iter().zip(ranges).enumerate() {
            let kind = wanted.partition.kind.name().unwrap_or("other");
            let (start, length) = (size::human(range.start), size::human(range.end - range.start));
            let file_system = described(wanted.file_system.as_ref());
            let _ = write!(text, "\n  partition {}: {length} from {start} on, {kind}{file_system}", index + 1);
        }
    }
    print(&text)
}

fn described(file_system: Option<&WantedFileSystem>) -> String {
    match file_system {
        None => String::new(),
        Some(WantedFileSystem { kind, label }) if label.is_empty() => format!(", {}", kind.name()),
        Some(WantedFileSystem { kind, label }) => format!(", {} '{label}'", kind.name()),
    }
}
