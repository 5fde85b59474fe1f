//! Sizes in bytes as people write and read them.

use std::fs::File;
use std::io;

/// What may stand behind a number, and how many bytes it makes of one: powers of 1024 for a letter and for `KiB`,
/// powers of 1000 for `KB`, as dd and truncate have it. qemu-img has the letters alone, with the same meaning.
const UNITS: [(&str, &str, &str); 6] = [
    ("K", "KiB", "KB"),
    ("M", "MiB", "MB"),
    ("G", "GiB", "GB"),
    ("T", "TiB", "TB"),
    ("P", "PiB", "PB"),
    ("E", "EiB", "EB"),
];

/// Reads a number of bytes with an optional unit: `512`, `64K`, `8M`, `1.5G`, `1T`, `1P` and `1E` count in steps of
/// 1024, as do `KiB` and so on; `KB`, `MB` and so on count in steps of 1000. Upper and lower case are the same. What is
/// less than a byte is dropped, but of bytes alone there are no parts: `1024.0`, and not `1.5`. `0x` begins a
/// hexadecimal number of bytes.
///
/// # Errors
/// A sentence on what a size looks like.
pub fn parse(text: &str) -> Result<u64, String> {
    if let Some(digits) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        let digits = Some(digits).filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
        return digits.and_then(|digits| u64::from_str_radix(digits, 16).ok()).ok_or_else(|| not_a_size(text));
    }
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit_bytes = unit_bytes(&text[digits.len()..]).ok_or_else(|| not_a_size(text))?;
    let (whole, fraction) = match digits.split_once('.') {
        // A byte has no parts, but it may be said that there are none.
        Some((whole, fraction)) if unit_bytes > 1 || fraction.bytes().all(|digit| digit == b'0') => {
            (whole, part_of(fraction, unit_bytes).ok_or_else(|| not_a_size(text))?)
        }
        _ => (digits, 0),
    };
    let whole: u64 = whole.parse().map_err(|_| not_a_size(text))?;
    let bytes = whole.checked_mul(unit_bytes).and_then(|bytes| bytes.checked_add(fraction));
    bytes.ok_or_else(|| format!("'{text}' is more bytes than there can be"))
}

fn unit_bytes(unit: &str) -> Option<u64> {
    if unit.is_empty() || unit.eq_ignore_ascii_case("B") {
        return Some(1);
    }
    UNITS.iter().zip(1..).find_map(|((letter, binary, decimal), power)| {
        let is = |name: &str| unit.eq_ignore_ascii_case(name);
        match (is(letter) || is(binary), is(decimal)) {
            (true, _) => Some(1 << (10 * power)),
            (_, true) => Some(1000_u64.pow(power)),
            _ => None,
        }
    })
}

/// How many of `unit_bytes` the decimal digits behind a point are, of which there may be none.
fn part_of(digits: &str, unit_bytes: u64) -> Option<u64> {
    if digits.is_empty() {
        return Some(0);
    }
    let parts: u64 = digits.parse().ok().filter(|_| digits.bytes().all(|digit| digit.is_ascii_digit()))?;
    let of = 10_u64.checked_pow(digits.len().try_into().ok()?)?;
    u64::try_from(u128::from(parts) * u128::from(unit_bytes) / u128::from(of)).ok()
}

fn not_a_size(text: &str) -> String {
    format!("'{text}' is not a size: a number of bytes such as 4096, 64K, 8M or 2G (of 1024), or 10GB (of 1000)")
}

/// Sets a file's length: what is new reads as zeros.
///
/// # Errors
/// The file system's, and EFBIG for more than any file can have.
pub fn set_length(file: &File, length_bytes: u64) -> io::Result<()> {
    if i64::try_from(length_bytes).is_err() {
        return Err(rustix::io::Errno::FBIG.into());
    }
    file.set_len(length_bytes)
}

/// Writes a number of bytes so that [`parse`] reads the same number: with the largest suffix that leaves it whole.
pub fn exact(bytes: u64) -> String {
    let suffixes = [("T", 40), ("G", 30), ("M", 20), ("K", 10)];
    match suffixes.iter().find(|(_, shift)| bytes > 0 && bytes.is_multiple_of(1 << shift)) {
        Some((suffix, shift)) => format!("{}{suffix}", bytes >> shift),
        None => bytes.to_string(),
    }
}

/// Writes a number of bytes with a binary unit, for people.
pub fn human(bytes: u64) -> String {
    let units = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    match units.iter().find(|(_, shift)| bytes >= 1 << shift) {
        Some((unit, shift)) => format!("{:.2} {unit}", bytes as f64 / (1u64 << shift) as f64),
        None => format!("{bytes} bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_binary_suffixes() {
        let sizes = ["0", "512", "64K", "64k", "8M", "8MiB", "2G", "1T", "1P", "15E"].map(|text| parse(text).unwrap());
        assert_eq!(sizes, [0, 512, 65536, 65536, 8 << 20, 8 << 20, 2 << 30, 1 << 40, 1 << 50, 15 << 60]);
        let sizes = ["1.5G", "0.5K", "1.0M", "0.001K", "15.9999999999E"].map(|text| parse(text).unwrap());
        assert_eq!(
            sizes,
            [3 << 29, 512, 1 << 20, 1, (15 << 60) + (9_999_999_999_u128 * (1 << 60) / 10_u128.pow(10)) as u64]
        );
    }

    #[test]
    fn two_letters_count_in_thousands_and_three_do_not() {
        let sizes =
            ["10GB", "10gb", "10GiB", "10gib", "10G", "10g", "1.5KB", "1EB", "7B"].map(|text| parse(text).unwrap());
        assert_eq!(sizes[..2], [10_000_000_000; 2]);
        assert_eq!(sizes[2..6], [10 << 30; 4]);
        // As qemu-img takes them.
        assert_eq!(["1024.0", "1024.00B", "512.", "1.K"].map(|text| parse(text).unwrap()), [1024, 1024, 512, 1024]);
        assert_eq!(sizes[6..], [1500, 1_000_000_000_000_000_000, 7]);
        let message = parse("10GX").unwrap_err();
        assert!(message.contains("10GB (of 1000)"), "{message}");
    }

    #[test]
    fn hexadecimal_numbers_are_bytes() {
        assert_eq!(["0x10000", "0XfF", "0x1E"].map(|text| parse(text).unwrap()), [65536, 255, 30]);
        for text in ["0x", "0x+1", "0x1K", "0x10000000000000000", "x1"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn refuses_what_is_no_size() {
        for text in [
            "",
            "K",
            "-1",
            "1.5",
            "1.5B",
            "1024.01",
            ".",
            ".5K",
            "1.-5K",
            "1.+5K",
            "1.5.5K",
            "16E",
            "1X",
            "64 K",
            "99999999999999999999",
            "99999999T",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn writes_exactly_what_it_reads() {
        assert_eq!([0, 512, 65536, 3 << 29, 5 << 40].map(exact), ["0", "512", "64K", "1536M", "5T"]);
        for bytes in [0, 1, 1023, 1024, 1 << 20, (1 << 20) + 1, u64::MAX, 1 << 63] {
            assert_eq!(parse(&exact(bytes)), Ok(bytes));
        }
    }

    #[test]
    fn writes_the_largest_fitting_unit() {
        assert_eq!([1, 4096, 3 << 29].map(human), ["1 bytes", "4.00 KiB", "1.50 GiB"]);
    }
}
