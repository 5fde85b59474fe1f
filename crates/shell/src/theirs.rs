//! guestfish's arguments of commands that we have with others.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

/// guestfish's arguments where one of our commands has the same name and others.
pub(crate) fn as_ours(words: &[OsString]) -> Vec<OsString> {
    let texts: Vec<_> = words.iter().map(|word| word.to_str().unwrap_or_default()).collect();
    let number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match texts[..] {
        ["chown" | "lchown", user, group, _] if number(user) && number(group) => {
            let no_dereference = if texts[0] == "lchown" { &["--no-dereference".into()][..] } else { &[] };
            [&["chown".into()], no_dereference, &[format!("{user}:{group}").into(), words[3].clone()]].concat()
        }
        ["dd", from, to] if !from.starts_with("if=") && !to.starts_with("of=") && !to.starts_with("if=") => {
            let named = |key: &str, word: &OsString| {
                // Both are in the image: a device by its name, or a file.
                let prefix = if word.as_bytes().starts_with(b"/dev/") { "" } else { "image:" };
                let mut text = OsString::from(format!("{key}={prefix}"));
                text.push(word);
                text
            };
            vec!["dd".into(), named("if", &words[1]), named("of", &words[2])]
        }
        ["fsck", kind, _] if !kind.starts_with('-') => vec!["fsck".into(), words[2].clone()],
        ["mkfs", ..] if texts.iter().any(|text| text.starts_with("label:") || text.starts_with("blocksize:")) => {
            let (mut ours, mut own) = (Vec::new(), Vec::new());
            for (text, word) in texts.iter().zip(words) {
                match text.split_once(':') {
                    Some(("label", label)) => ours.extend(["-L".into(), label.into()]),
                    Some(("blocksize", size)) => own.extend(["-b".into(), size.into()]),
                    _ => ours.push(word.clone()),
                }
            }
            let divider = if own.is_empty() { Vec::new() } else { vec!["--".into()] };
            [ours, divider, own].concat()
        }
        _ => words.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<OsString> {
        text.split_whitespace().map(OsString::from).collect()
    }

    #[test]
    fn guestfishs_arguments_become_ours() {
        for (theirs, ours) in [
            ("chown 10 20 /f", "chown 10:20 /f"),
            ("chown root:root /a /b", "chown root:root /a /b"),
            ("dd /dev/sdb /big", "dd if=/dev/sdb of=image:/big"),
            ("dd if=a of=b", "dd if=a of=b"),
            ("mkfs ext4 /dev/sda1 label:root blocksize:1024", "mkfs ext4 /dev/sda1 -L root -- -b 1024"),
            ("mkfs ext4 /dev/sda1", "mkfs ext4 /dev/sda1"),
        ] {
            assert_eq!(as_ours(&words(theirs)), words(ours));
        }
    }
}
