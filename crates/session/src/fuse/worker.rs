//! A thread that takes requests from the kernel, has them done, and answers them.
//!
//! It owns a [`Queue`] and the memory of the requests it has in hand, so that there is no lock, no allocation and no
//! hand-over between threads on the way of a request: one read(2) of the message with its payload in place, the
//! queue's batch, one write(2) of the reply out of the same memory. It reads no more messages than it can carry; the
//! rest wait in the kernel.

use super::buffers::{BUFFER_COUNT, Buffers, Slot, TRANSFER_BYTES_MAX};
use super::claims::Claim;
use super::errno::errno_of;
use super::message::{Body, Message, NewAttributes, NewTime, PARSED_BYTES_MAX, Reply, reply_header};
use super::pieces::Pieces;
use super::shared::{EndReason, Shared};
use blockyard_block::{Completion, Operation, Queue, Request, RequestError, Segment};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

/// Messages read before the queue is looked after, so that one worker does not take what another could begin with.
const ACCEPT_BATCH: usize = 8;
/// Requests found without waiting before a resting worker is called for help.
const BUSY_STREAK: u32 = 4;
/// Before a worker rests it was woken for nothing this often, two for each time and one less for each request found: a
/// third of its wake-ups in the long run.
const IDLE_MAX: u32 = 32;
/// Parts of one request that are in the queue at once: both edges of a change and what is between them.
const PARTS_MAX: usize = 3;
/// The part between the edges.
const MIDDLE: usize = 2;
/// Zeroed at once: a whole number of every block size.
const ZERO_PART_BYTES: u64 = 16 << 30;

/// What a request becomes once all its parts are done.
#[derive(Clone, Copy, Debug)]
enum Answer {
    Done,
    Opened { direct: bool },
    Written { length: u32 },
    Data { offset: u64, length: u32 },
}

/// Whether a request is answered now or when its parts are done.
enum Begun {
    Now(Result<Answer, Errno>),
    Later,
}

/// A change of the disk on its way.
#[derive(Debug)]
struct Change {
    range: Range<u64>,
    pieces: Pieces,
    claim: Claim,
    kind: ChangeKind,
    /// The edges were read and the pieces are being written.
    writing: bool,
    /// What is still to be zeroed, a part at a time, so that a zeroing of all of a disk can end early.
    to_zero: Range<u64>,
}

#[derive(Clone, Copy, Debug)]
enum ChangeKind {
    /// To the payload in the request's buffer.
    Write {
        force_unit_access: bool,
    },
    Zero {
        may_unmap: bool,
    },
}

/// A request in hand.
#[derive(Debug)]
struct Task {
    unique: u64,
    answer: Answer,
    change: Option<Change>,
    /// Parts pushed or in the backlog.
    outstanding: usize,
    error: Option<RequestError>,
}

/// A part of a request that the queue has not taken yet.
#[derive(Clone, Copy, Debug)]
struct Part {
    operation: Operation,
    offset_bytes: u64,
    segment: Option<Segment>,
    token: u64,
}

/// See the module's page.
pub(super) struct Worker {
    index: usize,
    shared: Arc<Shared>,
    device: OwnedFd,
    queue: Box<dyn Queue>,
    buffers: Buffers,
    tasks: Vec<Option<Task>>,
    in_hand: usize,
    backlog: VecDeque<Part>,
    /// Changes whose claims could not be had.
    parked: Vec<Slot>,
    completions: Vec<Completion>,
    /// The device had no more messages; whether that has changed, the next wait tells.
    drained: bool,
    /// Requests found without waiting, in a row.
    busy: u32,
    /// See [`IDLE_MAX`].
    idle: u32,
}

