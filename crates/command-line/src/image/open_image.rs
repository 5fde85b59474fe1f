//! How the command line opens an image whose files can be worked on.

use super::at_terminal::AtTerminal;
use super::backend::BackendArgs;
use super::file_command::FileCommand;
use super::mount_point;
use super::named_image;
use crate::disk;
use crate::signals::EndSignals;
use crate::usage_error::{UsageError, UsageLines};
use anyhow::{Result, bail};
use blockyard_block::specification::{DiskSpecification, Format};
use blockyard_block::{AtomicChange, BlockMapFormat, Disk, OpenedFile, Qcow2Info, VmdkInfo, printable};
use blockyard_image::guest::DISKS_MAX;
use blockyard_image::inspection::Inspection;
use blockyard_image::{Access, Backend, ImageDisk, ImageOptions, Keys, OpenImage, Resources};
use blockyard_protocol::appliance::MountPoint;
use blockyard_session::open::{OpenOptions, open_disk};
use clap::{Arg, Args, ValueEnum};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// What appliances are made of, as the program finds it that can become their kernel.
pub type FindResources = fn(Backend) -> blockyard_image::Result<Resources>;

/// What an appliance has, and is given, unless somebody says otherwise.
const MEMORY_MIB: u64 = ImageOptions::MEMORY_BYTES >> 20;
const TIMEOUT_SECONDS: u64 = ImageOptions::TIMEOUT.as_secs();

// An image's other disks, and how it is opened.
#[allow(missing_docs, reason = "clap would show it instead of the command's documentation")]
#[derive(Args, Debug)]
pub struct ImageArgs {
    /// Another disk, for what lies on several, after IMAGE; may be repeated.
    #[arg(long, value_name = "DISK")]
    pub add: Vec<String>,
    /// How it is opened.
    #[command(flatten)]
    pub how: OpenArgs,
}

// How an image is opened: options of every command on its files.
#[allow(missing_docs, reason = "clap would show it instead of the command's documentation")]
#[derive(Args, Debug)]
pub struct OpenArgs {
    /// Mount partition PART (such as sda1, vda1, 1 or vg/root) on DIR [default: /]; may be repeated, the root first.
    #[arg(short, value_name = "PART[:DIR[:OPTIONS[:TYPE]]]")]
    mount: Vec<String>,
    /// The key of encrypted volumes (LUKS), for those that are needed; without, it is asked for at the terminal.
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// The key of one encrypted volume, which may be named by its UUID; may be repeated.
    #[arg(long, value_name = "VOLUME:file:FILE")]
    key: Vec<String>,
    /// Say on stderr which operating system was found, and what is mounted where.
    #[arg(long)]
    pub inspect: bool,
    /// Write nothing to the image.
    #[arg(long)]
    pub ro: bool,
    /// Write everything at once, as `mount -o sync` does.
    #[arg(long)]
    pub sync: bool,
    /// With `unsafe`, do not wait for stable storage.
    #[arg(long, value_enum, default_value = "writeback")]
    cache: Cache,
    /// Change the image as a whole or not at all: what is written goes beside it first, and is put in place when
    /// everything has been done.
    #[arg(long)]
    atomic: bool,
    /// Give up when nothing has moved for so long, or nothing new for 30 times as long.
    #[arg(long, value_name = "SECONDS", default_value_t = TIMEOUT_SECONDS, value_parser = clap::value_parser!(u64).range(1..))]
    timeout: u64,
    /// The appliance's memory in MiB.
    #[arg(long, value_name = "MIB", default_value_t = MEMORY_MIB, value_parser = clap::value_parser!(u64).range(64..=65536))]
    pub memory: u64,
    #[command(flatten)]
    backend: BackendArgs,
    /// Directory that an image's backing and data files may lie in; may be repeated.
    #[arg(long, value_name = "DIR")]
    allow_dir: Vec<PathBuf>,
    /// Show what the appliance's kernel says.
    #[arg(long)]
    pub verbose: bool,
    /// Whether the appliance finds out how to compute the second parity of RAID 6.
    #[arg(skip)]
    pub raid6: bool,
}

