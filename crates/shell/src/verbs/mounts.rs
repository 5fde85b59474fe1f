//! Commands on what is mounted.

use crate::arguments::text;
use crate::devices::{disk_index, their_name};
use crate::verb::Action::Call;
use crate::verb::on_files::{changes, tells};
use crate::verb::{Verb, of_shell, on_disks};
use crate::workbench::Workbench;
use anyhow::{Result, bail};
use blockyard_block::{printable, shown};
use blockyard_command_line::terminal::print;
use blockyard_command_line::usage_error::UsageError;
use blockyard_protocol::appliance::MountPoint;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

/// On what is mounted where.
pub(crate) const VERBS: &[Verb] = &[
    of_shell(
        &["mount"],
        "DEVICE DIR",
        "Mount a file system",
        Call(|workbench, words| mount(workbench, &words[0], &words[1], "", "")),
    ),
    of_shell(
        &["mount-ro"],
        "DEVICE DIR",
        "Mount a file system for reading only",
        Call(|workbench, words| mount(workbench, &words[0], &words[1], "ro", "")),
    ),
    changes(
        &["mount-options"],
        "OPTIONS DEVICE DIR",
        "Mount with options of mount(8)",
        Call(|workbench, words| mount(workbench, &words[1], &words[2], text(&words[0])?, "")),
    ),
    changes(
        &["mount-vfs"],
        "OPTIONS TYPE DEVICE DIR",
        "Mount with options of mount(8) and a file system's type",
        Call(|workbench, words| mount(workbench, &words[2], &words[3], text(&words[0])?, text(&words[1])?)),
    ),
    changes(
        &["mount-loop"],
        "PATH DIR",
        "Mount the file system that is in a file of what is mounted",
        Call(mount_loop),
    ),
    of_shell(&["umount", "unmount"], "DIR|DEVICE", "Unmount", Call(unmount)),
    of_shell(&["umount-all", "unmount-all"], "", "Unmount all", Call(|workbench, _| workbench.unmount_all())),
    tells(&["mounts"], "", "List the devices that are mounted", Call(mounts)),
    tells(&["mountpoints"], "", "List what is mounted where", Call(mount_points)),
    on_disks::changes(
        &["sync"],
        "",
        "Everything that was written to stable storage",
        Call(|workbench, _| workbench.sync()),
    ),
];

/// `mount` and its like.
///
/// # Errors
/// When it cannot be mounted.
pub(crate) fn mount(
    workbench: &mut Workbench,
    device: &OsStr,
    directory: &OsStr,
    options: &str,
    kind: &str,
) -> Result<()> {
    if !directory.as_bytes().starts_with(b"/") {
        bail!(UsageError(format!("{}: a directory begins with /", shown(directory))));
    }
    let device = text(device)?;
    let on_read_only = |workbench: &Workbench| {
        let short = device.trim_start_matches("/dev/");
        let disk = short.trim_end_matches(|letter: char| letter.is_ascii_digit());
        disk_index(workbench, OsStr::new(disk)).is_ok_and(|index| workbench.drives()[index].read_only)
    };
    let mut options = options.to_owned();
    if on_read_only(workbench) && !options.split(',').any(|option| option == "ro") {
        options = if options.is_empty() { "ro".to_owned() } else { format!("{options},ro") };
    }
    workbench.mount(MountPoint {
        device: device.to_owned(),
        directory: directory.as_bytes().to_vec(),
        r#type: kind.to_owned(),
        options: options.into_bytes(),
        note: String::new(),
    })
}

/// `mount-loop`: the file system in a file of what is mounted.
fn mount_loop(workbench: &mut Workbench, words: &[OsString]) -> Result<()> {
    let Some(path) = words[0].to_str() else {
        bail!("{} is no text, so it cannot be mounted", shown(&words[0]));
    };
    let device = OsString::from(format!("loop:/{}", path.trim_start_matches('/')));
    mount(workbench, &device, &words[1], "", "")
}

/// `umount`.
fn unmount(workbench: &mut Workbench, words: &[OsString]) -> Result<()> {
    let name = &words[0];
    let points = workbench.points().to_vec();
    let mut found = points.iter().find(|point| point.directory == name.as_bytes());
    if found.is_none() {
        // A device has several names.
        let image = workbench.image()?;
        let mut device_of = |name: &str| image.volume(Some(name)).ok().map(|volume| volume.device);
        let wanted = text(name).ok().filter(|name| !name.is_empty()).and_then(&mut device_of);
        found = points.iter().find(|point| wanted.is_some() && device_of(&point.device) == wanted);
    }
    let found = match found {
        Some(found) => workbench.unmount(|point| point.directory == found.directory)?,
        None => false,
    };
    if found { Ok(()) } else { bail!("{}: it is not mounted", shown(name)) }
}

/// `mounts`.
fn mounts(workbench: &mut Workbench, _: &[OsString]) -> Result<()> {
    workbench.points().iter().try_for_each(|point| print(&device_of(point)))
}

/// `mountpoints`.
fn mount_points(workbench: &mut Workbench, _: &[OsString]) -> Result<()> {
    let line =
        |point: &MountPoint| format!("{}: {}", device_of(point), printable(&String::from_utf8_lossy(&point.directory)));
    workbench.points().iter().try_for_each(|point| print(&line(point)))
}

fn device_of(point: &MountPoint) -> String {
    match point.device.starts_with("loop:") {
        true => printable(&point.device),
        false => their_name(point.device.strip_prefix("/dev/").unwrap_or(&point.device)),
    }
}
