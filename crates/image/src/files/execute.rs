//! Running a program of an image, in the image.

use crate::error::{Context, Error, Result};
use crate::guest::records::RecordStream;
use crate::guest::streams::Exchanged;
use crate::guest::{ENVIRONMENT, OpenImage, RecordTaker, errno};
use blockyard_protocol::appliance::{Execute, Operation, Record};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;

/// Whoever takes what a program writes, in a thread of its own.
pub trait ProgramOutput: Send + 'static {
    /// Takes bytes of its standard output.
    ///
    /// # Errors
    /// When it takes no more: the program is not told, and [`OpenImage::execute`] fails.
    fn output(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Takes bytes of its standard error.
    fn error(&mut self, bytes: &[u8]);
}

/// How a program ended.
#[derive(Debug)]
pub enum ProgramEnd {
    /// With this exit status.
    Exited(u32),
    /// By this signal.
    Signaled(u32),
    /// It was not executed.
    NotExecuted {
        /// What execve(2) said, if it was that.
        errno: Option<Errno>,
        /// Why.
        error: Error,
    },
}

impl OpenImage {
    /// Runs a program of the image, with its arguments, as root in the image, and waits for its end. It reads `input`;
    /// `ended` is called when it has ended, in any thread and maybe more than once, so that nobody waits for more
    /// input.
    ///
    /// It may take as long as it likes. The image must be mounted; it may be mounted for reading only.
    ///
    /// # Errors
    /// When the appliance is of no more use, when the input fails, or when the output takes no more.
    pub fn execute<A: AsRef<OsStr>>(
        &mut self,
        command: impl IntoIterator<Item = A>,
        input: impl Read + Send + 'static,
        output: impl ProgramOutput,
        ended: impl Fn() + Clone + Send + 'static,
    ) -> Result<ProgramEnd> {
        let execute = Execute {
            arguments: command.into_iter().map(|word| word.as_ref().as_bytes().to_vec()).collect(),
            environment: ENVIRONMENT.iter().map(|variable| variable.as_bytes().to_vec()).collect(),
        };
        let listener = Listener { output, has_said_so: false, last: Vec::new() };
        let outputs = Outputs { records: RecordStream::new(listener), ended: ended.clone() };
        let Exchanged { response, output, input } =
            self.exchange(Operation::Execute(execute), input, outputs, ended)?;
        if let Err(error) = self.told(&response.failures, response.failed) {
            return Ok(ProgramEnd::NotExecuted { errno: response.failures.first().and_then(errno), error });
        }
        let program = response.program.unwrap_or_default();
        let (listener, _) = output.context("cannot write the program's output")?.records.into_parts();
        input.context("cannot read the program's input")?;
        if program.out_of_memory || (program.status != 0 && listener.has_said_so) {
            self.tell_of_memory();
        }
        Ok(match (program.status, program.signal) {
            (0, signal @ 1..) => ProgramEnd::Signaled(signal),
            (status, _) => ProgramEnd::Exited(status),
        })
    }
}

/// What the program writes; when it has ended, nobody wants input any more.
struct Outputs<O, F> {
    records: RecordStream<Listener<O>>,
    ended: F,
}

impl<O: ProgramOutput, F: Fn()> Write for Outputs<O, F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.records.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        (self.ended)();
        self.records.flush()
    }
}

/// Listens to what the program complains about.
struct Listener<O> {
    output: O,
    /// The program has said that it lacks memory.
    has_said_so: bool,
    /// The last bytes on its standard error.
    last: Vec<u8>,
}

/// What programs say when they lack memory, but for the case of letters.
const LACKS_MEMORY: [&[u8]; 3] = [b"cannot allocate memory", b"out of memory", b"memory exhausted"];

impl<O> Listener<O> {
    fn listen(&mut self, said: &[u8]) {
        self.last.extend(said.to_ascii_lowercase());
        let says = |text: &&[u8]| self.last.windows(text.len()).any(|window| window == *text);
        self.has_said_so |= LACKS_MEMORY.iter().any(says);
        let kept = LACKS_MEMORY.iter().map(|text| text.len()).max().unwrap_or_default();
        self.last.drain(..self.last.len().saturating_sub(kept));
    }
}

impl<O: ProgramOutput> RecordTaker for Listener<O> {
    type Output = ();

    fn take(&mut self, record: Record) -> io::Result<()> {
        let Record::Output(output) = record else { return Ok(()) };
        if output.is_error {
            self.listen(&output.bytes);
            self.output.error(&output.bytes);
            return Ok(());
        }
        self.output.output(&output.bytes)
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
            let mut listener = Listener { output: (), has_said_so: false, last: Vec::new() };
            pieces.iter().for_each(|piece| listener.listen(piece.as_bytes()));
            listener.has_said_so
        };
        assert!(heard(&["sh: 3: Cannot fork: Cannot alloc", "ate me", "mory\n"]));
        assert!(heard(&["dd: Out of memory\n"]));
        assert!(!heard(&["dd: no space left on device\n", "memory\n"]));
    }
}
