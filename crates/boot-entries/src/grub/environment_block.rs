//! grubenv: variables that GRUB keeps between boots (GNU GRUB Manual 2.12, "The GRUB environment block").

/// What the file begins with.
const SIGNATURE: &str = "# GRUB Environment Block\n";

/// Names and values, as the file has them; none where it is no such file.
pub(super) fn parse(text: &str) -> Vec<(String, String)> {
    let Some(text) = text.strip_prefix(SIGNATURE) else { return Vec::new() };
    let mut variables = Vec::new();
    let mut letters = text.chars().peekable();
    while letters.peek().is_some() {
        let (line, escaped_to_end) = line(&mut letters);
        if let (false, Some((name, value))) = (line.starts_with('#'), line.split_once('='))
            && !escaped_to_end
        {
            variables.push((name.to_owned(), value.to_owned()));
        }
    }
    variables
}

/// A line without its end; behind a backslash, a line's end and a backslash are letters.
fn line(letters: &mut impl Iterator<Item = char>) -> (String, bool) {
    let mut line = String::new();
    while let Some(letter) = letters.next() {
        match letter {
            '\n' => return (line, false),
            '\\' => match letters.next() {
                Some(letter) => line.push(letter),
                None => return (line, true),
            },
            letter => line.push(letter),
        }
    }
    (line, false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_what_was_saved() {
        let text = format!(
            "{SIGNATURE}# WARNING: do not edit\nsaved_entry=gnulinux-advanced-1>gnulinux-6.1\nkernelopts=root=UUID=1 ro\\\\x\n{}",
            "#".repeat(900)
        );
        let wanted = [("saved_entry", "gnulinux-advanced-1>gnulinux-6.1"), ("kernelopts", "root=UUID=1 ro\\x")];
        assert_eq!(parse(&text), wanted.map(|(name, value)| (name.to_owned(), value.to_owned())));
        assert_eq!(parse("saved_entry=1\n"), []);
    }

    #[test]
    fn fuzz_any_block_has_names() {
        blockyard_fuzz::check!(20_000).for_each(|bytes: &[u8]| {
            let text = format!("{SIGNATURE}{}", String::from_utf8_lossy(bytes));
            assert!(parse(&text).len() <= text.lines().count());
        });
    }
}
