//! One request of virtio-blk (virtio 1.2 §5.2.6), from a chain of descriptors to something a disk can do.
//!
//! Framing makes no assumptions (§2.7.4): the header is the first 16 readable bytes however they are split, the status
//! is the last writable byte, and the data are everything between.

use super::ChainFault;
use super::descriptor_chain::{Descriptor, DescriptorChain};
use crate::segments::copy_from_segments;
use blockyard_block::{Geometry, MemoryMap, Operation, Segment};
use std::ops::Range;
use virtio_bindings::virtio_blk as blk;
use vm_memory::{Bytes, GuestAddress, GuestMemoryBackend};

/// Bytes of a device's serial, padded with zeros, as GET_ID answers it.
pub const SERIAL_BYTES: usize = blk::VIRTIO_BLK_ID_BYTES as usize;

/// Virtio's unit of place and capacity, whatever the disk's blocks.
pub(crate) const SECTOR_BYTES: u64 = 512;

const HEADER_BYTES: usize = 16;
/// One struct virtio_blk_discard_write_zeroes.
const RANGE_BYTES: usize = 16;

/// Sectors that one discard or write-zeroes request may cover: 2 GiB, so that none takes for ever.
pub(crate) const RANGE_SECTORS_MAX: u32 = 1 << 22;

/// The status byte of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Status {
    Ok = blk::VIRTIO_BLK_S_OK as u8,
    IoError = blk::VIRTIO_BLK_S_IOERR as u8,
    Unsupported = blk::VIRTIO_BLK_S_UNSUPP as u8,
}

/// What is wrong with how a request is put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Defect {
    #[error("{0}")]
    Chain(ChainFault),
    #[error("a buffer at {address:#x} ({length_bytes} bytes) is not in the guest's memory")]
    OutsideMemory { address: u64, length_bytes: u32 },
    #[error("a readable descriptor after a writable one")]
    ReadableAfterWritable,
    #[error("a request of more than {max} segments")]
    Segments { max: u32 },
    #[error("a request whose header has {length_bytes} bytes instead of 16")]
    Header { length_bytes: usize },
    #[error("a request without a writable byte for its status")]
    NoStatus,
}

/// A chain taken apart. Its data segments are in the vector that was given to [`Frame::read`]: the readable ones, then
/// the writable ones.
#[derive(Debug)]
pub(crate) struct Frame {
    header: [u8; HEADER_BYTES],
    header_bytes: usize,
    /// Descriptors of the chain, as far as it could be followed.
    pub(crate) descriptors: u32,
    readable_segments: usize,
    readable_bytes: u32,
    /// Data that the device may write, without the status.
    pub(crate) writable_bytes: u32,
    /// Where the last writable byte is, if it is in memory.
    pub(crate) status_address: Option<u64>,
    /// What is wrong: the chain itself, else the first thing found.
    pub(crate) defect: Option<Defect>,
}

impl Frame {
    /// Follows `chain` to its end. `segments` is empty.
    pub(crate) fn read(
        chain: &mut DescriptorChain<'_>,
        memory: &MemoryMap,
        segments_max: u32,
        segments: &mut Vec<Segment>,
    ) -> Self {
        let mut frame = Self {
            header: [0; HEADER_BYTES],
            header_bytes: 0,
            descriptors: 0,
            readable_segments: 0,
            readable_bytes: 0,
            writable_bytes: 0,
            status_address: None,
            defect: None,
        };
        loop {
            match chain.next() {
                Ok(Some(descriptor)) => {
                    frame.descriptors += 1;
                    frame.add(descriptor, memory, segments_max, segments);
                }
                Ok(None) => break,
                Err(fault) => {
                    // Worse than anything else that may be wrong: without a status, it breaks the queue.
                    frame.defect = Some(Defect::Chain(fault));
                    if let ChainFault::TooMany { .. } = fault {
                        // What was found last is not where the driver looks for a status.
                        frame.status_address = None;
                    }
                    break;
                }
            }
        }
        frame.take_status_byte(memory, segments_max, segments);
        frame
    }

    fn spoil(&mut self, defect: Defect) {
        self.defect.get_or_insert(defect);
    }

