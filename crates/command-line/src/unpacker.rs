//! Compressed files as disks: a process of this program's own decompresses, and can do nothing else.

use blockyard_block::specification::Unpacking;
use blockyard_block::{Compression, OpenedFile, Unpacker, printable};
use blockyard_confinement::Confinement;
use rustix::pipe::fcntl_setpipe_size;
use rustix::stdio;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// The hidden command of this program that decompresses ([`decompress`]).
pub const COMMAND: &str = "decompress";

/// What a compressed file may become where nobody says another bound.
pub const BYTES_MAX: u64 = 1 << 40;

/// What is in the pipe between the two processes.
const PIPE_BYTES: usize = 1 << 20;

/// Bytes that are written into it at once.
const OUTPUT_BYTES: usize = 256 << 10;

/// Longest sentence that is read of why it failed.
const FAILURE_BYTES_MAX: u64 = 4096;

/// Compressed files are read, up to so many bytes of what is in them; images in them are unpacked in `scratch`.
pub fn unpacking(bytes_max: u64, scratch: &Path) -> Unpacking<'_> {
    Unpacking { start: &start, bytes_max, passes: 1, needs_length: true, scratch }
}

fn start(file: &OpenedFile, compression: Compression) -> io::Result<Unpacker> {
    let mut child = Command::new("/proc/self/exe")
        .args([COMMAND, compression.word()])
        .stdin(file.file().try_clone()?)
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
    let (output, failure) = (child.stdout.take(), child.stderr.take());
    let no_pipe = || io::Error::from(ErrorKind::BrokenPipe);
    let (output, failure) = (output.ok_or_else(no_pipe)?, failure.ok_or_else(no_pipe)?);
    Ok(Unpacker { bytes: Box::new(OfProcess { output: Box::new(output), failure: Box::new(failure), child }) })
}

/// What a process writes, which ends only where that ends well.
struct OfProcess {
    output: Box<dyn Read + Send>,
    failure: Box<dyn Read + Send>,
    child: Child,
}

impl Read for OfProcess {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let count = self.output.read(bytes)?;
        if count > 0 || bytes.is_empty() {
            return Ok(count);
        }
        let mut said = Vec::new();
        (&mut self.failure).take(FAILURE_BYTES_MAX).read_to_end(&mut said)?;
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

impl Drop for OfProcess {
    /// It ends as soon as it writes something that nobody reads.
    fn drop(&mut self) {
        (self.output, self.failure) = (Box::new(io::empty()), Box::new(io::empty()));
        // Where it has ended already, this says so at once.
        let _ = self.child.wait();
    }
}

/// Decompresses standard input to standard output, when it has given up all else.
///
/// # Errors
/// A sentence on the file, or what the system refused. That nobody reads any more is none.
pub fn decompress(compression: Compression) -> io::Result<()> {
    Confinement::default().enter().map_err(io::Error::other)?;
    let input = Input { file: File::from(stdio::stdin().try_clone_to_owned()?), at: 0 };
    let mut output = File::from(stdio::stdout().try_clone_to_owned()?);
    let (mut decoder, mut bytes) = (compression.decoder(input)?, vec![0; OUTPUT_BYTES]);
    loop {
        let count = match decoder.read(&mut bytes) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            read => read?,
        };
        match output.write_all(bytes.get(..count).unwrap_or_default()) {
            _ if count == 0 => return Ok(()),
            Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(()),
            written => written?,
        }
    }
}

/// A file from its beginning on, whatever its position: that is for whoever wants to know how much is read.
struct Input {
    file: File,
    at: u64,
}

impl Read for Input {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read_at(bytes, self.at)?;
        self.at += count as u64;
        self.file.seek(SeekFrom::Start(self.at))?;
        Ok(count)
    }
}
