//! Frames on COM1: a 2-byte little-endian length, then that many bytes of one protobuf message.

use crate::messages::{GuestMessage, VmmConfig};
use core::fmt;
use micropb::{MessageDecode, MessageEncode, PbEncoder};

/// Bytes before the message: its length.
pub const LENGTH_BYTES: usize = 2;
/// Most bytes in a frame from the host, length and message.
pub const HOST_FRAME_BYTES_MAX: usize = 8192;
/// Most bytes in a frame from the guest, length and message.
pub const GUEST_FRAME_BYTES_MAX: usize = 1024;

const _: () = {
    const fn fits<M: MessageEncode>(bytes_max: usize) -> bool {
        match M::MAX_SIZE {
            Ok(bytes) => LENGTH_BYTES + bytes <= bytes_max,
            Err(_) => false,
        }
    }
    assert!(HOST_FRAME_BYTES_MAX - LENGTH_BYTES <= u16::MAX as usize, "the length has 16 bits");
    assert!(fits::<VmmConfig>(HOST_FRAME_BYTES_MAX));
    assert!(fits::<crate::messages::Extents>(HOST_FRAME_BYTES_MAX));
    assert!(fits::<GuestMessage>(GUEST_FRAME_BYTES_MAX));
};

/// Why bytes are not a frame, or a message does not become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameError {
    /// A frame without a message.
    Empty,
    /// The length is more than a frame may have.
    TooLong {
        /// Bytes that the frame announces for its message.
        bytes: usize,
        /// Most that a message may have.
        bytes_max: usize,
    },
    /// The message does not fit where it is to go.
    NoRoom {
        /// Most that it may have there.
        bytes_max: usize,
    },
    /// The message is not what it should be.
    Undecodable(&'static str),
}

impl fmt::Display for FrameError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => write!(formatter, "a frame of no bytes"),
            Self::TooLong { bytes, bytes_max } => {
                write!(formatter, "a frame of {bytes} bytes, where {bytes_max} are the most")
            }
            Self::NoRoom { bytes_max } => write!(formatter, "a message of more than {bytes_max} bytes"),
            Self::Undecodable(why) => write!(formatter, "a frame that is not a message: {why}"),
        }
    }
}

impl core::error::Error for FrameError {}

/// Encodes `message` with its length in front into `buffer`, and returns the frame.
///
/// # Errors
/// When the message encodes to no bytes, or to more than `buffer` holds or a length can say.
pub fn encode<'buffer, M: MessageEncode>(message: &M, buffer: &'buffer mut [u8]) -> Result<&'buffer [u8], FrameError> {
    let bytes = message.compute_size();
    let bytes_max = buffer.len().saturating_sub(LENGTH_BYTES).min(u16::MAX as usize);
    if bytes == 0 {
        return Err(FrameError::Empty);
    }
    if bytes > bytes_max {
        return Err(FrameError::TooLong { bytes, bytes_max });
    }
    let (frame, _) = buffer.split_at_mut(LENGTH_BYTES + bytes);
    let (length, body) = frame.split_at_mut(LENGTH_BYTES);
    length.copy_from_slice(&(bytes as u16).to_le_bytes());
    match message.encode(&mut PbEncoder::new(&mut *body)) {
        Ok(()) => Ok(frame),
        Err(()) => Err(FrameError::TooLong { bytes, bytes_max }),
    }
}

/// The message's length that a frame's first bytes announce, judged.
///
/// # Errors
/// When it is zero, or a frame of that length would have more than `frame_bytes_max` bytes.
pub fn message_bytes(length: [u8; LENGTH_BYTES], frame_bytes_max: usize) -> Result<usize, FrameError> {
    let bytes = usize::from(u16::from_le_bytes(length));
    let bytes_max = frame_bytes_max - LENGTH_BYTES;
    match bytes {
        0 => Err(FrameError::Empty),
        _ if bytes > bytes_max => Err(FrameError::TooLong { bytes, bytes_max }),
        _ => Ok(bytes),
    }
}

/// Decodes the message in a frame, which is what follows the length, into `message`, which should be new.
///
/// # Errors
/// When it is not such a message. What `message` holds then means nothing.
pub fn decode<M: MessageDecode>(body: &[u8], message: &mut M) -> Result<(), FrameError> {
    use micropb::DecodeError;
    message.decode_from_bytes(body).map_err(|error| {
        FrameError::Undecodable(match error {
            DecodeError::VarIntLimit => "a number has more than ten bytes",
            DecodeError::UnexpectedEof => "it ends in the middle of a field",
            DecodeError::Deprecation | DecodeError::UnknownWireType => "a field has an unknown wire type",
            DecodeError::ZeroField => "a field has the number 0",
            DecodeError::Utf8 => "a text is not UTF-8",
            DecodeError::Capacity => "a text or a list is longer than it may be",
            DecodeError::WrongLen => "a field is not as long as it says",
            DecodeError::WrongWireType => "a field has a wire type that is not its own",
            _ => "a field cannot be decoded",
        })
    })
}

