//! What of a guest's words reaches a terminal.

use std::mem;

/// Lets through what shows something: text, colours, moves of the cursor, what is cleared and scrolled, modes, and the
/// two questions that programs ask to learn a terminal's size and kind. Leaves out what has the terminal do anything
/// else: set its title, the clipboard or its colours, print, load fonts, tell its title or its settings, change its
/// window. (ECMA-48; xterm's control sequences, by Thomas E. Dickey.)
#[derive(Debug, Default)]
pub struct TerminalFilter {
    state: State,
    /// A sequence that is not complete.
    sequence: Vec<u8>,
    /// Bytes of a letter that are still to come.
    letter_left: u8,
    /// The last byte that was let through.
    last: u8,
    /// Whether the terminal may not be as it was.
    is_touched: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Text,
    /// After ESC, with intermediate bytes.
    Escape,
    /// After ESC [.
    Control,
    /// In a string that commands the terminal, and whether its last byte was ESC.
    String { after_escape: bool },
    /// After the first byte of a letter that may be a control character.
    Latin,
}

const ESCAPE: u8 = 0x1b;
const BELL: u8 = 0x07;
/// Answered with whatever somebody has set.
const ENQUIRY: u8 = 0x05;
/// What follows is of the other character set, which may be of lines.
const SHIFT_OUT: u8 = 0x0e;
const CANCEL: u8 = 0x18;
const SUBSTITUTE: u8 = 0x1a;
/// The first byte of U+0080 to U+00BF, of which the first 32 are control characters.
const LATIN: u8 = 0xc2;
/// No sequence that shows something is as long.
const SEQUENCE_BYTES_MAX: usize = 64;

/// Digits of how often the last sign is to be shown again.
const REPEATED_DIGITS_MAX: usize = 4;
/// Modes of a terminal that a guest may switch, in their order: cursor keys, inverse screen, origin, wrapping,
/// repeating keys, blinking and visible cursor, the other screen in its ways, mouse, focus, bracketed paste, whole
/// frames.
const MODES: [&[u8]; 22] = [
    b"1", b"5", b"6", b"7", b"8", b"12", b"25", b"47", b"1000", b"1001", b"1002", b"1003", b"1004", b"1005", b"1006",
    b"1007", b"1015", b"1047", b"1048", b"1049", b"2004", b"2026",
];
/// Those that every terminal has: inserting, and what a line feed does.
const PLAIN_MODES: [&[u8]; 2] = [b"4", b"20"];
/// The ordinary screen, which takes nothing of the cursor; a soft reset; and, for terminals that know none, each of the
/// modes as it usually is, all lines for scrolling, the cursor's shape, the usual letters and no colours.
const AS_BEFORE: &[u8] = b"\x1b[?1047l\x1b[!p\x1b[4;20l\
    \x1b[?1;5;12;1000;1001;1002;1003;1004;1005;1006;1007;1015;2004;2026l\x1b[?7;8;25h\x1b>\x1b7\x1b[r\x1b8\
    \x1b[0 q\x1b(B\x0f\x1b[0m";

impl TerminalFilter {
    /// Leaves in `bytes`, what a guest said next, what may reach the terminal, which takes a line feed as it is: where
    /// a guest's kernel says nothing of the line's beginning, that is added.
    pub fn filter(&mut self, bytes: &mut Vec<u8>) {
        let all = mem::take(bytes);
        for byte in all {
            self.take(byte, bytes);
        }
    }

