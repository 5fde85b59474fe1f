//! The header section: headers and region tables, each twice. Section 2.2.

use super::super::chain::Id;
use super::super::fields::{Fields, lies_within};
use super::super::image_file::ImageFile;
use super::{HEADERS_BYTES, MIB};
use crate::ImageError;
use crc32c::{crc32c, crc32c_append};

pub(super) const HEADER_OFFSETS: [u64; 2] = [64 << 10, 128 << 10];
pub(super) const HEADER_BYTES: usize = 4096;
pub(super) const REGION_TABLE_OFFSETS: [u64; 2] = [192 << 10, 256 << 10];
pub(super) const REGION_TABLE_BYTES: usize = 64 << 10;
const REGIONS_MAX: u32 = 2047;

/// A GUID as it lies in a file, of the numbers that it is written as.
pub(super) const fn guid(first: u32, second: u16, third: u16, rest: u64) -> Id {
    let ([a, b, c, d], [e, f], [g, h]) = (first.to_le_bytes(), second.to_le_bytes(), third.to_le_bytes());
    let [i, j, k, l, m, n, o, p] = rest.to_be_bytes();
    [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p]
}

pub(super) const TABLE: Id = guid(0x2dc2_7766, 0xf623, 0x4200, 0x9d64_115e_9bfd_4a08);
pub(super) const METADATA: Id = guid(0x8b7c_a206, 0x4790, 0x4b9a, 0xb8fe_575f_050f_886e);

/// Whether the CRC-32C at offset 4, of all bytes with zeros in its own place, is right.
pub(super) fn has_right_checksum(bytes: &[u8]) -> bool {
    let Some((signature, rest)) = bytes.split_at_checked(4) else { return false };
    let Some((checksum, rest)) = rest.split_first_chunk() else { return false };
    let computed = crc32c_append(crc32c_append(crc32c(signature), &[0; 4]), rest);
    computed == u32::from_le_bytes(*checksum)
}

/// Makes that right of bytes which have zeros there.
pub(super) fn set_checksum(bytes: &mut [u8]) {
    let sum = crc32c(bytes);
    bytes[4..8].copy_from_slice(&sum.to_le_bytes());
}

/// The current header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) sequence: u64,
    /// By which a difference from this image knows it.
    pub(super) data_write_id: Id,
    /// Which log entries count; zeros: none.
    pub(super) log_id: Id,
    /// Where the log lies, and how long it is.
    pub(super) log: (u64, u64),
}

impl Header {
    /// `None` where there is none that is whole. The error, of one that is, goes on after the image's path.
    pub(super) fn parse(bytes: &[u8]) -> Option<Result<Self, String>> {
        let fields = Fields(bytes);
        (fields.begins_with(b"head") && has_right_checksum(bytes)).then(|| Self::parse_fields(fields))
    }

    fn parse_fields(fields: Fields<'_>) -> Result<Self, String> {
        let version = fields.le16(66)?;
        if version != 1 {
            return Err(format!("is a VHDX of version {version}, and only 1 is supported"));
        }
        let (log_version, log_id) = (fields.le16(64)?, fields.bytes(48)?);
        if log_version != 0 && log_id != [0; 16] {
            return Err(format!("has a log of version {log_version}, and only 0 is supported"));
        }
        Ok(Self {
            sequence: fields.le64(8)?,
            data_write_id: fields.bytes(32)?,
            log_id,
            log: (fields.le64(72)?, fields.le32(68)?.into()),
        })
    }

    /// Of the image in `file`, the header that was written last.
    pub(super) fn find(file: &ImageFile) -> Result<Self, ImageError> {
        if !Fields(&file.read_up_to(0, 8)?).begins_with(b"vhdxfile") {
            return Err(file.unusable("is no VHDX image"));
        }
        let mut last: Option<Self> = None;
        for offset in HEADER_OFFSETS {
            let Some(header) = Self::parse(&file.read_up_to(offset, HEADER_BYTES)?) else { continue };
            let header = header.map_err(|problem| file.unusable(problem))?;
            last = match last {
                Some(before) if before.sequence == header.sequence && before != header => {
                    return Err(file.unusable("is damaged: neither of its headers is the later one"));
                }
                Some(before) if before.sequence >= header.sequence => Some(before),
                _ => Some(header),
            };
        }
        let header = last.ok_or_else(|| file.unusable("is damaged: neither of its headers is whole"))?;
        let (offset, length) = header.log;
        let is_possible = offset.is_multiple_of(MIB) && length.is_multiple_of(MIB);
        let is_there = offset >= HEADERS_BYTES && lies_within(offset, length, file.length_bytes());
        // Whose log is empty need not have one.
        if length > 0 && !(is_possible && is_there) {
            return Err(file.unusable("is damaged: its log does not lie within the file"));
        }
        Ok(header)
    }
}

/// Where regions lie, and how long they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Regions {
    pub(super) table: (u64, u64),
    pub(super) metadata: (u64, u64),
}

impl Regions {
    /// By the region table in a file of `length_bytes`. The error goes on after the image's path.
    fn parse(bytes: &[u8], log: (u64, u64), length_bytes: u64) -> Result<Self, String> {
        let fields = Fields(bytes);
        let count = fields.le32(8)?;
        if count > REGIONS_MAX {
            return Err(format!("is damaged: it has {count} regions, more than there can be"));
        }
        let (mut table, mut metadata) = (None, None);
        let mut all = vec![(0, HEADERS_BYTES), log];
        for index in 0..count as usize {
            let fields = fields.from(16 + index * 32);
            let (id, region, flags) = (fields.bytes(0)?, (fields.le64(16)?, fields.le32(24)?.into()), fields.le32(28)?);
            let (offset, length): (u64, u64) = region;
            let known = match id {
                TABLE => &mut table,
                METADATA => &mut metadata,
                _ if flags & 1 == 1 => return Err("needs a region that is not known here".into()),
                _ => continue,
            };
            if !offset.is_multiple_of(MIB) || !lies_within(offset, length, length_bytes) {
                return Err("is damaged: a region does not lie within the file".into());
            }
            if all.iter().any(|&(other, bytes)| offset < other + bytes && other < offset + length) {
                return Err("is damaged: its regions overlap".into());
            }
            all.push(region);
            if known.replace(region).is_some() {
                return Err("is damaged: it has a region twice".into());
            }
        }
        match (table, metadata) {
            (Some(table), Some(metadata)) => Ok(Self { table, metadata }),
            _ => Err("is damaged: it has no table or no metadata".into()),
        }
    }

    /// By the first region table that is whole, as the log has it.
    pub(super) fn find(file: &ImageFile, header: &Header) -> Result<Self, ImageError> {
        for offset in REGION_TABLE_OFFSETS {
            let bytes = file.read_up_to(offset, REGION_TABLE_BYTES)?;
            if bytes.len() == REGION_TABLE_BYTES && Fields(&bytes).begins_with(b"regi") && has_right_checksum(&bytes) {
                let parsed = Self::parse(&bytes, header.log, file.end_bytes());
                return parsed.map_err(|problem| file.unusable(problem));
            }
        }
        Err(file.unusable("is damaged: neither of its region tables is whole"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guids_lie_as_windows_writes_them() {
        let wanted = [0x66, 0x77, 0xc2, 0x2d, 0x23, 0xf6, 0, 0x42, 0x9d, 0x64, 0x11, 0x5e, 0x9b, 0xfd, 0x4a, 8];
        assert_eq!(TABLE, wanted);
    }
}
