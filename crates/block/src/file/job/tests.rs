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

/// The kernel says once that something was lost: whoever flushes next, on whichever queue, is to hear of it, too.
#[test]
fn what_could_not_be_made_stable_is_told_to_whoever_asks() {
    let write = |force_unit_access| Operation::Write { force_unit_access };
    for (operation, errno, is_lost) in [
        (Operation::Flush, libc::EIO, true),
        (Operation::Flush, libc::ENOSPC, true),
        (write(true), libc::EIO, true),
        (write(true), libc::ENOSPC, false),
        (write(false), libc::EIO, false),
        (Operation::Read, libc::EIO, false),
    ] {
        let (mut job, backing) = begun(operation);
        assert_eq!(job.advance(-errno, &backing), Some(Err(RequestError::Os(errno))));
        let mut other = Job::new(&Arc::new(MemoryMap::allocate(&[(0, 65536)]).unwrap()));
        for (operation, segments) in [(Operation::Flush, &[][..]), (write(true), &SEGMENTS)] {
            other.begin(&Request { operation, offset_bytes: 1000, segments, token: 6 }, &backing);
            match other.call() {
                Call::Nothing => {
                    assert!(is_lost);
                    assert_eq!(other.advance(0, &backing), Some(Err(RequestError::Os(libc::EIO))));
                }
                _ => assert!(!is_lost, "{operation:?}, {errno}"),
            }
        }
        other.begin(&Request { operation: write(false), offset_bytes: 0, segments: &SEGMENTS, token: 7 }, &backing);
        assert!(matches!(other.call(), Call::Write(_)), "what is there can be written to");
    }
}

/// A write of 1 MiB and 5 KiB into the page cache, as its calls, each as its place and length.
fn long_write() -> (Job, Backing) {
    const LONG: [Segment; 3] = [segment(0, 300 << 10), segment(1 << 20, 5 << 10), segment(2 << 20, 724 << 10)];
    let (_, backing) = begun(Operation::Flush);
    let memory = Arc::new(MemoryMap::allocate(&[(0, 3 << 20)]).unwrap());
    let mut job = Job::new(&memory);
    let operation = Operation::Write { force_unit_access: false };
    job.begin(&Request { operation, offset_bytes: 1000, segments: &LONG, token: 5 }, &backing);
    (job, backing)
}

fn asked(job: &mut Job, most: usize) -> Vec<(u64, u64)> {
    job.ask(most);
    let place = |call| match call {
        Call::Write(transfer) => (transfer.offset_bytes, transfer.length_bytes()),
        call => panic!("{call:?} writes nothing"),
    };
    job.calls().map(place).collect()
}

#[test]
fn a_long_write_is_made_in_pieces_at_once() {
    let (mut job, backing) = long_write();
    let pieces = asked(&mut job, 100);
    assert!(pieces.len() > 3, "{pieces:?}");
    assert!(pieces.iter().all(|(_, bytes)| *bytes <= 256 << 10), "{pieces:?}");
    assert_eq!(pieces[0].0, 1000);
    assert!(pieces.windows(2).all(|two| two[0].0 + two[0].1 == two[1].0), "{pieces:?}");
    assert_eq!(pieces.iter().map(|(_, bytes)| bytes).sum::<u64>(), (1 << 20) + (5 << 10));
    for (_, bytes) in &pieces[1..] {
        assert_eq!(job.answered(*bytes as i32), None);
    }
    let all = job.answered(pieces[0].1 as i32);
    assert_eq!(all, Some((1 << 20) + (5 << 10)));
    assert_eq!(job.advance(all.unwrap(), &backing), Some(Ok(())));
}

#[test]
fn where_there_is_no_room_for_all_pieces_the_others_come_after() {
    let (mut job, backing) = long_write();
    let whole = asked(&mut job, 100);
    let mut made = Vec::new();
    loop {
        let pieces = asked(&mut job, 2);
        assert!(pieces.len() <= 2);
        let results: Vec<_> = pieces.iter().map(|(_, bytes)| job.answered(*bytes as i32)).collect();
        made.extend(pieces);
        assert!(results[..results.len() - 1].iter().all(Option::is_none));
        if job.advance(results.last().unwrap().unwrap(), &backing).is_some() {
            break;
        }
    }
    assert_eq!(made, whole);
}

#[test]
fn pieces_that_fail_or_stop_short_are_made_again_one_by_one() {
    for bad in [0, 17, -libc::ENOSPC] {
        let (mut job, backing) = long_write();
        let pieces = asked(&mut job, 100);
        let mut result = None;
        for (n, (_, bytes)) in pieces.iter().enumerate() {
            assert_eq!(result, None);
            result = job.answered(if n == 1 { bad } else { *bytes as i32 });
        }
        assert_eq!(job.advance(result.unwrap(), &backing), None, "it is not done");
        assert_eq!(asked(&mut job, 100), pieces[..1], "from its beginning");
        assert_eq!(job.answered(pieces[0].1 as i32), Some(pieces[0].1 as i32));
        assert_eq!(job.advance(pieces[0].1 as i32, &backing), None);
        assert_eq!(asked(&mut job, 100), pieces[1..2]);
        assert_eq!(job.answered(-libc::ENOSPC), Some(-libc::ENOSPC));
        assert_eq!(job.advance(-libc::ENOSPC, &backing), Some(Err(RequestError::Os(libc::ENOSPC))));
    }
}

#[test]
fn what_waits_for_the_disk_or_reads_is_one_call() {
    for operation in [Operation::Read, Operation::Write { force_unit_access: true }, Operation::Flush] {
        let (mut job, _backing) = begun(operation);
        job.ask(100);
        assert_eq!(job.calls().count(), 1);
        assert_eq!(job.answered(-libc::EINTR), Some(-libc::EINTR));
    }
}
