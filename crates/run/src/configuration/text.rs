//! How values are written in TOML that have a text of their own.

use serde::de::{Deserialize, Deserializer, Error};
use serde::ser::Serializer;
use std::fmt::Display;
use std::str::FromStr;

fn parsed<'de, D: Deserializer<'de>, T: FromStr<Err: Display>>(text: &str) -> Result<T, D::Error> {
    text.parse().map_err(D::Error::custom)
}

/// As the value's own text.
pub(super) mod plain {
    use super::*;

    pub(crate) fn serialize<T: Display, S: Serializer>(value: &T, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(value)
    }

    pub(crate) fn deserialize<'de, T: FromStr<Err: Display>, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
        parsed::<D, T>(&String::deserialize(from)?)
    }
}

/// As the value's own text, if there is a value.
pub(super) mod optional {
    use super::*;

    pub(crate) fn serialize<T: Display, S: Serializer>(value: &Option<T>, to: S) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) => to.collect_str(value),
            None => to.serialize_none(),
        }
    }

    pub(crate) fn deserialize<'de, T: FromStr<Err: Display>, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<T>, D::Error> {
        Option::<String>::deserialize(from)?.map(|text| parsed::<D, T>(&text)).transpose()
    }
}

/// Bytes, if there is such a number.
pub(super) mod optional_bytes {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(bytes: &Option<u64>, to: S) -> Result<S::Ok, S::Error> {
        match bytes {
            Some(bytes) => super::bytes::serialize(bytes, to),
            None => to.serialize_none(),
        }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
        super::bytes::deserialize(from).map(Some)
    }
}

/// Bytes, as people say them: `2G`.
pub(super) mod bytes {
    use super::*;
    use blockyard_block::size;

    const UNITS: [(u64, &str); 4] = [(1 << 40, "T"), (1 << 30, "G"), (1 << 20, "M"), (1 << 10, "K")];

    pub(crate) fn serialize<S: Serializer>(bytes: &u64, to: S) -> Result<S::Ok, S::Error> {
        match UNITS.iter().find(|(unit, _)| *bytes > 0 && bytes.is_multiple_of(*unit)) {
            Some((unit, letter)) => to.collect_str(&format_args!("{}{letter}", bytes / unit)),
            None => to.collect_str(bytes),
        }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
        size::parse(&String::deserialize(from)?).map_err(D::Error::custom)
    }
}

/// Seconds, as a number.
pub(super) mod seconds {
    use super::*;
    use std::time::Duration;

    pub(crate) fn serialize<S: Serializer>(time: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
        match time {
            Some(time) => to.serialize_f64(time.as_secs_f64()),
            None => to.serialize_none(),
        }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
        let Some(seconds) = Option::<f64>::deserialize(from)? else { return Ok(None) };
        let time = Duration::try_from_secs_f64(seconds);
        time.map(Some).map_err(|_| D::Error::custom(format_args!("{seconds} are no seconds")))
    }
}
