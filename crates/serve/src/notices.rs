//! What is said while a disk is served: by a thread of its own, so that nobody waits for whoever is to read it, and not
//! without limit, as clients decide how often something happens to them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{io, mem, thread};

/// Messages that wait to be written.
const WAITING_MAX: usize = 256;
/// Messages on one topic that are written as they come. Then there is one in [`PAUSE`], which says how many it stands
/// for.
const BURST: u32 = 16;
const PAUSE: Duration = Duration::from_secs(1);

/// Messages on their way to people. Nobody waits for who reads them; a process has one of these.
#[derive(Default)]
pub struct Notices {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Notice>,
    /// Messages for which there was no room.
    dropped: u64,
    topics: BTreeMap<String, Topic>,
    is_writing: bool,
}

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A sentence of this process's.
    Said(String),
    /// A text that was asked for.
    Printed(String),
}

/// What is said again and again.
struct Topic {
    /// Messages that may still be written as they come; one more for each [`PAUSE`] since `counted`.
    left: u32,
    counted: Instant,
    /// Messages that one is to stand for, and the last of them.
    held: u64,
    last: String,
}

impl Topic {
    fn new(now: Instant) -> Self {
        Self { left: BURST, counted: now, held: 0, last: String::new() }
    }

    fn count(&mut self, now: Instant) {
        let pauses = now.saturating_duration_since(self.counted).as_secs() / PAUSE.as_secs();
        self.left = BURST.min(self.left.saturating_add(u32::try_from(pauses).unwrap_or(BURST)));
        self.counted += PAUSE * u32::try_from(pauses).unwrap_or(0);
    }

    /// The message that stands for all that were held back, if there are any.
    fn summary(&mut self) -> Option<Notice> {
        let text = mem::take(&mut self.last);
        match mem::take(&mut self.held) {
            0 => None,
            1 => Some(Notice::Said(text)),
            held => Some(Notice::Said(format!("{text} (and {} more messages like this one)", held - 1))),
        }
    }
}

impl State {
    fn push(&mut self, notice: Notice) {
        if self.waiting.len() < WAITING_MAX {
            self.waiting.push_back(notice);
        } else {
            self.dropped += 1;
        }
    }

    fn say_on(&mut self, now: Instant, topic: &str, text: &str) {
        let topic = self.topics.entry(topic.to_owned()).or_insert_with(|| Topic::new(now));
        topic.count(now);
        if topic.left > 0 && topic.held == 0 {
            topic.left -= 1;
            self.push(Notice::Said(text.to_owned()));
        } else {
            topic.held += 1;
            text.clone_into(&mut topic.last);
        }
    }

    /// Has what was held back written, where it is time for that; when it will be otherwise.
    fn summarize(&mut self, now: Instant) -> Option<Instant> {
        let mut summaries = Vec::new();
        for topic in self.topics.values_mut() {
            topic.count(now);
            if topic.held > 0 && topic.left > 0 {
                topic.left -= 1;
                summaries.extend(topic.summary());
            }
        }
        summaries.into_iter().for_each(|summary| self.push(summary));
        self.topics.retain(|_, topic| topic.held > 0 || topic.left < BURST);
        self.topics.values().filter(|topic| topic.held > 0).map(|topic| topic.counted + PAUSE).min()
    }

    /// The next message to be written.
    fn next(&mut self) -> Option<Notice> {
        if let Some(notice) = self.waiting.pop_front() {
            return Some(notice);
        }
        match mem::take(&mut self.dropped) {
            0 => None,
            dropped => Some(Notice::Said(format!("{dropped} more messages were dropped, as nobody read them in time"))),
        }
    }
}

