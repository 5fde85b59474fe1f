//! An image whose files can be worked on: an appliance that has it mounted.

use super::copying::read_in;
use super::file_commands::{Access, FileCommand};
use super::inspect::{Inspection, Inspector};
use super::keys::Keys;
use super::layers::{Asking, Layers, Needs};
use super::mount_point;
use super::records::RecordStream;
use super::requests;
use crate::disk::{self, RECONNECT};
use crate::signals::EndSignals;
use crate::terminal::{self, OutputError};
use crate::watched_disk::WatchedDisk;
use crate::{UsageError, UsageLines};
use anyhow::{Context, Result, anyhow, bail};
use blockyard_appliance::{Appliance, ApplianceOptions, Confined, ImageDisk, Kernel, StreamSink, kernel_process};
use blockyard_block::layers::ZerosAsHoles;
use blockyard_block::specification::DiskSpecification;
use blockyard_block::{AtomicChange, Disk, Geometry, OpenedFile, printable};
use blockyard_protocol::appliance::{Failure, Inspect, Mount, MountPoint, Operation, Record, Response};
use clap::{Args, ValueEnum};
use rustix::io::Errno;
use std::ffi::OsString;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// PID 1 of the appliance.
static AGENT: &[u8] = include_bytes!(env!("BLOCKYARD_AGENT"));

/// The command that becomes the appliance's kernel.
const KERNEL_COMMAND: &str = "appliance-kernel";

/// What an appliance has, and is given, unless somebody says otherwise.
const MEMORY_MIB: u64 = 256;
const TIMEOUT_SECONDS: u64 = 60;

// An image's other disks, and how it is opened. No documentation comment: clap would show it instead of the command's.
#[derive(Args, Debug)]
pub struct ImageArgs {
    /// Another disk, for what lies on several, after IMAGE; may be repeated.
    #[arg(long, value_name = "DISK")]
    pub add: Vec<String>,
    #[command(flatten)]
    pub how: OpenArgs,
}

// How an image is opened: options of every command on its files. No documentation comment, as above.
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
    /// Change the image as a whole or not at all: what is written goes beside it first, and is put in place when everything has been done.
    #[arg(long)]
    atomic: bool,
    /// Give up when nothing has moved for so long, or nothing new for 30 times as long.
    #[arg(long, value_name = "SECONDS", default_value_t = TIMEOUT_SECONDS, value_parser = clap::value_parser!(u64).range(1..))]
    timeout: u64,
    /// The appliance's memory in MiB.
    #[arg(long, value_name = "MIB", default_value_t = MEMORY_MIB, value_parser = clap::value_parser!(u64).range(64..=65536))]
    pub memory: u64,
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
            allow_dir: Vec::new(),
            verbose: false,
            raid6: false,
        }
    }
}

impl ImageArgs {
    /// The image's disks, opened, the change to the image with `--atomic`, and what the permission bits of all their files allow.
    fn disks(&self, image: &String, access: Access) -> Result<(Vec<ImageDisk>, Option<AtomicChange>, Option<u32>)> {
        if self.add.len() >= DISKS_MAX {
            return Err(UsageError(format!("an appliance has at most {DISKS_MAX} disks")).into());
        }
        if self.how.atomic && access == Access::Write && !self.add.is_empty() {
            return Err(UsageError("--atomic is for one image: several do not change at one moment".to_owned()).into());
        }
        let (mut disks, mut change, mut permissions) = (Vec::new(), None, None);
        for name in [image].into_iter().chain(&self.add) {
            let opened = self.how.open_disk(name, None, access)?;
            disks.push(opened.image);
            change = change.or(opened.change);
            permissions = both(permissions, opened.permissions);
        }
        Ok((disks, change, permissions))
    }
}

