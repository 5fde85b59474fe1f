//! The io_uring engine: each job is one submission at a time.

use super::backing::Backing;
use super::call::{Call, Transfer};
use super::job::Job;
use crate::wait::wait_readable;
use crate::{Completion, MemoryMap, Queue, QueueError, Request};
use io_uring::types::{Fd, FsyncFlags};
use io_uring::{IoUring, Probe, SubmissionQueue, opcode, squeue};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

/// How often and how long to wait for the kernel to have resources again (EAGAIN, EBUSY) before that is an error.
const SUBMIT_RETRIES_MAX: u32 = 100;
const SUBMIT_RETRY_PAUSE: Duration = Duration::from_millis(1);

/// What the kernel must know: all of it since Linux 5.6.
const OPCODES: [u8; 7] = [
    opcode::Nop::CODE,
    opcode::Read::CODE,
    opcode::Readv::CODE,
    opcode::Write::CODE,
    opcode::Writev::CODE,
    opcode::Fsync::CODE,
    opcode::Fallocate::CODE,
];

/// A queue on an io_uring. A slot's index is its submission's user data. The ring's own descriptor is the completion
/// event: it polls readable while there are completions, so nobody has to reset it.
pub(super) struct UringQueue {
    ring: IoUring,
    backing: Arc<Backing>,
    jobs: Box<[Job]>,
    free: Vec<u16>,
    /// Jobs that go on were not submitted: nobody else knows that they wait.
    stalled: bool,
}

impl UringQueue {
    pub(super) fn boxed(backing: &Arc<Backing>, memory: &MemoryMap, depth: usize) -> io::Result<Box<dyn Queue>> {
        let ring = IoUring::builder().dontfork().build(depth as u32)?;
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe).map_err(|_| io::Error::from(Errno::NOSYS))?;
        if !OPCODES.iter().all(|&opcode| probe.is_supported(opcode)) {
            return Err(Errno::NOSYS.into());
        }
        let memory = Arc::new(memory.clone());
        let jobs = (0..depth).map(|_| Job::new(&memory)).collect();
        // The last is taken first: slot 0, whose memory is then the warmest.
        let free = (0..depth as u16).rev().collect();
        Ok(Box::new(Self { ring, backing: Arc::clone(backing), jobs, free, stalled: false }))
    }

    /// Jobs that the kernel works on: their memory is its until they complete.
    fn in_kernel(&mut self) -> usize {
        self.in_flight() - self.ring.submission().len()
    }
}

/// Puts the job's next call into the submission queue, which has an entry for each slot.
fn enqueue(
    submissions: &mut SubmissionQueue<'_>,
    slot: u16,
    job: &Job,
    backing: &Backing,
) -> Result<(), squeue::PushError> {
    let entry = entry(job.call(), Fd(backing.file.as_raw_fd())).user_data(u64::from(slot));
    // SAFETY: the entry's pointers are into the job, which is neither advanced nor begun anew before this entry's
    // completion was reaped, and not dropped before it either (see Drop); the job keeps its memory mapped, and the
    // backing its file open.
    unsafe { submissions.push(&entry) }
}

fn entry(call: Call<'_>, file: Fd) -> squeue::Entry {
    match call {
        // A request that ended before it began still completes through the ring, so that its event is seen.
        Call::Nothing => opcode::Nop::new().build(),
        // One segment spares the kernel the copy of an iovec.
        Call::Read(Transfer { iovecs: [only], offset_bytes, .. }) => {
            opcode::Read::new(file, only.iov_base.cast(), only.iov_len as u32).offset(offset_bytes).build()
        }
        Call::Read(Transfer { iovecs, offset_bytes, .. }) => {
            opcode::Readv::new(file, iovecs.as_ptr(), iovecs.len() as u32).offset(offset_bytes).build()
        }
        Call::Write(Transfer { iovecs: [only], offset_bytes, flags }) => {
            let write = opcode::Write::new(file, only.iov_base.cast(), only.iov_len as u32);
            write.offset(offset_bytes).rw_flags(flags).build()
        }
        Call::Write(Transfer { iovecs, offset_bytes, flags }) => {
            let write = opcode::Writev::new(file, iovecs.as_ptr(), iovecs.len() as u32);
            write.offset(offset_bytes).rw_flags(flags).build()
        }
        Call::Sync => opcode::Fsync::new(file).flags(FsyncFlags::DATASYNC).build(),
        Call::Allocate { mode, offset_bytes, length_bytes } => {
            opcode::Fallocate::new(file, length_bytes).offset(offset_bytes).mode(mode.bits() as i32).build()
        }
    }
}

impl Queue for UringQueue {
    fn depth(&self) -> usize {
        self.jobs.len()
    }

    fn in_flight(&self) -> usize {
        self.jobs.len() - self.free.len()
    }

    fn push(&mut self, request: &Request<'_>) -> Result<(), QueueError> {
        let mut submissions = self.ring.submission();
        let slot = *self.free.last().ok_or(QueueError::Full)?;
        let job = &mut self.jobs[usize::from(slot)];
        job.begin(request, &self.backing);
        enqueue(&mut submissions, slot, job, &self.backing).map_err(|_| QueueError::Full)?;
        self.free.pop();
        Ok(())
    }

    fn submit(&mut self) -> io::Result<()> {
        let mut retries = 0;
        while !self.ring.submission().is_empty() {
            match self.ring.submit().map_err(|error| Errno::from_io_error(&error)) {
                Ok(1..) | Err(Some(Errno::INTR)) => {}
                Ok(_) | Err(Some(Errno::AGAIN | Errno::BUSY)) if retries < SUBMIT_RETRIES_MAX => {
                    retries += 1;
                    std::thread::sleep(SUBMIT_RETRY_PAUSE);
                }
                Ok(_) => return Err(Errno::AGAIN.into()),
                Err(errno) => return Err(errno.unwrap_or(Errno::IO).into()),
            }
        }
        Ok(())
    }

    fn reap(&mut self, completions: &mut Vec<Completion>) {
        let (_, mut submissions, ready) = self.ring.split();
        let mut unfinished = false;
        for entry in ready {
            let slot = entry.user_data() as u16;
            let job = &mut self.jobs[usize::from(slot)];
            let ended = job.advance(entry.result(), &self.backing).or_else(|| {
                let enqueued = enqueue(&mut submissions, slot, job, &self.backing);
                unfinished |= enqueued.is_ok();
                enqueued.err().map(|_| job.run(&self.backing))
            });
            if let Some(result) = ended {
                completions.push(Completion { token: job.token, result });
                self.free.push(slot);
            }
        }
        drop(submissions);
        if unfinished {
            self.stalled = self.submit().is_err();
        }
    }

    fn completion_event(&self) -> Option<BorrowedFd<'_>> {
        Some(self.ring.as_fd())
    }

    fn wait(&mut self, events: &[BorrowedFd<'_>], timeout: Option<Duration>) -> io::Result<()> {
        if !self.ring.completion().is_empty() {
            return Ok(());
        }
        if self.stalled {
            self.submit()?;
            self.stalled = false;
        }
        wait_readable(self.completion_event(), events, timeout)
    }
}

impl Drop for UringQueue {
    fn drop(&mut self) {
        let mut completions = Vec::with_capacity(self.depth());
        let _ = self.submit();
        while self.in_kernel() > 0 {
            if self.wait(&[], None).is_err() {
                std::thread::sleep(SUBMIT_RETRY_PAUSE);
            }
            self.reap(&mut completions);
            completions.clear();
        }
    }
}
