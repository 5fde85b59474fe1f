//! Scripts: lines of commands, up to the first that fails.

use crate::commands;
use crate::line::{self, LINE_BYTES_MAX, Request};
use crate::program::Program;
use crate::workbench::Workbench;
use anyhow::{Context, Result, anyhow, bail};
use blockyard_block::shown;
use blockyard_command_line::terminal;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

/// What stdin is called.
const STDIN: &str = "stdin";
/// Longest script.
const SCRIPT_BYTES_MAX: u64 = 16 << 20;

/// A script that was read, and whose lines make sense.
pub(crate) struct Script {
    name: String,
    text: Vec<u8>,
}

impl Script {
    /// Reads a script, and looks through it for mistakes.
    ///
    /// # Errors
    /// When it cannot be read, or with the first line that makes no sense.
    pub(crate) fn read(path: &Path, program: Program) -> Result<Self> {
        let name = shown(path).to_string();
        Self::read_from(File::open(path).with_context(|| name.clone())?, name, &program)
    }

    /// The same, of what stdin has up to its end.
    ///
    /// # Errors
    /// As [`Script::read`].
    pub(crate) fn read_stdin(program: Program) -> Result<Self> {
        Self::read_from(io::stdin(), STDIN.to_owned(), &program)
    }

    fn read_from(input: impl Read, name: String, program: &Program) -> Result<Self> {
        let mut text = Vec::new();
        input.take(SCRIPT_BYTES_MAX + 1).read_to_end(&mut text).with_context(|| name.clone())?;
        if text.len() as u64 > SCRIPT_BYTES_MAX {
            bail!("{name}: it is too long for a script");
        }
        let script = Self { name, text };
        for (number, line) in script.lines() {
            check(program, line).map_err(|error| at(&script.name, number, &error))?;
        }
        Ok(script)
    }

    /// With their numbers, from 1.
    fn lines(&self) -> impl Iterator<Item = (u64, &[u8])> {
        (1..).zip(self.text.split(|&byte| byte == b'\n'))
    }

    /// Runs it, and closes the images.
    ///
    /// # Errors
    /// With the line that failed, or when the images cannot be closed.
    pub(crate) fn run(&self, mut workbench: Workbench) -> Result<()> {
        let done = self.lines().try_for_each(|(number, line)| run_line(&mut workbench, &self.name, number, line));
        workbench.finish(done)
    }
}

/// Runs what comes from stdin, line by line: whoever writes them may wait for what one says before the next.
///
/// # Errors
/// As [`Script::run`].
pub(crate) fn run_stdin(mut workbench: Workbench) -> Result<()> {
    workbench.commands_come_from_stdin();
    let mut input = BufReader::new(io::stdin());
    let mut number = 0;
    let done = loop {
        let mut line = Vec::new();
        number += 1;
        match input.by_ref().take(LINE_BYTES_MAX as u64 + 2).read_until(b'\n', &mut line) {
            Ok(0) => break Ok(()),
            Ok(_) => {}
            Err(error) => break Err(anyhow!("cannot read stdin: {error}")),
        }
        if let Err(error) = run_line(&mut workbench, STDIN, number, &line) {
            break Err(error);
        }
        if workbench.is_over {
            break Ok(());
        }
    };
    workbench.finish(done)
}

fn run_line(workbench: &mut Workbench, name: &str, number: u64, text: &[u8]) -> Result<()> {
    if workbench.is_over {
        return Ok(());
    }
    let done = line::parse(text).map_err(anyhow::Error::from).and_then(|line| {
        let done = commands::perform_line(workbench, &line);
        // Whoever presses Ctrl-C wants the script to end.
        if !line.may_fail || workbench.signals.name().is_some() {
            return done;
        }
        say(name, number, done);
        Ok(())
    });
    done.map_err(|error| at(name, number, &error))
}

/// A failure that ends nothing.
fn say(name: &str, number: u64, done: Result<()>) {
    if let Err(error) = done {
        terminal::say(&format!("{:#} (the script goes on)", at(name, number, &error)));
    }
}

/// An error with its line. What is wrong with a script is no wrong usage of this program.
fn at(name: &str, number: u64, error: &anyhow::Error) -> anyhow::Error {
    anyhow!("{name}:{number}: {error:#}")
}

fn check(program: &Program, text: &[u8]) -> Result<()> {
    let line = line::parse(text)?;
    match line.request {
        Request::Command { words, .. } if !line.may_fail => commands::understand(program, &words).map(drop),
        _ => Ok(()),
    }
}
