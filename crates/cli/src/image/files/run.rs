//! `blockyard image run`: a program of the image, in the image.

use anyhow::{Context, Result};
use blockyard_block::EventFd;
use blockyard_command_line::image::file_command::FileCommand;
use blockyard_command_line::stdin::{self, Stdin};
use blockyard_command_line::verdict::{EndsWith, Verdict};
use blockyard_image::Access;
use blockyard_image::files::ProgramEnd;
use blockyard_image::files::execute::ProgramOutput;
use blockyard_image::guest::OpenImage;
use clap::Args;
use rustix::io::Errno;
use std::ffi::OsString;
use std::io::{self, Write};
use std::sync::Arc;

/// Run a program of an image, in the image: in the appliance, as root, without a network.
///
/// It has our stdin, stdout and stderr, though no terminal, and its exit status is ours: 127 when there is no such
/// program, 126 when it is none. /proc, /sys and /dev are there if the image has the directories. Ctrl-C interrupts it.
/// --timeout is for an appliance that gives no sign of life: a program may take as long as it likes.
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
        let end = Arc::new(EventFd::new().context("making an event")?);
        if self.no_stdin || !stdin::is_ours() {
            end.ring();
        }
        let input = Stdin::until(Arc::clone(&end));
        // Whoever waits for our stdin need not any more.
        let ended = image.execute(&self.command, input, Printer, move || end.ring())?;
        match ended {
            ProgramEnd::Exited(0) => Ok(()),
            ProgramEnd::Exited(status) => Err(Verdict(u8::try_from(status).unwrap_or(1)).into()),
            ProgramEnd::Signaled(signal) => Err(Verdict::of_signal(signal).into()),
            ProgramEnd::NotExecuted { errno, error } => {
                Err(EndsWith { status: errno.map_or(1, status_of), error: error.into() }.into())
            }
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

/// Prints what the program writes.
struct Printer;

impl ProgramOutput for Printer {
    fn output(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut stdout = io::stdout().lock();
        stdout.write_all(bytes)?;
        stdout.flush()
    }

    fn error(&mut self, bytes: &[u8]) {
        // Nobody is there to be told that stderr is closed.
        let _ = io::stderr().write_all(bytes);
    }
}
