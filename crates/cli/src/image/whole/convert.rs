//! `blockyard image convert`: a disk into a new image, or into a disk that is there.

use super::behind;
use super::create::{device_to_make, list_options};
use super::image_options::ImageOptions;
use super::option_table;
use super::qemu_flags::{CacheMode, ReadFlags, SourceCache, rate};
use super::shut_in::shut_in;
use anyhow::{Result, bail};
use blockyard_block::conversion::THREADS_MAX;
use blockyard_block::specification::{DiskSpecification, Format, Kind, SaidFormat, temporary_directory};
use blockyard_block::{
    Disk, KeyFile, OpenedFile, Preallocation, Qcow2Bitmap, Qcow2Features, Qcow2Info, directory_of, printable, shown,
    size,
};
use blockyard_command_line::disk;
use blockyard_command_line::failures::suggest_in_place;
use blockyard_command_line::image::at_terminal::AtTerminal;
use blockyard_command_line::image::named_image;
use blockyard_command_line::terminal::{print, say};
use blockyard_command_line::unpacker;
use blockyard_command_line::usage_error::{UsageError, UsageLines};
use blockyard_confinement::raise_descriptor_limit;
use blockyard_image::whole::convert::{Conversion, ConvertOptions, Converted, CopiedBitmaps, Target};
use blockyard_image::whole::digest::{Digest, ExpectedFile};
use blockyard_image::whole::lost::{Lost, LostRange};
use blockyard_image::whole::{NewImage, WholeDisk, refuse_itself};
use blockyard_image::{Progress, Watch};
use blockyard_session::open::{OpenDisk, OpenOptions, open_disk};
use clap::Args;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// Convert a disk into a new image, or write it to a disk that is there.
///
/// SRC is a disk in any format. DST is a new image, raw, qcow2, VMDK, VDI, VHD, VHDX or LUKS, which takes its name when
/// all is there; with -n, and when it is no file, it is a disk that is written in place, and so is a block device,
/// unless it is to be qcow2: that becomes an image, whatever it holds, and is none until it is complete. What reads as
/// zeros takes no room.
#[derive(Args)]
#[command(override_usage = "blockyard image convert [OPTIONS] <SRC>... <DST>")]
pub struct ConvertArgs {
    /// Disks to read, one behind the other: [KIND:]PATH[,KEY=VALUE...]; the last is the image to make, or the disk to
    /// write.
    #[arg(value_name = "DISK")]
    disks: Vec<String>,
    /// Format of SRC; with .gz, .xz or .zst behind it, of what is in a compressed file.
    #[arg(short, value_name = "FORMAT", value_parser = named_image::source_formats())]
    format: Option<SaidFormat>,
    /// Format of DST [default: what its name's ending says].
    #[arg(short = 'O', value_name = "FORMAT", value_parser = named_image::made_formats())]
    output_format: Option<Format>,
    /// Options of a new image (help: lists those of its format): preallocation=off|metadata|falloc|full, and for qcow2
    /// cluster_size=SIZE, backing_file=NAME, backing_fmt=FORMAT, data_file=NAME (a new file that has the data),
    /// data_file_raw=on|off (it is a raw image of the disk), compat=0.10|1.1, refcount_bits=N,
    /// compression_type=zlib|zstd, extended_l2=on|off, lazy_refcounts=on|off; for vmdk
    /// subformat=monolithicSparse|streamOptimized, adapter_type=ide|lsilogic|buslogic|legacyESX, hwversion=N; for vdi
    /// static=on|off; for vpc and vhdx subformat=dynamic|fixed; for vpc force_size=on (whole MiB, as Azure wants); for
    /// vhdx block_size=SIZE.
    #[arg(short, value_name = "KEY=VALUE,...")]
    options: Vec<String>,
    /// Backing file of a new image (qcow2), which then holds only what differs from it. A name that is not absolute
    /// starts from DST's directory.
    #[arg(short = 'B', value_name = "FILE", conflicts_with = "no_create")]
    backing: Option<String>,
    /// Format of the backing file.
    #[arg(short = 'F', value_name = "FORMAT", value_parser = named_image::backing_formats())]
    backing_format: Option<Format>,
    /// Convert a snapshot that SRC has inside: its name, its id, snapshot.name=NAME, snapshot.id=ID or
    /// both with a comma between.
    #[arg(short = 'l', value_name = "SNAPSHOT")]
    snapshot: Option<String>,
    /// Copy the bitmaps of what was written that SRC, a qcow2 image, has inside, into a new qcow2 image.
    #[arg(long, conflicts_with_all = ["no_create", "snapshot"])]
    bitmaps: bool,
    /// With --bitmaps: leave out those that say nothing any more.
    #[arg(long, requires = "bitmaps")]
    skip_broken_bitmaps: bool,
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
    /// Go on where SRC cannot be read: what is lost is said by its offset, and becomes zeros.
    #[arg(long, conflicts_with_all = ["backing", "bitmaps"])]
    salvage: bool,
    /// Threads [default: a CPU each, at most 4 without -c].
    #[arg(short = 'm', value_name = "N", value_parser = clap::value_parser!(u16).range(1..=THREADS_MAX as i64))]
    threads: Option<u16>,
    /// Write out of order, as is always done here.
    #[arg(short = 'W', hide = true)]
    out_of_order: bool,
    /// Whether to wait until all is on stable storage (writeback, as all others) or not (unsafe). With -n, none and
    /// directsync write past the page cache.
    #[arg(short = 't', value_name = "CACHE", value_enum, default_value = "writeback", hide_possible_values = true)]
    cache: CacheMode,
    /// File with the passphrase of a new encrypted image (-o encrypt.format=luks, or -O luks), and nothing else in it.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["compress", "no_create"])]
    key_file: Option<PathBuf>,
    /// File with the passphrase of the backing file, if that is encrypted.
    #[arg(long, value_name = "FILE")]
    backing_key_file: Option<PathBuf>,
    /// Directory whose files an image may refer to; may be given more than once.
    #[arg(long, value_name = "DIR")]
    allow_dir: Vec<PathBuf>,
    /// With a compressed SRC: the most that may be in it.
    #[arg(long, value_name = "SIZE", default_value = "1T", value_parser = size::parse)]
    size_max: u64,
    /// Go on only if SRC's file has these bytes, by their SHA-256 digest, before and after it was read. Images that
    /// refer to other files are refused.
    #[arg(long, value_name = "HEX")]
    sha256: Option<Digest>,
    /// Print the SHA-256 digest of the disk's contents: that of SRC as a raw file.
    #[arg(long)]
    digest: bool,
    /// Say nothing, but for the digest.
    #[arg(short, long)]
    quiet: bool,
    /// Read no more than so many bytes a second.
    #[arg(short = 'r', value_name = "SIZE", value_parser = rate)]
    rate: Option<NonZeroU64>,
    /// Have the kernel copy: zeros are looked for, and so data are read and written.
    #[arg(short = 'C', hide = true)]
    copy_range: bool,
    /// DST is named as with --image-opts, which is understood without it, too.
    #[arg(long, hide = true, requires = "no_create")]
    target_image_opts: bool,
    #[command(flatten)]
    cache_of_source: SourceCache,
    #[command(flatten)]
    flags: ReadFlags,
}