/// One of these options as a command shows it that always needs the image for `access`: hidden where it means nothing.
pub fn shown_for(access: Access, arg: Arg) -> Arg {
    let hidden: &[&str] = match access {
        Access::Read => &["sync", "atomic"],
        Access::Write => &["ro"],
    };
    if hidden.contains(&arg.get_id().as_str()) { arg.hide(true) } else { arg }
}

impl Default for OpenArgs {
    fn default() -> Self {
        Self {
            mount: Vec::new(),
            key_file: None,
            key: Vec::new(),
            inspect: false,
            ro: false,
            sync: false,
            cache: Cache::Writeback,
            atomic: false,
            timeout: TIMEOUT_SECONDS,
            memory: MEMORY_MIB,
            backend: BackendArgs::default(),
            allow_dir: Vec::new(),
            verbose: false,
            raid6: false,
        }
    }
}

impl ImageArgs {
    /// The image's disks, opened, the change to the image with `--atomic`, and what the permission bits of all their
    /// files allow.
    fn disks(&self, image: &String, access: Access) -> Result<(Vec<ImageDisk>, Option<AtomicChange>, Option<u32>)> {
        if self.add.len() >= DISKS_MAX {
            return Err(UsageError(format!("an appliance has at most {DISKS_MAX} disks")).into());
        }
        if self.how.atomic && access == Access::Write && !self.add.is_empty() {
            return Err(UsageError("--atomic is for one image: several do not change at one moment".to_owned()).into());
        }
        let (mut disks, mut change, mut permissions) = (Vec::new(), None, None);
        for name in [image].into_iter().chain(&self.add) {
            let opened = self.how.open_disk(name, named_image::parse(name, None)?, None, access)?;
            disks.push(opened.image);
            change = change.or(opened.change);
            permissions = both(permissions, opened.permissions);
        }
        Ok((disks, change, permissions))
    }
}

impl OpenArgs {
    /// Opens the disk of an image that somebody called `name`, and whose file may be open already, for no more than
    /// `access`. With `--atomic`, what is written to it is a change to the image, which must be one file.
    ///
    /// # Errors
    /// When it cannot be opened so; [`UsageError`] when it is no file that can be changed as a whole; when no file can
    /// be made beside it.
    pub fn open_disk(
        &self,
        name: &str,
        named: DiskSpecification,
        file: Option<&OpenedFile>,
        access: Access,
    ) -> Result<OpenedDisk> {
        let named = match self.cache {
            Cache::Writeback => named,
            Cache::Unsafe => named.with_cache_unsafe().map_err(UsageLines::from)?,
        };
        let read_only = access == Access::Read;
        let opened =
            open_disk(&named, &OpenOptions { file, read_only, has_secrets: true, ..disk::to_write(&self.allow_dir) })?;
        if !read_only && opened.disk.geometry().read_only {
            bail!("{name} is read-only");
        }
        let change =
            if self.atomic && !read_only { Some(begin_change(&named, &opened.disk, opened.file)?) } else { None };
        let disk = change.as_ref().map_or(opened.disk, AtomicChange::disk);
        Ok(OpenedDisk { image: ImageDisk { disk, name: name.into() }, change, permissions: opened.permissions })
    }

    /// What `-m` says.
    ///
    /// # Errors
    /// [`UsageError`] when that makes no sense.
    pub fn mount_points(&self) -> Result<Vec<MountPoint>> {
        self.mount.iter().map(|text| mount_point::parse(text)).collect()
    }
}

/// A disk of an image.
pub struct OpenedDisk {
    /// The disk.
    pub image: ImageDisk,
    /// With `--atomic`: what is written to it.
    pub change: Option<AtomicChange>,
    /// What the permission bits of its files allow; `None` for one that is in none.
    pub permissions: Option<u32>,
}

/// What two files' permission bits allow together.
pub fn both(one: Option<u32>, other: Option<u32>) -> Option<u32> {
    one.zip(other).map(|(one, other)| one & other).or(one).or(other)
}

