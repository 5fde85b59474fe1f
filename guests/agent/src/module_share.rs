//! The kernel's modules, where the system that takes over looks for them: /lib/modules/RELEASE of its root.
//!
//! They come by a share of the host's. What the root has is neither hidden nor changed, but for the directory that they
//! are mounted on: whoever installs a kernel in there finds its own place beside it.

use crate::modules;
use crate::system::kernel_version;
use crate::tree::Tree;
use rustix::fs::{Mode, OFlags, mkdirat};
use rustix::io::Errno;
use rustix::mount::{MountFlags, mount, mount_remount};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

/// What loads them, where the kernel itself looks for it: where there is none, nobody misses them.
const LOADER: &str = "/sbin/modprobe";
/// Where they are.
const PARENT: &str = "/lib";
const DIRECTORY: &str = "modules";
/// What depmod(8) writes beside modules: a directory with it is no empty one.
const TABLE: &str = "modules.dep";
/// How a directory is opened: nothing of it is read.
const AS_PLACE: OFlags = OFlags::PATH.union(OFlags::DIRECTORY);

/// Mounts the share of that tag in a system's root, if there is one and the system could load modules that it lacks.
pub(crate) fn show(root: &Path, tag: &str) -> io::Result<()> {
    let tree = Tree::open(root)?;
    let release = kernel_version();
    let own = format!("{PARENT}/{DIRECTORY}/{release}");
    if tag.is_empty() || !tree.has(LOADER) || tree.has(&format!("{own}/{TABLE}")) {
        return Ok(());
    }
    let place = match place(&tree, &release) {
        // Of a root that cannot be written.
        Err(Errno::ROFS) => covered(&tree, &release)?,
        place => place?,
    };
    modules::load("virtiofs")?;
    let flags = MountFlags::RDONLY | MountFlags::NODEV | MountFlags::NOSUID;
    Ok(mount(tag, path(&place), "virtiofs", flags, None)?)
}

/// The directory of the release's modules, which is made if need be.
fn place(tree: &Tree, release: &str) -> Result<OwnedFd, Errno> {
    let parent = tree.file(PARENT, AS_PLACE)?;
    make(&parent, DIRECTORY)?;
    let directory = tree.file(&format!("{PARENT}/{DIRECTORY}"), AS_PLACE)?;
    make(&directory, release)?;
    tree.file(&format!("{PARENT}/{DIRECTORY}/{release}"), AS_PLACE)
}

/// Such a directory in memory, over all that there is of modules: they are another kernel's. Like the root, it cannot
/// be written, or what is installed there once the root can be would be lost.
fn covered(tree: &Tree, release: &str) -> Result<OwnedFd, Errno> {
    let over = |tree: &Tree| tree.file(&format!("{PARENT}/{DIRECTORY}"), AS_PLACE);
    let flags = MountFlags::NODEV | MountFlags::NOSUID;
    mount("modules", path(&over(tree)?), "tmpfs", flags, c"mode=0755")?;
    let cover = over(tree)?;
    make(&cover, release)?;
    mount_remount(path(&cover), flags | MountFlags::RDONLY, "")?;
    tree.file(&format!("{PARENT}/{DIRECTORY}/{release}"), AS_PLACE)
}

fn make(directory: impl AsFd, name: &str) -> Result<(), Errno> {
    match mkdirat(directory, name, Mode::from_raw_mode(0o755)) {
        Err(Errno::EXIST) => Ok(()),
        made => made,
    }
}

/// A path that leads nowhere else, whatever links there are.
fn path(place: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", place.as_raw_fd())
}
