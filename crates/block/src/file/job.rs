//! A request on its way: what is left of it to do.

#[cfg(test)]
mod tests;

use super::backing::Backing;
use super::call::{Call, Transfer};
use super::direct::DirectRange;
use crate::memory_map::ZERO_PAGE;
use crate::{MemoryMap, Operation, Request, RequestError, Segment};
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use std::sync::Arc;

/// Most iovecs the kernel takes in one call: UIO_MAXIOV.
const IOV_MAX: usize = 1024;

/// Requests with more make room for them once in each slot.
const IOVECS_USUAL: usize = 16;

/// Most bytes in one write call, where more calls cost nothing but themselves. A file system gives the page cache a
/// folio as large as the call. On a virtual machine, writes of 1 MiB and more were measured to take ten times as long
/// now and then, those of 256 KiB not: most likely because the host takes free memory back in large pieces, and small
/// ones were just in use.
const WRITE_CALL_BYTES_MAX: usize = 256 << 10;

/// Most calls for one job at a time.
pub(super) const CALLS_MAX: usize = 16;
const _: () = assert!(CALLS_MAX * WRITE_CALL_BYTES_MAX <= i32::MAX as usize);

/// Times in a row that a call may come back without progress (EINTR, EAGAIN) before that becomes the answer.
const RETRIES_MAX: u32 = 10_000;

const PUNCH_HOLE: FallocateFlags = FallocateFlags::PUNCH_HOLE.union(FallocateFlags::KEEP_SIZE);
const ZERO_RANGE: FallocateFlags = FallocateFlags::ZERO_RANGE.union(FallocateFlags::KEEP_SIZE);

/// How many zeros one call writes where the file cannot be told to have some: 1 MiB.
const ZEROS_COUNT: usize = 256;
const _: () = assert!(ZEROS_COUNT <= IOV_MAX);

/// One slot of a queue. [`Job::begin`] takes a request; then [`Job::call`] and [`Job::advance`] alternate, until
/// `advance` says how it ended. Who can make several calls at a time puts [`Job::ask`], [`Job::calls`] and
/// [`Job::answered`] between.
///
/// The iovecs point into `memory`, which the job keeps mapped, or at the zero page, which is static.
pub(super) struct Job {
    pub(super) token: u64,
    memory: Arc<MemoryMap>,
    step: Step,
    iovecs: Vec<libc::iovec>,
    /// The first iovec that is not done.
    next: usize,
    call_bytes_max: usize,
    direct: DirectRange,
    offset_bytes: u64,
    left_bytes: u64,
    retries: u32,
    asked: Asked,
}

/// Calls that were made together, and what is known of them.
#[derive(Clone, Copy, Debug, Default)]
struct Asked {
    /// Those without an answer.
    calls: usize,
    /// What all of them are to transfer, where they are several.
    wanted_bytes: u64,
    done_bytes: u64,
    /// Several did less than they were to: from now on one after the other, which tells where it ended.
    one_by_one: bool,
}

/// What a job does next.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Nothing: this is how it ends.
    End(Result<(), RequestError>),
    Read,
    Write {
        flags: i32,
    },
    Sync,
    /// Gives a block device's storage back, or else goes on with `Discard`.
    DiscardDevice,
    /// Gives storage back; a file that cannot keeps it.
    Discard,
    /// Makes a hole that reads as zeros, or else goes on with `ZeroRange`.
    PunchZeros,
    /// Zeroes a range that keeps its storage, or else goes on with `WriteZeros`.
    ZeroRange,
    /// Writes zeros from the zero page.
    WriteZeros,
}

/// Whether what is written can be made stable.
fn check_stability(backing: &Backing) -> Result<(), RequestError> {
    backing.stability.check().map_err(|errno| RequestError::Os(errno.raw_os_error()))
}

/// Whether what was made stable is.
fn confirm_stability(backing: &Backing) -> Result<(), RequestError> {
    backing.stability.confirm().map_err(|errno| RequestError::Os(errno.raw_os_error()))
}

// SAFETY: the iovecs' pointers are into memory that the job itself keeps mapped (or static); it is reached through them
// by the kernel only, which does not care for the thread.
unsafe impl Send for Job {}

