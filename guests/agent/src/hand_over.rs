//! Handing the guest over to the system in an image: its root file system becomes the root, and its init takes this
//! process's place.
//!
//! The root is found as it is for commands on files ([`roots`]), or named on the kernel's command line as other initial
//! file systems have it: `root=`, `rootflags=`, `ro`, `init=`. What else the system mounts it mounts itself.

use crate::block_devices::{self, Volume};
use crate::command_line::CommandLine;
use crate::failures::{failure, refusal};
use crate::mount_options::{MountOptions, load_driver};
use crate::mounts::{ROOT, not_mounted};
use crate::roots::{self, Source};
use crate::sysfs::names_in;
use crate::system;
use crate::tree::Tree;
use crate::{module_share, modules};
use blockyard_protocol::appliance::{Failure, HandOver, MountPoint};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_move, unmount};
use rustix::process::chroot;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What is executed where the command line does not say it, as the kernel has it (Linux, init/main.c).
const INITS: [&str; 4] = ["/sbin/init", "/etc/init", "/bin/init", "/bin/sh"];
/// What is there already and goes along.
const SYSTEMS: [&str; 4] = ["/dev", "/proc", "/sys", "/run"];

/// A system that is mounted and can take over.
pub(crate) struct Successor {
    init: PathBuf,
}

/// What came of looking for a system.
pub(crate) struct Prepared {
    /// Some volumes have no files before they are opened, or put together.
    pub(crate) closed: bool,
    /// Modules that the kernel asked for and nobody has sent.
    pub(crate) wanted: Vec<String>,
    /// The system, with what its root is.
    pub(crate) system: Result<(MountPoint, Successor), Failure>,
}

/// Mounts a system's root. Nothing is mounted if that fails.
pub(crate) fn prepare(request: &HandOver) -> Prepared {
    let volumes = block_devices::volumes(request.disks);
    let closed = volumes.iter().any(Volume::is_closed);
    let (command_line, mut wanted) = (CommandLine::read(), Vec::new());
    let system = mount_root(&volumes, &command_line, &mut wanted).and_then(|mut point| {
        let init = find_init(&command_line).and_then(|init| make_ready(request).map(|()| init));
        let init = init.inspect_err(|_| _ = unmount(ROOT, UnmountFlags::NOFOLLOW))?;
        // What it can do without does not keep it from coming up.
        if let Err(error) = module_share::show(Path::new(ROOT), &request.module_share) {
            let before = if point.note.is_empty() { "" } else { "; " };
            point.note = format!("{}{before}the kernel's modules are not shown: {error}", point.note);
        }
        Ok((point, Successor { init }))
    });
    Prepared { closed, wanted, system }
}

fn mount_root(volumes: &[Volume], command_line: &CommandLine, wanted: &mut Vec<String>) -> Result<MountPoint, Failure> {
    let source = match command_line.value("root") {
        Some(name) => Source::find(volumes, name)?,
        None => roots::find(volumes, Path::new(ROOT), "root=")?,
    };
    let volume = source.volume;
    if let Some(why) = volume.why_not() {
        return Err(refusal(format!("{} {why}", volume.name)));
    }
    let kind = volume.content.driver();
    load_driver(kind);
    let read_only = command_line.last_of(&["ro", "rw"]) == Some("ro");
    let subvolume = source.subvolume.as_deref().unwrap_or_default();
    let options = |read_only| {
        let flags = command_line.value("rootflags").unwrap_or_default();
        MountOptions::of_a_system(read_only).with(subvolume).with(flags)
    };
    let attempt = |read_only| options(read_only).mount(&volume.node, Path::new(ROOT), kind);
    let mounted = match attempt(read_only) {
        // A disk that is for reading makes no system that cannot be booted.
        Err(Errno::ACCESS | Errno::ROFS) if !read_only => attempt(true),
        mounted => mounted,
    };
    let note = mounted.map_err(|errno| {
        *wanted = modules::wanted();
        not_mounted(&source, kind, &options(read_only), wanted, errno)
    })?;
    Ok(MountPoint {
        device: source.name(),
        directory: b"/".to_vec(),
        r#type: kind.to_owned(),
        note: note.to_owned(),
        options: Vec::new(),
    })
}

