//! Sessions that belong together, and what all of them have done.

use super::session::{EndReason, Session};
use super::statistics::SessionStatistics;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Sessions of a disk's, or of a client's, one of which nobody has to remember by itself.
#[derive(Debug, Default)]
pub struct SessionGroup(Mutex<Members>);

#[derive(Debug, Default)]
struct Members {
    running: Vec<Arc<Session>>,
    /// What those have done that are over, and why the first of them could not be served that could not.
    ended: SessionStatistics,
    failure: Option<String>,
}

impl SessionGroup {
    /// As they are now: what is over is counted.
    fn members(&self) -> MutexGuard<'_, Members> {
        let mut members = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Members { running, ended, failure } = &mut *members;
        running.retain(|session| {
            let Some(reason) = session.end_reason() else { return true };
            ended.add(&session.statistics());
            if let EndReason::Server(why) = reason {
                failure.get_or_insert_with(|| why.clone());
            }
            false
        });
        members
    }

    /// Those that run. Others may come meanwhile, and statistics be asked for.
    fn running(&self) -> Vec<Arc<Session>> {
        self.members().running.clone()
    }

    /// One more.
    pub fn add(&self, session: Session) {
        self.members().running.push(Arc::new(session));
    }

    /// How many run.
    pub fn count(&self) -> usize {
        self.members().running.len()
    }

    /// What all of them have done.
    pub fn statistics(&self) -> SessionStatistics {
        let members = self.members();
        let mut all = members.ended.clone();
        members.running.iter().for_each(|session| all.add(&session.statistics()));
        all
    }

    /// Why the first of them has ended that could not be served, if one has.
    pub fn failure(&self) -> Option<String> {
        self.members().failure.clone()
    }

    /// As [`Session::settle`] of all of them.
    pub fn settle(&self) {
        self.running().iter().for_each(|session| session.settle());
    }

    /// As [`Session::revoke`] of all of them.
    pub fn revoke(&self) {
        self.running().iter().for_each(|session| session.revoke());
    }

    /// Ends all of them, whatever their clients do. Nothing of them touches the disk afterwards.
    pub fn end(&self) {
        let running = self.running();
        running.iter().for_each(|session| session.revoke());
        running.iter().for_each(|session| _ = session.wait());
    }
}
