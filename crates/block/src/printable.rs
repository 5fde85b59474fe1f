//! Text that somebody else wrote, for a terminal.

/// A text without what commands a terminal: each such letter is replaced.
pub fn printable(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { char::REPLACEMENT_CHARACTER } else { letter }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_command_a_terminal() {
        assert_eq!(printable("root\u{1b}[2J\n\u{9b}größer"), "root\u{fffd}[2J\u{fffd}\u{fffd}größer");
    }
}
