//! `blockyard image create`: a new, empty image.

use super::behind;
use super::image_options::ImageOptions;
use super::new_partitions::{self, TableKind};
use super::option_table;
use super::qemu_flags::ObjectFlags;
use crate::image::appliance_kernel::resources;
use anyhow::{Result, bail};
use blockyard_block::partition_table::Scheme;
use blockyard_block::specification::{DiskSpecification, Format};
use blockyard_block::{KeyFile, OpenedFile, shown, size};
use blockyard_command_line::disk;
use blockyard_command_line::image::at_terminal::AtTerminal;
use blockyard_command_line::image::backend::BackendArgs;
use blockyard_command_line::image::named_image::{self, ImageFile};
use blockyard_command_line::terminal::print;
use blockyard_command_line::usage_error::{UsageError, UsageLines};
use blockyard_image::Watch;
use blockyard_image::whole::create::{Creation, WantedFileSystem};
use blockyard_image::whole::{NewImage, refuse_itself};
use blockyard_session::open::open_to_change;
use clap::Args;
use std::fmt::Write;
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Make an empty image, with a partition table and file systems if they are wanted.
///
/// An image that is there is replaced, unless somebody uses it. The size may be left out with a backing file: it is the
/// backing file's then.
#[derive(Args)]
#[command(override_usage = "blockyard image create [OPTIONS] <IMAGE> [SIZE]")]
pub struct CreateArgs {
    /// New image: a file name; its ending says the format (.qcow2, .vmdk, .vdi, .vhd, .vhdx, else raw).
    image: Option<String>,
    /// Size of the disk, such as 8G. K, M, G, T (and KiB ...) count in steps of 1024, KB, MB, GB, TB in steps of 1000.
    #[arg(value_parser = size::parse)]
    size: Option<u64>,
    /// Format of the image.
    #[arg(short, long, value_parser = named_image::made_formats())]
    format: Option<Format>,
    /// Options (help: lists those of the format): size=SIZE, preallocation=off|metadata|falloc|full; for qcow2
    /// cluster_size=SIZE, backing_file=NAME, backing_fmt=FORMAT, data_file=NAME (a new file that has the data),
    /// data_file_raw=on|off (it is a raw image of the disk), compat=0.10|1.1, refcount_bits=N,
    /// compression_type=zlib|zstd, extended_l2=on|off, lazy_refcounts=on|off, encrypt.format=luks and encrypt. with the
    /// options of luks; for luks cipher-alg=aes-128|aes-192|aes-256, cipher-mode=xts|cbc,
    /// ivgen-alg=plain64|plain|essiv, ivgen-hash-alg=sha256, hash-alg=HASH, iter-time=MILLISECONDS; for vmdk
    /// subformat=monolithicSparse|streamOptimized, adapter_type=ide|lsilogic|buslogic|legacyESX, hwversion=N,
    /// compat6=on|off; for vdi static=on|off; for vpc and vhdx subformat=dynamic|fixed; for vpc force_size=on (whole
    /// MiB, as Azure wants); for vhdx block_size=SIZE.
    #[arg(short, value_name = "KEY=VALUE,...")]
    options: Vec<String>,
    /// Backing file, which shows where the image holds nothing. A name that is not absolute starts from the directory
    /// of the image's name.
    #[arg(short, long, value_name = "FILE")]
    backing: Option<String>,
    /// Format of the backing file.
    #[arg(short = 'F', long, value_parser = named_image::backing_formats())]
    backing_format: Option<Format>,
    /// Do not look at the backing file, which need not be there.
    #[arg(short)]
    unsafe_: bool,
    /// Put a partition table on the disk.
    #[arg(long, value_enum)]
    table: Option<TableKind>,
    /// A partition: SIZE or rest, then ,type=TYPE, ,name=NAME, ,bootable, ,fs=KIND, ,label=LABEL; may be given more
    /// than once.
    #[arg(long, value_name = "SIZE,...", requires = "table", long_help = new_partitions::help())]
    part: Vec<String>,
    /// Make a file system on the disk, which has no partitions.
    #[arg(long, value_name = "KIND", conflicts_with = "table", help = new_partitions::file_system_help())]
    fs: Option<String>,
    /// The file system's label.
    #[arg(long, requires = "fs")]
    label: Option<String>,
    /// File with the passphrase of an encrypted image (-o encrypt.format=luks, or -f luks), and nothing else in it.
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// File with the passphrase of the backing file, if that is encrypted.
    #[arg(long, value_name = "FILE")]
    backing_key_file: Option<PathBuf>,
    /// Directory in which files behind the backing file may lie; may be given more than once.
    #[arg(long, value_name = "DIR")]
    allow_dir: Vec<PathBuf>,
    #[command(flatten)]
    backend: BackendArgs,
    /// Say nothing.
    #[arg(short, long)]
    quiet: bool,
    #[command(flatten)]
    objects: ObjectFlags,
}