    fn add(&mut self, descriptor: Descriptor, memory: &MemoryMap, segments_max: u32, segments: &mut Vec<Segment>) {
        let (mut address, mut length_bytes) = (descriptor.address, descriptor.length_bytes);
        if length_bytes == 0 {
            return;
        }
        if descriptor.is_write_only() {
            self.status_address = address.checked_add(u64::from(length_bytes) - 1);
            self.writable_bytes += length_bytes;
        } else {
            if self.writable_bytes > 0 {
                return self.spoil(Defect::ReadableAfterWritable);
            }
            let header_part = length_bytes.min((HEADER_BYTES - self.header_bytes) as u32);
            if !self.read_header(address, header_part, memory) {
                return self.spoil(Defect::OutsideMemory { address, length_bytes });
            }
            // Reading the header showed that this does not wrap around, unless nothing is left.
            address = address.wrapping_add(u64::from(header_part));
            length_bytes -= header_part;
            self.readable_bytes += length_bytes;
        }
        // One more than the disk takes, because the status byte may be a segment of its own.
        if self.defect.is_none() && segments.len() > segments_max as usize {
            self.spoil(Defect::Segments { max: segments_max });
        }
        if self.defect.is_none() && !memory.find(address, length_bytes, segments) {
            self.spoil(Defect::OutsideMemory { address, length_bytes });
        }
        if !descriptor.is_write_only() {
            self.readable_segments = segments.len();
        }
    }

    /// The common header, whole in one descriptor, is read the short way.
    fn read_header(&mut self, address: u64, length_bytes: u32, memory: &MemoryMap) -> bool {
        if length_bytes as usize == HEADER_BYTES {
            let Some(header) = memory.read(address) else { return false };
            (self.header, self.header_bytes) = (header, HEADER_BYTES);
            return true;
        }
        let end = self.header_bytes + length_bytes as usize;
        let part = &mut self.header[self.header_bytes..end];
        self.header_bytes = end;
        memory.guest_memory().read_slice(part, GuestAddress(address)).is_ok()
    }

    fn take_status_byte(&mut self, memory: &MemoryMap, segments_max: u32, segments: &mut Vec<Segment>) {
        let reachable = |address: &u64| memory.guest_memory().address_in_range(GuestAddress(*address));
        self.status_address = self.status_address.filter(reachable);
        if self.writable_bytes == 0 {
            self.spoil(Defect::NoStatus);
        } else {
            self.writable_bytes -= 1;
        }
        if self.header_bytes < HEADER_BYTES {
            self.spoil(Defect::Header { length_bytes: self.header_bytes });
        }
        if self.defect.is_some() {
            return;
        }
        if let Some(last) = segments.last_mut() {
            last.length_bytes -= 1;
            if last.length_bytes == 0 {
                segments.pop();
            }
        }
        if segments.len() > segments_max as usize {
            self.spoil(Defect::Segments { max: segments_max });
        }
    }

    fn request_type(&self) -> u32 {
        u32::from_le_bytes([self.header[0], self.header[1], self.header[2], self.header[3]])
    }

    fn sector(&self) -> u64 {
        let mut sector = [0; 8];
        sector.copy_from_slice(&self.header[8..]);
        u64::from_le_bytes(sector)
    }

    /// Bytes written to the chain's writable part from its start, as the used ring tells it (§2.7.8.2): the status,
    /// which is the last byte, counts only when everything before it was written.
    pub(crate) fn used_bytes(&self, data_written_bytes: u32) -> u32 {
        if data_written_bytes == self.writable_bytes { data_written_bytes + 1 } else { data_written_bytes }
    }

    /// What the request asks for. A status other than OK if that cannot be.
    pub(crate) fn command(&self, rules: &Rules, memory: &MemoryMap, segments: &[Segment]) -> Result<Command, Status> {
        if self.defect.is_some() {
            return Err(Status::IoError);
        }
        match self.request_type() {
            blk::VIRTIO_BLK_T_IN => {
                let segments = self.readable_segments..segments.len();
                rules.transfer(Operation::Read, self.sector(), self.writable_bytes, segments)
            }
            blk::VIRTIO_BLK_T_OUT => {
                // Without VIRTIO_BLK_F_FLUSH, the driver takes a write that completed for stable (§5.2.6.2).
                let operation = Operation::Write { force_unit_access: !rules.has(blk::VIRTIO_BLK_F_FLUSH) };
                rules.transfer(operation, self.sector(), self.readable_bytes, 0..self.readable_segments)
            }
            blk::VIRTIO_BLK_T_FLUSH if rules.has(blk::VIRTIO_BLK_F_FLUSH) => {
                Ok(Command::Disk { operation: Operation::Flush, offset_bytes: 0, segments: 0..0 })
            }
            blk::VIRTIO_BLK_T_GET_ID if self.writable_bytes as usize >= SERIAL_BYTES => {
                Ok(Command::Identify { segments: self.readable_segments..segments.len() })
            }
            blk::VIRTIO_BLK_T_GET_ID => Err(Status::IoError),
            blk::VIRTIO_BLK_T_DISCARD if rules.has(blk::VIRTIO_BLK_F_DISCARD) => {
                let range = self.range(memory, segments)?;
                // Any flag, including unmap, is unsupported for a discard (§5.2.6.2).
                let length_bytes = range.length_bytes(0)?;
                rules.erase(Operation::Discard { length_bytes }, range.sector, length_bytes)
            }
            blk::VIRTIO_BLK_T_WRITE_ZEROES if rules.has(blk::VIRTIO_BLK_F_WRITE_ZEROES) => {
                let range = self.range(memory, segments)?;
                let length_bytes = range.length_bytes(blk::VIRTIO_BLK_WRITE_ZEROES_FLAG_UNMAP)?;
                let may_unmap = range.flags & blk::VIRTIO_BLK_WRITE_ZEROES_FLAG_UNMAP != 0;
                rules.erase(Operation::WriteZeroes { length_bytes, may_unmap }, range.sector, length_bytes)
            }
            _ => Err(Status::Unsupported),
        }
    }

