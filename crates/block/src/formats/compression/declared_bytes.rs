//! How many bytes a compressed file says that it decompresses to.
//!
//! Sources: The .xz File Format 1.2.1, sections 2 and 4; RFC 8878, sections 3.1.1 and 3.1.2.

use flate2::Crc;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;

/// Streams, frames and blocks that are gone through: what has more says nothing.
const PARTS_MAX: u32 = 1 << 24;

/// Zeros behind a stream of xz that are passed over.
const PADDING_BYTES_MAX: u64 = 1 << 20;

/// The sum of what the indexes of all streams say, from the last one to the first: sections 2.1, 4.
pub(super) fn of_xz(file: &File) -> Option<u64> {
    const HEADER_BYTES: u64 = 12;
    const MAGIC: [u8; 6] = *b"\xfd7zXZ\0";
    let mut end = file.metadata().ok()?.len();
    let (mut total, mut parts, mut padding_bytes) = (0_u64, 0, 0);
    while end > 0 {
        // Stream padding: zeros, in fours.
        let mut footer = [0; HEADER_BYTES as usize];
        file.read_exact_at(&mut footer[8..], end.checked_sub(4)?).ok()?;
        if footer[8..] == [0; 4] {
            (end, padding_bytes) = (end - 4, padding_bytes + 4);
            if padding_bytes > PADDING_BYTES_MAX {
                return None;
            }
            continue;
        }
        count_part(&mut parts)?;
        // CRC32, backward size in fours less one, flags, "YZ".
        let footer_at = end.checked_sub(HEADER_BYTES)?;
        file.read_exact_at(&mut footer, footer_at).ok()?;
        let [c0, c1, c2, c3, s0, s1, s2, s3, _, _, b'Y', b'Z'] = footer else { return None };
        let mut crc = Crc::new();
        crc.update(&footer[4..10]);
        if u32::from_le_bytes([c0, c1, c2, c3]) != crc.sum() {
            return None;
        }
        let index_bytes = (u64::from(u32::from_le_bytes([s0, s1, s2, s3])) + 1) * 4;
        let index_at = footer_at.checked_sub(index_bytes)?;
        let (blocks_bytes, unpacked_bytes) = xz_index(file, index_at, index_bytes, &mut parts)?;
        let stream_at = index_at.checked_sub(blocks_bytes)?.checked_sub(HEADER_BYTES)?;
        let mut magic = [0; MAGIC.len()];
        file.read_exact_at(&mut magic, stream_at).ok()?;
        if magic != MAGIC {
            return None;
        }
        total = total.checked_add(unpacked_bytes)?;
        end = stream_at;
    }
    (parts > 0).then_some(total)
}

/// What the blocks of a stream take in the file, and what they decompress to. The index's own checksum is the decoder's
/// to look at.
fn xz_index(file: &File, at: u64, length_bytes: u64, parts: &mut u32) -> Option<(u64, u64)> {
    let mut reader = BufReader::new(At { file, at }.take(length_bytes));
    let mut indicator = [1];
    reader.read_exact(&mut indicator).ok()?;
    if indicator != [0] {
        return None;
    }
    let (mut blocks_bytes, mut unpacked_bytes) = (0_u64, 0_u64);
    for _ in 0..xz_integer(&mut reader)? {
        count_part(parts)?;
        let unpadded_bytes = xz_integer(&mut reader)?;
        blocks_bytes = blocks_bytes.checked_add(unpadded_bytes.checked_next_multiple_of(4)?)?;
        unpacked_bytes = unpacked_bytes.checked_add(xz_integer(&mut reader)?)?;
    }
    Some((blocks_bytes, unpacked_bytes))
}

/// "Multibyte Integer": seven bits a byte, the lowest first, at most nine bytes.
fn xz_integer(reader: &mut impl Read) -> Option<u64> {
    let (mut value, mut byte) = (0, [0]);
    for index in 0..9 {
        reader.read_exact(&mut byte).ok()?;
        value |= u64::from(byte[0] & 0x7f) << (7 * index);
        if byte[0] & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

/// The sum of what the headers of all frames say, if all do. Blocks are passed over.
pub(super) fn of_zstd(file: &File) -> Option<u64> {
    const FRAME: u32 = 0xfd2f_b528;
    const SKIPPABLE: std::ops::RangeInclusive<u32> = 0x184d_2a50..=0x184d_2a5f;
    let mut reader = BufReader::with_capacity(4096, At { file, at: 0 });
    let length_bytes = file.metadata().ok()?.len();
    let (mut total, mut parts) = (0_u64, 0);
    while !reader.fill_buf().ok()?.is_empty() {
        count_part(&mut parts)?;
        match number(&mut reader, 4)? as u32 {
            FRAME => total = total.checked_add(zstd_frame(&mut reader, &mut parts)?)?,
            magic if SKIPPABLE.contains(&magic) => {
                let count = number(&mut reader, 4)?;
                skip(&mut reader, count)?;
            }
            _ => return None,
        }
        if reader.stream_position().ok()? > length_bytes {
            return None;
        }
    }
    (parts > 0).then_some(total)
}

/// "Frame_Content_Size" of a frame, which is read to its end.
fn zstd_frame<R: Read + Seek>(reader: &mut BufReader<R>, parts: &mut u32) -> Option<u64> {
    let descriptor = number(reader, 1)?;
    let is_single_segment = descriptor & 0x20 != 0;
    let has_checksum = descriptor & 4 != 0;
    if !is_single_segment {
        number(reader, 1)?;
    }
    number(reader, [0, 1, 2, 4][descriptor as usize & 3])?;
    let content_bytes = match descriptor >> 6 {
        0 if !is_single_segment => None,
        0 => number(reader, 1),
        1 => number(reader, 2).map(|bytes| bytes + 256),
        2 => number(reader, 4),
        _ => number(reader, 8),
    }?;
    loop {
        count_part(parts)?;
        let header = number(reader, 3)?;
        let (is_last, kind, length_bytes) = (header & 1 != 0, header >> 1 & 3, header >> 3);
        // "RLE_Block": one byte, that often. The fourth kind is reserved.
        match kind {
            0 | 2 => skip(reader, length_bytes)?,
            1 => skip(reader, 1)?,
            _ => return None,
        }
        if is_last {
            break;
        }
    }
    if has_checksum {
        skip(reader, 4)?;
    }
    Some(content_bytes)
}

/// A number of so many bytes, the lowest first.
fn number(reader: &mut impl Read, count: usize) -> Option<u64> {
    let mut bytes = [0; 8];
    reader.read_exact(bytes.get_mut(..count)?).ok()?;
    Some(u64::from_le_bytes(bytes))
}

fn skip<R: Read + Seek>(reader: &mut BufReader<R>, count: u64) -> Option<()> {
    reader.seek_relative(i64::try_from(count).ok()?).ok()
}

fn count_part(parts: &mut u32) -> Option<()> {
    *parts += 1;
    (*parts <= PARTS_MAX).then_some(())
}

/// A file from a place on, without its own position.
struct At<'a> {
    file: &'a File,
    at: u64,
}

impl Read for At<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read_at(bytes, self.at)?;
        self.at += count as u64;
        Ok(count)
    }
}

impl Seek for At<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let invalid = || io::Error::from(io::ErrorKind::InvalidInput);
        self.at = match to {
            SeekFrom::Start(at) => at,
            SeekFrom::Current(by) => self.at.checked_add_signed(by).ok_or_else(invalid)?,
            SeekFrom::End(_) => return Err(invalid()),
        };
        Ok(self.at)
    }
}
