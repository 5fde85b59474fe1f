//! Which of two versions is newer (UAPI Group, Version Format Specification).

use std::cmp::Ordering;

/// Compares versions, or names that end in one: the newer is greater.
pub(crate) fn compare(one: &str, other: &str) -> Ordering {
    let (mut one, mut other) = (one.as_bytes(), other.as_bytes());
    loop {
        (one, other) = (relevant(one), relevant(other));
        // What is before a release is older than it, even than the end.
        match mark(one, other, b'~') {
            Mark::Both => {
                (one, other) = (&one[1..], &other[1..]);
                continue;
            }
            Mark::Differs(ordering) => return ordering,
            Mark::Neither => {}
        }
        if one.is_empty() || other.is_empty() {
            return one.len().cmp(&other.len());
        }
        let mut skipped = false;
        for separator in [b'-', b'^', b'.'] {
            match mark(one, other, separator) {
                Mark::Both => {
                    (one, other) = (&one[1..], &other[1..]);
                    skipped = true;
                    break;
                }
                Mark::Differs(ordering) => return ordering,
                Mark::Neither => {}
            }
        }
        if skipped {
            continue;
        }
        let (is_number, ordering);
        is_number = one[0].is_ascii_digit() || other[0].is_ascii_digit();
        (one, other, ordering) = if is_number { numbers(one, other) } else { letters(one, other) };
        if ordering.is_ne() {
            return ordering;
        }
    }
}

/// What counts: the rest separates nothing.
fn relevant(text: &[u8]) -> &[u8] {
    let counts = |byte: &u8| byte.is_ascii_alphanumeric() || b"-.~^".contains(byte);
    &text[text.iter().position(counts).unwrap_or(text.len())..]
}

enum Mark {
    Neither,
    Both,
    Differs(Ordering),
}

/// Which begins with a mark: that one is older.
fn mark(one: &[u8], other: &[u8], mark: u8) -> Mark {
    match (one.first() == Some(&mark), other.first() == Some(&mark)) {
        (false, false) => Mark::Neither,
        (true, true) => Mark::Both,
        (has, _) => Mark::Differs(if has { Ordering::Less } else { Ordering::Greater }),
    }
}

type Rest<'text> = (&'text [u8], &'text [u8], Ordering);

/// Numbers of any length; one that is not there is older.
fn numbers<'text>(one: &'text [u8], other: &'text [u8]) -> Rest<'text> {
    let (first, one_rest) = run(one, u8::is_ascii_digit);
    let (second, other_rest) = run(other, u8::is_ascii_digit);
    let value = |digits: &'text [u8]| {
        let zeros = digits.iter().take_while(|&&digit| digit == b'0').count();
        &digits[zeros..]
    };
    let by_value = (value(first).len(), value(first)).cmp(&(value(second).len(), value(second)));
    // No digits are no number, and so older than zero.
    (one_rest, other_rest, by_value.then(first.is_empty().cmp(&second.is_empty()).reverse()))
}

fn letters<'text>(one: &'text [u8], other: &'text [u8]) -> Rest<'text> {
    let (first, one_rest) = run(one, u8::is_ascii_alphabetic);
    let (second, other_rest) = run(other, u8::is_ascii_alphabetic);
    (one_rest, other_rest, first.cmp(second))
}

fn run(text: &[u8], belongs: fn(&u8) -> bool) -> (&[u8], &[u8]) {
    text.split_at(text.iter().position(|byte| !belongs(byte)).unwrap_or(text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_in_order() {
        let ascending = [
            "vmlinuz-5.10.0-8-amd64",
            "vmlinuz-5.10.0-28-amd64",
            "vmlinuz-6.1.0-9-amd64",
            "vmlinuz-6.1.0-18-amd64",
            "vmlinuz-6.1.0-18-cloud-amd64",
            "vmlinuz-6.12~rc1-amd64",
            "vmlinuz-6.12-amd64",
            "vmlinuz-6.12.9-200.fc41.x86_64",
            "vmlinuz-6.12.10-200.fc41.x86_64",
        ];
        for pair in ascending.windows(2) {
            assert_eq!(compare(pair[0], pair[1]), Ordering::Less, "{pair:?}");
            assert_eq!(compare(pair[1], pair[0]), Ordering::Greater, "{pair:?}");
        }
        assert_eq!(compare("1.02", "1.2"), Ordering::Equal);
        assert_eq!(compare("0-rescue", "6.5.6"), Ordering::Less);
    }

    #[test]
    fn fuzz_comparing_is_an_order() {
        blockyard_fuzz::check!(20_000).with_type::<(String, String, String)>().for_each(|(one, two, three)| {
            assert_eq!(compare(one, two), compare(two, one).reverse());
            assert_eq!(compare(one, one), Ordering::Equal);
            if compare(one, two).is_le() && compare(two, three).is_le() {
                assert!(compare(one, three).is_le(), "{one:?} {two:?} {three:?}");
            }
        });
    }
}
