//! Times as people write them.

use std::time::Duration;

/// Longest time that is taken: thirty years, which no clock here is brought out of its range by.
const SECONDS_MAX: f64 = 1e9;

/// Reads a number of seconds: `60`, `2.5`.
///
/// # Errors
/// A sentence on what a time looks like.
pub fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text
        .parse::<f64>()
        .ok()
        .filter(|seconds| *seconds <= SECONDS_MAX)
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds.ok_or_else(|| "a time is a number of seconds such as 60 or 2.5, and at most 1000000000".to_owned())
}
