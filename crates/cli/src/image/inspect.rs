//! `blockyard image inspect`: which operating systems an image has.

use anyhow::Result;
use blockyard_bench::table::Table;
use blockyard_command_line::image::file_command::FileCommand;
use blockyard_command_line::image::listing::human_size;
use blockyard_command_line::terminal::{self, print};
use blockyard_image::Access;
use blockyard_image::guest::OpenImage;
use blockyard_image::inspection::{FileSystem, Inspection, System};
use clap::Args;

/// Say which operating systems an image has, and which file systems: version, machine, host name, packages, mount
/// points.
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
            print(render(&inspection, terminal::output_columns()).trim_end())
        }
    }
}

/// For people.
fn render(inspection: &Inspection, columns: Option<usize>) -> String {
    let mut systems = Table::new(&["root", "system", "version", "machine", "host name", "packages"]);
    for system in &inspection.operatingsystems {
        systems.row(row(system));
    }
    let mut file_systems = Table::new(&["device", "type", "size", "label", "UUID", "mounted on"]);
    for file_system in &inspection.filesystems {
        let FileSystem { dev, kind, label, uuid, size, .. } = file_system;
        let on: Vec<_> = inspection.operatingsystems.iter().flat_map(|system| system.mounted_on(dev)).collect();
        file_systems.row(vec![dev.clone(), kind.clone(), human_size(*size), label.clone(), uuid.clone(), on.join(" ")]);
    }
    let systems = match inspection.operatingsystems.len() {
        0 => "No operating system was found.\n".to_owned(),
        _ => systems.render_within(columns) + "\n",
    };
    let notes = inspection.operatingsystems.iter().flat_map(|system| &system.notes);
    let notes: String = notes.map(|note| format!("\n{note}")).collect();
    let packages: String = inspection.operatingsystems.iter().map(render_packages).collect();
    format!("{systems}\n{}\n{packages}{notes}", file_systems.render_within(columns))
}

fn render_packages(system: &System) -> String {
    let Some(packages) = &system.applications else { return String::new() };
    let mut table = Table::new(&["package", "version", "machine"]);
    packages.iter().for_each(|package| {
        table.row(vec![package.name.clone(), package.full_version(), package.arch.clone()]);
    });
    format!("\nPackages of {}:\n{}", system.root, table.render())
}

fn row(system: &System) -> Vec<String> {
    let facts = &system.facts;
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
        system.root.clone(),
        system.title().to_owned(),
        version,
        or_dash(&facts.arch),
        or_dash(&facts.hostname),
        packages,
    ]
}
