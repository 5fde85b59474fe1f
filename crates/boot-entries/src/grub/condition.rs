//! test, or [: conditions (GNU GRUB Manual 2.12, "test").

use std::iter::Peekable;
use std::slice::Iter;

/// How deep parentheses and negations lie in each other.
const DEPTH_MAX: u32 = 32;

/// What a condition asks of files.
pub(super) struct Files<'files> {
    /// The size of a regular file.
    pub(super) size: &'files dyn Fn(&str) -> Option<u64>,
    pub(super) is_directory: &'files dyn Fn(&str) -> bool,
}

/// Whether a condition holds; one that makes no sense does not.
pub(super) fn holds(words: &[String], files: &Files<'_>) -> bool {
    let mut condition = Condition { words: words.iter().peekable(), files, depth: 0 };
    let holds = condition.any();
    holds && condition.words.peek().is_none()
}

struct Condition<'words> {
    words: Peekable<Iter<'words, String>>,
    files: &'words Files<'words>,
    depth: u32,
}

impl Condition<'_> {
    fn takes(&mut self, wanted: &str) -> bool {
        self.words.next_if(|word| *word == wanted).is_some()
    }

    fn any(&mut self) -> bool {
        let mut holds = self.all();
        while self.takes("-o") {
            holds |= self.all();
        }
        holds
    }

    fn all(&mut self) -> bool {
        let mut holds = self.one();
        // Without -a between them, GRUB takes them together too.
        while self.takes("-a") || self.words.peek().is_some_and(|word| !matches!(word.as_str(), "-o" | ")")) {
            if self.words.peek().is_none() {
                return false;
            }
            holds &= self.one();
        }
        holds
    }

    fn one(&mut self) -> bool {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            // Nothing that follows is looked at.
            self.words.by_ref().for_each(drop);
            return false;
        }
        let holds = self.one_within();
        self.depth -= 1;
        holds
    }

    fn one_within(&mut self) -> bool {
        if self.takes("!") {
            return !self.one();
        }
        if self.takes("(") {
            let holds = self.any();
            return self.takes(")") && holds;
        }
        let Some(first) = self.words.next() else { return false };
        if let Some(compares) = self.words.peek().and_then(|word| comparison(word)) {
            self.words.next();
            return self.words.next().is_some_and(|second| compares(first, second));
        }
        let Some(subject) = first.starts_with('-').then(|| self.words.next()).flatten() else {
            return !first.is_empty();
        };
        let size = || (self.files.size)(subject);
        match first.as_str() {
            "-n" => !subject.is_empty(),
            "-z" => subject.is_empty(),
            "-f" => size().is_some(),
            "-s" => size().is_some_and(|size| size > 0),
            "-d" => (self.files.is_directory)(subject),
            "-e" => size().is_some() || (self.files.is_directory)(subject),
            _ => false,
        }
    }
}

fn comparison(word: &str) -> Option<fn(&str, &str) -> bool> {
    Some(match word {
        "=" | "==" => |one, two| one == two,
        "!=" => |one, two| one != two,
        "-eq" => |one, two| number(one) == number(two),
        "-ne" => |one, two| number(one) != number(two),
        "-lt" => |one, two| number(one) < number(two),
        "-le" => |one, two| number(one) <= number(two),
        "-gt" => |one, two| number(one) > number(two),
        "-ge" => |one, two| number(one) >= number(two),
        // Times of files, which nobody decides by what is booted.
        "-nt" | "-ot" => |_, _| false,
        _ => return None,
    })
}

fn number(text: &str) -> i64 {
    text.trim().parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str) -> bool {
        let words: Vec<_> = text.split(' ').map(|word| word.trim_matches('\'').to_owned()).collect();
        let files = Files { size: &|path| (path == "/there").then_some(1), is_directory: &|path| path == "/directory" };
        holds(&words, &files)
    }

    #[test]
    fn conditions_hold_or_not() {
        for text in [
            "a = a",
            "xy == xy",
            "a != b",
            "-z ''",
            "-n a",
            "-f /there",
            "-s /there",
            "-d /directory",
            "-e /directory",
            "! -f /gone",
            "2 -lt 10",
            "a = b -o 1 -eq 01",
            "a = a -a b = b",
            "( a = b -o b = b ) -a ! c = d",
            "a",
            "-z = -z",
        ] {
            assert!(check(text), "{text}");
        }
        for text in ["a = b", "''", "-f /gone", "10 -lt 9", "a = a -a", "( a = a", "-q x", "a = a -a b = c", "a = a )"]
        {
            assert!(!check(text), "{text}");
        }
    }

    #[test]
    fn fuzz_any_words_end() {
        const WORDS: [&str; 12] = ["!", "(", ")", "-a", "-o", "=", "a", "-f", "", "-z", "-lt", "!="];
        blockyard_fuzz::check!(20_000).for_each(|bytes: &[u8]| {
            let words: Vec<_> = bytes.iter().map(|&byte| WORDS[usize::from(byte) % WORDS.len()]).collect();
            check(&words.join(" "));
        });
    }
}
