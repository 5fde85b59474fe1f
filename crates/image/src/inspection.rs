//! Which operating systems an image has, and which file systems.

mod operating_system;
mod packages;

pub use operating_system::{Files, OperatingSystem};
pub use packages::Package;

use crate::error::{Context, Result};
use crate::guest::{OpenImage, RecordTaker};
use crate::volumes::stacks::{Asking, is_closed};
use blockyard_block::printable;
use blockyard_protocol::appliance::{Inspect, Mount, MountPoint, Operation, Record, Root, RootFile, Volume};
use serde::Serialize;
use std::io;

/// What is known of an image. The names are virt-inspector's.
#[derive(Debug, Default, Serialize)]
pub struct Inspection {
    /// The first is the one whose files are worked on.
    pub operatingsystems: Vec<System>,
    /// Of all of the image.
    pub filesystems: Vec<FileSystem>,
}

/// An operating system.
#[derive(Debug, Serialize)]
pub struct System {
    /// The device that its root file system is on.
    pub root: String,
    /// linux.
    pub name: &'static str,
    /// What its files say.
    #[serde(flatten)]
    pub facts: OperatingSystem,
    /// What is mounted where, as its /etc/fstab says.
    pub mountpoints: Vec<MountedOn>,
    /// Those of them that are there.
    pub filesystems: Vec<FileSystem>,
    /// None were looked for, or there is no telling.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub applications: Option<Vec<Package>>,
    /// As the appliance takes them.
    #[serde(skip)]
    points: Vec<MountPoint>,
    /// What could not be done or found, in sentences.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// Something that is mounted.
#[derive(Debug, Serialize)]
pub struct MountedOn {
    /// The device, or the subvolume.
    pub dev: String,
    /// Where.
    pub mountpoint: String,
}

/// What is on a volume.
#[derive(Clone, Debug, Serialize)]
pub struct FileSystem {
    /// The device.
    pub dev: String,
    /// What it is, as blkid(8) says; `unknown`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Its name, or nothing.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub label: String,
    /// Its number, or nothing.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uuid: String,
    /// Bytes.
    pub size: u64,
    #[serde(skip)]
    is_closed: bool,
}

impl From<Volume> for FileSystem {
    fn from(volume: Volume) -> Self {
        Self {
            is_closed: is_closed(&volume),
            dev: device_path(&volume.device),
            kind: if volume.r#type.is_empty() { "unknown".to_owned() } else { volume.r#type },
            label: volume.label,
            uuid: volume.uuid,
            size: volume.size,
        }
    }
}

/// As guestfish has it.
fn device_path(name: &str) -> String {
    let name = printable(name);
    if name.starts_with("btrfsvol:") { name } else { format!("/dev/{name}") }
}

impl Inspection {
    /// Whether no operating system was found.
    pub fn is_empty(&self) -> bool {
        self.operatingsystems.is_empty()
    }

    /// Whether something may be found once it is opened.
    pub fn is_partly_closed(&self) -> bool {
        self.filesystems.iter().any(|volume| volume.is_closed)
    }

    /// What guestfish -i says of the first: a line for the system, and one for each mount point.
    pub fn greeting(&self) -> Vec<String> {
        let Some(system) = self.operatingsystems.first() else {
            return vec!["no operating system was found".to_owned()];
        };
        let mut lines = vec![format!("operating system: {}", system.title())];
        lines.extend(system.mountpoints.iter().map(|point| format!("{} mounted on {}", point.dev, point.mountpoint)));
        lines
    }
}

impl System {
    fn new(root: Root, files: &Files, volumes: &[Volume]) -> Self {
        let is_there = |volume: &&Volume| {
            let device =
                |point: &MountPoint| point.device == volume.device || subvolume_of(&point.device, &volume.device);
            root.mounted.iter().any(device)
        };
        let point = |point: &MountPoint| MountedOn {
            dev: device_path(&point.device),
            mountpoint: String::from_utf8_lossy(&point.directory).into_owned(),
        };
        Self {
            root: device_path(&root.device),
            name: "linux",
            facts: OperatingSystem::of(files),
            filesystems: volumes.iter().filter(is_there).cloned().map(FileSystem::from).collect(),
            mountpoints: root.mounted.iter().map(point).collect(),
            notes: root.notes.iter().map(|note| printable(note)).collect(),
            applications: None,
            points: root.mounted,
        }
    }

