//! A line of a script or of the shell, quoted as guestfish has it (guestfish(1), "QUOTING").
//!
//! Words are divided by blanks. A word in double quotes may hold blanks and the escapes of C (`\n`, `\x41`, `\101`,
//! `\"`); in single quotes everything is itself; without quotes too, so a backslash stays, and what the word is for
//! decides what it means.
//!
//! | line begins with | means |
//! |---|---|
//! | `#` | a comment |
//! | `!` | the rest is for the host's shell |
//! | `-` | the command may fail |
//! | anything else | a command; after a word that is `\|`, the rest is for the host's shell, which gets the command's output |

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

/// Longest line, which no honest script has.
pub(crate) const LINE_BYTES_MAX: usize = 1 << 20;

/// What a line says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    /// What it asks for may fail.
    pub may_fail: bool,
    /// What it asks for.
    pub request: Request,
}

/// What a line asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// Nothing: it is empty, or a comment.
    Nothing,
    /// A command of the host's shell.
    Host(OsString),
    /// A command of ours.
    Command {
        /// Its words, of which there is at least one.
        words: Vec<OsString>,
        /// A command of the host's shell that gets the output.
        pipe: Option<OsString>,
    },
}

/// Why a line is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LineError {
    #[error("a quote is not closed")]
    Unclosed,
    #[error("a word goes on behind its closing quote: put a blank there")]
    GoesOn,
    #[error(
        "a backslash in double quotes has one of a b f n r t v \" \\ behind it, three octal digits, or x and two hexadecimal ones"
    )]
    Escape,
    #[error("a NUL can be in no word")]
    Nul,
    #[error("the line is too long")]
    TooLong,
    #[error("there is no command in front of |")]
    NoCommand,
}

/// Reads a line, without its end.
///
/// # Errors
/// When it is not well formed.
pub(crate) fn parse(line: &[u8]) -> Result<Line, LineError> {
    if line.len() > LINE_BYTES_MAX {
        return Err(LineError::TooLong);
    }
    let (may_fail, mut rest) = may_fail(line);
    let mut words = Vec::new();
    let request = loop {
        match next(rest, words.is_empty()) {
            Next::Nothing | Next::Comment if words.is_empty() => break Request::Nothing,
            Next::Nothing | Next::Comment => break Request::Command { words, pipe: None },
            Next::Host(command) => break Request::Host(OsString::from_vec(command.to_vec())),
            Next::Pipe(_) if words.is_empty() => return Err(LineError::NoCommand),
            Next::Pipe(command) => {
                break Request::Command { words, pipe: Some(OsString::from_vec(trim(command).to_vec())) };
            }
            Next::Word(text) => {
                let (word, behind) = checked_word(text)?;
                words.push(word);
                rest = behind;
            }
        }
    };
    Ok(Line { may_fail, request })
}

/// What is at the end of a line that is not complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Nothing that can go on: a comment, or a word that is closed.
    Nothing,
    /// A word of a command of ours.
    Word {
        /// The words in front of it.
        before: Vec<OsString>,
        /// Where it begins, with its quote.
        begin: usize,
        /// The quote that is open.
        quote: Option<char>,
    },
    /// A command of the host's shell.
    Host {
        /// Where it begins.
        begin: usize,
    },
}

/// What is at the end of a line, by the rules that it is executed by.
///
/// # Errors
/// When what is in front of that is not well formed.
pub(crate) fn end(line: &[u8]) -> Result<End, LineError> {
    let (_, mut rest) = may_fail(line);
    let mut before = Vec::new();
    let begin = |text: &[u8]| line.len() - text.len();
    loop {
        let text = match next(rest, before.is_empty()) {
            Next::Nothing => return Ok(End::Word { before, begin: line.len(), quote: None }),
            Next::Comment => return Ok(End::Nothing),
            Next::Host(command) | Next::Pipe(command) => return Ok(End::Host { begin: begin(command) }),
            Next::Word(text) => text,
        };
        let quote = Some(char::from(text[0])).filter(|letter| "\"'".contains(*letter));
        match checked_word(text) {
            Ok((_, [])) if quote.is_some() => return Ok(End::Nothing),
            Ok((_, [])) => return Ok(End::Word { before, begin: begin(text), quote: None }),
            Ok((word, behind)) => {
                before.push(word);
                rest = behind;
            }
            Err(LineError::Unclosed) => return Ok(End::Word { before, begin: begin(text), quote }),
            Err(error) => return Err(error),
        }
    }
}

