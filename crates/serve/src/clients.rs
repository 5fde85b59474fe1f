//! The clients that are served: attached when they may come in, counted while they are there, forgotten when they have
//! gone.

use crate::notices::Notices;
use crate::view::{ClientView, ServerView};
use blockyard_block::Disk;
use blockyard_block::layers::PartitionDisk;
use blockyard_session::mediator::{Grant, Grantor, MediatorNews};
use blockyard_session::server::{ClientStream, Export, Server, Session};
use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The number of the session that the process at the door has for itself; the mediator counts its grants from 1.
pub(crate) const OWN_SESSION: u64 = 0;

/// Sessions by number.
type Sessions = BTreeMap<u64, Arc<Session>>;

/// Names of clients that have left whose sums are kept: more than a server has sockets. Names come from the process at
/// the door.
const NAMES_MAX: usize = 256;

/// What others see.
#[derive(Default)]
struct Shown {
    sessions: Sessions,
    /// What was done by those that have left, all of a name together.
    left: Vec<ClientView>,
}

/// The clients of one server.
pub(crate) struct Clients {
    server: Server,
    disk: Arc<dyn Disk>,
    queues: u16,
    /// Nobody but they change it.
    is_alone: bool,
    sessions: Sessions,
    /// The same, for whoever looks at them from another thread while their events are borrowed.
    shown: Arc<Mutex<Shown>>,
    notices: &'static Notices,
}

impl Clients {
    /// Nobody yet, of a disk that nobody else changes if it `is_alone`. People are told what happens by `notices`.
    pub(crate) fn new(
        server: Server,
        disk: Arc<dyn Disk>,
        is_alone: bool,
        queues: u16,
        notices: &'static Notices,
    ) -> Self {
        let (sessions, shown) = (Sessions::new(), Arc::default());
        Self { server, disk, is_alone, queues, sessions, shown, notices }
    }

    /// What there is to see, at any time, from any thread.
    pub(crate) fn view(&self) -> impl Fn() -> ServerView + Send + Sync + 'static {
        let shown = Arc::clone(&self.shown);
        move || {
            let view = |(&id, session): (&u64, &Arc<Session>)| ClientView::of(id, session);
            let shown = lock(&shown);
            ServerView { clients: shown.sessions.iter().map(view).collect(), left: shown.left.clone() }
        }
    }

    /// Ends all sessions, when what is in flight has been answered.
    pub(crate) fn end(&mut self) {
        self.sessions.values().for_each(|session| session.revoke());
        for session in std::mem::take(&mut self.sessions).into_values() {
            session.wait();
        }
        self.show();
    }

    /// Shows the sessions that there are now.
    fn show(&self) {
        lock(&self.shown).sessions.clone_from(&self.sessions);
    }

    /// A session that has ended is counted with those of its name that ended before.
    fn leaves(&self, number: u64, session: &Session) {
        let mut gone = ClientView::of(number, session);
        gone.statistics.in_flight = 0;
        let mut shown = lock(&self.shown);
        shown.sessions.remove(&number);
        let left = &mut shown.left;
        match left.iter().position(|left| left.name == gone.name) {
            Some(at) => left[at].add(&gone),
            None if left.len() < NAMES_MAX => left.push(gone),
            None => {}
        }
    }

    /// Whether nobody is there.
    pub(crate) fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }
}

impl Grantor for Clients {
    fn grant(&mut self, grant: &Grant, stream: ClientStream) -> Result<(), String> {
        let Grant { session: number, range_bytes, read_only, weight, name } = grant.clone();
        let disk =
            PartitionDisk::new(Arc::clone(&self.disk), range_bytes, read_only).map_err(|error| error.to_string())?;
        // What one of them writes no other has (`Driver`, `offers`), but the one that only reads the partition table.
        let is_alone = self.is_alone && !(number == OWN_SESSION && read_only);
        let export = Export { name: name.into(), disk: Arc::new(disk), queues: self.queues, weight, is_alone };
        let session = Arc::new(self.server.attach(stream, export).map_err(|error| error.to_string())?);
        self.sessions.insert(number, session);
        self.show();
        Ok(())
    }

    fn revoke(&mut self, session: u64) {
        if let Some(session) = self.sessions.get(&session) {
            session.revoke();
        }
    }

    fn events<'a>(&'a self, events: &mut Vec<BorrowedFd<'a>>) {
        events.extend(self.sessions.values().map(|session| session.ended()));
    }

    fn ended(&mut self) -> Vec<(u64, String)> {
        let reason = |(&number, session): (&u64, &Arc<Session>)| Some((number, session.end_reason()?.to_string()));
        let ended: Vec<_> = self.sessions.iter().filter_map(reason).collect();
        for (number, why) in &ended {
            let session = self.sessions.remove(number);
            session.iter().for_each(|session| self.leaves(*number, session));
            // What becomes of our other process is told by who has started it.
            if let Some(session) = session.filter(|_| *number != OWN_SESSION) {
                let what = format!("{}: the session is over: {why}", session.name());
                self.notices.tell_on(&format!("end of {}", session.name()), &what);
            }
        }
        self.show();
        ended
    }

    fn mediator_says(&mut self, news: MediatorNews) {
        match news {
            MediatorNews::Ready => self.notices.tell("the partitions' sockets are ready"),
            MediatorNews::Notice(what) => self.notices.tell_on("mediator", &what),
            MediatorNews::Failed(why) => self.notices.tell(&format!("the mediator failed: {why}")),
            MediatorNews::Gone(why) => {
                self.notices.tell(&format!("{why}; clients that are connected stay, new ones cannot come"))
            }
        }
    }
}

fn lock(shown: &Mutex<Shown>) -> MutexGuard<'_, Shown> {
    shown.lock().unwrap_or_else(PoisonError::into_inner)
}
