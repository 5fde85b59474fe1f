//! Disks that are made as they are opened, of a size that stands where others have a path: in memory, or of nothing.

use super::{About, BehindKind, DiskKind, LOGICAL_BLOCK_BYTES, logical_block};
use crate::specification::error::SpecificationError;
use crate::specification::keys::KeysTaken;
use crate::specification::opening::{OnBackend, OpenContext, OpenError};
use crate::specification::settings::Settings;
use crate::specification::written::key;
use crate::{Disk, MemoryDisk, NullDisk, size};
use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::sync::Arc;

/// What such a disk is made of.
pub(in crate::specification) trait Material {
    const WORD: &'static str;
    const TAKER: &'static str;
    const NEEDS: &'static str;

    fn make(capacity_bytes: u64, logical_block_bytes: u32) -> io::Result<Arc<dyn Disk>>;
}

/// A disk in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::specification) struct Memory;

impl Material for Memory {
    const WORD: &'static str = "mem";
    const TAKER: &'static str = "a mem: disk";
    const NEEDS: &'static str = "a size after 'mem:', such as mem:1G";

    fn make(capacity_bytes: u64, logical_block_bytes: u32) -> io::Result<Arc<dyn Disk>> {
        Ok(Arc::new(MemoryDisk::new(capacity_bytes, logical_block_bytes)?))
    }
}

/// A disk that holds nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::specification) struct Nothing;

impl Material for Nothing {
    const WORD: &'static str = "null";
    const TAKER: &'static str = "a null: disk";
    const NEEDS: &'static str = "a size after 'null:', such as null:8G";

    fn make(capacity_bytes: u64, logical_block_bytes: u32) -> io::Result<Arc<dyn Disk>> {
        Ok(Arc::new(NullDisk::new(capacity_bytes, logical_block_bytes)?))
    }
}

/// A disk of some size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::specification) struct OfSize<M> {
    capacity_bytes: u64,
    logical_block_bytes: Option<u32>,
    material: PhantomData<M>,
}

impl<M> OfSize<M> {
    /// One of which nothing more is said.
    pub(in crate::specification) fn new(capacity_bytes: u64) -> Self {
        Self { capacity_bytes, logical_block_bytes: None, material: PhantomData }
    }
}

impl<M: Material> DiskKind for OfSize<M> {
    fn about() -> About {
        let keys = KeysTaken { taker: M::TAKER, own: &["block-size"] };
        About { word: M::WORD, needs: M::NEEDS, keys }
    }

    fn read(behind: &BehindKind, settings: &Settings<'_>) -> Result<Self, SpecificationError> {
        let logical_block_bytes = logical_block(settings)?;
        Ok(Self { logical_block_bytes, ..Self::new(behind.capacity(M::WORD, settings)?) })
    }

    fn write_start(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", M::WORD, size::exact(self.capacity_bytes))
    }

    fn write_keys(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        key(f, "block-size", self.logical_block_bytes)
    }

    fn logical_block_bytes(&self) -> Option<u32> {
        self.logical_block_bytes
    }

    fn open(&self, read_only: bool, _: &OpenContext<'_>) -> Result<OnBackend, OpenError> {
        let Self { capacity_bytes, logical_block_bytes, .. } = *self;
        let disk = M::make(capacity_bytes, logical_block_bytes.unwrap_or(LOGICAL_BLOCK_BYTES))
            .map_err(|source| OpenError::Memory { capacity_bytes, source })?;
        Ok(OnBackend::in_no_file(disk, read_only))
    }
}
