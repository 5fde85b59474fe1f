//! Which file systems of the images are mounted, and being inside of them.

use crate::block_devices::{self, Volume};
use crate::failures::{failure, refusal};
use crate::fstab::{self, Line};
use crate::interruption::Unstoppable;
use crate::loop_device;
use crate::modules;
use crate::mount_options::{MountOptions, load_driver};
use crate::roots::{self, Source};
use crate::system;
use crate::tree::Tree;
use blockyard_protocol::appliance::{CHECKED_KINDS, Failure, MAY_BE_DAMAGED, MAY_BE_DAMAGED_FSCK, Mount, MountPoint};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{chroot, fchdir};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Where an image's root is mounted.
pub(crate) const ROOT: &str = "/image";
/// Bytes of an fstab or a crypttab that are looked at.
const TABLE_BYTES_MAX: u64 = 64 << 10;
/// Notes that are kept.
const NOTES_MAX: usize = 16;

/// What is mounted. While something is, this process's root is the image's.
pub(crate) struct Mounts {
    outside: OwnedFd,
    /// In the order they were mounted.
    pub(crate) mounted: Vec<Mounted>,
    /// What could not be mounted, and why.
    pub(crate) notes: Vec<String>,
    /// Some volumes have no files before they are opened, or put together.
    pub(crate) closed: bool,
    /// Modules that the kernel asked for and nobody has sent, since the last request.
    pub(crate) wanted: Vec<String>,
    /// Nothing is written, so there is nothing to flush.
    read_only: bool,
    /// What is being unmounted, though the host has given that up.
    leaving: Option<Unstoppable<Result<(), Failure>>>,
}

/// A mounted file system.
pub(crate) struct Mounted {
    pub(crate) point: MountPoint,
    /// The kernel's name of the device.
    pub(crate) node: String,
    /// What the directory is called outside.
    pub(crate) target: PathBuf,
}

impl Mounts {
    pub(crate) fn new() -> io::Result<Self> {
        fs::create_dir_all(ROOT)?;
        let outside = File::open("/")?.into();
        Ok(Self {
            outside,
            mounted: Vec::new(),
            notes: Vec::new(),
            closed: false,
            wanted: Vec::new(),
            read_only: true,
            leaving: None,
        })
    }

    /// Mounts what is asked for, and moves in. All or nothing.
    pub(crate) fn mount(&mut self, request: &Mount) -> Result<(), Failure> {
        self.unmount()?;
        self.notes.clear();
        self.read_only = request.read_only;
        let mounted = self.mount_all(request);
        self.wanted.extend(modules::wanted());
        mounted
            .and_then(|()| enter(Path::new(ROOT)).map_err(|error| failure(Path::new("/"), "cannot enter", &error)))
            .inspect_err(|_| {
                // The first failure is the one to tell.
                let _ = self.unmount();
            })
    }