    /// The one range of a discard or write-zeroes request.
    fn range(&self, memory: &MemoryMap, segments: &[Segment]) -> Result<EraseRange, Status> {
        if self.readable_bytes as usize != RANGE_BYTES {
            return Err(Status::IoError);
        }
        let mut bytes = [0; RANGE_BYTES];
        copy_from_segments(memory, &segments[..self.readable_segments], &mut bytes).ok_or(Status::IoError)?;
        let word =
            |start: usize| u32::from_le_bytes([bytes[start], bytes[start + 1], bytes[start + 2], bytes[start + 3]]);
        let sector = u64::from(word(0)) | u64::from(word(4)) << 32;
        Ok(EraseRange { sector, sectors: word(8), flags: word(12) })
    }
}

struct EraseRange {
    sector: u64,
    sectors: u32,
    flags: u32,
}

impl EraseRange {
    fn length_bytes(&self, flags_known: u32) -> Result<u64, Status> {
        if self.flags & !flags_known != 0 {
            return Err(Status::Unsupported);
        }
        if self.sectors > RANGE_SECTORS_MAX {
            return Err(Status::IoError);
        }
        Ok(u64::from(self.sectors) * SECTOR_BYTES)
    }
}

/// What a well-made request asks for. Segments are indices into those of the frame.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Command {
    /// To be done by the disk.
    Disk { operation: Operation, offset_bytes: u64, segments: Range<usize> },
    /// Nothing to be done: a range of no bytes.
    Nothing,
    /// The serial, to the segments.
    Identify { segments: Range<usize> },
}

/// What a request is judged by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    pub(crate) geometry: Geometry,
    /// As negotiated, bit n for feature n.
    pub(crate) features: u64,
}

impl Rules {
    pub(crate) fn has(&self, feature: u32) -> bool {
        self.features & 1 << feature != 0
    }

    fn transfer(
        &self,
        operation: Operation,
        sector: u64,
        length_bytes: u32,
        segments: Range<usize>,
    ) -> Result<Command, Status> {
        let offset_bytes = self.offset_bytes(sector, length_bytes.into())?;
        if self.geometry.read_only && operation != Operation::Read {
            return Err(Status::IoError);
        }
        if length_bytes == 0 {
            return Ok(Command::Nothing);
        }
        Ok(Command::Disk { operation, offset_bytes, segments })
    }

    fn erase(&self, operation: Operation, sector: u64, length_bytes: u64) -> Result<Command, Status> {
        let offset_bytes = self.offset_bytes(sector, length_bytes)?;
        if self.geometry.read_only {
            return Err(Status::IoError);
        }
        if length_bytes == 0 {
            return Ok(Command::Nothing);
        }
        Ok(Command::Disk { operation, offset_bytes, segments: 0..0 })
    }

    /// Where the range starts, if it is made of whole blocks within the disk.
    fn offset_bytes(&self, sector: u64, length_bytes: u64) -> Result<u64, Status> {
        let offset_bytes = sector.checked_mul(SECTOR_BYTES).ok_or(Status::IoError)?;
        let end_bytes = offset_bytes.checked_add(length_bytes).ok_or(Status::IoError)?;
        let block_bytes = u64::from(self.geometry.logical_block_bytes);
        let whole_blocks = offset_bytes.is_multiple_of(block_bytes) && length_bytes.is_multiple_of(block_bytes);
        if !whole_blocks || end_bytes > self.geometry.capacity_bytes {
            return Err(Status::IoError);
        }
        Ok(offset_bytes)
    }
}
