//! How full the file systems are that are mounted.

use crate::error::Result;
use crate::guest::OpenImage;
use blockyard_protocol::appliance::{FileSystem, Operation, Record};

/// File systems that are told of: more than any image has mounted.
const FILE_SYSTEMS_MAX: usize = 256;

impl OpenImage {
    /// The file systems that are mounted, with their blocks and inodes.
    ///
    /// # Errors
    /// When one of them cannot be looked at.
    pub fn mounted(&mut self) -> Result<Vec<FileSystem>> {
        self.kept_records(Operation::Usage, FILE_SYSTEMS_MAX, |record| match record {
            Record::FileSystem(system) => Some(system),
            _ => None,
        })
    }
}
