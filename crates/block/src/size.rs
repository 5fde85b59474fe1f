//! Sizes in bytes as people write and read them.

/// Reads a number of bytes with an optional binary suffix: `512`, `64K`, `8M`, `1.5G`, `1T`, `1P`, `1E`, also `KiB`; `kB` is refused. What is
/// less than a byte is dropped.
///
/// # Errors
/// A sentence on what a size looks like.
pub fn parse(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let shift = match &text[digits.len()..] {
        "" | "B" => 0,
        "K" | "k" | "KiB" => 10,
        "M" | "m" | "MiB" => 20,
        "G" | "g" | "GiB" => 30,
        "T" | "t" | "TiB" => 40,
        "P" | "p" | "PiB" => 50,
        "E" | "e" | "EiB" => 60,
        _ => return Err(not_a_size(text)),
    };
    let (whole, fraction) = match digits.split_once('.') {
        Some((whole, fraction)) if shift > 0 => (whole, part_of(fraction, shift).ok_or_else(|| not_a_size(text))?),
        _ => (digits, 0),
    };
    let whole: u64 = whole.parse().map_err(|_| not_a_size(text))?;
    let bytes = whole.checked_mul(1 << shift).and_then(|bytes| bytes.checked_add(fraction));
    bytes.ok_or_else(|| format!("'{text}' is more bytes than there can be"))
}

/// How many of `1 << shift` bytes the decimal digits behind a point are.
fn part_of(digits: &str, shift: u32) -> Option<u64> {
    let parts: u64 = digits.parse().ok().filter(|_| digits.bytes().all(|digit| digit.is_ascii_digit()))?;
    let of = 10_u64.checked_pow(digits.len().try_into().ok()?)?;
    u64::try_from((u128::from(parts) << shift) / u128::from(of)).ok()
}

fn not_a_size(text: &str) -> String {
    format!("'{text}' is not a size: a number of bytes such as 4096, 64K, 8M or 2G")
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
    fn refuses_what_is_no_size() {
        for text in [
            "",
            "K",
            "-1",
            "1.5",
            "1.K",
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