impl Worker {
    /// A worker that serves the requests of `device`, which does not block. `buffers`' memory is the queue's.
    pub(super) fn new(
        index: usize,
        shared: Arc<Shared>,
        device: OwnedFd,
        queue: Box<dyn Queue>,
        buffers: Buffers,
    ) -> Self {
        let depth = queue.depth();
        Self {
            index,
            shared,
            device,
            queue,
            buffers,
            tasks: (0..BUFFER_COUNT).map(|_| None).collect(),
            in_hand: 0,
            backlog: VecDeque::with_capacity(BUFFER_COUNT * PARTS_MAX),
            parked: Vec::with_capacity(BUFFER_COUNT),
            completions: Vec::with_capacity(depth),
            drained: false,
            busy: 0,
            idle: 0,
        }
    }

    /// Serves until it is told to stop or the file is unmounted.
    pub(super) fn run(mut self) {
        let _guard = EndOnPanic(Arc::clone(&self.shared));
        if let Err(reason) = self.serve() {
            self.shared.end(reason);
        }
    }

    fn serve(&mut self) -> Result<(), EndReason> {
        loop {
            let stopping = self.shared.stopping();
            if stopping && self.in_hand == 0 {
                return Ok(());
            }
            let accepted = if stopping || self.drained { 0 } else { self.accept()? };
            let moved = self.advance().map_err(EndReason::Disk)?;
            if accepted == 0 && !moved {
                self.wait(stopping)?;
            }
        }
    }

    /// Whether another message could be carried.
    fn can_accept(&self) -> bool {
        self.in_hand < self.queue.depth() && self.buffers.available()
    }

    /// Reads messages as long as there are any and they can be carried. Gives how many.
    fn accept(&mut self) -> Result<usize, EndReason> {
        let mut accepted = 0;
        while accepted < ACCEPT_BATCH && self.can_accept() {
            let Some(slot) = self.buffers.take() else { break };
            match self.buffers.receive(slot, self.device.as_fd()).map_err(|error| (Errno::from_io_error(&error), error))
            {
                Ok(length) => {
                    accepted += 1;
                    self.begin(slot, length);
                }
                // A signal, or a request that its program gave up before we had it.
                Err((Some(Errno::INTR | Errno::NOENT), _)) => self.buffers.give_back(slot),
                Err((Some(Errno::AGAIN), _)) => {
                    self.buffers.give_back(slot);
                    self.drained = true;
                    if accepted < 2 {
                        self.busy = 0;
                    }
                    break;
                }
                Err((Some(Errno::NODEV | Errno::CONNABORTED), _)) => return Err(EndReason::Unmounted),
                Err((_, error)) => return Err(EndReason::Device(error)),
            }
        }
        match accepted {
            0 if self.in_hand == 0 => self.idle += 2,
            0 => {}
            _ => self.idle = self.idle.saturating_sub(1),
        }
        self.busy += accepted as u32;
        if self.busy >= BUSY_STREAK {
            self.busy = 0;
            self.shared.call_for_help();
        }
        Ok(accepted)
    }

    /// Sleeps until there is something to do. The kernel wakes every worker for each request; one that mostly comes too
    /// late rests until another one calls.
    fn wait(&mut self, stopping: bool) -> Result<(), EndReason> {
        let shared = Arc::clone(&self.shared);
        // A queue without an event does its work in `submit`: whoever is in there cannot call for help.
        let may_rest = self.index > 0 && self.queue.completion_event().is_some();
        if may_rest && self.idle >= IDLE_MAX && self.in_hand == 0 {
            self.idle = 0;
            shared.rest(self.index);
        }
        let listening = !stopping && self.can_accept() && !shared.resting(self.index);
        let events = [shared.kick_event(self.index), self.device.as_fd()];
        let events = if listening { &events[..] } else { &events[..1] };
        self.queue.wait(events, None).map_err(EndReason::Disk)?;
        shared.take_kick(self.index);
        self.drained = false;
        Ok(())
    }

