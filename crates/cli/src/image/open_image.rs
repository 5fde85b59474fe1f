//! An image whose files can be worked on: an appliance that has it mounted.

use super::file_commands::{Access, FileCommand};
use super::records::RecordStream;
use crate::UsageError;
use crate::destination::replaced_file;
use crate::disk::open_disk;
use crate::signals::EndSignals;
use anyhow::{Context, Result, anyhow, bail};
use blockyard_appliance::{Appliance, ApplianceOptions, ImageDisk, Kernel, StreamSink, kernel_process};
use blockyard_block::layers::ZerosAsHoles;
use blockyard_block::specification::DiskSpecification;
use blockyard_block::{AtomicChange, Disk, Geometry, printable};
use blockyard_protocol::appliance::{Failure, Mount, MountPoint, Operation, Record, Response, Unmount};
use clap::{Args, ValueEnum};
use rustix::io::Errno;
use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// PID 1 of the appliance.
static AGENT: &[u8] = include_bytes!(env!("BLOCKYARD_AGENT"));

/// The command that becomes the appliance's kernel.
const KERNEL_COMMAND: &str = "appliance-kernel";

/// What an appliance has, and is given, unless somebody says otherwise.
const MEMORY_MIB: u64 = 256;
const TIMEOUT_SECONDS: u64 = 60;

/// An image, and how it is opened.
#[derive(Args, Debug)]
pub struct ImageArgs {
    /// The image: a disk specification.
    #[arg(value_name = "IMAGE")]
    image: String,
    #[command(flatten)]
    how: OpenArgs,
}

/// Options of every command on an image's files: how it is opened.
#[derive(Args, Debug)]
pub struct OpenArgs {
    /// Mount partition PART (such as sda1, vda1 or 1) on DIR [default: /]; may be repeated, the root first.
    #[arg(short, value_name = "PART[:DIR]")]
    mount: Vec<String>,
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
}

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

/// An appliance with an image's disks, and mostly with its file systems mounted.
pub struct OpenImage {
    /// The guest.
    pub appliance: Appliance,
    name: String,
    access: Access,
    capacity_bytes: u64,
    disks: Vec<Arc<ZerosAsHoles>>,
    /// With `--atomic`: what makes what was written happen.
    change: Option<AtomicChange>,
    /// Files of the host that are written are on stable storage before the command succeeds.
    pub durable: bool,
}

impl Default for OpenArgs {
    fn default() -> Self {
        Self {
            mount: Vec::new(),
            ro: false,
            sync: false,
            cache: Cache::Writeback,
            atomic: false,
            timeout: TIMEOUT_SECONDS,
            memory: MEMORY_MIB,
            allow_dir: Vec::new(),
            verbose: false,
        }
    }
}

impl OpenArgs {
    /// Opens a disk of an image, for no more than `access`.
    ///
    /// # Errors
    /// When it cannot be opened so.
    pub fn open_disk(&self, image: &str, access: Access) -> Result<ImageDisk> {
        let specification = match self.cache {
            Cache::Writeback => image.to_owned(),
            Cache::Unsafe => format!("{image},cache=unsafe"),
        };
        let disk = open_disk(&specification, access == Access::Read, &self.allow_dir)?;
        Ok(ImageDisk { disk, name: image.into() })
    }

    /// With `--atomic`, a change to the image, which is one file.
    fn begin_change(&self, disks: &[ImageDisk]) -> Result<Option<AtomicChange>> {
        if !self.atomic {
            return Ok(None);
        }
        let [image] = disks else {
            return Err(UsageError("--atomic is for one image: several do not change at one moment".to_owned()).into());
        };
        let named: DiskSpecification = image.name.parse().map_err(|error| UsageError(format!("{error}")))?;
        let Some(path) = replaced_file(&named) else {
            return Err(UsageError(format!("--atomic is for an image that is a file, and {named} is none")).into());
        };
        if self.cache == Cache::Unsafe || named.is_cache_unsafe() {
            return Err(UsageError("--atomic waits for stable storage: leave out cache unsafe".to_owned()).into());
        }
        Ok(Some(AtomicChange::begin(Arc::clone(&image.disk), path)?))
    }

    /// What `-m` says.
    ///
    /// # Errors
    /// [`UsageError`] when that makes no sense.
    pub fn mount_points(&self) -> Result<Vec<MountPoint>> {
        self.mount.iter().map(|text| mount_point(text)).collect()
    }
}

