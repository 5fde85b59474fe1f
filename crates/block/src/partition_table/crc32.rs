//! The checksum of GPT: CRC-32 as in ISO-HDLC (reflected 0x04C11DB7, all ones before and after).
//!
//! Thirty lines for a few kilobytes once a disk: no crate's weight.

const TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut index = 0;
    while index < 256 {
        let mut value = index as u32;
        let mut bit = 0;
        while bit < 8 {
            value = if value & 1 == 1 { (value >> 1) ^ 0xedb8_8320 } else { value >> 1 };
            bit += 1;
        }
        table[index] = value;
        index += 1;
    }
    table
};

/// The checksum of pieces that follow one another.
pub(super) fn crc32(pieces: &[&[u8]]) -> u32 {
    let bytes = pieces.iter().copied().flatten();
    !bytes.fold(!0, |crc, &byte| (crc >> 8) ^ TABLE[usize::from(crc as u8 ^ byte)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gives_the_check_value_of_the_catalogue() {
        assert_eq!(crc32(&[b"123456789"]), 0xcbf4_3926);
        assert_eq!(crc32(&[b"1234", b"", b"56789"]), 0xcbf4_3926);
        assert_eq!(crc32(&[]), 0);
    }
}
