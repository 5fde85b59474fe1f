//! `blockyard image fstrim` and `zero-free`.

use super::file_commands::{Access, FileCommand};
use super::open_image::{OpenArgs, OpenImage};
use crate::{print, size};
use anyhow::{Context, Result, bail};
use blockyard_block::printable;
use blockyard_protocol::appliance::{MountPoint, Operation, Trimmed};
use clap::Args;

/// Give the free blocks of an image's file systems back to the host: they become holes in the image's file.
///
/// All file systems are worked on, whatever is mounted where; with -m, those.
#[derive(Args)]
pub struct Fstrim {}

impl FileCommand for Fstrim {
    fn access(&self) -> Access {
        Access::Write
    }

    fn mounts(&self) -> bool {
        false
    }

    fn run(&self, image: &mut OpenImage) -> Result<()> {
        if !image.all_disks(|disk| disk.discard) {
            bail!("{}: its disk gives nothing back", image.name());
        }
        told(&trim_all(image)?)
    }
}

/// Make zeros of the free blocks of an image's file systems, so that it converts and compresses to less.
///
/// Nothing is written where the image's file can have holes. All file systems are worked on; with -m, those.
#[derive(Args)]
pub struct ZeroFree {}

impl FileCommand for ZeroFree {
    fn access(&self) -> Access {
        Access::Write
    }

    fn mounts(&self) -> bool {
        false
    }

    fn run(&self, image: &mut OpenImage) -> Result<()> {
        if !image.all_disks(|disk| disk.discard) {
            bail!("{}: its disk cannot be zeroed but by writing", image.name());
        }
        image.zeros_as_holes(true);
        let trimmed = trim_all(image);
        image.zeros_as_holes(false);
        told(&trimmed?)
    }
}

fn told(trimmed: &[Trimmed]) -> Result<()> {
    let line = |trimmed: &Trimmed| format!("{}: {} free", printable(&trimmed.device), size::human(trimmed.bytes));
    print(&trimmed.iter().map(line).collect::<Vec<_>>().join("\n"))
}

/// Trims what is mounted, or, if nothing is, mounts one volume after another and trims it.
fn trim_all(image: &mut OpenImage) -> Result<Vec<Trimmed>> {
    if image.volumes()?.iter().any(|volume| !volume.directory.is_empty()) {
        return trim(image);
    }
    let mut trimmed = Vec::new();
    for (_, volume) in image.file_systems()? {
        let point = MountPoint { device: volume.device, directory: b"/".to_vec(), ..MountPoint::default() };
        image.mount_points(vec![point], &OpenArgs::default())?;
        trimmed.append(&mut trim(image)?);
        image.unmount()?;
    }
    if trimmed.is_empty() {
        bail!("{}: there is no file system that has free blocks", image.name());
    }
    Ok(trimmed)
}

fn trim(image: &mut OpenImage) -> Result<Vec<Trimmed>> {
    let name = image.name().to_owned();
    Ok(image.call(Operation::Trim).context(name)?.trimmed)
}
