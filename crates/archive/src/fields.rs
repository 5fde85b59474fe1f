//! What every kind of header is made of: blocks, and numbers in fields and records.

use std::io::{self, Read};

/// Bytes that a tar archive counts in.
pub(crate) const BLOCK_BYTES: u64 = 512;

/// The number in a field of a header: octal digits, or two's complement behind a first bit that is set (GNU tar,
/// "Extensions"). Blank is 0.
pub(crate) fn number(field: &[u8]) -> io::Result<i64> {
    if let Some((&first, rest)) = field.split_first().filter(|(first, _)| **first & 0x80 != 0) {
        // Its second bit is the sign.
        let start = i128::from((first << 1) as i8 >> 1);
        let number = rest.iter().fold(start, |number, &byte| number << 8 | i128::from(byte));
        return i64::try_from(number).map_err(|_| no_number());
    }
    let is_blank = |byte: &u8| matches!(byte, b' ' | 0);
    let digits = field.iter().skip_while(|byte| is_blank(byte)).take_while(|byte| !is_blank(byte));
    let mut number = 0;
    for &digit in digits {
        if !(b'0'..=b'7').contains(&digit) {
            return Err(no_number());
        }
        // Twelve digits at most.
        number = number << 3 | i64::from(digit - b'0');
    }
    Ok(number)
}

/// What is said of a field that has none.
pub(crate) fn no_number() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the archive is damaged: a header has a number that is none")
}

/// The number in a record of an extended header.
pub(crate) fn decimal<T: std::str::FromStr>(text: &[u8]) -> Option<T> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// What is said of an archive that ends before a block does.
pub(crate) fn cut_short() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the archive ends in a file")
}

/// Reads until `into` is full or the input ends.
pub(crate) fn fill(input: &mut impl Read, into: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < into.len() {
        match input.read(&mut into[filled..]) {
            Ok(0) => break,
            Ok(bytes) => filled += bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_octal_or_binary_and_of_any_sign() {
        for (field, wanted) in [
            (&b"0000644\0"[..], 0o644),
            (b"   17 \0", 0o17),
            (b"\0\0\0\0", 0),
            (b"777777777777", 0o777_777_777_777),
            (b"\x80\0\0\0\0\0\0\x01\0\0\0\0", 1 << 32),
            (b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xfe", -2),
        ] {
            assert_eq!(number(field).unwrap(), wanted, "{field:?}");
        }
        for field in [&b"8"[..], b"-1", b"\x80\0\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"] {
            assert!(number(field).is_err(), "{field:?}");
        }
    }
}
