//! The mediator's process.

use super::control::{ControlSocket, Datagram, Patience, Received};
use super::export::PartitionExport;
use super::gate::{Admission, Gate};
use super::message::{MessageError, ToDriver, ToMediator, VERSION, decode, encode, reason};
use super::offer::{OfferError, offers};
use crate::client::{SessionDisk, SessionOptions};
use crate::server::{ClientStream, ListenerError};
use blockyard_block::partition_table::TableChoice;
use blockyard_block::{Disk, explain, wait_ready};
use rustix::event::{PollFd, PollFlags};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

/// Most oddities of a table that are told.
const NOTICES_AT_START: usize = 8;

/// What the mediator is to grant.
#[derive(Clone, Debug)]
pub struct MediatorConfig {
    /// Which partitions, where, with which rights.
    pub exports: Vec<PartitionExport>,
    /// The table that counts.
    pub table: TableChoice,
}

/// Why the mediator cannot begin or go on.
#[derive(Debug, thiserror::Error)]
pub enum MediatorError {
    /// The driver did not begin as it must, or is no driver.
    #[error("the driver sent {0}")]
    Driver(String),
    /// The control socket or a wait fails.
    #[error("the mediator cannot go on")]
    Os(#[from] io::Error),
    /// What is to be granted is not there.
    #[error(transparent)]
    Offer(#[from] OfferError),
    /// A socket cannot be made.
    #[error(transparent)]
    Gate(#[from] ListenerError),
}

impl From<MessageError> for MediatorError {
    fn from(error: MessageError) -> Self {
        Self::Driver(explain(&error))
    }
}

/// Starts and runs the mediator at its end of the control socket until the driver is gone. `connect` makes a disk of
/// the connection that the driver gives: a session of its own.
///
/// # Errors
/// Why it could not begin, when the driver was not told, or go on.
pub fn run(
    control: OwnedFd,
    config: &MediatorConfig,
    connect: impl FnOnce(UnixStream) -> io::Result<Arc<dyn Disk>>,
) -> Result<(), MediatorError> {
    match Mediator::start(control, config, connect)? {
        Some(mediator) => mediator.run(),
        None => Ok(()),
    }
}

/// The disk at the other end of the driver's connection: what [`run`] takes as `connect`.
///
/// # Errors
/// When the other end serves no block device.
pub fn session(stream: UnixStream) -> io::Result<Arc<dyn Disk>> {
    let disk = SessionDisk::from_stream(stream, "the mediator's session", &SessionOptions::default());
    Ok(Arc::new(disk.map_err(io::Error::other)?))
}

/// A mediator whose files and sockets are all open: it can be confined now.
pub struct Mediator {
    control: ControlSocket,
    config: MediatorConfig,
    /// Whether the driver's disk is; the mediator's own session is in any case.
    read_only: bool,
    disk: Arc<dyn Disk>,
    /// Of the disk, when its table was read.
    generation: u64,
    gate: Gate,
    /// By place at the gate: the client that is in.
    sessions: Vec<Option<In>>,
    /// The last one's number.
    last_session: u64,
}

/// A client that was passed on.
struct In {
    session: u64,
    /// Kept until the driver has closed it, so that what takes time to close holds up nobody but those at the same
    /// socket.
    _stream: ClientStream,
}

/// What the mediator has when everything is open.
struct Opened {
    disk: Arc<dyn Disk>,
    generation: u64,
    gate: Gate,
    notices: Vec<String>,
}

/// Whether to go on.
#[derive(PartialEq, Eq)]
enum Next {
    Go,
    DriverIsGone,
}

impl Mediator {
    /// Waits for the driver's connection, reads the table, and makes the sockets. `None` when the driver is gone, and
    /// when it was told why there is no beginning.
    ///
    /// # Errors
    /// Why it cannot begin, when the driver was not told.
    pub fn start(
        control: OwnedFd,
        config: &MediatorConfig,
        connect: impl FnOnce(UnixStream) -> io::Result<Arc<dyn Disk>>,
    ) -> Result<Option<Self>, MediatorError> {
        let control = ControlSocket::new(control);
        let Datagram { bytes, descriptor, .. } = match control.receive(Patience::Wait)? {
            Received::Datagram(datagram) => datagram,
            Received::End | Received::Nothing | Received::NoRoom => return Ok(None),
        };
        let (ToMediator::Start { version: VERSION, read_only }, Some(stream)) = (decode(&bytes)?, descriptor) else {
            return Err(MediatorError::Driver("something else than a connection to begin with".into()));
        };
        match Self::open(config, read_only, stream.into(), connect) {
            Ok(Opened { disk, generation, gate, notices }) => {
                let sessions = config.exports.iter().map(|_| None).collect();
                let config = config.clone();
                let mut mediator =
                    Self { control, config, read_only, disk, generation, gate, sessions, last_session: 0 };
                for what in notices {
                    mediator.send(&ToDriver::Notice { what: reason(what) }, None)?;
                }
                Ok(Some(mediator))
            }
            Err(error) => {
                let failed = encode(&ToDriver::Failed { reason: reason(explain(&error)) })?;
                match control.send(&failed, None, Patience::Wait) {
                    Ok(true) => Ok(None),
                    // Nobody else says it.
                    Ok(false) | Err(_) => Err(error),
                }
            }
        }
    }

    fn open(
        config: &MediatorConfig,
        read_only: bool,
        stream: UnixStream,
        connect: impl FnOnce(UnixStream) -> io::Result<Arc<dyn Disk>>,
    ) -> Result<Opened, MediatorError> {
        let disk = connect(stream)?;
        // Asked before the table is read: a change in between is seen later.
        let generation = disk.generation();
        let found = offers(&*disk, config.table, &config.exports, read_only)?;
        let notices = found.warnings.iter().take(NOTICES_AT_START).map(ToString::to_string).collect();
        Ok(Opened { disk, generation, gate: Gate::open(found.offers)?, notices })
    }

    /// Says that the sockets are there, and grants until the driver is gone. The sockets are removed then.
    ///
    /// # Errors
    /// When the driver sends nonsense or the system fails.
    pub fn run(mut self) -> Result<(), MediatorError> {
        if self.send(&ToDriver::Ready { version: VERSION }, None)? == Next::DriverIsGone {
            return Ok(());
        }
        loop {
            let ready = self.wait()?;
            if ready.control && self.listen()? == Next::DriverIsGone {
                return Ok(());
            }
            if ready.disk && self.look_again()? == Next::DriverIsGone {
                return Ok(());
            }
            for place in ready.places {
                if self.admit(place)? == Next::DriverIsGone {
                    return Ok(());
                }
            }
        }
    }

    fn wait(&self) -> Result<Ready, MediatorError> {
        let change = self.disk.change_event();
        let mut polled = vec![PollFd::new(&self.control, PollFlags::IN)];
        let (places, patience) = self.gate.polled();
        polled.extend(places);
        polled.extend(change.iter().map(|event| PollFd::from_borrowed_fd(*event, PollFlags::IN)));
        wait_ready(&mut polled, patience)?;
        let is_ready = |polled: &PollFd<'_>| !polled.revents().is_empty();
        let places = &polled[1..=self.sessions.len()];
        Ok(Ready {
            control: is_ready(&polled[0]),
            disk: change.is_some() && polled.last().is_some_and(is_ready),
            places: places.iter().enumerate().filter(|(_, place)| is_ready(place)).map(|(index, _)| index).collect(),
        })
    }

    /// Hears what the driver says.
    fn listen(&mut self) -> Result<Next, MediatorError> {
        let datagram = match self.control.receive(Patience::Never)? {
            Received::Datagram(datagram) => datagram,
            Received::Nothing | Received::NoRoom => return Ok(Next::Go),
            Received::End => return Ok(Next::DriverIsGone),
        };
        match (decode(&datagram.bytes)?, datagram.descriptor) {
            (ToMediator::Ended { session, .. }, None) => self.release(session),
            (ToMediator::Refused { session, reason: why }, None) => match self.place_of(session) {
                Some(place) => {
                    let path = self.gate.offer(place).socket.display().to_string();
                    self.release(session);
                    let what = reason(format!("{path}: the driver refused a client: {why}"));
                    return self.send(&ToDriver::Notice { what }, None);
                }
                None => return Ok(Next::Go),
            },
            _ => return Err(MediatorError::Driver("a second connection, or a descriptor that does not belong".into())),
        }
        Ok(Next::Go)
    }

    fn place_of(&self, session: u64) -> Option<usize> {
        self.sessions.iter().position(|client| client.as_ref().is_some_and(|client| client.session == session))
    }

    fn release(&mut self, session: u64) {
        if let Some(place) = self.place_of(session) {
            self.sessions[place] = None;
            self.gate.release(place);
        }
    }

    /// Takes a connection and passes it on.
    fn admit(&mut self, place: usize) -> Result<Next, MediatorError> {
        match self.gate.admit(place) {
            Admission::Client(client) => {
                self.last_session += 1;
                let session = self.last_session;
                let grant = ToDriver::Grant(self.gate.offer(place).grant(session));
                match self.send(&grant, Some(client.as_fd())) {
                    // The system has no room for a connection on its way: that is no fault of the driver's.
                    Err(MediatorError::Os(error)) => {
                        self.gate.release(place);
                        let path = self.gate.offer(place).socket.display().to_string();
                        let what = reason(format!("{path}: a client could not be passed on: {error}"));
                        self.send(&ToDriver::Notice { what }, None)
                    }
                    sent => {
                        self.sessions[place] = Some(In { session, _stream: client });
                        sent
                    }
                }
            }
            Admission::TurnedAway(what) => self.send(&ToDriver::Notice { what: reason(what) }, None),
            Admission::Nobody => Ok(Next::Go),
        }
    }

    /// Reads the table anew when the disk has changed: whoever has what is no longer a partition loses it.
    fn look_again(&mut self) -> Result<Next, MediatorError> {
        if let Some(event) = self.disk.change_event() {
            // The event is an eventfd, whose counter this clears; what it cannot clear it need not.
            let _ = rustix::io::read(event, &mut [0; 8]);
        }
        let generation = self.disk.generation();
        if generation == self.generation {
            return Ok(Next::Go);
        }
        self.generation = generation;
        for place in 0..self.sessions.len() {
            // By itself, so that one partition that is gone does not take the others along.
            let export = std::slice::from_ref(&self.config.exports[place]);
            let found = offers(&*self.disk, self.config.table, export, self.read_only);
            let offer = found.ok().and_then(|found| found.offers.into_iter().next());
            let stays = offer.as_ref().is_some_and(|offer| offer.range_bytes == self.gate.offer(place).range_bytes);
            self.gate.set_offer(place, offer);
            if let (false, Some(session)) = (stays, self.sessions[place].as_ref().map(|client| client.session))
                && self.send(&ToDriver::Revoke { session }, None)? == Next::DriverIsGone
            {
                return Ok(Next::DriverIsGone);
            }
        }
        Ok(Next::Go)
    }

    /// Tells the driver; waits until there is room, which there is as soon as it reads.
    fn send(&mut self, message: &ToDriver, client: Option<BorrowedFd<'_>>) -> Result<Next, MediatorError> {
        match self.control.send(&encode(message)?, client, Patience::Wait) {
            Ok(_) => Ok(Next::Go),
            Err(error) if matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset) => {
                Ok(Next::DriverIsGone)
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// What there is to do.
struct Ready {
    control: bool,
    disk: bool,
    places: Vec<usize>,
}
