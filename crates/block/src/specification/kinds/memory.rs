//! A disk in memory.

use super::{About, BehindKind, DiskKind, LOGICAL_BLOCK_BYTES, logical_block};
use crate::specification::error::SpecificationError;
use crate::specification::keys::KeysTaken;
use crate::specification::opening::{OnBackend, OpenContext, OpenError};
use crate::specification::settings::Settings;
use crate::specification::written::key;
use crate::{MemoryDisk, size};
use std::fmt;
use std::sync::Arc;

const WORD: &str = "mem";

/// A disk in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::specification) struct MemorySpecification {
    capacity_bytes: u64,
    logical_block_bytes: Option<u32>,
}

impl DiskKind for MemorySpecification {
    fn about() -> About {
        let keys = KeysTaken { taker: "a mem: disk", own: &["block-size"] };
        About { word: WORD, needs: "a size after 'mem:', such as mem:1G", keys }
    }

    fn read(behind: &BehindKind, settings: &Settings<'_>) -> Result<Self, SpecificationError> {
        let logical_block_bytes = logical_block(settings)?;
        Ok(Self { capacity_bytes: behind.capacity(WORD, settings)?, logical_block_bytes })
    }

    fn write_start(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{WORD}:{}", size::exact(self.capacity_bytes))
    }

    fn write_keys(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        key(f, "block-size", self.logical_block_bytes)
    }

    fn logical_block_bytes(&self) -> Option<u32> {
        self.logical_block_bytes
    }

    fn open(&self, read_only: bool, _: &OpenContext<'_>) -> Result<OnBackend, OpenError> {
        let Self { capacity_bytes, logical_block_bytes } = *self;
        let made = MemoryDisk::new(capacity_bytes, logical_block_bytes.unwrap_or(LOGICAL_BLOCK_BYTES));
        let disk = made.map_err(|source| OpenError::Memory { capacity_bytes, source })?;
        Ok(OnBackend::in_no_file(Arc::new(disk), read_only))
    }
}
