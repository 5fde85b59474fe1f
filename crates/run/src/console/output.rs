//! What the guest says, on its way to stdout.

use super::TerminalFilter;
use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// What may wait to be written.
const BYTES_MAX: usize = 1 << 16;
/// A reader that has read nothing for so long at the end does not get the rest.
const PATIENCE_AT_THE_END: Duration = Duration::from_secs(1);

/// Takes what the guest says. Clones are the same output.
#[derive(Clone)]
pub struct ConsoleOutput(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    waiting: Vec<u8>,
    /// The writer is writing what is no longer waiting.
    is_writing: bool,
    is_closed: bool,
    /// What there is no room for is dropped.
    drops: bool,
}

impl ConsoleOutput {
    /// Starts the thread that calls `begin` and then writes to stdout; `unheard` is told why when it cannot.
    pub(super) fn start(
        to_terminal: bool,
        begin: impl FnOnce() -> io::Result<()> + Send + 'static,
        unheard: impl Fn(io::Error) + Send + 'static,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let own = Arc::clone(&shared);
        let write = move || {
            if let Err(error) = begin().and_then(|()| own.write_all(to_terminal)) {
                own.close();
                unheard(error);
            }
        };
        thread::Builder::new().name("console-out".to_owned()).spawn(write)?;
        Ok(Self(shared))
    }

    /// Takes `bytes`, once there is room for them. When nobody reads any more, they are dropped.
    pub fn write(&self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let mut state = self.0.lock();
            while state.waiting.len() == BYTES_MAX && !state.is_closed && !state.drops {
                state = self.0.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            if state.is_closed || state.waiting.len() == BYTES_MAX {
                return;
            }
            let count = (BYTES_MAX - state.waiting.len()).min(bytes.len());
            state.waiting.extend(&bytes[..count]);
            bytes = &bytes[count..];
            self.0.changed.notify_all();
        }
    }

    /// Whether whoever says something waits for room, or what there is none for is dropped.
    pub(super) fn set_waits(&self, waits: bool) {
        self.0.lock().drops = !waits;
        self.0.changed.notify_all();
    }

    /// Takes nothing any more, and waits until what was taken is written, as long as it gets on.
    pub(super) fn finish(&self) {
        let mut state = self.0.lock();
        state.is_closed = true;
        self.0.changed.notify_all();
        while state.is_writing || !state.waiting.is_empty() {
            let waited = self.0.changed.wait_timeout(state, PATIENCE_AT_THE_END);
            let (after, waited) = waited.unwrap_or_else(PoisonError::into_inner);
            if waited.timed_out() {
                return;
            }
            state = after;
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nothing is taken any more, and what was is not written.
    fn close(&self) {
        let mut state = self.lock();
        (state.is_closed, state.is_writing) = (true, false);
        state.waiting.clear();
        self.changed.notify_all();
    }

    /// Writes what comes until the output is closed.
    fn write_all(&self, to_terminal: bool) -> io::Result<()> {
        let mut filter = to_terminal.then(TerminalFilter::default);
        let mut piece = Vec::new();
        loop {
            let mut state = self.lock();
            state.is_writing = false;
            self.changed.notify_all();
            while state.waiting.is_empty() && !state.is_closed {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            let is_last = state.waiting.is_empty();
            state.is_writing = true;
            piece.clear();
            std::mem::swap(&mut piece, &mut state.waiting);
            drop(state);
            if let Some(filter) = &mut filter {
                filter.filter(&mut piece);
                if is_last {
                    piece.extend(filter.end());
                }
            }
            let mut stdout = io::stdout().lock();
            stdout.write_all(&piece)?;
            stdout.flush()?;
            if is_last {
                self.lock().is_writing = false;
                self.changed.notify_all();
                return Ok(());
            }
        }
    }
}
