//! `blockyard image inspect`: which operating systems an image has.

use super::file_commands::{Access, FileCommand};
use super::layers::is_closed;
use super::listing::human_size;
use super::open_image::{OpenImage, RecordTaker};
use super::operating_system::{Files, OperatingSystem};
use super::packages::Package;
use crate::{print, terminal};
use anyhow::Result;
use blockyard_bench::table::Table;
use blockyard_block::printable;
use blockyard_protocol::appliance::{MountPoint, Record, Root, RootFile, Volume};
use clap::Args;
use serde::Serialize;
use std::io;

/// Say which operating systems an image has, and which file systems: version, machine, host name, packages, mount points.
///
/// The first is the one whose files the other commands work on. With -m, only what is mounted so.
#[derive(Args)]
pub struct Inspect {
    /// Print one JSON object on stdout, with virt-inspector's names.
    #[arg(long)]
    json: bool,
    /// List the packages of each system too, as its dpkg, apk or rpm has them; --json does anyway.
    #[arg(long)]
    packages: bool,
}

impl FileCommand for Inspect {
    fn access(&self) -> Access {
        Access::Read
    }

    fn mounts(&self) -> bool {
        false
    }

    fn unmounts(&self) -> bool {
        true
    }

    fn run(&self, image: &mut OpenImage) -> Result<()> {
        let mut inspection = image.inspect()?;
        if self.json || self.packages {
            inspection.operatingsystems.iter_mut().for_each(|system| system.look_for_packages(image));
        }
        if self.json {
            print(&terminal::json_pretty(&inspection)?)
        } else {
            print(inspection.render(terminal::output_columns()).trim_end())
        }
    }
}

/// What is known of an image. The names are virt-inspector's.
#[derive(Debug, Default, Serialize)]
pub struct Inspection {
    operatingsystems: Vec<System>,
    /// Of all of the image.
    filesystems: Vec<FileSystem>,
}

#[derive(Debug, Serialize)]
struct System {
    root: String,
    name: &'static str,
    #[serde(flatten)]
    facts: OperatingSystem,
    mountpoints: Vec<MountedOn>,
    filesystems: Vec<FileSystem>,
    /// None were looked for, or there is no telling.
    #[serde(skip_serializing_if = "Option::is_none")]
    applications: Option<Vec<Package>>,
    /// As the appliance takes them.
    #[serde(skip)]
    points: Vec<MountPoint>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notes: Vec<String>,
}

#[derive(Debug, Serialize)]
struct MountedOn {
    dev: String,
    mountpoint: String,
}

#[derive(Clone, Debug, Serialize)]
struct FileSystem {
    dev: String,
    #[serde(rename = "type")]
    kind: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    label: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    uuid: String,
    /// Bytes.
    size: u64,
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
    /// For people.
    fn render(&self, columns: Option<usize>) -> String {
        let mut systems = Table::new(&["root", "system", "version", "machine", "host name", "packages"]);
        for system in &self.operatingsystems {
            systems.row(system.row());
        }
        let mut file_systems = Table::new(&["device", "type", "size", "label", "UUID", "mounted on"]);
        for file_system in &self.filesystems {
            let FileSystem { dev, kind, label, uuid, size, .. } = file_system;
            let on: Vec<_> = self.operatingsystems.iter().flat_map(|system| system.mounted_on(dev)).collect();
            file_systems.row(vec![
                dev.clone(),
                kind.clone(),
                human_size(*size),
                label.clone(),
                uuid.clone(),
                on.join(" "),
            ]);
        }
        let systems = match self.operatingsystems.len() {
            0 => "No operating system was found.\n".to_owned(),
            _ => systems.render_within(columns) + "\n",
        };
        let notes = self.operatingsystems.iter().flat_map(|system| &system.notes);
        let notes: String = notes.map(|note| format!("\n{note}")).collect();
        let packages: String = self.operatingsystems.iter().map(System::render_packages).collect();
        format!("{systems}\n{}\n{packages}{notes}", file_systems.render_within(columns))
    }

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

    /// Finds out which packages it has, or notes why not.
    fn look_for_packages(&mut self, image: &mut OpenImage) {
        let format = self.facts.package_format.clone().unwrap_or_default();
        let found = image.mount_for_a_look(self.points.clone()).and_then(|()| image.packages(&format));
        match found {
            Ok(packages) => self.applications = packages,
            Err(error) => self.notes.push(format!("{}: its packages cannot be listed: {error:#}", self.root)),
        }
    }

    fn render_packages(&self) -> String {
        let Some(packages) = &self.applications else { return String::new() };
        let mut table = Table::new(&["package", "version", "machine"]);
        packages.iter().for_each(|package| {
            table.row(vec![package.name.clone(), package.full_version(), package.arch.clone()]);
        });
        format!("\nPackages of {}:\n{}", self.root, table.render())
    }

    fn title(&self) -> &str {
        let OperatingSystem { product_name, distro, .. } = &self.facts;
        product_name.as_deref().or(distro.as_deref()).unwrap_or("unknown")
    }

    fn row(&self) -> Vec<String> {
        let facts = &self.facts;
        let or_dash = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
        let version = match (facts.major_version, facts.minor_version) {
            (Some(major), Some(minor)) => format!("{major}.{minor}"),
            (Some(major), None) => major.to_string(),
            _ => "-".to_owned(),
        };
        let packages = match (&facts.package_format, &facts.package_management) {
            (Some(format), Some(management)) => format!("{format} ({management})"),
            _ => "-".to_owned(),
        };
        vec![
            self.root.clone(),
            self.title().to_owned(),
            version,
            or_dash(&facts.arch),
            or_dash(&facts.hostname),
            packages,
        ]
    }

    /// Where a device is mounted, with the root if that is another than the device.
    fn mounted_on(&self, device: &str) -> Vec<String> {
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