/// Puts the guest's frames together from whatever pieces they come in.
///
/// The guest is not trusted: its bytes give messages or an error, and after an error nothing but that error.
#[derive(Debug)]
pub struct FrameReader {
    frame: [u8; GUEST_FRAME_BYTES_MAX],
    filled: usize,
    failed: Option<FrameError>,
}

impl Default for FrameReader {
    fn default() -> Self {
        Self::new()
    }
}

impl FrameReader {
    /// A reader at the beginning of a frame.
    pub const fn new() -> Self {
        Self { frame: [0; GUEST_FRAME_BYTES_MAX], filled: 0, failed: None }
    }

    /// Takes bytes from the front of `bytes` up to the end of a frame, and returns its message; `None` when `bytes` is
    /// used up first. Call it until then.
    ///
    /// # Errors
    /// When the bytes are no frame.
    pub fn read(&mut self, bytes: &mut &[u8]) -> Result<Option<GuestMessage>, FrameError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let result = self.read_frame(bytes);
        self.failed = result.as_ref().err().copied();
        result
    }

    /// Whether part of a frame has come, and its rest not.
    pub const fn is_inside_frame(&self) -> bool {
        self.filled > 0
    }

    fn read_frame(&mut self, bytes: &mut &[u8]) -> Result<Option<GuestMessage>, FrameError> {
        if !self.fill(LENGTH_BYTES, bytes) {
            return Ok(None);
        }
        let end = LENGTH_BYTES + message_bytes([self.frame[0], self.frame[1]], GUEST_FRAME_BYTES_MAX)?;
        if !self.fill(end, bytes) {
            return Ok(None);
        }
        self.filled = 0;
        let mut message = GuestMessage::default();
        decode(&self.frame[LENGTH_BYTES..end], &mut message)?;
        match message {
            GuestMessage::None => Err(FrameError::Undecodable("no message that is known is in it")),
            message => Ok(Some(message)),
        }
    }

    /// Whether the frame's first `end` bytes are there, after taking what is missing from `bytes`.
    fn fill(&mut self, end: usize, bytes: &mut &[u8]) -> bool {
        let missing = end.saturating_sub(self.filled).min(bytes.len());
        let (taken, rest) = bytes.split_at(missing);
        self.frame[self.filled..self.filled + missing].copy_from_slice(taken);
        self.filled += missing;
        *bytes = rest;
        self.filled >= end
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::{Complete, Error, Extent, ExtentKind, Extents, GuestOperation, Progress};
    use std::vec::Vec;

    fn frame_of(message: &GuestMessage) -> Vec<u8> {
        encode(message, &mut [0; GUEST_FRAME_BYTES_MAX]).unwrap().to_vec()
    }

    fn read_all(reader: &mut FrameReader, mut bytes: &[u8]) -> Result<Vec<GuestMessage>, FrameError> {
        let mut messages = Vec::new();
        while let Some(message) = reader.read(&mut bytes)? {
            messages.push(message);
        }
        assert!(bytes.is_empty());
        Ok(messages)
    }

    #[test]
    fn messages_come_out_of_any_pieces() {
        let sent = [
            GuestMessage::Progress(Progress { bytes: 5120, total: u64::MAX }),
            GuestMessage::Init(Default::default()),
            GuestMessage::Error(Error {
                operation: GuestOperation::Write,
                device: "output".try_into().unwrap(),
                sector: 7,
                status: 1,
                detail: "no".try_into().unwrap(),
            }),
        ];
        let bytes: Vec<u8> = sent.iter().flat_map(frame_of).collect();
        for piece in 1..=bytes.len() {
            let mut reader = FrameReader::new();
            let received: Vec<_> =
                bytes.chunks(piece).flat_map(|piece| read_all(&mut reader, piece).unwrap()).collect();
            assert_eq!(received, sent, "in pieces of {piece}");
            assert!(!reader.is_inside_frame());
        }
    }

    #[test]
    fn what_is_no_frame_is_an_error_for_good() {
        let cases: [(&[u8], FrameError); 6] = [
            (&[0, 0], FrameError::Empty),
            (&[0xff, 0xff, 1, 2], FrameError::TooLong { bytes: 65535, bytes_max: 1022 }),
            (&[0xff, 0x03], FrameError::TooLong { bytes: 1023, bytes_max: 1022 }),
            (&[2, 0, 0xff, 0xff], FrameError::Undecodable("it ends in the middle of a field")),
            (&[1, 0, 0], FrameError::Undecodable("a field has the number 0")),
            (&[2, 0, 0x78, 1], FrameError::Undecodable("no message that is known is in it")),
        ];
        for (bytes, wanted) in cases {
            let mut reader = FrameReader::new();
            assert_eq!(read_all(&mut reader, bytes), Err(wanted));
            let good = frame_of(&GuestMessage::Complete(Complete { bytes: 1, requests: 1 }));
            assert_eq!(read_all(&mut reader, &good), Err(wanted), "it does not recover");
        }
    }

    #[test]
    fn a_message_that_has_no_room_or_no_bytes_is_not_encoded() {
        let message = Extents { extents: Default::default(), last: true };
        assert_eq!(encode(&message, &mut [0; 3]), Err(FrameError::TooLong { bytes: 2, bytes_max: 1 }));
        assert_eq!(encode(&message, &mut []), Err(FrameError::TooLong { bytes: 2, bytes_max: 0 }));
        assert_eq!(encode(&Extents::default(), &mut [0; 8]), Err(FrameError::Empty));
    }

    #[test]
    fn a_full_frame_of_extents_arrives() {
        let mut sent = Extents { extents: Default::default(), last: true };
        while sent.extents.push(Extent { length: u64::MAX, kind: ExtentKind::Zero }).is_ok() {}
        assert_eq!(sent.extents.len(), 256);
        let mut buffer = [0; HOST_FRAME_BYTES_MAX];
        let frame = encode(&sent, &mut buffer).unwrap();
        let bytes = message_bytes([frame[0], frame[1]], HOST_FRAME_BYTES_MAX).unwrap();
        let mut received = Extents::default();
        decode(&frame[LENGTH_BYTES..LENGTH_BYTES + bytes], &mut received).unwrap();
        assert_eq!(received, sent);
    }

    #[test]
    fn fuzz_any_bytes_in_any_pieces_neither_panic_nor_differ() {
        blockyard_fuzz::check!(100_000).with_type::<(Vec<u8>, Vec<u8>)>().for_each(|(bytes, pieces)| {
            let whole = read_all(&mut FrameReader::new(), bytes);
            let mut reader = FrameReader::new();
            let mut rest = bytes.as_slice();
            let mut pieces = pieces.iter().map(|&piece| 1 + usize::from(piece)).chain(core::iter::repeat(1));
            let mut received = Ok(Vec::new());
            while !rest.is_empty() {
                let (piece, after) = rest.split_at(pieces.next().unwrap().min(rest.len()));
                rest = after;
                match (read_all(&mut reader, piece), &mut received) {
                    (Ok(new), Ok(messages)) => messages.extend(new),
                    (Err(error), Ok(_)) => received = Err(error),
                    (Ok(_), Err(_)) => panic!("it recovered"),
                    (Err(again), Err(error)) => assert_eq!(again, *error),
                }
            }
            assert_eq!(received, whole);
        });
    }

    #[test]
    fn fuzz_what_decodes_encodes_to_what_decodes_the_same() {
        blockyard_fuzz::check!(100_000).for_each(|body: &[u8]| {
            let mut message = GuestMessage::default();
            if decode(body, &mut message).is_ok() && message != GuestMessage::None {
                assert_eq!(read_all(&mut FrameReader::new(), &frame_of(&message)), Ok(std::vec![message]));
            }
            let (mut config, mut again) = (VmmConfig::default(), VmmConfig::default());
            if decode(body, &mut config).is_ok() && config != again {
                let mut buffer = [0; HOST_FRAME_BYTES_MAX];
                let frame = encode(&config, &mut buffer).unwrap();
                decode(&frame[LENGTH_BYTES..], &mut again).unwrap();
                assert_eq!(again, config);
            }
        });
    }

    #[test]
    fn fuzz_messages_go_round() {
        blockyard_fuzz::check!(100_000).with_type::<(u64, u64, u32, u8, std::string::String)>().for_each(
            |(first, second, status, kind, text)| {
                let mut detail = crate::messages::String::new();
                for character in text.chars() {
                    if detail.push(character).is_err() {
                        break;
                    }
                }
                let message = match kind % 3 {
                    0 => GuestMessage::Progress(Progress { bytes: *first, total: *second }),
                    1 => GuestMessage::Complete(Complete { bytes: *first, requests: *second }),
                    _ => GuestMessage::Error(Error {
                        operation: GuestOperation(*status as i32),
                        device: Default::default(),
                        sector: *first,
                        status: *status,
                        detail,
                    }),
                };
                let frame = frame_of(&message);
                assert_eq!(read_all(&mut FrameReader::new(), &frame), Ok(std::vec![message]));
            },
        );
    }
}
