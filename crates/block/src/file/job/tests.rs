//! How a job goes on after each kind of result.

use super::{Backing, Call, Job, PUNCH_HOLE, RETRIES_MAX, ZERO_RANGE, ZEROS_COUNT};
use crate::file::{Engine, FileOptions};
use crate::{MemoryMap, Operation, Request, RequestError, Segment};
use std::sync::Arc;

const SEGMENTS: [Segment; 3] = [segment(0, 4096), segment(8192, 512), segment(16384, 1024)];
const BYTES: i32 = 4096 + 512 + 1024;

const fn segment(offset_bytes: u64, length_bytes: u32) -> Segment {
    Segment { region: 0, length_bytes, offset_bytes }
}

/// A job that has begun, on a file of 4 MiB.
fn begun(operation: Operation) -> (Job, Backing) {
    let file = tempfile::tempfile().unwrap();
    file.set_len(4 << 20).unwrap();
    let options = FileOptions { engine: Engine::Sync, ..FileOptions::default() };
    let backing = Backing::from_file(file, &options).unwrap();
    let memory = Arc::new(MemoryMap::allocate(&[(0, 65536)]).unwrap());
    let mut job = Job::new(&memory);
    let has_segments = matches!(operation, Operation::Read | Operation::Write { .. });
    let segments = if has_segments { &SEGMENTS[..] } else { &[] };
    job.begin(&Request { operation, offset_bytes: 1000, segments, token: 5 }, &backing);
    (job, backing)
}

/// Offset, and the iovecs' lengths.
fn transfer(job: &Job) -> (u64, Vec<usize>) {
    match job.call() {
        Call::Read(transfer) | Call::Write(transfer) => {
            (transfer.offset_bytes, transfer.iovecs.iter().map(|iovec| iovec.iov_len).collect())
        }
        call => panic!("{call:?} transfers nothing"),
    }
}

#[test]
fn a_short_transfer_goes_on_where_it_stopped() {
    for operation in [Operation::Read, Operation::Write { force_unit_access: true }] {
        let (mut job, backing) = begun(operation);
        assert_eq!(transfer(&job), (1000, vec![4096, 512, 1024]));
        assert_eq!(job.advance(96, &backing), None);
        assert_eq!(transfer(&job), (1096, vec![4000, 512, 1024]));
        assert_eq!(job.advance(4000, &backing), None);
        assert_eq!(transfer(&job), (5096, vec![512, 1024]));
        assert_eq!(job.advance(513, &backing), None);
        assert_eq!(transfer(&job), (5609, vec![1023]));
        assert_eq!(job.advance(1023, &backing), Some(Ok(())));
    }
}

#[test]
fn nothing_transferred_is_an_error() {
    let (mut job, backing) = begun(Operation::Read);
    assert_eq!(job.advance(96, &backing), None);
    assert_eq!(job.advance(0, &backing), Some(Err(RequestError::Truncated)));
    let (mut job, backing) = begun(Operation::Write { force_unit_access: false });
    assert_eq!(job.advance(0, &backing), Some(Err(RequestError::Os(libc::EIO))));
}

#[test]
fn interruptions_are_tried_again_and_not_for_ever() {
    for errno in [libc::EINTR, libc::EAGAIN, libc::ECANCELED] {
        let (mut job, backing) = begun(Operation::Read);
        for _ in 0..RETRIES_MAX {
            assert_eq!(job.advance(-errno, &backing), None);
        }
        assert_eq!(transfer(&job), (1000, vec![4096, 512, 1024]));
        assert_eq!(job.advance(1, &backing), None);
        for _ in 0..RETRIES_MAX {
            assert_eq!(job.advance(-errno, &backing), None);
        }
        assert_eq!(job.advance(-errno, &backing), Some(Err(RequestError::Os(errno))));
    }
    let (mut job, backing) = begun(Operation::Read);
    assert_eq!(job.advance(-libc::EINTR, &backing), None);
    assert_eq!(job.advance(BYTES, &backing), Some(Ok(())));
}

#[test]
fn other_errors_end_the_job() {
    for operation in [
        Operation::Read,
        Operation::Write { force_unit_access: false },
        Operation::Flush,
        Operation::Discard { length_bytes: 512 },
        Operation::WriteZeroes { length_bytes: 512, may_unmap: true },
    ] {
        let (mut job, backing) = begun(operation);
        assert_eq!(job.advance(-libc::ENOSPC, &backing), Some(Err(RequestError::Os(libc::ENOSPC))));
    }
}

fn allocation(job: &Job) -> rustix::fs::FallocateFlags {
    match job.call() {
        Call::Allocate { mode, offset_bytes: 1000, .. } => mode,
        call => panic!("{call:?} allocates nothing"),
    }
}

#[test]
fn zeros_are_punched_or_ranged_or_written() {
    let length_bytes = (3 << 20) + 17;
    let (mut job, backing) = begun(Operation::WriteZeroes { length_bytes, may_unmap: true });
    assert_eq!(allocation(&job), PUNCH_HOLE);
    assert_eq!(job.advance(-libc::EOPNOTSUPP, &backing), None);
    assert_eq!(allocation(&job), ZERO_RANGE);
    assert_eq!(job.advance(-libc::EOPNOTSUPP, &backing), None);
    assert_eq!(transfer(&job), (1000, vec![4096; ZEROS_COUNT]));
    assert_eq!(job.advance(100, &backing), None);
    for _ in 0..10 {
        let (offset, lengths) = transfer(&job);
        let bytes = lengths.iter().sum::<usize>();
        let left = 1000 + length_bytes - offset;
        assert!(bytes as u64 <= left);
        let ended = job.advance(bytes as i32, &backing);
        assert_eq!(ended.is_some(), bytes as u64 == left);
        if ended.is_some() {
            break;
        }
    }
    assert!(matches!(job.call(), Call::Nothing));
    // What was refused once is not asked again.
    let again = Operation::WriteZeroes { length_bytes: 512, may_unmap: true };
    job.begin(&Request { operation: again, offset_bytes: 0, segments: &[], token: 0 }, &backing);
    assert_eq!(transfer(&job), (0, vec![512]));
    let discard = Operation::Discard { length_bytes: 512 };
    job.begin(&Request { operation: discard, offset_bytes: 0, segments: &[], token: 0 }, &backing);
    assert!(matches!(job.call(), Call::Nothing));
}

#[test]
fn a_range_that_does_not_suit_the_device_says_nothing_of_others() {
    let (mut job, backing) = begun(Operation::WriteZeroes { length_bytes: 100, may_unmap: false });
    assert_eq!(allocation(&job), ZERO_RANGE);
    assert_eq!(job.advance(-libc::EINVAL, &backing), None);
    assert_eq!(transfer(&job), (1000, vec![100]));
    assert!(backing.zero_range.is_likely());
}

#[test]
fn a_discard_that_is_refused_is_done() {
    let (mut job, backing) = begun(Operation::Discard { length_bytes: 100 });
    assert_eq!(allocation(&job), PUNCH_HOLE);
    assert_eq!(job.advance(-libc::EOPNOTSUPP, &backing), Some(Ok(())));
}
