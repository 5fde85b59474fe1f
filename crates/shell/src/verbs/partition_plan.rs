//! How partition tables are made and changed.
//!
//! The host writes them, as `image create` does: they are small, and come from here. The appliance then reads them
//! again.

use crate::devices::their_name;
use crate::workbench::Workbench;
use anyhow::{Context, Result, bail};
use blockyard_block::partition_table::{NewPartition, PartitionKind, PartitionTable, Scheme, TableChange};
use blockyard_block::{Disk, flush, write_bytes};
use blockyard_protocol::appliance::{Operation, ReadPartitions, Volume};
use blockyard_protocol::volume_name::lettered;
use std::sync::Arc;

/// What is cleared at both ends of a disk: every table that may be there, and the first bytes of a file system.
const CLEARED_BYTES: u64 = 1 << 20;

/// What becomes of a disk's partition table.
pub(crate) enum Plan {
    /// A new one without partitions takes the place of all that was there.
    Empty(Scheme),
    /// The same with one partition, which is the whole disk.
    Whole(Scheme),
    /// It is changed. What lies in the partitions stays.
    Change(TableChange),
}

/// The kind of new partitions.
///
/// # Errors
/// When there is none for Linux.
pub(crate) fn usual_kind(scheme: Scheme) -> Result<PartitionKind> {
    PartitionKind::of_word("linux", scheme).context("there is no kind of partition for Linux")
}

/// Does that to a disk, and has the appliance read its table.
///
/// # Errors
/// When the disk is in use or is not to be written, or the partitions do not fit.
pub(crate) fn write(workbench: &mut Workbench, index: usize, plan: &Plan) -> Result<()> {
    let drive = &workbench.drives()[index];
    if drive.read_only {
        bail!("{} is open for reading only", drive.image.name);
    }
    let disk = Arc::clone(&drive.image.disk);
    must_be_unused(workbench, index)?;
    workbench.sync()?;
    match plan {
        Plan::Empty(scheme) => {
            PartitionTable::check_ranges(&*disk, *scheme, &[], &[])?;
            clear(&*disk)?;
            PartitionTable::create_at(&*disk, *scheme, &[], &[])?;
        }
        Plan::Whole(scheme) => {
            let kind = usual_kind(*scheme)?;
            let partitions = [NewPartition { length_bytes: None, kind, name: String::new(), is_bootable: false }];
            let geometry = disk.geometry();
            // Before anything is cleared.
            blockyard_block::partition_table::lay_out(
                *scheme,
                &partitions,
                geometry.capacity_bytes,
                geometry.logical_block_bytes.into(),
            )?;
            clear(&*disk)?;
            PartitionTable::create(&*disk, *scheme, &partitions)?;
        }
        Plan::Change(change) => PartitionTable::change(&*disk, change)?,
    }
    flush(&*disk).context("cannot write the partition table")?;
    if workbench.is_running() {
        let image = workbench.image()?;
        let disks = image.disks();
        image.call(Operation::ReadPartitions(ReadPartitions { disks }))?;
    }
    Ok(())
}

fn must_be_unused(workbench: &mut Workbench, index: usize) -> Result<()> {
    let is_its = |device: &str| lettered(device).is_some_and(|(disk, _)| disk as usize == index);
    if workbench.is_running() {
        let image = workbench.image()?;
        let in_use = |volume: &&Volume| is_its(&volume.device) && (volume.used || !volume.directory.is_empty());
        if let Some(volume) = image.volumes()?.iter().find(in_use) {
            bail!("{} is in use: unmount and close what lies on it first", their_name(&volume.device));
        }
    }
    match workbench.points().iter().find(|point| is_its(&point.device)) {
        Some(point) => bail!("{} is mounted: unmount it first", point.device),
        None => Ok(()),
    }
}

fn clear(disk: &dyn Disk) -> Result<()> {
    let capacity = disk.geometry().capacity_bytes;
    let length = CLEARED_BYTES.min(capacity);
    let zeros = vec![0; length as usize];
    for at in [0, capacity - length] {
        write_bytes(disk, at, &zeros).context("cannot write the disk")?;
    }
    Ok(())
}
