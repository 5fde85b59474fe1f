//! Which file systems are the root of an operating system: the one place that says so.

use crate::block_devices::{self, Volume};
use crate::failures::refusal;
use crate::mount_options::{MountOptions, load_driver};
use crate::tree::Tree;
use blockyard_protocol::appliance::Failure;
use rustix::mount::{UnmountFlags, unmount};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Subvolumes in a btrfs's top directory that are looked into.
const SUBVOLUMES_MAX: usize = 64;
/// Those that distributions call their root, in the order in which they are looked at.
const ROOT_SUBVOLUMES: [&str; 3] = ["@", "root", "@rootfs"];
/// The inode number of a subvolume's top directory (Linux, fs/btrfs/btrfs_inode.h, BTRFS_FIRST_FREE_OBJECTID).
const SUBVOLUME_INODE: u64 = 256;

/// File systems without owners and permissions.
const NOT_FOR_ROOTS: [&str; 2] = ["vfat", "iso9660"];

/// What can be mounted: a volume, or a subvolume of one.
#[derive(Clone, Debug)]
pub(crate) struct Source<'volumes> {
    pub(crate) volume: &'volumes Volume,
    /// As btrfs's mount option, `subvol=@`.
    pub(crate) subvolume: Option<String>,
}

impl<'volumes> Source<'volumes> {
    pub(crate) fn whole(volume: &'volumes Volume) -> Self {
        Self { volume, subvolume: None }
    }

    /// What somebody calls `name`: a volume, or as guestfish has it btrfsvol:/dev/vda2/@.
    pub(crate) fn find(volumes: &'volumes [Volume], name: &str) -> Result<Self, Failure> {
        let Some(path) = name.strip_prefix("btrfsvol:") else {
            return block_devices::find(volumes, name).map(Self::whole);
        };
        let ends = path.match_indices('/').map(|(at, _)| at);
        let found = ends.filter_map(|at| Some((block_devices::lookup(volumes, &path[..at])?, &path[at + 1..]))).next();
        match found {
            Some((volume, subvolume)) => Ok(Self { volume, subvolume: Some(format!("subvol={subvolume}")) }),
            None => block_devices::find(volumes, path).map(Self::whole),
        }
    }

    /// What it is called.
    pub(crate) fn name(&self) -> String {
        match self.subvolume.as_deref().and_then(|option| option.strip_prefix("subvol=")) {
            Some(subvolume) => format!("btrfsvol:/dev/{}/{subvolume}", self.volume.name),
            None => self.volume.name.clone(),
        }
    }

    pub(crate) fn is(&self, other: &Source<'_>) -> bool {
        self.volume.node == other.volume.node && self.subvolume == other.subvolume
    }
}

/// The root file system: the only volume with files, or the first that looks like it, or, where none does, the one that
/// is meant to be it. `place` is a directory to mount on for a look; `choose` is how somebody would name another.
pub(crate) fn find<'volumes>(
    volumes: &'volumes [Volume],
    place: &Path,
    choose: &str,
) -> Result<Source<'volumes>, Failure> {
    let candidates: Vec<_> = mountable(volumes).collect();
    let closed = volumes.iter().any(Volume::is_closed);
    match candidates[..] {
        [] => Err(refusal(nothing_mountable(volumes))),
        // A btrfs has several.
        [only] if !closed && only.content.driver() != "btrfs" => Ok(Source::whole(only)),
        [only] if !closed => Ok(of_volume(only, place).into_iter().next().unwrap_or(Source::whole(only))),
        _ => {
            let system = candidates.iter().find_map(|volume| of_volume(volume, place).into_iter().next());
            let empty = || if closed { None } else { meant(&candidates).map(Source::whole) };
            system.or_else(empty).ok_or_else(|| refusal(nothing_like_a_root(volumes, &candidates, choose)))
        }
    }
}

/// Of file systems that hold no operating system yet, the one that shall: which is called so, or the only one that can.
fn meant<'volumes>(candidates: &[&'volumes Volume]) -> Option<&'volumes Volume> {
    let mut able = candidates.iter().copied().filter(|volume| !NOT_FOR_ROOTS.contains(&volume.content.driver()));
    let is_called_root = |volume: &Volume| ["root", "/"].contains(&volume.content.label.to_lowercase().as_str());
    match (able.clone().find(|volume| is_called_root(volume)), able.next(), able.next()) {
        (Some(called), ..) => Some(called),
        (None, Some(only), None) => Some(only),
        _ => None,
    }
}

