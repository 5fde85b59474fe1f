//! The driver's side: carries out what the mediator grants, within what it may grant.

use super::control::{ControlSocket, Datagram, Patience, Received};
use super::export::{EXPORTS_MAX, WEIGHT_MAX};
use super::message::{Grant, NAME_LETTERS_MAX, ToDriver, ToMediator, VERSION, decode, encode, printable, reason};
use crate::server::{ClientStream, Departures};
use blockyard_block::{Disk, Geometry, explain, wait_ready};
use rustix::event::{PollFd, PollFlags};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// Most messages that wait until the mediator reads.
const NOTICES_MAX: usize = 4 * EXPORTS_MAX;
/// How long to wait when this process can have no more descriptors, or too many connections are not closed yet.
const NO_ROOM: Duration = Duration::from_millis(100);
/// Most messages handled before sessions that ended are looked at again.
const DATAGRAMS_AT_ONCE: usize = 64;

/// Who serves sessions: the server, or a test.
pub trait Grantor {
    /// Serves `stream` the part of the disk that `grant` says. It was checked: the range lies within the disk, and no
    /// other session writes it, or reads what this one writes.
    ///
    /// # Errors
    /// Why not, as a sentence for the mediator.
    fn grant(&mut self, grant: &Grant, stream: ClientStream) -> Result<(), String>;

    /// Ends a session; that it ended is told by [`Grantor::ended`], when nothing of it is in flight any more.
    fn revoke(&mut self, session: u64);

    /// Appends events that become readable when sessions have ended.
    fn events<'a>(&'a self, events: &mut Vec<BorrowedFd<'a>>);

    /// Sessions that ended since the last call, and why.
    fn ended(&mut self) -> Vec<(u64, String)>;

    /// Hears of the mediator.
    fn mediator_says(&mut self, news: MediatorNews);
}

/// What the mediator is up to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MediatorNews {
    /// Its sockets are there: clients may connect.
    Ready,
    /// Something that people should know.
    Notice(String),
    /// It could not begin or go on, and why. Sessions that run go on; there are no new ones.
    Failed(String),
    /// It is gone, or did what it must not. Sessions that run go on; there are no new ones.
    Gone(String),
}

/// The driver's end of the control socket.
///
/// It enforces what must hold whatever the mediator says: ranges lie within the disk in whole logical blocks, what one
/// client writes no other client has, numbers of sessions are never used twice, and there are at most [`EXPORTS_MAX`]
/// sessions.
pub struct Driver {
    disk: Arc<dyn Disk>,
    /// `None` once the mediator is gone.
    control: Option<ControlSocket>,
    ready: bool,
    sessions: Sessions,
    notices: VecDeque<Vec<u8>>,
    /// Connections of clients that nobody serves.
    departures: Departures,
}

/// Why there is no more to hear from the mediator.
enum End {
    Failed(String),
    Gone(String),
}

impl Driver {
    /// For the mediator at the other end of `control`, with parts of `disk`.
    pub fn new(control: OwnedFd, disk: Arc<dyn Disk>) -> Self {
        let control = Some(ControlSocket::new(control));
        let (sessions, notices, departures) = (Sessions::default(), VecDeque::new(), Departures::default());
        Self { disk, control, ready: false, sessions, notices, departures }
    }

