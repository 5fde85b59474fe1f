//! Output of a command as the input of one of the host's.

use anyhow::{Context, Result, bail};
use blockyard_block::{programs, shown};
use blockyard_command_line::terminal::OutputError;
use blockyard_command_line::{failures, signals};
use rustix::stdio::{dup2_stdout, stdout};
use std::ffi::OsStr;
use std::io::{self, Seek, Write};
use std::process::{Command, Stdio};

/// Runs `command` with the host's shell, and `act` with its stdin for our stdout.
///
/// # Errors
/// When either fails.
pub(crate) fn into(command: &OsStr, act: impl FnOnce() -> Result<()>) -> Result<()> {
    between(shell(command), Stdio::inherit(), act)
}

/// As [`into`], for a command of ours: its programs are found where we find some, whatever PATH says.
///
/// # Errors
/// As there.
pub(crate) fn into_own(command: &OsStr, act: impl FnOnce() -> Result<()>) -> Result<()> {
    between(own_shell(command), Stdio::inherit(), act)
}

/// As [`into_own`], and says what the command says when all has come: what it makes of a part, or of nothing, is wrong.
///
/// # Errors
/// As there.
pub(crate) fn sum(command: &OsStr, act: impl FnOnce() -> Result<()>) -> Result<()> {
    let mut said = tempfile::tempfile().context("making a temporary file")?;
    let output = said.try_clone().context("making a temporary file")?;
    between(own_shell(command), output.into(), act)?;
    said.rewind().context("reading a temporary file")?;
    Ok(io::copy(&mut said, &mut io::stdout()).map(drop).map_err(OutputError)?)
}

fn shell(command: &OsStr) -> (Command, &OsStr) {
    let mut shell = Command::new("/bin/sh");
    shell.arg("-c").arg(command);
    (shell, command)
}

fn own_shell(command: &OsStr) -> (Command, &OsStr) {
    let (mut shell, command) = shell(command);
    shell.env("PATH", programs::path());
    (shell, command)
}

fn between((mut shell, command): (Command, &OsStr), output: Stdio, act: impl FnOnce() -> Result<()>) -> Result<()> {
    let mut child = shell.stdin(Stdio::piped()).stdout(output).spawn().context("cannot run /bin/sh")?;
    let Some(input) = child.stdin.take() else { bail!("{}: it has no input", shown(command)) };
    let own = rustix::io::fcntl_dupfd_cloexec(stdout(), 3).map_err(io::Error::from).context("keeping stdout")?;
    io::stdout().flush().map_err(OutputError)?;
    dup2_stdout(&input).map_err(io::Error::from).context("changing stdout")?;
    drop(input);
    let done = act();
    // It may have read enough.
    let flushed = io::stdout().flush();
    dup2_stdout(&own).map_err(io::Error::from).context("changing stdout back")?;
    let status = signals::wait_for_program(&mut child).context("cannot wait for /bin/sh")?;
    match done {
        Err(error) if !(status.success() && failures::is_unwanted(&error)) => return Err(error),
        _ => drop(flushed),
    }
    if status.success() { Ok(()) } else { bail!("| {}: {status}", shown(command)) }
}
