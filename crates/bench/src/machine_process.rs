//! A machine of `blockyard run` as a process, whose console is read and kept.

use anyhow::{Context, Result};
use blockyard_block::wait_ready;
use rustix::event::{PollFd, PollFlags};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How often to look whether the machine is to end: a signal, too, ends a wait, if this thread gets it.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);
/// How long a machine may take to end that was asked to.
const PATIENCE: Duration = Duration::from_secs(10);
/// Of what a machine says when it fails, an error repeats so many characters.
const WORDS_MAX: usize = 400;
/// What its last sentence begins with, and what people at a command line are told after it.
const PREFIX: &str = "blockyard: ";
const HELP: &str = "For more information";
/// Of a line of the console, no more is heard.
const LINE_BYTES_MAX: usize = 1 << 12;
/// Of a console that says more, the first so much is kept.
const LOG_BYTES_MAX: usize = 16 << 20;

/// A machine that runs, and does not outlive its scope.
#[derive(Debug)]
pub struct MachineProcess {
    child: Child,
    /// Readable when it has ended.
    ended: OwnedFd,
    errors: File,
    reader: Option<JoinHandle<()>>,
}

/// How a machine ended.
#[derive(Clone, Debug)]
pub struct MachineEnd {
    /// What it wrote to stderr.
    pub words: String,
    /// How its process ended.
    pub status: ExitStatus,
}

impl MachineEnd {
    /// Whether the guest switched it off.
    pub fn succeeded(&self) -> bool {
        self.status.success()
    }

    /// Why it failed, in one line: what it said last, or how its process ended if it said nothing.
    pub fn failure(&self) -> String {
        let own = self.words.rfind(PREFIX).map_or(&*self.words, |at| &self.words[at + PREFIX.len()..]);
        let lines = own.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with(HELP));
        let sentence: String = lines.collect::<Vec<_>>().join(" ").chars().take(WORDS_MAX).collect();
        if sentence.is_empty() { format!("its process ended by {}", self.status) } else { sentence }
    }

    /// What its guest did that ended the machine before what it was to do.
    pub fn unasked(&self) -> &'static str {
        match self.report()["ended_by_reboot"].as_bool() {
            Some(true) => "the guest rebooted",
            _ => "the guest switched itself off",
        }
    }

    /// Its last line as JSON, which `--stats --json` prints; null if it is none.
    pub fn report(&self) -> serde_json::Value {
        self.words.lines().last().and_then(|line| serde_json::from_str(line).ok()).unwrap_or_default()
    }
}

impl MachineProcess {
    /// Starts `command`, a `blockyard run`, which ends with the thread that calls this. Its console goes into `log`,
    /// and `hear` gets each line; its errors, into a file of `directory` that has no name.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(
        command: &mut Command,
        directory: &Path,
        log: File,
        hear: impl FnMut(&[u8]) + Send + 'static,
    ) -> Result<Self> {
        let errors = tempfile::tempfile_in(directory).context("making a file")?;
        command.args(["--ends-with", &std::process::id().to_string()]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(errors.try_clone().context("making a file")?);
        let mut child = command.spawn().context("cannot run this program again")?;
        let ended = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).inspect_err(|_| _ = child.kill());
        let ended = ended.context("watching the machine")?;
        let mut machine = Self { child, ended, errors, reader: None };
        let console = machine.child.stdout.take().context("a machine without a console")?;
        machine.reader = Some(thread::spawn(move || read(console, log, hear)));
        Ok(machine)
    }

    /// Waits for its end; `watch` is called again and again, and says whether to wait on. If not, the machine is ended.
    ///
    /// # Errors
    /// When it cannot be waited for.
    pub fn until_it_ends(mut self, watch: &mut dyn FnMut() -> ControlFlow<()>) -> Result<Option<MachineEnd>> {
        while !self.has_ended(LOOK_INTERVAL)? {
            if watch().is_break() {
                self.end()?;
                return Ok(None);
            }
        }
        let status = self.child.wait().context("waiting for the machine")?;
        if let Some(reader) = self.reader.take() {
            _ = reader.join();
        }
        self.errors.rewind().context("reading what the machine said")?;
        let mut words = Vec::new();
        self.errors.read_to_end(&mut words).context("reading what the machine said")?;
        let words = String::from_utf8_lossy(&words).into_owned();
        Ok(Some(MachineEnd { words, status }))
    }

    /// Whether it has ended, or does so within this time; a signal ends the wait, too.
    fn has_ended(&self, wait: Duration) -> Result<bool> {
        let mut ended = [PollFd::new(&self.ended, PollFlags::IN)];
        wait_ready(&mut ended, Some(wait)).context("waiting for the machine")?;
        Ok(!ended[0].revents().is_empty())
    }

    /// Asks it to end, and sees that it does.
    fn end(&mut self) -> Result<()> {
        // It may be gone already.
        _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if self.has_ended(left)? || left.is_zero() {
                return Ok(());
            }
        }
    }
}