/// Runs the command.
///
/// # Errors
/// When something cannot be read or written. A new image does not appear then.
pub fn run(args: &ConvertArgs) -> Result<()> {
    let started = Instant::now();
    if option_table::is_asked_for(&args.options) {
        return list_options(args.disks.last().map(String::as_str), args.output_format);
    }
    let (target_name, source_names) = args.names()?;
    let to = named_image::parse(target_name, args.output_format)?;
    let sources = args.sources(source_names, &to)?;
    let expected = args.expected(&sources)?;
    let file = expected.as_ref().map(ExpectedFile::file);
    let scratch = match to.replaced_file(args.no_create)? {
        Some(path) => directory_of(path).to_owned(),
        None => temporary_directory(),
    };
    // Compressed files may be read through, or unpacked, before anything is opened.
    let watch = AtTerminal::watching(args.progress && !args.quiet)?;
    let progress =
        |done_bytes, length_bytes| watch.progress(&Progress { done_bytes, data_bytes: done_bytes, length_bytes });
    let unpacking = Some(unpacker::unpacking(args.size_max, &scratch, &progress));
    let access = OpenOptions { file, unpacking, ..disk::to_read(&args.allow_dir).streaming() };
    if sources.len() > 1 {
        // Each has its files open until the end.
        raise_descriptor_limit();
    }
    let mut opened = sources.iter().map(|from| Ok(open_disk(from, &access)?)).collect::<Result<Vec<_>>>()?;
    args.check_salvage(&sources, &opened)?;
    if let (Some(expected), [source], [OpenDisk { file: Some(image), .. }]) = (&expected, &sources[..], &opened[..]) {
        expected.is_alone(image, source.format().filter(|_| source.says_format()))?;
    }
    let bitmaps = args.copied_bitmaps(&sources, &to, &opened)?;
    let source = match opened.pop() {
        Some(only) if opened.is_empty() => only.into(),
        last => WholeDisk::joined(opened.into_iter().chain(last).map(WholeDisk::from).collect(), &watch)?,
    };
    let target = match to.replaced_file(args.no_create)? {
        Some(path) => args.new_image(path, &to, &source, &watch)?,
        None => match to.made_device(args.no_create) {
            Some(path) => args.on_device(path, &to, &source, &watch)?,
            None => args.in_place(&to, &source)?,
        },
    };
    if !args.salvage {
        disk::keep_unreadable();
    }
    let options = ConvertOptions {
        threads: args.threads.map(usize::from),
        zero_run_bytes: args.sparse,
        compress: args.compress,
        durable: args.cache != CacheMode::Unsafe,
        digest: args.digest,
        salvage: args.salvage,
    };
    let (from, into) = (printable(&source_names.join(" + ")), printable(target_name));
    let mut conversion = Conversion::new([&from, &into], source, target, options).with_bitmaps(bitmaps);
    if let Some(file) = expected {
        conversion = conversion.of_expected(file);
    }
    let disks: Vec<_> = sources.iter().chain([&to]).collect();
    shut_in(&disks, conversion.replaces_in(), conversion.threads())?;
    let Converted { length_bytes, digest, lost } = conversion.run(&watch)?;
    watch.done();
    if args.quiet {
        return digest.map_or(Ok(()), |digest| print(&digest.to_string()));
    }
    let made = to.replaced_file(args.no_create)?.or(to.made_device(args.no_create));
    if let (Some(format), Some(path)) = (args.output_format, made) {
        named_image::tell_of_name(path, format);
    }
    tell_of_lost(&from, &lost);
    let seconds = started.elapsed().as_secs_f64();
    print(&format!("{from} -> {into}: {} in {seconds:.2} s", size::human(length_bytes)))?;
    digest.map_or(Ok(()), |digest| print(&format!("SHA-256 of the contents: {digest}")))
}

