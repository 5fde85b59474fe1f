//! What is on an image's volumes: its partitions, or the disk where it has none.

use super::open_image::{OpenImage, RecordTaker};
use anyhow::{Result, bail};
use blockyard_block::printable;
use blockyard_protocol::appliance::{ListVolumes, Operation, Record, Volume};
use std::io;

/// Volumes that are listed: more than any image has.
const VOLUMES_MAX: usize = 4096;

impl OpenImage {
    /// The volumes, in order.
    ///
    /// # Errors
    /// When they cannot be listed.
    pub fn volumes(&mut self) -> Result<Vec<Volume>> {
        self.records(Operation::ListVolumes(ListVolumes { disks: self.disks() }), Volumes::default())
    }

    /// The volume that somebody calls `name`; without a name the only one.
    ///
    /// # Errors
    /// When there is none, or more than one.
    pub fn volume(&mut self, name: Option<&str>) -> Result<Volume> {
        let volumes = self.volumes()?;
        let found = match (name, &volumes[..]) {
            (Some(name), _) => volumes.iter().find(|volume| has_name(volume, name)),
            (None, [only]) => Some(only),
            (None, _) => None,
        };
        let names = volumes.iter().map(|volume| printable(&volume.device)).collect::<Vec<_>>().join(", ");
        match (found, name) {
            (Some(found), _) => Ok(found.clone()),
            (None, Some(name)) => bail!("{}: there is no {name}: the image has {names}", self.name()),
            (None, None) => bail!("{}: which one? The image has {names}", self.name()),
        }
    }
}

/// Whether somebody may call it so: /dev/vda1, /dev/sda1, /dev/hda1, the same without /dev/, or 1 for the first disk's.
fn has_name(volume: &Volume, name: &str) -> bool {
    let short = name.strip_prefix("/dev/").unwrap_or(name);
    let device = &volume.device;
    let disk = |prefix| short.strip_prefix(prefix).is_some_and(|rest| device.strip_prefix("vd") == Some(rest));
    short == device || ["sd", "hd", "xvd"].into_iter().any(disk) || device.strip_prefix("vda") == Some(short)
}

#[derive(Default)]
struct Volumes(Vec<Volume>);

impl RecordTaker for Volumes {
    type Output = Vec<Volume>;

    fn take(&mut self, record: Record) -> io::Result<()> {
        match record {
            Record::Volume(volume) if self.0.len() < VOLUMES_MAX => self.0.push(volume),
            _ => {}
        }
        Ok(())
    }

    fn finish(self) -> io::Result<Self::Output> {
        Ok(self.0)
    }
}
