//! `blockyard image run`: a program of the image, in the image.

use super::file_commands::FileCommand;
use super::stdin::{self, Stdin};
use super::verdict::{EndsWith, Verdict};
use anyhow::{Context, Result};
use blockyard_appliance::{StreamSink, StreamSource};
use blockyard_devices::EventFd;
use blockyard_image::Access;
use blockyard_image::guest::records::RecordStream;
use blockyard_image::guest::{ENVIRONMENT, OpenImage, RecordTaker, errno};
use blockyard_protocol::appliance::{Execute, Operation, Record};
use clap::Args;
use rustix::io::Errno;
use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

/// Run a program of an image, in the image: in the appliance, as root, without a network.
///
/// It has our stdin, stdout and stderr, though no terminal, and its exit status is ours: 127 when there is no such program, 126 when it is none. /proc, /sys and /dev are there if the image has
/// the directories. Ctrl-C interrupts it. --timeout is for an appliance that gives no sign of life: a program may take as long as it likes.
#[derive(Args)]
pub struct Run {
    /// The program's stdin is empty, and ours is left to others: in a loop that reads it, say.
    #[arg(short = 'n', long)]
    no_stdin: bool,
    /// The program and its arguments.
    #[arg(value_name = "COMMAND", required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

impl FileCommand for Run {
    fn synopsis() -> Option<&'static str> {
        Some("<COMMAND> [ARGUMENT]...")
    }

    fn access(&self) -> Access {
        Access::Write
    }

    fn may_only_read(&self) -> bool {
        true
    }

    fn lives_on(&self) -> bool {
        true
    }

    fn run(&self, image: &mut OpenImage) -> Result<()> {
        let execute = Execute {
            arguments: self.command.iter().map(|word| word.as_bytes().to_vec()).collect(),
            environment: ENVIRONMENT.iter().map(|variable| variable.as_bytes().to_vec()).collect(),
        };
        let end = Arc::new(EventFd::new().context("making an event")?);
        if self.no_stdin || !stdin::is_ours() {
            end.ring();
        }
        let input = Stdin::until(Arc::clone(&end));
        let source = StreamSource::interactive(input).context("making a stream")?;
        let sink = StreamSink::new(Outputs { records: RecordStream::new(Printer::default()), end: Arc::clone(&end) })
            .context("making a stream")?;
        image.appliance.bind_source_stream(&source);
        image.appliance.bind_sink_stream(&sink);
        let done = image.appliance.call(Operation::Execute(execute));
        // Whoever waits for our stdin need not any more.
        end.ring();
        let printed = sink.finish();
        let given = source.finish();
        image.appliance.release();
        let done = done?;
        let status = done.failures.first().and_then(errno).map_or(1, status_of);
        image.told(&done.failures, done.failed).map_err(|error| EndsWith { status, error: error.into() })?;
        let program = done.program.unwrap_or_default();
        let (printer, _) = printed.context("cannot write the program's output")?.records.into_parts();
        given.context("cannot read the program's input")?;
        if program.out_of_memory || (program.status != 0 && printer.has_said_so) {
            image.tell_of_memory();
        }
        match (program.status, program.signal) {
            (0, 0) => Ok(()),
            // As shells have it.
            (0, signal) => Err(Verdict(128u8.saturating_add(u8::try_from(signal).unwrap_or(127))).into()),
            (status, _) => Err(Verdict(u8::try_from(status).unwrap_or(1)).into()),
        }
    }
}

/// What shells end with when a program cannot be executed: 127 when it is not there, 126 when it is no program.
fn status_of(errno: Errno) -> u8 {
    match errno {
        Errno::NOENT | Errno::NOTDIR => 127,
        Errno::ACCESS | Errno::NOEXEC | Errno::ISDIR | Errno::LOOP | Errno::LIBBAD => 126,
        _ => 1,
    }
}

/// What the program writes; when it has ended, nobody wants our stdin any more.
struct Outputs {
    records: RecordStream<Printer>,
    end: Arc<EventFd>,
}

impl Write for Outputs {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.records.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.end.ring();
        self.records.flush()
    }
}

/// Prints what the program writes.
#[derive(Default)]
struct Printer {
    /// The program has said that it lacks memory.
    has_said_so: bool,
    /// The last bytes on its standard error.
    last: Vec<u8>,
}

/// What programs say when they lack memory, but for the case of letters.
const LACKS_MEMORY: [&[u8]; 3] = [b"cannot allocate memory", b"out of memory", b"memory exhausted"];

impl Printer {
    fn listen(&mut self, said: &[u8]) {
        self.last.extend(said.to_ascii_lowercase());
        let says = |text: &&[u8]| self.last.windows(text.len()).any(|window| window == *text);
        self.has_said_so |= LACKS_MEMORY.iter().any(says);
        let kept = LACKS_MEMORY.iter().map(|text| text.len()).max().unwrap_or_default();
        self.last.drain(..self.last.len().saturating_sub(kept));
    }
}

impl RecordTaker for Printer {
    type Output = ();

    fn take(&mut self, record: Record) -> io::Result<()> {
        let Record::Output(output) = record else { return Ok(()) };
        if output.is_error {
            self.listen(&output.bytes);
            // Nobody is there to be told that stderr is closed.
            let _ = io::stderr().write_all(&output.bytes);
            return Ok(());
        }
        let mut stdout = io::stdout().lock();
        stdout.write_all(&output.bytes)?;
        stdout.flush()
    }

    fn finish(self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_lacks_memory_is_understood() {
        let heard = |pieces: &[&str]| {
            let mut printer = Printer::default();
            pieces.iter().for_each(|piece| printer.listen(piece.as_bytes()));
            printer.has_said_so
        };
        assert!(heard(&["sh: 3: Cannot fork: Cannot alloc", "ate me", "mory\n"]));
        assert!(heard(&["dd: Out of memory\n"]));
        assert!(!heard(&["dd: no space left on device\n", "memory\n"]));
    }
}