impl OpenArgs {
    /// Opens a disk of an image, whose file may be open already, for no more than `access`. With `--atomic`, what is written to it is a change to the image, which must be one
    /// file.
    ///
    /// # Errors
    /// When it cannot be opened so; [`UsageError`] when it is no file that can be changed as a whole; when no file can be made beside it.
    pub fn open_disk(&self, name: &str, file: Option<&OpenedFile>, access: Access) -> Result<OpenedDisk> {
        let named: DiskSpecification = name.parse().map_err(UsageLines::from)?;
        let named = match self.cache {
            Cache::Writeback => named,
            Cache::Unsafe => named.with_cache_unsafe().map_err(UsageLines::from)?,
        };
        let read_only = access == Access::Read;
        let opened = disk::open_whole(
            &named,
            &disk::Access { file, read_only, allow_dirs: &self.allow_dir, reconnect: RECONNECT },
        )?;
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
    match file.filter(|file| named.image_file().is_some() && is_file(file)) {
        Some(file) => Ok(AtomicChange::begin(Arc::clone(disk), file)?),
        None => Err(UsageError(format!("--atomic is for an image that is a file, and {named} is none")).into()),
    }
}

/// Disks that have a name of one letter, but for two that data go through.
pub const DISKS_MAX: usize = 24;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Cache {
    /// What is done is on stable storage.
    Writeback,
    /// It may not be.
    Unsafe,
}

/// A hidden command: the process that becomes the appliance's kernel.
#[derive(Args)]
pub struct KernelArgs {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Becomes the appliance's kernel.
///
/// # Errors
/// When it cannot.
pub fn run_kernel(args: &KernelArgs) -> Result<()> {
    kernel_process::run(&args.arguments, &[KERNEL_COMMAND])
        .context("cannot start the appliance's kernel")
        .map(|never| match never {})
}

/// Boots an appliance without a disk, as a trial; how far it is shut in.
///
/// # Errors
/// When it does not come up.
pub fn try_appliance(kernel: Kernel) -> Result<Confined> {
    let boot = Boot {
        kernel,
        disks: Vec::new(),
        memory_bytes: MEMORY_MIB << 20,
        raid6: false,
        timeout: Duration::from_secs(TIMEOUT_SECONDS),
        verbose: false,
        lives_on: false,
        signals: EndSignals::catch()?,
    };
    Ok(boot.boot()?.confined())
}

/// An appliance with an image's disks, and mostly with its file systems mounted.
pub struct OpenImage {
    /// The guest.
    pub appliance: Appliance,
    name: String,
    /// The disks by their names: they know why a request to them failed, which the guest does not.
    watched: Vec<(Arc<str>, Arc<WatchedDisk>)>,
    access: Access,
    capacity_bytes: u64,
    disks: Vec<Arc<ZerosAsHoles>>,
    /// With `--atomic`: what makes what was written happen.
    change: Option<AtomicChange>,
    /// What the permission bits of the disks' files allow: what is made of all of a disk should not be for more people.
    pub permissions: Option<u32>,
    /// Files of the host that are written are on stable storage before the command succeeds.
    pub durable: bool,
    /// What shall be mounted; nothing: what is found.
    points: Vec<MountPoint>,
    /// How to boot the appliance again.
    boot: Boot,
    keys: Rc<Keys>,
    /// What was opened so that there is something to mount.
    pub(super) layers: Layers,
    /// Our stdin is for commands that want it, and not what commands are read from.
    pub has_stdin: bool,
}

/// How an appliance is booted.
struct Boot {
    kernel: Kernel,
    disks: Vec<ImageDisk>,
    memory_bytes: u64,
    raid6: bool,
    timeout: Duration,
    verbose: bool,
    lives_on: bool,
    signals: EndSignals,
}

impl Boot {
    fn boot(&self) -> Result<Appliance> {
        let signals = self.signals.clone();
        let options = ApplianceOptions {
            kernel: self.kernel.clone(),
            agent: AGENT,
            launcher: ("/proc/self/exe".into(), vec![KERNEL_COMMAND]),
            memory_bytes: self.memory_bytes,
            raid6: self.raid6,
            timeout: self.timeout,
            console: self.verbose.then(|| Box::new(io::stderr()) as Box<dyn Write + Send>),
            interrupted: Box::new(move || signals.name()),
            lives_on: self.lives_on,
        };
        Ok(Appliance::boot(options, &self.disks)?)
    }
}

impl OpenImage {
    /// Boots an appliance with the image, as `command` needs it.
    ///
    /// # Errors
    /// When the image or the appliance cannot be had, or it has no file system that can be mounted.
    pub fn open(image: &String, args: &ImageArgs, command: &dyn FileCommand) -> Result<Self> {
        let access = if args.how.ro && command.may_only_read() { Access::Read } else { command.access() };
        if access == Access::Write && args.how.ro {
            return Err(UsageError("--ro is for commands that only look".to_owned()).into());
        }
        let points = args.how.mount_points()?;
        let (disks, change, permissions) = args.disks(image, access)?;
        let mut image = Self::boot(&args.how, access, &disks, EndSignals::catch()?, command.lives_on())?;
        (image.change, image.permissions) = (change, permissions);
        image.points = points;
        if command.mounts() || !image.points.is_empty() {
            image.mount(&args.how)?;
        }
        Ok(image)
    }

