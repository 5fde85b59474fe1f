//! What is typed, on its way to the guest.

use super::escape::EscapeKeys;
use std::collections::VecDeque;
use std::io::{self, Read};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// What may wait for the guest to read it.
const BYTES_MAX: usize = 1 << 16;
/// What is read at once.
const PIECE_BYTES: usize = 4096;

type Listener = Box<dyn Fn() + Send>;

/// What was typed and the guest has not read yet.
#[derive(Default)]
pub struct InputQueue {
    state: Mutex<State>,
    /// There is room, or the queue is closed.
    changed: Condvar,
    /// Told that there is something new.
    listener: Mutex<Option<Listener>>,
}

#[derive(Default)]
struct State {
    bytes: VecDeque<u8>,
    is_closed: bool,
}

impl InputQueue {
    /// From now on `listener` is told that there is something new, by the thread that reads it, which must not be kept
    /// waiting; whoever listened before is not. It is told at once, as something may have come before.
    pub fn listen(&self, listener: impl Fn() + Send + 'static) {
        let mut place = self.listener.lock().unwrap_or_else(PoisonError::into_inner);
        place.insert(Box::new(listener))();
    }

    /// From now on nobody listens: what is typed waits for who listens next.
    pub fn unlisten(&self) {
        *self.listener.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Moves at most `room` bytes to the end of `buffer`.
    pub fn take(&self, buffer: &mut Vec<u8>, room: usize) {
        let mut state = self.lock();
        let count = room.min(state.bytes.len());
        buffer.extend(state.bytes.drain(..count));
        if count > 0 {
            self.changed.notify_all();
        }
    }

    /// Adds what was typed. What there is no room for waits for some, or is dropped: a terminal's keys, among which may
    /// be the ones that end it all.
    fn add(&self, typed: &[u8], waits: bool) {
        let mut left = typed;
        while !left.is_empty() {
            let mut state = self.lock();
            while waits && state.bytes.len() == BYTES_MAX && !state.is_closed {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            let count = (BYTES_MAX - state.bytes.len()).min(left.len());
            state.bytes.extend(&left[..count]);
            left = if waits && !state.is_closed { &left[count..] } else { &[] };
            drop(state);
            if let Some(listener) = &*self.listener.lock().unwrap_or_else(PoisonError::into_inner) {
                listener();
            }
        }
    }

    /// Nobody waits for room any more, and nobody listens.
    pub(super) fn close(&self) {
        self.lock().is_closed = true;
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads stdin to its end. With `has_keys`, those of the console are its own.
pub(super) fn read(queue: &InputQueue, has_keys: bool, leave: impl Fn()) {
    let mut keys = EscapeKeys::default();
    let mut piece = vec![0; PIECE_BYTES];
    // Its end is the end of what is typed, not of the machine.
    while let Ok(count @ 1..) = io::stdin().read(&mut piece) {
        let mut typed = piece[..count].to_vec();
        if has_keys && keys.take(&mut typed) {
            leave();
        }
        queue.add(&typed, !has_keys);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    #[test]
    fn what_is_typed_comes_in_order_and_is_heard_of() {
        let (queue, heard) = (InputQueue::default(), Arc::new(AtomicUsize::new(0)));
        queue.add(b"early ", true);
        let count = Arc::clone(&heard);
        queue.listen(move || _ = count.fetch_add(1, Ordering::Relaxed));
        queue.add(b"late", true);
        assert_eq!(heard.load(Ordering::Relaxed), 2);
        let mut taken = Vec::new();
        queue.take(&mut taken, 3);
        queue.take(&mut taken, 100);
        assert_eq!(taken, b"early late");
    }

    #[test]
    fn what_comes_while_nobody_listens_is_told_to_who_listens_next() {
        let (queue, heard) = (InputQueue::default(), Arc::new(AtomicUsize::new(0)));
        let count = Arc::clone(&heard);
        queue.listen(move || _ = count.fetch_add(1, Ordering::Relaxed));
        queue.unlisten();
        queue.add(b"meanwhile", true);
        assert_eq!(heard.load(Ordering::Relaxed), 1);
        let count = Arc::clone(&heard);
        queue.listen(move || _ = count.fetch_add(10, Ordering::Relaxed));
        assert_eq!(heard.load(Ordering::Relaxed), 11);
    }

    #[test]
    fn a_terminals_keys_are_dropped_where_a_pipes_bytes_wait() {
        let queue = Arc::new(InputQueue::default());
        let many: Vec<u8> = (0..BYTES_MAX + 5000).map(|index| index as u8).collect();
        queue.add(&many, false);
        assert_eq!(queue.lock().bytes.len(), BYTES_MAX);
        let (writer, expected) = (Arc::clone(&queue), [&many[..BYTES_MAX], &many[..]].concat());
        let all = many.clone();
        let writing = thread::spawn(move || writer.add(&all, true));
        let mut taken = Vec::new();
        while taken.len() < expected.len() {
            queue.take(&mut taken, 777);
            thread::yield_now();
        }
        writing.join().unwrap();
        assert!(taken == expected);
    }

    #[test]
    fn nobody_waits_for_room_in_a_closed_queue() {
        let queue = InputQueue::default();
        queue.close();
        queue.add(&vec![0; 3 * BYTES_MAX], true);
        assert_eq!(queue.lock().bytes.len(), BYTES_MAX);
    }
}