impl ConvertArgs {
    /// What is written, and what is read.
    fn names(&self) -> Result<(&str, &[String])> {
        match self.disks.split_last() {
            Some((target, sources)) if !sources.is_empty() => Ok((target, sources)),
            _ => bail!(UsageError("convert takes what is read and what is written: SRC DST".to_owned())),
        }
    }

    /// What is read, none of which is what is written.
    fn sources(&self, names: &[String], to: &DiskSpecification) -> Result<Vec<DiskSpecification>> {
        if names.len() > 1 {
            let alone =
                [("-l", self.snapshot.is_some()), ("-B", self.backing.is_some()), ("--sha256", self.sha256.is_some())];
            if let Some((option, _)) = alone.into_iter().find(|(_, is_there)| *is_there) {
                bail!(UsageError(format!("{option} is for one SRC: leave it out, or convert them one by one")));
            }
        }
        let source = |text: &String| {
            let from = self.flags.applied(named_image::parse_source(text, self.format)?.read_only());
            let from = self.cache_of_source.applied(from)?;
            let from = match self.rate {
                Some(rate) => from.with_bytes_per_second(rate).map_err(UsageLines::from)?,
                None => from,
            };
            let from = match &self.snapshot {
                Some(snapshot) => from.with_snapshot_name(snapshot)?,
                None => from,
            };
            from.differs_from(to)?;
            Ok(from)
        };
        names.iter().map(source).collect()
    }

