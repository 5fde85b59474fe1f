//! Messages of vhost-user clients: crates/session/src/server/message.rs says what the bytes are.

use super::{Corpus, Seed};

pub(super) fn corpora() -> [Corpus; 1] {
    [Corpus {
        source: "crates/session/src/server/message/tests.rs",
        function: "fuzz_any_bytes_are_a_request_or_an_error",
        modules: "server__message__tests",
        seeds: messages(),
    }]
}

/// A header with these three words, as many descriptors, and the payload.
fn message(request: u32, flags: u32, descriptors: u8, payload: &[u64]) -> Seed {
    let payload: Vec<u8> = payload.iter().flat_map(|word| word.to_le_bytes()).collect();
    let header = Seed::default().u32(request).u32(flags).u32(payload.len() as u32);
    header.u8(descriptors).vector(&payload)
}

fn messages() -> Vec<(&'static str, Seed)> {
    vec![
        ("get-features", message(1, 1, 0, &[])),
        ("a-reply-as-a-request", message(1, 5, 0, &[])),
        ("version-2", message(1, 2, 0, &[])),
        ("longer-than-any-message", Seed::default().u32(1).u32(1).u32(u32::MAX).u8(0).vector(&[])),
        ("memory-table-of-one-region", message(5, 1, 1, &[1, 0x1000, 0x1000, 0, 0])),
        ("memory-table-without-its-descriptor", message(5, 1, 0, &[1, 0x1000, 0x1000, 0, 0])),
        ("memory-table-of-nine-regions", message(5, 1, 8, &[9])),
        ("memory-table-cut-short", message(5, 1, 2, &[2, 0x1000, 0x1000, 0, 0])),
        ("rings-without-the-last-address", message(9, 1, 0, &[0, 0x1000, 0x2000])),
        ("kick", message(12, 1, 1, &[0])),
        ("kick-without-a-descriptor", message(12, 1, 0, &[0x100])),
        ("call-with-two-descriptors", message(13, 1, 2, &[0])),
        ("enabled-twice-over", message(18, 1, 0, &[2 << 32])),
        ("configuration", message(24, 9, 0, &[8 << 32, 0, 0])),
        ("configuration-past-its-window", message(24, 1, 0, &[1 << 32 | 256, 0])),
        ("configuration-whose-end-wraps-around", message(24, 1, 0, &[u64::MAX, 0])),
        ("in-flight-area", message(32, 1, 1, &[0x1000, 0, 64 << 16 | 1])),
        ("region-more", message(37, 1, 1, &[0, 0x1000, 0x1000, 0, 0])),
        ("unknown-with-descriptors", message(999, 9, 3, &[1])),
    ]
}
