//! How far the host's shell is at the end of what has been written for it, as a shell reads it and not as our lines are
//! read: which quote is open, and whether a quoted name would be one word there and nothing else.
//!
//! /bin/sh is dash, bash or another, and each reads some texts in its own way. Some are read twice, so that a quote
//! does not hold there: what is between backquotes, in `eval`, in arithmetic. Nothing is said of a text that holds one
//! of these: this page knows what is the same everywhere, and gives up at whatever else it meets.

use std::str::Chars;

/// Commands whose words are read again, by this shell or another.
const READ_AGAIN: [&str; 26] = [
    "[[",
    "alias",
    "bind",
    "compgen",
    "complete",
    "declare",
    "eval",
    "fc",
    "getopts",
    "let",
    "local",
    "mapfile",
    "parallel",
    "read",
    "readarray",
    "readonly",
    "runuser",
    "script",
    "ssh",
    "su",
    "trap",
    "typeset",
    "unalias",
    "unset",
    "wait",
    "watch",
];
/// Commands that do so with what is behind an option of that letter.
const READ_AGAIN_WITH: [(&str, char); 12] = [
    ("ash", 'c'),
    ("bash", 'c'),
    ("busybox", 'c'),
    ("dash", 'c'),
    ("ksh", 'c'),
    ("mksh", 'c'),
    ("sh", 'c'),
    ("zsh", 'c'),
    ("[", 'v'),
    ("printf", 'v'),
    ("test", 'v'),
    ("env", 'S'),
];
/// What may stand between backquotes that are closed, which is read as it is.
const PLAIN: &str = "_./-+:,@%= \t";

/// The word at the end of a text: where it begins, with its quote, and which quote is open. `None` where it is not
/// certain that a word in quotes there is this word.
pub(crate) fn last_word(text: &str) -> Option<(usize, Option<char>)> {
    let mut reader = Reader { text, rest: text.chars(), begin: 0, is_bare: true, options: Vec::new() };
    if text.contains(|letter: char| letter.is_control() && letter != '\t') {
        return None;
    }
    loop {
        let at = reader.at();
        let Some(letter) = reader.rest.next() else { break };
        match letter {
            ' ' | '\t' | ';' | '&' | '|' | '<' | '>' | '(' | ')' => reader.divide(letter, at)?,
            '\'' => match reader.rest.as_str().find('\'') {
                Some(length) => reader.skip(length + 1),
                None => return reader.quoted(at, letter),
            },
            '"' => {
                if !reader.double_quoted()? {
                    return reader.quoted(at, letter);
                }
                reader.is_bare = false;
            }
            '\\' => {
                reader.rest.next()?;
                reader.is_bare = false;
            }
            '$' => reader.dollar(false)?,
            '`' => {
                let length = reader.rest.as_str().find('`')?;
                let is_plain = |letter: char| letter.is_ascii_alphanumeric() || PLAIN.contains(letter);
                if !reader.rest.as_str()[..length].chars().all(is_plain) {
                    return None;
                }
                reader.skip(length + 1);
            }
            '#' if at == reader.begin => return None,
            _ => {}
        }
    }
    // What else is in it would be lost.
    reader.is_bare.then_some((reader.begin, None))
}

struct Reader<'a> {
    text: &'a str,
    rest: Chars<'a>,
    /// Where the word begins.
    begin: usize,
    /// Whether all of the word is what it looks like.
    is_bare: bool,
    /// Options that let a command read what is behind them.
    options: Vec<char>,
}