impl Notices {
    /// None yet.
    pub const fn new() -> Self {
        let state = State { waiting: VecDeque::new(), dropped: 0, topics: BTreeMap::new(), is_writing: false };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Has everything written by a thread, which nobody waits for.
    ///
    /// # Errors
    /// When there is no thread to be had.
    pub fn start(&'static self, write: impl Fn(&Notice) + Send + 'static) -> io::Result<()> {
        thread::Builder::new().name("notices".into()).spawn(move || self.write_all(write)).map(drop)
    }

    fn write_all(&self, write: impl Fn(&Notice)) {
        let mut state = self.lock();
        loop {
            let due = state.summarize(Instant::now());
            if let Some(notice) = state.next() {
                state.is_writing = true;
                drop(state);
                write(&notice);
                state = self.lock();
                state.is_writing = false;
                self.changed.notify_all();
                continue;
            }
            state = match due {
                Some(due) => {
                    let left = due.saturating_duration_since(Instant::now());
                    self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    /// Has a sentence written, once it is its turn.
    pub fn tell(&self, what: &str) {
        self.push(Notice::Said(what.to_owned()));
    }

    /// Has a text written that was asked for, once it is its turn.
    pub fn print(&self, text: &str) {
        self.push(Notice::Printed(text.to_owned()));
    }

    fn push(&self, notice: Notice) {
        self.lock().push(notice);
        self.changed.notify_all();
    }

    /// Has a sentence written that may be said as often as clients like: not more of one topic than people read.
    pub fn tell_on(&self, topic: &str, text: &str) {
        self.lock().say_on(Instant::now(), topic, text);
        self.changed.notify_all();
    }

    /// Waits, but not for ever, until all is written, what was held back as well. Whether it is.
    pub fn flush(&self, patience: Duration) -> bool {
        let mut state = self.lock();
        let summaries: Vec<_> = state.topics.values_mut().filter_map(Topic::summary).collect();
        summaries.into_iter().for_each(|summary| state.push(summary));
        self.changed.notify_all();
        let is_busy = |state: &mut State| state.is_writing || !state.waiting.is_empty() || state.dropped > 0;
        let waited = self.changed.wait_timeout_while(state, patience, is_busy);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(state: &mut State) -> Vec<String> {
        let text = |notice| match notice {
            Notice::Said(text) | Notice::Printed(text) => text,
        };
        std::iter::from_fn(|| state.next()).map(text).collect()
    }

    #[test]
    fn what_happens_again_and_again_is_counted() {
        let (mut state, start) = (State::default(), Instant::now());
        (0..1000).for_each(|number| state.say_on(start, "a", &format!("a{number}")));
        state.say_on(start, "b", "another");
        let due = state.summarize(start);
        assert_eq!(due, Some(start + PAUSE));
        let said = all(&mut state);
        assert_eq!((said.len(), said[15].as_str(), said[16].as_str()), (17, "a15", "another"));
        state.summarize(start + PAUSE);
        assert_eq!(all(&mut state), ["a999 (and 983 more messages like this one)"]);
        // Each second one, and as many as at first when there was quiet.
        state.say_on(start + PAUSE, "a", "once");
        assert_eq!(state.summarize(start + PAUSE), Some(start + 2 * PAUSE));
        assert_eq!(state.summarize(start + 2 * PAUSE), None);
        assert_eq!(all(&mut state), ["once"]);
        (0..16).for_each(|_| state.say_on(start + 100 * PAUSE, "a", "again"));
        assert_eq!(all(&mut state).len(), 16);
        state.summarize(start + 200 * PAUSE);
        assert!(state.topics.is_empty());
    }

    #[test]
    fn nobody_waits_for_who_does_not_read() {
        static NOTICES: Notices = Notices::new();
        let (sender, reader) = std::sync::mpsc::sync_channel(0);
        let write = move |notice: &Notice| sender.send(notice.clone()).unwrap();
        NOTICES.start(write).unwrap();
        (0..1000).for_each(|number| NOTICES.print(&number.to_string()));
        assert!(!NOTICES.flush(Duration::ZERO));
        let mut read = Vec::new();
        while !NOTICES.flush(Duration::ZERO) {
            read.extend(reader.try_recv());
        }
        let last = read.pop().unwrap();
        assert!((WAITING_MAX..=WAITING_MAX + 1).contains(&read.len()), "{}", read.len());
        assert_eq!(
            last,
            Notice::Said(format!("{} more messages were dropped, as nobody read them in time", 1000 - read.len()))
        );
    }
}
