//! The kernel of the first disk's own operating system, which an appliance finds.

use crate::Audience;
use crate::configuration::Configuration;
use anyhow::{Context, Result, bail};
use blockyard_appliance::Backend;
use blockyard_block::Disk;
use blockyard_image::boot_files::{BootEntry, BootFiles};
use blockyard_image::guest::OpenImage;
use blockyard_image::{Access, ImageDisk, ImageOptions, Resources};
use blockyard_session::open::{OpenOptions, open_disk};
use std::sync::Arc;

/// Takes what the first disk's boot loader would boot.
///
/// # Errors
/// When there is no disk, or no kernel on it.
pub(crate) fn take(
    configuration: &Configuration,
    opening: &OpenOptions<'_>,
    audience: &dyn Audience,
) -> Result<BootFiles> {
    let mut image = mounted(configuration, opening, audience)?;
    Ok(image.boot_files()?)
}

/// Says what the first disk's boot loader would boot.
///
/// # Errors
/// As for running the machine.
pub fn own_kernel(
    configuration: &Configuration,
    opening: &OpenOptions<'_>,
    audience: &dyn Audience,
) -> Result<BootEntry> {
    Ok(mounted(configuration, opening, audience)?.boot_entry()?)
}

/// The disks, for reading: the machine opens them for itself afterwards.
fn mounted(configuration: &Configuration, opening: &OpenOptions<'_>, audience: &dyn Audience) -> Result<OpenImage> {
    if configuration.disks.is_empty() {
        bail!("there is no kernel: name one with --kernel");
    }
    let keys = configuration.read_keys(&*audience.watch())?;
    let resources = Resources::find_for(Backend::Auto, audience.kernel_argument())
        .context("no --kernel is named, and it is for an appliance to find one")?;
    let opening = OpenOptions { read_only: true, has_secrets: true, ..*opening };
    let open = |disk: &crate::configuration::GuestDisk| {
        let opened = open_disk(&disk.name.clone().read_only(), &opening)?;
        anyhow::Ok(ImageDisk { disk: opened.disk as Arc<dyn Disk>, name: disk.name.to_string().into() })
    };
    let disks = configuration.disks.iter().map(open).collect::<Result<_>>()?;
    let mut image = ImageOptions::new(disks).access(Access::Read).keys(keys).boot(resources, audience.watch())?;
    image.mount()?;
    Ok(image)
}
