//! Streams on the appliance's transfer disks.
//!
//! A disk is read and written in order, each byte once, in chunks of at most [`CHUNK_BYTES`] of data and a mark of
//! [`MARK_BYTES`] that says how many they are and whether they are the last. On the source disk, which the host fills,
//! a chunk is always of [`SOURCE_CHUNK_BYTES`]: data, zeros, and the mark last, since only then the host knows how much
//! there was. On the sink disk, which the guest writes, the mark is first and the data behind it are padded with zeros
//! to whole marks.

/// Most data in a chunk.
pub const CHUNK_BYTES: usize = 1 << 20;
/// Bytes of a mark: a logical block.
pub const MARK_BYTES: usize = 512;
/// Bytes of a chunk on the source disk.
pub const SOURCE_CHUNK_BYTES: usize = CHUNK_BYTES + MARK_BYTES;
/// Size of a transfer disk: more than any stream, less than what Linux takes for one.
pub const TRANSFER_DISK_BYTES: u64 = 1 << 60;

const MAGIC: [u8; 4] = *b"BYst";

const _: () = assert!(CHUNK_BYTES.is_multiple_of(MARK_BYTES));

/// What a chunk says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Data in the chunk: at most [`CHUNK_BYTES`].
    pub bytes: usize,
    /// No chunk follows.
    pub last: bool,
}

/// What should be a mark is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotAMark;

impl core::fmt::Display for NotAMark {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.write_str("a chunk of a stream has no mark")
    }
}

impl core::error::Error for NotAMark {}

impl Mark {
    /// The mark as it is on the disk.
    pub fn encode(self) -> [u8; MARK_BYTES] {
        let mut mark = [0; MARK_BYTES];
        mark[..4].copy_from_slice(&MAGIC);
        mark[4..8].copy_from_slice(&(self.bytes as u32).to_le_bytes());
        mark[8] = u8::from(self.last);
        mark
    }

    /// The mark that begins `bytes`, judged.
    ///
    /// # Errors
    /// When it is none.
    pub fn decode(bytes: &[u8]) -> Result<Self, NotAMark> {
        let Some((head, _)) = bytes.split_first_chunk::<9>() else { return Err(NotAMark) };
        let length = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
        match (head[8], head[..4] == MAGIC && length <= CHUNK_BYTES) {
            (last @ (0 | 1), true) => Ok(Self { bytes: length, last: last == 1 }),
            _ => Err(NotAMark),
        }
    }

    /// Bytes that the chunk's data take on the sink disk.
    pub fn padded_bytes(self) -> usize {
        self.bytes.next_multiple_of(MARK_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_says_what_it_was_told_and_nothing_else_is_one() {
        for mark in [Mark { bytes: 0, last: true }, Mark { bytes: CHUNK_BYTES, last: false }] {
            assert_eq!(Mark::decode(&mark.encode()), Ok(mark));
        }
        let good = Mark { bytes: 7, last: false }.encode();
        for (at, value) in [(0, 0), (6, 0xff), (8, 2)] {
            let mut bad = good;
            bad[at] = value;
            assert_eq!(Mark::decode(&bad), Err(NotAMark));
        }
        assert_eq!(Mark::decode(&good[..8]), Err(NotAMark));
    }
}