/// Begins a change to the image that is `named`.
fn begin_change(named: &DiskSpecification, disk: &Arc<dyn Disk>, file: Option<OpenedFile>) -> Result<AtomicChange> {
    if named.is_cache_unsafe() {
        return Err(UsageError("--atomic waits for stable storage: leave out cache unsafe".to_owned()).into());
    }
    let is_file = |file: &OpenedFile| file.file().metadata().is_ok_and(|metadata| metadata.is_file());
    let Some(file) = file.filter(|file| named.image_file().is_some() && is_file(file)) else {
        return Err(UsageError(format!("--atomic is for an image that is a file, and {named} is none")).into());
    };
    // A change that was cut off is kept, and known, by the image's own file.
    if let Some(other) = other_file(named, &file)? {
        bail!(
            "{named} cannot be changed with --atomic: it is in several files ({}), and who uses that one by itself would \
             not see a change that was cut off: convert it into one file, or leave out --atomic",
            printable(&other)
        );
    }
    Ok(AtomicChange::begin(Arc::clone(disk), file)?)
}

/// What an image calls another file that has bytes of its own disk, if one has.
fn other_file(named: &DiskSpecification, file: &OpenedFile) -> Result<Option<String>> {
    Ok(match named.format() {
        Some(Format::Qcow2) => Qcow2Info::of_opened(file)?.data_file,
        Some(Format::BlockMap(BlockMapFormat::Vmdk)) => {
            VmdkInfo::of(file)?.extents.into_iter().find_map(|extent| extent.name)
        }
        _ => None,
    })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Cache {
    /// What is done is on stable storage.
    Writeback,
    /// It may not be.
    Unsafe,
}

/// Opens an image as `command` needs it, and mounts its file systems if it wants them.
///
/// # Errors
/// When the image or the appliance cannot be had, or it has no file system that can be mounted.
pub fn open(
    image: &String,
    args: &ImageArgs,
    command: &dyn FileCommand,
    resources: FindResources,
) -> Result<OpenImage> {
    let access = if args.how.ro && command.may_only_read() { Access::Read } else { command.access() };
    if access == Access::Write && args.how.ro {
        return Err(UsageError("--ro is for commands that only look".to_owned()).into());
    }
    let points = args.how.mount_points()?;
    let (disks, change, permissions) = args.disks(image, access)?;
    let options = args.how.options(disks, access)?.lives_on(command.lives_on());
    let options = options.change(change).permissions(permissions);
    let mut image = args.how.boot(options, resources, EndSignals::catch()?)?;
    let mounts = command.mounts() || !points.is_empty();
    image.set_points(points);
    if mounts {
        args.how.mount(&mut image)?;
    }
    Ok(image)
}

impl OpenArgs {
    /// How an appliance is booted with `disks`.
    ///
    /// # Errors
    /// When a key cannot be read.
    pub fn options(&self, disks: Vec<ImageDisk>, access: Access) -> Result<ImageOptions> {
        let keys = Keys::read(self.key_file.as_deref(), &self.key)?;
        let options = ImageOptions::new(disks).access(access).keys(keys).memory_bytes(self.memory << 20);
        let options = options.raid6(self.raid6).timeout(Duration::from_secs(self.timeout)).synchronous(self.sync);
        Ok(options.durable(self.cache == Cache::Writeback))
    }

    /// Boots it. `signals` end what is asked of it, or the appliance.
    ///
    /// # Errors
    /// When it does not come up.
    pub fn boot(&self, options: ImageOptions, resources: FindResources, signals: EndSignals) -> Result<OpenImage> {
        Ok(options.boot(resources(self.backend.backend())?, Arc::new(AtTerminal::new(signals, self.verbose)))?)
    }

    /// Mounts what was set, or is found; with `--inspect`, says before which system it is.
    ///
    /// # Errors
    /// When it cannot be.
    pub fn mount(&self, image: &mut OpenImage) -> Result<Vec<MountPoint>> {
        if self.inspect {
            let found = image.inspect()?;
            greeting(&found).iter().for_each(|line| image.note(line));
        }
        Ok(image.mount()?)
    }
}

/// What guestfish -i says of the first: a line for the system, and one for each mount point.
fn greeting(inspection: &Inspection) -> Vec<String> {
    let Some(system) = inspection.operatingsystems.first() else {
        return vec!["no operating system was found".to_owned()];
    };
    let mut lines = vec![format!("operating system: {}", system.title())];
    lines.extend(system.mountpoints.iter().map(|point| format!("{} mounted on {}", point.dev, point.mountpoint)));
    lines
}
