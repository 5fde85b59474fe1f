//! Output of a command as the input of one of the host's.

use anyhow::{Context, Result, bail};
use rustix::stdio::{dup2_stdout, stdout};
use std::ffi::OsStr;
use std::io::{self, Write};
use std::process::{Command, Stdio};

/// Runs `command` with the host's shell, and `act` with its stdin for our stdout.
///
/// # Errors
/// When either fails.
pub fn into(command: &OsStr, act: impl FnOnce() -> Result<()>) -> Result<()> {
    let mut child =
        Command::new("/bin/sh").arg("-c").arg(command).stdin(Stdio::piped()).spawn().context("cannot run /bin/sh")?;
    let Some(input) = child.stdin.take() else { bail!("{}: it has no input", command.display()) };
    let own = rustix::io::fcntl_dupfd_cloexec(stdout(), 3).map_err(io::Error::from).context("keeping stdout")?;
    io::stdout().flush().context("cannot write to stdout")?;
    dup2_stdout(&input).map_err(io::Error::from).context("changing stdout")?;
    drop(input);
    let done = act();
    // It may have read enough.
    let flushed = io::stdout().flush();
    dup2_stdout(&own).map_err(io::Error::from).context("changing stdout back")?;
    let status = child.wait().context("cannot wait for /bin/sh")?;
    let enough = |error: &anyhow::Error| format!("{error:#}").contains("Broken pipe");
    match done {
        Err(error) if !(status.success() && enough(&error)) => return Err(error),
        _ => drop(flushed),
    }
    if status.success() { Ok(()) } else { bail!("| {}: {status}", command.display()) }
}
