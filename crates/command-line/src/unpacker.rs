//! Compressed files as disks: a process of this program's own decompresses, and can do nothing else.
//!
//! It reads a file that somebody else made, which can keep it busy for ever without anything coming out. So whoever
//! waits for it hears of signals that end the command, and of a time that is over; and it ends when nobody reads it,
//! and with the command, however that ends.

mod decompressor;
mod starter;

use crate::signals;
use blockyard_block::specification::Unpacking;
use blockyard_block::{Compression, EventFd, StartUnpacker, Unpacker, printable};
pub use decompressor::decompress;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Signal, pidfd_send_signal};
pub use starter::start_decompressors;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The hidden command of this program that decompresses ([`decompress`]), or starts those that do
/// ([`start_decompressors`]).
pub const COMMAND: &str = "decompress";

/// What it starts others by.
pub const START: &str = "start";

/// What a compressed file may become where nobody says another bound.
pub const BYTES_MAX: u64 = 1 << 40;

/// What a process that has decompressed everything says in the end.
const DONE: &[u8] = b"\0";

/// Longest sentence that is read of why it failed.
const FAILURE_BYTES_MAX: usize = 4096;

/// How long it is waited for when nobody wants more of it.
const END_PATIENCE: Timespec = Timespec { tv_sec: 5, tv_nsec: 0 };

/// Compressed files are read, up to so many bytes of what is in them; images in them are unpacked in `scratch`, and
/// `progress` hears how much of the file that has taken, and how much there is.
pub fn unpacking<'a>(bytes_max: u64, scratch: &'a Path, progress: &'a dyn Fn(u64, u64)) -> Unpacking<'a> {
    Unpacking { starting, bytes_max, scratch, progress, patience: None }
}

fn starting(input: &File, compression: Compression, patience: Option<Duration>) -> io::Result<StartUnpacker> {
    starter::prepare()?;
    let input = input.try_clone()?;
    Ok(Box::new(move || {
        let Started { output, failure, ends } = starter::start(&input, compression)?;
        let process =
            OfProcess { output: Some(output), failure: Some(failure), ends, ending: signals::event(), patience };
        Ok(Unpacker { bytes: Box::new(process) })
    }))
}

/// A process that decompresses.
struct Started {
    output: File,
    /// Why it failed, or [`DONE`].
    failure: File,
    /// Readable when it has ended.
    ends: OwnedFd,
}

/// What a process writes, which ends only where that ends well.
struct OfProcess {
    /// `None`: nobody reads it any more.
    output: Option<File>,
    failure: Option<File>,
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
            match failure.read(&mut more) {
                Ok(0) => break,
                Ok(count) => said.extend(more.get(..count).unwrap_or_default()),
                // Who asks again would not get what was said so far.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        if said == DONE {
            return Ok(0);
        }
        let said = String::from_utf8_lossy(&said);
        Err(io::Error::other(match said.trim() {
            "" => "the process that decompresses it ended before its time".to_owned(),
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
        let _ = pidfd_send_signal(&self.ends, Signal::KILL);
        (self.output, self.failure) = (None, None);
        // It ends with this process at the latest.
        let _ = poll(&mut [PollFd::new(&self.ends, PollFlags::IN)], Some(&END_PATIENCE));
    }
}