    /// What makes the terminal as it was, as far as the guest may have changed it.
    pub fn end(&self) -> &'static [u8] {
        if self.is_touched { AS_BEFORE } else { b"" }
    }

    fn take(&mut self, byte: u8, to: &mut Vec<u8>) {
        match (self.state, byte) {
            (State::Text, ESCAPE) => self.begin(State::Escape),
            (State::Text, _) => self.text(byte, to),
            (State::Latin, 0x80..=0x9f) => self.state = State::Text,
            (State::Latin, _) => {
                self.state = State::Text;
                if matches!(byte, 0xa0..=0xbf) {
                    self.put(&[LATIN, byte], to);
                } else {
                    self.take(byte, to);
                }
            }
            // What cancels a sequence, in any of them.
            (_, CANCEL | SUBSTITUTE) => self.state = State::Text,
            (State::String { after_escape: true }, b'\\') | (State::String { .. }, BELL) => self.state = State::Text,
            (State::String { .. }, _) => self.state = State::String { after_escape: byte == ESCAPE },
            (_, ESCAPE) => self.begin(State::Escape),
            (State::Escape, b'[') if self.sequence.is_empty() => self.begin(State::Control),
            // OSC, DCS, SOS, PM, APC.
            (State::Escape, b']' | b'P' | b'X' | b'^' | b'_') if self.sequence.is_empty() => {
                self.state = State::String { after_escape: false };
            }
            (State::Escape, 0x20..=0x2f) | (State::Control, 0x20..=0x3f) => self.sequence_byte(byte),
            (State::Escape, 0x30..=0x7e) => self.end_escape(byte, to),
            (State::Control, 0x40..=0x7e) => self.end_control(byte, to),
            // A control character in a sequence does what it does without.
            (_, 0..0x20) => self.text(byte, to),
            // Nothing that a sequence may have.
            _ => self.state = State::Text,
        }
    }

    fn begin(&mut self, state: State) {
        self.state = state;
        self.sequence.clear();
    }

    fn sequence_byte(&mut self, byte: u8) {
        self.sequence.push(byte);
        if self.sequence.len() > SEQUENCE_BYTES_MAX {
            self.state = State::Text;
        }
    }

    /// A byte outside of sequences. A terminal that knows no UTF-8 takes bytes of 0x80 to 0x9f for control characters,
    /// so they pass only where they are a letter's.
    fn text(&mut self, byte: u8, to: &mut Vec<u8>) {
        let continues = matches!(byte, 0x80..=0xbf) && self.letter_left > 0;
        self.letter_left = if continues { self.letter_left - 1 } else { 0 };
        match byte {
            ENQUIRY | 0x80..=0x9f if !continues => {}
            LATIN => self.state = State::Latin,
            SHIFT_OUT => {
                self.is_touched = true;
                self.put(&[byte], to);
            }
            b'\n' if self.last != b'\r' => self.put(b"\r\n", to),
            _ => {
                self.letter_left = match byte {
                    0xc3..=0xdf => 1,
                    0xe0..=0xef => 2,
                    0xf0..=0xf4 => 3,
                    _ => self.letter_left,
                };
                self.put(&[byte], to);
            }
        }
    }

    fn put(&mut self, bytes: &[u8], to: &mut Vec<u8>) {
        to.extend(bytes);
        self.last = bytes.last().copied().unwrap_or(self.last);
    }

    /// ESC, intermediates, and this final byte.
    fn end_escape(&mut self, last: u8, to: &mut Vec<u8>) {
        self.state = State::Text;
        let shows = match *self.sequence {
            // Cursor saved, restored and moved, tab stops, keypad modes, reset.
            [] => matches!(last, b'7' | b'8' | b'D' | b'E' | b'H' | b'M' | b'=' | b'>' | b'c'),
            // Character sets; UTF-8; a test pattern.
            [b'(' | b')' | b'*' | b'+'] => true,
            [b'%'] => last == b'G',
            [b'#'] => matches!(last, b'3'..=b'6' | b'8'),
            _ => false,
        };
        if shows {
            self.pass(&[ESCAPE], last, to);
        }
    }

    /// ESC [, parameters, intermediates, and this final byte.
    fn end_control(&mut self, last: u8, to: &mut Vec<u8>) {
        self.state = State::Text;
        let intermediates = self.sequence.iter().filter(|byte| (0x20..=0x2f).contains(*byte)).count();
        let is_plain = intermediates == 0 && !self.sequence.iter().any(|byte| matches!(byte, b'<'..=b'?'));
        let shows = match last {
            // The last sign again and again: no line is so long.
            b'b' => is_plain && self.sequence.len() <= REPEATED_DIGITS_MAX,
            b'@'..=b'M' | b'P' | b'S' | b'T' | b'X' | b'Z' | b'`'..=b'g' | b'r' | b's' | b'u' => is_plain,
            b'm' => is_plain,
            b'h' | b'l' => match self.sequence.strip_prefix(b"?") {
                Some(modes) => modes.split(|&byte| byte == b';').all(|mode| MODES.contains(&mode)),
                None => self.sequence.split(|&byte| byte == b';').all(|mode| PLAIN_MODES.contains(&mode)),
            },
            // Where the cursor is, and whether the terminal is well.
            b'n' => is_plain,
            // The cursor's shape.
            b'q' => self.sequence.last() == Some(&b' ') && intermediates == 1,
            // Soft reset.
            b'p' => self.sequence == b"!",
            _ => false,
        };
        if shows {
            self.pass(&[ESCAPE, b'['], last, to);
        }
    }

    fn pass(&mut self, begin: &[u8], last: u8, to: &mut Vec<u8>) {
        self.is_touched = true;
        to.extend(begin);
        to.extend(&self.sequence);
        self.put(&[last], to);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filtered(text: &[u8]) -> Vec<u8> {
        let mut bytes = text.to_vec();
        TerminalFilter::default().filter(&mut bytes);
        bytes
    }

    #[test]
    fn what_shows_something_passes() {
        for text in [
            "plain\r\n\ttext\x07\x08",
            "Grüße, 漢字 und 🦀, ¡«»!",
            "\x1b[1;31mred\x1b[0m \x1b[2J\x1b[10;20H\x1b[K\x1b[?25l\x1b[?1049h\x1b[5S\x1b7\x1b8\x1b(0lqk\x1b(B\x1b%G",
            "\x1b[6n\x1b[c\x1b[5 q\x1b[!p\x1b=\x1b>\x1b[38;2;1;2;3m\x1b[38:5:7m\x1b[4h\x1b[?1;25h",
        ] {
            assert_eq!(String::from_utf8(filtered(text.as_bytes())).unwrap(), text);
        }
    }

    #[test]
    fn a_line_feed_begins_a_line() {
        assert_eq!(filtered(b"kernel\nuser\r\n\n\xc2\xa7\n"), b"kernel\r\nuser\r\n\r\n\xc2\xa7\r\n");
        let (mut filter, mut first, mut second) = (TerminalFilter::default(), b"a\r".to_vec(), b"\nb".to_vec());
        filter.filter(&mut first);
        filter.filter(&mut second);
        assert_eq!([first, second].concat(), b"a\r\nb");
    }

    #[test]
    fn what_commands_the_terminal_is_left_out() {
        for text in [
            "\x1b]0;title\x07",
            "\x1b]52;c;cm0gLXJmIC8=\x1b\\",
            "\x1bP+q544e\x1b\\",
            "\x1b_payload\x1b\\",
            "\x1b^private\x1b\\",
            "\x1bXstring\x1b\\",
            "\x1b[21t",
            "\x1b[8;1;1t",
            "\x1b[5i",
            "\x1b[>q",
            "\x1b[?1$p",
            "\x1b[=c",
            "\x1b[1;1;2;2;3*y",
            "\x1bZ",
            "\x05",
            "\u{9b}21t".strip_suffix("21t").unwrap(),
            "\u{9d}",
            "\x1b]0;one\x1b]0;two\x07",
            "\x1b[1;2\x18",
            "\x1b[>4;1m",
            "\x1b[?9001h",
            "\x1b[?3;25h",
            "\x1b[2h",
            "\x1b%@",
            "\x1b[?4m",
            "\x1b[?1;3;4096S",
            "\x1b[?3s",
            "\x1b[?3r",
            "\x1b[?996n",
            "\x1b[?u",
            "\x1b[99999b",
        ] {
            assert_eq!(String::from_utf8_lossy(&filtered(format!("a{text}b").as_bytes())), "ab", "{text:?}");
        }
        assert_eq!(filtered(b"a\x9b21tb\x90\xc2\x9b\xc2"), b"a21tb");
        assert_eq!(filtered(&[b"\x1b[", &[b'1'; 100][..], b"m"].concat()), [&[b'1'; 35][..], b"m"].concat());
    }

    #[test]
    fn the_terminal_is_given_back_as_it_was_only_where_it_was_touched() {
        let mut filter = TerminalFilter::default();
        filter.filter(&mut b"text\x1b]0;title\x07".to_vec());
        assert_eq!(filter.end(), b"");
        filter.filter(&mut b"\x1b[?25".to_vec());
        assert_eq!(filter.end(), b"");
        filter.filter(&mut b"l".to_vec());
        assert_eq!(filter.end(), AS_BEFORE);
        let mut filter = TerminalFilter::default();
        filter.filter(&mut b"lqqk\x0e".to_vec());
        assert_eq!(filter.end(), AS_BEFORE);
    }

    /// What comes out is safe however it comes in, and filtering it again changes nothing.
    #[test]
    fn what_comes_out_needs_no_filter() {
        blockyard_fuzz::check!(3000).with_type::<(Vec<u8>, Vec<u8>)>().for_each(|(one, other)| {
            let (mut filter, mut first, mut second) = (TerminalFilter::default(), one.clone(), other.clone());
            filter.filter(&mut first);
            filter.filter(&mut second);
            let out = [first, second].concat();
            assert_eq!(out, filtered(&[&one[..], other].concat()));
            assert_eq!(filtered(&out), out);
        });
    }
}
