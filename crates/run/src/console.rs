//! The guest's console, on this process's stdin and stdout.
//!
//! Where stdin is a terminal it is in raw mode while the machine runs, so that each key is the guest's; Ctrl-A x
//! leaves, and Ctrl-A twice is one Ctrl-A for the guest. Where stdout is a terminal, what would command it to do more
//! than show something is left out ([`TerminalFilter`]). Neither a reader that does not read nor a guest that floods
//! the console takes more than a bounded buffer; a guest that says more than is read waits.

mod escape;
mod input;
mod output;
mod raw_mode;
mod terminal_filter;

pub use input::InputQueue;
pub use output::ConsoleOutput;
pub use terminal_filter::TerminalFilter;

use anyhow::{Context, Result, anyhow};
use blockyard_confinement::MachineThread;
use raw_mode::RawMode;
use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::thread;

/// What somebody at the console, or its end, asks for.
#[derive(Debug)]
pub enum ConsoleEvent {
    /// Ctrl-A x.
    Leave,
    /// Nobody takes what the guest says.
    Unheard(io::Error),
    /// Nothing that is typed can be read.
    Deaf(io::Error),
}

impl ConsoleEvent {
    /// What it is to the machine, which ends.
    ///
    /// # Errors
    /// When nobody wants that: a sentence.
    pub(crate) fn ends(self) -> Result<()> {
        match self {
            Self::Leave => Ok(()),
            Self::Unheard(error) => Err(anyhow!(error).context("cannot write the guest's console")),
            Self::Deaf(error) => Err(anyhow!(error).context("cannot read what is typed")),
        }
    }
}

/// The console while a machine runs, and the next one after a reboot. Dropping it gives the terminal back.
pub struct Console {
    output: ConsoleOutput,
    input: Arc<InputQueue>,
    raw_mode: Option<RawMode>,
}

impl Console {
    /// Takes stdin and stdout. `tell` hears what is asked for, from threads of the console's, each of which calls
    /// `begin` first.
    ///
    /// # Errors
    /// When the terminal cannot be had, or a thread.
    pub fn open(
        begin: impl Fn(MachineThread) -> io::Result<()> + Send + Sync + 'static,
        tell: impl Fn(ConsoleEvent) + Send + Sync + 'static,
    ) -> Result<Self> {
        let tell = Arc::new(tell);
        let raw_mode = match io::stdin().is_terminal() {
            true => Some(RawMode::enter().context("cannot put the terminal into raw mode")?),
            false => None,
        };
        let begin = Arc::new(begin);
        let (begins, unheard) = (Arc::clone(&begin), Arc::clone(&tell));
        let output = ConsoleOutput::start(
            io::stdout().is_terminal(),
            move || begins(MachineThread::ConsoleOutput),
            move |error| unheard(ConsoleEvent::Unheard(error)),
        )
        .context("starting the console's threads")?;
        let input = Arc::new(InputQueue::default());
        let has_keys = raw_mode.is_some();
        let read = Arc::clone(&input);
        let typed = move || match begin(MachineThread::ConsoleInput) {
            Ok(()) => input::read(&read, has_keys, || tell(ConsoleEvent::Leave)),
            Err(error) => tell(ConsoleEvent::Deaf(error)),
        };
        // Nobody waits for it: it may wait for a key until the process ends.
        thread::Builder::new().name("console-in".to_owned()).spawn(typed).context("starting the console's threads")?;
        Ok(Self { output, input, raw_mode })
    }

    /// Where the guest's words go.
    pub fn output(&self) -> ConsoleOutput {
        self.output.clone()
    }

    /// What is typed.
    pub fn input(&self) -> &Arc<InputQueue> {
        &self.input
    }

    /// Ends what runs, with `end`, whether or not somebody reads what it still says.
    pub fn without_waiting(&self, end: impl FnOnce()) {
        self.output.set_waits(false);
        end();
        self.output.set_waits(true);
    }

    /// Shows what the guest has said so far, as far as somebody reads it, and gives the terminal back. From now on the
    /// guest says nothing to anybody.
    pub fn close(&mut self) {
        self.input.close();
        self.output.finish();
        // The terminal's answers to what the guest has asked it are for nobody.
        drop(self.raw_mode.take());
    }
}

impl Drop for Console {
    fn drop(&mut self) {
        self.close();
    }
}
