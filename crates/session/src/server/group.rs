//! A client's further connections, as the server of the first has them ([`further`](crate::further)).

use super::session::Session;
use super::statistics::SessionStatistics;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How many a client may have at a time: each is two threads here, and some descriptors.
const FURTHER_MAX: usize = 64;

/// Those of one client.
#[derive(Debug, Default)]
pub(super) struct FurtherSessions(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    running: Vec<Arc<Session>>,
    /// What those have done that are over.
    ended: SessionStatistics,
}

impl FurtherSessions {
    fn state(&self) -> MutexGuard<'_, State> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let State { running, ended } = &mut *state;
        running.retain(|session| {
            let has_ended = session.end_reason().is_some();
            if has_ended {
                ended.add(&session.statistics());
            }
            !has_ended
        });
        state
    }

    /// Whether the client has as many as it may have.
    pub(super) fn are_full(&self) -> bool {
        self.state().running.len() >= FURTHER_MAX
    }

    /// One more.
    pub(super) fn add(&self, session: Session) {
        self.state().running.push(Arc::new(session));
    }

    /// What all of them have done.
    pub(super) fn statistics(&self) -> SessionStatistics {
        let state = self.state();
        let mut all = state.ended.clone();
        state.running.iter().for_each(|session| all.add(&session.statistics()));
        all
    }

    /// Ends all of them; if they may, once what is available on them is done. Nothing of them touches the disk
    /// afterwards.
    pub(super) fn end(&self, finishes: bool) {
        let running = self.state().running.clone();
        if finishes {
            running.iter().for_each(|session| session.settle());
        }
        self.revoke();
        running.iter().for_each(|session| _ = session.wait());
        drop(self.state());
    }

    /// Nobody waits for what they have begun any more.
    pub(super) fn revoke(&self) {
        let running = self.state().running.clone();
        running.iter().for_each(|session| session.revoke());
    }
}