    /// Mounts what is asked for, at [`ROOT`].
    pub(crate) fn mount_all(&mut self, request: &Mount) -> Result<(), Failure> {
        let volumes = block_devices::volumes(request.disks);
        self.closed = volumes.iter().any(Volume::is_closed);
        let options = MountOptions::new(request.read_only, request.synchronous);
        let Some(root) = request.points.first().filter(|root| !root.device.is_empty()) else {
            let root = roots::find(&volumes, Path::new(ROOT), "-m PART")?;
            return self.mount_system(&root, &volumes, &options);
        };
        for point in &request.points {
            // What makes a device of a file keeps it until it is mounted.
            let (looped, _device);
            let source = match point.device.strip_prefix(LOOP) {
                Some(path) if !std::ptr::eq(point, root) => {
                    (looped, _device) = loop_volume(&point.device, path, request.read_only)?;
                    Source::whole(&looped)
                }
                _ => Source::find(&volumes, &point.device)?,
            };
            let options = options.with(&String::from_utf8_lossy(&point.options));
            let directory =
                if std::ptr::eq(point, root) { "/".into() } else { String::from_utf8_lossy(&point.directory) };
            self.add(&source, &directory, &options, &point.r#type)?;
        }
        Ok(())
    }

    /// Mounts a root file system and what its fstab says. What of that cannot be mounted is noted.
    pub(crate) fn mount_system(
        &mut self,
        root: &Source<'_>,
        volumes: &[Volume],
        options: &MountOptions,
    ) -> Result<(), Failure> {
        self.add(root, "/", options, "")?;
        let mut there = vec![root.clone()];
        for line in fstab::lines(&read_table("/etc/fstab")) {
            match fstab_source(&line, volumes) {
                Some(source) if there.iter().any(|mounted| mounted.is(&source)) => {}
                Some(source) => {
                    if let Err(problem) = self.add(&source, &line.directory, options, "") {
                        self.note(&line, &problem.sentence);
                    }
                    there.push(source);
                }
                None if line.optional => {}
                None => self.note(&line, "the image has no such volume"),
            }
        }
        Ok(())
    }

    fn note(&mut self, line: &Line, why: &str) {
        if self.notes.len() < NOTES_MAX {
            self.notes.push(format!("/etc/fstab wants {} on {}: {why}", line.source, line.directory));
        }
    }

    fn add(&mut self, source: &Source<'_>, directory: &str, options: &MountOptions, kind: &str) -> Result<(), Failure> {
        let volume = source.volume;
        if let (Some(why), true) = (volume.why_not(), kind.is_empty()) {
            return Err(refusal(format!("{} {why}", volume.name)));
        }
        let (kind, driver) = match kind {
            "" => (volume.content.kind.unwrap_or_default(), volume.content.driver()),
            kind => (kind, kind),
        };
        load_driver(driver);
        // The image may have put a link there.
        let bad = |errno: Errno| failure(Path::new(directory), "cannot mount there", &errno.into());
        let tree = Tree::open(Path::new(ROOT)).map_err(bad)?;
        let place = tree.file(directory, OFlags::PATH | OFlags::DIRECTORY).map_err(bad)?;
        let through = format!("/proc/self/fd/{}", place.as_raw_fd());
        let target =
            fs::read_link(&through).map_err(|error| failure(Path::new(directory), "cannot mount there", &error))?;
        let options = options.with(source.subvolume.as_deref().unwrap_or_default());
        let note = options.mount(&volume.node, Path::new(&through), driver).map_err(|errno| {
            let wanted = modules::wanted();
            self.wanted.extend_from_slice(&wanted);
            not_mounted(source, kind, &options, &wanted, errno)
        })?;
        let point = MountPoint {
            device: source.name(),
            directory: directory.as_bytes().to_vec(),
            r#type: kind.to_owned(),
            note: note.to_owned(),
            options: Vec::new(),
        };
        self.mounted.push(Mounted { point, node: volume.node.clone(), target });
        Ok(())
    }

    /// Moves out and unmounts all. Afterwards everything is on stable storage, as far as the disks have it.
    pub(crate) fn unmount(&mut self) -> Result<(), Failure> {
        leave(&self.outside)?;
        let (mounted, read_only) = (std::mem::take(&mut self.mounted), self.read_only);
        if mounted.is_empty() {
            return Ok(());
        }
        let leaving = Unstoppable::start(move || unmount_all(mounted, read_only));
        self.leaving = Some(leaving.map_err(not_left)?);
        self.finish_leaving()
    }

    /// Waits until nothing is being unmounted any more: it is done outside, where this process has to stay meanwhile.
    pub(crate) fn finish_leaving(&mut self) -> Result<(), Failure> {
        let Some(leaving) = &self.leaving else { return Ok(()) };
        leaving.wait().map_err(not_left)?;
        self.leaving.take().map_or(Ok(()), |leaving| leaving.result().map_err(not_left)?)
    }

    /// Does something in the appliance's own root, not in the image's.
    pub(crate) fn outside<T>(&self, act: impl FnOnce() -> T) -> Result<T, Failure> {
        leave(&self.outside)?;
        let done = act();
        if self.is_mounted()
            && let Err(error) = enter(Path::new(ROOT))
        {
            // Whatever it were asked for next would be done to the wrong files.
            eprintln!("agent: cannot go back into the image: {error}");
            system::power_off();
        }
        Ok(done)
    }

    /// Refuses a device that is mounted.
    pub(crate) fn must_not_have(&self, node: &str) -> Result<(), Failure> {
        match self.mounted.iter().find(|mounted| mounted.node == node) {
            Some(mounted) => {
                let MountPoint { device, directory, .. } = &mounted.point;
                let directory = String::from_utf8_lossy(directory);
                Err(refusal(format!("{device} is mounted on {directory}: unmount it first")))
            }
            None => Ok(()),
        }
    }

    /// Whether there is an image to work on.
    pub(crate) fn is_mounted(&self) -> bool {
        !self.mounted.is_empty()
    }
}

/// Unmounts all, the last first; what fails first is told.
fn unmount_all(mut mounted: Vec<Mounted>, read_only: bool) -> Result<(), Failure> {
    let mut first = Ok(());
    while let Some(Mounted { node, target, .. }) = mounted.pop() {
        let device = PathBuf::from(format!("/dev/{node}"));
        let unmounted = unmount(&target, UnmountFlags::NOFOLLOW).map_err(io::Error::from);
        // Not every file system flushes the disk's cache when it is unmounted.
        // What is in a file is flushed with that.
        let is_file = node.starts_with("loop");
        let flushed =
            if read_only || is_file { Ok(()) } else { File::open(&device).and_then(|device| device.sync_all()) };
        let result = unmounted.and(flushed).map_err(|error| failure(&device, "cannot unmount", &error));
        first = first.and(result);
    }
    first
}

fn not_left(error: io::Error) -> Failure {
    failure(Path::new("/"), "cannot unmount", &error)
}

/// Why a file system cannot be mounted, as far as the error's number, what was asked for and which modules the kernel
/// wanted in vain tell it.
pub(crate) fn not_mounted(
    source: &Source<'_>,
    kind: &str,
    options: &MountOptions,
    wanted: &[String],
    errno: Errno,
) -> Failure {
    let (name, volume) = (source.name(), source.volume);
    if let Some(module) = wanted.last() {
        return refusal(format!("{name}: cannot mount the {kind} file system: {}", without(module)));
    }
    let given = options.for_the_driver();
    let (missing, disks) = (volume.missing, volume.content.array.disks);
    match errno {
        _ if missing > 0 => refusal(format!(
            "{name}: cannot mount the {kind} file system: {missing} of its {disks} disks are missing: --add them"
        )),
        Errno::ACCESS | Errno::ROFS if !options.read_only() => {
            refusal(format!("{name}: cannot mount the {kind} file system for writing: it can only be read"))
        }
        Errno::NOENT if kind == "btrfs" && given.contains("subvol") => {
            refusal(format!("{name}: the {kind} file system has no such subvolume: {given}"))
        }
        Errno::INVAL if !given.is_empty() => {
            let what = format!("cannot mount the {kind} file system with {given}, which it may not know");
            failure(Path::new(&name), &what, &errno.into())
        }
        _ => {
            let advice = if CHECKED_KINDS.contains(&kind) { MAY_BE_DAMAGED_FSCK } else { MAY_BE_DAMAGED };
            let what = format!("cannot mount the {kind} file system{advice}");
            failure(Path::new(&name), &what, &errno.into())
        }
    }
}

/// What somebody is told who lacks a module: the kernel asks for a kind of file system by another name.
fn without(module: &str) -> String {
    match module.strip_prefix("fs-") {
        Some(kind) => format!("the appliance's kernel has no driver for {kind}"),
        None => format!("the appliance's kernel has no module {module}, which it needs for that"),
    }
}

/// What a name of a file that is mounted as a device begins with.
const LOOP: &str = "loop:";

/// The device that is made of a file of what is mounted already.
fn loop_volume(name: &str, path: &str, read_only: bool) -> Result<(Volume, File), Failure> {
    let bad = |error: io::Error| failure(Path::new(path), "cannot make a device of it", &error);
    let tree = Tree::open(Path::new(ROOT)).map_err(|errno| bad(errno.into()))?;
    let access = if read_only { OFlags::RDONLY } else { OFlags::RDWR };
    // A fifo would make us wait.
    let file = tree.file(path, access | OFlags::NONBLOCK).map_err(|errno| bad(errno.into()))?;
    let (node, device) = loop_device::attach(&file, read_only).map_err(bad)?;
    Ok((Volume::of_node(name.to_owned(), node), device))
}

fn leave(outside: &OwnedFd) -> Result<(), Failure> {
    let left = fchdir(outside).and_then(|()| chroot("."));
    left.map_err(|errno| failure(Path::new("/"), "cannot leave", &errno.into()))
}

fn enter(root: &Path) -> io::Result<()> {
    chroot(root)?;
    std::env::set_current_dir("/")
}

/// A table in /etc of the image that is being put together, as far as it can be read.
fn read_table(path: &str) -> String {
    let tree = Tree::open(Path::new(ROOT)).ok();
    let text = tree.and_then(|tree| tree.head(path, TABLE_BYTES_MAX)).unwrap_or_default();
    String::from_utf8_lossy(&text).into_owned()
}

/// What a line of fstab wants mounted.
fn fstab_source<'volumes>(line: &Line, volumes: &'volumes [Volume]) -> Option<Source<'volumes>> {
    let volume = block_devices::lookup(volumes, &line.source).or_else(|| opened_by_crypttab(&line.source, volumes))?;
    let subvolume = line.subvolume.clone().filter(|_| volume.content.driver() == "btrfs");
    Some(Source { volume, subvolume })
}

/// The image gives names to what it opens; here that has another. What is still closed stands for itself.
fn opened_by_crypttab<'volumes>(source: &str, volumes: &'volumes [Volume]) -> Option<&'volumes Volume> {
    let name = source.strip_prefix("/dev/mapper/")?;
    let encrypted = fstab::encrypted_source(&read_table("/etc/crypttab"), name)?;
    let encrypted = block_devices::lookup(volumes, &encrypted)?;
    Some(volumes.iter().find(|volume| volume.made_of.contains(&encrypted.node)).unwrap_or(encrypted))
}

/// The path that a message's bytes are.
pub(crate) fn path_of(bytes: &[u8]) -> &Path {
    Path::new(std::ffi::OsStr::from_bytes(bytes))
}
