//! Lines of text out of a guest's bytes.

use std::fmt::Write;

/// Collects what a guest writes into lines that are safe to print: bounded, and without anything that a terminal would
/// obey. Printable ASCII and tabs stay, every other byte becomes `\xNN`; a line ends at `\n` or `\r\n`.
#[derive(Debug)]
pub struct LineBuffer {
    line: String,
    length_max: usize,
    carriage_return: bool,
}

impl LineBuffer {
    /// What most uses want as the longest line, in bytes.
    pub const LENGTH_MAX: usize = 4096;
    /// The longest that one byte becomes.
    const ESCAPE_LENGTH: usize = 4;

    /// A buffer for lines of at most `length_max` printed bytes (at least 4); a longer one is broken in two.
    pub fn new(length_max: usize) -> Self {
        let length_max = length_max.max(Self::ESCAPE_LENGTH);
        Self { line: String::with_capacity(length_max), length_max, carriage_return: false }
    }

    /// Takes `bytes` and calls `emit` with each line that is complete, without its end.
    pub fn push(&mut self, bytes: &[u8], mut emit: impl FnMut(&str)) {
        for &byte in bytes {
            if byte == b'\n' {
                self.carriage_return = false;
                self.end_line(&mut emit);
                continue;
            }
            // A carriage return is held back until it is known not to end a line.
            if std::mem::replace(&mut self.carriage_return, byte == b'\r') {
                self.append(b'\r', &mut emit);
            }
            if byte != b'\r' {
                self.append(byte, &mut emit);
            }
        }
    }

    /// Emits what there is of a line that did not end.
    pub fn finish(&mut self, mut emit: impl FnMut(&str)) {
        if std::mem::take(&mut self.carriage_return) {
            self.append(b'\r', &mut emit);
        }
        if !self.line.is_empty() {
            self.end_line(&mut emit);
        }
    }

    fn append(&mut self, byte: u8, emit: &mut impl FnMut(&str)) {
        let printable = matches!(byte, b' '..=b'~' | b'\t');
        let length = if printable { 1 } else { Self::ESCAPE_LENGTH };
        if self.line.len() + length > self.length_max {
            self.end_line(emit);
        }
        if printable {
            self.line.push(char::from(byte));
        } else {
            // Writing to a String does not fail.
            let _ = write!(self.line, "\\x{byte:02x}");
        }
    }

    fn end_line(&mut self, emit: &mut impl FnMut(&str)) {
        emit(&self.line);
        self.line.clear();
    }
}

impl Default for LineBuffer {
    fn default() -> Self {
        Self::new(Self::LENGTH_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(length_max: usize, chunks: &[&[u8]]) -> Vec<String> {
        let mut buffer = LineBuffer::new(length_max);
        let mut lines = Vec::new();
        for chunk in chunks {
            buffer.push(chunk, |line| lines.push(line.to_owned()));
        }
        buffer.finish(|line| lines.push(line.to_owned()));
        lines
    }

    #[test]
    fn lines_end_where_the_guest_ends_them() {
        assert_eq!(lines(80, &[b"one\ntw", b"o\r", b"\n\nthree"]), ["one", "two", "", "three"]);
    }

    #[test]
    fn nothing_reaches_the_terminal_that_it_would_obey() {
        assert_eq!(
            lines(80, &[b"\x1b[2Jred\x07\r!\xc3\xa9\x7f\tx\n"]),
            [r"\x1b[2Jred\x07\x0d!\xc3\xa9\x7f".to_owned() + "\tx"]
        );
        assert_eq!(lines(80, &[b"\r\r\n\r"]), [r"\x0d", r"\x0d"]);
    }

    #[test]
    fn a_line_without_end_is_broken() {
        assert_eq!(lines(4, &[b"abcdef\x00gh\n"]), ["abcd", "ef", r"\x00", "gh"]);
        let long = vec![b'x'; 10_000];
        assert!(lines(LineBuffer::LENGTH_MAX, &[&long]).iter().all(|line| line.len() <= LineBuffer::LENGTH_MAX));
    }
}
