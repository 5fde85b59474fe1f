//! What nobody can read has not been said.

use crate::support::{Outcome, Yard, blockyard, run};
use std::fs::File;
use std::process::{Command, Stdio};

/// A command without a stdout.
fn closed(yard: &Yard, words: &str) -> Outcome {
    let mut shell = Command::new("sh");
    shell.args(["-c", "exec \"$0\" \"$@\" >&-", env!("CARGO_BIN_EXE_blockyard")]).args(words.split(' '));
    run(shell.current_dir(yard.path("")).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()))
}

fn full(yard: &Yard, words: &str) -> Outcome {
    let device = File::options().write(true).open("/dev/full").unwrap();
    run(blockyard().current_dir(yard.path("")).args(words.split(' ')).stdout(device))
}

/// As coreutils have it: a command that prints a result fails when it cannot, and one that has nothing to say does not.
#[test]
fn a_command_whose_result_cannot_be_printed_fails() {
    let yard = Yard::new();
    File::create(yard.path("disk.img")).unwrap().set_len(1 << 20).unwrap();
    for words in [
        "partitions disk.img",
        "image info disk.img",
        "image info --json disk.img",
        "image map disk.img",
        "image map --json disk.img",
        "image measure disk.img",
        "image compare disk.img disk.img",
        "image create new.img 1M",
        "image convert disk.img new.img",
        "image --help",
        "--version",
    ] {
        for outcome in [closed(&yard, words), full(&yard, words)] {
            assert_eq!(outcome.code, Some(if words.contains("compare") { 2 } else { 1 }), "{words}: {outcome:?}");
            assert!(outcome.stderr.contains("cannot write the output"), "{words}: {outcome:?}");
        }
        assert!(closed(&yard, words).stderr.contains(": stdout is closed"), "{words}");
    }
    for words in ["image create -q new.img 1M", "image convert -q disk.img new.img"] {
        for outcome in [closed(&yard, words), full(&yard, words)] {
            assert_eq!(outcome.succeeded().stderr, "", "{words}");
        }
    }
}

/// Who gives /dev/null as a stdout, in whatever way it is open, wants to hear nothing.
#[test]
fn a_stdout_that_nobody_reads_is_one() {
    for how in [">", "<>"] {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("exec \"$0\" --version 1{how}/dev/null"), env!("CARGO_BIN_EXE_blockyard")]);
        run(shell.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped())).succeeded();
    }
}
