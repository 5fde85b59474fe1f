//! Times as people write them.

use std::time::Duration;

/// Reads a number of seconds: `60`, `2.5`.
///
/// # Errors
/// A sentence on what a time looks like.
pub fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds.ok_or_else(|| "a time is a number of seconds such as 60 or 2.5".to_owned())
}
