//! The footer of a VHD, at the end of the file and, but for fixed disks, at its beginning.

use super::super::fields::Fields;
use super::super::image_file::ImageFile;
use super::SECTOR_BYTES;
use crate::ImageError;

/// 2040 GiB: larger ones have entries that do not fit.
pub(super) const SIZE_MAX_BYTES: u64 = 0xff00_0000 * SECTOR_BYTES;

/// Sectors of the largest geometry, which is that of all larger disks, too.
const GEOMETRY_MAX_SECTORS: u64 = 65535 * 16 * 255;

/// How a VHD is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Kind {
    Fixed,
    Dynamic,
    Differencing,
}

/// What a footer says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Footer {
    pub(in super::super) kind: Kind,
    /// Where a header lies, unless it is fixed.
    pub(in super::super) header_offset: u64,
    pub(in super::super) id: [u8; 16],
    creator: [u8; 4],
    current_bytes: u64,
    geometry_sectors: u64,
}

/// The one's complement of the sum of all bytes but those of the checksum itself, which lies at `at`.
pub(in super::super) fn checksum(bytes: &[u8], at: usize) -> u32 {
    let others = bytes.iter().enumerate().filter(|(place, _)| !(at..at + 4).contains(place));
    !others.fold(0, |sum: u32, (_, &byte)| sum.wrapping_add(byte.into()))
}

/// What is where a footer can be.
enum Found {
    Nothing,
    /// A footer whose checksum is wrong.
    Damaged,
    Footer(Footer),
}

impl Footer {
    /// The error, of a footer that is whole, goes on after the image's path.
    fn find(bytes: &[u8]) -> Result<Found, String> {
        let fields = Fields(bytes);
        if !fields.begins_with(b"conectix") {
            return Ok(Found::Nothing);
        }
        match fields.bytes::<{ SECTOR_BYTES as usize }>(0) {
            Ok(whole) if checksum(&whole, 64) == fields.be32(64)? => Self::parse(fields).map(Found::Footer),
            _ => Ok(Found::Damaged),
        }
    }

    fn parse(fields: Fields<'_>) -> Result<Self, String> {
        let version = fields.be32(12)?;
        if version >> 16 != 1 {
            return Err(format!("is a VHD of version {}, and only 1 is supported", version >> 16));
        }
        let kind = match fields.be32(60)? {
            2 => Kind::Fixed,
            3 => Kind::Dynamic,
            4 => Kind::Differencing,
            other => return Err(format!("is a VHD of the type {other}: 2 to 4 are supported")),
        };
        let [heads, sectors] = fields.bytes(58)?;
        Ok(Self {
            kind,
            header_offset: fields.be64(16)?,
            id: fields.bytes(68)?,
            creator: fields.bytes(28)?,
            current_bytes: fields.be64(48)?,
            geometry_sectors: u64::from(fields.be16(56)?) * u64::from(heads) * u64::from(sectors),
        })
    }

    /// Bytes of the disk. Virtual PC goes by the geometry, as far as one can say the size, and so does QEMU for what it
    /// made itself unless it was told to go by the size (`force_size`, and then calls itself `qem2`); everybody else
    /// goes by the size.
    pub(in super::super) fn size_bytes(&self) -> Result<u64, String> {
        let by_geometry = matches!(&self.creator, b"vpc " | b"qemu") && self.geometry_sectors != GEOMETRY_MAX_SECTORS;
        let sectors = if by_geometry { self.geometry_sectors } else { self.current_bytes / SECTOR_BYTES };
        let bytes = sectors.checked_mul(SECTOR_BYTES).filter(|&bytes| bytes <= SIZE_MAX_BYTES);
        bytes.ok_or_else(|| format!("claims to hold {} bytes, more than a VHD can", self.current_bytes))
    }
}

/// The footer of the image in `file`, and what is worth saying of it.
///
/// The one at the end counts: what is in front of it may be the first sector of a fixed disk, which a guest writes.
/// Only where it is missing or damaged, the copy at the beginning does.
pub(super) fn find(file: &ImageFile) -> Result<(Footer, Option<String>), ImageError> {
    let read = |offset| {
        let found = Footer::find(&file.read_up_to(offset, SECTOR_BYTES as usize)?);
        found.map_err(|problem| file.unusable(problem))
    };
    let end = file.length_bytes().checked_sub(SECTOR_BYTES).map(read).transpose()?.unwrap_or(Found::Nothing);
    if let Found::Footer(footer) = end {
        return Ok((footer, None));
    }
    match (read(0)?, end) {
        (Found::Footer(footer), _) if footer.kind == Kind::Fixed => {
            Err(file.unusable("is damaged: it is a fixed disk without a footer at its end"))
        }
        (Found::Footer(footer), _) => {
            Ok((footer, Some("its footer is damaged or missing, so the copy at its beginning counts".to_owned())))
        }
        (Found::Nothing, Found::Nothing) => Err(file.unusable("is no VHD image")),
        _ => Err(file.unusable("is damaged: the checksum of its footer is wrong")),
    }
}
