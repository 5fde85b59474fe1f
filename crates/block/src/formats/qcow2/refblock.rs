//! How refcounts lie in their blocks: QEMU's docs/interop/qcow2.txt, "Host cluster management".

use super::header::Header;
use crate::formats::WritableFile;
use std::io;
use std::ops::Range;

/// A block of refcounts, each of 2^order bits: those of less than a byte begin with a byte's lowest bits.
pub(super) struct Refblock {
    pub(super) bytes: Vec<u8>,
    pub(super) order: u32,
}

impl Refblock {
    /// One in which nothing is in use.
    pub(super) fn empty(cluster_bits: u32, order: u32) -> Self {
        Self { bytes: vec![0; 1 << cluster_bits], order }
    }

    /// One with these refcounts, and zeros behind them.
    ///
    /// # Errors
    /// As `counts`, and when one is too large.
    pub(super) fn of(cluster_bits: u32, order: u32, counts: impl Iterator<Item = io::Result<u64>>) -> io::Result<Self> {
        let mut block = Self::empty(cluster_bits, order);
        for (index, count) in counts.enumerate() {
            let count = count?;
            if !block.set(index, count) {
                return Err(io::Error::other(format!("{count} uses of a cluster are too many for its refcount")));
            }
        }
        Ok(block)
    }

    pub(super) fn read(file: &WritableFile, header: &Header, offset: u64) -> io::Result<Self> {
        let mut bytes = vec![0; header.cluster_bytes() as usize];
        file.read(&mut bytes, offset)?;
        Ok(Self { bytes, order: header.refcount_order })
    }

    /// One refcount of the block at an offset, without the others.
    pub(super) fn read_one(file: &WritableFile, header: &Header, offset: u64, index: u64) -> io::Result<u64> {
        let (order, bit) = (header.refcount_order, index << header.refcount_order);
        let mut bytes = [0; 8];
        let length = ((1_usize << order) / 8).max(1);
        file.read(&mut bytes[..length], offset + bit / 8)?;
        Ok(refcount(&bytes, order, (bit % 8) as usize >> order))
    }

    pub(super) fn get(&self, index: usize) -> u64 {
        refcount(&self.bytes, self.order, index)
    }

    /// Of a refcount that is zero.
    pub(super) fn set_to_one(&mut self, index: usize) {
        match self.order {
            0..=2 => {
                let (byte, shift) = place(self.order, index);
                self.bytes[byte] |= 1 << shift;
            }
            _ => {
                let width = 1 << (self.order - 3);
                self.bytes[index * width + width - 1] = 1;
            }
        }
    }

    /// Sets any refcount; false if it does not fit.
    pub(super) fn set(&mut self, index: usize, count: u64) -> bool {
        let bits = 1_u32 << self.order;
        if bits < u64::BITS && count >> bits != 0 {
            return false;
        }
        match self.order {
            0..=2 => {
                let (byte, shift) = place(self.order, index);
                let mask = ((1_u16 << bits) - 1) as u8;
                // Fits, as it was looked at.
                self.bytes[byte] = self.bytes[byte] & !(mask << shift) | (count as u8) << shift;
            }
            _ => {
                let width = 1 << (self.order - 3);
                self.bytes[index * width..][..width].copy_from_slice(&count.to_be_bytes()[8 - width..]);
            }
        }
        true
    }

    /// Bytes, of which some differ from `other`, and none outside of them.
    pub(super) fn changed_bytes(&self, other: &[u8]) -> Range<usize> {
        let differs = |&at: &usize| self.bytes[at] != other[at];
        let first = (0..self.bytes.len()).find(differs);
        let last = (0..self.bytes.len()).rev().find(differs);
        first.zip(last).map_or(0..0, |(first, last)| first..last + 1)
    }

    /// Whether a refcount is higher than in `other`, of those in a range of bytes.
    pub(super) fn grows(&self, other: &[u8], bytes: &Range<usize>) -> bool {
        let mut indices = (bytes.start * 8) >> self.order..(bytes.end * 8).div_ceil(1 << self.order);
        indices.any(|at| self.get(at) > refcount(other, self.order, at))
    }
}

/// A refcount in a block.
pub(super) fn refcount(bytes: &[u8], order: u32, index: usize) -> u64 {
    match order {
        0..=2 => {
            let (byte, shift) = place(order, index);
            u64::from(bytes[byte] >> shift) & ((1 << (1 << order)) - 1)
        }
        _ => {
            let width = 1 << (order - 3);
            bytes[index * width..][..width].iter().fold(0, |value, &byte| value << 8 | u64::from(byte))
        }
    }
}

fn place(order: u32, index: usize) -> (usize, usize) {
    let bit = index << order;
    (bit / 8, bit % 8)
}
