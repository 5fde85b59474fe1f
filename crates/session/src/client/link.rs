//! What a session's queues share: the connection, the memory table, the virtqueues. Nothing here is touched per
//! request.

use super::block_config::BlockConfig;
use super::connection::{Connection, VringMessage};
use super::error::SessionError;
use super::memory_table::{MemoryTable, RegionId};
use super::offer::Offer;
use super::options::SessionOptions;
use super::ring::{Ring, RingAddresses, RingShape};
use super::vring::{FreshRing, Vring, lock};
use blockyard_block::{EventFd, Geometry, MemoryMap, explain};
use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, TryLockError, Weak};

/// A virtqueue that the server runs.
#[derive(Debug)]
struct Running {
    vring: Arc<Vring>,
    addresses: RingAddresses,
    kick: Arc<EventFd>,
    private: RegionId,
    shared: Vec<RegionId>,
}

impl Running {
    fn start(&self, connection: &Connection, base: u16) -> Result<(), SessionError> {
        connection.start_vring(&VringMessage {
            index: self.vring.index,
            size: self.vring.shape.size,
            base,
            descriptors: self.addresses.descriptors,
            available: self.addresses.available,
            used: self.addresses.used,
            kick: self.kick.as_fd(),
            call: self.vring.call.as_fd(),
        })
    }
}

/// What has come of a session's requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Progress {
    pub(super) completed: u64,
    pub(super) in_flight: usize,
}

/// Why a connection was given up.
#[derive(Debug)]
pub(super) struct GivenUp {
    /// Whether the same server may be asked again.
    pub(super) may_pass: bool,
    pub(super) reason: Arc<str>,
}

impl GivenUp {
    fn of(error: &SessionError) -> Self {
        Self { may_pass: error.may_pass(), reason: explain(error).into() }
    }
}

#[derive(Debug)]
struct State {
    /// `None` while there is no server.
    connection: Option<Arc<Connection>>,
    offer: Offer,
    table: MemoryTable,
    /// As many as the server has.
    vrings: Vec<Option<Running>>,
    /// The memory of each virtqueue's last run. libvhost-user keeps a stopped ring's addresses, and gives up when it
    /// finds no memory behind them as it learns of other memory: so it stays until the virtqueue runs again, elsewhere.
    retired: Vec<Option<RegionId>>,
    given_up: Option<GivenUp>,
    /// Why the session ended for good.
    failure: Option<Arc<str>>,
}

impl State {
    /// Gives the connection up; whoever watches it sees its end.
    fn give_up(&mut self, error: &SessionError) {
        self.given_up.get_or_insert_with(|| GivenUp::of(error));
        if let Some(connection) = &self.connection {
            connection.shut_down();
        }
    }

    /// Takes the memory of a queue in that will run on virtqueue `index`.
    fn insert_private(
        &mut self,
        memory: &MemoryMap,
        index: usize,
        connection: &Connection,
    ) -> Result<RegionId, SessionError> {
        let socket = connection.name();
        let os = |error| SessionError::Os { socket: Arc::clone(socket), error };
        if let Ok(id) = self.table.insert_private(memory).map_err(os)? {
            return Ok(id);
        }
        // The last resort.
        self.forget_retired(index, connection)?;
        let inserted = self.table.insert_private(memory).map_err(os)?;
        inserted.map_err(|full| full.into_session_error(socket, self.table.slots()))
    }

    fn forget_retired(&mut self, index: usize, connection: &Connection) -> Result<(), SessionError> {
        self.table.release(self.retired[index].take(), Some((connection, &self.offer)))
    }

    /// Virtqueues that are not in use.
    fn queues_left(&self) -> usize {
        self.vrings.iter().filter(|vring| vring.is_none()).count()
    }

    /// Where the server finds these regions; `None` when there are none.
    fn addresses(&self, regions: &[RegionId]) -> Option<Vec<u64>> {
        (!regions.is_empty()).then(|| regions.iter().map(|&id| self.table.address(id)).collect())
    }

    /// Tells the server of new memory, these requests' own among it. Where it refuses that, there is none of it.
    fn announce_shared(&mut self, connection: &Connection, regions: &mut Vec<RegionId>) -> Result<(), SessionError> {
        match self.announce(connection) {
            Err(SessionError::Refused { .. }) if !regions.is_empty() => {
                let offer = self.offer;
                self.table.release(std::mem::take(regions), Some((connection, &offer)))?;
                self.announce(connection)
            }
            result => result,
        }
    }

