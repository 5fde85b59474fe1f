//! An image that is not where commands expect it.

use super::named_image;
use blockyard_block::specification::Format;
use blockyard_block::{FileFormat, printable, shell_word};
use std::ffi::OsStr;
use std::fs::File;
use std::path::Path;

/// An error of a command that could not begin with `image`, and that another word of the command line looks more like
/// one, if it does.
pub fn explain(error: anyhow::Error, image: &str) -> anyhow::Error {
    let words: Vec<_> = std::env::args_os().collect();
    let after = words.iter().skip_while(|word| *word != image).skip(1);
    match better(image, after.map(|word| word.as_os_str())) {
        Some(better) => error.context(format!("IMAGE comes first, and {better}")),
        None => error,
    }
}

/// An error of reading a script that looks more like an image, if it does.
pub fn explain_script(error: anyhow::Error, script: &Path) -> anyhow::Error {
    if !looks_like_an_image(script) {
        return error;
    }
    let word = shell_word(&script.to_string_lossy());
    error.context(format!("the script comes first, and {word} looks more like an image"))
}

fn better<'a>(image: &str, words: impl Iterator<Item = &'a OsStr>) -> Option<String> {
    let file = Path::new(image.split(',').next().unwrap_or_default());
    if !file.exists() && (image.starts_with("if=") || image.starts_with("of=")) {
        return Some(format!("{} is an operand", printable(image)));
    }
    // Then something else is wrong with it than its place.
    if says_more_than_a_file(image) || is_named_like_an_image(file) || looks_like_an_image(file) {
        return None;
    }
    let mut others = words.filter(|word| looks_like_an_image(Path::new(word)));
    others.next().map(|word| {
        let word = shell_word(&word.to_string_lossy());
        format!("{word} looks more like one than {}", shell_word(image))
    })
}

/// Whether a word is a disk by the way that it is written: of a kind that it says, or with keys.
fn says_more_than_a_file(word: &str) -> bool {
    named_image::parse(word, None).is_ok_and(|named| named.path() != Some(Path::new(word)))
}

fn is_named_like_an_image(path: &Path) -> bool {
    let is_raw = path.extension().is_some_and(|end| end == "img" || end == "raw");
    is_raw || FileFormat::of_name(path).is_some_and(|format| format.word.parse::<Format>().is_ok())
}

/// By its beginning, or else by its name: only for advice, nothing is opened by this.
fn looks_like_an_image(path: &Path) -> bool {
    path.is_file()
        && (is_named_like_an_image(path) || File::open(path).is_ok_and(|file| FileFormat::is_of_disks(&file)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_word_is_named_if_it_looks_more_like_an_image() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
        std::fs::write(path("notes"), "text").unwrap();
        std::fs::write(path("a.img"), "").unwrap();
        std::fs::write(path("disk"), [&[0; 510][..], b"\x55\xaa"].concat()).unwrap();
        let told = |image: &str, word: &str| better(image, [OsStr::new(word)].into_iter());
        for image in ["a.img", "disk"] {
            assert!(told(&path("notes"), &path(image)).unwrap().contains(&path(image)));
            assert_eq!(told(&path(image), &path("notes")), None);
            assert_eq!(told(&path("notes"), "/"), None);
        }
        // A source may be named like an image, or be one.
        for image in ["a.img,ro", "notes,ro", "missing.qcow2", "disk,partition=1"] {
            assert_eq!(told(&path(image), &path("a.img")), None, "{image}");
        }
        for image in ["session:p1.sock", "mem:1G", &format!("file:{}", path("notes"))] {
            assert_eq!(told(image, &path("a.img")), None, "{image}");
        }
        assert!(told(&path("missing"), &path("a.img")).is_some());
        assert!(told("if=a", "of=b").unwrap().contains("if=a is an operand"));
        assert_eq!(told("missing", "of=b"), None);
    }
}
