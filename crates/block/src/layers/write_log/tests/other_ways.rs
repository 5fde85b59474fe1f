//! Logging of what takes another way to a disk than a queue, and of a disk that does not keep what it promises.

use super::super::{Change, Event, Recording, WriteLog, WriteLogDisk};
use crate::Disk;
use std::ops::Range;
use std::sync::Arc;

impl WriteLogDisk {
    /// A disk whose changes are logged into a log that others write to, too: `range` of it is the disk's.
    pub(crate) fn sharing(disk: Arc<dyn Disk>, log: Arc<WriteLog>, range: Range<u64>) -> Self {
        Self { disk, log, range }
    }
}

impl WriteLog {
    /// Carries out, and logs, a write that takes another way than a queue.
    pub(crate) fn write<R>(&self, offset_bytes: u64, data: &[u8], write: impl FnOnce() -> R) -> R {
        self.around(Change::Write { offset_bytes, data: data.into(), force_unit_access: false }, write)
    }

    /// The same, for a write that is stable when it is done.
    pub(crate) fn write_stable<R>(&self, offset_bytes: u64, data: &[u8], write: impl FnOnce() -> R) -> R {
        self.around(Change::Write { offset_bytes, data: data.into(), force_unit_access: true }, write)
    }

    /// The same, for zeros.
    pub(crate) fn zero<R>(&self, range: Range<u64>, zero: impl FnOnce() -> R) -> R {
        self.around(Change::Zero { range }, zero)
    }

    /// The same, for a flush of what lies in a range.
    pub(crate) fn flush<R>(&self, range: Range<u64>, flush: impl FnOnce() -> R) -> R {
        self.around(Change::Flush { range }, flush)
    }

    fn around<R>(&self, change: Change, act: impl FnOnce() -> R) -> R {
        let issued = {
            let mut events = self.events();
            events.push(Event::Issued(change));
            events.len() - 1
        };
        let done = act();
        self.events().push(Event::Completed { issued, succeeded: true });
        done
    }
}

impl Recording {
    /// As of a disk that takes flushes and does nothing.
    pub(crate) fn without_flushes(mut self) -> Self {
        for event in &mut self.events {
            match event {
                Event::Issued(change @ Change::Flush { .. }) => *change = Change::Zero { range: 0..0 },
                Event::Issued(Change::Write { force_unit_access, .. }) => *force_unit_access = false,
                _ => {}
            }
        }
        self
    }
}