    /// Boots an appliance with the disks of an image. With `lives_on`, a signal ends what is asked of it and not the appliance.
    ///
    /// # Errors
    /// When it does not come up.
    pub fn boot(
        how: &OpenArgs,
        access: Access,
        disks: &[ImageDisk],
        signals: EndSignals,
        lives_on: bool,
    ) -> Result<Self> {
        let capacity_bytes =
            disks.iter().fold(0u64, |sum, image| sum.saturating_add(image.disk.geometry().capacity_bytes));
        let keys = Rc::new(Keys::read(how.key_file.as_deref(), &how.key, signals.clone())?);
        let watch = |image: &ImageDisk| (Arc::clone(&image.name), Arc::new(WatchedDisk::new(Arc::clone(&image.disk))));
        let watched: Vec<_> = disks.iter().map(watch).collect();
        let over = |(_, disk): &(_, Arc<WatchedDisk>)| Arc::new(ZerosAsHoles::new(Arc::clone(disk) as Arc<dyn Disk>));
        let holes: Vec<_> = watched.iter().map(over).collect();
        let images = disks.iter().zip(&holes).map(|(image, layer)| {
            let disk: Arc<dyn Disk> = Arc::clone(layer) as Arc<dyn Disk>;
            ImageDisk { disk, name: Arc::clone(&image.name) }
        });
        let boot = Boot {
            kernel: Kernel::find()?,
            disks: images.collect(),
            memory_bytes: how.memory << 20,
            raid6: how.raid6,
            timeout: Duration::from_secs(how.timeout),
            verbose: how.verbose,
            lives_on,
            signals,
        };
        let appliance = boot.boot()?;
        if !appliance.confined().is_enough() {
            terminal::say(UNCONFINED);
        }
        let name = disks.first().map_or_else(String::new, |disk| disk.name.to_string());
        let durable = how.cache == Cache::Writeback;
        Ok(Self {
            appliance,
            name,
            watched,
            access,
            capacity_bytes,
            disks: holes,
            change: None,
            permissions: None,
            durable,
            points: Vec::new(),
            boot,
            keys,
            layers: Layers::default(),
            has_stdin: true,
        })
    }

    /// Boots the appliance again, with more. What was opened and mounted in it is not any more.
    pub(super) fn boot_again(&mut self, needs: Needs) -> Result<()> {
        self.boot.memory_bytes = self.boot.memory_bytes.max(needs.memory_bytes);
        self.boot.raid6 |= needs.raid6;
        self.layers = Layers::default();
        self.appliance.end();
        self.appliance = self.boot.boot()?;
        Ok(())
    }

