//! The guest's serial line, which is this process's standard input.

use blockyard_devices::serial::{SerialInput, SerialOutput};
use blockyard_vmm::serial::SerialWindow;
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use rustix::stdio::stdin;
use std::convert::Infallible;
use std::io;
use std::os::fd::OwnedFd;
use std::process::exit;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// What is sent, or received, at a time at most.
const PIECE_BYTES: usize = 4096;

/// The guest's end of the line, as its machine has it.
pub(super) type Port = Arc<Mutex<SerialWindow>>;

/// The host's end of the line, which is standard input.
///
/// The guest writes a byte at a time, some sixteen in a row, and then looks at its port. So what it writes is sent when
/// it looks.
pub(super) struct SerialLine {
    unsent: Arc<Mutex<Vec<u8>>>,
    /// There may be something to receive.
    readable: Arc<AtomicBool>,
    arrivals: OwnedFd,
}

impl SerialLine {
    pub(super) fn new() -> io::Result<Self> {
        let arrivals = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        // Told once of what arrives: the guest may leave it there for a while.
        let flags = epoll::EventFlags::IN | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
        epoll::add(&arrivals, stdin(), epoll::EventData::new_u64(0), flags)?;
        Ok(Self { unsent: Arc::default(), readable: Arc::default(), arrivals })
    }

    /// Where the port's output goes.
    pub(super) fn output(&self) -> SerialOutput {
        let unsent = Arc::clone(&self.unsent);
        Box::new(move |bytes| {
            let mut unsent = unsent.lock().unwrap_or_else(PoisonError::into_inner);
            unsent.extend_from_slice(bytes);
            if unsent.len() >= PIECE_BYTES {
                send_all(&mut unsent);
            }
        })
    }

    /// Where its input comes from.
    pub(super) fn input(&self) -> Box<dyn SerialInput> {
        let (unsent, readable) = (Arc::clone(&self.unsent), Arc::clone(&self.readable));
        Box::new(move |buffer: &mut Vec<u8>| {
            send_all(&mut unsent.lock().unwrap_or_else(PoisonError::into_inner));
            if readable.swap(false, Ordering::AcqRel) {
                readable.fetch_or(receive(buffer), Ordering::AcqRel);
            }
        })
    }

    /// Tells the port of what arrives, until the host hangs up.
    pub(super) fn carry(&self, port: &Port) -> io::Result<Infallible> {
        let mut events = Vec::with_capacity(1);
        loop {
            match epoll::wait(&self.arrivals, rustix::buffer::spare_capacity(&mut events), None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
            events.clear();
            self.readable.store(true, Ordering::Release);
            port.lock().unwrap_or_else(PoisonError::into_inner).0.input_ready();
        }
    }
}

/// Sends all of it. Who is not listened to any more ends.
fn send_all(unsent: &mut Vec<u8>) {
    let mut left = &unsent[..];
    while !left.is_empty() {
        match send(stdin(), left, SendFlags::NOSIGNAL) {
            Ok(sent) => left = left.get(sent..).unwrap_or_default(),
            Err(Errno::INTR) => {}
            Err(_) => exit(1),
        }
    }
    unsent.clear();
}

/// Receives what has arrived; whether there may be more.
fn receive(buffer: &mut Vec<u8>) -> bool {
    buffer.resize(PIECE_BYTES, 0);
    let received = recv(stdin(), &mut buffer[..], RecvFlags::DONTWAIT);
    let (bytes, may_be_more) = match received {
        // The host has hung up.
        Ok((_, 0)) => exit(0),
        Ok((_, bytes)) => (bytes, true),
        Err(Errno::INTR) => (0, true),
        Err(_) => (0, false),
    };
    buffer.truncate(bytes);
    may_be_more
}
