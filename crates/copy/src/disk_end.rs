//! One of the two disks, as the guest sees it.

use crate::plan::{DiskPlan, SECTOR_BYTES_DEFAULT};
use anyhow::{Context, Result};
use blockyard_block::Disk;
use blockyard_block::layers::WatchedDisk;
use blockyard_block::layers::{AlignOptions, AlignedDisk};
use blockyard_protocol::layout::SECTOR_SIZE_MAX;
use blockyard_session::client::SessionDisk;
use std::sync::Arc;

/// A disk in sectors of the size that was asked for, watched.
pub(crate) struct DiskEnd {
    /// The disk.
    pub(crate) disk: Arc<WatchedDisk>,
    /// Bytes in a sector, which is what the guest's device has as a logical block.
    pub(crate) sector_bytes: u32,
    session: Option<Arc<SessionDisk>>,
}

impl DiskEnd {
    /// Takes a disk that was opened for the guest's requests of at most `request_bytes`.
    ///
    /// # Errors
    /// When it has blocks of a size that nothing can be made of.
    pub(crate) fn new(
        disk: Arc<dyn Disk>,
        session: Option<Arc<SessionDisk>>,
        plan: &DiskPlan,
        request_bytes: u32,
    ) -> Result<Self> {
        let block_bytes = disk.geometry().logical_block_bytes;
        let suits = (SECTOR_BYTES_DEFAULT..=SECTOR_SIZE_MAX).contains(&block_bytes)
            && request_bytes.is_multiple_of(block_bytes);
        let own_bytes = if suits { block_bytes } else { SECTOR_BYTES_DEFAULT };
        let sector_bytes = plan.sector_bytes.unwrap_or(own_bytes);
        let disk: Arc<dyn Disk> = if sector_bytes == block_bytes {
            disk
        } else {
            let align = AlignOptions { logical_block_bytes: sector_bytes };
            Arc::new(AlignedDisk::new(disk, &align).with_context(|| plan.named.to_string())?)
        };
        Ok(Self { disk: Arc::new(WatchedDisk::new(disk)), sector_bytes, session })
    }

    /// Whether another process serves it.
    pub(crate) fn is_session(&self) -> bool {
        self.session.is_some()
    }

    /// How many queues it can have open for the guest.
    pub(crate) fn queues_max(&self) -> usize {
        self.session.as_ref().map_or(usize::MAX, |session| session.queues_for(self.sector_bytes))
    }

    /// Why the first request that failed did.
    pub(crate) fn first_error(&self) -> Option<String> {
        let error = self.disk.first_error()?;
        // A request knows only that the connection is gone.
        let reason = self.session.as_ref().and_then(|session| session.failure());
        Some(reason.map_or_else(|| error.to_string(), |reason| reason.to_string()))
    }
}