impl Job {
    pub(super) fn new(memory: &Arc<MemoryMap>) -> Self {
        Self {
            token: 0,
            memory: Arc::clone(memory),
            step: Step::End(Ok(())),
            iovecs: Vec::with_capacity(IOVECS_USUAL),
            next: 0,
            call_bytes_max: usize::MAX,
            direct: DirectRange::NONE,
            offset_bytes: 0,
            left_bytes: 0,
            retries: 0,
            asked: Asked::default(),
        }
    }

    /// Takes a request, which may turn out wrong in itself: then the job has ended already.
    pub(super) fn begin(&mut self, request: &Request<'_>, backing: &Backing) {
        self.token = request.token;
        self.iovecs.clear();
        self.next = 0;
        self.retries = 0;
        self.asked = Asked::default();
        self.direct = backing.direct_range();
        self.offset_bytes = request.offset_bytes;
        self.step = match self.first_step(request, backing) {
            Ok(step) => step,
            Err(error) => Step::End(Err(error)),
        };
    }

    fn first_step(&mut self, request: &Request<'_>, backing: &Backing) -> Result<Step, RequestError> {
        backing.geometry.check(request)?;
        if request.operation != Operation::Flush {
            check_alignment(request, backing)?;
        }
        let inside_bytes = |backing: &Backing| backing.length_bytes().saturating_sub(request.offset_bytes);
        self.left_bytes = request.length_bytes().min(inside_bytes(backing));
        let reaches_padding = self.left_bytes < request.length_bytes();
        let writes = matches!(request.operation, Operation::Write { .. });
        if reaches_padding && writes && self.fills_padding(request.segments)? {
            backing.fill_last_block()?;
            self.left_bytes = request.length_bytes().min(inside_bytes(backing));
        }
        match request.operation {
            Operation::Read => {
                self.gather(request.segments, usize::MAX)?;
                self.zero_padding(request.segments)?;
                Ok(if self.left_bytes == 0 { Step::End(Ok(())) } else { Step::Read })
            }
            Operation::Write { force_unit_access } => {
                let flags = if force_unit_access && !backing.cache_unsafe { libc::RWF_DSYNC } else { 0 };
                if flags != 0 {
                    check_stability(backing)?;
                }
                let in_pieces = flags == 0 && backing.direct.is_none();
                self.gather(request.segments, if in_pieces { WRITE_CALL_BYTES_MAX } else { usize::MAX })?;
                Ok(if self.left_bytes == 0 { Step::End(Ok(())) } else { Step::Write { flags } })
            }
            // Nothing was written through a read-only disk.
            Operation::Flush if backing.cache_unsafe || backing.geometry.read_only => Ok(Step::End(Ok(()))),
            Operation::Flush => check_stability(backing).map(|()| Step::Sync),
            _ if self.left_bytes == 0 => Ok(Step::End(Ok(()))),
            Operation::Discard { .. } if backing.is_block_device && backing.discard.is_likely() => {
                Ok(Step::DiscardDevice)
            }
            Operation::Discard { .. } if backing.punch_hole.is_likely() => Ok(Step::Discard),
            Operation::Discard { .. } => Ok(Step::End(Ok(()))),
            Operation::WriteZeroes { may_unmap: true, .. } if backing.punch_hole.is_likely() => Ok(Step::PunchZeros),
            Operation::WriteZeroes { .. } => Ok(self.zero_in_place(backing)),
        }
    }

    /// Resolves the segments into iovecs for the first `left_bytes`, and checks the rest. No iovec is longer than
    /// `call_bytes_max`, nor lies on both sides of the direct range's end.
    fn gather(&mut self, segments: &[Segment], call_bytes_max: usize) -> Result<(), RequestError> {
        self.call_bytes_max = call_bytes_max;
        let mut room = self.left_bytes;
        let mut position = self.offset_bytes;
        for &segment in segments {
            let whole = self.memory.resolve(segment).ok_or(RequestError::BadSegment)?;
            // At most the segment's length, so it fits.
            let length = room.min(whole.iov_len as u64) as usize;
            room -= length as u64;
            let mut done = 0;
            while done < length {
                let iov_len = self.one_way(position, length - done).min(call_bytes_max);
                self.iovecs.push(libc::iovec { iov_base: whole.iov_base.wrapping_byte_add(done), iov_len });
                done += iov_len;
                position += iov_len as u64;
            }
        }
        Ok(())
    }

