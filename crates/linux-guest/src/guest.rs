//! A guest's process: its console's lines, its end.

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, kill_process_group};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

/// A running guest. Its processes, of which User-Mode Linux has many, end with it, at the latest when it is dropped.
#[derive(Debug)]
pub struct Guest {
    child: Child,
    lines: Receiver<String>,
    /// What the console has said.
    transcript: Vec<String>,
    deadline: Instant,
}

impl Guest {
    /// Starts a guest that has to be done within `timeout`. Its stdin and stdout are its console.
    ///
    /// # Errors
    /// When the program cannot be started.
    pub fn start(mut command: Command, timeout: Duration) -> anyhow::Result<Self> {
        let program = command.get_program().to_string_lossy().into_owned();
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().with_context(|| format!("cannot start {program}"))?;
        let output = child.stdout.take().context("a guest without a console")?;
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
                let line = String::from_utf8_lossy(&line).trim_end_matches('\r').to_owned();
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Ok(Self { child, lines, transcript: Vec::new(), deadline: Instant::now() + timeout })
    }

    /// Waits for a line that contains `text`, and returns it.
    ///
    /// # Errors
    /// When the guest ends or its time is up before; the console's last lines are in the error.
    pub fn wait_for(&mut self, text: &str) -> anyhow::Result<String> {
        loop {
            let left = self.deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => {
                    self.transcript.push(line.clone());
                    if line.contains(text) {
                        return Ok(line);
                    }
                }
                Err(RecvTimeoutError::Disconnected) => bail!("the guest ended without {text:?}{}", self.shown()),
                Err(RecvTimeoutError::Timeout) => bail!("the guest took too long to say {text:?}{}", self.shown()),
            }
        }
    }

    /// Types `text` and a newline on the console.
    ///
    /// # Errors
    /// When the guest has ended.
    pub fn type_line(&mut self, text: &str) -> anyhow::Result<()> {
        let console = self.child.stdin.as_mut().context("a guest without a console")?;
        writeln!(console, "{text}").context("the guest does not read its console")
    }

    /// Waits until the guest has ended, and returns all that its console said.
    ///
    /// # Errors
    /// When its time is up before.
    pub fn finish(mut self) -> anyhow::Result<String> {
        loop {
            let left = self.deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => self.transcript.push(line),
                Err(RecvTimeoutError::Disconnected) => return Ok(self.transcript.join("\n")),
                Err(RecvTimeoutError::Timeout) => bail!("the guest does not end{}", self.shown()),
            }
        }
    }

    /// Process id of the guest's first process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    fn shown(&self) -> String {
        let last = self.transcript.len().saturating_sub(40);
        let lines: Vec<_> = self.transcript[last..].iter().map(|line| format!("\n  | {line}")).collect();
        format!("; its console's last lines:{}", lines.concat())
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        // It has ended, or is of no more use. Neither call fails in a way that matters.
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        let _ = self.child.wait();
    }
}
