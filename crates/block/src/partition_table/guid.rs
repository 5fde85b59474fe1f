//! GUIDs as GPT stores them.

use crate::random_bytes::random_bytes;
use std::fmt;
use std::io;
use std::str::FromStr;

/// A GUID in the order of its bytes on disk: the first three fields little-endian (UEFI 2.10, appendix A).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Guid([u8; 16]);

/// Bytes on disk in the order in which they are written as text.
const TEXT_ORDER: [usize; 16] = [3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15];

impl Guid {
    /// The type of an entry that is not in use.
    pub const ZERO: Self = Self([0; 16]);

    /// From its bytes on disk.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Its bytes on disk.
    pub const fn to_bytes(self) -> [u8; 16] {
        self.0
    }

    /// A new one, of version 4 (RFC 9562).
    ///
    /// # Errors
    /// When the kernel gives no random bytes.
    pub fn random() -> io::Result<Self> {
        let mut bytes = random_bytes()?;
        // On disk, the version is in the upper half of the eighth byte.
        bytes[7] = bytes[7] & 0x0f | 0x40;
        bytes[8] = bytes[8] & 0x3f | 0x80;
        Ok(Self(bytes))
    }

    /// From the text's number: `0x0fc63daf_8483_4772_8e79_3d69d8477de4`.
    pub(super) const fn from_number(number: u128) -> Self {
        let text = number.to_be_bytes();
        let mut bytes = [0; 16];
        let mut index = 0;
        while index < 16 {
            bytes[TEXT_ORDER[index]] = text[index];
            index += 1;
        }
        Self(bytes)
    }
}

impl fmt::Display for Guid {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, &byte) in TEXT_ORDER.iter().enumerate() {
            let dash = if matches!(index, 4 | 6 | 8 | 10) { "-" } else { "" };
            write!(formatter, "{dash}{:02X}", self.0[byte])?;
        }
        Ok(())
    }
}

impl fmt::Debug for Guid {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

/// A text is no GUID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a GUID looks like 0FC63DAF-8483-4772-8E79-3D69D8477DE4")]
pub struct NotAGuid;

impl FromStr for Guid {
    type Err = NotAGuid;

    fn from_str(text: &str) -> Result<Self, NotAGuid> {
        let dashed = text.len() == 36 && [8, 13, 18, 23].iter().all(|&place| text.as_bytes()[place] == b'-');
        let digits: String = text.chars().filter(|&letter| letter != '-').collect();
        if !dashed || digits.len() != 32 || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(NotAGuid);
        }
        u128::from_str_radix(&digits, 16).map(Self::from_number).map_err(|_| NotAGuid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINUX: &str = "0FC63DAF-8483-4772-8E79-3D69D8477DE4";

    #[test]
    fn text_and_bytes_are_as_uefi_says() {
        let guid: Guid = LINUX.parse().unwrap();
        assert_eq!(guid.to_bytes()[..8], [0xaf, 0x3d, 0xc6, 0x0f, 0x83, 0x84, 0x72, 0x47]);
        assert_eq!(guid.to_bytes()[8..], [0x8e, 0x79, 0x3d, 0x69, 0xd8, 0x47, 0x7d, 0xe4]);
        assert_eq!(guid.to_string(), LINUX);
        assert_eq!(LINUX.to_lowercase().parse(), Ok(guid));
    }

    #[test]
    fn refuses_what_is_no_guid() {
        let with_sign = LINUX.replace("0FC6", "+FC6");
        let moved_dash = "0FC63DA-F8483-4772-8E79-3D69D8477DE4";
        for text in ["", "0FC63DAF84834772-8E79-3D69D8477DE4", &LINUX[1..], &with_sign, moved_dash, "ä-ä-ä-ä"] {
            assert_eq!(text.parse::<Guid>(), Err(NotAGuid), "{text}");
        }
    }
}
