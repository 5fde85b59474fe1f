//! Shell patterns (POSIX, "Pattern Matching Notation").
//!
//! A path is a pattern: `*`, `?` and `[a-z]` stand for names that are there, and a backslash makes the letter behind it
//! itself.

use alloc::vec::Vec;

/// Whether a path stands for names that are there rather than for one.
pub fn is_pattern(path: &[u8]) -> bool {
    let mut letters = path.iter();
    while let Some(letter) = letters.next() {
        match letter {
            b'*' | b'?' | b'[' => return true,
            b'\\' => _ = letters.next(),
            _ => {}
        }
    }
    false
}

/// The path that a pattern without `*`, `?` and `[` means.
pub fn plain(path: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(path.len());
    let mut letters = path.iter();
    while let Some(&letter) = letters.next() {
        match letter {
            // At the end it is itself.
            b'\\' => plain.push(letters.next().copied().unwrap_or(letter)),
            letter => plain.push(letter),
        }
    }
    plain
}

/// The pattern that means just this path.
pub fn escaped(path: &[u8]) -> Vec<u8> {
    let mut pattern = Vec::with_capacity(path.len());
    for &letter in path {
        if matches!(letter, b'*' | b'?' | b'[' | b'\\') {
            pattern.push(b'\\');
        }
        pattern.push(letter);
    }
    pattern
}

/// Whether all of `name` matches `pattern`: `*`, `?`, `[a-z]`, `[!a-z]` and `\` before a letter. Takes time in
/// proportion to the product of the lengths at most, whatever they hold.
pub fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut from) = (0, 0);
    // Where to go on when the rest does not match: one more letter for the last star.
    let mut retry: Option<(usize, usize)> = None;
    while from < name.len() {
        if pattern.get(at) == Some(&b'*') {
            at += 1;
            retry = Some((at, from));
            continue;
        }
        match one(&pattern[at..], name[from]) {
            Some(length) => (at, from) = (at + length, from + 1),
            None => match &mut retry {
                Some((after_star, next)) => {
                    *next += 1;
                    (at, from) = (*after_star, *next);
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|&letter| letter == b'*')
}

/// How long the part of the pattern is that matches `letter`.
fn one(pattern: &[u8], letter: u8) -> Option<usize> {
    match *pattern {
        [] => None,
        [b'?', ..] => Some(1),
        [b'\\', escaped, ..] => (escaped == letter).then_some(2),
        [b'[', ..] => match set(&pattern[1..], letter) {
            Some((length, true)) => Some(1 + length),
            Some((_, false)) => None,
            // Never closed: it means itself.
            None => (letter == b'[').then_some(1),
        },
        [plain, ..] => (plain == letter).then_some(1),
    }
}

/// Of what follows `[`: how long it is with its `]`, and whether the letter is in it.
fn set(pattern: &[u8], letter: u8) -> Option<(usize, bool)> {
    let inverted = matches!(pattern.first(), Some(b'!' | b'^'));
    let mut at = usize::from(inverted);
    let (first, mut found) = (at, false);
    loop {
        let &low = pattern.get(at)?;
        if low == b']' && at > first {
            return Some((at + 1, found != inverted));
        }
        match (pattern.get(at + 1), pattern.get(at + 2)) {
            (Some(b'-'), Some(&high)) if high != b']' => {
                found |= (low..=high).contains(&letter);
                at += 3;
            }
            _ => {
                found |= low == letter;
                at += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_can_be_written_as_a_pattern_and_means_itself() {
        for path in [&b"/etc/*.conf"[..], b"/a\\b", b"/[x]?", b"/plain", b"\\"] {
            let pattern = escaped(path);
            assert!(!is_pattern(&pattern) && plain(&pattern) == path && matches(&pattern, path));
        }
        assert!(is_pattern(b"/etc/*") && is_pattern(b"a?") && is_pattern(b"\\\\[a]") && !is_pattern(b"\\*\\[\\?"));
        assert_eq!(plain(b"a\\"), b"a\\");
    }

    #[test]
    fn patterns_match_as_in_a_shell() {
        for (pattern, name) in [
            ("*", ""),
            ("*.rs", "main.rs"),
            ("a*b*c", "aXXbYbc"),
            ("[a-c]?[!0-9]", "bxy"),
            ("[]x]", "]"),
            ("\\*", "*"),
            ("a[", "a["),
            ("**a", "bca"),
        ] {
            assert!(matches(pattern.as_bytes(), name.as_bytes()), "{pattern} {name}");
        }
        for (pattern, name) in
            [("", "a"), ("?", ""), ("*.rs", "main.rc"), ("[a-c]", "d"), ("[!a]", "a"), ("\\*", "a"), ("a", "ab")]
        {
            assert!(!matches(pattern.as_bytes(), name.as_bytes()), "{pattern} {name}");
        }
    }

    #[test]
    fn many_stars_take_no_longer_than_few() {
        assert!(!matches(&b"*a".repeat(2000), &[b'b'; 100_000]));
    }
}