impl OpenImage {
    /// Boots an appliance with the image, as `command` needs it.
    ///
    /// # Errors
    /// When the image or the appliance cannot be had, or it has no file system that can be mounted.
    pub fn open(args: &ImageArgs, command: &impl FileCommand) -> Result<Self> {
        let access = command.access();
        if access == Access::Write && args.how.ro {
            return Err(UsageError("--ro is for commands that only look".to_owned()).into());
        }
        let points = args.how.mount_points()?;
        let disk = args.how.open_disk(&args.image, access)?;
        if access == Access::Write && disk.disk.geometry().read_only {
            bail!("{} is read-only", args.image);
        }
        let signals = EndSignals::catch()?;
        let mut image = Self::boot(&args.how, access, &[disk], signals)?;
        // Who names a partition wants it mounted.
        if command.mounts() || !points.is_empty() {
            image.mount(points, args.how.sync)?;
        }
        Ok(image)
    }

    /// Boots an appliance with the disks of an image.
    ///
    /// # Errors
    /// When it does not come up.
    pub fn boot(how: &OpenArgs, access: Access, disks: &[ImageDisk], signals: EndSignals) -> Result<Self> {
        let options = ApplianceOptions {
            kernel: Kernel::find()?,
            agent: AGENT,
            launcher: ("/proc/self/exe".into(), vec![KERNEL_COMMAND]),
            memory_bytes: how.memory << 20,
            timeout: Duration::from_secs(how.timeout),
            console: how.verbose.then(|| Box::new(io::stderr()) as Box<dyn Write + Send>),
            interrupted: Box::new(move || signals.name()),
        };
        let change = if access == Access::Write { how.begin_change(disks)? } else { None };
        let layer = |image: &ImageDisk| {
            let disk = change.as_ref().map_or_else(|| Arc::clone(&image.disk), AtomicChange::disk);
            Arc::new(ZerosAsHoles::new(disk))
        };
        let layers: Vec<_> = disks.iter().map(layer).collect();
        let images = disks.iter().zip(&layers).map(|(image, layer)| {
            let disk: Arc<dyn Disk> = Arc::clone(layer) as Arc<dyn Disk>;
            ImageDisk { disk, name: Arc::clone(&image.name) }
        });
        let appliance = Appliance::boot(options, &images.collect::<Vec<_>>())?;
        if !appliance.confined().is_enough() {
            let _ = writeln!(io::stderr(), "blockyard: {UNCONFINED}");
        }
        let capacity_bytes = disks.iter().map(|disk| disk.disk.geometry().capacity_bytes).fold(0, u64::saturating_add);
        let names: Vec<_> = disks.iter().map(|disk| &*disk.name).collect();
        let durable = how.cache == Cache::Writeback;
        Ok(Self { appliance, name: names.join(", "), access, capacity_bytes, disks: layers, change, durable })
    }