    /// Pushes, submits and reaps what there is. True when anything moved.
    fn advance(&mut self) -> io::Result<bool> {
        let mut moved = false;
        loop {
            self.retry_parked();
            while let Some(part) = self.backlog.front() {
                let request = Request {
                    operation: part.operation,
                    offset_bytes: part.offset_bytes,
                    segments: part.segment.as_slice(),
                    token: part.token,
                };
                if self.queue.push(&request).is_err() {
                    break;
                }
                self.backlog.pop_front();
                moved = true;
            }
            self.queue.submit()?;
            let mut completions = std::mem::take(&mut self.completions);
            self.queue.reap(&mut completions);
            let reaped = !completions.is_empty();
            completions.drain(..).for_each(|completion| self.complete(completion));
            self.completions = completions;
            moved |= reaped;
            if !reaped || self.backlog.is_empty() {
                return Ok(moved);
            }
        }
    }

    /// Does what the message asks, or begins to.
    fn begin(&mut self, slot: Slot, length: usize) {
        let mut bytes = [0; PARSED_BYTES_MAX];
        let bytes = &mut bytes[..length.min(PARSED_BYTES_MAX)];
        let message = self.buffers.copy_message(slot, bytes).ok().and_then(|()| Message::parse(bytes));
        let Some(Message { unique, body }) = message else {
            self.buffers.give_back(slot);
            self.reply_error(Message::unique_of(bytes).unwrap_or(0), Errno::INVAL.raw_os_error());
            return;
        };
        let begun = match body {
            Body::Read { offset, length } => self.begin_read(slot, unique, offset, length),
            Body::Write { direct, offset, length, flags } => {
                // The kernel itself syncs after a write through its cache; a direct write is durable when we say so.
                let force_unit_access = direct && flags & (libc::O_DSYNC | libc::O_SYNC) != 0;
                self.begin_write(slot, unique, offset, length, force_unit_access)
            }
            Body::Open { flags } => self.begin_open(slot, unique, flags),
            Body::Sync => {
                self.add_task(slot, unique, Answer::Done, None);
                self.add_part(slot, MIDDLE, Operation::Flush, 0, None);
                Begun::Later
            }
            Body::Allocate { offset, length, mode } => self.begin_allocate(slot, unique, offset, length, mode),
            other => {
                self.buffers.give_back(slot);
                self.answer_at_once(unique, other);
                return;
            }
        };
        if let Begun::Now(answer) = begun {
            self.buffers.give_back(slot);
            self.finish(unique, answer);
        }
    }

    /// Answers what needs no request to the disk.
    fn answer_at_once(&self, unique: u64, body: Body) {
        let reply = match body {
            Body::GetAttributes => Ok(Reply::attributes(&self.shared.attributes())),
            Body::SetAttributes(new) => self.set_attributes(&new),
            Body::Seek { offset, whence } => self.shared.seek(offset, whence).map(Reply::position),
            Body::FileSystem => Ok(Reply::file_system(self.shared.capacity_bytes(), self.shared.block_bytes)),
            Body::Release => Ok(Reply::done()),
            Body::Unanswered => return,
            _ => Err(Errno::NOSYS),
        };
        match reply {
            Ok(mut reply) => self.send(reply.bytes(unique)),
            Err(errno) => self.reply_error(unique, errno.raw_os_error()),
        }
    }

    /// A disk keeps its size, its owner and its permissions; only its time can be set.
    fn set_attributes(&self, new: &NewAttributes) -> Result<Reply, Errno> {
        let shared = &self.shared;
        let now = shared.attributes();
        let same = |wanted: Option<u32>, is: u32| wanted.is_none_or(|wanted| wanted == is);
        let permissions = |mode: u32| mode & 0o7777;
        let unchanged = same(new.uid, now.uid)
            && same(new.gid, now.gid)
            && same(new.mode.map(permissions), permissions(now.mode))
            && new.size.is_none_or(|size| size == now.size_bytes);
        if !unchanged {
            return Err(Errno::PERM);
        }
        match new.modified {
            Some(NewTime::Now) => shared.mark_modified(),
            Some(NewTime::At { seconds, nanoseconds }) => shared.set_modified(seconds, nanoseconds),
            None => {}
        }
        Ok(Reply::attributes(&shared.attributes()))
    }

