//! `blockyard serve` as a process of its own, for as long as a measurement takes.

use anyhow::{Context, Result, bail};
use blockyard_block::{programs, wait_ready};
use rustix::event::{PollFd, PollFlags};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How long a server may take to be there, and to go.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often to look.
const INTERVAL: Duration = Duration::from_millis(2);
/// How much of a server's last words an error repeats.
const WORDS_MAX: usize = 1000;

/// A server; it ends when this is dropped.
#[derive(Debug)]
pub struct ServeProcess {
    child: Child,
    /// Readable when it has ended.
    ended: OwnedFd,
    log: PathBuf,
}

impl ServeProcess {
    /// Has `blockyard`, the program's file, serve a disk as `arguments` say, and waits until `ready`. What it says goes
    /// into `log`, which is made anew.
    ///
    /// # Errors
    /// When it cannot be started, ends at once, or does not get ready: with what it said.
    pub fn start(
        blockyard: &Path,
        disk: &OsStr,
        arguments: &[&OsStr],
        log: &Path,
        ready: impl Fn() -> bool,
    ) -> Result<Self> {
        let file = File::create(log).with_context(|| format!("making {}", log.display()))?;
        let mut command = programs::command(blockyard);
        command.arg("serve").arg(disk).args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(file);
        let mut child = command.spawn().context("cannot start blockyard serve")?;
        let ended = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).inspect_err(|_| _ = child.kill());
        let ended = ended.context("watching blockyard serve")?;
        let mut server = Self { child, ended, log: log.to_owned() };
        let started = Instant::now();
        while !ready() {
            if let Some(status) = server.ends_within(INTERVAL)? {
                bail!("blockyard serve ended at once ({status}): {}", server.words());
            }
            if started.elapsed() > PATIENCE {
                bail!("blockyard serve is not ready after {} s: {}", PATIENCE.as_secs(), server.words());
            }
        }
        Ok(server)
    }

    /// Readable when it has ended.
    pub fn ended(&self) -> BorrowedFd<'_> {
        self.ended.as_fd()
    }

    /// How it has ended by itself, and what it said.
    ///
    /// # Errors
    /// When that cannot be found out.
    pub fn own_end(&mut self) -> Result<String> {
        let status = self.ends_within(PATIENCE)?.context("blockyard serve does not end")?;
        Ok(format!("blockyard serve has ended ({status}): {}", self.words()))
    }

    /// What it said last, which says what went wrong.
    fn words(&self) -> String {
        let text = fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text[text.len().saturating_sub(WORDS_MAX)..]).into_owned();
        let line = text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it said nothing");
        line.strip_prefix("blockyard: ").unwrap_or(line).to_owned()
    }

    /// Has it end, as whoever uses it would.
    ///
    /// # Errors
    /// When it does not, or fails: with what it said.
    pub fn end(mut self) -> Result<()> {
        match self.ask_to_end()? {
            Some(status) if status.success() => Ok(()),
            Some(status) => bail!("blockyard serve failed ({status}): {}", self.words()),
            None => bail!("blockyard serve has not ended within {} s: {}", PATIENCE.as_secs(), self.words()),
        }
    }

    /// It has sockets to remove, and a file system to unmount.
    fn ask_to_end(&mut self) -> Result<Option<ExitStatus>> {
        if let Some(status) = self.ends_within(Duration::ZERO)? {
            return Ok(Some(status));
        }
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        self.ends_within(PATIENCE)
    }

    /// How it has ended, or does within this time.
    fn ends_within(&mut self, wait: Duration) -> Result<Option<ExitStatus>> {
        let deadline = Instant::now() + wait;
        loop {
            // A signal ends a wait.
            let left = deadline.saturating_duration_since(Instant::now());
            wait_ready(&mut [PollFd::new(&self.ended, PollFlags::IN)], Some(left)).context("waiting for a server")?;
            match self.child.try_wait().context("waiting for blockyard serve")? {
                None if !left.is_zero() => {}
                status => return Ok(status),
            }
        }
    }
}

impl Drop for ServeProcess {
    fn drop(&mut self) {
        if !matches!(self.ask_to_end(), Ok(Some(_))) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
