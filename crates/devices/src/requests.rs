//! The requests of a driver that are not answered, and what of them the disk has.

use blockyard_block::RequestError;

/// Requests that are not answered and the pieces that the disk has, by token. Most requests are one piece. `P` is what
/// it takes to answer one.
pub(crate) struct Requests<P> {
    slots: Vec<Slot<P>>,
    /// The tokens that nothing has.
    free: Vec<u32>,
    /// Requests and pieces that the disk has.
    in_flight: usize,
    /// What they cost.
    in_flight_cost_bytes: u64,
}

/// A token: what the disk has under it, and the request that began with it.
#[derive(Clone, Copy)]
struct Slot<P> {
    piece: Piece,
    begun: Begun<P>,
}

/// What the disk has.
#[derive(Clone, Copy)]
struct Piece {
    in_flight: bool,
    /// The token that its request began with.
    request: u32,
    cost_bytes: u64,
}

/// A request that is not answered.
#[derive(Clone, Copy)]
struct Begun<P> {
    /// `None` before the token's first request.
    request: Option<P>,
    /// Pieces in flight, and one for the rest, if there is one.
    unfinished: u32,
    /// How the first piece that failed did.
    failure: Option<RequestError>,
    /// It is not to be answered.
    abandoned: bool,
}

impl<P> Begun<P> {
    const fn new(request: Option<P>, unfinished: u32) -> Self {
        Self { request, unfinished, failure: None, abandoned: false }
    }
}

impl<P> Slot<P> {
    const FREE: Self =
        Self { piece: Piece { in_flight: false, request: 0, cost_bytes: 0 }, begun: Begun::new(None, 0) };
}

impl<P: Copy> Requests<P> {
    /// Room for so many, requests and pieces.
    pub(crate) fn new(depth: usize) -> Self {
        Self {
            slots: vec![Slot::FREE; depth],
            free: (0..depth as u32).rev().collect(),
            in_flight: 0,
            in_flight_cost_bytes: 0,
        }
    }

    /// Requests and pieces that the disk has.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// What they cost.
    pub(crate) fn in_flight_cost_bytes(&self) -> u64 {
        self.in_flight_cost_bytes
    }

    /// Whether there is a token.
    pub(crate) fn has_token(&self) -> bool {
        !self.free.is_empty()
    }

    /// A token.
    pub(crate) fn take_token(&mut self) -> Option<u32> {
        self.free.pop()
    }

    /// Whether the disk has something under a token, or whatever else a disk says is one.
    pub(crate) fn is_in_flight(&self, token: u64) -> bool {
        self.slots.get(token as usize).is_some_and(|slot| slot.piece.in_flight)
    }

    /// Whether there is a token for the next piece of the request that began with the token `request`.
    pub(crate) fn has_token_for(&self, request: u32) -> bool {
        self.has_token() || !self.is_in_flight(request.into())
    }

    /// That token: the request's own, if the disk has nothing under it.
    pub(crate) fn take_token_for(&mut self, request: u32) -> Option<u32> {
        if self.is_in_flight(request.into()) { self.take_token() } else { Some(request) }
    }

    /// A request begins with a token, and is given to the disk under it.
    pub(crate) fn begin(&mut self, token: u32, request: P) {
        self.slots[token as usize].begun = Begun::new(Some(request), 0);
    }

    /// A request begins with a token, of which the disk is given one piece after another; [`Requests::finish_one`] is
    /// for when it has been given the last, too.
    pub(crate) fn begin_long(&mut self, token: u32, request: P) {
        self.slots[token as usize] = Slot { begun: Begun::new(Some(request), 1), ..Slot::FREE };
    }

    /// The disk is given a piece of the request that began with the token `request`.
    pub(crate) fn give(&mut self, token: u32, request: u32, cost_bytes: u64) {
        self.slots[token as usize].piece = Piece { in_flight: true, request, cost_bytes };
        self.slots[request as usize].begun.unfinished += 1;
        self.in_flight += 1;
        self.in_flight_cost_bytes += cost_bytes;
    }

    /// The disk has done with what it has under a token; the token that the request of that began with, for
    /// [`Requests::finish_one`].
    #[inline]
    pub(crate) fn take_back(&mut self, token: u32) -> u32 {
        let piece = &mut self.slots[token as usize].piece;
        piece.in_flight = false;
        let Piece { request, cost_bytes, .. } = *piece;
        self.in_flight -= 1;
        self.in_flight_cost_bytes -= cost_bytes;
        if token != request {
            self.free.push(token);
        }
        request
    }

    /// A piece of a request has failed: the first says how the request does.
    pub(crate) fn fail(&mut self, request: u32, error: RequestError) {
        self.slots[request as usize].begun.failure.get_or_insert(error);
    }

    /// A request is not to be answered.
    pub(crate) fn abandon(&mut self, request: u32) {
        self.slots[request as usize].begun.abandoned = true;
    }

    /// One of what the request that began with the token `request` waits for is over. With the last, the request is:
    /// then it is here, with why it failed if it did, if it is to be answered.
    #[inline]
    pub(crate) fn finish_one(&mut self, request: u32) -> Option<(P, Option<RequestError>)> {
        let begun = &mut self.slots[request as usize].begun;
        begun.unfinished -= 1;
        if begun.unfinished > 0 {
            return None;
        }
        let Begun { request: pending, failure, abandoned, .. } = *begun;
        self.free.push(request);
        Some((pending.filter(|_| !abandoned)?, failure))
    }
}
