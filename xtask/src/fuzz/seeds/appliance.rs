//! What an appliance sends.

use super::{Corpus, Seed};
use blockyard_protocol::appliance::{self, Directory, Entry, Failure, Record, Response};

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
            source: "crates/image/src/guest/records.rs",
            function: "fuzz_any_bytes_are_records_or_an_error_whatever_the_pieces",
            modules: "guest__records__tests",
            seeds: listings(),
        },
    ]
}

/// Bytes on the line, and the lengths of the pieces that they come in.
fn conversations() -> Vec<(&'static str, Seed)> {
    let seed = |bytes: &[u8], lengths: &[u8]| Seed::default().vector(bytes).vector(lengths);
    let failure = Failure { errno: 5, path: b"/a".to_vec(), sentence: "cannot open".into() };
    let mut buffer = [0; 256];
    let response = Response { number: 7, failures: vec![failure], failed: 1, ..Response::default() };
    let frame = appliance::encode(&response, &mut buffer).unwrap().to_vec();
    // Its last letter.
    let letter = frame.iter().rposition(|&byte| byte == b'n').unwrap();
    let no_text = [&frame[..letter], &[0xff], &frame[letter + 1..]].concat();
    vec![
        ("nothing", seed(&[], &[])),
        ("response-in-two-pieces", seed(&frame, &[1])),
        ("two-responses", seed(&[frame.clone(), frame.clone()].concat(), &[40])),
        ("no-message", seed(&[0, 0], &[])),
        ("half-a-response", seed(&frame[..9], &[3, 3])),
        ("text-that-is-no-utf-8", seed(&no_text, &[])),
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
    let body = |record: Record| appliance::encode(&record, &mut [0; 256]).unwrap()[2..].to_vec();
    let entry = |name: &[u8]| body(Record::Entry(Entry { name: name.to_vec(), ..Entry::default() }));
    let directory = |path: &[u8]| body(Record::Directory(Directory { path: path.to_vec(), depth: 0 }));
    let failure = body(Record::Failure(Failure { errno: 5, ..Failure::default() }));
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
        ("failure", seed(&[failure], &[2])),
        ("no-record", seed(&[vec![0xff]], &[])),
    ]
}
