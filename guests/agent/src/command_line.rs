//! The kernel's command line, as far as it is for who boots a system (Linux, Documentation/admin-guide/
//! kernel-parameters.rst).

use std::fs;

/// Says that the system in an image shall take over. A name with a dot is nothing to the kernel, nor to an init.
const HANDS_OVER: &str = "blockyard.hand_over";

/// Its words.
pub(crate) struct CommandLine(Vec<String>);

impl CommandLine {
    /// That of the kernel that runs.
    pub(crate) fn read() -> Self {
        Self::parse(&fs::read_to_string("/proc/cmdline").unwrap_or_default())
    }

    /// Words are divided by spaces, but where quotes keep them together.
    fn parse(text: &str) -> Self {
        let (mut words, mut word, mut quoted) = (Vec::new(), String::new(), false);
        for letter in text.chars() {
            match letter {
                '"' => quoted = !quoted,
                space if space.is_whitespace() && !quoted => words.push(std::mem::take(&mut word)),
                other => word.push(other),
            }
        }
        words.push(word);
        words.retain(|word| !word.is_empty());
        Self(words)
    }

    /// What `name=` is followed by, the last time.
    pub(crate) fn value(&self, name: &str) -> Option<&str> {
        self.0
            .iter()
            .rev()
            .find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
            .filter(|value| !value.is_empty())
    }

    /// Which of these words comes last.
    pub(crate) fn last_of<'words>(&self, words: &[&'words str]) -> Option<&'words str> {
        self.0.iter().rev().find_map(|word| words.iter().copied().find(|wanted| wanted == word))
    }

    /// Whether the system in an image shall take over.
    pub(crate) fn hands_over(&self) -> bool {
        self.last_of(&[HANDS_OVER]).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_word_counts_and_quotes_keep_words_together() {
        let line = CommandLine::parse("root=/dev/vda1 ro x=\"a b\" root=UUID=12-34 init= quiet rw\n");
        assert_eq!(line.value("root"), Some("UUID=12-34"));
        assert_eq!(line.value("x"), Some("a b"));
        assert_eq!(line.value("init"), None);
        assert_eq!(line.last_of(&["ro", "rw"]), Some("rw"));
        assert!(!line.hands_over() && CommandLine::parse("a blockyard.hand_over").hands_over());
    }
}