    /// Tells the server of new memory. One that wants its whole table anew must not look at it meanwhile: the
    /// virtqueues are stopped, which ends what the server has begun, and go on where they were.
    fn announce(&mut self, connection: &Connection) -> Result<(), SessionError> {
        if !self.table.has_news() {
            return Ok(());
        }
        let whole = !self.offer.adds_regions();
        let running: Vec<_> = self.vrings.iter().flatten().filter(|_| whole).collect();
        let bases = running.iter().map(|running| connection.stop_vring(running.vring.index));
        let bases = bases.collect::<Result<Vec<_>, _>>()?;
        let told = self.table.announce(connection, &self.offer);
        for (running, base) in running.iter().zip(bases) {
            running.start(connection, base)?;
            running.kick.ring();
        }
        told
    }
}

/// What a queue is opened with.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) vring: Arc<Vring>,
    pub(super) ring: Ring,
    pub(super) kick: Arc<EventFd>,
    /// Where the server finds the regions of the memory map; `None` when it does not.
    pub(super) addresses: Option<Vec<u64>>,
}

/// Memory that the server was given for requests.
#[derive(Debug)]
pub(super) struct LentMemory {
    regions: Vec<RegionId>,
    /// Where the server finds them; `None` when it does not.
    pub(super) addresses: Option<Vec<u64>>,
}

/// A session: what its disk, its queues and its keeper share.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) name: Arc<str>,
    /// Where to find the server again; `None` for a connection that was handed over.
    pub(super) path: Option<PathBuf>,
    pub(super) options: SessionOptions,
    /// Ends the keeper, and every wait for an answer.
    pub(super) stop: Arc<EventFd>,
    state: Mutex<State>,
    /// What servers are notified with. A server may fill such an event, and make it one to wait for: whoever notifies
    /// it then waits until somebody takes it.
    kicks: Mutex<Vec<Weak<EventFd>>>,
    geometry: Mutex<Geometry>,
    pub(super) generation: AtomicU64,
    pub(super) incarnation: AtomicU64,
    pub(super) change: EventFd,
}

impl Link {
    pub(super) fn new(
        connection: Connection,
        offer: Offer,
        path: Option<PathBuf>,
        options: &SessionOptions,
        stop: Arc<EventFd>,
    ) -> io::Result<Self> {
        Ok(Self {
            name: Arc::clone(connection.name()),
            path,
            options: options.clone(),
            stop,
            geometry: Mutex::new(offer.geometry),
            state: Mutex::new(State {
                connection: Some(Arc::new(connection)),
                offer,
                table: MemoryTable::new(offer.memory_slots),
                vrings: (0..offer.queues).map(|_| None).collect(),
                retired: vec![None; offer.queues.into()],
                given_up: None,
                failure: None,
            }),
            kicks: Mutex::default(),
            generation: AtomicU64::new(0),
            incarnation: AtomicU64::new(0),
            change: options.new_event()?,
        })
    }

    fn new_kick(&self) -> io::Result<Arc<EventFd>> {
        let kick = Arc::new(self.options.new_event()?);
        let mut kicks = lock(&self.kicks);
        kicks.retain(|kick| kick.strong_count() > 0);
        kicks.push(Arc::downgrade(&kick));
        Ok(kick)
    }

    /// Nobody waits to notify a server that listens no more.
    pub(super) fn free_kicks(&self) {
        for kick in lock(&self.kicks).iter().filter_map(Weak::upgrade) {
            kick.take();
        }
    }

    pub(super) fn geometry(&self) -> Geometry {
        *lock(&self.geometry)
    }

    pub(super) fn offer(&self) -> Offer {
        lock(&self.state).offer
    }

    pub(super) fn failure(&self) -> Option<Arc<str>> {
        lock(&self.state).failure.clone()
    }

    pub(super) fn connection(&self) -> Option<Arc<Connection>> {
        lock(&self.state).connection.clone()
    }

    /// Has something said to the server, which it may refuse.
    pub(super) fn converse<T>(
        &self,
        say: impl FnOnce(&Connection) -> Result<T, SessionError>,
    ) -> Result<T, SessionError> {
        let mut state = lock(&self.state);
        let connection = self.connected(&state)?;
        let said = say(&connection);
        if let Err(error) = &said
            && !matches!(error, SessionError::Refused { .. })
        {
            state.give_up(error);
        }
        said
    }

    /// Gives the connection up because of what a queue met.
    pub(super) fn give_up(&self, error: &SessionError) {
        lock(&self.state).give_up(error);
    }

    /// Virtqueues that are not in use.
    pub(super) fn queues_left(&self) -> usize {
        lock(&self.state).queues_left()
    }

    /// The connection, if there is a server now.
    fn connected(&self, state: &State) -> Result<Arc<Connection>, SessionError> {
        if let Some(failure) = &state.failure {
            return Err(SessionError::Ended(Arc::clone(failure)));
        }
        state.connection.clone().ok_or_else(|| SessionError::Away(Arc::clone(&self.name)))
    }

