//! Times as people write and read them.

use std::time::Duration;

const UNITS: [(&str, u64); 4] = [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1000), ("ns", 1)];

/// Reads a whole number with a unit: `2s`, `5ms`, `100us`, `50ns`.
///
/// # Errors
/// A sentence on what a time looks like.
pub fn parse(text: &str) -> Result<Duration, String> {
    let not_a_time = || format!("'{text}' is not a time: a whole number with a unit such as 2s, 5ms, 100us or 50ns");
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit = &text[digits.len()..];
    let (_, unit_ns) = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(not_a_time)?;
    let number: u64 = digits.parse().map_err(|_| not_a_time())?;
    let ns = number.checked_mul(*unit_ns).ok_or_else(|| format!("'{text}' is longer than anybody waits"))?;
    Ok(Duration::from_nanos(ns))
}

/// Writes a time so that [`parse`] reads the same: in the largest unit that leaves it whole. Times of more than 584
/// years are cut there.
pub fn exact(time: Duration) -> String {
    let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let (unit, unit_ns) = UNITS.into_iter().find(|(_, unit_ns)| ns.is_multiple_of(*unit_ns)).unwrap_or(("ns", 1));
    format!("{}{unit}", ns / unit_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_whole_numbers_with_a_unit() {
        let ns = ["2s", "5ms", "100us", "7ns", "0s"].map(|text| parse(text).unwrap().as_nanos());
        assert_eq!(ns, [2_000_000_000, 5_000_000, 100_000, 7, 0]);
    }

    #[test]
    fn refuses_what_is_no_time() {
        for text in ["", "5", "ms", "-1s", "1.5s", "5 ms", "1h", "1S", "99999999999999999s"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn writes_exactly_what_it_reads() {
        let times = ["2s", "1500ms", "100us", "1001ns", "0s"];
        assert_eq!(times.map(|text| exact(parse(text).unwrap())), times);
    }
}
