//! What the other end of a session says: crates/session/src/server/message.rs has the messages of vhost-user clients,
//! and each target's source says what its steps are.

use super::{Corpus, Seed};

pub(super) fn corpora() -> [Corpus; 3] {
    [
        Corpus {
            source: "crates/session/src/server/message/tests.rs",
            function: "fuzz_any_bytes_are_a_request_or_an_error",
            modules: "server__message__tests",
            seeds: messages(),
        },
        Corpus {
            source: "crates/session/src/mediator/driver/tests.rs",
            function: "fuzz_a_mediator_cannot_grant_what_it_must_not",
            modules: "mediator__driver__tests",
            seeds: grants(),
        },
        Corpus {
            source: "crates/session/tests/client/hostile.rs",
            function: "fuzz_a_hostile_server_neither_hangs_nor_confuses_the_client",
            modules: "hostile",
            seeds: servers(),
        },
    ]
}

const STEPS: u16 = 7;

/// A grant of so many blocks of 4 KiB from a block on, for a session whose number is `step` above the last one's.
fn grant(seed: Seed, step: u8, start: u8, length: u8, read_only: bool) -> Seed {
    seed.choice(0, STEPS).u8(step).u8(start).u8(length).bool(read_only).u8(1).bool(true)
}

fn any_grant(seed: Seed, start: u64, end: u64) -> Seed {
    seed.choice(1, STEPS).u64(1).u64(start).u64(end).bool(true)
}

fn grants() -> Vec<(&'static str, Seed)> {
    let ready = |steps: usize| Seed::default().length(steps + 1).choice(5, STEPS);
    let revoked = |seed: Seed, session| seed.choice(2, STEPS).u8(session);
    vec![
        ("written-by-one-and-read-by-another", grant(grant(ready(2), 1, 0, 2, false), 1, 1, 1, true)),
        ("written-by-two", grant(grant(ready(2), 1, 0, 2, false), 1, 1, 1, false)),
        ("read-by-two", grant(grant(ready(2), 1, 0, 2, true), 1, 1, 1, true)),
        ("written-again-after-it-was-revoked", grant(revoked(grant(ready(3), 1, 0, 2, false), 1), 1, 0, 2, false)),
        ("the-same-session-twice", grant(grant(ready(2), 1, 0, 2, true), 0, 4, 2, true)),
        ("nothing", grant(ready(1), 1, 4, 0, true)),
        ("past-the-end", grant(ready(1), 1, 255, 15, true)),
        ("backwards", any_grant(ready(1), 8192, 4096)),
        ("half-a-block", any_grant(ready(1), 100, 200)),
        ("to-the-end-of-all-numbers", any_grant(ready(1), 4096, u64::MAX)),
    ]
}

/// A server with a good configuration that says and does this when it is asked for the first time.
fn server(word: u8, deed: u8, value: u16) -> Seed {
    const PROPERLY: u8 = 31;
    // The first byte would spoil the configuration if it were a multiple of four.
    let good = Seed::default().bytes(&[1; 16]).u64(0).u64(0);
    let first = good.length(2).u8(PROPERLY).u16(0).u8(word).u16(value);
    first.length(2).u8(deed).u16(value).u8(PROPERLY).u16(0)
}

fn servers() -> Vec<(&'static str, Seed)> {
    const PROPERLY: u8 = 31;
    vec![
        ("silent", server(0, PROPERLY, 0)),
        ("hangs-up", server(1, PROPERLY, 0)),
        ("refuses", server(2, PROPERLY, 0)),
        ("says-noise", server(3, PROPERLY, 0x1234)),
        ("answers-something-else", server(4, PROPERLY, 7)),
        ("sends-descriptors", server(5, PROPERLY, 0)),
        ("used-index-far-ahead", server(PROPERLY, 0, 0x8000)),
        ("completes-what-is-not-in-flight", server(PROPERLY, 1, 60)),
        ("completes-what-cannot-be", server(PROPERLY, 2, 0xffff)),
        ("completes-twice", server(PROPERLY, 3, 0)),
        ("never-completes", server(PROPERLY, 4, 0)),
        ("hangs-up-over-a-request", server(PROPERLY, 5, 0)),
        ("a-status-that-is-none", server(PROPERLY, 6, 0xee)),
        ("writes-over-the-descriptors", server(PROPERLY, 8, 0xff)),
    ]
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