fn nothing_like_a_root(volumes: &[Volume], candidates: &[&Volume], choose: &str) -> String {
    let names: Vec<_> = candidates.iter().map(|volume| volume.name.as_str()).collect();
    let closed: Vec<_> = volumes.iter().filter(|volume| volume.is_closed()).map(said).collect();
    let closed = if closed.is_empty() { String::new() } else { format!(" ({})", closed.join("; ")) };
    format!("none of {} looks like a root file system{closed}: choose one with {choose}", names.join(", "))
}

/// All that look like it, in the order in which [`find`] takes them.
pub(crate) fn all<'volumes>(volumes: &'volumes [Volume], place: &Path) -> Vec<Source<'volumes>> {
    mountable(volumes).flat_map(|volume| of_volume(volume, place)).collect()
}

/// What can be mounted, each once: a Btrfs may be on several volumes, of which the first stands for all.
fn mountable(volumes: &[Volume]) -> impl Iterator<Item = &Volume> {
    let mut seen = BTreeSet::new();
    volumes.iter().filter(move |volume| {
        volume.is_mountable() && (volume.content.driver() != "btrfs" || seen.insert(volume.content.uuid.clone()))
    })
}

fn said(volume: &Volume) -> String {
    format!("{} {}", volume.name, volume.why_not().unwrap_or_default())
}

fn nothing_mountable(volumes: &[Volume]) -> String {
    match volumes {
        [] => "the image has no disk".to_owned(),
        [whole] if !whole.name.ends_with(|last: char| last.is_ascii_digit()) => {
            format!("the image has no partitions, and its disk {}", whole.why_not().unwrap_or_default())
        }
        several => {
            let each: Vec<_> = several.iter().filter(|volume| !volume.used).map(said).collect();
            format!("no partition has files: {}", each.join("; "))
        }
    }
}

/// The roots on a volume: what it is mounted as without words, or else subvolumes.
fn of_volume<'volumes>(volume: &'volumes Volume, place: &Path) -> Vec<Source<'volumes>> {
    let whole = Source::whole(volume);
    if look(volume, "", place, |tree| looks_like_root(tree, "")) == Some(true) {
        return vec![whole];
    }
    if volume.content.driver() != "btrfs" {
        return Vec::new();
    }
    let found = look(volume, "subvolid=5", place, |tree| {
        let mut names = subvolumes(place);
        names.retain(|name| looks_like_root(tree, &format!("{name}/")));
        names
    });
    let source = |name| Source { volume, subvolume: Some(format!("subvol={name}")) };
    found.unwrap_or_default().into_iter().map(source).collect()
}

/// Mounts a volume for a look; `None` if that cannot be done.
fn look<T>(volume: &Volume, options: &str, place: &Path, look: impl FnOnce(&Tree) -> T) -> Option<T> {
    let kind = volume.content.driver();
    load_driver(kind);
    MountOptions::new(true, false).with(options).mount(&volume.node, place, kind).ok()?;
    let seen = Tree::open(place).ok().map(|tree| look(&tree));
    // What is mounted next is mounted over this, if it cannot be.
    let _ = unmount(place, UnmountFlags::NOFOLLOW);
    seen
}

/// The subvolumes in the directory `top`, those first that are most likely the root.
fn subvolumes(top: &Path) -> Vec<String> {
    let entries = fs::read_dir(top).into_iter().flatten().flatten();
    let is_subvolume = |entry: &fs::DirEntry| {
        entry.metadata().is_ok_and(|metadata| metadata.is_dir() && metadata.ino() == SUBVOLUME_INODE)
    };
    let names = entries.filter(is_subvolume).filter_map(|entry| entry.file_name().into_string().ok());
    // A comma would be the end of the option.
    let mut names: Vec<_> = names.filter(|name| !name.contains(',')).take(SUBVOLUMES_MAX).collect();
    let rank = |name: &str| ROOT_SUBVOLUMES.iter().position(|root| *root == name).unwrap_or(ROOT_SUBVOLUMES.len());
    names.sort_by(|one, other| rank(one).cmp(&rank(other)).then_with(|| one.cmp(other)));
    names
}

/// Whether an operating system lies at `prefix`, which is empty or ends in a slash.
fn looks_like_root(tree: &Tree, prefix: &str) -> bool {
    let has = |name: &str| tree.has(&format!("{prefix}{name}"));
    has("etc/fstab") || has("etc/os-release") || (has("etc") && (has("bin") || has("usr")))
}
