//! `blockyard serve` as a process of its own, for as long as a measurement takes.

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// How long a server may take to be there, and to go.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often to look.
const INTERVAL: Duration = Duration::from_millis(2);
/// How much of a server's last words an error repeats.
const WORDS_MAX: usize = 1000;

/// A server; it ends when this is dropped.
pub struct ServeProcess {
    child: Child,
}

impl ServeProcess {
    /// Serves a disk as `arguments` say, and waits until `ready`. What it says goes into `log`, which is made anew.
    ///
    /// # Errors
    /// When it cannot be started, ends at once, or does not get ready: with what it said.
    pub fn start(disk: &OsStr, arguments: &[&OsStr], log: &Path, ready: impl Fn() -> bool) -> Result<Self> {
        let file = File::create(log).with_context(|| format!("making {}", log.display()))?;
        let child = Command::new(std::env::current_exe().context("finding this program's own file")?)
            .arg("serve")
            .arg(disk)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(file)
            .spawn()
            .context("cannot start blockyard serve")?;
        let mut server = Self { child };
        let started = Instant::now();
        while !ready() {
            if server.child.try_wait().context("waiting for blockyard serve")?.is_some() {
                bail!("blockyard serve ended at once: {}", last_words(log));
            }
            if started.elapsed() > PATIENCE {
                bail!("blockyard serve is not ready after {} s: {}", PATIENCE.as_secs(), last_words(log));
            }
            thread::sleep(INTERVAL);
        }
        Ok(server)
    }
}

impl Drop for ServeProcess {
    fn drop(&mut self) {
        // Asked first: it has sockets to remove, and a file system to unmount.
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let asked = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) {
            if asked.elapsed() > PATIENCE {
                let _ = self.child.kill();
                let _ = self.child.wait();
                return;
            }
            thread::sleep(INTERVAL);
        }
    }
}

/// The first line of what it wrote, which says what went wrong.
fn last_words(log: &Path) -> String {
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text[..text.len().min(WORDS_MAX)]).into_owned();
    let line = text.lines().find(|line| !line.trim().is_empty()).unwrap_or("it said nothing");
    line.strip_prefix("blockyard: ").unwrap_or(line).to_owned()
}