impl Drop for MachineProcess {
    fn drop(&mut self) {
        // It has ended, or does not end otherwise.
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// Reads the console to its end.
fn read(mut console: impl Read, mut log: File, mut hear: impl FnMut(&[u8])) {
    let (mut line, mut kept, mut piece) = (Vec::new(), 0, [0; 4096]);
    loop {
        let count = match console.read(&mut piece) {
            Ok(count) if count > 0 => count,
            _ => return,
        };
        let room = count.min(LOG_BYTES_MAX - kept);
        // A log that cannot be written is no reason to end what can be measured.
        let _ = log.write_all(&piece[..room]);
        kept += room;
        for &byte in &piece[..count] {
            if byte == b'\n' {
                hear(&line);
                line.clear();
            } else if line.len() < LINE_BYTES_MAX {
                line.push(byte);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;

    #[test]
    fn why_a_machine_failed_is_its_last_sentence_or_how_its_process_ended() {
        let end =
            |words: &str, status| MachineEnd { words: words.into(), status: ExitStatus::from_raw(status) }.failure();
        let usage = "a note\nblockyard: there is no x\n\nFor more information, try '--help'.\n";
        assert_eq!(end(usage, 2 << 8), "there is no x");
        assert_eq!(end("Illegal\ninstruction\n", 4), "Illegal instruction");
        assert_eq!(end("", 9), "its process ended by signal: 9 (SIGKILL)");
        assert_eq!(end(&"x".repeat(1000), 1 << 8).len(), WORDS_MAX);
    }

    /// However seldom it is looked whether the machine is to end.
    #[test]
    fn a_machine_that_ends_is_noticed_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        // What is added to the arguments is nothing to it.
        command.args(["-c", "echo hello; exit 3", "sh"]);
        let process =
            MachineProcess::start(&mut command, directory.path(), tempfile::tempfile().unwrap(), |_| {}).unwrap();
        while !process.has_ended(Duration::from_secs(3600)).unwrap() {}
        let end = process.until_it_ends(&mut || ControlFlow::Continue(())).unwrap().unwrap();
        assert_eq!((end.status.code(), end.failure().as_str()), (Some(3), "its process ended by exit status: 3"));
    }

    #[test]
    fn a_console_that_is_flooded_is_kept_as_far_as_there_is_room() {
        let log = tempfile::tempfile().unwrap();
        let flood = std::io::repeat(b'x').take(20 << 20);
        let mut heard = Vec::new();
        read(flood.chain(&b"\nthe end\n"[..]), log.try_clone().unwrap(), |line| heard.push(line.to_vec()));
        assert_eq!(heard, [vec![b'x'; LINE_BYTES_MAX], b"the end".to_vec()]);
        assert_eq!(log.metadata().unwrap().len(), LOG_BYTES_MAX as u64);
    }
}