    /// Gives the mediator its own connection to the disk, whose other end is served already, read-only.
    ///
    /// # Errors
    /// When it cannot be sent: the mediator is gone.
    pub fn start(&self, stream: &UnixStream) -> io::Result<()> {
        let start = ToMediator::Start { version: VERSION, read_only: self.disk.geometry().read_only };
        let message = encode(&start).map_err(io::Error::other)?;
        let Some(control) = &self.control else { return Err(io::ErrorKind::BrokenPipe.into()) };
        match control.send(&message, Some(stream.as_fd()), Patience::Never)? {
            true => Ok(()),
            false => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    /// Carries out what the mediator grants until `stop` is readable, also without the mediator once that is gone.
    ///
    /// # Errors
    /// When waiting fails.
    pub fn run(&mut self, grantor: &mut dyn Grantor, stop: BorrowedFd<'_>) -> io::Result<()> {
        loop {
            self.turn(grantor);
            if self.wait(grantor, stop)? {
                return Ok(());
            }
        }
    }

    /// Whether `stop` is readable, after waiting for anything to do.
    fn wait(&self, grantor: &dyn Grantor, stop: BorrowedFd<'_>) -> io::Result<bool> {
        let mut events = vec![stop];
        grantor.events(&mut events);
        let mut polled: Vec<_> = events.iter().map(|&event| PollFd::from_borrowed_fd(event, PollFlags::IN)).collect();
        if let Some(control) = &self.control {
            let writing = if self.notices.is_empty() { PollFlags::empty() } else { PollFlags::OUT };
            polled.push(PollFd::new(control, PollFlags::IN | writing));
        }
        wait_ready(&mut polled, None)?;
        Ok(!polled[0].revents().is_empty())
    }

    /// Does what there is to do, without waiting: for a loop of the caller's own, whenever [`Driver::event`] or one of
    /// the grantor's is readable.
    pub fn turn(&mut self, grantor: &mut dyn Grantor) {
        for (session, why) in grantor.ended() {
            if self.sessions.remove(session) {
                self.tell(&ToMediator::Ended { session, reason: reason(why) });
            }
        }
        if let Err(end) = self.listen(grantor).and_then(|()| self.flush()) {
            self.control = None;
            self.notices.clear();
            grantor.mediator_says(match end {
                End::Failed(why) => MediatorNews::Failed(why),
                End::Gone(why) => MediatorNews::Gone(why),
            });
        }
    }

    /// Readable when there is something to do; `None` when the mediator is gone.
    pub fn event(&self) -> Option<BorrowedFd<'_>> {
        self.control.as_ref().map(AsFd::as_fd)
    }

    fn listen(&mut self, grantor: &mut dyn Grantor) -> Result<(), End> {
        for _ in 0..DATAGRAMS_AT_ONCE {
            let Some(control) = &self.control else { return Ok(()) };
            let received = match self.departures.are_too_many() {
                // Who comes next waits at the mediator's.
                true => Ok(Received::NoRoom),
                false => control.receive(Patience::Never),
            };
            match received {
                Ok(Received::Datagram(datagram)) => self.hear(datagram, grantor)?,
                Ok(Received::Nothing) => return Ok(()),
                Ok(Received::NoRoom) => {
                    thread::sleep(NO_ROOM);
                    return Ok(());
                }
                Ok(Received::End) => return Err(End::Gone("the mediator has ended".into())),
                Err(error) => return Err(End::Gone(format!("the mediator's socket failed: {error}"))),
            }
        }
        Ok(())
    }

    fn hear(&mut self, datagram: Datagram, grantor: &mut dyn Grantor) -> Result<(), End> {
        let Datagram { bytes, descriptor, lost } = datagram;
        let client = descriptor.map(|client| self.departures.held_arrival(client));
        let must_not = |what: &str| End::Gone(format!("the mediator was disconnected: it sent {what}"));
        let message: ToDriver = decode(&bytes).map_err(|error| must_not(&printable(&explain(&error), 200)))?;
        match (message, client) {
            (ToDriver::Ready { version: VERSION }, None) if !self.ready => {
                self.ready = true;
                grantor.mediator_says(MediatorNews::Ready);
            }
            (ToDriver::Failed { reason: why }, None) => return Err(End::Failed(reason(why))),
            (ToDriver::Notice { what }, None) => grantor.mediator_says(MediatorNews::Notice(reason(what))),
            (ToDriver::Grant(grant), Some(client)) if self.ready && self.sessions.is_new(grant.session) => {
                self.grant(&grant, client, grantor);
            }
            (ToDriver::Grant(Grant { session, .. }), None) if lost && self.ready && self.sessions.is_new(session) => {
                self.sessions.last = session;
                let why = "there is no descriptor to be had for its connection (ulimit -n)";
                self.tell(&ToMediator::Refused { session, reason: reason(why) });
            }
            (ToDriver::Revoke { session }, None) if self.ready => {
                // It may have ended by itself while this was on its way.
                if self.sessions.live.contains_key(&session) {
                    grantor.revoke(session);
                }
            }
            (ToDriver::Ready { .. }, _) => return Err(must_not("a second greeting, or one of another version")),
            (ToDriver::Grant(_), _) => {
                return Err(must_not("a grant without a client, or for a session that has been"));
            }
            _ => return Err(must_not("something too early, or with a descriptor that does not belong")),
        }
        Ok(())
    }

    fn grant(&mut self, grant: &Grant, client: ClientStream, grantor: &mut dyn Grantor) {
        let session = grant.session;
        self.sessions.last = session;
        let checked = self.sessions.check(grant, &self.disk.geometry());
        match checked.and_then(|()| grantor.grant(grant, client)) {
            Ok(()) => self.sessions.insert(grant),
            Err(why) => self.tell(&ToMediator::Refused { session, reason: reason(why) }),
        }
    }

    fn tell(&mut self, message: &ToMediator) {
        // Reasons are cut so that they fit.
        if let (Some(_), Ok(bytes)) = (&self.control, encode(message)) {
            self.notices.push_back(bytes);
        }
    }

    fn flush(&mut self) -> Result<(), End> {
        while let (Some(control), Some(bytes)) = (&self.control, self.notices.front()) {
            match control.send(bytes, None, Patience::Never) {
                Ok(true) => drop(self.notices.pop_front()),
                Ok(false) if self.notices.len() <= NOTICES_MAX => return Ok(()),
                Ok(false) => return Err(End::Gone("the mediator was disconnected: it does not read".into())),
                Err(error) => return Err(End::Gone(format!("the mediator has ended: {error}"))),
            }
        }
        Ok(())
    }
}

/// What is granted.
#[derive(Default)]
struct Sessions {
    live: BTreeMap<u64, Live>,
    /// Largest number that was used.
    last: u64,
}

struct Live {
    range_bytes: Range<u64>,
    read_only: bool,
    name: String,
}

impl Sessions {
    /// Whether no session had this number; numbers only grow.
    fn is_new(&self, session: u64) -> bool {
        session > self.last
    }

