//! What an appliance sends: crates/protocol/appliance.proto says what the bytes are.

use super::{Corpus, Seed};

pub(super) fn corpora() -> [Corpus; 3] {
    [
        Corpus {
            source: "crates/appliance/src/channel.rs",
            function: "fuzz_any_agent_gives_messages_or_an_error_whatever_the_pieces",
            modules: "channel__tests",
            seeds: conversations(),
        },
        Corpus {
            source: "crates/appliance/src/stream/sink.rs",
            function: "fuzz_any_bytes_are_a_stream_or_an_error_whatever_the_pieces",
            modules: "stream__sink__tests",
            seeds: streams(),
        },
        Corpus {
            source: "crates/cli/src/image/records.rs",
            function: "fuzz_any_bytes_are_records_or_an_error_whatever_the_pieces",
            modules: "image__records__tests",
            seeds: listings(),
        },
    ]
}

/// Bytes on the line, and the lengths of the pieces that they come in.
fn conversations() -> Vec<(&'static str, Seed)> {
    let seed = |bytes: &[u8], lengths: &[u8]| Seed::default().vector(bytes).vector(lengths);
    // Response 7, with a failure: errno 5, "/a", "cannot open".
    let failure = [&[0x08, 5, 0x12, 2][..], b"/a", &[0x1a, 11], b"cannot open"].concat();
    let response = [&[0x08, 7, 0x12, failure.len() as u8][..], &failure].concat();
    let frame = [&(response.len() as u16).to_le_bytes()[..], &response].concat();
    vec![
        ("nothing", seed(&[], &[])),
        ("response-in-two-pieces", seed(&frame, &[1])),
        ("two-responses", seed(&[frame.clone(), frame.clone()].concat(), &[40])),
        ("no-message", seed(&[0, 0], &[])),
        ("half-a-response", seed(&frame[..9], &[3, 3])),
        ("text-that-is-no-utf-8", seed(&[6, 0, 0x12, 4, 0x1a, 2, 0xff, 0xfe], &[])),
    ]
}

/// Chunks: bytes, whether it is the last, whether a byte is spoiled and which; then lengths of pieces.
fn streams() -> Vec<(&'static str, Seed)> {
    let chunk = |seed: Seed, bytes: u16, last, spoiled, at: u16| seed.u16(bytes).bool(last).bool(spoiled).u16(at);
    let begin = |chunks: usize| Seed::default().length(chunks);
    vec![
        ("one-chunk-byte-by-byte", chunk(begin(1), 700, true, false, 0).length(2).u16(1).u16(1)),
        ("two-chunks", chunk(chunk(begin(2), 700, false, false, 0), 1, true, false, 0).length(1).u16(513)),
        ("empty-chunk-in-the-middle", chunk(begin(1), 0, false, false, 0).length(0)),
        ("more-than-may-come", chunk(chunk(begin(2), 60_000, false, false, 0), 60_000, true, false, 0).length(0)),
        ("no-mark", chunk(begin(1), 10, true, true, 0).length(0)),
        ("a-chunk-that-is-longer-than-one-may-be", chunk(begin(1), 10, true, true, 7).length(0)),
    ]
}

/// Bodies of frames, then lengths of pieces.
fn listings() -> Vec<(&'static str, Seed)> {
    // Record.entry with a name only; Record.directory; Record.failure.
    let entry = |name: &[u8]| [&[0x0a, name.len() as u8 + 2, 0x0a, name.len() as u8][..], name].concat();
    let directory = |path: &[u8]| [&[0x12, path.len() as u8 + 2, 0x0a, path.len() as u8][..], path].concat();
    let seed = |bodies: &[Vec<u8>], lengths: &[u8]| {
        let begin = Seed::default().length(bodies.len());
        bodies.iter().fold(begin, |seed, body| seed.vector(body)).vector(lengths)
    };
    vec![
        ("directory-with-a-file", seed(&[directory(b"/a"), entry(b"b")], &[1, 1, 5])),
        ("name-with-a-slash", seed(&[entry(b"../evil")], &[])),
        ("name-with-a-zero", seed(&[entry(b"a\0b")], &[])),
        ("name-of-nothing", seed(&[entry(b"")], &[])),
        ("directory-that-is-no-path", seed(&[directory(b"a")], &[])),
        ("failure", seed(&[vec![0x1a, 2, 0x08, 5]], &[2])),
        ("no-record", seed(&[vec![0xff]], &[])),
    ]
}
