//! What a differencing VHD is a difference from.

use super::super::chain::{Behind, Parent};
use super::super::fields::Fields;
use super::super::image_file::ImageFile;
use super::super::parent_name::{ParentNames, from_utf16};
use crate::ImageError;

/// Longest path of Windows, in bytes of UTF-16.
const PATH_MAX_BYTES: u32 = 64 << 10;

const LOCATORS: usize = 8;

/// By the header of the image in `file`.
pub(super) fn of(file: &ImageFile, header: &[u8], id: [u8; 16]) -> Result<Behind, ImageError> {
    let fields = Fields(header);
    let mut names = ParentNames::default();
    for locator in 0..LOCATORS {
        let fields = fields.from(576 + locator * 24);
        let Ok((platform, length_bytes, offset)) = read_locator(fields) else { break };
        if length_bytes > PATH_MAX_BYTES {
            continue;
        }
        let bytes = file.read_up_to(offset, length_bytes as usize)?;
        match &platform {
            b"W2ru" => names.add_relative(from_utf16(&bytes, u16::from_le_bytes)),
            b"W2ku" => names.add_absolute(from_utf16(&bytes, u16::from_le_bytes)),
            b"Wi2r" => names.add_relative(String::from_utf8(bytes).ok()),
            b"Wi2k" | b"MacX" => names.add_absolute(String::from_utf8(bytes).ok()),
            _ => {}
        }
    }
    // The name alone, in the other order of bytes.
    let own: [u8; 512] = fields.bytes(64).map_err(|problem| file.unusable(problem))?;
    names.add_absolute(from_utf16(&own, u16::from_be_bytes));
    Ok(Behind::Parent(Parent { names, ids: vec![id], committed: None }))
}

fn read_locator(fields: Fields<'_>) -> Result<([u8; 4], u32, u64), String> {
    Ok((fields.bytes(0)?, fields.be32(8)?, fields.be64(16)?))
}
