//! POSIX AIO (aio.h). Requests on other descriptors are glibc's.

use crate::aio::{Group, Kind, Requests, Wanted};
use crate::calls::OpenDisk;
use crate::connection::{self, Connection, start_thread};
use crate::control_block::{ControlBlock, Notice};
use crate::errno::{Errno, answer_int};
use crate::next::{calls, own};
use crate::signals::{Busy, all_restart, cancellation_point, is_one_waiting};
use crate::table;
use crate::transfer::Ends;
use libc::{aiocb, c_int, sigevent, timespec};
use std::slice;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// How often to look where requests of glibc's are waited for, too.
const OFTEN: Duration = Duration::from_micros(100);

/// A request on a disk: where, and what for.
struct Asked {
    connection: &'static Connection,
    requests: &'static Requests,
    wanted: Wanted,
}

/// Priorities are up to that (AIO_PRIO_DELTA_MAX).
const PRIORITY_MAX: c_int = 20;

/// What is called for with a block.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Call {
    Read,
    Write,
    Sync,
}

impl Call {
    /// By a block of a list's, if that names one that a list may have.
    fn of(block: ControlBlock) -> Option<Self> {
        match block.operation() {
            libc::LIO_READ => Some(Self::Read),
            libc::LIO_WRITE => Some(Self::Write),
            _ => None,
        }
    }

    /// Whether a block's priority is one that this may have.
    fn may_have_priority_of(self, block: ControlBlock) -> bool {
        self == Self::Sync || (0..=PRIORITY_MAX).contains(&block.priority())
    }
}

/// What a block asks for; `None` if that is no disk's.
fn asked(block: ControlBlock, call: Call) -> Option<Result<Asked, Errno>> {
    let open = table::find(block.descriptor())?;
    let asked = || {
        let disk = OpenDisk::of(open)?;
        let (connection, description) = (disk.connection, disk.mapped.get());
        let may = match call {
            Call::Read => description.may_read(),
            Call::Write => description.may_write(),
            Call::Sync => true,
        };
        if !may {
            return Err(Errno(libc::EBADF));
        }
        if !call.may_have_priority_of(block) {
            return Err(Errno(libc::EINVAL));
        }
        let kind = match call {
            Call::Read => Kind::Read,
            Call::Write => Kind::Write { stable: disk.ends() == Ends::Stable, appends: disk.appends() },
            Call::Sync => Kind::Flush,
        };
        let under_way = connection.under_way();
        connection.enter()?;
        let wanted = Wanted { block, kind, descriptor: block.descriptor(), under_way };
        Ok(Asked { connection, requests: connection.requests()?, wanted })
    };
    Some(asked())
}

/// Makes one request, if it is a disk's. What is wrong with it is for aio_error(3) to say.
fn made(block: *mut aiocb, call: Call) -> Option<Result<c_int, Errno>> {
    if block.is_null() {
        return None;
    }
    let _busy = Busy::enter();
    // SAFETY: the program's, as of aio_read(3).
    let block = unsafe { ControlBlock::new(block) };
    let asked = asked(block, call)?;
    if !call.may_have_priority_of(block) {
        block.refuse(Errno(libc::EINVAL));
        return Some(Err(Errno(libc::EINVAL)));
    }
    Some(match asked {
        Ok(Asked { connection, requests, wanted }) => {
            let expected = block.notice().is_wanted().then(|| connection.tell_of_ends(requests)).transpose();
            match expected {
                Ok(_expected) if requests.make(connection, [wanted].into_iter(), None) == 0 => Ok(0),
                Ok(_) => Err(Errno(libc::EAGAIN)),
                Err(error) => {
                    block.refuse(error);
                    Err(error)
                }
            }
        }
        Err(error) => {
            block.end(Err(error));
            Ok(0)
        }
    })
}

/// Takes back what is done, of all disks.
fn look() {
    let _busy = Busy::enter();
    for connection in connection::all() {
        if let Some(requests) = connection.requests_made() {
            requests.look(connection);
        }
    }
}

/// A list of the program's, some of which may be none.
#[derive(Clone, Copy)]
struct List<'a>(&'a [*mut aiocb]);

impl List<'_> {
    /// # Safety
    /// As of lio_listio(3): there are so many, and they stay while this is used.
    unsafe fn new(blocks: *const *mut aiocb, count: c_int) -> Result<Self, Errno> {
        let count = usize::try_from(count).map_err(|_| Errno(libc::EINVAL))?;
        if count == 0 || blocks.is_null() {
            return Ok(Self(&[]));
        }
        // SAFETY: the caller's.
        Ok(Self(unsafe { slice::from_raw_parts(blocks, count) }))
    }

    /// Those that are there.
    fn blocks(self) -> impl Iterator<Item = ControlBlock> {
        // SAFETY: as of `new`.
        self.0.iter().filter(|block| !block.is_null()).map(|block| unsafe { ControlBlock::new(*block) })
    }
}

