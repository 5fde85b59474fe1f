//! From a specification back to text.

use super::written::{escaped, flag, key};
use super::{Delta, DiskSpecification, PartitionChoice, TABLES};
use crate::layers::ThrottleLimits;
use crate::{duration, size};
use std::fmt::{self, Display};

impl Display for DiskSpecification {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let backend = self.backend.get();
        backend.write_start(f)?;
        backend.write_first_keys(f)?;
        flag(f, "ro", self.read_only)?;
        backend.write_keys(f)?;
        if let Some(PartitionChoice { number, table }) = self.partition {
            key(f, "partition", Some(number))?;
            key(f, "table", TABLES.iter().find(|(_, choice)| *choice == table).map(|(word, _)| word))?;
        }
        match &self.delta {
            Some(Delta::Overlay(path)) => key(f, "overlay", Some(escaped(path)))?,
            Some(Delta::Snapshot) => flag(f, "snapshot", true)?,
            None => {}
        }
        if let Some(ThrottleLimits { iops, bytes_per_second, burst }) = self.limits {
            key(f, "iops", iops)?;
            key(f, "bps", bytes_per_second.map(|bytes| size::exact(bytes.get())))?;
            let burst = (burst != ThrottleLimits::BURST_DEFAULT).then_some(burst);
            key(f, "burst", burst.map(duration::exact))?;
        }
        key(f, "latency", self.latency)?;
        key(f, "faults", self.faults.as_ref())
    }
}