    /// Finds out which packages it has, or notes why not. Afterwards its file systems are mounted.
    pub fn look_for_packages(&mut self, image: &mut OpenImage) {
        let format = self.facts.package_format.clone().unwrap_or_default();
        let found = image.mount_for_a_look(self.points.clone()).and_then(|()| image.packages(&format));
        match found {
            Ok(packages) => self.applications = packages,
            Err(error) => {
                let error = error.in_one_line();
                self.notes.push(format!("{}: its packages cannot be listed: {error}", self.root));
            }
        }
    }

    /// What it is called.
    pub fn title(&self) -> &str {
        let OperatingSystem { product_name, distro, .. } = &self.facts;
        product_name.as_deref().or(distro.as_deref()).unwrap_or("unknown")
    }

    /// Where a device is mounted, with the root if that is another than the device.
    pub fn mounted_on(&self, device: &str) -> Vec<String> {
        let name = device.trim_start_matches("/dev/");
        let here = self.mountpoints.iter().filter(|point| point.dev == device || subvolume_of(&point.dev, name));
        here.map(|point| point.mountpoint.clone()).collect()
    }
}

/// Whether it is a name like btrfsvol:/dev/vda2/@ of a subvolume of vda2.
fn subvolume_of(name: &str, volume: &str) -> bool {
    name.strip_prefix("btrfsvol:/dev/")
        .and_then(|rest| rest.strip_prefix(volume))
        .is_some_and(|rest| rest.starts_with('/'))
}

/// Volumes, roots, and files of each that are kept: more than any agent of ours tells of.
const VOLUMES_MAX: usize = 4096;
const ROOTS_MAX: usize = 64;
const FILES_MAX: usize = 64;

/// Takes what the appliance says of an image.
#[derive(Default)]
pub struct Inspector {
    volumes: Vec<Volume>,
    roots: Vec<(Root, Files)>,
}

impl RecordTaker for Inspector {
    type Output = Inspection;

    fn take(&mut self, record: Record) -> io::Result<()> {
        match record {
            Record::Volume(volume) if self.volumes.len() < VOLUMES_MAX => self.volumes.push(volume),
            Record::Root(root) if self.roots.len() < ROOTS_MAX => self.roots.push((root, Files::new())),
            Record::RootFile(RootFile { path, content }) => {
                if let Some((_, files)) = self.roots.last_mut().filter(|(_, files)| files.len() < FILES_MAX) {
                    files.insert(path, content);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn finish(self) -> io::Result<Self::Output> {
        let Self { volumes, roots } = self;
        let operatingsystems = roots.into_iter().map(|(root, files)| System::new(root, &files, &volumes)).collect();
        Ok(Inspection { operatingsystems, filesystems: volumes.into_iter().map(FileSystem::from).collect() })
    }
}

impl OpenImage {
    /// Finds out which operating systems there are. Afterwards nothing is mounted.
    ///
    /// # Errors
    /// When what was to be mounted for it cannot be.
    pub fn inspect(&mut self) -> Result<Inspection> {
        let found = self.inspect_opened();
        let (closed, none) = found.as_ref().map_or((true, true), |found| (found.is_partly_closed(), found.is_empty()));
        let asking = if none && self.can_ask() { Asking::Somebody } else { Asking::Nobody };
        if closed && self.open_stacks(asking).with_context(|| self.name().to_owned())? {
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
            if !self.take_supplied() {
                return found.with_context(|| self.name().to_owned());
            }
        }
    }
}
