//! An image whose files can be worked on: an appliance that has it mounted.

use super::file_commands::{Access, FileCommand};
use super::records::RecordStream;
use crate::UsageError;
use crate::copy::watched_disk::WatchedDisk;
use crate::disk::open_disk;
use crate::signals::EndSignals;
use anyhow::{Context, Result, anyhow, bail};
use blockyard_appliance::{Appliance, ApplianceOptions, ImageDisk, Kernel, StreamSink, kernel_process};
use blockyard_block::printable;
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

/// Options of every command on an image's files.
#[derive(Args, Debug)]
pub struct ImageArgs {
    /// The image: a disk specification.
    #[arg(value_name = "IMAGE")]
    image: String,
    /// Mount partition PART (such as sda1, vda1 or 1) on DIR [default: /]; may be repeated, the root first.
    #[arg(short, value_name = "PART[:DIR]")]
    mount: Vec<String>,
    /// Write nothing to the image.
    #[arg(long)]
    ro: bool,
    /// Write everything at once, as `mount -o sync` does.
    #[arg(long)]
    sync: bool,
    /// With `unsafe`, do not wait for stable storage.
    #[arg(long, value_enum, default_value = "writeback")]
    cache: Cache,
    /// Give up when nothing has moved for so long, or nothing new for 30 times as long.
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = clap::value_parser!(u64).range(1..))]
    timeout: u64,
    /// The appliance's memory in MiB.
    #[arg(long, value_name = "MIB", default_value = "256", value_parser = clap::value_parser!(u64).range(64..=65536))]
    memory: u64,
    /// Directory that an image's backing and data files may lie in; may be repeated.
    #[arg(long, value_name = "DIR")]
    allow_dir: Vec<PathBuf>,
    /// Show what the appliance's kernel says.
    #[arg(long)]
    verbose: bool,
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

/// An appliance with an image, and mostly with its file systems mounted.
pub struct OpenImage {
    /// The guest.
    pub appliance: Appliance,
    name: String,
    /// Knows why a request to the image failed, which the guest does not.
    disk: Arc<WatchedDisk>,
    access: Access,
    capacity_bytes: u64,
    /// Files of the host that are written are on stable storage before the command succeeds.
    pub durable: bool,
}

impl OpenImage {
    /// Boots an appliance with the image, as `command` needs it.
    ///
    /// # Errors
    /// When the image or the appliance cannot be had, or it has no file system that can be mounted.
    pub fn open(args: &ImageArgs, command: &impl FileCommand) -> Result<Self> {
        let access = command.access();
        if access == Access::Write && args.ro {
            return Err(UsageError("--ro is for commands that only look".to_owned()).into());
        }
        let points = args.mount.iter().map(|text| mount_point(text)).collect::<Result<Vec<_>>>()?;
        let specification = match args.cache {
            Cache::Writeback => args.image.clone(),
            Cache::Unsafe => format!("{},cache=unsafe", args.image),
        };
        let disk = open_disk(&specification, access == Access::Read, &args.allow_dir)?;
        if access == Access::Write && disk.geometry().read_only {
            bail!("{} is read-only", args.image);
        }
        let capacity_bytes = disk.geometry().capacity_bytes;
        let signals = EndSignals::catch()?;
        let options = ApplianceOptions {
            kernel: Kernel::find()?,
            agent: AGENT,
            launcher: ("/proc/self/exe".into(), vec![KERNEL_COMMAND]),
            memory_bytes: args.memory << 20,
            timeout: Duration::from_secs(args.timeout),
            console: args.verbose.then(|| Box::new(io::stderr()) as Box<dyn Write + Send>),
            interrupted: Box::new(move || signals.name()),
        };
        let disk = Arc::new(WatchedDisk::new(disk));
        let image_disk = ImageDisk { disk: Arc::clone(&disk) as _, name: args.image.as_str().into() };
        let appliance = Appliance::boot(options, &[image_disk])?;
        if !appliance.confined().is_enough() {
            let _ = writeln!(io::stderr(), "blockyard: {UNCONFINED}");
        }
        let durable = args.cache == Cache::Writeback;
        let mut image = Self { appliance, name: args.image.clone(), disk, access, capacity_bytes, durable };
        if command.mounts() {
            image.mount(args, points)?;
        }
        Ok(image)
    }

    fn mount(&mut self, args: &ImageArgs, points: Vec<MountPoint>) -> Result<()> {
        let mount = Mount { read_only: self.access == Access::Read, synchronous: args.sync, disks: 1, points };
        let response = self.call(Operation::Mount(mount)).with_context(|| self.name.clone())?;
        for point in response.mounted.iter().filter(|point| !point.note.is_empty()) {
            // Nobody is there to be told that stderr is closed.
            let _ = writeln!(io::stderr(), "blockyard: {}: {}", printable(&point.device), printable(&point.note));
        }
        Ok(())
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
        self.told(&response.failures, response.failed)?;
        Ok(response)
    }

    /// An error that says each of the first few failures, if there are any, and what is known besides.
    fn told(&self, failures: &[Failure], count: u64) -> Result<()> {
        if failures.is_empty() {
            return Ok(());
        }
        let mut lines: Vec<_> = failures.iter().take(FAILURES_MAX).map(sentence).collect();
        let more = count.saturating_sub(lines.len() as u64);
        if more > 0 {
            lines.push(format!("{more} more failures"));
        }
        if let Some(error) = self.disk.first_error() {
            lines.push(format!("{}: a request to it failed: {error}", self.name));
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
        let (result, failures) = self.all_records(operation, take)?;
        self.told(&failures, failures.len() as u64).map(|()| result)
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
        self.told(&failures, failures.len() as u64).map(|()| result)
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
        if self.access == Access::Read {
            return Ok(());
        }
        self.call(Operation::Unmount(Unmount::default())).with_context(|| self.name.clone())?;
        // Linux unmounts a file system whose last writes failed without a word.
        match self.appliance.failed_requests() {
            0 => Ok(()),
            failed => {
                let why = self.disk.first_error().map(|error| format!(" ({error})")).unwrap_or_default();
                bail!("{}: {failed} requests to it failed{why}, so what was written is not all there", self.name)
            }
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