    /// Starts a virtqueue, whose requests' data lie in `memory`, or where [`lend_memory`](Self::lend_memory) says.
    pub(super) fn open_queue(&self, memory: Option<&MemoryMap>, shape: RingShape) -> Result<Opened, SessionError> {
        let os = |error| SessionError::Os { socket: Arc::clone(&self.name), error };
        let mut state = lock(&self.state);
        let connection = self.connected(&state)?;
        let queues = state.offer.queues;
        let Some(index) = state.vrings.iter().position(Option::is_none) else {
            return Err(SessionError::NoQueue { socket: Arc::clone(&self.name), queues });
        };
        let queues_left = state.queues_left() - 1;
        let own = Ring::allocate(&shape).map_err(os)?;
        let private = state.insert_private(&own, index, &connection)?;
        let mut shared = Vec::new();
        let parts = match memory.filter(|_| self.options.io_buffer_bytes.is_none()) {
            None => Ok(None),
            Some(memory) => state.table.share(memory, queues_left),
        };
        let parts = parts.and_then(|regions| {
            shared = regions.unwrap_or_default();
            let vring = Vring::new(index as u16, shape, &self.options)?;
            Ok((vring, self.new_kick()?, Ring::new(own, shape, state.table.address(private))?))
        });
        let (vring, kick, ring) = match parts {
            Ok(parts) => parts,
            Err(error) => {
                // Nobody was told of them yet.
                let _ = state.table.release(shared.into_iter().chain([private]), None);
                return Err(os(error));
            }
        };
        let mut running = Running { vring: Arc::new(vring), addresses: ring.addresses(), kick, private, shared };
        let started = Self::start_queue(&mut state, &connection, &mut running);
        let opened = started.map(|()| Opened {
            vring: Arc::clone(&running.vring),
            ring,
            kick: Arc::clone(&running.kick),
            addresses: state.addresses(&running.shared),
        });
        match &opened {
            Ok(_) => state.vrings[index] = Some(running),
            Err(error) => {
                state.give_up(error);
                let _ = state.table.release(running.shared.into_iter().chain([private]), None);
            }
        }
        opened
    }

    /// Gives the server memory of requests that go by a virtqueue that others use, too. `None` for addresses where
    /// their data have to be copied.
    pub(super) fn lend_memory(&self, memory: &MemoryMap) -> Result<LentMemory, SessionError> {
        let mut state = lock(&self.state);
        let connection = self.connected(&state)?;
        let mut regions = Vec::new();
        if self.options.io_buffer_bytes.is_none() {
            let queues_left = state.queues_left();
            let shared = state.table.share(memory, queues_left);
            let shared = shared.map_err(|error| SessionError::Os { socket: Arc::clone(&self.name), error })?;
            regions = shared.unwrap_or_default();
        }
        if let Err(error) = state.announce_shared(&connection, &mut regions) {
            state.give_up(&error);
            let _ = state.table.release(regions, None);
            return Err(error);
        }
        Ok(LentMemory { addresses: state.addresses(&regions), regions })
    }

    /// Takes it back. `drained` says whether the server owes nothing of it.
    pub(super) fn take_memory(&self, memory: LentMemory, drained: bool) {
        let mut state = lock(&self.state);
        let state = &mut *state;
        let taken = match state.connection.clone() {
            Some(connection) if drained => state.table.release(memory.regions, Some((&connection, &state.offer))),
            // It is about to go: the server must not be left with it.
            Some(_) => self.recall(state, memory.regions),
            None => state.table.release(memory.regions, None),
        };
        if let Err(error) = taken {
            state.give_up(&error);
        }
    }

    /// Forgets memory of requests that the server still owes.
    fn recall(&self, state: &mut State, regions: Vec<RegionId>) -> Result<(), SessionError> {
        state.table.release(regions, None)?;
        Err(SessionError::NoAnswer { socket: Arc::clone(&self.name), patience: self.options.patience })
    }

    /// Announces a queue's memory and starts its virtqueue. A server that refuses the requests' own memory gets their
    /// data copied.
    fn start_queue(state: &mut State, connection: &Connection, running: &mut Running) -> Result<(), SessionError> {
        state.announce_shared(connection, &mut running.shared)?;
        running.start(connection, 0)?;
        state.forget_retired(running.vring.index.into(), connection)
    }

    /// Stops a virtqueue. `drained` says whether the server owes nothing.
    pub(super) fn close_queue(&self, index: u16, drained: bool) {
        let mut state = lock(&self.state);
        let state = &mut *state;
        let Some(running) = state.vrings.get_mut(usize::from(index)).and_then(Option::take) else { return };
        state.retired[usize::from(index)] = Some(running.private);
        let closed = match state.connection.clone() {
            None => state.table.release(running.shared, None),
            Some(connection) if drained => connection
                .stop_vring(index)
                .and_then(|_| state.table.release(running.shared, Some((&connection, &state.offer)))),
            // Its memory is about to go: the server must not be left with it.
            Some(_) => self.recall(state, running.shared),
        };
        if let Err(error) = closed {
            state.give_up(&error);
        }
    }

