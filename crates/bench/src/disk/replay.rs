//! Recorded requests, one a line: `read|write|flush|discard|zero OFFSET LENGTH`.
//!
//! Offsets and lengths are bytes, decimal or (with `0x`) hexadecimal. A flush needs neither. What follows a `#` and
//! empty lines mean nothing.

use super::steps::{Action, Step};
use std::io::{self, BufRead, Read};

/// Longest line, in bytes.
const LINE_BYTES_MAX: u64 = 1024;
/// Most requests of a replay.
pub const REPLAY_STEPS_MAX: usize = 1 << 24;

/// A request of a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplayStep {
    pub(crate) step: Step,
    /// Where the file says it, counted from 1.
    pub(crate) line: u32,
}

/// Why a file is no replay.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// It cannot be read.
    #[error(transparent)]
    Read(#[from] io::Error),
    /// A line is none of a replay.
    #[error("line {line}: {problem}")]
    Line {
        /// Counted from 1.
        line: u32,
        /// What is wrong with it.
        problem: String,
    },
    /// There is nothing to replay.
    #[error("there is no request in it: its lines are like `read 4096 512`")]
    Empty,
}

/// Reads a replay.
///
/// # Errors
/// [`ReplayError`]: the first line that is wrong, or what the reader says.
pub fn parse(mut text: impl BufRead) -> Result<Vec<ReplayStep>, ReplayError> {
    let mut steps = Vec::new();
    let mut bytes = Vec::new();
    for line in 1..=u32::MAX {
        bytes.clear();
        // Never more than a line in memory, however long the file's are.
        if text.by_ref().take(LINE_BYTES_MAX + 1).read_until(b'\n', &mut bytes)? == 0 {
            break;
        }
        let step = parse_line(&bytes).map_err(|problem| ReplayError::Line { line, problem })?;
        if let Some(step) = step {
            if steps.len() == REPLAY_STEPS_MAX {
                let problem = format!("a replay has {REPLAY_STEPS_MAX} requests at most");
                return Err(ReplayError::Line { line, problem });
            }
            steps.push(ReplayStep { step, line });
        }
    }
    if steps.is_empty() { Err(ReplayError::Empty) } else { Ok(steps) }
}

fn parse_line(bytes: &[u8]) -> Result<Option<Step>, String> {
    if bytes.len() as u64 > LINE_BYTES_MAX {
        return Err(format!("is longer than {LINE_BYTES_MAX} bytes"));
    }
    let line = str::from_utf8(bytes).map_err(|_| "is not text".to_owned())?;
    let mut words = line.split('#').next().unwrap_or_default().split_ascii_whitespace();
    let Some(operation) = words.next() else { return Ok(None) };
    let action = match operation {
        "read" => Action::Read,
        "write" => Action::Write,
        "flush" => Action::Flush,
        "discard" => Action::Discard,
        "zero" => Action::WriteZeroes,
        other => return Err(format!("{other:?} is not read, write, flush, discard or zero")),
    };
    let (offset, length, rest) = (words.next(), words.next(), words.next());
    if rest.is_some() {
        return Err("has words after the length".to_owned());
    }
    if action == Action::Flush {
        // Recorders write numbers there, too.
        for word in [offset, length].into_iter().flatten() {
            number(word)?;
        }
        return Ok(Some(Step { action, offset_bytes: 0, length_bytes: 0 }));
    }
    let offset_bytes = number(offset.ok_or("has no offset")?)?;
    let length_bytes = number(length.ok_or("has no length")?)?;
    if length_bytes == 0 {
        return Err("has a length of zero".to_owned());
    }
    Ok(Some(Step { action, offset_bytes, length_bytes }))
}

fn number(word: &str) -> Result<u64, String> {
    let parsed = match word.strip_prefix("0x") {
        // from_str_radix takes a sign.
        Some(digits) if !digits.starts_with('+') => u64::from_str_radix(digits, 16).ok(),
        None if !word.starts_with('+') => word.parse().ok(),
        _ => None,
    };
    parsed.ok_or_else(|| format!("{word:?} is not a number of bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Vec<(Action, u64, u64)> {
        let steps = parse(text.as_bytes()).unwrap();
        steps.iter().map(|one| (one.step.action, one.step.offset_bytes, one.step.length_bytes)).collect()
    }

    #[test]
    fn reads_every_operation() {
        let text = "# recorded\nread 0 512\r\n\n  write\t4096 0x1000 # a block\nflush\nflush 0 0\ndiscard 8192 512\nzero 0x200 512";
        let expected = [
            (Action::Read, 0, 512),
            (Action::Write, 4096, 4096),
            (Action::Flush, 0, 0),
            (Action::Flush, 0, 0),
            (Action::Discard, 8192, 512),
            (Action::WriteZeroes, 512, 512),
        ];
        assert_eq!(parsed(text), expected);
        let lines: Vec<u32> = parse(text.as_bytes()).unwrap().iter().map(|step| step.line).collect();
        assert_eq!(lines, [2, 4, 5, 6, 7, 8]);
    }

    #[test]
    fn says_which_line_is_wrong() {
        for (text, words) in [
            ("read 0 512\nreed 0 512\n", ["line 2", "reed"]),
            ("\nread 0\n", ["line 2", "no length"]),
            ("read", ["line 1", "no offset"]),
            ("read 0 0", ["line 1", "zero"]),
            ("read -1 512", ["line 1", "-1"]),
            ("read +1 512", ["line 1", "+1"]),
            ("read 0x+1 512", ["line 1", "+1"]),
            ("read 0 18446744073709551616", ["line 1", "18446744073709551616"]),
            ("read 0 512 9", ["line 1", "after the length"]),
            ("flush now", ["line 1", "now"]),
            (&format!("flush\nread {:2000}", 0), ["line 2", "longer than"]),
            ("# nothing\n", ["no request", "read 4096"]),
        ] {
            let message = parse(text.as_bytes()).unwrap_err().to_string();
            assert!(words.iter().all(|word| message.contains(word)), "{text:?}: {message}");
        }
        let not_text = parse(&b"read 0 512\n\xff\xfe"[..]).unwrap_err().to_string();
        assert_eq!(not_text, "line 2: is not text");
    }

    #[test]
    fn fuzz_any_file_is_a_replay_or_an_error_with_its_line() {
        blockyard_fuzz::check!(100_000).for_each(|text: &[u8]| match parse(text) {
            Ok(steps) => {
                assert!(steps.is_sorted_by(|one, next| one.line < next.line));
                for ReplayStep { step, line } in steps {
                    assert!(line as usize <= text.split(|&byte| byte == b'\n').count());
                    assert_eq!(step.length_bytes == 0, step.action == Action::Flush);
                }
            }
            Err(ReplayError::Line { line, problem }) => {
                assert!(line > 0 && !problem.is_empty() && problem.len() < 16 * LINE_BYTES_MAX as usize);
            }
            Err(ReplayError::Empty) => {}
            Err(ReplayError::Read(error)) => panic!("{error}"),
        });
    }
}
