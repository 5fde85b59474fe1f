//! Waiting until all is done that a client's further connections had made available, those of processes that are gone
//! among them. Nobody waits for an answer: the client is given a number, and asks how far it is.

use super::session::Shared;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

/// How often that was asked for, and as of which time it is done.
#[derive(Debug, Default)]
pub(super) struct Settling(Mutex<Progress>);

#[derive(Debug, Default)]
struct Progress {
    asked: u64,
    settled: u64,
    /// A thread waits. There is one at most.
    is_running: bool,
}

impl Settling {
    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number up to which it is done.
    pub(super) fn settled(&self) -> u64 {
        self.progress().settled
    }
}

/// Begins to wait for what has been made available by now: the number that is reached when it is done.
///
/// # Errors
/// When the system refuses a thread.
pub(super) fn begin(session: &Arc<Shared>) -> io::Result<u64> {
    let mut progress = session.settling_further.progress();
    progress.asked += 1;
    if !progress.is_running {
        let session = Arc::clone(session);
        thread::Builder::new().name("settle".to_owned()).spawn(move || settle(&session))?;
        progress.is_running = true;
    }
    Ok(progress.asked)
}

fn settle(session: &Shared) {
    loop {
        let asked = session.settling_further.progress().asked;
        session.further.settle();
        let mut progress = session.settling_further.progress();
        progress.settled = asked;
        if progress.asked == asked {
            progress.is_running = false;
            return;
        }
    }
}
