//! From a specification back to text.

use super::written::{escaped, flag, key};
use super::{Delta, DiskSpecification, PartitionChoice, TABLES};
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
        self.hindrances.write(f)
    }
}