    /// Whether each can be salvaged: what is at hand, and can be read at any place, and again.
    fn check_salvage(&self, sources: &[DiskSpecification], opened: &[OpenDisk]) -> Result<()> {
        let is_stream =
            |(from, opened): &(&DiskSpecification, &OpenDisk)| from.kind() != Kind::File || opened.unpacked.is_some();
        match sources.iter().zip(opened).find(is_stream).filter(|_| self.salvage) {
            Some((source, _)) => bail!(UsageError(format!(
                "--salvage is for images and files that are not compressed, and {source} is none: leave it out"
            ))),
            None => Ok(()),
        }
    }

    /// The file of the one source, if somebody says what it holds.
    fn expected(&self, sources: &[DiskSpecification]) -> Result<Option<ExpectedFile>> {
        let (Some(digest), [source]) = (self.sha256, sources) else { return Ok(None) };
        match source.path().filter(|_| source.kind() == Kind::File) {
            Some(path) => Ok(Some(ExpectedFile::new(OpenedFile::open(path, true)?, digest)?)),
            None => bail!(UsageError(format!("--sha256 is for a file, and {source} is in none"))),
        }
    }

    /// What is copied of bitmaps; that it can be, before anything is.
    fn copied_bitmaps(
        &self,
        from: &[DiskSpecification],
        to: &DiskSpecification,
        opened: &[OpenDisk],
    ) -> Result<Option<CopiedBitmaps>> {
        if !self.bitmaps {
            return Ok(None);
        }
        let have_them = from.iter().chain([to]).all(|named| named.format() == Some(Format::Qcow2));
        let source = if let [only] = opened { only.file.as_ref() } else { None };
        let Some(source) = source.filter(|_| have_them) else {
            bail!(UsageError("--bitmaps is for a qcow2 image that becomes another: add -f qcow2 -O qcow2".to_owned()));
        };
        let bitmaps = Qcow2Info::of_opened(source)?.bitmaps;
        for Qcow2Bitmap { name, .. } in bitmaps.iter().filter(|bitmap| !bitmap.can_be_kept) {
            if !self.skip_broken_bitmaps {
                bail!(
                    "{}: the bitmap {name:?} says nothing any more: --skip-broken-bitmaps leaves it out, and image \
                     bitmap --remove takes it away",
                    shown(source.path())
                );
            }
            say(&format!("warning: leaving out the bitmap {name:?}, which says nothing any more"));
        }
        Ok(Some(CopiedBitmaps { source: source.try_clone()?, leaves_out_unusable: self.skip_broken_bitmaps }))
    }

    fn new_image(
        &self,
        path: &Path,
        named: &DiskSpecification,
        source: &WholeDisk,
        watch: &AtTerminal,
    ) -> Result<Target> {
        let (image, options) = self.layout(path, named, source.permissions)?;
        let image = image.sized_for(source, |bytes| options.size_for(bytes), watch)?;
        let allow_dirs = behind::allowed(path, image.backing.as_ref(), &self.allow_dir);
        let behind = self.behind(path, &image)?;
        Target::new_image(&image, source, behind, &allow_dirs, watch).map_err(suggest_in_place)
    }

    fn on_device(
        &self,
        path: &Path,
        named: &DiskSpecification,
        source: &WholeDisk,
        watch: &AtTerminal,
    ) -> Result<Target> {
        let (image, options) = self.layout(path, named, None)?;
        // All of a device is its storage.
        let preallocation = options.preallocation.unwrap_or_default();
        let image = NewImage { preallocation, ..image }.sized_for(source, |bytes| options.size_for(bytes), watch)?;
        if let Some(backing) = &image.backing {
            refuse_itself(&shown(path).to_string(), path, backing)?;
        }
        let behind = self.behind(path, &image)?;
        let device = device_to_make(path, &self.allow_dir)?;
        Ok(Target::on_device(&image, device, source, behind)?)
    }

