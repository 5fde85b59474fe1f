//! Recorded workloads: crates/bench/src/disk/replay.rs says what their lines are.

use super::{Corpus, Seed};

pub(super) fn corpus() -> Corpus {
    let seed = |text: &str| Seed::default().bytes(text.as_bytes());
    Corpus {
        source: "crates/bench/src/disk/replay.rs",
        function: "fuzz_any_file_is_a_replay_or_an_error_with_its_line",
        modules: "disk__replay__tests",
        seeds: vec![
            ("nothing", seed("")),
            ("every-operation", seed("read 0 512\nwrite 4096 0x1000\nflush\ndiscard 0 512\nzero 512 512\n")),
            ("comments-and-empty-lines", seed("# recorded\n\n  \nread 0 512 # the first\n")),
            ("line-ends-of-another-system", seed("read 0 512\r\nflush\r\n")),
            ("without-an-end-of-line", seed("read 0 512\nflush")),
            ("largest-numbers", seed("read 18446744073709551615 0xffffffffffffffff\n")),
            ("number-too-large", seed("flush\nread 0 18446744073709551616\n")),
            ("signs", seed("read +0 -512\n")),
            ("zero-length", seed("write 0 0\n")),
            ("word-too-many", seed("read 0 512 1\n")),
            ("no-such-operation", seed("trim 0 512\n")),
            ("not-text", Seed::default().bytes(b"read 0 512\n\xff\xfe\n")),
            ("line-too-long", seed(&"read ".repeat(300))),
        ],
    }
}
