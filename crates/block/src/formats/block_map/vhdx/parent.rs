//! What a differencing VHDX is a difference from. Section 2.6.2.6.

use super::super::chain::{Behind, Id, Parent};
use super::super::fields::Fields;
use super::super::image_file::ImageFile;
use super::super::parent_name::{ParentNames, from_utf16};
use super::header::guid;
use super::metadata::Metadata;
use crate::ImageError;

const VHDX_LOCATOR: Id = guid(0xb04a_efb7, 0xd19e, 0x4a81, 0xb789_25b8_e944_5913);

/// Five keys are known.
const KEYS_MAX: u16 = 64;

/// By the metadata of the image in `file`.
pub(super) fn of(file: &ImageFile, metadata: &Metadata) -> Result<Behind, ImageError> {
    parse(&metadata.locator).map(Behind::Parent).map_err(|problem| file.unusable(problem))
}

/// The error goes on after the image's path.
fn parse(locator: &[u8]) -> Result<Parent, String> {
    let fields = Fields(locator);
    if fields.bytes(0)? != VHDX_LOCATOR {
        return Err("is a difference from something that is no VHDX, which is not supported".into());
    }
    let count = fields.le16(18)?;
    if count > KEYS_MAX {
        return Err(format!("is damaged: its parent locator has {count} entries"));
    }
    let (mut ids, mut paths) = (Vec::new(), [None, None, None]);
    for index in 0..usize::from(count) {
        let entry = fields.from(20 + index * 12);
        let text = |offset: u32, length: u16| {
            let start = offset as usize;
            let bytes = locator.get(start..start.saturating_add(usize::from(length)));
            bytes.and_then(|bytes| from_utf16(bytes, u16::from_le_bytes))
        };
        let key = text(entry.le32(0)?, entry.le16(8)?);
        let Some(value) = text(entry.le32(4)?, entry.le16(10)?) else { continue };
        match key.as_deref() {
            Some("parent_linkage" | "parent_linkage2") => ids.extend(id(&value)),
            Some("relative_path") => paths[0] = Some(value),
            Some("volume_path") => paths[1] = Some(value),
            Some("absolute_win32_path") => paths[2] = Some(value),
            _ => {}
        }
    }
    if ids.is_empty() {
        return Err("is damaged: it does not say which image it is a difference from".into());
    }
    let mut names = ParentNames::default();
    let [relative, volume, absolute] = paths;
    names.add_relative(relative);
    names.add_absolute(absolute);
    names.add_absolute(volume);
    Ok(Parent { names, ids, committed: None })
}

/// A GUID in braces, as it lies in a file.
fn id(text: &str) -> Option<Id> {
    let text = text.strip_prefix('{')?.strip_suffix('}')?;
    let parts: Vec<&str> = text.split('-').collect();
    let [first, second, third, fourth, fifth] = *parts.as_slice() else { return None };
    let is_hexadecimal =
        |part: &str, letters| part.len() == letters && part.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !is_hexadecimal(fourth, 4) || !is_hexadecimal(fifth, 12) || !is_hexadecimal(first, 8) {
        return None;
    }
    let number = |part: &str| u64::from_str_radix(part, 16).ok();
    let rest = number(fourth)? << 48 | number(fifth)?;
    let short = |part: &str| if is_hexadecimal(part, 4) { u16::from_str_radix(part, 16).ok() } else { None };
    Some(guid(u32::from_str_radix(first, 16).ok()?, short(second)?, short(third)?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_read_as_they_are_written() {
        let wanted = guid(0x83ed_0ec3, 0x24c8, 0x49a6, 0xa959_5e4b_f128_8bfb);
        assert_eq!(id("{83ed0ec3-24c8-49a6-a959-5e4bf1288bfb}"), Some(wanted));
        assert_eq!(id("{83ED0EC3-24C8-49A6-A959-5E4BF1288BFB}"), Some(wanted));
        for text in ["", "{}", "83ed0ec3-24c8-49a6-a959-5e4bf1288bfb", "{83ed0ec3-24c8-49a6-a959-5e4bf1288bf}"] {
            assert_eq!(id(text), None, "{text}");
        }
        assert_eq!(id("{83ed0ec3-+4c8-49a6-a959-5e4bf1288bfb}"), None);
    }
}