    /// The disk of a new image's backing file.
    fn behind(&self, path: &Path, image: &NewImage) -> Result<Option<Arc<dyn Disk>>> {
        let allow_dirs = behind::allowed(path, image.backing.as_ref(), &self.allow_dir);
        let key_file = self.backing_key_file.as_deref();
        image.backing.as_ref().map(|backing| behind::open(path, backing, &allow_dirs, key_file)).transpose()
    }

    /// What a new image is like, but for its size, and what was said of it.
    fn layout(
        &self,
        path: &Path,
        named: &DiskSpecification,
        permissions: Option<u32>,
    ) -> Result<(NewImage, ImageOptions)> {
        named_image::refuse_use_of_new(named)?;
        let format = named.format().unwrap_or(Format::Raw);
        let options = ImageOptions::parse(&self.options, format)?;
        let key_file = self.key_file.as_ref().map(KeyFile::new).or_else(|| named.key_file().cloned());
        let encryption = options.encryption(format, key_file)?;
        if self.compress && encryption.is_some() {
            bail!(UsageError("compressed data are not encrypted: leave -c or the encryption out".to_owned()));
        }
        let data_file = options.data_file()?;
        if self.compress && data_file.is_some() {
            bail!(UsageError("a data file holds no compressed data: leave -c or data_file out".to_owned()));
        }
        if options.size_bytes.is_some() {
            bail!(UsageError("a new image has SRC's size: `blockyard image resize` changes it".to_owned()));
        }
        let refused = (format != Format::Qcow2).then_some("a backing file is for a qcow2 image: add -O qcow2");
        let backing = options.backing(self.backing.as_deref(), self.backing_format, refused, "-B")?;
        if self.compress && backing.is_some() && !options.features.can_hide_clusters() {
            bail!(UsageError(
                "-c over a backing file is for compat=1.1 without extended_l2: leave these, or -c, out".to_owned()
            ));
        }
        let is_stream = options.vmdk.is_stream;
        // Without looking for zeros, all of the image gets storage.
        let filled = if self.sparse == 0 && !self.compress && !is_stream && backing.is_none() {
            Preallocation::Falloc
        } else {
            Preallocation::Off
        };
        let preallocation = options.preallocation.unwrap_or(filled);
        if self.compress && !is_stream && (format != Format::Qcow2 || preallocation != Preallocation::Off) {
            bail!(UsageError(
                "-c is for qcow2 without preallocation, and VMDK with -o subformat=streamOptimized: add -O qcow2"
                    .to_owned()
            ));
        }
        if self.compress && options.features.refcount_order < Qcow2Features::default().refcount_order {
            bail!(UsageError(
                "-c needs refcount_bits=16 or more: compressed clusters share those of the file".to_owned()
            ));
        }
        let ImageOptions { cluster_bytes, is_fixed, vmdk, features, hints, .. } = options;
        let image = NewImage {
            permissions,
            cluster_bytes,
            is_fixed,
            vmdk,
            features,
            preallocation,
            backing,
            backing_key: self.backing_key_file.as_ref().map(KeyFile::new),
            data_file,
            encryption,
            hints,
            ..NewImage::new(path, format, 0)
        };
        Ok((image, options))
    }

    fn in_place(&self, named: &DiskSpecification, source: &WholeDisk) -> Result<Target> {
        if self.compress || !self.options.is_empty() {
            bail!(UsageError(format!("-c and -o are for new images, and {named} is written in place")));
        }
        let named = &self.cache.applied(named.clone())?;
        let disk = open_disk(named, &disk::to_write(&self.allow_dir).streaming())?;
        Ok(Target::in_place(&named.to_string(), disk.into(), source, self.target_is_zero)?)
    }
}

/// Lines about what was lost, at most; all of it is counted.
const LOST_LINES_MAX: usize = 1000;

/// Says what of a disk became zeros.
fn tell_of_lost(name: &str, lost: &Lost) {
    for LostRange { offset_bytes, length_bytes, reason } in lost.ranges.iter().take(LOST_LINES_MAX) {
        say(&format!(
            "warning: {name}: {length_bytes} bytes at offset {offset_bytes} cannot be read, and are zeros now: {reason}"
        ));
    }
    if lost.ranges.len() > 1 {
        say(&format!("warning: {name}: {} bytes are lost in all", lost.bytes));
    }
}
