//! What people and programs read: stdout and stderr. Everything that this command says goes through here, so that
//! nothing out of an image, of a client, or of somebody's file name commands the terminal.
//!
//! What is asked for as it is goes past it: the contents of files, archives, what a program of an image writes, and
//! names in listings when stdout is no terminal ([`crate::image::listing`]).

use anyhow::Result;
use blockyard_block::{misleads, printable_lines};
use blockyard_confinement::standard_output;
use rustix::stdio::dup2_stdout;
use serde::Serialize;
use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixDatagram;

/// Sees to it that nothing can be written to a stdout that was closed when this process was started: what is printed
/// there, nobody reads.
pub fn keep_closed() {
    // std takes it for success that a descriptor is none (EBADF), but not that a socket leads nowhere (ENOTCONN).
    if standard_output::was_closed()
        && let Ok(nowhere) = UnixDatagram::unbound()
    {
        // Without it, the text goes to /dev/null.
        let _ = dup2_stdout(&nowhere);
    }
}

/// Whoever was to have the output did not take it.
#[derive(Debug, thiserror::Error)]
#[error("cannot write the output: {}", because(.0))]
pub struct OutputError(pub io::Error);

fn because(error: &io::Error) -> String {
    // As `keep_closed` has it.
    if error.kind() == io::ErrorKind::NotConnected { "stdout is closed".to_owned() } else { error.to_string() }
}

impl OutputError {
    /// Whether a reader has gone, which needs no word: it had enough.
    pub fn is_unwanted(&self) -> bool {
        self.0.kind() == io::ErrorKind::BrokenPipe
    }
}

/// Prints a text and a newline on stdout.
///
/// # Errors
/// When stdout is closed or full: what was done is done, but nobody was told.
pub fn print(text: &str) -> Result<()> {
    Ok(writeln!(io::stdout(), "{}", printable_lines(text)).map_err(OutputError)?)
}

/// As [`print()`]; where stdout is no terminal, just as it is: whoever reads it gets the names that are in it.
///
/// # Errors
/// As there.
pub fn print_exactly(text: &str) -> Result<()> {
    if io::stdout().is_terminal() { print(text) } else { Ok(writeln!(io::stdout(), "{text}").map_err(OutputError)?) }
}

/// Says something on stderr, as this command.
pub fn say(text: &str) {
    tell(&format!("blockyard: {text}"));
}

/// Prints a text and a newline on stderr.
pub fn tell(text: &str) {
    // Nobody is there to be told that stderr is closed.
    let _ = writeln!(io::stderr(), "{}", printable_lines(text));
}

/// A value as JSON on one line, with every letter in it that would command a terminal as an escape: the value is the
/// same.
///
/// # Errors
/// When it cannot be said in JSON.
pub fn json(value: &impl Serialize) -> Result<String> {
    Ok(escaped(serde_json::to_string(value)?))
}

/// As [`json`], over several lines.
///
/// # Errors
/// As there.
pub fn json_pretty(value: &impl Serialize) -> Result<String> {
    Ok(escaped(serde_json::to_string_pretty(value)?))
}

/// Newlines are between the parts of the text: in strings, they are escapes already. So are all letters that mislead in
/// none but strings.
fn escaped(text: String) -> String {
    let is_bad = |letter: char| letter != '\n' && misleads(letter);
    if !text.contains(is_bad) {
        return text;
    }
    text.chars().fold(String::with_capacity(text.len() + 16), |mut safe, letter| {
        match is_bad(letter) {
            true => letter.encode_utf16(&mut [0; 2]).iter().for_each(|unit| _ = write!(safe, "\\u{unit:04x}")),
            false => safe.push(letter),
        }
        safe
    })
}

/// Sentences in lines of at most so many letters, broken between words.
pub fn filled(text: &str, columns: Option<usize>) -> String {
    let Some(columns) = columns else { return text.to_owned() };
    let lines = text.split('\n').map(|line| {
        line.split(' ').fold(String::new(), |filled, word| {
            let used = filled.rsplit('\n').next().map_or(0, |line| line.chars().count());
            let between = match used {
                0 => "",
                _ if used + 1 + word.chars().count() > columns => "\n",
                _ => " ",
            };
            filled + between + word
        })
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Columns of the terminal that stdout is; `None` for anything else.
pub fn output_columns() -> Option<usize> {
    columns(io::stdout())
}

/// Columns of the terminal that stderr is; `None` for anything else.
pub fn error_columns() -> Option<usize> {
    columns(io::stderr())
}

fn columns(stream: impl AsFd) -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(stream).ok()?;
    Some(size.ws_col.into()).filter(|&columns| columns > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_fit() {
        assert_eq!(filled("one two three\n\nfour", Some(8)), "one two\nthree\n\nfour");
        assert_eq!(filled("one two", None), "one two");
        assert_eq!(filled("longer-than that", Some(4)), "longer-than\nthat");
    }

    #[test]
    fn json_says_the_same_and_commands_nothing() {
        let names = ["\u{1b}]0;x\u{7}", "\u{9b}2J", "\u{7f}", "\u{202e}gpj", "a\u{e0041}\u{ad}", "größer\n"];
        for text in [json(&names).unwrap(), json_pretty(&names).unwrap()] {
            assert!(!text.contains(|letter: char| letter != '\n' && misleads(letter)), "{text:?}");
            assert!(text.contains("größer"));
            assert_eq!(serde_json::from_str::<Vec<String>>(&text).unwrap(), names);
        }
    }
}
