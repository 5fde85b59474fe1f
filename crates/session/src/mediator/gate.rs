//! Who comes in: a socket per offer, one client at each.

use super::offer::Offer;
use crate::server::{ClientStream, Listener, ListenerError};
use std::os::fd::{AsFd, BorrowedFd};
use std::thread;
use std::time::Duration;

/// How long to leave a client waiting when there is no descriptor to accept it with.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// The sockets of all offers. Each has one client at a time; a second is disconnected at once.
pub struct Gate {
    places: Vec<Place>,
}

struct Place {
    listener: Listener,
    offer: Offer,
    /// Whether the offer stands: a partition may go while clients are served.
    open: bool,
    /// Whether a client is in.
    taken: bool,
    /// Whether it was told that somebody was turned away, since the last client came or went.
    told: bool,
}

/// What came of a connection.
#[derive(Debug)]
pub enum Admission {
    /// A client that has the offer from now on, until [`Gate::release`].
    Client(ClientStream),
    /// Somebody was disconnected, and why: told once until the next client comes or goes.
    TurnedAway(String),
    /// Nobody is there, or somebody was disconnected and it was told before.
    Nobody,
}

impl Gate {
    /// Makes all sockets; none stays if one fails.
    ///
    /// # Errors
    /// The first socket that cannot be made.
    pub fn open(offers: Vec<Offer>) -> Result<Self, ListenerError> {
        let place = |offer: Offer| {
            let listener = Listener::bind(&offer.socket, &offer.uids)?;
            Ok(Place { listener, offer, open: true, taken: false, told: false })
        };
        Ok(Self { places: offers.into_iter().map(place).collect::<Result<_, _>>()? })
    }

    /// The sockets in the order of the offers: readable when somebody waits.
    pub fn events(&self) -> impl ExactSizeIterator<Item = BorrowedFd<'_>> {
        self.places.iter().map(|place| place.listener.as_fd())
    }

    /// The offer of a place.
    pub fn offer(&self, place: usize) -> &Offer {
        &self.places[place].offer
    }

    /// Whether a client is in.
    pub fn is_taken(&self, place: usize) -> bool {
        self.places[place].taken
    }

    /// Takes one connection at a place. When the system has no descriptor or memory for it, it keeps waiting, and so does whoever
    /// asked, for a while.
    pub fn admit(&mut self, place: usize) -> Admission {
        let place = &mut self.places[place];
        let why = match place.listener.accept() {
            Ok(None) => return Admission::Nobody,
            Ok(Some(stream)) if place.open && !place.taken => {
                (place.taken, place.told) = (true, false);
                return Admission::Client(stream);
            }
            Ok(Some(_)) if place.taken => "it has a client already".to_owned(),
            Ok(Some(_)) => "the disk has no such partition any more".to_owned(),
            Err(ListenerError::Peer { uid, .. }) => {
                format!("user {uid} may not connect: --allow-uid or uid={uid} would let them")
            }
            Err(_) => {
                thread::sleep(ACCEPT_AGAIN);
                return Admission::Nobody;
            }
        };
        if std::mem::replace(&mut place.told, true) {
            return Admission::Nobody;
        }
        let path = place.listener.path().display();
        Admission::TurnedAway(format!("{path}: a client was turned away: {why}"))
    }

    /// The client of a place has gone: the next may come.
    pub fn release(&mut self, place: usize) {
        (self.places[place].taken, self.places[place].told) = (false, false);
    }

    /// What a place offers from now on; `None` for nothing. A client that is in keeps what it has.
    pub fn set_offer(&mut self, place: usize, offer: Option<Offer>) {
        let place = &mut self.places[place];
        place.open = offer.is_some();
        if let Some(offer) = offer {
            place.offer = offer;
        }
    }
}
