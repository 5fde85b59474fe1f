//! What people call disks and other devices, in guestfish's words.

use crate::arguments::text;
use crate::workbench::Workbench;
use anyhow::{Result, bail};
use blockyard_appliance::tools::ToolCall;
use blockyard_block::{printable, shown};
use blockyard_command_line::terminal::print;
use blockyard_protocol::volume_name::lettered;
use std::ffi::OsStr;

/// guestfish's name of a device.
pub(crate) fn their_name(device: &str) -> String {
    match device.strip_prefix("vd") {
        Some(rest) if !rest.contains('/') && rest.starts_with(|letter: char| letter.is_ascii_lowercase()) => {
            format!("/dev/sd{rest}")
        }
        _ => format!("/dev/{}", printable(device)),
    }
}

/// The name of the disk that was added as number `index`, from 0.
pub(crate) fn disk_name(index: usize) -> String {
    format!("/dev/sd{}", char::from(b'a' + (index % 26) as u8))
}

/// The number of the disk that somebody calls so.
///
/// # Errors
/// When there is none.
pub(crate) fn disk_index(workbench: &Workbench, name: &OsStr) -> Result<usize> {
    let index = match lettered(text(name)?) {
        Some((disk, "")) => disk as usize,
        _ => bail!("{} is no disk: they are {} and so on", shown(name), disk_name(0)),
    };
    if index >= workbench.drives().len() {
        bail!("there is no disk {}: {} were added", shown(name), workbench.drives().len());
    }
    Ok(index)
}

/// A tool's call that changes these devices.
pub(crate) fn with_devices(call: ToolCall, devices: &[String]) -> ToolCall {
    devices.iter().fold(call, |call, device| call.device(device.as_str())).changes_devices()
}

/// Prints the names of the volumes that are of one kind.
pub(crate) fn list_volumes(workbench: &mut Workbench, is_one: fn(&str) -> bool) -> Result<()> {
    workbench.open_stacks()?;
    let volumes = workbench.image()?.volumes()?;
    volumes.iter().filter(|volume| is_one(&volume.device)).try_for_each(|volume| print(&their_name(&volume.device)))
}