    /// An opener who truncates discards the contents: they become zeros, as the size cannot become zero.
    fn begin_open(&mut self, slot: Slot, unique: u64, flags: i32) -> Begun {
        let answer = Answer::Opened { direct: flags & libc::O_DIRECT != 0 };
        let truncates = flags & libc::O_TRUNC != 0;
        let changes = truncates || flags & libc::O_ACCMODE != libc::O_RDONLY;
        if changes && self.shared.read_only {
            return Begun::Now(Err(Errno::ROFS));
        }
        let whole = 0..self.shared.capacity_bytes();
        if !truncates || whole.is_empty() {
            return Begun::Now(Ok(answer));
        }
        self.begin_change(slot, unique, whole, ChangeKind::Zero { may_unmap: true }, answer)
    }

    /// Reads the blocks that the range lies in. Past the end there is nothing.
    fn begin_read(&mut self, slot: Slot, unique: u64, offset: u64, length: u32) -> Begun {
        if length > TRANSFER_BYTES_MAX {
            return Begun::Now(Err(Errno::INVAL));
        }
        let range = self.clip(offset, length);
        if range.is_empty() {
            return Begun::Now(Ok(Answer::Data { offset: 0, length: 0 }));
        }
        let length = (range.end - range.start) as u32;
        let slot = self.buffers.settle_read(slot, length);
        let block = u64::from(self.shared.block_bytes);
        let start = range.start - range.start % block;
        let blocks_bytes = (range.end.next_multiple_of(block) - start) as u32;
        let answer = Answer::Data { offset: range.start - start, length };
        self.add_task(slot, unique, answer, None);
        let segment = self.buffers.data(slot, 0, blocks_bytes);
        self.add_part(slot, MIDDLE, Operation::Read, start, Some(segment));
        Begun::Later
    }

    /// Writes what fits; a write that begins at the end or after it finds no space, as on a block device.
    fn begin_write(&mut self, slot: Slot, unique: u64, offset: u64, length: u32, force_unit_access: bool) -> Begun {
        let range = self.clip(offset, length);
        let written = (range.end - range.start) as u32;
        match () {
            () if length > TRANSFER_BYTES_MAX => return Begun::Now(Err(Errno::INVAL)),
            () if self.shared.read_only => return Begun::Now(Err(Errno::ROFS)),
            () if length == 0 => return Begun::Now(Ok(Answer::Written { length })),
            () if written == 0 => return Begun::Now(Err(Errno::NOSPC)),
            () => {}
        }
        let slot = self.buffers.settle_write(slot, written);
        let answer = Answer::Written { length: written };
        self.begin_change(slot, unique, range, ChangeKind::Write { force_unit_access }, answer)
    }

    /// fallocate(2): a hole that is punched and a range that is zeroed read as zeros. The size never changes.
    fn begin_allocate(&mut self, slot: Slot, unique: u64, offset: u64, length: u64, mode: i32) -> Begun {
        const PUNCH: i32 = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        const ZERO: i32 = libc::FALLOC_FL_ZERO_RANGE;
        const ZERO_KEEP: i32 = libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE;
        let capacity = self.shared.capacity_bytes();
        let end = offset.saturating_add(length);
        let may_unmap = match mode {
            PUNCH | ZERO | ZERO_KEEP if self.shared.read_only => return Begun::Now(Err(Errno::ROFS)),
            PUNCH => true,
            ZERO if end > capacity => return Begun::Now(Err(Errno::NOSPC)),
            ZERO | ZERO_KEEP => false,
            _ => return Begun::Now(Err(Errno::OPNOTSUPP)),
        };
        let range = offset.min(capacity)..end.min(capacity);
        if range.is_empty() {
            return Begun::Now(Ok(Answer::Done));
        }
        self.begin_change(slot, unique, range, ChangeKind::Zero { may_unmap }, Answer::Done)
    }

    /// The part of a transfer's range that the disk has.
    fn clip(&self, offset: u64, length: u32) -> Range<u64> {
        let capacity = self.shared.capacity_bytes();
        let end = offset.saturating_add(u64::from(length)).min(capacity);
        offset.min(capacity)..end
    }

