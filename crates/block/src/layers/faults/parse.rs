//! Faults as people write them.

use super::{Fault, Faults, Latency, OperationKind, When};
use crate::{duration, size};
use std::fmt;
use std::num::NonZeroU64;
use std::ops::Range;
use std::str::FromStr;
use std::time::Duration;

/// More than anybody writes by hand.
const FAULTS_MAX: usize = 64;

/// Longer than any test waits.
const LATENCY_MAX: Duration = Duration::from_secs(3600);

/// What is wrong with a text that should say [`Faults`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct FaultsError {
    /// A sentence: what is wrong and what would be right.
    pub message: String,
    /// Where in the text, in bytes.
    pub span: Range<usize>,
}

impl FromStr for Faults {
    type Err = FaultsError;

    fn from_str(text: &str) -> Result<Self, FaultsError> {
        let mut faults = Self::default();
        let (mut start, mut seeds) = (0, 0);
        for part in text.split('+') {
            let span = start..start + part.len();
            start = span.end + 1;
            let wrong = |message| FaultsError { message, span: span.clone() };
            match part.split_once(':') {
                Some(("seed", number)) => {
                    faults.seed =
                        number.parse().map_err(|_| wrong(format!("'{number}' is not a seed: a whole number")))?;
                    seeds += 1;
                }
                _ => faults.faults.push(fault(part).map_err(wrong)?),
            }
            if seeds > 1 {
                return Err(wrong("a second seed: one is for all faults".into()));
            }
            if faults.faults.len() > FAULTS_MAX {
                return Err(wrong(format!("too many faults: {FAULTS_MAX} are possible")));
            }
        }
        if faults.faults.is_empty() {
            return Err(FaultsError { message: "no fault beside the seed".into(), span: 0..text.len() });
        }
        Ok(faults)
    }
}

fn fault(text: &str) -> Result<Fault, String> {
    let (name, value) = text.split_once(':').ok_or_else(|| {
        format!("'{text}' is not a fault: write error, latency, torn-write, silent-torn-write, lost-write or full, a colon and a value, such as read-error:0.01")
    })?;
    if let Some(operation) = operation_of(name, "error") {
        return Ok(Fault::Error { operation, when: value.parse()? });
    }
    if let Some(operation) = operation_of(name, "latency") {
        return Ok(Fault::Latency { operation, latency: value.parse()? });
    }
    match name {
        "torn-write" => Ok(Fault::TornWrite { reported: true, when: value.parse()? }),
        "silent-torn-write" => Ok(Fault::TornWrite { reported: false, when: value.parse()? }),
        "lost-write" => Ok(Fault::LostWrite { when: value.parse()? }),
        "full" => Ok(Fault::Full { after_bytes: size::parse(value)? }),
        _ => Err(format!(
            "'{name}' is not a fault: error, latency (also read-, write-, flush-, discard-, zero-error and -latency), \
             torn-write, silent-torn-write, lost-write, full or seed"
        )),
    }
}

/// Of `error` and `read-error`, the operation; `None` when `name` is something else than `what`.
fn operation_of(name: &str, what: &str) -> Option<Option<OperationKind>> {
    if name == what {
        return Some(None);
    }
    let operation = name.strip_suffix(what)?.strip_suffix('-')?;
    OperationKind::ALL.into_iter().find(|kind| kind.name() == operation).map(Some)
}

impl FromStr for When {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text.trim_end_matches(|letter: char| letter.is_ascii_lowercase());
        if ["st", "nd", "rd", "th"].contains(&&text[digits.len()..]) {
            let number = digits.parse().map_err(|_| format!("'{text}' is not a count such as 100th, from 1st"))?;
            return Ok(Self::Nth(number));
        }
        if let Some((start, end)) = text.split_once('-') {
            let range = size::parse(start)?..size::parse(end)?;
            return if range.is_empty() { Err(format!("'{text}' is an empty range")) } else { Ok(Self::Range(range)) };
        }
        match chance(text) {
            Some(per_billion) => Ok(Self::Chance { per_billion }),
            None => Err(format!(
                "'{text}' does not say when: a probability from 0 to 1 with at most nine decimals such as 0.01, a count \
                 such as 100th, or a range of bytes such as 1M-2M"
            )),
        }
    }
}

/// A probability in billionths, without rounding.
fn chance(text: &str) -> Option<u32> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
    let all_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !all_digits(whole) || !all_digits(decimals) || decimals.len() > 9 {
        return None;
    }
    let parts: u32 = format!("{decimals:0<9}").parse().ok()?;
    let per_billion = whole.parse::<u32>().ok()?.checked_mul(1_000_000_000)?.checked_add(parts)?;
    (per_billion <= 1_000_000_000).then_some(per_billion)
}

impl FromStr for Latency {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (shortest, longest) = text.split_once('-').unwrap_or((text, text));
        let latency = Self { shortest: duration::parse(shortest)?, longest: duration::parse(longest)? };
        if latency.shortest > latency.longest {
            return Err(format!("'{text}' ends before it begins"));
        }
        if latency.longest > LATENCY_MAX {
            return Err(format!("'{text}' is longer than {}", duration::exact(LATENCY_MAX)));
        }
        Ok(latency)
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, fault) in self.faults.iter().enumerate() {
            let plus = if index > 0 { "+" } else { "" };
            write!(f, "{plus}{fault}")?;
        }
        if self.seed > 0 { write!(f, "+seed:{}", self.seed) } else { Ok(()) }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of =
            |operation: &Option<OperationKind>| operation.map_or(String::new(), |kind| format!("{}-", kind.name()));
        match self {
            Self::Error { operation, when } => write!(f, "{}error:{when}", of(operation)),
            Self::Latency { operation, latency } => write!(f, "{}latency:{latency}", of(operation)),
            Self::TornWrite { reported: true, when } => write!(f, "torn-write:{when}"),
            Self::TornWrite { reported: false, when } => write!(f, "silent-torn-write:{when}"),
            Self::LostWrite { when } => write!(f, "lost-write:{when}"),
            Self::Full { after_bytes } => write!(f, "full:{}", size::exact(*after_bytes)),
        }
    }
}

impl fmt::Display for When {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Chance { per_billion } => {
                let (whole, parts) = (per_billion / 1_000_000_000, per_billion % 1_000_000_000);
                let decimals = format!("{parts:09}");
                match decimals.trim_end_matches('0') {
                    "" => write!(f, "{whole}"),
                    decimals => write!(f, "{whole}.{decimals}"),
                }
            }
            Self::Nth(number) => write!(f, "{number}{}", ordinal_suffix(*number)),
            Self::Range(range) => write!(f, "{}-{}", size::exact(range.start), size::exact(range.end)),
        }
    }
}

fn ordinal_suffix(number: NonZeroU64) -> &'static str {
    match (number.get() % 10, number.get() % 100 / 10) {
        (1..=3, 1) => "th",
        (1, _) => "st",
        (2, _) => "nd",
        (3, _) => "rd",
        _ => "th",
    }
}

impl fmt::Display for Latency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", duration::exact(self.shortest))?;
        if self.longest > self.shortest { write!(f, "-{}", duration::exact(self.longest)) } else { Ok(()) }
    }
}
