//! Compressed files as disks: a process of this program's own decompresses, and can do nothing else.
//!
//! It reads a file that somebody else made, which can keep it busy for ever without anything coming out. So whoever
//! waits for it hears of signals that end the command, and of a time that is over; and it ends when nobody reads it,
//! and with the command, however that ends.

use crate::signals;
use blockyard_block::specification::Unpacking;
use blockyard_block::{Compression, EventFd, Unpacker, printable};
use blockyard_confinement::{Confinement, Inherited};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::pipe::fcntl_setpipe_size;
use rustix::process::{
    Pid, PidfdFlags, Resource, Rlimit, Signal, getppid, getrlimit, pidfd_open, set_parent_process_death_signal,
    setrlimit,
};
use rustix::stdio;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The hidden command of this program that decompresses ([`decompress`]).
pub const COMMAND: &str = "decompress";

/// What a compressed file may become where nobody says another bound.
pub const BYTES_MAX: u64 = 1 << 40;

/// What is in the pipe between the two processes.
const PIPE_BYTES: usize = 1 << 20;

/// Bytes that are written into it at once.
const OUTPUT_BYTES: usize = 256 << 10;

/// Longest sentence that is read of why it failed.
const FAILURE_BYTES_MAX: usize = 4096;

/// Memory that the process may have: a window of 128 MiB, what a decoder has besides, and this program.
const MEMORY_BYTES_MAX: u64 = 512 << 20;

/// How long it is waited for when nobody wants more of it.
const END_PATIENCE: Timespec = Timespec { tv_sec: 5, tv_nsec: 0 };

/// Compressed files are read, up to so many bytes of what is in them; images in them are unpacked in `scratch`.
pub fn unpacking(bytes_max: u64, scratch: &Path) -> Unpacking<'_> {
    Unpacking { start: &start, bytes_max, passes: 1, needs_length: true, scratch, patience: None }
}

fn start(input: &File, compression: Compression, patience: Option<Duration>) -> io::Result<Unpacker> {
    let mut child = Command::new("/proc/self/exe")
        .args([COMMAND, compression.word(), &std::process::id().to_string()])
        .env_clear()
        .current_dir("/")
        .stdin(input.try_clone()?)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // Ctrl-C is for the one who reads: this one ends when nobody does.
        .process_group(0)
        .spawn()
        .map_err(|error| {
            io::Error::new(error.kind(), format!("a process to decompress it cannot be started: {error}"))
        })?;
    if let Some(pipe) = &child.stdout {
        // Less will do.
        let _ = fcntl_setpipe_size(pipe, PIPE_BYTES);
    }
    let no_pipe = || io::Error::from(ErrorKind::BrokenPipe);
    let (output, failure) = (child.stdout.take(), child.stderr.take());
    let ends = pidfd_open(Pid::from_child(&child), PidfdFlags::empty())?;
    let process = OfProcess {
        output: Some(OwnedFd::from(output.ok_or_else(no_pipe)?).into()),
        failure: Some(OwnedFd::from(failure.ok_or_else(no_pipe)?).into()),
        child,
        ends,
        ending: signals::event(),
        patience,
    };
    Ok(Unpacker { bytes: Box::new(process) })
}

/// What a process writes, which ends only where that ends well.
struct OfProcess {
    /// `None`: nobody reads it any more.
    output: Option<File>,
    failure: Option<File>,
    child: Child,
    /// Readable when it has ended.
    ends: OwnedFd,
    /// Readable when the command is to end.
    ending: Option<Arc<EventFd>>,
    /// How long it may take until more comes.
    patience: Option<Duration>,
}

impl Read for OfProcess {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let (Some(output), Some(failure)) = (&self.output, &self.failure) else { return Ok(0) };
        self.wait_for(output)?;
        let (mut output, mut failure) = (output, failure);
        let count = output.read(bytes)?;
        if count > 0 || bytes.is_empty() {
            return Ok(count);
        }
        let mut said = Vec::new();
        while said.len() < FAILURE_BYTES_MAX {
            self.wait_for(&failure)?;
            let mut more = [0; 512];
            match failure.read(&mut more)? {
                0 => break,
                count => said.extend(more.get(..count).unwrap_or_default()),
            }
        }
        self.wait_for(&self.ends)?;
        let status = self.child.wait()?;
        if status.success() {
            return Ok(0);
        }
        let said = String::from_utf8_lossy(&said);
        Err(io::Error::other(match said.trim() {
            "" => format!("the process that decompresses it ended with {status}"),
            said => printable(said).to_string(),
        }))
    }
}