    /// Says that something failed because the appliance has too little memory.
    pub fn tell_of_memory(&self) {
        let mebibytes = self.boot.memory_bytes >> 20;
        self.tell(&format!("the appliance's memory was used up: --memory gives it more than {mebibytes} MiB"));
    }

    /// What the appliance has of what something may need.
    pub(super) fn has(&self) -> Needs {
        Needs { memory_bytes: self.boot.memory_bytes, raid6: self.boot.raid6 }
    }

    /// Whether nothing may be written.
    pub fn reads_only(&self) -> bool {
        self.access == Access::Read
    }

    /// The keys that the command line gives.
    pub(super) fn keys(&self) -> Rc<Keys> {
        Rc::clone(&self.keys)
    }

    /// Mounts its points, or what is found if there are none, instead of all that is mounted; says what is mounted then.
    ///
    /// # Errors
    /// When one of them cannot be: then nothing is mounted.
    fn mount(&mut self, how: &OpenArgs) -> Result<Vec<MountPoint>> {
        if how.inspect {
            self.inspect()?.greeting().iter().for_each(|line| self.tell(line));
        }
        if self.points.iter().any(|point| point.device.starts_with("loop:")) {
            self.appliance.install_modules()?;
        }
        let mut response = self.try_mount(how.sync)?;
        // Other failures have an error's number.
        let fails = response.failures.first().is_some_and(|failure| failure.errno == 0);
        // What lies in layers is opened when something is missing without it.
        if response.closed && (fails || !response.notes.is_empty()) {
            let asking = if fails { Asking::Terminal } else { Asking::Nobody };
            if self.open_layers(asking).with_context(|| self.name.clone())? {
                response = self.try_mount(how.sync)?;
            }
        }
        let response = self.judge(response).with_context(|| self.name.clone())?;
        for point in response.mounted.iter().filter(|point| !point.note.is_empty()) {
            self.tell(&format!("{}: {}", point.device, point.note));
        }
        response.notes.iter().for_each(|note| self.tell(note));
        Ok(response.mounted)
    }

    fn try_mount(&mut self, synchronous: bool) -> Result<Response> {
        let (read_only, points) = (self.reads_only(), self.points.clone());
        Ok(self.appliance.call(Operation::Mount(Mount { read_only, synchronous, disks: self.disks(), points }))?)
    }

    /// As [`OpenImage::mount`], with other points.
    ///
    /// # Errors
    /// As there.
    pub fn mount_points(&mut self, points: Vec<MountPoint>, how: &OpenArgs) -> Result<Vec<MountPoint>> {
        self.points = points;
        self.mount(how)
    }

    /// For a command that reads stdin.
    ///
    /// # Errors
    /// When the commands come from there.
    pub fn claim_stdin(&self) -> Result<()> {
        if self.has_stdin { Ok(()) } else { bail!("stdin is where the commands come from: name a file") }
    }

    /// What the image is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How many disks the image is: the appliance's first.
    pub fn disks(&self) -> u32 {
        self.disks.len() as u32
    }

    /// Gives back, from now on, the storage of what is zeroed on the image's disks, and zeroes what is discarded; or not any more.
    pub fn zeros_as_holes(&self, on: bool) {
        self.disks.iter().for_each(|disk| disk.switch(on));
    }

    /// Whether the image's disks do what `is_done` says of one.
    pub fn all_disks(&self, is_done: impl Fn(&Geometry) -> bool) -> bool {
        self.disks.iter().all(|disk| is_done(&disk.geometry()))
    }

    /// Says something that is no failure.
    pub(super) fn tell(&self, line: &str) {
        terminal::say(&format!("{}: {}", printable(&self.name), printable(line)));
    }

    /// Finds out which operating systems there are. Afterwards nothing is mounted.
    ///
    /// # Errors
    /// When what was to be mounted for it cannot be.
    pub fn inspect(&mut self) -> Result<Inspection> {
        let found = self.inspect_opened();
        let (closed, none) = found.as_ref().map_or((true, true), |found| (found.is_partly_closed(), found.is_empty()));
        let asking = if none && self.keys.can_ask() { Asking::Terminal } else { Asking::Nobody };
        if closed && self.open_layers(asking).with_context(|| self.name.clone())? {
            self.inspect_opened()
        } else {
            found
        }
    }

