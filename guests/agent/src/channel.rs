//! The serial line to the host: frames, one message each.

use blockyard_protocol::appliance::{self, FRAME_BYTES_MAX, MORE, PIECE_BYTES, Response};
use blockyard_protocol::frame::LENGTH_BYTES;
use rustix::termios::{OptionalActions, tcgetattr, tcsetattr};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::Path;

/// The first that is there is the host's line: a virtual machine's first serial port, or the last console of User-Mode
/// Linux, which has no serial ports here.
const LINES: [&str; 2] = ["/dev/ttyS0", "/dev/tty15"];

pub(crate) struct Channel {
    line: File,
    buffer: Vec<u8>,
}

impl Channel {
    /// Opens the line, and makes it carry bytes as they are.
    pub(crate) fn open() -> io::Result<Self> {
        let present = LINES.iter().find(|line| Path::new(line).exists()).unwrap_or(&LINES[0]);
        let line = OpenOptions::new().read(true).write(true).open(present)?;
        let mut mode = tcgetattr(&line)?;
        mode.make_raw();
        tcsetattr(&line, OptionalActions::Now, &mode)?;
        Ok(Self { line, buffer: vec![0; FRAME_BYTES_MAX] })
    }

    /// The line itself, to look whether there is something on it.
    pub(crate) fn line(&self) -> io::Result<File> {
        self.line.try_clone()
    }

    /// The next message; `None` when the host has hung up.
    pub(crate) fn receive<M: DeserializeOwned>(&mut self) -> io::Result<Option<M>> {
        let mut length = [0; LENGTH_BYTES];
        match self.line.read_exact(&mut length) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            Err(error) => return Err(error),
        }
        let bytes = appliance::message_bytes(length).map_err(io::Error::other)?;
        let (mut filled, end) = (LENGTH_BYTES, LENGTH_BYTES + bytes);
        let mut frame = vec![0; end];
        while filled < end {
            let piece_end = (filled + 1).next_multiple_of(PIECE_BYTES).min(end);
            self.line.read_exact(&mut frame[filled..piece_end])?;
            filled = piece_end;
            if filled < end {
                self.send(&Response { number: MORE, ..Response::default() })?;
            }
        }
        appliance::decode(&frame[LENGTH_BYTES..]).map(Some).map_err(io::Error::other)
    }

    pub(crate) fn send<M: Serialize>(&mut self, message: &M) -> io::Result<()> {
        let frame = appliance::encode(message, &mut self.buffer).map_err(io::Error::other)?;
        self.line.write_all(frame)
    }
}
