//! Trees of the host's files as streams: an archive that is made while it is read, and one that is unpacked while it is
//! written.

use crate::error::{Context, Error, Result};
use blockyard_archive::{Source, UnpackOptions, pack, unpack};
use blockyard_block::printable;
use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::os::fd::AsFd;
use std::thread::{self, JoinHandle};

/// What packer and reader have between them.
const BUFFER_BYTES: usize = 256 << 10;
/// Failures that are told one by one.
const REPORTED: usize = 16;

/// An archive of the host's files, made as it is read. It fails where the packing did.
pub(super) struct PackedTree {
    pipe: io::PipeReader,
    packer: Option<JoinHandle<io::Result<Vec<String>>>>,
    left_out: Vec<String>,
}

impl PackedTree {
    /// Starts to pack.
    ///
    /// # Errors
    /// When the system refuses a pipe or a thread.
    pub(super) fn new(sources: Vec<Source>) -> io::Result<Self> {
        let (pipe, output) = wide_pipe()?;
        let packer = thread::Builder::new().name("packer".into()).spawn(move || {
            let mut left_out = Vec::new();
            let output = BufWriter::with_capacity(BUFFER_BYTES, output);
            let report = &mut |path: &std::path::Path, what: &str, error: io::Error| {
                if left_out.len() < REPORTED {
                    left_out.push(format!("{}: {what}: {error}", printable(&path.to_string_lossy())));
                }
            };
            pack(&sources, output, report)?.flush()?;
            Ok(left_out)
        })?;
        Ok(Self { pipe, packer: Some(packer), left_out: Vec::new() })
    }
}

impl Read for PackedTree {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let bytes = self.pipe.read(into)?;
        if bytes == 0
            && let Some(packer) = self.packer.take()
        {
            self.left_out = packer.join().unwrap_or_else(|_| Err(io::Error::other("the packer panicked")))?;
        }
        match self.left_out.first() {
            Some(first) if bytes == 0 => Err(io::Error::other(first.clone())),
            _ => Ok(bytes),
        }
    }
}

/// A pipe that holds as much as an ordinary user's may.
fn wide_pipe() -> io::Result<(io::PipeReader, io::PipeWriter)> {
    let (reader, writer) = io::pipe()?;
    // The usual size works too.
    let _ = rustix::pipe::fcntl_setpipe_size(&writer, 1 << 20);
    Ok((reader, writer))
}

/// Somebody who unpacks an archive as it is written to the pipe of [`Unpacking::start`].
pub(super) struct Unpacking {
    unpacker: JoinHandle<(io::Result<u64>, Vec<String>)>,
}

impl Unpacking {
    /// Starts to unpack into `directory`; the archive goes into what comes back with it. `durable`: what was unpacked
    /// is on stable storage when that is finished.
    ///
    /// # Errors
    /// When the system refuses a pipe or a thread.
    pub(super) fn start(directory: File, options: UnpackOptions, durable: bool) -> io::Result<(Self, io::PipeWriter)> {
        let (input, output) = wide_pipe()?;
        let unpacker = thread::Builder::new().name("unpacker".into()).spawn(move || {
            let (mut left_out, mut count) = (Vec::new(), 0u64);
            let mut report = |path: &std::path::Path, what: &str, error: io::Error| {
                count += 1;
                if left_out.len() < REPORTED {
                    let path = printable(&path.to_string_lossy());
                    left_out.push(format!("{path}: {what}: {error}"));
                }
            };
            let mut input = io::BufReader::with_capacity(BUFFER_BYTES, input);
            let unpacked = unpack(&mut input, directory.as_fd(), &options, &mut report);
            // An archive may be followed by zeros; whoever writes them is not to be told that nobody reads.
            let drained = if unpacked.is_ok() { io::copy(&mut input, &mut io::sink()) } else { Ok(0) };
            // One call for all of them: to sync each would take longer than to unpack it.
            let synced = if durable { rustix::fs::syncfs(&directory).map_err(io::Error::from) } else { Ok(()) };
            if count > left_out.len() as u64 {
                left_out.push(format!("{} more files could not be unpacked", count - left_out.len() as u64));
            }
            (unpacked.and_then(|bytes| drained.and(synced).map(|()| bytes)), left_out)
        })?;
        Ok((Self { unpacker }, output))
    }

    /// Waits until all that was written is unpacked; the writer must be gone.
    ///
    /// # Errors
    /// When it could not be, in whole or in part.
    pub(super) fn finish(self) -> Result<u64> {
        let (unpacked, left_out) = self.unpacker.join().map_err(|_| Error::refused("the unpacker panicked"))?;
        // An archive's errors may quote it.
        let harmless = |error: io::Error| io::Error::new(error.kind(), printable(&error.to_string()));
        let bytes = unpacked.map_err(harmless).context("cannot unpack what the appliance sent")?;
        if left_out.is_empty() { Ok(bytes) } else { Err(Error::Refused(left_out.join("\nblockyard: "))) }
    }
}