    /// As [`OpenImage::inspect`], whatever was mounted or shall be.
    ///
    /// # Errors
    /// As there.
    pub fn inspect_all(&mut self) -> Result<Inspection> {
        self.points.clear();
        self.inspect()
    }

    /// Mounts a system for a look, instead of all that is mounted.
    ///
    /// # Errors
    /// When it cannot be.
    pub fn mount_for_a_look(&mut self, points: Vec<MountPoint>) -> Result<()> {
        let mount = Mount { read_only: true, synchronous: false, disks: self.disks(), points };
        self.call(Operation::Mount(mount)).map(drop)
    }

    fn inspect_opened(&mut self) -> Result<Inspection> {
        loop {
            let inspect = Inspect { disks: self.disks(), points: self.points.clone() };
            let found = self.records(Operation::Inspect(inspect), Inspector::default());
            // It ends: each time there are modules that were not there before.
            if !self.appliance.take_supplied() {
                return found.with_context(|| self.name.clone());
            }
        }
    }

    /// Has the appliance do something.
    ///
    /// # Errors
    /// When it failed, in part or as a whole: a line for each of the first few failures.
    pub fn call(&mut self, mut operation: Operation) -> Result<Response> {
        if let Some(sources) = requests::streamed_sources(&mut operation) {
            let bytes = read_in(self, operation, io::Cursor::new(sources))?;
            return Ok(Response { bytes, ..Response::default() });
        }
        let mut whole = Response::default();
        for part in requests::split(operation) {
            let response = self.appliance.call(part)?;
            response.notes.iter().for_each(|note| self.tell(note));
            let (failures, failed, bytes) = (whole.failures, whole.failed, whole.bytes);
            whole = Response { failed: failed + response.failed, bytes: bytes + response.bytes, ..response };
            whole.failures.splice(0..0, failures);
        }
        self.judge(whole)
    }

    fn judge(&self, response: Response) -> Result<Response> {
        self.told(&response.failures, response.failed)?;
        Ok(response)
    }

    /// Why a request to a disk failed on the host, if one did.
    fn failed_request(&self) -> Option<String> {
        let failed = |(name, disk): &(Arc<str>, Arc<WatchedDisk>)| Some((Arc::clone(name), disk.first_error()?));
        let (name, error) = self.watched.iter().find_map(failed)?;
        let advice = match (self.reads_only(), self.is_atomic()) {
            (false, false) => {
                "; once it works again, `blockyard image fsck -y` repairs what is damaged, and with --atomic such a change would be undone"
            }
            _ => "",
        };
        Some(format!("{name}: a request to it failed: {error}{advice}"))
    }

    /// An error that says each of the first few failures, if there are any, and what is known besides.
    pub fn told(&self, failures: &[Failure], count: u64) -> Result<()> {
        if failures.is_empty() {
            return Ok(());
        }
        let mut lines: Vec<_> = failures.iter().take(FAILURES_MAX).map(sentence).collect();
        let more = count.saturating_sub(lines.len() as u64);
        if more > 0 {
            lines.push(format!("{more} more failures"));
        }
        if let Some(error) = self.failed_request() {
            lines.push(error);
        } else if failures.iter().any(|failure| DAMAGE.contains(&failure.errno)) {
            let said = self.appliance.kernel_log();
            if !said.is_empty() {
                lines.push(format!("the appliance's kernel says: {}", said.join(" · ")));
            }
        }
        Err(anyhow!(lines.join("\nblockyard: ")))
    }

