//! Partition tables that a session makes.
//!
//! The host writes them, as `image create` does: they are small, and come from here. The appliance then reads them again.

use super::disk_commands::their_name;
use super::session::Session;
use anyhow::{Context, Result, bail};
use blockyard_block::partition_table::{NewPartition, PartitionKind, PartitionTable, Scheme, lay_out};
use blockyard_block::{Disk, flush, write_bytes};
use blockyard_protocol::appliance::{Operation, ReadPartitions, Volume};
use std::ops::Range;

/// What guestfish counts.
const SECTOR_BYTES: u64 = 512;
/// What is cleared at both ends of a disk: every table that may be there, and the first bytes of a file system.
const CLEARED_BYTES: u64 = 1 << 20;

/// A table that is being made.
#[derive(Clone, Debug)]
pub struct NewTable {
    scheme: Scheme,
    ranges: Vec<Range<u64>>,
    partitions: Vec<NewPartition>,
}

impl NewTable {
    /// Without partitions.
    pub fn new(scheme: Scheme) -> Self {
        Self { scheme, ranges: Vec::new(), partitions: Vec::new() }
    }

    /// With one partition, which is the whole disk.
    ///
    /// # Errors
    /// When the disk is too small.
    pub fn whole(scheme: Scheme, disk: &dyn Disk) -> Result<Self> {
        let geometry = disk.geometry();
        let partitions = vec![partition(scheme)?];
        let ranges = lay_out(scheme, &partitions, geometry.capacity_bytes, geometry.logical_block_bytes.into())?;
        Ok(Self { scheme, ranges, partitions })
    }

    /// Adds a partition: its first and its last sector, negative ones counted from the disk's end.
    ///
    /// # Errors
    /// When it is not on the disk.
    pub fn add(&mut self, disk: &dyn Disk, start: i64, end: i64) -> Result<()> {
        let sectors = i64::try_from(disk.geometry().capacity_bytes / SECTOR_BYTES).unwrap_or(i64::MAX);
        let absolute = |sector: i64| if sector < 0 { sectors.saturating_add(sector) } else { sector };
        let (start, end) = (absolute(start), absolute(end));
        if start < 0 || end < start || end >= sectors {
            bail!("there are no sectors {start} to {end}: the disk has {sectors}");
        }
        self.ranges.push(start as u64 * SECTOR_BYTES..(end as u64 + 1) * SECTOR_BYTES);
        self.partitions.push(partition(self.scheme)?);
        Ok(())
    }

    /// Partition `number`, from 1, to change what it is called and is for.
    ///
    /// # Errors
    /// When there is none.
    pub fn partition(&mut self, number: usize) -> Result<&mut NewPartition> {
        let partition = number.checked_sub(1).and_then(|index| self.partitions.get_mut(index));
        partition.with_context(|| format!("there is no partition {number}"))
    }

    /// What a partition is for, by a word or as such tables write it.
    ///
    /// # Errors
    /// When there is no such kind.
    pub fn kind(&self, word: &str) -> Result<PartitionKind> {
        PartitionKind::of_word(word, self.scheme).with_context(|| format!("{word} is no type of such a table"))
    }
}

fn partition(scheme: Scheme) -> Result<NewPartition> {
    let kind = PartitionKind::of_word("linux", scheme).context("there is no kind of partition for Linux")?;
    Ok(NewPartition { length_bytes: None, kind, name: String::new(), is_bootable: false })
}

/// Writes a table to a disk, has the appliance read it, and remembers it. One that is new takes the place of all that was there; what lies in
/// the partitions of another stays.
///
/// # Errors
/// When the disk is in use or is not to be written, or the partitions do not fit.
pub fn write(session: &mut Session, index: usize, table: NewTable, is_new: bool) -> Result<()> {
    let drive = &session.drives()[index];
    if drive.read_only {
        bail!("{} is open for reading only", drive.image.name);
    }
    let letter = char::from(b'a' + (index % 26) as u8);
    let is_its = |device: &str| {
        let short = device.strip_prefix("/dev/").unwrap_or(device);
        ["vd", "sd", "hd", "xvd"].iter().any(|prefix| {
            short.strip_prefix(prefix).is_some_and(|rest| rest.starts_with(letter) && !rest.contains('/'))
        })
    };
    if session.is_running() {
        let image = session.image()?;
        let in_use = |volume: &&Volume| is_its(&volume.device) && (volume.used || !volume.directory.is_empty());
        if let Some(volume) = image.volumes()?.iter().find(in_use) {
            bail!("{} is in use: unmount and close what lies on it first", their_name(&volume.device));
        }
    }
    if let Some(point) = session.points().iter().find(|point| is_its(&point.device)) {
        bail!("{} is mounted: unmount it first", point.device);
    }
    let disk = std::sync::Arc::clone(&session.drives()[index].image.disk);
    PartitionTable::check_ranges(&*disk, table.scheme, &table.partitions, &table.ranges)?;
    session.sync()?;
    if is_new {
        clear(&*disk)?;
    }
    PartitionTable::create_at(&*disk, table.scheme, &table.partitions, &table.ranges)?;
    flush(&*disk).context("cannot write the partition table")?;
    session.tables.insert(index, table);
    if session.is_running() {
        let image = session.image()?;
        let disks = image.disks();
        image.call(Operation::ReadPartitions(ReadPartitions { disks }))?;
    }
    Ok(())
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
