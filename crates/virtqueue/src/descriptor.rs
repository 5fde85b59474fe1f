//! Descriptors: what a request's buffers are to the device (section 2.7.5).

use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The buffer continues in the descriptor that `next` names.
const NEXT: u16 = 1;
/// The device writes the buffer; without it, it reads.
const WRITE: u16 = 2;
/// The buffer is a table of descriptors.
const INDIRECT: u16 = 4;

/// Bytes in a descriptor.
const DESCRIPTOR_BYTES: u32 = 16;

/// A piece of memory that the device can see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// Where it starts, in the device's addresses.
    pub address: u64,
    /// Bytes in it.
    pub length: u32,
    /// Whether the device writes it; else it reads it.
    pub writable: bool,
}

/// A request's buffers. Those that the device reads come before those that it writes.
#[derive(Clone, Copy, Debug)]
pub enum Chain<'buffers> {
    /// A descriptor of the ring for each.
    Direct(&'buffers [Buffer]),
    /// One descriptor of the ring for a table that [`write_table`] has written. Only where the device has accepted
    /// VIRTIO_F_INDIRECT_DESC.
    Indirect(Table),
}

/// A descriptor table that [`write_table`] has written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Table {
    /// Where it starts, in the device's addresses.
    pub(crate) address: u64,
    /// Descriptors in it.
    pub(crate) entries: u16,
    /// Bytes that its buffers let the device write.
    pub(crate) writable_bytes: u64,
}

/// Why buffers are not a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChainError {
    /// There are none.
    Empty,
    /// There are more than there is room for.
    TooLong,
    /// One that the device reads comes after one that it writes (section 2.7.4.2).
    ReadableAfterWritable,
}

impl fmt::Display for ChainError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Empty => "a request without buffers",
            Self::TooLong => "a request with more buffers than there is room for",
            Self::ReadableAfterWritable => "a request with a readable buffer after a writable one",
        })
    }
}

impl core::error::Error for ChainError {}

/// Writes descriptors for `buffers` into `table`, two words each, which the device sees at `address`. The table must
/// stay as it is until the device has used the chain.
///
/// # Errors
/// When the buffers are not a chain, or do not fit the table.
pub fn write_table(table: &[AtomicU64], address: u64, buffers: &[Buffer]) -> Result<Table, ChainError> {
    let writable_bytes = check(buffers)?;
    if buffers.len() > table.len() / 2 || buffers.len() > usize::from(crate::QUEUE_SIZE_MAX) {
        return Err(ChainError::TooLong);
    }
    for (index, buffer) in buffers.iter().enumerate() {
        let next = (index + 1 < buffers.len()).then_some(index as u16 + 1);
        write(&table[2 * index..2 * index + 2], buffer, next);
    }
    Ok(Table { address, entries: buffers.len() as u16, writable_bytes })
}

/// Bytes that the device may write, once the buffers are known to be a chain.
pub(crate) fn check(buffers: &[Buffer]) -> Result<u64, ChainError> {
    if buffers.is_empty() {
        return Err(ChainError::Empty);
    }
    if buffers.windows(2).any(|pair| pair[0].writable && !pair[1].writable) {
        return Err(ChainError::ReadableAfterWritable);
    }
    Ok(buffers.iter().filter(|buffer| buffer.writable).map(|buffer| u64::from(buffer.length)).sum())
}

/// Writes the descriptor of `buffer`.
pub(crate) fn write(words: &[AtomicU64], buffer: &Buffer, next: Option<u16>) {
    let flags = if buffer.writable { WRITE } else { 0 } | if next.is_some() { NEXT } else { 0 };
    write_words(words, buffer.address, buffer.length, flags, next.unwrap_or(0));
}

/// Writes the descriptor of an indirect table.
pub(crate) fn write_indirect(words: &[AtomicU64], table: &Table) {
    write_words(words, table.address, u32::from(table.entries) * DESCRIPTOR_BYTES, INDIRECT, 0);
}

/// The order does not matter: the device looks when the available ring's index says so.
fn write_words(words: &[AtomicU64], address: u64, length: u32, flags: u16, next: u16) {
    let rest = u64::from(length) | u64::from(flags) << 32 | u64::from(next) << 48;
    words[0].store(address.to_le(), Relaxed);
    words[1].store(rest.to_le(), Relaxed);
}