    /// Mounts `points`, or what is found if there are none, instead of all that is mounted; says what is mounted then.
    ///
    /// # Errors
    /// When one of them cannot be: then nothing is mounted.
    pub fn mount(&mut self, points: Vec<MountPoint>, synchronous: bool) -> Result<Vec<MountPoint>> {
        let mount = Mount { read_only: self.access == Access::Read, synchronous, disks: self.disks(), points };
        let response = self.call(Operation::Mount(mount)).with_context(|| self.name.clone())?;
        for point in response.mounted.iter().filter(|point| !point.note.is_empty()) {
            // Nobody is there to be told that stderr is closed.
            let _ = writeln!(io::stderr(), "blockyard: {}: {}", printable(&point.device), printable(&point.note));
        }
        Ok(response.mounted)
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

    /// Has the appliance do something.
    ///
    /// # Errors
    /// When it failed, in part or as a whole: a line for each of the first few failures.
    pub fn call(&mut self, operation: Operation) -> Result<Response> {
        let response = self.appliance.call(operation)?;
        self.judge(response)
    }

    fn judge(&self, response: Response) -> Result<Response> {
        if response.failures.is_empty() {
            return Ok(response);
        }
        let mut lines: Vec<_> = response.failures.iter().take(FAILURES_MAX).map(sentence).collect();
        let more = response.failed.saturating_sub(lines.len() as u64);
        if more > 0 {
            lines.push(format!("{more} more failures"));
        }
        if response.failures.iter().any(|failure| DAMAGE.contains(&failure.errno)) {
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
        let (result, failures) = self.all_records(operation, take)?;
        told(&failures).map(|()| result)
    }

    fn all_records<T, H>(&mut self, operation: Operation, take: H) -> Result<(T, Vec<Failure>)>
    where
        T: Send + 'static,
        H: RecordTaker<Output = T>,
    {
        let records = RecordStream::new(take);
        let sink = StreamSink::with_bytes_max(records, self.bytes_max()).context("making a stream")?;
        self.appliance.bind_sink_stream(&sink);
        let response = self.appliance.call(operation)?;
        let finished = sink.finish();
        self.appliance.release();
        let (taker, failures) = finished.map_err(output_error)?.into_parts();
        self.judge(response)?;
        Ok((taker.finish().map_err(output_error)?, failures))
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
        let (result, mut failures) = self.all_records(operation, take)?;
        failures.retain(|failure| i32::try_from(failure.errno).map(Errno::from_raw_os_error) != Ok(Errno::NOENT));
        told(&failures).map(|()| result)
    }

    /// More than the files of the image can have: what claims to be more is not honest.
    pub fn bytes_max(&self) -> u64 {
        self.capacity_bytes.saturating_mul(BYTES_PER_IMAGE_BYTE_MAX).saturating_add(1 << 30)
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
        let Self { appliance, disks, change, .. } = self;
        // They let go of the disk.
        drop((appliance, disks));
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
        if self.access == Access::Read {
            return Ok(());
        }
        self.call(Operation::Unmount(Unmount::default())).with_context(|| self.name.clone())?;
        // Linux unmounts a file system whose last writes failed without a word.
        match self.appliance.failed_requests() {
            0 => Ok(()),
            failed => bail!("{}: {failed} requests to it failed, so what was written is not all there", self.name),
        }
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

/// Numbers of errors that a damaged file system has: EIO, EINVAL, EROFS, EBADMSG, EUCLEAN.
const DAMAGE: [u32; 5] = [5, 22, 30, 74, 117];

/// What is said where nothing of what confines an appliance can be had.
const UNCONFINED: &str = "warning: this machine has neither namespaces nor Landlock nor seccomp's notifications for the appliance, so an \
                          image that takes over its kernel has your rights on this machine";

/// Failures that are told one by one.
const FAILURES_MAX: usize = 16;

/// A file's inode, or one of its names, takes as much at least; where it is compressed, less.
const BYTES_PER_FILE_MIN: u64 = 64;

/// Files may be sparse, or compressed by their file system.
const BYTES_PER_IMAGE_BYTE_MAX: u64 = 16;

/// An error that says each of several failures, if there are any.
fn told(failures: &[Failure]) -> Result<()> {
    match failures {
        [] => Ok(()),
        several => Err(anyhow!(sentences(several))),
    }
}

/// Failures as sentences, one a line.
pub fn sentences(failures: &[Failure]) -> String {
    failures.iter().map(sentence).collect::<Vec<_>>().join("\nblockyard: ")
}

fn output_error(error: io::Error) -> anyhow::Error {
    anyhow!("cannot write the output: {error}")
}

/// A failure as a sentence.
fn sentence(failure: &Failure) -> String {
    let path = printable(&String::from_utf8_lossy(&failure.path));
    let what = printable(&failure.sentence);
    let subject = if path.is_empty() { what } else { format!("{path}: {what}") };
    match i32::try_from(failure.errno) {
        Ok(0) | Err(_) => subject,
        Ok(errno) => format!("{subject}: {}", error_text(errno)),
    }
}

/// What an error's number means.
pub fn error_text(errno: i32) -> String {
    let text = io::Error::from_raw_os_error(errno).to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

fn mount_point(text: &str) -> Result<MountPoint> {
    let (device, directory) = text.split_once(':').unwrap_or((text, "/"));
    if device.is_empty() || !directory.starts_with('/') {
        return Err(UsageError(format!("-m {text}: it is PART or PART:DIR, such as sda1 or sda2:/boot")).into());
    }
    let directory = directory.as_bytes().to_vec();
    Ok(MountPoint { device: device.to_owned(), directory, ..MountPoint::default() })
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
