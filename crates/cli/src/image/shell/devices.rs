//! What people call disks and other devices, in guestfish's words.

use super::arguments::text;
use super::workbench::Workbench;
use anyhow::{Result, bail};
use blockyard_block::{printable, shown};
use blockyard_protocol::volume_name::lettered;
use std::ffi::OsStr;

/// guestfish's name of a device.
pub fn their_name(device: &str) -> String {
    match device.strip_prefix("vd") {
        Some(rest) if !rest.contains('/') && rest.starts_with(|letter: char| letter.is_ascii_lowercase()) => {
            format!("/dev/sd{rest}")
        }
        _ => format!("/dev/{}", printable(device)),
    }
}

/// The name of the disk that was added as number `index`, from 0.
pub fn disk_name(index: usize) -> String {
    format!("/dev/sd{}", char::from(b'a' + (index % 26) as u8))
}

/// The number of the disk that somebody calls so.
///
/// # Errors
/// When there is none.
pub fn disk_index(workbench: &Workbench, name: &OsStr) -> Result<usize> {
    let index = match lettered(text(name)?) {
        Some((disk, "")) => disk as usize,
        _ => bail!("{} is no disk: they are {} and so on", shown(name), disk_name(0)),
    };
    if index >= workbench.drives().len() {
        bail!("there is no disk {}: {} were added", shown(name), workbench.drives().len());
    }
    Ok(index)
}