impl OfProcess {
    /// Waits until something is readable.
    fn wait_for(&self, descriptor: &impl AsFd) -> io::Result<()> {
        let since = Instant::now();
        loop {
            if let Some(signal) = signals::last() {
                return Err(io::Error::other(format!("stopped by {signal}")));
            }
            let left = match self.patience {
                Some(patience) => Some(patience.checked_sub(since.elapsed()).ok_or_else(|| too_long(patience))?),
                None => None,
            };
            let timeout = left.and_then(|left| Timespec::try_from(left).ok());
            let mut waited = vec![PollFd::new(descriptor, PollFlags::IN)];
            waited.extend(self.ending.iter().map(|ending| PollFd::new(&**ending, PollFlags::IN)));
            match poll(&mut waited, timeout.as_ref()) {
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
                Ok(_) if waited.first().is_some_and(|output| !output.revents().is_empty()) => return Ok(()),
                Ok(_) => {}
            }
        }
    }
}

fn too_long(patience: Duration) -> io::Error {
    io::Error::other(format!("nothing has come out of it for {} seconds", patience.as_secs_f64()))
}

impl Drop for OfProcess {
    fn drop(&mut self) {
        // One that is shut in may not. Then the other ends by itself, as nobody reads it.
        let _ = self.child.kill();
        (self.output, self.failure) = (None, None);
        // It ends with this process at the latest.
        let _ = poll(&mut [PollFd::new(&self.ends, PollFlags::IN)], Some(&END_PATIENCE));
        let _ = self.child.try_wait();
    }
}

/// Decompresses standard input to standard output, when it has given up all else; ends with the process `parent`, which
/// has started this one.
///
/// # Errors
/// A sentence on the file, or what the system refused. That nobody reads any more is none.
pub fn decompress(compression: Compression, parent: u32) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // It may have ended before.
    if getppid().is_none_or(|found| found.as_raw_nonzero().get().cast_unsigned() != parent) {
        return Ok(());
    }
    Inherited::take()?.close();
    for (resource, most) in [(Resource::As, MEMORY_BYTES_MAX), (Resource::Fsize, 0), (Resource::Core, 0)] {
        limit(resource, most)?;
    }
    let output = stdio::stdout().try_clone_to_owned()?;
    let input = Input { file: File::from(stdio::stdin().try_clone_to_owned()?), at: 0, output: output.try_clone()? };
    Confinement { filters: true, ..Confinement::default() }.enter().map_err(io::Error::other)?;
    let mut output = File::from(output);
    let (mut decoder, mut bytes) = (compression.decoder(input)?, vec![0; OUTPUT_BYTES]);
    loop {
        let count = match decoder.read(&mut bytes) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(()),
            read => read?,
        };
        match output.write_all(bytes.get(..count).unwrap_or_default()) {
            _ if count == 0 => return Ok(()),
            Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(()),
            written => written?,
        }
    }
}

/// From now on there is no more of it than `most`, or what there was if that is less.
fn limit(resource: Resource, most: u64) -> io::Result<()> {
    let Rlimit { current, maximum } = getrlimit(resource);
    let less = |limit: Option<u64>| Some(limit.map_or(most, |limit| limit.min(most)));
    Ok(setrlimit(resource, Rlimit { current: less(current), maximum: less(maximum) })?)
}

/// A file from its beginning on, whatever its position: that is for whoever wants to know how much is read. An error
/// where nobody reads what is made of it: a file can be read for ever without anything coming out.
struct Input {
    file: File,
    at: u64,
    output: OwnedFd,
}

impl Read for Input {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let mut output = [PollFd::new(&self.output, PollFlags::empty())];
        if poll(&mut output, Some(&Timespec::default()))? > 0 {
            return Err(ErrorKind::BrokenPipe.into());
        }
        let count = self.file.read_at(bytes, self.at)?;
        self.at += count as u64;
        self.file.seek(SeekFrom::Start(self.at))?;
        Ok(count)
    }
}