impl Reader<'_> {
    fn at(&self) -> usize {
        self.text.len() - self.rest.as_str().len()
    }

    /// Goes on behind so many bytes, of which not all are what they look like.
    fn skip(&mut self, bytes: usize) {
        self.rest = self.rest.as_str()[bytes..].chars();
        self.is_bare = false;
    }

    /// The last word, when it has a quote that is open.
    fn quoted(&self, at: usize, quote: char) -> Option<(usize, Option<char>)> {
        (at == self.begin).then_some((at, Some(quote)))
    }

    /// Ends a word at a blank or an operator.
    fn divide(&mut self, letter: char, at: usize) -> Option<()> {
        let next = self.rest.as_str().chars().next();
        let is_known = match (letter, next) {
            // Here-documents, processes for files, arithmetic.
            ('<', Some('<' | '(')) | ('>' | '(', Some('(')) => false,
            // What an array or a pattern has, or a function.
            ('(', _) => at == self.begin,
            _ => true,
        };
        let word = &self.text[self.begin..at];
        let bare: String = word.chars().filter(|letter| !"\\'\"".contains(*letter)).collect();
        // The index of an array, which may hold blanks.
        let is_index = bare.find('[').is_some_and(|open| open > 0 && !bare[open..].contains(']'));
        let (place, name) = bare.rsplit_once('/').unwrap_or(("bin", &bare));
        let is_command = |own: &str| own == name && place.ends_with("bin");
        let is_option = bare.starts_with(['-', '+']) && bare.contains(&*self.options);
        if !is_known || is_index || is_option || READ_AGAIN.into_iter().any(is_command) {
            return None;
        }
        self.options.extend(READ_AGAIN_WITH.iter().filter(|(own, _)| is_command(own)).map(|(_, option)| option));
        (self.begin, self.is_bare) = (self.at(), true);
        Some(())
    }

    /// Goes on behind the closing quote; whether there is one.
    fn double_quoted(&mut self) -> Option<bool> {
        while let Some(letter) = self.rest.next() {
            match letter {
                '"' => return Some(true),
                '\\' => drop(self.rest.next()?),
                '$' => self.dollar(true)?,
                '`' => return None,
                _ => {}
            }
        }
        Some(false)
    }

    /// Goes on behind the dollar of a variable, or of a command that stands for its output.
    fn dollar(&mut self, is_in_quotes: bool) -> Option<()> {
        self.is_bare = false;
        let rest = self.rest.as_str();
        match rest.chars().next() {
            Some('(') if !is_in_quotes && !rest.starts_with("((") => {
                self.rest.next();
                (self.begin, self.is_bare) = (self.at(), true);
            }
            Some('{') => {
                let length = rest.find('}')?;
                let is_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
                if length == 1 || !rest[1..length].chars().all(is_name) {
                    return None;
                }
                self.skip(length + 1);
            }
            Some('$') => drop(self.rest.next()),
            Some('(' | '[') => return None,
            // One shell has a kind of quotes here, and another has not.
            Some('\'' | '"') if !is_in_quotes => return None,
            _ => {}
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_known_which_quote_of_the_shells_is_open() {
        for (text, word) in [
            ("cat z", (4, None)),
            ("cat z\\'a b\"'\\\"\" z", (16, None)),
            (r#"cat 'it'\''s' "a\" b" z"#, (22, None)),
            ("cat \"a b", (4, Some('"'))),
            ("cat 'a \"b", (4, Some('\''))),
            ("cat $HOME ${HOME} $$ \"$x\" z", (26, None)),
            ("echo `date +%s` z", (16, None)),
            ("echo $(cat z", (11, None)),
            ("wc <z", (4, None)),
            ("a;b&&(c z", (8, None)),
            ("sh z", (3, None)),
            ("ls /usr/local z", (14, None)),
            ("[ -f z", (5, None)),
        ] {
            assert_eq!(last_word(text), Some(word), "{text}");
        }
    }

    #[test]
    fn nothing_is_completed_where_a_quote_does_not_hold_or_is_another() {
        for text in [
            "echo `cat z",
            "echo `cat 'z",
            "echo \"`cat z",
            "echo `a\\`b` z",
            "echo `a \"b` z",
            "echo x\"a z",
            "echo x'z",
            "echo \\",
            "echo \"a\\\" `",
            "echo \"$(cat z",
            "echo ${x:-z",
            "echo ${x:- z",
            "echo \"${x:- z",
            "echo $((z",
            "echo $[z",
            "echo $'a z",
            "echo $\"a z",
            "((z",
            "for ((z",
            "cat <<z",
            "cat <<<z",
            "cat <(z",
            "tee >(z",
            "a=(z",
            "a[ z",
            "[[ z",
            "[[ 1 -eq z",
            "eval z",
            "\\eval cat z",
            "x; 'eval' z",
            "sh -c z",
            "/bin/sh -ec z",
            "find -exec bash -c z",
            "printf -v z",
            "trap z",
            "[ -v z",
            "echo # z",
            "echo a\u{b}z",
            "echo $HOME/z",
            "echo a\\ z",
            "echo 'a'z",
            "f(z",
        ] {
            assert_eq!(last_word(text), None, "{text}");
        }
    }
}