/// Waits until a block of these is done, or `deadline`: whether one is. Signals come meanwhile. May be called in a
/// signal handler: it allocates nothing.
fn suspended(list: List<'_>, deadline: Option<Instant>) -> Result<bool, Errno> {
    cancellation_point();
    loop {
        let busy = Busy::enter();
        match suspended_once(list, deadline, &busy) {
            // As in glibc, whose waiting without a time is one that the kernel goes on with.
            Err(Errno(libc::EINTR)) if deadline.is_none() && all_restart() => {}
            answer => return answer,
        }
    }
}

/// The same, until a signal comes.
fn suspended_once(list: List<'_>, deadline: Option<Instant>, busy: &Busy) -> Result<bool, Errno> {
    let is_done = || list.blocks().next().is_none() || list.blocks().any(|block| block.status() != libc::EINPROGRESS);
    if is_done() {
        return Ok(true);
    }
    let all_ours = list.blocks().all(ControlBlock::is_ours);
    let made = connection::all().filter_map(|connection| Some((connection, connection.requests_made()?)));
    let mut in_use = made.filter(|(_, requests)| requests.is_busy());
    if let (true, Some((connection, requests)), None) = (all_ours, in_use.next(), in_use.next()) {
        return requests.wait(connection, deadline, is_done);
    }
    loop {
        look();
        if is_done() {
            return Ok(true);
        }
        if is_one_waiting() {
            return Err(Errno(libc::EINTR));
        }
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return Ok(false);
        }
        // What is not ours may never end.
        busy.cancellation_point();
        thread::sleep(OFTEN);
    }
}

/// Starts a thread that hears of requests that glibc has been given, and tells of their ends.
fn tell_of_theirs(group: Arc<Group>) -> Result<Sender<Vec<ControlBlock>>, Errno> {
    let (made, theirs) = channel::<Vec<ControlBlock>>();
    let tell = move || {
        for block in theirs.iter().flatten() {
            while block.status() == libc::EINPROGRESS {
                thread::sleep(OFTEN);
            }
            group.one_less();
        }
    };
    start_thread(tell).map_err(|_| Errno(libc::EAGAIN))?;
    Ok(made)
}

/// Makes the requests of a list, and waits for all of them or has somebody told.
fn made_of_list(list: List<'_>, mode: c_int, event: *const sigevent) -> Result<c_int, Errno> {
    let busy = Busy::enter();
    let waits = match mode {
        libc::LIO_WAIT => true,
        libc::LIO_NOWAIT => false,
        _ => return Err(Errno(libc::EINVAL)),
    };
    let blocks: Vec<_> = list.blocks().filter(|block| block.operation() != libc::LIO_NOP).collect();
    // SAFETY: the program's, as of lio_listio(3).
    let notice = if waits { Notice::Nobody } else { unsafe { Notice::of(event) } };
    // One more, so that it does not end before all are made.
    let group = notice.is_wanted().then(|| Arc::new(Group::new(blocks.len() + 1, notice)));
    let less = || group.iter().for_each(|group| group.one_less());
    let mut refused = 0;
    let mut theirs = Vec::new();
    let mut ours: Vec<(&'static Connection, &'static Requests, Vec<Wanted>)> = Vec::new();
    let mut wrong = Vec::new();
    for &block in &blocks {
        match Call::of(block).map_or(Some(Err(Errno(libc::EINVAL))), |call| asked(block, call)) {
            None => theirs.push(block),
            Some(Ok(Asked { connection, requests, wanted })) => {
                match ours.iter_mut().find(|(_, known, _)| std::ptr::eq(*known, requests)) {
                    Some((_, _, list)) => list.push(wanted),
                    None => ours.push((connection, requests, vec![wanted])),
                }
            }
            Some(Err(error)) => wrong.push((block, error)),
        }
    }
    // Whoever tells of their ends is there before any is made: where the system has no room for that, none is.
    let tells = |list: &[Wanted]| group.is_some() || list.iter().any(|wanted| wanted.block.notice().is_wanted());
    let tellers = ours.iter().filter(|(_, _, list)| tells(list));
    let tellers =
        tellers.map(|(connection, requests, _)| connection.tell_of_ends(requests)).collect::<Result<Vec<_>, _>>();
    let told = group.clone().filter(|_| !theirs.is_empty()).map(tell_of_theirs).transpose();
    let (tellers, told) = match (tellers, told) {
        (Ok(tellers), Ok(told)) => (tellers, told),
        (Err(error), _) | (_, Err(error)) => {
            blocks.iter().for_each(|block| block.refuse(error));
            return Err(error);
        }
    };
    for (block, error) in wrong {
        block.end(Err(error));
        less();
    }
    for (connection, requests, list) in ours {
        let not_made = requests.make(connection, list.into_iter(), group.as_ref());
        (0..not_made).for_each(|_| less());
        refused += not_made;
    }
    drop(tellers);
    for &block in &theirs {
        let address = block.address();
        let made = match block.operation() {
            libc::LIO_READ => own!(aio_read(address: *mut aiocb) -> c_int),
            _ => own!(aio_write(address: *mut aiocb) -> c_int),
        };
        refused += usize::from(made != 0);
    }
    if let Some(told) = told {
        // The thread is there.
        let _ = told.send(theirs);
    }
    less();
    drop(busy);
    if waits {
        for block in &blocks {
            while block.status() == libc::EINPROGRESS {
                suspended(List(&[block.address()]), None)?;
            }
        }
        let failed = |block: &ControlBlock| block.status() != 0;
        if refused == 0 && blocks.iter().any(failed) {
            return Err(Errno(libc::EIO));
        }
    }
    if refused > 0 { Err(Errno(libc::EAGAIN)) } else { Ok(0) }
}

