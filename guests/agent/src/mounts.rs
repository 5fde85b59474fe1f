//! Which file systems of the images are mounted, and being inside of them.

use crate::block_devices::{self, Volume};
use crate::failures::{failure, refusal};
use crate::fstab;
use crate::system::{self, load_module};
use blockyard_protocol::appliance::{Failure, Mount, MountPoint};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use rustix::process::{chroot, fchdir};
use std::ffi::CString;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Where an image's root is mounted.
const ROOT: &str = "/image";
/// Bytes of an fstab that are looked at.
const FSTAB_BYTES_MAX: u64 = 64 << 10;

/// What is mounted. While something is, this process's root is the image's.
pub(crate) struct Mounts {
    outside: OwnedFd,
    /// In the order they were mounted.
    pub(crate) mounted: Vec<Mounted>,
    /// Nothing is written, so there is nothing to flush.
    read_only: bool,
}

/// A mounted file system.
pub(crate) struct Mounted {
    pub(crate) point: MountPoint,
    /// What the directory is called outside.
    target: PathBuf,
}

impl Mounts {
    pub(crate) fn new() -> io::Result<Self> {
        fs::create_dir_all(ROOT)?;
        Ok(Self { outside: File::open("/")?.into(), mounted: Vec::new(), read_only: true })
    }

    /// Mounts what is asked for, and moves in. All or nothing.
    pub(crate) fn mount(&mut self, request: &Mount) -> Result<(), Failure> {
        self.unmount()?;
        self.read_only = request.read_only;
        self.mount_all(request)
            .and_then(|()| enter(Path::new(ROOT)).map_err(|error| failure(Path::new("/"), "cannot enter", &error)))
            .inspect_err(|_| {
                // The first failure is the one to tell.
                let _ = self.unmount();
            })
    }

    fn mount_all(&mut self, request: &Mount) -> Result<(), Failure> {
        let volumes = block_devices::volumes(request.disks);
        let flags = Flags { read_only: request.read_only, synchronous: request.synchronous };
        let (root, others) = match request.points.split_first() {
            Some((root, others)) if !root.device.is_empty() => (block_devices::find(&volumes, &root.device)?, others),
            _ => (find_root(&volumes)?, &[][..]),
        };
        self.add(root, "/", flags)?;
        if !request.points.is_empty() {
            for point in others {
                let volume = block_devices::find(&volumes, &point.device)?;
                self.add(volume, &String::from_utf8_lossy(&point.directory), flags)?;
            }
            return Ok(());
        }
        for line in fstab::lines(&read_fstab(), &volumes) {
            let volume = volumes.iter().find(|volume| volume.name == line.volume);
            let already = self.mounted.iter().any(|mounted| mounted.point.device == line.volume);
            if let (Some(volume), false) = (volume, already)
                && let Err(problem) = self.add(volume, &line.directory, flags)
            {
                let note = format!("/etc/fstab wants {} on {}: {}", line.volume, line.directory, problem.sentence);
                self.mounted[0].point.note = note;
            }
        }
        Ok(())
    }

    fn add(&mut self, volume: &Volume, directory: &str, flags: Flags) -> Result<(), Failure> {
        if let Some(why) = volume.why_not() {
            return Err(refusal(format!("{} {why}", volume.name)));
        }
        let kind = volume.content.kind.unwrap_or_default();
        load_driver(kind).map_err(|error| failure(Path::new(&volume.name), "cannot load its driver", &error))?;
        // The image may have put a link there.
        let bad = |errno: Errno| failure(Path::new(directory), "cannot mount there", &errno.into());
        let place = open_inside(directory, OFlags::PATH | OFlags::DIRECTORY).map_err(bad)?;
        let through = format!("/proc/self/fd/{}", place.as_raw_fd());
        let target =
            fs::read_link(&through).map_err(|error| failure(Path::new(directory), "cannot mount there", &error))?;
        let note = flags.mount(&volume.name, Path::new(&through), kind).map_err(|errno| {
            let what = format!("cannot mount the {kind} file system, which may be damaged (`fsck` it)");
            failure(Path::new(&volume.name), &what, &errno.into())
        })?;
        let point = MountPoint {
            device: volume.name.clone(),
            directory: directory.as_bytes().to_vec(),
            r#type: kind.to_owned(),
            note: note.to_owned(),
        };
        self.mounted.push(Mounted { point, target });
        Ok(())
    }

