//! The disk that a copy reads.

use crate::disk_end::DiskEnd;
use crate::plan::{CopyPlan, SECTOR_BYTES_DEFAULT};
use anyhow::{Result, bail};
use blockyard_block::{Disk, DiskReader, Extent, ExtentKind, UnpackedDisk, walk_extents};
use blockyard_session::open::{OpenOptions, open_disk};
use std::ops::Range;
use std::sync::Arc;

/// The disk that is read.
pub(crate) struct Source {
    /// The disk as the guest sees it.
    pub(crate) end: DiskEnd,
    /// Bytes to copy: what the disk has, before it was rounded up to whole sectors.
    pub(crate) length_bytes: u64,
    /// What the permission bits of its files allow.
    pub(crate) permissions: Option<u32>,
    /// It, if it is decompressed while it is read: from one queue, in order.
    pub(crate) unpacked: Option<Arc<UnpackedDisk>>,
}

impl Source {
    /// Opens the input.
    ///
    /// # Errors
    /// When it cannot be read as a disk.
    pub(crate) fn open(plan: &CopyPlan, options: &OpenOptions<'_>) -> Result<Self> {
        let input = &plan.input;
        let block_bytes = input.sector_bytes.unwrap_or(SECTOR_BYTES_DEFAULT);
        // What `snapshot` would spare is spared anyway.
        let mut specification = input.specification.clone().read_only();
        if specification.raw_file().is_some() {
            specification = specification.or_logical_block(block_bytes);
        }
        let opened = open_disk(&specification, &OpenOptions { read_only: true, ..*options })?;
        let (permissions, unpacked) = (opened.permissions, opened.unpacked);
        let length_bytes = match (&unpacked, &options.unpacking) {
            (Some(unpacked), Some(options)) => unpacked.find_length(&mut |done, all| (options.progress)(done, all))?,
            _ => opened.length_bytes,
        };
        let end = DiskEnd::new(opened.disk, opened.session, input, plan.request_bytes)?;
        let whole_bytes = end.disk.geometry().capacity_bytes;
        if whole_bytes < length_bytes {
            bail!(
                "{} has {length_bytes} bytes, which are no whole number of sectors of {}: choose smaller ones",
                input.named,
                end.sector_bytes
            );
        }
        Ok(Self { end, length_bytes, permissions, unpacked })
    }

    /// Makes sure that a compressed file ends where its disk does, and was whole.
    ///
    /// # Errors
    /// When it does not.
    pub(crate) fn finish(&self) -> Result<()> {
        Ok(self.unpacked.as_ref().map_or(Ok(()), |unpacked| unpacked.finish())?)
    }

    /// Whether the guest looks for zeros in what it reads: what is decompressed does not say where they are.
    pub(crate) fn looks_for_zeros(&self, plan: &CopyPlan) -> bool {
        plan.detect_zeroes || self.unpacked.is_some()
    }

    /// Why the first request that failed did.
    pub(crate) fn first_error(&self) -> Option<String> {
        let error = self.end.first_error()?;
        Some(self.unpacked.as_ref().and_then(|unpacked| unpacked.failure()).unwrap_or(error))
    }

    /// Where the first sector lies that cannot be read of a request at an offset that failed; the offset, where that
    /// cannot be found out.
    pub(crate) fn first_failure(&self, offset_bytes: u64, request_bytes: u32) -> u64 {
        // What is decompressed is read once, and who lost a session waits for it.
        if self.unpacked.is_some() || self.end.is_session() {
            return offset_bytes;
        }
        let end = offset_bytes.saturating_add(request_bytes.into()).min(self.end.disk.geometry().capacity_bytes);
        let mut sector = vec![0; self.end.sector_bytes as usize];
        let failed = DiskReader::new(&*self.end.disk).ok().and_then(|mut reader| {
            (offset_bytes..end).step_by(sector.len()).find(|&at| reader.read(at, &mut sector).is_err())
        });
        failed.unwrap_or(offset_bytes)
    }

    /// Calls `take` for every range of data, in order; returns how many bytes that is.
    ///
    /// # Errors
    /// When the disk cannot be asked, or `take` fails.
    pub(crate) fn for_data(&self, mut take: impl FnMut(Range<u64>) -> Result<()>) -> Result<u64> {
        let mut data_bytes = 0;
        for extent in walk_extents(&*self.end.disk, 0..self.length_bytes) {
            let Extent { offset_bytes, length_bytes, kind } = extent?;
            if kind == ExtentKind::Data {
                data_bytes += length_bytes;
                take(offset_bytes..offset_bytes + length_bytes)?;
            }
        }
        Ok(data_bytes)
    }
}
