//! What work on an image tells and asks: whoever sits at the terminal.

use crate::progress::{Line, Percents};
use crate::signals::EndSignals;
use crate::terminal;
use anyhow::{Context, Result, anyhow, bail};
use blockyard_image::{Error, Key, Progress, Watch};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use std::fs::File;
use std::io::{self, Read, Write};

/// What is kept of a line: not a byte is left elsewhere when a buffer grows.
const PASSPHRASE_BYTES_MAX: usize = 512;

/// Sentences go to stderr, passphrases come from the terminal, and signals end what is done.
pub struct AtTerminal {
    /// What ends it.
    signals: EndSignals,
    /// What the appliance's kernel says goes to stderr too.
    verbose: bool,
    /// Shows how far something has come.
    line: Option<Line>,
    /// Says it to a program.
    percents: Option<Percents>,
}

impl AtTerminal {
    /// With these signals; `verbose`: what the appliance's kernel says goes to stderr too.
    pub fn new(signals: EndSignals, verbose: bool) -> Self {
        Self { signals, verbose, line: None, percents: None }
    }

    /// From now on, signals are caught.
    ///
    /// # Errors
    /// When the system does not let us.
    pub fn catch() -> Result<Self> {
        Ok(Self::new(EndSignals::catch()?, false))
    }

    /// The same, with a bar on stderr if one is wanted and that is a terminal, and percentages on stdout for programs
    /// that read them there.
    ///
    /// # Errors
    /// As [`AtTerminal::catch`].
    pub fn watching(shows_progress: bool) -> Result<Self> {
        // Before anything is said, which somebody may answer by a signal.
        let caught = Self::catch()?;
        let line = shows_progress.then(Line::hidden);
        line.iter().for_each(Line::show);
        let percents = if shows_progress { Percents::begin() } else { None };
        Ok(Self { line, percents, ..caught })
    }

    /// All is done. Where this is not said, something has failed.
    pub fn done(mut self) {
        self.percents.take().into_iter().for_each(Percents::end);
    }
}

impl Watch for AtTerminal {
    fn note(&self, sentence: &str) {
        terminal::say(sentence);
    }

    fn ends(&self) -> Option<String> {
        self.signals.name()
    }

    fn progress(&self, progress: &Progress) {
        if let Some(line) = &self.line {
            line.set_bytes(progress.done_bytes, progress.length_bytes, progress.data_bytes);
        }
        if let Some(percents) = &self.percents {
            percents.set(progress.done_bytes, progress.length_bytes);
        }
    }

    fn can_ask(&self) -> bool {
        File::open("/dev/tty").is_ok()
    }

    fn passphrase(&self, question: &str) -> blockyard_image::Result<Option<Key>> {
        self.ask(question).map_err(Error::other)
    }

    fn console(&self) -> Option<Box<dyn Write + Send>> {
        self.verbose.then(|| Box::new(io::stderr()) as Box<dyn Write + Send>)
    }
}

impl AtTerminal {
    /// Asks at the terminal. `None` where there is none.
    ///
    /// # Errors
    /// When it fails, or somebody wants the end.
    fn ask(&self, question: &str) -> Result<Option<Key>> {
        let Ok(terminal) = File::options().read(true).write(true).open("/dev/tty") else { return Ok(None) };
        let silence = Silence::of(&terminal)?;
        let answer = self.answer(&terminal, question);
        drop(silence);
        // The end of the line that nobody saw.
        let _ = (&terminal).write_all(b"\n");
        Ok(Some(Key::typed(answer?)?))
    }

    /// A line.
    fn answer(&self, mut terminal: &File, question: &str) -> Result<Vec<u8>> {
        terminal.write_all(question.as_bytes()).context("asking for a passphrase")?;
        let mut line = Vec::with_capacity(PASSPHRASE_BYTES_MAX);
        let tick = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
        loop {
            if let Some(signal) = self.signals.name() {
                bail!("interrupted by {signal}");
            }
            if !matches!(poll(&mut [PollFd::new(terminal, PollFlags::IN)], Some(&tick)), Ok(1)) {
                continue;
            }
            let mut byte = [0];
            match terminal.read(&mut byte) {
                Ok(1) if byte[0] != b'\n' && line.len() < PASSPHRASE_BYTES_MAX => line.push(byte[0]),
                Ok(1) if byte[0] == b'\n' => return Ok(line),
                Ok(1) => bail!("a passphrase has at most {PASSPHRASE_BYTES_MAX} letters"),
                Ok(_) => bail!("nobody gave a passphrase"),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(anyhow!(error).context("reading a passphrase")),
            }
        }
    }
}

/// A terminal that does not show what is typed, until this is gone.
struct Silence<'terminal> {
    terminal: &'terminal File,
    before: Termios,
}

impl<'terminal> Silence<'terminal> {
    fn of(terminal: &'terminal File) -> Result<Self> {
        let before = tcgetattr(terminal).context("asking for a passphrase")?;
        let mut silent = before.clone();
        silent.local_modes.remove(LocalModes::ECHO);
        silent.local_modes.insert(LocalModes::ICANON | LocalModes::ISIG);
        tcsetattr(terminal, OptionalActions::Flush, &silent).context("asking for a passphrase")?;
        Ok(Self { terminal, before })
    }
}

impl Drop for Silence<'_> {
    fn drop(&mut self) {
        let _ = tcsetattr(self.terminal, OptionalActions::Flush, &self.before);
    }
}