    /// Has the appliance list something, and gives each record to `take`, in a thread of its own. What could not be looked at is an
    /// error when all the rest was.
    ///
    /// # Errors
    /// When it failed, or `take` did.
    pub fn records<T, H>(&mut self, operation: Operation, take: H) -> Result<T>
    where
        T: Send + 'static,
        H: RecordTaker<Output = T>,
    {
        let (result, failures) = self.records_and_failures(operation, take)?;
        self.told(&failures, failures.len() as u64).map(|()| result)
    }

    /// As [`OpenImage::records`], with what could not be looked at.
    ///
    /// # Errors
    /// When it failed as a whole, or `take` did.
    pub fn records_and_failures<T, H>(&mut self, operation: Operation, take: H) -> Result<(T, Vec<Failure>)>
    where
        T: Send + 'static,
        H: RecordTaker<Output = T>,
    {
        let mut records = RecordStream::new(take);
        for part in requests::split(operation) {
            let sink = StreamSink::with_bytes_max(records, self.bytes_max()).context("making a stream")?;
            self.appliance.bind_sink_stream(&sink);
            let response = self.appliance.call(part)?;
            let finished = sink.finish();
            self.appliance.release();
            records = match finished {
                // The output's own failure is why the appliance failed.
                Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => return Err(OutputError(error).into()),
                finished => {
                    self.judge(response)?;
                    finished.context("the appliance's answer is not whole")?
                }
            };
        }
        let (taker, failures) = records.into_parts();
        Ok((taker.finish().map_err(OutputError)?, failures))
    }

    /// As [`OpenImage::records`], when something that is not there is no failure.
    ///
    /// # Errors
    /// As there.
    pub fn records_if_any<T, H>(&mut self, operation: Operation, take: H) -> Result<T>
    where
        T: Send + 'static,
        H: RecordTaker<Output = T>,
    {
        let (result, mut failures) = self.records_and_failures(operation, take)?;
        failures.retain(|failure| errno(failure) != Some(Errno::NOENT));
        self.told(&failures, failures.len() as u64).map(|()| result)
    }

    /// More than the files of the image can have, as files mostly are: what claims to be more goes where it does no harm, or is not honest.
    pub fn bytes_max(&self) -> u64 {
        self.capacity_bytes.saturating_mul(BYTES_PER_IMAGE_BYTE_MAX).saturating_add(1 << 30)
    }

    /// The same for what goes to a file or a directory: there may be more, as a file system that compresses packs a thousand bytes into one,
    /// while at least half of the room is left that is there. What goes through a pipe is for who reads it to bound.
    pub fn bytes_max_into(&self, place: impl AsFd) -> u64 {
        let free = rustix::fs::fstatvfs(place).map_or(0, |found| match found.f_blocks {
            0 => u64::MAX,
            _ => found.f_bavail.saturating_mul(found.f_frsize),
        });
        let compressed = self.capacity_bytes.saturating_mul(BYTES_PER_COMPRESSED_BYTE_MAX);
        self.bytes_max().max(compressed.min(free / 2))
    }

    /// More than an image can have files, whatever they are.
    pub fn files_max(&self) -> u64 {
        (self.capacity_bytes / BYTES_PER_FILE_MIN).saturating_add(1 << 20)
    }

    /// Unmounts, so that what was changed is on stable storage.
    ///
    /// # Errors
    /// When it is not.
    pub fn close(mut self) -> Result<()> {
        self.unmount()?;
        if self.reads_only() {
            return Ok(());
        }
        self.close_layers().with_context(|| self.name.clone())?;
        self.check_written()?;
        let Self { appliance, disks, watched, boot, change, .. } = self;
        // They let go of the disk.
        drop((appliance, disks, watched, boot));
        change.map_or(Ok(()), |change| Ok(change.commit()?))
    }

    /// Whether nothing has been changed until it is closed.
    pub fn is_atomic(&self) -> bool {
        self.change.is_some()
    }

    /// Gives up what was changed, if that is still possible: says so, beside `error`.
    pub fn give_up(self, error: anyhow::Error) -> anyhow::Error {
        if self.is_atomic() { error.context(format!("{} is as it was", self.name)) } else { error }
    }