    fn check(&self, grant: &Grant, geometry: &Geometry) -> Result<(), String> {
        let Range { start, end } = grant.range_bytes;
        let block_bytes = u64::from(geometry.logical_block_bytes);
        if self.live.len() >= EXPORTS_MAX {
            return Err(format!("{EXPORTS_MAX} sessions are the most"));
        }
        if printable(&grant.name, NAME_LETTERS_MAX) != grant.name || grant.weight.get() > WEIGHT_MAX {
            return Err("its name or its weight is out of bounds".into());
        }
        if start >= end || end > geometry.capacity_bytes {
            return Err(format!("{start}..{end} is no part of a disk of {} bytes", geometry.capacity_bytes));
        }
        if !start.is_multiple_of(block_bytes) || !end.is_multiple_of(block_bytes) {
            return Err(format!("{start}..{end} is not made of blocks of {block_bytes} bytes"));
        }
        if geometry.read_only && !grant.read_only {
            return Err("the disk is read-only".into());
        }
        match self.live.values().find(|live| live.is_harmed_by(grant)) {
            Some(live) => Err(format!("it would share bytes that are written with {}", live.name)),
            None => Ok(()),
        }
    }

    fn insert(&mut self, grant: &Grant) {
        let Grant { range_bytes, read_only, name, .. } = grant.clone();
        self.live.insert(grant.session, Live { range_bytes, read_only, name });
    }

    fn remove(&mut self, session: u64) -> bool {
        self.live.remove(&session).is_some()
    }
}

impl Live {
    /// Whether the two share bytes, and one of them writes.
    fn is_harmed_by(&self, grant: &Grant) -> bool {
        let shares = self.range_bytes.start < grant.range_bytes.end && grant.range_bytes.start < self.range_bytes.end;
        shares && !(self.read_only && grant.read_only)
    }
}

#[cfg(test)]
mod tests;
