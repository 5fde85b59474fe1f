//! What makes a disk slow or bad on purpose, as its keys say it.
//!
//! One more is its layer, and what is said of it here.

use super::SpecificationError;
use super::keys::Key;
use super::settings::{Setting, Settings};
use super::written::key;
use crate::layers::{Fault, Faults, FaultyDisk, Latency, ThrottleLimits, ThrottledDisk};
use crate::{Disk, duration, size};
use std::fmt;
use std::num::NonZeroU64;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

/// Which every kind of disk takes, in the order in which they are written.
pub(super) const KEYS: [Key; 5] = [
    Key { name: "iops", value: Some("a number of requests a second") },
    Key { name: "bps", value: Some("a size a second such as 100M") },
    Key { name: "burst", value: Some("a time such as 100ms") },
    Key { name: "latency", value: Some("a time such as 5ms") },
    Key { name: "faults", value: Some("faults such as read-error:0.01+seed:7") },
];

const IOPS_MAX: u64 = 1_000_000_000;
const BURST_MAX: Duration = Duration::from_secs(3600);

/// What makes a disk slow or bad.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Hindrances {
    limits: Option<ThrottleLimits>,
    latency: Option<Latency>,
    faults: Option<Faults>,
}

impl Hindrances {
    /// # Errors
    /// When a value makes no sense.
    pub(super) fn read(settings: &Settings<'_>) -> Result<Self, SpecificationError> {
        Ok(Self {
            limits: limits(settings)?,
            latency: settings.value("latency", Latency::from_str)?,
            faults: faults(settings)?,
        })
    }

    /// Allows at most so many bytes a second; false where there are limits already.
    pub(super) fn limit(&mut self, bytes_per_second: NonZeroU64) -> bool {
        let is_new = self.limits.is_none();
        let burst = ThrottleLimits::BURST_DEFAULT;
        self.limits.get_or_insert(ThrottleLimits { iops: None, bytes_per_second: Some(bytes_per_second), burst });
        is_new
    }

    /// Writes their keys.
    pub(super) fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(ThrottleLimits { iops, bytes_per_second, burst }) = self.limits {
            key(f, "iops", iops)?;
            key(f, "bps", bytes_per_second.map(|bytes| size::exact(bytes.get())))?;
            let burst = (burst != ThrottleLimits::BURST_DEFAULT).then_some(burst);
            key(f, "burst", burst.map(duration::exact))?;
        }
        key(f, "latency", self.latency)?;
        key(f, "faults", self.faults.as_ref())
    }

    /// `disk`, with their layers round it.
    pub(super) fn round(&self, disk: Arc<dyn Disk>) -> Arc<dyn Disk> {
        let disk: Arc<dyn Disk> = match &self.limits {
            None => disk,
            Some(limits) => Arc::new(ThrottledDisk::new(disk, limits)),
        };
        match self.all_faults() {
            None => disk,
            Some(faults) => Arc::new(FaultyDisk::new(disk, &faults)),
        }
    }

    /// The faults, with the latency as one of them.
    fn all_faults(&self) -> Option<Faults> {
        if self.latency.is_none() && self.faults.is_none() {
            return None;
        }
        let mut faults = self.faults.clone().unwrap_or_default();
        faults.faults.extend(self.latency.map(|latency| Fault::Latency { operation: None, latency }));
        Some(faults)
    }
}

fn limits(settings: &Settings<'_>) -> Result<Option<ThrottleLimits>, SpecificationError> {
    let iops = settings.value("iops", iops)?;
    let bytes_per_second = settings.value("bps", bps)?;
    let burst = settings.value("burst", burst)?.unwrap_or(ThrottleLimits::BURST_DEFAULT);
    let any = iops.is_some() || bytes_per_second.is_some();
    Ok(any.then_some(ThrottleLimits { iops, bytes_per_second, burst }))
}

/// Faults know which of them is wrong.
fn faults(settings: &Settings<'_>) -> Result<Option<Faults>, SpecificationError> {
    let Some(Setting { value, value_span, .. }) = settings.get("faults") else { return Ok(None) };
    value.parse().map(Some).map_err(|error: crate::layers::FaultsError| {
        // With a comma in it, which is written twice, places in the value are not places in the specification.
        let verbatim = value.len() == value_span.len();
        let span = value_span.start + error.span.start..value_span.start + error.span.end;
        settings.wrong(if verbatim { span } else { value_span.clone() }, format!("faults: {error}"))
    })
}

fn iops(text: &str) -> Result<NonZeroU64, String> {
    let number = text.parse().ok().filter(|number: &NonZeroU64| number.get() <= IOPS_MAX);
    number.ok_or_else(|| format!("'{text}' is not a whole number from 1 to {IOPS_MAX}"))
}

fn bps(text: &str) -> Result<NonZeroU64, String> {
    NonZeroU64::new(size::parse(text)?).ok_or_else(|| "no bytes a second would be no disk: at least 1".into())
}

fn burst(text: &str) -> Result<Duration, String> {
    let time = duration::parse(text)?;
    let message = || format!("'{text}' is longer than {}", duration::exact(BURST_MAX));
    (time <= BURST_MAX).then_some(time).ok_or_else(message)
}