    /// Begins a change of `range`, which is not empty and lies on a disk that may be written to.
    fn begin_change(&mut self, slot: Slot, unique: u64, range: Range<u64>, kind: ChangeKind, answer: Answer) -> Begun {
        let pieces = Pieces::new(range.clone(), self.shared.block_bytes);
        let claim = Claim::new(&range, !pieces.aligned());
        self.add_task(slot, unique, answer, Some(Change { range, pieces, claim, kind, writing: false, to_zero: 0..0 }));
        if self.shared.claims.try_claim(claim) {
            self.start_change(slot);
        } else {
            self.parked.push(slot);
            self.shared.claims.park();
        }
        Begun::Later
    }

    /// Tries again to make the claims that could not be had.
    fn retry_parked(&mut self) {
        let mut index = 0;
        while let Some(&slot) = self.parked.get(index) {
            let claim =
                self.tasks[slot.index()].as_ref().and_then(|task| task.change.as_ref()).map(|change| change.claim);
            if claim.is_some_and(|claim| !self.shared.claims.try_claim(claim)) {
                index += 1;
                continue;
            }
            self.parked.swap_remove(index);
            self.shared.claims.unpark();
            self.start_change(slot);
        }
    }

    /// Reads the blocks that change in part, if any; writes the rest when that is done.
    fn start_change(&mut self, slot: Slot) {
        let Some(change) = self.tasks[slot.index()].as_ref().and_then(|task| task.change.as_ref()) else { return };
        let edges = [0, 1].map(|which| change.pieces.edges[which].as_ref().map(|edge| edge.block_offset));
        for (which, block_offset) in edges.into_iter().enumerate() {
            let Some(block_offset) = block_offset else { continue };
            let segment = self.buffers.scratch(slot, which);
            self.add_part(slot, which, Operation::Read, block_offset, Some(segment));
        }
        if edges == [None, None] {
            self.write_pieces(slot);
        }
    }

    /// Changes the edges that were read, and writes every piece.
    fn write_pieces(&mut self, slot: Slot) {
        let Some(task) = self.tasks[slot.index()].as_mut() else { return };
        let Some(change) = task.change.as_mut() else { return };
        change.writing = true;
        let (start, kind, middle) = (change.range.start, change.kind, change.pieces.middle.clone());
        let edges = std::mem::take(&mut change.pieces.edges);
        let force_unit_access = matches!(kind, ChangeKind::Write { force_unit_access: true });
        let writes = matches!(kind, ChangeKind::Write { .. });
        for (which, edge) in edges.into_iter().enumerate() {
            let Some(edge) = edge else { continue };
            let payload = writes.then(|| edge.block_offset + edge.changed.start as u64 - start);
            // Every place of a buffer is in its memory: it cannot fail.
            let _ = self.buffers.patch(slot, which, edge.changed, payload);
            let segment = self.buffers.scratch(slot, which);
            let operation = Operation::Write { force_unit_access };
            self.add_part(slot, which, operation, edge.block_offset, Some(segment));
        }
        if middle.is_empty() {
            return;
        }
        let length_bytes = middle.end - middle.start;
        match kind {
            ChangeKind::Write { force_unit_access } => {
                let segment = self.buffers.data(slot, middle.start - start, length_bytes as u32);
                self.add_part(slot, MIDDLE, Operation::Write { force_unit_access }, middle.start, Some(segment));
            }
            ChangeKind::Zero { .. } => {
                change_of(&mut self.tasks, slot).into_iter().for_each(|change| change.to_zero = middle.clone());
                self.zero_part(slot);
            }
        }
    }

    /// Zeroes the next part of what a change is to zero.
    fn zero_part(&mut self, slot: Slot) {
        let Some(change) = change_of(&mut self.tasks, slot) else { return };
        let ChangeKind::Zero { may_unmap } = change.kind else { return };
        let start = change.to_zero.start;
        let end = change.to_zero.end.min(start.saturating_add(ZERO_PART_BYTES));
        change.to_zero.start = end;
        let operation = Operation::WriteZeroes { length_bytes: end - start, may_unmap };
        self.add_part(slot, MIDDLE, operation, start, None);
    }

