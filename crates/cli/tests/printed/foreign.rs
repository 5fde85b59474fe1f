//! What somebody else has written into an image's header, a partition table or a file's name commands no terminal, and
//! does nothing when it is pasted into a shell.

use crate::support::{Outcome, Yard, blockyard, run};
use std::fs;
use std::path::Path;

/// As many letters as each hostile text has.
const HARMLESS: &str = "base-base-base-base-base-base-base-base";
/// Colours, the title, the screen; another sentence of ours; another direction; what a shell would run.
const HOSTILE: [&str; 4] = [
    "\u{1b}[2J\u{1b}[1;1H\u{1b}]0;x\u{7}base-base-base-base-bas",
    "x\nblockyard: all is well\r\nblockyard: no-no",
    "x\u{202e}gpj.esab\u{9b}2J\u{85}base-base-base-base-ba",
    "$(touch pasted);`touch pasted`;'&touch pa",
];

fn image(yard: &Yard, words: &[&str]) -> Outcome {
    run(blockyard().current_dir(yard.path("")).arg("image").args(words))
}

/// A qcow2 image whose header names a backing file; `format` too, or not.
fn with_backing(yard: &Yard, name: &str, format: bool) {
    image(yard, &["create", "-q", "-u", "-b", HARMLESS, "-F", "raw", "top.qcow2", "1M"]).succeeded();
    let path = yard.path("top.qcow2");
    let mut bytes = fs::read(&path).unwrap();
    let at = find(&bytes, HARMLESS.as_bytes());
    let name = &name.as_bytes()[..name.len().min(HARMLESS.len())];
    let name = String::from_utf8_lossy(name);
    let name = format!("{:-<width$}", name.trim_end_matches('\u{fffd}'), width = HARMLESS.len());
    bytes[at..at + HARMLESS.len()].copy_from_slice(&name.as_bytes()[..HARMLESS.len()]);
    if !format {
        // The header extension for a backing file's format, made one that nobody knows (docs/interop/qcow2.txt of
        // QEMU).
        let at = find(&bytes, &0xe279_2aca_u32.to_be_bytes());
        bytes[at..at + 4].copy_from_slice(&0x7fff_fff0_u32.to_be_bytes());
    }
    fs::write(path, bytes).unwrap();
}

fn find(bytes: &[u8], wanted: &[u8]) -> usize {
    bytes.windows(wanted.len()).position(|window| window == wanted).unwrap()
}

#[track_caller]
fn is_harmless(outcome: &Outcome, what: &str) {
    let bad =
        |letter: char| (letter.is_control() && !"\n\t".contains(letter)) || ('\u{202a}'..='\u{202e}').contains(&letter);
    for text in [&outcome.stdout, &outcome.stderr] {
        assert!(!text.contains(bad), "{what}: {text:?}");
        assert!(!text.contains("\nblockyard: all is well"), "{what}: {text:?}");
    }
    assert!(!outcome.stderr.contains("thread '"), "{what}: {outcome:?}");
}

#[test]
fn names_out_of_headers_are_harmless() {
    let yard = Yard::new();
    for hostile in HOSTILE {
        for format in [true, false] {
            with_backing(&yard, hostile, format);
            for words in [
                &["image", "info", "top.qcow2"][..],
                &["image", "info", "--json", "top.qcow2"],
                &["image", "info", "--backing-chain", "top.qcow2"],
                &["image", "check", "top.qcow2"],
                &["image", "map", "top.qcow2"],
                &["image", "map", "--output", "json", "top.qcow2"],
                &["image", "ls", "top.qcow2"],
                &["image", "convert", "top.qcow2", "out.img"],
                &["image", "measure", "top.qcow2"],
                &["image", "compare", "top.qcow2", "top.qcow2,ro"],
                &["image", "commit", "top.qcow2"],
                &["partitions", "top.qcow2"],
                &["copy", "top.qcow2", "out.img"],
                &["bench", "disk", "top.qcow2"],
                &["serve", "top.qcow2", "--socket", "s"],
            ] {
                let outcome = run(blockyard().current_dir(yard.path("")).args(words));
                is_harmless(&outcome, &format!("{words:?} with {hostile:?}"));
            }
        }
    }
}

/// What JSON says is what is in the image, letter for letter.
#[test]
fn json_is_exact() {
    let yard = Yard::new();
    for hostile in HOSTILE {
        with_backing(&yard, hostile, true);
        let outcome = image(&yard, &["info", "--json", "top.qcow2"]).succeeded();
        let name = outcome.json()["backing-filename"].as_str().unwrap().to_owned();
        let begin: String = hostile.chars().take(9).collect();
        assert!(name.starts_with(&begin), "{name:?}");
    }
}

/// What is advised can be pasted.
#[test]
fn advice_does_what_it_says_and_nothing_else() {
    let yard = Yard::new();
    with_backing(&yard, HOSTILE[3], false);
    let said = image(&yard, &["map", "top.qcow2"]).failed(1, &["blockyard image rebase -u -F raw -b "]).stderr;
    let start = said.find("blockyard image rebase").unwrap();
    let command = &said[start..said[start..].find(", or").unwrap() + start];
    let mut shell = std::process::Command::new("bash");
    let blockyard = Path::new(env!("CARGO_BIN_EXE_blockyard"));
    shell.current_dir(yard.path("")).arg("-c").arg(format!("{}{}", blockyard.display(), &command["blockyard".len()..]));
    let done = shell.output().unwrap();
    assert!(done.status.success(), "{command}: {}", String::from_utf8_lossy(&done.stderr));
    assert!(!yard.path("pasted").exists(), "{command}");
    let names = image(&yard, &["info", "--json", "top.qcow2"]).succeeded().json();
    assert!(names["backing-filename"].as_str().unwrap().starts_with("$(touch pasted);`"), "{names}");
}

/// Names of files that the user gives, but did not choose: `blockyard image info *` in somebody's directory.
#[test]
fn names_of_files_are_harmless() {
    let yard = Yard::new();
    for hostile in ["\u{1b}[2J.img", "x\u{9b}2J.qcow2", "--\u{1b}]0;x\u{7}", "\u{202e}gmi.img"] {
        for words in [
            &["image", "info"][..],
            &["image", "check"],
            &["image", "ls"],
            &["partitions"],
            &["copy", "a"],
            &[],
            &["image"],
        ] {
            let outcome = run(blockyard().current_dir(yard.path("")).args(words).arg(hostile));
            is_harmless(&outcome, &format!("{words:?} {hostile:?}"));
        }
    }
}

/// A line that says what was done is one line, whatever is written.
#[test]
fn what_was_done_is_told_in_one_line() {
    let yard = Yard::new();
    fs::write(yard.path("a.img"), [1; 4096]).unwrap();
    for words in [["convert", "a.img", "b\nc.qcow2"], ["dd", "if=a.img", "of=b\nc.img"]] {
        let outcome = image(&yard, &words).succeeded();
        is_harmless(&outcome, words[0]);
        assert_eq!(outcome.stdout.lines().count(), 1, "{}", outcome.stdout);
        assert!(yard.path(words[2].trim_start_matches("of=")).exists());
    }
}
