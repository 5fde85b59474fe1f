//! What mediator and driver say to each other: one JSON object in one datagram, with at most one descriptor beside it.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::num::NonZeroU32;
use std::ops::Range;

/// Of the messages; both sides are the same program, so there is only one.
pub(super) const VERSION: u32 = 1;
/// Largest datagram.
pub(super) const DATAGRAM_BYTES_MAX: usize = 4096;
/// Most letters of a name.
pub(super) const NAME_LETTERS_MAX: usize = 64;
/// Most letters of a reason: however they are escaped, they fit a datagram.
const REASON_LETTERS_MAX: usize = 400;

/// A client is to be served a part of the disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grant {
    /// Names the session from now on; larger than that of any grant before.
    pub session: u64,
    /// The part of the disk.
    pub range_bytes: Range<u64>,
    /// Whether the client may only read.
    pub read_only: bool,
    /// The client's share of the disk's time, compared with other clients'.
    pub weight: NonZeroU32,
    /// For people.
    pub name: String,
}

/// From the mediator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) enum ToDriver {
    /// All sockets are there.
    Ready { version: u32 },
    /// It cannot begin, or go on.
    Failed { reason: String },
    /// Comes with the client's connection.
    Grant(Grant),
    /// A client is to be served no longer.
    Revoke { session: u64 },
    /// Something that people should know.
    Notice { what: String },
}

/// From the driver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) enum ToMediator {
    /// Comes with a connection to the disk, to read its table through; says whether the disk cannot be written by
    /// anybody.
    Start { version: u32, read_only: bool },
    /// A session is over.
    Ended { session: u64, reason: String },
    /// A grant was not carried out; the client is disconnected.
    Refused { session: u64, reason: String },
}

/// Why a datagram is not understood.
#[derive(Debug, thiserror::Error)]
pub(super) enum MessageError {
    #[error("a message that is not understood")]
    Json(#[from] serde_json::Error),
    #[error("a message of more than {DATAGRAM_BYTES_MAX} bytes")]
    TooLong,
}

pub(super) fn encode<M: Serialize>(message: &M) -> Result<Vec<u8>, MessageError> {
    let bytes = serde_json::to_vec(message)?;
    if bytes.len() > DATAGRAM_BYTES_MAX { Err(MessageError::TooLong) } else { Ok(bytes) }
}

pub(super) fn decode<M: DeserializeOwned>(bytes: &[u8]) -> Result<M, MessageError> {
    if bytes.len() > DATAGRAM_BYTES_MAX {
        return Err(MessageError::TooLong);
    }
    Ok(serde_json::from_slice(bytes)?)
}

/// A text as a reason: short, and without letters that command a terminal.
pub(super) fn reason(text: impl ToString) -> String {
    printable(&text.to_string(), REASON_LETTERS_MAX)
}

/// The first letters of a text, without those that command a terminal.
pub(super) fn printable(text: &str, letters_max: usize) -> String {
    let end = text.char_indices().nth(letters_max).map_or(text.len(), |(end, _)| end);
    blockyard_block::printable(&text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_fits_a_datagram_whatever_it_says() {
        for letter in ["\u{1b}", "\"", "\\", "ä", "😀", "\0"] {
            let ended = ToMediator::Refused { session: u64::MAX, reason: reason(letter.repeat(100_000)) };
            let bytes = encode(&ended).unwrap();
            assert_eq!(decode::<ToMediator>(&bytes).unwrap(), ended);
        }
    }

    #[test]
    fn fuzz_any_datagram_is_understood_or_refused() {
        blockyard_fuzz::check!(100_000).for_each(|bytes: &[u8]| {
            if let Ok(message) = decode::<ToDriver>(bytes) {
                assert_eq!(decode::<ToDriver>(&encode(&message).unwrap()).unwrap(), message);
            }
            if let Ok(message) = decode::<ToMediator>(bytes) {
                assert_eq!(decode::<ToMediator>(&encode(&message).unwrap()).unwrap(), message);
            }
        });
    }
}
