//! A disk whose sectors are encrypted on the disk below.

use super::SectorCipher;
use super::encrypted_queue::EncryptedQueue;
use crate::layers::layer;
use crate::{Disk, Extent, ExtentKind, Geometry, MemoryMap, Queue, SEGMENTS_MAX};
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// The disk below, decrypted: each sector of 512 bytes by its number there. What was never written is no zeros.
///
/// A request's memory is never more than read or written once: guests share it, so nothing is encrypted where it lies.
pub(in crate::formats) struct EncryptedDisk {
    below: Arc<dyn Disk>,
    cipher: Arc<SectorCipher>,
}

impl EncryptedDisk {
    pub(in crate::formats) fn new(below: Arc<dyn Disk>, cipher: Arc<SectorCipher>) -> Self {
        Self { below, cipher }
    }
}

impl layer::DiskLayer for EncryptedDisk {
    fn below(&self) -> &dyn Disk {
        &*self.below
    }

    fn geometry(&self) -> Geometry {
        Geometry {
            segments_max: SEGMENTS_MAX,
            transfer_bytes_max: u64::MAX,
            memory_align_bytes: 1,
            // A discarded sector would decrypt to noise, and who sees the disk would see where nothing is.
            discard: false,
            write_zeroes: false,
            ..self.below.geometry()
        }
    }

    fn extents(&self, range: Range<u64>) -> io::Result<Extent> {
        Disk::geometry(self).check_extent_range(&range)?;
        Ok(Extent { offset_bytes: range.start, length_bytes: range.end - range.start, kind: ExtentKind::Data })
    }

    fn open_queue(&self, memory: &MemoryMap, depth: usize) -> io::Result<Box<dyn Queue>> {
        Ok(Box::new(EncryptedQueue::open(&*self.below, Disk::geometry(self), &self.cipher, memory, depth)?))
    }
}
