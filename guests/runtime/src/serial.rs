//! The serial ports: frames on COM1, text on COM2. Whatever is sent goes in one exit.

use crate::port;
use blockyard_protocol::frame::{
    self, FrameError, GUEST_FRAME_BYTES_MAX, HOST_FRAME_BYTES_MAX, LENGTH_BYTES, message_bytes,
};
use blockyard_protocol::layout::{COM1_PORT, COM2_PORT};
use blockyard_protocol::messages::GuestMessage;
use core::fmt::{self, Write};
use core::hint;
use micropb::MessageDecode;

/// The 16550's line status register, and the bit in it that says that there is something to receive.
const LINE_STATUS: u16 = 5;
const DATA_READY: u8 = 1;
/// How often to look for a frame that does not come: the VMM has it ready when it is due.
const RECEIVE_ATTEMPTS: u32 = 10_000;
/// Bytes in a line of text, its end included.
const LINE_BYTES_MAX: usize = 256;

/// Sends a frame.
pub fn send(message: &GuestMessage) {
    // The buffer holds any of our messages, and none is empty: protocol asserts it.
    if let Ok(frame) = frame::encode(message, &mut [0; GUEST_FRAME_BYTES_MAX]) {
        port::write_bytes(COM1_PORT, frame);
    }
}

/// Why there is no frame from the VMM.
#[derive(Clone, Copy, Debug)]
pub enum ReceiveError {
    /// The VMM sends none.
    Nothing,
    /// The VMM sends something else.
    Frame(FrameError),
}

impl fmt::Display for ReceiveError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => formatter.write_str("the VMM sent no frame"),
            Self::Frame(error) => write!(formatter, "the VMM sent {error}"),
        }
    }
}

/// Receives a frame into `message`, which should be new.
///
/// # Errors
/// When the VMM sends none, or no such one.
pub fn receive<M: MessageDecode>(message: &mut M) -> Result<(), ReceiveError> {
    let mut attempts = RECEIVE_ATTEMPTS;
    while port::read8(COM1_PORT + LINE_STATUS) & DATA_READY == 0 {
        attempts = attempts.checked_sub(1).ok_or(ReceiveError::Nothing)?;
        hint::spin_loop();
    }
    let mut length = [0; LENGTH_BYTES];
    port::read_bytes(COM1_PORT, &mut length);
    let bytes = message_bytes(length, HOST_FRAME_BYTES_MAX).map_err(ReceiveError::Frame)?;
    let mut body = [0; HOST_FRAME_BYTES_MAX];
    port::read_bytes(COM1_PORT, &mut body[..bytes]);
    frame::decode(&body[..bytes], message).map_err(ReceiveError::Frame)
}

/// Sends a line of text for people, cut where it is too long. [`debug!`](crate::debug) calls it.
pub fn write_line(arguments: fmt::Arguments<'_>) {
    let mut line = Line { bytes: [0; LINE_BYTES_MAX], filled: 0 };
    // A line that is full is cut, and that is all.
    _ = line.write_fmt(arguments);
    line.bytes[line.filled] = b'\n';
    port::write_bytes(COM2_PORT, &line.bytes[..=line.filled]);
}

/// Sends a line of text for people, formatted as by `format!`.
#[macro_export]
macro_rules! debug {
    ($($arguments:tt)*) => {
        $crate::serial::write_line(::core::format_args!($($arguments)*))
    };
}

struct Line {
    bytes: [u8; LINE_BYTES_MAX],
    /// Less than the whole: there is always room for the end.
    filled: usize,
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = LINE_BYTES_MAX - 1 - self.filled;
        let taken = &text.as_bytes()[..text.len().min(room)];
        self.bytes[self.filled..self.filled + taken.len()].copy_from_slice(taken);
        self.filled += taken.len();
        if taken.len() < text.len() { Err(fmt::Error) } else { Ok(()) }
    }
}