    /// How much of `length` bytes at `position` is transferred the same way, directly or not.
    fn one_way(&self, position: u64, length: usize) -> usize {
        // At most the length, so it fits.
        self.direct.room_bytes(position).min(length as u64) as usize
    }

    /// Zeroes what a read wants beyond the first `left_bytes`: padding, which only the disk has.
    fn zero_padding(&self, segments: &[Segment]) -> Result<(), RequestError> {
        let zeroed = self.padding(segments).all(|padding| self.memory.zero(padding));
        zeroed.then_some(()).ok_or(RequestError::BadSegment)
    }

    /// Whether a write puts anything but zeros where there is nothing but padding.
    fn fills_padding(&self, segments: &[Segment]) -> Result<bool, RequestError> {
        for padding in self.padding(segments) {
            if !self.memory.is_padding(padding).ok_or(RequestError::BadSegment)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The parts of segments beyond the first `left_bytes`.
    fn padding(&self, segments: &[Segment]) -> impl Iterator<Item = Segment> {
        let mut real = self.left_bytes;
        let parts = segments.iter().map(move |&segment| {
            // At most the segment's length, so it fits.
            let skip = real.min(u64::from(segment.length_bytes)) as u32;
            real -= u64::from(skip);
            Segment {
                length_bytes: segment.length_bytes - skip,
                offset_bytes: segment.offset_bytes.saturating_add(skip.into()),
                ..segment
            }
        });
        parts.filter(|padding| padding.length_bytes > 0)
    }

    /// The call to make now.
    pub(super) fn call(&self) -> Call<'_> {
        let (offset_bytes, length_bytes) = (self.offset_bytes, self.left_bytes);
        match self.step {
            Step::End(_) => Call::Nothing,
            Step::Read => Call::Read(self.transfer(0, self.next, offset_bytes)),
            Step::Write { flags } => Call::Write(self.transfer(flags, self.next, offset_bytes)),
            Step::WriteZeros => Call::Write(self.transfer(0, self.next, offset_bytes)),
            Step::Sync => Call::Sync,
            Step::DiscardDevice => Call::Discard { offset_bytes, length_bytes },
            Step::Discard | Step::PunchZeros => Call::Allocate { mode: PUNCH_HOLE, offset_bytes, length_bytes },
            Step::ZeroRange => Call::Allocate { mode: ZERO_RANGE, offset_bytes, length_bytes },
        }
    }

    /// What one call transfers of what is left, from the iovec `first` on, which begins at `offset_bytes`.
    fn transfer(&self, flags: i32, first: usize, offset_bytes: u64) -> Transfer<'_> {
        let bytes_max = self.one_way(offset_bytes, self.call_bytes_max);
        let (mut end, mut bytes) = (first, 0_usize);
        for iovec in self.iovecs[first..].iter().take(IOV_MAX) {
            bytes = bytes.saturating_add(iovec.iov_len);
            if bytes > bytes_max {
                break;
            }
            end += 1;
        }
        let direct = self.direct.contains(offset_bytes);
        Transfer { iovecs: &self.iovecs[first..end], offset_bytes, flags, direct }
    }

    /// Decides how many calls are made next, at most `most`: several where a write into the page cache goes in pieces.
    pub(super) fn ask(&mut self, most: usize) {
        let most = if self.is_cached_write() && !self.asked.one_by_one { most.clamp(1, CALLS_MAX) } else { 1 };
        let (mut calls, mut wanted_bytes) = (1, 0);
        if most > 1 {
            (calls, wanted_bytes) = self
                .pieces()
                .take(most)
                .fold((0, 0), |(calls, bytes), piece| (calls + 1, bytes + piece.length_bytes()));
        }
        self.asked = Asked { calls, wanted_bytes, done_bytes: 0, ..self.asked };
    }

