//! Requests of programs that know of queues: many at once, in memory that whoever serves the disk maps. Nothing is
//! copied, and nothing is allocated once a queue is open.

use crate::connection::{Access, Server, users_of, without_signals};
use crate::errno::Errno;
use crate::setup::{self, Inside};
use crate::users::Users;
use crate::writers::{Change, Shared, Writers};
use crate::{locks, own};
use blockyard_block::limits::REQUEST_BYTES_MAX;
use blockyard_block::specification::DiskSpecification;
use blockyard_block::{Completion, Geometry, MemoryMap, Operation, Queue, Request, Segment, explain};
use blockyard_session::open::{OpenDisk, OpenOptions};
use std::error::Error;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A disk that a program has opened by itself.
pub(crate) struct QueuedDisk(Arc<Opened>);

struct Opened {
    disk: OpenDisk,
    server: Server,
    writers: Writers,
    /// For as long as it is open, this process is a user.
    _users: Option<Users>,
}

/// Why it could not be.
pub(crate) struct Refusal {
    pub(crate) errno: Errno,
    pub(crate) reason: String,
}

impl QueuedDisk {
    /// Opens what the command line takes for a disk.
    pub(crate) fn open(disk: &str, read_only: bool) -> Result<Self, Refusal> {
        let specification: DiskSpecification =
            disk.parse().map_err(|error| Refusal { errno: Errno(libc::EINVAL), reason: explain(&error) })?;
        let _inside = Inside::enter();
        let number = setup::disks().position(|named| named.disk == disk);
        let of_a_name = number.and_then(|number| own::make(|| locks::file(number)));
        let unnamed = if number.is_none() { locks::open_file(disk) } else { None };
        let shared = Shared::of(of_a_name.as_deref().or(unnamed.as_ref()));
        let calls = shared.calls();
        let options = OpenOptions { read_only, is_guest: true, calls, ..OpenOptions::default() };
        let Access { opened, server } = without_signals(|| Access::to(disk, &specification, &options))
            .map_err(|error| Refusal { errno: errno_beneath(&error), reason: explain(&error) })?;
        let writers = shared.writers();
        let entered = users_of(disk, writers).and_then(|users| {
            users.as_ref().map_or(Ok(()), Users::enter)?;
            Ok(users)
        });
        let gone = |errno| Refusal { errno, reason: "nobody serves the disk any more".to_owned() };
        Ok(Self(Arc::new(Opened { disk: opened, server, writers, _users: entered.map_err(gone)? })))
    }

    pub(crate) fn geometry(&self) -> Geometry {
        self.0.disk.disk.geometry()
    }

    /// Opens a queue on the disk, which goes on as long as it lives.
    pub(crate) fn open_queue(&self, memory_bytes: usize, depth: usize) -> Result<OpenQueue, Errno> {
        if memory_bytes == 0 || depth == 0 {
            return Err(Errno(libc::EINVAL));
        }
        let _inside = Inside::enter();
        without_signals(|| {
            let memory = MemoryMap::allocate(&[(0, memory_bytes)]).map_err(|_| Errno(libc::ENOMEM))?;
            let first = Segment { region: 0, length_bytes: 1, offset_bytes: 0 };
            let base = memory.slice(first).ok_or(Errno(libc::ENOMEM))?.ptr_guard_mut().as_ptr();
            let queue = self.0.disk.disk.open_queue(&memory, depth)?;
            let Geometry { logical_block_bytes, memory_align_bytes, .. } = self.geometry();
            Ok(OpenQueue {
                _change: (!self.geometry().read_only).then(|| self.0.writers.begin()),
                completions: Vec::with_capacity(queue.depth()),
                given: 0,
                // As many may have ended and not been given yet as are under way.
                requests: vec![Pushed { token: 0, is_write: false }; 2 * queue.depth()],
                free: (0..2 * queue.depth()).collect(),
                queue,
                _memory: memory,
                base,
                memory_bytes,
                block_bytes: u64::from(logical_block_bytes),
                memory_align_bytes: memory_align_bytes as usize,
                disk: Arc::clone(&self.0),
            })
        })
    }
}

/// The number of the system's error that is at the bottom of another.
fn errno_beneath(error: &(dyn Error + 'static)) -> Errno {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(errno) = error.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error) {
            return Errno(errno);
        }
        cause = error.source();
    }
    Errno(libc::ENXIO)
}

/// A queue and its memory.
pub(crate) struct OpenQueue {
    /// Dropped before the memory, and the disk.
    queue: Box<dyn Queue>,
    _memory: MemoryMap,
    /// Where the memory is in this process.
    base: *mut u8,
    memory_bytes: usize,
    block_bytes: u64,
    memory_align_bytes: usize,
    /// What the queue has given, of which so many are the program's already: as many as there is room for.
    completions: Vec<Completion>,
    given: usize,
    /// What those that are under way are to the program, by their numbers here, and the numbers that are free.
    requests: Vec<Pushed>,
    free: Vec<usize>,
    /// For as long as it may write: nobody knows when.
    _change: Option<Change>,
    disk: Arc<Opened>,
}

