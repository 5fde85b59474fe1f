//! Who comes in: a socket per offer, one client at each.

use super::offer::Offer;
use crate::server::{ClientStream, Listener, ListenerError};
use crate::spare_descriptors::SpareDescriptors;
use blockyard_block::Remedy;
use rustix::event::{PollFd, PollFlags};
use std::time::{Duration, Instant};

/// How long to leave clients of a socket waiting that cannot be accepted.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// The sockets of all offers. Each has one client at a time; a second is disconnected at once.
pub struct Gate {
    places: Vec<Place>,
    /// Room for one who is turned away.
    spare: SpareDescriptors,
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
    /// Whom it cannot let in waits until then.
    rests_until: Option<Instant>,
}

impl Place {
    fn rests(&self, now: Instant) -> bool {
        self.rests_until.is_some_and(|until| now < until)
    }
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
            Ok(Place { listener, offer, open: true, taken: false, told: false, rests_until: None })
        };
        let places = offers.into_iter().map(place).collect::<Result<_, _>>()?;
        Ok(Self { places, spare: SpareDescriptors::new(1) })
    }

    /// The sockets in the order of the offers, to be polled, and for how long at most: ready when somebody waits who
    /// can be let in or turned away.
    pub fn polled(&self) -> (impl ExactSizeIterator<Item = PollFd<'_>>, Option<Duration>) {
        let now = Instant::now();
        let resting = self.places.iter().filter(|place| place.rests(now)).filter_map(|place| place.rests_until);
        let patience = resting.min().map(|until| until.saturating_duration_since(now));
        let flags = move |place: &Place| if place.rests(now) { PollFlags::empty() } else { PollFlags::IN };
        (self.places.iter().map(move |place| PollFd::new(&place.listener, flags(place))), patience)
    }

    /// The offer of a place.
    pub fn offer(&self, place: usize) -> &Offer {
        &self.places[place].offer
    }

    /// Whether a client is in.
    pub fn is_taken(&self, place: usize) -> bool {
        self.places[place].taken
    }

    /// Takes one connection at a place. When the system has no descriptor or memory for it, or too many who were turned
    /// away cannot be closed, it waits for a while.
    pub fn admit(&mut self, place: usize) -> Admission {
        let place = &mut self.places[place];
        let accepted = self.spare.receive(|| place.listener.accept());
        let has_room = self.spare.has_room();
        let Some(accepted) = accepted else {
            place.rests_until = Some(Instant::now() + ACCEPT_AGAIN);
            return Admission::Nobody;
        };
        let why = match accepted {
            Ok(None) => return Admission::Nobody,
            Ok(Some(_)) if !has_room => "there is no descriptor to be had for its connection (ulimit -n)".to_owned(),
            Ok(Some(stream)) if place.open && !place.taken => {
                (place.taken, place.told) = (true, false);
                return Admission::Client(stream);
            }
            Ok(Some(_)) if place.taken => "it has a client already".to_owned(),
            Ok(Some(_)) => "the disk has no such partition any more".to_owned(),
            Err(ListenerError::Peer { uid, .. }) => {
                format!("user {uid} may not connect: {}", Remedy::LetUserIn(uid))
            }
            Err(_) => {
                place.rests_until = Some(Instant::now() + ACCEPT_AGAIN);
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