    /// Requests that all queues have completed.
    pub(super) fn completed(&self) -> u64 {
        let state = lock(&self.state);
        state.vrings.iter().flatten().map(|running| running.vring.completed.load(Ordering::Relaxed)).sum()
    }

    /// What has come of the requests so far, unless somebody converses with the server.
    pub(super) fn progress(&self) -> Option<Progress> {
        let state = match self.state.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(error)) => error.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        let vrings = || state.vrings.iter().flatten().map(|running| &running.vring);
        Some(Progress {
            completed: vrings().map(|vring| vring.completed.load(Ordering::Relaxed)).sum(),
            in_flight: vrings().map(|vring| vring.in_flight.load(Ordering::Relaxed)).sum(),
        })
    }

    /// Forgets the connection, which is at its end, and says why if that is known.
    pub(super) fn disconnect(&self) -> Option<GivenUp> {
        let mut state = lock(&self.state);
        state.connection = None;
        self.incarnation.fetch_add(1, Ordering::AcqRel);
        state.given_up.take()
    }

    /// Ends the session: every request fails.
    pub(super) fn end(&self, reason: Arc<str>) {
        let mut state = lock(&self.state);
        state.connection = None;
        state.failure = Some(reason);
        for running in state.vrings.iter().flatten() {
            running.vring.tell(|news| news.ended = true);
        }
    }

    /// Says again to all queues what they were told: a server that takes their events may have taken that, too.
    pub(super) fn tell_again(&self) {
        lock(&self.state).vrings.iter().flatten().for_each(|running| running.vring.tell(|_| {}));
    }

    /// Goes on with another server: gives it all memory, and every queue an empty ring in memory that the last server
    /// never saw.
    pub(super) fn resume(&self, connection: Connection, offer: &Offer) -> Result<(), SessionError> {
        let os = |error| SessionError::Os { socket: Arc::clone(&self.name), error };
        let mut guard = lock(&self.state);
        let state = &mut *guard;
        state.table.reset(offer.memory_slots);
        state.retired.fill(None);
        let mut fresh = Vec::new();
        for running in state.vrings.iter_mut().flatten() {
            let own = Ring::allocate(&running.vring.shape).map_err(os)?;
            let inserted = state.table.insert_private(&own).map_err(os)?;
            running.private = inserted.map_err(|full| full.into_session_error(&self.name, offer.memory_slots))?;
            let ring = Ring::new(own, running.vring.shape, state.table.address(running.private)).map_err(os)?;
            running.addresses = ring.addresses();
            running.kick = self.new_kick().map_err(os)?;
            fresh.push(ring);
        }
        if state.table.has_news() {
            state.table.announce(&connection, offer)?;
        }
        for running in state.vrings.iter().flatten() {
            running.start(&connection, 0)?;
        }
        state.offer = *offer;
        state.given_up = None;
        state.connection = Some(Arc::new(connection));
        // Before any request completes: whoever sees that one did sees the disk as it is now.
        self.incarnation.fetch_add(1, Ordering::AcqRel);
        let geometry = self.remember(offer.geometry).then_some(offer.geometry);
        for (running, ring) in state.vrings.iter().flatten().zip(fresh) {
            let kick = Arc::clone(&running.kick);
            running.vring.tell(|news| {
                news.geometry = geometry.or(news.geometry);
                news.fresh = Some(FreshRing { ring, kick });
            });
        }
        if geometry.is_some() {
            self.change.ring();
        }
        Ok(())
    }

    /// Looks at the disk again.
    pub(super) fn refresh(&self, connection: &Connection) -> Result<(), SessionError> {
        let guard = lock(&self.state);
        let config = BlockConfig::new(connection.get_block_config()?, guard.offer.features);
        drop(guard);
        // What cannot be is not believed: the disk stays as it was.
        if let Ok(geometry) = config.geometry() {
            let before = self.geometry();
            // Requests are split by the block size that they were judged by.
            self.set_geometry(Geometry { logical_block_bytes: before.logical_block_bytes, ..geometry });
        }
        Ok(())
    }

    /// Whether the disk has changed.
    fn remember(&self, geometry: Geometry) -> bool {
        let changed = std::mem::replace(&mut *lock(&self.geometry), geometry) != geometry;
        if changed {
            self.generation.fetch_add(1, Ordering::Release);
        }
        changed
    }

    fn set_geometry(&self, geometry: Geometry) {
        if !self.remember(geometry) {
            return;
        }
        let mut state = lock(&self.state);
        state.offer.geometry = geometry;
        for running in state.vrings.iter().flatten() {
            running.vring.tell(|news| news.geometry = Some(geometry));
        }
        self.change.ring();
    }
}