/// What shall be executed: links are followed as they lead in there.
fn find_init(command_line: &CommandLine) -> Result<PathBuf, Failure> {
    let tree = Tree::open(Path::new(ROOT)).map_err(|errno| failure(Path::new("/"), "cannot open", &errno.into()))?;
    let executable = |path: &str| {
        let metadata = fs::File::from(tree.file(path, OFlags::PATH).ok()?).metadata().ok()?;
        (metadata.is_file() && metadata.mode() & 0o111 != 0).then_some(())
    };
    match command_line.value("init") {
        Some(init) if executable(init).is_some() => Ok(init.into()),
        Some(init) => Err(refusal(format!("the image has no {init} that can be executed, which init= names"))),
        None => {
            let found = INITS.iter().find(|init| executable(init).is_some());
            found.map(PathBuf::from).ok_or_else(|| refusal("the image has no init: name one with init="))
        }
    }
}

/// What a system may expect of who boots it.
fn make_ready(request: &HandOver) -> Result<(), Failure> {
    for module in &request.modules {
        modules::load(module).map_err(|error| failure(Path::new(module), "cannot load the module", &error))?;
    }
    let bad = |error: io::Error| failure(Path::new("/run"), "cannot mount", &error);
    fs::create_dir_all("/run").map_err(bad)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    mount("run", "/run", "tmpfs", flags, c"mode=0755").map_err(|errno| bad(errno.into()))?;
    tell_udev().map_err(|error| failure(Path::new(UDEV), "cannot write to", &error))
}

/// Where udev keeps what it knows of devices, each in a file.
const UDEV: &str = "/run/udev/data";
/// What it knows, in its own format, of a device of the device mapper's that is in use: somebody had made it, and said
/// so (dmsetup(8), udevflags). Without, it takes one that is there already for one that is about to be, and a system
/// waits for that in vain.
const IN_USE: &str = "E:DM_UDEV_PRIMARY_SOURCE_FLAG=1\nE:DM_UDEV_RULES_VSN=2\nV:1\n";

/// Leaves word for the system's udev of the logical and encrypted volumes that are open.
fn tell_udev() -> io::Result<()> {
    for node in names_in("/sys/block").iter().filter(|node| node.starts_with("dm-")) {
        let numbers = fs::read_to_string(format!("/sys/block/{node}/dev"))?;
        fs::create_dir_all(UDEV)?;
        fs::write(format!("{UDEV}/b{}", numbers.trim()), IN_USE)?;
    }
    Ok(())
}

impl Successor {
    /// Lets it take this process's place: returns only if that fails, and then there is nothing to go back to.
    pub(crate) fn take_over(self) -> io::Error {
        match self.switch_root() {
            Ok(()) => {
                let arguments = std::env::args_os().skip(1);
                let error = Command::new(&self.init).args(arguments).exec();
                io::Error::other(format!("cannot execute {}: {error}", self.init.display()))
            }
            Err(error) => error,
        }
    }

    fn switch_root(&self) -> io::Result<()> {
        system::limits_of_an_init()?;
        let root = Path::new(ROOT);
        system::give_device_helper(&Tree::open(root)?);
        for system in SYSTEMS {
            let place = root.join(&system[1..]);
            // A link is not followed to where it may lead.
            let is_directory = fs::symlink_metadata(&place).is_ok_and(|metadata| metadata.is_dir());
            if !is_directory || mount_move(system, &place).is_err() {
                unmount(system, UnmountFlags::DETACH)?;
            }
        }
        empty_memory()?;
        std::env::set_current_dir(root)?;
        // The initial file system cannot be left in another way (Linux, Documentation/filesystems/
        // ramfs-rootfs-initramfs.rst).
        mount_move(".", "/")?;
        chroot(".")?;
        std::env::set_current_dir("/")
    }
}

/// Removes what this program came with: it lies in memory.
fn empty_memory() -> io::Result<()> {
    let own = fs::metadata("/")?.dev();
    for entry in fs::read_dir("/")? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        let path = entry.path();
        // What is left takes memory, and does no harm.
        let _ = match () {
            () if metadata.dev() != own || path == Path::new(ROOT) => Ok(()),
            () if metadata.is_dir() => fs::remove_dir_all(path),
            () => fs::remove_file(path),
        };
    }
    Ok(())
}
