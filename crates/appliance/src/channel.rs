//! The host's end of the serial line: frames, judged.

use crate::error::Cause;
use blockyard_protocol::appliance::{self, FRAME_BYTES_MAX};
use blockyard_protocol::frame::{FrameError, LENGTH_BYTES};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

/// A stream that never makes us wait, and the frame that is coming in on it.
pub(crate) struct Channel {
    stream: UnixStream,
    frame: Vec<u8>,
    filled: usize,
}

impl Channel {
    pub(crate) fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self { stream, frame: vec![0; FRAME_BYTES_MAX], filled: 0 })
    }

    /// A message as it is sent. Ours fails only when it is too long.
    pub(crate) fn encode<M: Serialize>(message: &M) -> Result<Vec<u8>, Cause> {
        let mut buffer = vec![0; FRAME_BYTES_MAX];
        let length = appliance::encode(message, &mut buffer).map_err(|_| Cause::TooLong)?.len();
        buffer.truncate(length);
        Ok(buffer)
    }

    /// Sends what of `frame` can be sent now; what is left.
    pub(crate) fn send<'frame>(&mut self, frame: &'frame [u8]) -> Result<&'frame [u8], Cause> {
        match self.stream.write(frame) {
            Ok(sent) => Ok(&frame[sent..]),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Ok(frame),
            Err(_) => Err(Cause::Ended),
        }
    }

    /// The next message, if all of it has come.
    pub(crate) fn receive<M: DeserializeOwned>(&mut self) -> Result<Option<M>, Cause> {
        if !self.fill(LENGTH_BYTES)? {
            return Ok(None);
        }
        let protocol = |error: FrameError| Cause::Protocol(error.to_string());
        let bytes = appliance::message_bytes([self.frame[0], self.frame[1]]).map_err(protocol)?;
        let end = LENGTH_BYTES + bytes;
        if !self.fill(end)? {
            return Ok(None);
        }
        self.filled = 0;
        appliance::decode(&self.frame[LENGTH_BYTES..end]).map(Some).map_err(protocol)
    }

    /// Whether the first `end` bytes of the frame are there, after reading what has come.
    fn fill(&mut self, end: usize) -> Result<bool, Cause> {
        while self.filled < end {
            match self.stream.read(&mut self.frame[self.filled..end]) {
                Ok(0) => return Err(Cause::Ended),
                Ok(bytes) => self.filled += bytes,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Err(Cause::Ended),
            }
        }
        Ok(true)
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use blockyard_protocol::appliance::Response;

    #[test]
    fn what_is_no_message_is_an_error_and_a_part_of_one_is_nothing_yet() {
        let (near, mut far) = UnixStream::pair().unwrap();
        let mut channel = Channel::new(near).unwrap();
        let sent = Response { number: 7, ..Response::default() };
        let frame = Channel::encode(&sent).unwrap();
        far.write_all(&frame[..1]).unwrap();
        assert!(channel.receive::<Response>().unwrap().is_none());
        far.write_all(&frame[1..]).unwrap();
        assert_eq!(channel.receive::<Response>().unwrap(), Some(sent));
        far.write_all(&[0, 0]).unwrap();
        assert!(matches!(channel.receive::<Response>(), Err(Cause::Protocol(_))));
        drop(far);
    }

    #[test]
    fn a_guest_that_hangs_up_has_ended() {
        let (near, far) = UnixStream::pair().unwrap();
        let mut channel = Channel::new(near).unwrap();
        drop(far);
        assert!(matches!(channel.receive::<Response>(), Err(Cause::Ended)));
        assert!(matches!(channel.send(&[1, 2, 3]), Err(Cause::Ended)));
    }

    /// What a channel makes of bytes that come in pieces: messages, and perhaps what is wrong.
    fn received(pieces: &[&[u8]]) -> (Vec<Response>, Option<String>) {
        let (near, mut far) = UnixStream::pair().unwrap();
        let (mut channel, mut messages) = (Channel::new(near).unwrap(), Vec::new());
        for piece in pieces {
            far.write_all(piece).unwrap();
            loop {
                match channel.receive() {
                    Ok(Some(message)) => messages.push(message),
                    Ok(None) => break,
                    Err(cause) => return (messages, Some(cause.to_string())),
                }
            }
        }
        (messages, None)
    }

    #[test]
    fn fuzz_any_agent_gives_messages_or_an_error_whatever_the_pieces() {
        blockyard_fuzz::check!(10_000).with_type::<(Vec<u8>, Vec<u8>)>().for_each(|(bytes, lengths)| {
            let (mut left, mut pieces) = (&bytes[..], Vec::new());
            for &length in lengths {
                let (piece, rest) = left.split_at(left.len().min(usize::from(length)));
                pieces.push(piece);
                left = rest;
            }
            pieces.push(left);
            assert_eq!(received(&pieces), received(&[bytes]));
        });
    }
}
