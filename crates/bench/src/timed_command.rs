//! Programs that are run and timed.

use anyhow::{Context, Result, bail};
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Instant;

/// Bytes of a program's last words that an error repeats.
const WORDS_MAX: usize = 400;

/// What a program that succeeded took, and what it printed.
pub(crate) struct Finished {
    pub(crate) seconds: f64,
    pub(crate) stdout: String,
}

/// Runs `command` with `input` as its stdin, to its end.
///
/// # Errors
/// When it cannot be started or fails: with what it said.
pub(crate) fn run(command: &mut Command, input: &str) -> Result<Finished> {
    let name = command.get_program().to_string_lossy().into_owned();
    let start = Instant::now();
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run {name}"))?;
    // One that ends before it has read all has its reasons, which are its exit status.
    let _ = child.stdin.take().map(|mut stdin| stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().with_context(|| format!("cannot run {name}"))?;
    let seconds = start.elapsed().as_secs_f64();
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stderr[..output.stderr.len().min(WORDS_MAX)]).into_owned();
        bail!("{name} failed ({}): {}", output.status, words.trim());
    }
    Ok(Finished { seconds, stdout: String::from_utf8_lossy(&output.stdout).into_owned() })
}
