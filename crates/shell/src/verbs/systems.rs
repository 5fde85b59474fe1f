//! Commands on the operating systems of images.

use crate::devices::their_name;
use crate::verb::Action::Call;
use crate::verb::Verb;
use crate::verb::on_disks::tells;
use crate::workbench::Workbench;
use anyhow::{Context, Result};
use blockyard_block::shown;
use blockyard_command_line::terminal::print;
use std::ffi::{OsStr, OsString};

/// What is known of operating systems.
pub(crate) const VERBS: &[Verb] = &[
    tells(&["inspect-os"], "", "List the roots of operating systems", Call(roots)),
    tells(
        &["inspect-get-type"],
        "ROOT",
        "Say which kind of system it is",
        Call(|workbench, words| fact(workbench, words, "name")),
    ),
    tells(
        &["inspect-get-distro"],
        "ROOT",
        "Say which distribution it is",
        Call(|workbench, words| fact(workbench, words, "distro")),
    ),
    tells(
        &["inspect-get-product-name"],
        "ROOT",
        "Say what the system calls itself",
        Call(|workbench, words| fact(workbench, words, "product_name")),
    ),
    tells(
        &["inspect-get-hostname"],
        "ROOT",
        "Say the system's host name",
        Call(|workbench, words| fact(workbench, words, "hostname")),
    ),
    tells(
        &["inspect-get-arch"],
        "ROOT",
        "Say which machine it is for",
        Call(|workbench, words| fact(workbench, words, "arch")),
    ),
    tells(
        &["inspect-get-major-version"],
        "ROOT",
        "Say the first number of its version",
        Call(|workbench, words| fact(workbench, words, "major_version")),
    ),
    tells(
        &["inspect-get-minor-version"],
        "ROOT",
        "Say the second number of its version",
        Call(|workbench, words| fact(workbench, words, "minor_version")),
    ),
    tells(
        &["inspect-get-package-format"],
        "ROOT",
        "Say which packages it has",
        Call(|workbench, words| fact(workbench, words, "package_format")),
    ),
    tells(&["inspect-get-mountpoints"], "ROOT", "List where it mounts what", Call(mount_points_of)),
];

/// `inspect-os`: the roots of operating systems.
fn roots(workbench: &mut Workbench, _: &[OsString]) -> Result<()> {
    systems(workbench)?.iter().try_for_each(|system| print(&root(system)))
}

/// `inspect-get-type` and its like: what is known of the operating system whose root is named.
fn fact(workbench: &mut Workbench, words: &[OsString], name: &str) -> Result<()> {
    match system(workbench, &words[0])?.get(name) {
        Some(serde_json::Value::String(text)) => print(text),
        Some(serde_json::Value::Number(number)) => print(&number.to_string()),
        _ => print("unknown"),
    }
}

/// `inspect-get-mountpoints`.
fn mount_points_of(workbench: &mut Workbench, words: &[OsString]) -> Result<()> {
    let system = system(workbench, &words[0])?;
    let points = system["mountpoints"].as_array().cloned().unwrap_or_default();
    let text = |point: &serde_json::Value, key: &str| point[key].as_str().unwrap_or_default().to_owned();
    points
        .iter()
        .try_for_each(|point| print(&format!("{}: {}", text(point, "mountpoint"), theirs(&text(point, "dev")))))
}

fn theirs(device: &str) -> String {
    device.strip_prefix("/dev/").map_or_else(|| device.to_owned(), their_name)
}

fn root(system: &serde_json::Value) -> String {
    theirs(system["root"].as_str().unwrap_or_default())
}

fn system(workbench: &mut Workbench, wanted: &OsStr) -> Result<serde_json::Value> {
    let systems = systems(workbench)?;
    let found = systems.into_iter().find(|system| wanted == root(system).as_str());
    found.with_context(|| format!("{} is no operating system's root: `inspect-os` lists them", shown(wanted)))
}

fn systems(workbench: &mut Workbench) -> Result<Vec<serde_json::Value>> {
    workbench.open_stacks()?;
    let inspection = workbench.image()?.inspect_all();
    workbench.mount_again()?;
    let value = serde_json::to_value(inspection?)?;
    Ok(value["operatingsystems"].as_array().cloned().unwrap_or_default())
}
