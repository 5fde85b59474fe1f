//! Frames between VMM and copy guest: crates/protocol/messages.proto says what the bytes are.

use super::{Corpus, Seed};

const SOURCE: &str = "crates/protocol/src/frame.rs";
const MODULES: &str = "frame__tests";

/// Field 3 of GuestMessage: 5120 of 10240 bytes.
const PROGRESS: &[u8] = &[0x1a, 6, 0x08, 0x80, 0x28, 0x10, 0x80, 0x50];
/// Field 5: 5120 bytes in 3 requests.
const COMPLETE: &[u8] = &[0x2a, 5, 0x08, 0x80, 0x28, 0x10, 3];
/// Field 1, with nothing in it: the guest has started.
const STARTED: &[u8] = &[0x0a, 0];

pub(super) fn corpora() -> [Corpus; 2] {
    [
        Corpus {
            source: SOURCE,
            function: "fuzz_any_bytes_in_any_pieces_neither_panic_nor_differ",
            modules: MODULES,
            seeds: pieces(),
        },
        Corpus {
            source: SOURCE,
            function: "fuzz_what_decodes_encodes_to_what_decodes_the_same",
            modules: MODULES,
            seeds: bodies(),
        },
    ]
}

fn frame(body: &[u8]) -> Vec<u8> {
    [&(body.len() as u16).to_le_bytes(), body].concat()
}

/// Bytes on the line, and the lengths less one of the pieces that they come in; what is left comes byte by byte.
fn pieces() -> Vec<(&'static str, Seed)> {
    let seed = |bytes: &[u8], pieces: &[u8]| Seed::default().vector(bytes).vector(pieces);
    let conversation = [frame(STARTED), frame(PROGRESS), frame(COMPLETE)].concat();
    let good_then_empty = [frame(PROGRESS), frame(&[]), frame(COMPLETE)].concat();
    vec![
        ("nothing", seed(&[], &[])),
        ("conversation-byte-by-byte", seed(&conversation, &[])),
        ("conversation-at-once", seed(&conversation, &[63])),
        ("cut-between-the-bytes-of-a-length", seed(&conversation, &[4, 9])),
        ("empty-frame", seed(&frame(&[]), &[])),
        ("good-then-empty-frame", seed(&good_then_empty, &[63])),
        ("longest-length-unfinished", seed(&[0xfe, 0x03, 0x0a, 0], &[])),
        ("length-one-too-many", seed(&[0xff, 0x03, 0x0a, 0], &[])),
        ("length-of-16-bits", seed(&[0xff, 0xff], &[1])),
        ("field-that-is-not-known", seed(&frame(&[0x78, 1]), &[])),
        ("undecodable-then-good", seed(&[frame(&[0]), frame(COMPLETE)].concat(), &[63])),
        ("ends-inside-a-message", seed(&frame(COMPLETE)[..6], &[])),
    ]
}

/// Messages without their length.
fn bodies() -> Vec<(&'static str, Seed)> {
    // A DeviceConfig: "a", 512 bytes a sector, at 0x1000_0000, one queue, zeroed.
    let device = &[0x0a, 14, 0x0a, 1, b'a', 0x10, 0x80, 4, 0x18, 0x80, 0x80, 0x80, 0x80, 1, 0x28, 1];
    let settings = &[0x10, 5, 0x18, 0x80, 0x80, 0x40, 0x20, 0x80, 0x20, 0x28, 8, 0x38, 1];
    let seed = |body: &[u8]| Seed::default().bytes(body);
    let minus_one = [&[0x08][..], &[0xff; 9], &[1]].concat();
    vec![
        ("nothing", seed(&[])),
        ("started", seed(STARTED)),
        ("progress", seed(PROGRESS)),
        ("complete", seed(COMPLETE)),
        ("capacity", seed(&[0x12, 13, 0x0a, 5, b'i', b'n', b'p', b'u', b't', 0x10, 0x80, 8, 0x18, 0x80, 4])),
        ("error", seed(&[0x22, 11, 0x08, 3, 0x12, 1, b'o', 0x18, 7, 0x20, 1, 0x2a, 0])),
        ("error-whose-text-is-no-utf-8", seed(&[0x22, 4, 0x2a, 2, 0xc3, 0x28])),
        ("error-whose-device-is-33-bytes", seed(&[&[0x22, 35, 0x12, 33][..], &[b'd'; 33]].concat())),
        ("two-messages-in-one", seed(&[PROGRESS, COMPLETE].concat())),
        ("the-same-message-twice", seed(&[PROGRESS, PROGRESS].concat())),
        ("stage-minus-one", seed(&[&[0x0a, 11][..], &minus_one].concat())),
        ("number-of-eleven-bytes", seed(&[&[0x1a, 12, 0x08][..], &[0x80; 10], &[1]].concat())),
        ("inner-longer-than-outer", seed(&[0x22, 2, 0x2a, 200])),
        ("field-number-0", seed(&[0x00, 0])),
        ("group", seed(&[0x0b, 0x0c])),
        ("number-where-a-message-belongs", seed(&[0x18, 1])),
        ("config-of-two-devices", seed(&[&device[..], device, settings].concat())),
        ("config-of-nine-devices", seed(&[0x0a, 0].repeat(9))),
    ]
}