    fn add_task(&mut self, slot: Slot, unique: u64, answer: Answer, change: Option<Change>) {
        self.tasks[slot.index()] = Some(Task { unique, answer, change, outstanding: 0, error: None });
        self.in_hand += 1;
    }

    fn add_part(
        &mut self,
        slot: Slot,
        which: usize,
        operation: Operation,
        offset_bytes: u64,
        segment: Option<Segment>,
    ) {
        if let Some(task) = self.tasks[slot.index()].as_mut() {
            task.outstanding += 1;
        }
        let token = (slot.index() * (PARTS_MAX + 1) + which) as u64;
        self.backlog.push_back(Part { operation, offset_bytes, segment, token });
    }

    /// A part is done: the next ones follow, or the answer.
    fn complete(&mut self, completion: Completion) {
        let Some(slot) = Slot::new(completion.token as usize / (PARTS_MAX + 1)) else { return };
        let Some(task) = self.tasks[slot.index()].as_mut() else { return };
        task.outstanding = task.outstanding.saturating_sub(1);
        task.error = task.error.or(completion.result.err());
        if task.outstanding > 0 {
            return;
        }
        if task.error.is_none() && task.change.as_ref().is_some_and(|change| !change.writing) {
            self.write_pieces(slot);
            return;
        }
        if task.error.is_none() && task.change.as_ref().is_some_and(|change| !change.to_zero.is_empty()) {
            if !self.shared.stopping() {
                self.zero_part(slot);
                return;
            }
            task.error = Some(RequestError::Os(Errno::INTR.raw_os_error()));
        }
        let Some(task) = self.tasks[slot.index()].take() else { return };
        self.in_hand -= 1;
        if let Some(change) = &task.change {
            self.shared.mark_modified();
            if self.shared.claims.release(change.claim) {
                self.shared.kick_others(self.index);
            }
        }
        let result = task.error.map_or(Ok(task.answer), |error| Err(errno_of(error)));
        match result {
            Ok(Answer::Data { offset, length }) => self.reply_data(slot, task.unique, offset, length),
            other => self.finish(task.unique, other),
        }
        self.buffers.give_back(slot);
    }

    /// Answers what has no data.
    fn finish(&self, unique: u64, result: Result<Answer, Errno>) {
        let mut reply = match result {
            Ok(Answer::Opened { direct }) => Reply::opened(direct),
            Ok(Answer::Written { length }) => Reply::written(length),
            Ok(Answer::Done | Answer::Data { .. }) => Reply::done(),
            Err(errno) => return self.reply_error(unique, errno.raw_os_error()),
        };
        self.send(reply.bytes(unique));
    }

    fn reply_data(&self, slot: Slot, unique: u64, offset: u64, length: u32) {
        let header = reply_header(unique, 0, length as usize);
        let sent = self.buffers.send(slot, offset, length, &header, self.device.as_fd());
        if sent.is_err_and(|error| !is_gone(&error)) {
            self.reply_error(unique, Errno::IO.raw_os_error());
        }
    }

    fn reply_error(&self, unique: u64, errno: i32) {
        self.send(&reply_header(unique, errno, 0));
    }

    /// Nobody can be told when this fails: the program was killed meanwhile (ENOENT), or all is over (ENODEV).
    fn send(&self, reply: &[u8]) {
        while rustix::io::write(&self.device, reply) == Err(Errno::INTR) {}
    }
}

fn change_of(tasks: &mut [Option<Task>], slot: Slot) -> Option<&mut Change> {
    tasks.get_mut(slot.index())?.as_mut()?.change.as_mut()
}

/// Programs must not wait for ever for a thread that is gone.
struct EndOnPanic(Arc<Shared>);

impl Drop for EndOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.end(EndReason::Panicked);
        }
    }
}

/// Whether nobody waits for the answer any more.
fn is_gone(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NOENT | Errno::NODEV | Errno::CONNABORTED))
}
