//! Times of files, before 1970 too.

use rustix::fs::{Timespec, Timestamps};

const NANOSECONDS: u32 = 1_000_000_000;

/// A time of a file: both together are the time since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Time {
    /// Seconds: negative before 1970.
    pub seconds: i64,
    /// Nanoseconds that are added to them, less than a second.
    pub nanoseconds: u32,
}

impl Time {
    /// For a file that was accessed when it was modified.
    pub fn both(self) -> Timestamps {
        let time = Timespec { tv_sec: self.seconds, tv_nsec: self.nanoseconds.into() };
        Timestamps { last_access: time, last_modification: time }
    }

    /// A pax record's value: seconds as a decimal number (POSIX.1-2024, pax, "pax Extended Header File Times").
    pub(crate) fn decimal(self) -> String {
        let (sign, whole, fraction) = match self {
            Self { seconds: 0.., nanoseconds } => ("", self.seconds, nanoseconds),
            Self { nanoseconds: 0, .. } => ("", self.seconds, 0),
            Self { nanoseconds, .. } => ("-", -(self.seconds + 1), NANOSECONDS - nanoseconds),
        };
        let decimal = format!("{sign}{whole}.{fraction:09}");
        decimal.trim_end_matches('0').trim_end_matches('.').to_owned()
    }

    /// What [`Time::decimal`] is of; `None` when it is none.
    pub(crate) fn of_decimal(text: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(text).ok()?;
        let (is_negative, text) = text.strip_prefix('-').map_or((false, text), |text| (true, text));
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if !is_number(whole) || !is_number(fraction) {
            return None;
        }
        let whole: i64 = whole.parse().ok()?;
        let nanoseconds: u32 = format!("{fraction:0<9}")[..9].parse().ok()?;
        Some(match (is_negative, nanoseconds) {
            (false, nanoseconds) => Self { seconds: whole, nanoseconds },
            (true, 0) => Self { seconds: -whole, nanoseconds: 0 },
            (true, nanoseconds) => Self { seconds: -whole - 1, nanoseconds: NANOSECONDS - nanoseconds },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_decimal_numbers_on_both_sides_of_1970() {
        for (seconds, nanoseconds, text) in [
            (0, 0, "0"),
            (1_700_000_000, 0, "1700000000"),
            (7, 120_000_000, "7.12"),
            (-2, 500_000_000, "-1.5"),
            (-1, 999_999_999, "-0.000000001"),
            (-10, 0, "-10"),
            (i64::MIN, 1, "-9223372036854775807.999999999"),
        ] {
            let time = Time { seconds, nanoseconds };
            assert_eq!(time.decimal(), text);
            assert_eq!(Time::of_decimal(text.as_bytes()), Some(time), "{text}");
        }
        assert_eq!(Time::of_decimal(b"1.2345678999"), Some(Time { seconds: 1, nanoseconds: 234_567_899 }));
        for text in ["", "-", ".5", "1e3", "+1", "--1", "99999999999999999999", "1.x"] {
            assert_eq!(Time::of_decimal(text.as_bytes()), None, "{text}");
        }
    }
}