    /// The calls that [`Self::ask`] decided on, which do not wait for one another.
    pub(super) fn calls(&self) -> impl Iterator<Item = Call<'_>> {
        let several = (self.asked.calls > 1).then(|| self.pieces().map(Call::Write).take(self.asked.calls));
        let one = several.is_none().then(|| self.call());
        one.into_iter().chain(several.into_iter().flatten())
    }

    /// What is left of a write into the page cache, call by call.
    fn pieces(&self) -> impl Iterator<Item = Transfer<'_>> {
        let (mut first, mut offset_bytes) = (self.next, self.offset_bytes);
        std::iter::from_fn(move || {
            let piece = (first < self.iovecs.len()).then(|| self.transfer(0, first, offset_bytes))?;
            first += piece.iovecs.len();
            offset_bytes += piece.length_bytes();
            (!piece.direct).then_some(piece)
        })
    }

    /// Takes the answer to one of the calls. When it was the last that was missing: the result for [`Self::advance`],
    /// as of one call.
    pub(super) fn answered(&mut self, result: i32) -> Option<i32> {
        let asked = &mut self.asked;
        asked.calls = asked.calls.saturating_sub(1);
        if asked.wanted_bytes == 0 {
            return Some(result);
        }
        asked.done_bytes += u64::try_from(result).unwrap_or(0);
        if asked.calls > 0 {
            return None;
        }
        asked.one_by_one = asked.done_bytes < asked.wanted_bytes;
        // At most so many calls, of so many bytes each.
        Some(if asked.one_by_one { -libc::EAGAIN } else { asked.done_bytes as i32 })
    }

    /// Takes a call's result, io_uring's way: a count, or a negated errno. `None` when there is another call to make.
    pub(super) fn advance(&mut self, result: i32, backing: &Backing) -> Option<Result<(), RequestError>> {
        self.step = match u32::try_from(result) {
            Ok(count) => self.after_success(count, backing),
            // The last is what io_uring says of work whose submitting thread has ended.
            Err(_) if matches!(-result, libc::EINTR | libc::EAGAIN | libc::ECANCELED) => {
                self.after_no_progress(-result)
            }
            Err(_) => self.after_error(-result, backing),
        };
        match self.step {
            Step::End(ended) => Some(ended),
            _ => None,
        }
    }

    fn after_success(&mut self, count: u32, backing: &Backing) -> Step {
        self.retries = 0;
        match self.step {
            Step::Read if count == 0 => Step::End(Err(RequestError::Truncated)),
            Step::Write { .. } | Step::WriteZeros if count == 0 => Step::End(Err(RequestError::Os(libc::EIO))),
            Step::Write { flags: libc::RWF_DSYNC } => match self.after_transfer(count) {
                Step::End(Ok(())) => Step::End(confirm_stability(backing)),
                step => step,
            },
            Step::Read | Step::Write { .. } | Step::WriteZeros => self.after_transfer(count),
            Step::Sync => Step::End(confirm_stability(backing)),
            Step::End(ended) => Step::End(ended),
            Step::DiscardDevice | Step::Discard | Step::PunchZeros | Step::ZeroRange => Step::End(Ok(())),
        }
    }

    fn after_transfer(&mut self, count: u32) -> Step {
        self.offset_bytes += u64::from(count);
        self.left_bytes = self.left_bytes.saturating_sub(u64::from(count));
        if self.left_bytes == 0 {
            return Step::End(Ok(()));
        }
        // A direct transfer that stopped inside a block met the end of the file.
        if self.direct.contains(self.offset_bytes) && !self.direct.is_aligned(self.offset_bytes) {
            return Step::End(Err(RequestError::Truncated));
        }
        self.skip(count as usize);
        if self.next == self.iovecs.len() {
            self.gather_zeros();
        }
        self.step
    }

    /// Moves the iovecs on by what was transferred.
    fn skip(&mut self, mut count: usize) {
        while let Some(iovec) = self.iovecs.get_mut(self.next) {
            if count < iovec.iov_len {
                iovec.iov_base = iovec.iov_base.wrapping_byte_add(count);
                iovec.iov_len -= count;
                return;
            }
            count -= iovec.iov_len;
            self.next += 1;
        }
    }

    fn after_no_progress(&mut self, errno: i32) -> Step {
        self.retries += 1;
        if self.retries > RETRIES_MAX { Step::End(Err(RequestError::Os(errno))) } else { self.step }
    }

    fn after_error(&mut self, errno: i32, backing: &Backing) -> Step {
        match self.step {
            Step::Sync => backing.stability.lost(),
            Step::Write { flags: libc::RWF_DSYNC } => {
                backing.stability.stable_write_failed(Errno::from_raw_os_error(errno))
            }
            _ => {}
        }
        let support = match self.step {
            Step::DiscardDevice => &backing.discard,
            Step::Discard | Step::PunchZeros => &backing.punch_hole,
            Step::ZeroRange => &backing.zero_range,
            _ => return Step::End(Err(RequestError::Os(errno))),
        };
        match errno {
            libc::EOPNOTSUPP | libc::ENOSYS | libc::ENODEV | libc::ENOTTY => support.refuse(),
            // This range only: a block device wants whole blocks of its own.
            libc::EINVAL => {}
            _ => return Step::End(Err(RequestError::Os(errno))),
        }
        match self.step {
            Step::DiscardDevice if backing.punch_hole.is_likely() => Step::Discard,
            Step::DiscardDevice | Step::Discard => Step::End(Ok(())),
            Step::PunchZeros => self.zero_in_place(backing),
            _ => self.write_zeros(),
        }
    }

    fn zero_in_place(&mut self, backing: &Backing) -> Step {
        if backing.zero_range.is_likely() { Step::ZeroRange } else { self.write_zeros() }
    }

    fn write_zeros(&mut self) -> Step {
        self.gather_zeros();
        Step::WriteZeros
    }

    /// Points the iovecs at the zero page, as often as the next call needs it.
    fn gather_zeros(&mut self) {
        self.iovecs.clear();
        self.next = 0;
        self.call_bytes_max = usize::MAX;
        let bytes = self.left_bytes.min((ZEROS_COUNT * ZERO_PAGE.len()) as u64) as usize;
        let mut left = self.one_way(self.offset_bytes, bytes);
        while left > 0 {
            let iov_len = left.min(ZERO_PAGE.len());
            // The kernel only reads what a write points at.
            self.iovecs.push(libc::iovec { iov_base: ZERO_PAGE.as_ptr().cast_mut().cast(), iov_len });
            left -= iov_len;
        }
    }

    /// Whether it is a write into the page cache that need not be stable before it is answered.
    pub(super) fn is_cached_write(&self) -> bool {
        matches!(self.step, Step::Write { flags: 0 }) && !self.direct.contains(self.offset_bytes)
    }

    pub(super) const fn offset_bytes(&self) -> u64 {
        self.offset_bytes
    }

    pub(super) const fn left_bytes(&self) -> u64 {
        self.left_bytes
    }

    /// Whether what is next goes through the page cache, and is a read or such a write.
    pub(super) fn is_cached_transfer(&self) -> bool {
        self.is_cached_write() || matches!(self.step, Step::Read) && !self.direct.contains(self.offset_bytes)
    }

    /// Does all of it here and now, so that [`Call::Nothing`] is left, which ends as this did.
    pub(super) fn run_ahead(&mut self, backing: &Backing) {
        let ended = self.run(backing);
        self.step = Step::End(ended);
    }

    /// Does all of it here and now.
    pub(super) fn run(&mut self, backing: &Backing) -> Result<(), RequestError> {
        loop {
            // SAFETY: the iovecs point into memory that stays mapped as long as the job lives, or at the zero page.
            let result = unsafe { self.call().make(backing) };
            if let Some(ended) = self.advance(result, backing) {
                return ended;
            }
        }
    }
}

/// Whether direct transfers can do the request. What lies in memory is checked as offsets in regions, which start on
/// pages.
fn check_alignment(request: &Request<'_>, backing: &Backing) -> Result<(), RequestError> {
    let Some(direct) = &backing.direct else { return Ok(()) };
    let in_memory = |bytes: u64| bytes.is_multiple_of(u64::from(direct.memory_align_bytes));
    let on_disk = direct.range.is_aligned(request.offset_bytes) && direct.range.is_aligned(request.length_bytes());
    let mut segments = request.segments.iter();
    let aligned = on_disk
        && segments.all(|segment| in_memory(segment.offset_bytes) && in_memory(u64::from(segment.length_bytes)));
    if aligned { Ok(()) } else { Err(RequestError::Unaligned) }
}