/// A request as the program knows it.
#[derive(Clone, Copy)]
struct Pushed {
    token: u64,
    is_write: bool,
}

/// Which way bytes go.
#[derive(Clone, Copy)]
pub(crate) enum Way {
    Read,
    Write,
}

impl OpenQueue {
    pub(crate) fn memory(&self) -> *mut u8 {
        self.base
    }

    pub(crate) fn depth(&self) -> usize {
        self.queue.depth()
    }

    /// Takes a request that reads to the queue's memory or writes from there.
    pub(crate) fn transfer(
        &mut self,
        way: Way,
        offset_bytes: u64,
        address: *const u8,
        length: usize,
        token: u64,
    ) -> Result<(), Errno> {
        let in_memory = address.addr().checked_sub(self.base.addr());
        let lies_within = |start: usize| start.checked_add(length).is_some_and(|end| end <= self.memory_bytes);
        let start = in_memory.filter(|&start| lies_within(start)).ok_or(Errno(libc::EINVAL))?;
        if length as u64 > REQUEST_BYTES_MAX || (start | length) & (self.memory_align_bytes - 1) != 0 {
            return Err(Errno(libc::EINVAL));
        }
        self.is_whole_blocks(offset_bytes, length as u64)?;
        let operation = match way {
            Way::Read => Operation::Read,
            Way::Write => Operation::Write { force_unit_access: false },
        };
        let segment = Segment { region: 0, length_bytes: length as u32, offset_bytes: start as u64 };
        self.push(&Request { operation, offset_bytes, segments: &[segment], token })
    }

    /// Takes one that moves no bytes.
    pub(crate) fn perform(&mut self, operation: Operation, offset_bytes: u64, token: u64) -> Result<(), Errno> {
        let request = Request { operation, offset_bytes, segments: &[], token };
        if operation != Operation::Flush {
            self.is_whole_blocks(offset_bytes, request.length_bytes())?;
        }
        self.push(&request)
    }

    /// EINVAL unless a range is of one block or more.
    fn is_whole_blocks(&self, offset_bytes: u64, length_bytes: u64) -> Result<(), Errno> {
        // A block's size is a power of two.
        let is_whole = length_bytes > 0 && (offset_bytes | length_bytes) & (self.block_bytes - 1) == 0;
        if is_whole { Ok(()) } else { Err(Errno(libc::EINVAL)) }
    }

    fn push(&mut self, request: &Request<'_>) -> Result<(), Errno> {
        let full = || Errno(libc::EAGAIN);
        let number = *self.free.last().ok_or_else(full)?;
        self.queue.push(&Request { token: number as u64, ..*request }).map_err(|_| full())?;
        self.free.pop();
        let is_write = matches!(request.operation, Operation::Write { .. });
        self.requests[number] = Pushed { token: request.token, is_write };
        Ok(())
    }

    /// Hands over all that was taken.
    pub(crate) fn submit(&mut self) -> Result<(), Errno> {
        Ok(self.queue.submit()?)
    }

    /// Calls `give` with up to `max` completions, and waits for `min` of them as long as there are requests and time.
    pub(crate) fn reap(
        &mut self,
        max: usize,
        min: usize,
        timeout: Option<Duration>,
        mut give: impl FnMut(usize, Completion),
    ) -> Result<usize, Errno> {
        let min = min.min(max);
        // A time that never comes is no time.
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut count = 0;
        loop {
            if self.given == self.completions.len() {
                self.given = 0;
                self.completions.clear();
                self.queue.reap(&mut self.completions);
            }
            let before = count;
            for completion in self.completions[self.given..].iter().take(max - count) {
                let number = completion.token as usize;
                let Pushed { token, is_write } = self.requests[number];
                self.free.push(number);
                if let (true, Err(error)) = (is_write, completion.result) {
                    self.disk.server.told(self.disk.writers, error);
                }
                give(count, Completion { token, ..*completion });
                count += 1;
            }
            self.given += count - before;
            if count > 0 && count >= min {
                return Ok(count);
            }
            match self.go_on(count < min && count == before, deadline) {
                Ok(true) if count < min && self.in_flight() > 0 => {}
                // Those that were given are the program's.
                Err(error) if count == 0 => return Err(error),
                _ => return Ok(count),
            }
        }
    }

    /// Requests that have not been given back.
    fn in_flight(&self) -> usize {
        self.queue.in_flight() + self.completions.len() - self.given
    }

    /// Submits what was pushed, and what is in the middle of something. Then waits, if there is something to wait for:
    /// whether there was time for that.
    fn go_on(&mut self, waits: bool, deadline: Option<Instant>) -> Result<bool, Errno> {
        self.queue.submit()?;
        if !waits || self.queue.in_flight() == 0 {
            return Ok(true);
        }
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if left != Some(Duration::ZERO) {
            self.queue.wait(&[], left)?;
        }
        Ok(left != Some(Duration::ZERO))
    }
}
