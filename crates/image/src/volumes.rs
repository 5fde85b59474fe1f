//! An image's volumes: its partitions, or the disk where it has none, and what lies on those.
//!
//! [`stacks`] opens what has no files by itself: arrays (RAID), encrypted volumes (LUKS, whose [`keys`] are files or
//! typed) and volume groups (LVM). `stack_changes` makes and takes apart such things. `mounting` mounts.
//! [`file_system_kind`] knows which program makes, checks and labels which file system, [`tools`] runs this machine's
//! programs in the appliance and finds in what they say why they failed.

pub mod file_system_kind;
mod file_systems;
mod hand_over;
pub mod keys;
mod mounting;
pub(crate) mod opened_stacks;
mod stack_changes;
pub mod stacks;
pub mod tools;

pub use file_systems::CheckOutcome;

use crate::error::{Context, Result, refuse};
use crate::guest::OpenImage;
use blockyard_block::{Remedy, printable};
use blockyard_protocol::appliance::{ListVolumes, Operation, Record, Volume};
use file_system_kind::FileSystemKind;
use stacks::Asking;
use std::fmt;

/// Volumes that are listed: more than any image has.
const VOLUMES_MAX: usize = 4096;
/// The kind of file system that has several volumes, as blkid(8) calls it.
const BTRFS: &str = "btrfs";

/// Disks of a file system on several that are not there: as many as there are at least.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Missing {
    missing: u32,
    of: u32,
}

impl fmt::Display for Missing {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} of its {} disks are missing: {}", self.missing, self.of, Remedy::AddDisks)
    }
}

impl OpenImage {
    /// The volumes, in order.
    ///
    /// # Errors
    /// When they cannot be listed.
    pub fn volumes(&mut self) -> Result<Vec<Volume>> {
        self.list_volumes("")
    }

    /// The volume that somebody calls `name`; without a name the only one.
    ///
    /// # Errors
    /// When there is none, or more than one.
    pub fn volume(&mut self, name: Option<&str>) -> Result<Volume> {
        let mut volumes = self.list_volumes(name.unwrap_or_default())?;
        match (volumes.pop(), &volumes[..]) {
            (Some(only), []) => Ok(only),
            (last, others) => {
                let all = others.iter().chain(&last).map(|volume| printable(&volume.device));
                refuse!("{}: which one? The image has {}", self.name(), all.collect::<Vec<_>>().join(", "))
            }
        }
    }

    /// As [`OpenImage::volume`], where it may lie in stacks that are not open yet.
    ///
    /// # Errors
    /// As there, and when they cannot be opened.
    pub fn volume_in_stacks(&mut self, name: Option<&str>) -> Result<Volume> {
        let found = self.volume(name);
        match found {
            // There is no such volume, unless the appliance is gone.
            Err(error) if name.is_some() && error.appliance().is_none() => {
                if self.open_stacks(Asking::Somebody).with_context(|| self.name().to_owned())? {
                    return self.volume(name);
                }
                Err(error)
            }
            found => found,
        }
    }

    /// The volumes with file systems that can be mounted, of a Btrfs on several the first.
    ///
    /// # Errors
    /// As [`OpenImage::volumes`].
    pub fn file_systems(&mut self) -> Result<Vec<(FileSystemKind, Volume)>> {
        let mut found: Vec<(FileSystemKind, Volume)> = Vec::new();
        for volume in self.volumes()? {
            let same = |other: &Volume| {
                volume.r#type == BTRFS && (&other.r#type, &other.uuid) == (&volume.r#type, &volume.uuid)
            };
            match FileSystemKind::of(&volume.r#type) {
                Some(kind) if kind.is_mountable() && !found.iter().any(|(_, other)| same(other)) => {
                    found.push((kind, volume))
                }
                _ => {}
            }
        }
        Ok(found)
    }

    /// Which of its disks a file system lacks: none where it is on one, or is no Btrfs.
    ///
    /// # Errors
    /// As [`OpenImage::volumes`].
    pub fn missing_disks(&mut self, volume: &Volume) -> Result<Option<Missing>> {
        if volume.r#type != BTRFS || volume.raid_disks < 2 {
            return Ok(None);
        }
        let is_its = |other: &&Volume| (&other.r#type, &other.uuid) == (&volume.r#type, &volume.uuid);
        let there = u32::try_from(self.volumes()?.iter().filter(is_its).count()).unwrap_or(u32::MAX);
        let missing = volume.raid_disks.saturating_sub(there);
        Ok((missing > 0).then_some(Missing { missing, of: volume.raid_disks }))
    }

    fn list_volumes(&mut self, device: &str) -> Result<Vec<Volume>> {
        let request = ListVolumes { disks: self.disks(), device: device.to_owned() };
        let listed = self.kept_records(Operation::ListVolumes(request), VOLUMES_MAX, |record| match record {
            Record::Volume(volume) => Some(volume),
            _ => None,
        });
        listed.with_context(|| self.name().to_owned())
    }
}
