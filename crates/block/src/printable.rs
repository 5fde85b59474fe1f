//! Text that somebody else wrote, for a terminal, and for a shell.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fmt;

/// A text without what commands a terminal, or turns the order of what is read: each such letter is replaced. A tab
/// is a blank.
pub fn printable(text: &str) -> String {
    let harmless = |letter: char| match letter {
        '\t' => ' ',
        _ if misleads(letter) => char::REPLACEMENT_CHARACTER,
        _ => letter,
    };
    text.chars().map(harmless).collect()
}

/// As [`printable`], for a text of several lines, whose ends and tabs stay.
pub fn printable_lines(text: &str) -> Cow<'_, str> {
    let is_bad = |letter: char| misleads(letter) && !matches!(letter, '\n' | '\t');
    if !text.contains(is_bad) {
        return text.into();
    }
    text.chars().map(|letter| if is_bad(letter) { char::REPLACEMENT_CHARACTER } else { letter }).collect()
}

/// Whether a letter commands a terminal, is not seen, or changes the order of what is read.
pub fn misleads(letter: char) -> bool {
    letter.is_control() || is_format(letter)
}

/// Letters without a shape that change the direction or the lines of others (Unicode Standard Annex 9, and U+2028 and
/// U+2029), or hide between them: what Unicode calls Default_Ignorable_Code_Point, and the annotation marks. Two names
/// that differ by one of these look the same. The joiners (U+200C, U+200D) and the variation selectors (U+FE00 to
/// U+FE0F) are part of how names are spelled, in Persian and Hindi as in emoji, and stay.
fn is_format(letter: char) -> bool {
    matches!(letter,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
        | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}'
        | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
        | '\u{e0000}'..='\u{e0fff}')
}

/// A path, or another word of somebody's, as it may be shown in a message: one line, whatever it is.
pub fn shown<T: AsRef<OsStr> + ?Sized>(path: &T) -> impl fmt::Display + use<'_, T> {
    fmt::from_fn(|f| f.write_str(&printable(&path.as_ref().to_string_lossy())))
}

/// A text as one word of a shell's command line, in quotes where it needs them: what is pasted does nothing else.
/// Letters that mislead are written as numbers (`$'\x1b'`, which bash, zsh and POSIX 2024 have).
pub fn shell_word(text: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "_./+-:,@%=".contains(letter);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.to_owned();
    }
    if !text.contains(misleads) {
        return format!("'{}'", text.replace('\'', "'\\''"));
    }
    let mut word = String::from("$'");
    for letter in text.chars() {
        match letter {
            '\'' | '\\' => word.extend(['\\', letter]),
            _ if misleads(letter) => {
                letter.encode_utf8(&mut [0; 4]).bytes().for_each(|byte| word.push_str(&format!("\\x{byte:02x}")));
            }
            _ => word.push(letter),
        }
    }
    word + "'"
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use std::process::Command;

    #[test]
    fn names_cannot_command_a_terminal() {
        assert_eq!(printable("root\u{1b}[2J\n\u{9b}größer"), "root\u{fffd}[2J\u{fffd}\u{fffd}größer");
        assert_eq!(printable("a\u{202e}gpj.exe \u{2066}b\u{200d}"), "a\u{fffd}gpj.exe \u{fffd}b\u{200d}");
        assert_eq!(printable_lines("a\tb\nc\u{1b}[2J\r"), "a\tb\nc\u{fffd}[2J\u{fffd}");
        assert_eq!(shown(Path::new("a\nb")).to_string(), "a\u{fffd}b");
    }

    #[test]
    fn two_names_that_are_shown_do_not_look_the_same() {
        for letter in [
            0xad, 0x34f, 0x61c, 0x115f, 0x1160, 0x17b4, 0x17b5, 0x180b, 0x180e, 0x180f, 0x200b, 0x200e, 0x200f, 0x202a,
            0x202e, 0x2060, 0x2065, 0x206f, 0x3164, 0xfeff, 0xffa0, 0xfff0, 0xfff8, 0x1bca0, 0x1bca3, 0x1d173, 0x1d17a,
            0xe0000, 0xe0001, 0xe0041, 0xe007f, 0xe0100, 0xe0fff,
        ] {
            let letter = char::from_u32(letter).unwrap();
            let name = format!("fst{letter}ab");
            assert_eq!(printable(&name), "fst\u{fffd}ab", "{letter:?}");
            assert!(shell_word(&name).is_ascii(), "{letter:?}");
        }
        for spelled in ["می\u{200c}خواهم", "क्\u{200d}ष", "❤\u{fe0f}", "👩\u{200d}🚀", "größer", "한글"]
        {
            assert_eq!(printable(spelled), spelled);
        }
    }

    #[test]
    fn what_is_pasted_is_one_word() {
        assert_eq!(shell_word("/srv/base-1.qcow2"), "/srv/base-1.qcow2");
        assert_eq!(shell_word(""), "''");
        for text in
            ["a b", "$(touch x)", "`id`", "it's", "a;b|c&d>e", "*?[a]", "~", "#", "a\u{1b}[2J$(id)\n'\\", "\u{202e}x"]
        {
            let word = shell_word(text);
            assert!(!word.contains(misleads), "{word:?}");
            let said = Command::new("bash").args(["-c", &format!("printf %s {word}")]).output().unwrap();
            assert_eq!(String::from_utf8(said.stdout).unwrap(), text, "{word}");
        }
    }
}