    /// Unmounts all, so that what was changed is on stable storage.
    ///
    /// # Errors
    /// When it is not.
    pub fn unmount(&mut self) -> Result<()> {
        if self.reads_only() {
            return Ok(());
        }
        self.call(Operation::Unmount).with_context(|| self.name.clone())?;
        self.check_written()
    }

    fn check_written(&self) -> Result<()> {
        // Linux unmounts a file system whose last writes failed without a word.
        self.failed_request().map_or(Ok(()), |why| bail!("what was written is not all there: {why}"))
    }
}

/// Somebody who takes the records of a listing.
pub trait RecordTaker: Send + 'static {
    /// What comes of it.
    type Output;
    /// Takes the next one.
    ///
    /// # Errors
    /// When its output fails.
    fn take(&mut self, record: Record) -> io::Result<()>;
    /// There are no more.
    ///
    /// # Errors
    /// When its output fails.
    fn finish(self) -> io::Result<Self::Output>;
}

/// What numbers errors have (linux/err.h): the appliance may say others.
const ERRNOS: std::ops::RangeInclusive<i32> = 1..=4095;

/// Numbers of errors that a damaged file system has: EIO, EINVAL, EROFS, EBADMSG, EUCLEAN.
const DAMAGE: [u32; 5] = [5, 22, 30, 74, 117];

/// What is said where nothing of what confines an appliance can be had.
const UNCONFINED: &str = "warning: this machine has neither namespaces nor Landlock nor seccomp's notifications for the appliance, so an \
                          image that takes over its kernel has your rights on this machine";

/// Failures that are told one by one.
const FAILURES_MAX: usize = 16;

/// A file's inode, or one of its names, takes as much at least; where it is compressed, less.
const BYTES_PER_FILE_MIN: u64 = 64;

/// Files may be compressed by their file system.
const BYTES_PER_IMAGE_BYTE_MAX: u64 = 16;
/// By one that is made for that, and once.
const BYTES_PER_COMPRESSED_BYTE_MAX: u64 = 1024;

/// Failures as sentences, one a line.
pub fn sentences(failures: &[Failure]) -> String {
    failures.iter().map(sentence).collect::<Vec<_>>().join("\nblockyard: ")
}

/// A failure as a sentence.
fn sentence(failure: &Failure) -> String {
    let path = printable(&String::from_utf8_lossy(&failure.path));
    let what = printable(&failure.sentence);
    let subject = if path.is_empty() { what } else { format!("{path}: {what}") };
    match errno(failure) {
        None => subject,
        Some(errno @ Errno::NOMEM) => {
            format!("{subject}: {} (--memory gives the appliance more)", error_text(errno.raw_os_error()))
        }
        Some(errno) => format!("{subject}: {}", error_text(errno.raw_os_error())),
    }
}

/// A failure's error number, if it has one: the appliance may say anything.
pub fn errno(failure: &Failure) -> Option<Errno> {
    let number = i32::try_from(failure.errno).ok().filter(|number| ERRNOS.contains(number))?;
    Some(Errno::from_raw_os_error(number))
}

/// What an error's number means.
pub fn error_text(errno: i32) -> String {
    let text = io::Error::from_raw_os_error(errno).to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

/// A path of the image as the appliance wants it: from its root.
pub fn image_path(path: &Path) -> Vec<u8> {
    let bytes = path.as_os_str().as_bytes();
    if bytes.starts_with(b"/") { bytes.to_vec() } else { [b"/", bytes].concat() }
}

/// Several.
pub fn image_paths(paths: &[PathBuf]) -> Vec<Vec<u8>> {
    paths.iter().map(|path| image_path(path)).collect()
}

/// Bytes of a path as a path.
pub fn path_of(bytes: Vec<u8>) -> PathBuf {
    OsString::from_vec(bytes).into()
}
