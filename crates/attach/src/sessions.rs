//! The sessions of a disk that processes have, and what they share beside it.

use crate::UntoldFailure;
use crate::server_counts::ServerCounts;
use blockyard_session::client::{SESSION_ENDED, SessionDisk};
use blockyard_session::server::{QueueCounts, SessionGroup, SessionStatistics};
use std::ffi::OsString;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};

/// A page of a disk, its first bytes, if nobody else changes it and otherwise, and where its numbers are: changes begun
/// and ended, whether several processes use it, failed writes of which they were told, those that ended with a session
/// of theirs, and system calls
/// (`crates/posix/src/writers.rs`).
const PAGE_BYTES: u64 = 4096;
const ALONE: &[u8] = b"by-alone";
const OTHERS: &[u8] = b"by-other";
const BEGUN_AT: u64 = 8;
const ENDED_AT: u64 = 16;
const SHARED_AT: u64 = 24;
const TOLD_AT: u64 = 32;
const LOST_AT: u64 = 40;
/// Apart from the others, which all processes look at with each request.
const CALLS_AT: u64 = 128;

/// The sessions of a disk.
pub(crate) struct Sessions {
    pub(crate) name: OsString,
    /// Those that are served here.
    pub(crate) here: SessionGroup,
    /// What its processes share.
    pub(crate) page: Page,
    /// Nobody else changes it.
    pub(crate) is_alone: bool,
    /// That of the process which serves it, if another one does.
    session: Option<Arc<SessionDisk>>,
    /// That, if it takes further connections.
    server: Option<Arc<SessionDisk>>,
    /// What its servers have done.
    counts: Mutex<ServerCounts>,
}

/// What the processes of a disk share.
pub(crate) struct Page(File);

impl Page {
    /// Of a disk that nobody else changes if it `is_alone`.
    pub(crate) fn new(file: File, is_alone: bool) -> std::io::Result<Self> {
        file.set_len(PAGE_BYTES)?;
        file.write_all_at(if is_alone { ALONE } else { OTHERS }, 0)?;
        Ok(Self(file))
    }

    fn number(&self, at: u64) -> std::io::Result<u64> {
        let mut number = [0; 8];
        self.0.read_exact_at(&mut number, at)?;
        Ok(u64::from_ne_bytes(number))
    }

    /// Says that several processes use the disk, or one.
    fn set_shared(&self, is_shared: bool) -> std::io::Result<()> {
        self.0.write_all_at(&u64::from(is_shared).to_ne_bytes(), SHARED_AT)
    }

    /// System calls that programs have made for the disk.
    pub(crate) fn calls(&self) -> std::io::Result<u64> {
        self.number(CALLS_AT)
    }

    /// Failed writes of which programs were told.
    fn told(&self) -> std::io::Result<u64> {
        self.number(TOLD_AT)
    }

    /// Writes of which programs were told that they failed, as a session of theirs ended: which they may not have done
    /// here.
    fn lost(&self) -> std::io::Result<u64> {
        self.number(LOST_AT)
    }

    /// Nobody uses the disk: whoever was killed in the middle of a change changes nothing any more.
    fn end_changes(&self) -> std::io::Result<()> {
        let mut begun = [0; 8];
        self.0.read_exact_at(&mut begun, BEGUN_AT)?;
        self.0.write_all_at(&begun, ENDED_AT)
    }
}

impl Sessions {
    pub(crate) fn new(
        name: OsString,
        page: Page,
        is_alone: bool,
        session: Option<Arc<SessionDisk>>,
        server: Option<Arc<SessionDisk>>,
    ) -> Self {
        let (here, counts) = (SessionGroup::default(), Mutex::default());
        Self { name, here, page, is_alone, session, server, counts }
    }

    /// Whether another process serves it.
    pub(crate) fn is_elsewhere(&self) -> bool {
        self.session.is_some()
    }

    /// What its processes share, if nobody else changes it. What one of them does not wait for it has served here, even
    /// if all else is served by the disk's own server: so it is known when it is done, whoever is gone meanwhile.
    fn alone(&self) -> Option<&Page> {
        self.is_alone.then_some(&self.page)
    }

    /// Waits until all is done that processes have made available: they may have gone on without waiting, and ended.
    pub(crate) fn settle(&self) {
        if self.alone().is_some() {
            self.here.settle();
        }
    }

    /// Gives whoever has come a connection to the disk's own server. Who gets none sees the stream's end.
    pub(crate) fn pass_on(&self, stream: &UnixStream) {
        // Who does not take it is not there any more.
        let _ = self.server.as_ref().map(|server| server.pass_on(stream));
    }

    /// What its processes have had of it so far.
    pub(crate) fn statistics(&self) -> SessionStatistics {
        let mut all = self.here.statistics();
        all.counts = all.counts + self.counts_elsewhere();
        all
    }

    /// What its own servers have done for its processes so far, as they say.
    pub(crate) fn counts_elsewhere(&self) -> QueueCounts {
        let ask = |server| self.counts.lock().unwrap_or_else(PoisonError::into_inner).ask(server);
        self.server.as_deref().map(ask).unwrap_or_default()
    }

    pub(crate) fn untold_failure(&self) -> Option<UntoldFailure> {
        let page = self.alone()?;
        // For what others serve, whoever asked has waited.
        let SessionStatistics { counts, first_write_error, .. } = self.here.statistics();
        let error = first_write_error?;
        // The disk's session has ended here as there, of which they were told.
        let failure = self.session.as_ref().filter(|_| error == SESSION_ENDED).and_then(|session| session.failure());
        // What cannot be known was not told.
        let lost = if failure.is_some() { page.lost().unwrap_or(0) } else { 0 };
        let told = page.told().unwrap_or(0).saturating_add(lost);
        let reason = failure.map_or_else(|| error.with_remedy(), |failure| failure.to_string());
        (counts.write_errors > told).then(|| UntoldFailure { name: self.name.clone(), reason })
    }

    /// Says that several processes use the disk, who wait for what they do from now on, or not.
    pub(crate) fn set_shared(&self, is_shared: bool) -> std::io::Result<()> {
        self.alone().map_or(Ok(()), |page| page.set_shared(is_shared))
    }

    /// Sees to it that processes that are to use the disk find it as others leave it: who wait for what they do by now,
    /// or are gone. `is_first`: nobody uses it. `has_lost`: one that did is gone without a word.
    pub(crate) fn make_room(&self, is_first: bool, has_lost: bool) {
        let Some(page) = self.alone() else { return };
        if !is_first || has_lost {
            self.here.settle();
        }
        if has_lost {
            // What one that was killed had under way there would come after what is done from now on.
            self.server.iter().for_each(|server| server.settle_further());
        }
        if is_first && has_lost {
            // If it cannot be told, nothing is read before its time.
            let _ = page.end_changes();
        }
    }
}