/// What aio_cancel(3) can do: what the disk has, it does.
fn cancelled(descriptor: c_int, block: *mut aiocb) -> Option<Result<c_int, Errno>> {
    // SAFETY: the program's, as of aio_cancel(3).
    let block = (!block.is_null()).then(|| unsafe { ControlBlock::new(block) });
    // What either of us has begun, it knows of, whatever the descriptor is open on by now.
    let on_disk = match block {
        Some(block) if block.status() == libc::EINPROGRESS => block.is_ours(),
        _ => table::has(descriptor),
    };
    on_disk.then(|| {
        look();
        let is_under_way = match block {
            Some(block) if block.descriptor() != descriptor => return Err(Errno(libc::EINVAL)),
            Some(block) => block.is_ours(),
            None => has_under_way(descriptor),
        };
        Ok(if is_under_way { libc::AIO_NOTCANCELED } else { libc::AIO_ALLDONE })
    })
}

/// Whether a request that was made with a descriptor is under way.
fn has_under_way(descriptor: c_int) -> bool {
    let _busy = Busy::enter();
    connection::all().any(|connection| connection.requests_made().is_some_and(|made| made.has_of(descriptor)))
}

/// A time from now on, as of aio_suspend(3).
fn deadline(timeout: *const timespec) -> Result<Option<Instant>, Errno> {
    // SAFETY: the program's.
    let Some(timeout) = (unsafe { timeout.as_ref() }) else { return Ok(None) };
    let seconds = u64::try_from(timeout.tv_sec).map_err(|_| Errno(libc::EINVAL))?;
    let nanoseconds = u32::try_from(timeout.tv_nsec).ok().filter(|nanoseconds| *nanoseconds < 1_000_000_000);
    let wait = Duration::new(seconds, nanoseconds.ok_or(Errno(libc::EINVAL))?);
    // Later than the end of time is never.
    Ok(Instant::now().checked_add(wait))
}

fn suspended_list(list: List<'_>, timeout: *const timespec) -> Result<c_int, Errno> {
    match suspended(list, deadline(timeout)?)? {
        true => Ok(0),
        false => Err(Errno(libc::EAGAIN)),
    }
}

/// Whether a request of a list is on a disk.
fn has_ours(list: &Result<List<'_>, Errno>) -> bool {
    list.as_ref().map_or(true, |list| list.blocks().any(|block| table::find(block.descriptor()).is_some()))
}

/// Whether a request that is waited for is on a disk.
fn has_ours_under_way(list: &Result<List<'_>, Errno>) -> bool {
    list.as_ref().map_or(true, |list| list.blocks().any(ControlBlock::is_ours))
}

calls! {
    fn [aio_read, aio_read64](block: *mut aiocb) -> c_int |own| {
        made(block, Call::Read).map_or_else(own, answer_int)
    }
    fn [aio_write, aio_write64](block: *mut aiocb) -> c_int |own| {
        made(block, Call::Write).map_or_else(own, answer_int)
    }
    fn [aio_fsync, aio_fsync64](operation: c_int, block: *mut aiocb) -> c_int |own| {
        let is_known = matches!(operation, libc::O_SYNC | libc::O_DSYNC);
        is_known.then(|| made(block, Call::Sync)).flatten().map_or_else(own, answer_int)
    }
    fn [aio_error, aio_error64](block: *const aiocb) -> c_int |_own| {
        // SAFETY: the program's; whichever library has made its request, the block has the answer.
        let block = unsafe { ControlBlock::new(block.cast_mut()) };
        if block.status() == libc::EINPROGRESS {
            look();
        }
        block.status()
    }
    fn [aio_return, aio_return64](block: *mut aiocb) -> isize |_own| {
        // SAFETY: the program's.
        unsafe { ControlBlock::new(block) }.result()
    }
    fn [aio_suspend, aio_suspend64](
        blocks: *const *const aiocb, count: c_int, timeout: *const timespec
    ) -> c_int |own| {
        // SAFETY: the program's.
        let list = unsafe { List::new(blocks.cast(), count) };
        if !has_ours_under_way(&list) { own() } else { answer_int(list.and_then(|list| suspended_list(list, timeout))) }
    }
    fn [aio_cancel, aio_cancel64](descriptor: c_int, block: *mut aiocb) -> c_int |own| {
        cancelled(descriptor, block).map_or_else(own, answer_int)
    }
    fn [lio_listio, lio_listio64](mode: c_int, blocks: *const *mut aiocb, count: c_int, event: *mut sigevent) -> c_int |own| {
        // SAFETY: the program's.
        let list = unsafe { List::new(blocks, count) };
        if !has_ours(&list) { own() } else { answer_int(list.and_then(|list| made_of_list(list, mode, event))) }
    }
}
