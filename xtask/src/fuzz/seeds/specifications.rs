//! Disk specifications, and choices of the pieces that they are made of.

use super::{Corpus, Seed};

const SOURCE: &str = "crates/block/src/specification/tests.rs";
const MODULES: &str = "specification__tests";

pub(super) fn corpus() -> Corpus {
    Corpus {
        source: SOURCE,
        function: "fuzz_any_text_is_refused_or_written_back_the_same",
        modules: MODULES,
        seeds: texts(),
    }
}

/// At most 64 bytes each.
fn texts() -> Vec<(&'static str, Seed)> {
    let seed = |text: &[u8]| Seed::default().vector(text);
    vec![
        ("nothing", seed(b"")),
        ("comma", seed(b",")),
        ("file", seed(b"disk.img")),
        ("image-with-keys", seed(b"a.img,format=qcow2,ro,direct,engine=sync,block-size=4K")),
        ("device-with-a-partition", seed(b"/dev/nvme0n1,partition=8,table=gpt")),
        ("session", seed(b"session:/run/a.sock,io-buffer=128K")),
        ("memory", seed(b"mem:1G,iops=500,bps=100M,burst=2s")),
        ("null-of-the-largest-size", seed(b"null:9223372036854710272")),
        ("size-one-too-many", seed(b"mem:18446744073709551616")),
        ("faults", seed(b"a,faults=read-error:0.01+latency:5ms-1s+lost-write:3rd+seed:7")),
        ("faults-of-ranges", seed(b"a,latency=1us,faults=torn-write:1M-2M+full:0")),
        ("faults-that-end-in-plus", seed(b"a,faults=error:1+")),
        ("commas-in-the-path", seed(b",,a,,,,b,,,ro")),
        ("commas-in-a-value", seed(b"a,overlay=,,b,,")),
        ("commas-in-a-key", seed(b"a,r,,o")),
        ("comma-at-the-end", seed(b"a,ro,")),
        ("colon-in-the-name", seed(b"file:a:b")),
        ("colon-behind-a-slash", seed(b"./a:b")),
        ("kind-with-a-comma", seed(b"fi,,le:a")),
        ("kind-that-is-not-known", seed(b"nbd:localhost")),
        ("kind-alone", seed(b"session:")),
        ("key-twice", seed(b"a,ro,ro")),
        ("key-alone", seed(b"a,format")),
        ("value-empty", seed(b"a,overlay=")),
        ("value-with-an-equals-sign", seed(b"a,overlay=b=c")),
        ("contradiction", seed(b"a,overlay=b,snapshot")),
        ("letters-of-two-bytes", seed("f\u{fc}r,\u{df}=\u{fc}".as_bytes())),
        ("no-utf-8", seed(b"a\xff\xfe,\xc3")),
        ("control-characters", seed(b"a\x1b[2J\n,\0=\r")),
    ]
}
