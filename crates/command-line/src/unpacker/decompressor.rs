//! The process that decompresses: it can do nothing else.

use super::DONE;
use blockyard_block::Compression;
use blockyard_confinement::{Confinement, Inherited};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Resource, Rlimit, Signal, getppid, getrlimit, set_parent_process_death_signal, setrlimit};
use rustix::stdio;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

/// Bytes that are written at once.
const OUTPUT_BYTES: usize = 256 << 10;

/// Memory that the process may have: a window of 128 MiB, what a decoder has besides, and this program.
const MEMORY_BYTES_MAX: u64 = 512 << 20;

/// Decompresses standard input to standard output, when it has given up all else; ends with the process `parent`, which
/// has started this one.
///
/// # Errors
/// A sentence on the file, or what the system refused. That nobody reads any more is none.
pub fn decompress(compression: Compression, parent: u32) -> io::Result<()> {
    if !ends_with(parent)? {
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
            Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(()),
            read => read?,
        };
        match output.write_all(bytes.get(..count).unwrap_or_default()) {
            _ if count == 0 => return io::stderr().write_all(DONE),
            Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(()),
            written => written?,
        }
    }
}

/// This process ends with its parent, which is this one; false where that has ended before.
pub(super) fn ends_with(parent: u32) -> io::Result<bool> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    Ok(getppid().is_some_and(|found| found.as_raw_nonzero().get().cast_unsigned() == parent))
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
    /// No decoder hears of a signal: what is lost of one that stops in the middle differs from one to the next.
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.read_once(bytes) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                read => return read,
            }
        }
    }
}

impl Input {
    fn read_once(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
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