    /// Moves out and unmounts all. Afterwards everything is on stable storage, as far as the disks have it.
    pub(crate) fn unmount(&mut self) -> Result<(), Failure> {
        leave(&self.outside)?;
        let mut first = Ok(());
        while let Some(Mounted { point, target }) = self.mounted.pop() {
            let device = PathBuf::from(format!("/dev/{}", point.device));
            let unmounted = unmount(&target, UnmountFlags::NOFOLLOW).map_err(io::Error::from);
            // Not every file system flushes the disk's cache when it is unmounted.
            let flushed =
                if self.read_only { Ok(()) } else { File::open(&device).and_then(|device| device.sync_all()) };
            let result = unmounted.and(flushed).map_err(|error| failure(&device, "cannot unmount", &error));
            first = first.and(result);
        }
        first
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
    pub(crate) fn must_not_have(&self, device: &str) -> Result<(), Failure> {
        match self.mounted.iter().find(|mounted| mounted.point.device == device) {
            Some(mounted) => {
                let directory = String::from_utf8_lossy(&mounted.point.directory);
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

fn leave(outside: &OwnedFd) -> Result<(), Failure> {
    let left = fchdir(outside).and_then(|()| chroot("."));
    left.map_err(|errno| failure(Path::new("/"), "cannot leave", &errno.into()))
}

fn enter(root: &Path) -> io::Result<()> {
    chroot(root)?;
    std::env::set_current_dir("/")
}

/// A file of the image that is being put together, whatever links are on the way.
fn open_inside(path: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
    let directory = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = openat2(CWD, ROOT, directory, Mode::empty(), ResolveFlags::empty())?;
    openat2(&root, path, flags | OFlags::CLOEXEC, Mode::empty(), ResolveFlags::IN_ROOT)
}

fn read_fstab() -> String {
    let mut text = Vec::new();
    if let Ok(file) = open_inside("/etc/fstab", OFlags::RDONLY | OFlags::NONBLOCK) {
        // As far as it can be read.
        let _ = File::from(file).take(FSTAB_BYTES_MAX).read_to_end(&mut text);
    }
    String::from_utf8_lossy(&text).into_owned()
}

#[derive(Clone, Copy)]
struct Flags {
    read_only: bool,
    synchronous: bool,
}

impl Flags {
    /// Mounts, if need be without what a read-only disk does not allow; what is worth telling about it.
    fn mount(self, device: &str, target: &Path, kind: &str) -> Result<&'static str, Errno> {
        let mut flags = MountFlags::NODEV | MountFlags::NOSUID | MountFlags::NOATIME;
        flags.set(MountFlags::RDONLY, self.read_only);
        flags.set(MountFlags::SYNCHRONOUS, self.synchronous);
        let device = format!("/dev/{device}");
        let attempt = |options: &str| {
            let options = CString::new(options).unwrap_or_default();
            mount(device.as_str(), target, kind, flags, (!options.is_empty()).then_some(options.as_c_str()))
        };
        let (usual, without_journal) = match kind {
            // Not the tables of inodes that a young file system has not yet zeroed: they take longer than we stay.
            "ext4" if !self.read_only => ("noinit_itable,errors=remount-ro", ""),
            "ext4" => ("", "noload"),
            "xfs" => ("nouuid", "nouuid,norecovery"),
            "btrfs" => ("", "rescue=nologreplay"),
            "vfat" => ("utf8", ""),
            _ => ("", ""),
        };
        match attempt(usual) {
            Ok(()) => Ok(""),
            Err(errno) if self.read_only && !without_journal.is_empty() => {
                attempt(without_journal).map(|()| "its journal was not replayed").map_err(|_| errno)
            }
            Err(errno) => Err(errno),
        }
    }
}

fn load_driver(kind: &str) -> io::Result<()> {
    let modules: &[&str] = match kind {
        "vfat" => &["fat", "vfat", "nls_cp437", "nls_iso8859-1", "nls_utf8"],
        "iso9660" => &["isofs"],
        "squashfs" => &["squashfs"],
        _ => &[],
    };
    modules.iter().try_for_each(|module| load_module(module))
}

/// The volume with the root file system: the only one with files, or the first that looks like it.
fn find_root(volumes: &[Volume]) -> Result<&Volume, Failure> {
    let candidates: Vec<_> = volumes.iter().filter(|volume| volume.is_mountable()).collect();
    match candidates[..] {
        [] => Err(refusal(nothing_mountable(volumes))),
        [only] => Ok(only),
        _ => candidates.iter().copied().find(|volume| looks_like_root(volume)).ok_or_else(|| {
            let names: Vec<_> = candidates.iter().map(|volume| volume.name.as_str()).collect();
            refusal(format!("none of {} looks like a root file system: choose one with -m PART", names.join(", ")))
        }),
    }
}

fn nothing_mountable(volumes: &[Volume]) -> String {
    match volumes {
        [] => "the image has no disk".to_owned(),
        [whole] if !whole.name.ends_with(|last: char| last.is_ascii_digit()) => {
            format!("the image has no partitions, and its disk {}", whole.why_not().unwrap_or_default())
        }
        several => {
            let each: Vec<_> = several
                .iter()
                .map(|volume| format!("{} {}", volume.name, volume.why_not().unwrap_or_default()))
                .collect();
            format!("no partition has files: {}", each.join("; "))
        }
    }
}

/// Mounts it for a look.
fn looks_like_root(volume: &Volume) -> bool {
    let kind = volume.content.kind.unwrap_or_default();
    let flags = Flags { read_only: true, synchronous: false };
    if load_driver(kind).is_err() || flags.mount(&volume.name, Path::new(ROOT), kind).is_err() {
        return false;
    }
    let has = |name: &str| fs::symlink_metadata(Path::new(ROOT).join(name)).is_ok();
    let found = has("etc/fstab") || has("etc/os-release") || (has("etc") && (has("bin") || has("usr")));
    // It is mounted once more over this if it cannot be.
    let _ = unmount(ROOT, UnmountFlags::NOFOLLOW);
    found
}

/// The path that a message's bytes are.
pub(crate) fn path_of(bytes: &[u8]) -> &Path {
    Path::new(std::ffi::OsStr::from_bytes(bytes))
}