/// Whether what a line asks for may fail, and the line without what says so.
fn may_fail(line: &[u8]) -> (bool, &[u8]) {
    let (mut rest, mut may_fail) = (trim(line), false);
    while let [b'-', behind @ ..] = rest {
        (rest, may_fail) = (trim(behind), true);
    }
    (may_fail, rest)
}

/// What a rest of a line begins with.
enum Next<'a> {
    Nothing,
    Comment,
    /// The host's shell has what is behind.
    Host(&'a [u8]),
    /// The host's shell has what is behind, and gets the output.
    Pipe(&'a [u8]),
    /// A word of ours, and what is behind.
    Word(&'a [u8]),
}

/// Whose a rest of a line is: the only place that says so.
fn next(rest: &[u8], is_first: bool) -> Next<'_> {
    match trim(rest) {
        [] => Next::Nothing,
        [b'#', ..] if is_first => Next::Comment,
        [b'!', command @ ..] if is_first => Next::Host(command),
        [b'|', command @ ..] => Next::Pipe(command),
        text => Next::Word(text),
    }
}

fn checked_word(text: &[u8]) -> Result<(OsString, &[u8]), LineError> {
    match next_word(text)? {
        (word, _) if word.contains(&0) => Err(LineError::Nul),
        (word, behind) => Ok((OsString::from_vec(word), behind)),
    }
}

/// The word that `text` begins with, as it is meant, and what is behind it.
fn next_word(text: &[u8]) -> Result<(Vec<u8>, &[u8]), LineError> {
    let (word, behind) = match text {
        [b'"', rest @ ..] => double_quoted(rest)?,
        [b'\'', rest @ ..] => {
            let end = rest.iter().position(|&byte| byte == b'\'').ok_or(LineError::Unclosed)?;
            (rest[..end].to_vec(), &rest[end + 1..])
        }
        _ => {
            let end = text.iter().position(|&byte| is_blank(byte)).unwrap_or(text.len());
            (text[..end].to_vec(), &text[end..])
        }
    };
    match behind.first() {
        Some(&byte) if !is_blank(byte) => Err(LineError::GoesOn),
        _ => Ok((word, behind)),
    }
}

/// What is before the closing quote, and what is behind it.
fn double_quoted(mut text: &[u8]) -> Result<(Vec<u8>, &[u8]), LineError> {
    let mut word = Vec::new();
    loop {
        match text {
            [] => return Err(LineError::Unclosed),
            [b'"', behind @ ..] => return Ok((word, behind)),
            [b'\\', escaped @ ..] => {
                let (byte, length) = escape(escaped)?;
                word.push(byte);
                text = &escaped[length..];
            }
            [byte, behind @ ..] => {
                word.push(*byte);
                text = behind;
            }
        }
    }
}

/// The byte that is meant by what is behind a backslash, and how long that is.
fn escape(text: &[u8]) -> Result<(u8, usize), LineError> {
    let byte = match *text {
        [b'a', ..] => 7,
        [b'b', ..] => 8,
        [b'f', ..] => 12,
        [b'n', ..] => b'\n',
        [b'r', ..] => b'\r',
        [b't', ..] => b'\t',
        [b'v', ..] => 11,
        [byte @ (b'"' | b'\\' | b'\''), ..] => byte,
        [b'x', high, low, ..] => return number(&[high, low], 16).map(|byte| (byte, 3)),
        [a @ b'0'..=b'7', b, c, ..] => return number(&[a, b, c], 8).map(|byte| (byte, 3)),
        _ => return Err(LineError::Escape),
    };
    Ok((byte, 1))
}

fn number(digits: &[u8], radix: u32) -> Result<u8, LineError> {
    let digit = |&byte: &u8| char::from(byte).to_digit(radix);
    let value = digits.iter().try_fold(0, |value, byte| digit(byte).map(|digit| value * radix + digit));
    value.and_then(|value| u8::try_from(value).ok()).ok_or(LineError::Escape)
}

fn trim(text: &[u8]) -> &[u8] {
    let start = text.iter().position(|&byte| !is_blank(byte)).unwrap_or(text.len());
    &text[start..]
}

fn is_blank(byte: u8) -> bool {
    byte.is_ascii_whitespace()
}

/// A word as it can be written in a line.
#[cfg(test)]
pub(crate) fn quoted(word: &[u8]) -> Vec<u8> {
    let mut text = vec![b'"'];
    for &byte in word {
        text.extend(format!("\\x{byte:02x}").bytes());
    }
    text.push(b'"');
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt;

    fn words(line: &str) -> Vec<String> {
        match parse(line.as_bytes()).unwrap().request {
            Request::Command { words, .. } => words.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn words_are_quoted_as_in_guestfish() {
        assert_eq!(words("  ls\t/a  /b "), ["ls", "/a", "/b"]);
        assert_eq!(words(r#"add "file with a space.img""#), ["add", "file with a space.img"]);
        assert_eq!(words(r#"rm '/"'"#), ["rm", "/\""]);
        assert_eq!(words(r#"write /f "a\n\x41\101\t\"\\""#), ["write", "/f", "a\nAA\t\"\\"]);
        assert_eq!(words(r"rm '/a\nb' /a\*"), ["rm", r"/a\nb", r"/a\*"]);
        assert_eq!(words(r#"mount-options "" /dev/sda1 /"#), ["mount-options", "", "/dev/sda1", "/"]);
        assert_eq!(words("echo a#b 'it'"), ["echo", "a#b", "it"]);
    }

    #[test]
    fn the_first_letter_says_what_a_line_is() {
        let parse = |line: &str| parse(line.as_bytes()).unwrap();
        for nothing in ["", "   ", "# a comment", "  # \"", "-", "- # x"] {
            assert_eq!(parse(nothing).request, Request::Nothing, "{nothing}");
        }
        assert_eq!(parse("!date +%s >> 'x y").request, Request::Host("date +%s >> 'x y".into()));
        let line = parse("- rm /x");
        assert!(line.may_fail && !parse("rm -f /x").may_fail);
        assert_eq!(line.request, Request::Command { words: vec!["rm".into(), "/x".into()], pipe: None });
        let words = vec!["cat".into(), "/a|b".into()];
        assert_eq!(parse("cat /a|b | wc -l").request, Request::Command { words, pipe: Some("wc -l".into()) });
    }

    #[test]
    fn the_end_of_a_line_is_whose_it_is_when_it_is_executed() {
        let end = |line: &str| end(line.as_bytes());
        let word = |before: &[&str], begin, quote| {
            Ok(End::Word { before: before.iter().map(OsString::from).collect(), begin, quote })
        };
        assert_eq!(end(""), word(&[], 0, None));
        assert_eq!(end(" - ca"), word(&[], 3, None));
        assert_eq!(end("cat "), word(&["cat"], 4, None));
        assert_eq!(end("cat \"/a b\" '/c d"), word(&["cat", "/a b"], 11, Some('\'')));
        assert_eq!(end("cat \"a\\\" | x"), word(&["cat"], 4, Some('"')));
        assert_eq!(end("cat \"a |b\" x"), word(&["cat", "a |b"], 11, None));
        for nothing in ["# x", "- # x", "cat \"a\""] {
            assert_eq!(end(nothing), Ok(End::Nothing), "{nothing}");
        }
        for (line, begin) in [("!ls", 1), (" - ! ls", 4), ("cat a|b |c", 9), ("cat \"a\\\"\" | x y", 11), ("| x", 1)] {
            assert_eq!(end(line), Ok(End::Host { begin }), "{line}");
        }
        assert_eq!(end("cat 'a'b | x"), Err(LineError::GoesOn));
        assert_eq!(end("cat \"\\"), Err(LineError::Escape));
    }

    #[test]
    fn what_is_not_well_formed_is_refused() {
        for (line, error) in [
            ("ls '/a", LineError::Unclosed),
            ("ls \"/a", LineError::Unclosed),
            ("ls \"/a\\", LineError::Escape),
            ("ls 'a'b", LineError::GoesOn),
            ("ls \"a\"'b'", LineError::GoesOn),
            (r#"ls "\q""#, LineError::Escape),
            (r#"ls "\x4""#, LineError::Escape),
            (r#"ls "\400""#, LineError::Escape),
            (r#"ls "\000""#, LineError::Nul),
            ("| less", LineError::NoCommand),
        ] {
            assert_eq!(parse(line.as_bytes()), Err(error), "{line}");
        }
        assert_eq!(parse(&vec![b' '; LINE_BYTES_MAX + 1]), Err(LineError::TooLong));
    }

    #[test]
    fn fuzz_any_line_is_understood_or_refused_and_its_words_can_be_written() {
        blockyard_fuzz::check!(10_000).for_each(|line: &[u8]| {
            let Ok(Line { request: Request::Command { words, pipe }, .. }) = parse(line) else { return };
            assert!(!words.is_empty());
            let mut written = words.iter().map(|word| quoted(word.as_bytes())).collect::<Vec<_>>().join(&b' ');
            if let Some(pipe) = &pipe {
                written.extend(b" | ");
                written.extend(pipe.as_bytes());
            }
            assert_eq!(parse(&written).map(|line| line.request), Ok(Request::Command { words, pipe }));
        });
    }
}