/// Runs the command.
///
/// # Errors
/// When the options make no sense or the image cannot be written. Then nothing has changed.
pub fn run(args: &CreateArgs) -> Result<()> {
    if option_table::is_asked_for(&args.options) {
        return list_options(args.image.as_deref(), args.format);
    }
    let Some(image) = &args.image else { bail!(UsageError("which image? Give the name of a new file".to_owned())) };
    let ImageFile { named, path, format } = named_image::parse_new(image, args.format)?;
    let options = ImageOptions::parse(&args.options, format)?;
    let key_file = args.key_file.as_ref().map(KeyFile::new).or_else(|| named.key_file().cloned());
    let encryption = options.encryption(format, key_file)?;
    let refused = (format != Format::Qcow2).then_some("a new image over a backing file is qcow2: add -f qcow2");
    let backing = options.backing(args.backing.as_deref(), args.backing_format, refused, "-b")?;
    let table = args.table.map(Scheme::from);
    let file_system = new_partitions::file_system(args.fs.as_deref(), args.label.as_deref())?;
    let partitions = table.map(|scheme| new_partitions::parse(&args.part, scheme)).transpose()?.unwrap_or_default();
    let allow_dirs = behind::allowed(&path, backing.as_ref(), &args.allow_dir);
    if let (Some(size), Some(other)) = (args.size, options.size_bytes)
        && size != other
    {
        bail!(UsageError(format!("size={other} and a size of {size} bytes contradict each other: give one of them")));
    }
    if let Some(backing) = &backing {
        refuse_itself(image, &path, backing)?;
    }
    let looked_at = backing.as_ref().filter(|_| !args.unsafe_);
    // It must be there, and be what it is said to be. Open until the image is there: nothing behind it is replaced.
    let behind = looked_at
        .map(|backing| behind::look_at(&path, backing, &allow_dirs, args.backing_key_file.as_deref()))
        .transpose()?;
    let size_bytes = match (args.size.or(options.size_bytes), &behind) {
        (Some(size), _) => size,
        (None, Some((size_bytes, _))) => *size_bytes,
        (None, None) => bail!(UsageError("how large? Give a size such as 8G".to_owned())),
    };
    // Nobody else's images end in the middle of a sector.
    let size_bytes = options.size_for(size_bytes);
    let image = NewImage {
        cluster_bytes: options.cluster_bytes,
        is_fixed: options.is_fixed,
        vmdk: options.vmdk,
        features: options.features,
        preallocation: options.preallocation.unwrap_or_default(),
        backing,
        backing_key: args.backing_key_file.as_ref().map(KeyFile::new),
        data_file: options.data_file()?,
        encryption,
        hints: options.hints,
        ..NewImage::new(path, format, size_bytes)
    };
    let mut creation = Creation { image, table, partitions, file_system };
    if creation.image.path.metadata().is_ok_and(|metadata| metadata.file_type().is_block_device()) {
        let device_bytes = make_on_device(args, &creation)?;
        if creation.image.format == Format::Raw {
            // What it is already, and no smaller one.
            creation.image.size_bytes = device_bytes;
        }
        return if args.quiet { Ok(()) } else { tell_all(args, &creation) };
    }
    let watch: Arc<dyn Watch> = Arc::new(AtTerminal::catch()?);
    creation.run(&allow_dirs, || resources(args.backend.backend()), &watch)?;
    drop(behind);
    if args.quiet { Ok(()) } else { tell_all(args, &creation) }
}

/// Makes a device the image, whatever it holds: how many bytes the device has.
fn make_on_device(args: &CreateArgs, Creation { image, table, file_system, .. }: &Creation) -> Result<u64> {
    let device = shown(&image.path);
    if table.is_some() || file_system.is_some() {
        let problem = "partitions and file systems are made on what there is by `blockyard image shell` and `mkfs`";
        bail!(UsageError(format!("{device} is a block device: {problem}")));
    }
    let opened = device_to_make(&image.path, &args.allow_dir)?;
    image.make_on_device(&opened)?;
    Ok(opened.file().seek(SeekFrom::End(0))?)
}

/// Opens a device that is to become an image, and nobody else's meanwhile.
pub fn device_to_make(path: &Path, allow_dir: &[PathBuf]) -> Result<OpenedFile> {
    let named = DiskSpecification::of_file(path).with_format(Format::Raw).map_err(UsageLines::from)?;
    Ok(open_to_change(&named, &disk::to_write(allow_dir))?.file)
}

fn tell_all(args: &CreateArgs, creation: &Creation) -> Result<()> {
    if args.format.is_some() {
        named_image::tell_of_name(&creation.image.path, creation.image.format);
    }
    tell(creation)
}

/// Says which options a new image has, in the format that is said or that its name says.
pub fn list_options(name: Option<&str>, format: Option<Format>) -> Result<()> {
    let named = name.map(|name| named_image::parse(name, format)).transpose()?;
    let format = format.or(named.and_then(|named| named.format())).unwrap_or(Format::Raw);
    option_table::list(&format!("Options of new {} images:", format.word()), format, option_table::of_new(format))
}

fn tell(creation: &Creation) -> Result<()> {
    let Creation { image, partitions, file_system, .. } = creation;
    let mut text = format!("{}: {}, {}", shown(&image.path), image.format.word(), size::human(image.size_bytes));
    if let Some(backing) = &image.backing {
        let _ = write!(text, ", over {} ({})", backing.name, backing.format);
    }
    if let Some(data_file) = &image.data_file {
        let _ = write!(text, ", data in {}", data_file.name);
    }
    text.push_str(&described(file_system.as_ref()));
    for (index, (wanted, range)) in partitions.iter().zip(creation.ranges()?).enumerate() {
        let kind = wanted.partition.kind.name().unwrap_or("other");
        let (start, length) = (size::human(range.start), size::human(range.end - range.start));
        let file_system = described(wanted.file_system.as_ref());
        let _ = write!(text, "\n  partition {}: {length} from {start} on, {kind}{file_system}", index + 1);
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
