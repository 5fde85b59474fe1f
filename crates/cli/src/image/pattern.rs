//! Shell patterns (POSIX, "Pattern Matching Notation").

/// Whether all of `name` matches `pattern`: `*`, `?`, `[a-z]`, `[!a-z]` and `\` before a letter. Takes time in proportion to the
/// product of the lengths at most, whatever they hold.
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
    use super::matches;

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
