//! Text that somebody else wrote, for a terminal.

/// A text without what commands a terminal, or turns the order of what is read: each such letter is replaced.
pub fn printable(text: &str) -> String {
    let misleads = |letter: char| letter.is_control() || is_format(letter);
    text.chars().map(|letter| if misleads(letter) { char::REPLACEMENT_CHARACTER } else { letter }).collect()
}

/// Letters without a shape that change the direction or the lines of others (Unicode Standard Annex 9, and U+2028 and U+2029), or
/// hide between them. The joiners (U+200C, U+200D) are part of how names are spelled.
fn is_format(letter: char) -> bool {
    matches!(letter,
        '\u{61c}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_command_a_terminal() {
        assert_eq!(printable("root\u{1b}[2J\n\u{9b}größer"), "root\u{fffd}[2J\u{fffd}\u{fffd}größer");
        assert_eq!(printable("a\u{202e}gpj.exe \u{2066}b\u{200d}"), "a\u{fffd}gpj.exe \u{fffd}b\u{200d}");
    }
}
