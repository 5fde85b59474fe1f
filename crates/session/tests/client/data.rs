//! Data, through qemu-storage-daemon, compared with the image.

use crate::rig::{Client, REGION_BYTES, Random, Rig, WRITE, all_ways, pattern};
use blockyard_block::{
    Completion, Disk, Extent, ExtentKind, MemoryMap, Operation, QueueError, Request, RequestError, Segment,
};
use blockyard_session::client::SessionOptions;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::AsFd;
use std::time::Duration;

#[test]
fn the_disk_is_what_is_served() {
    let rig = Rig::new(&[0; 1 << 20], 3, &SessionOptions::default());
    let geometry = rig.disk.geometry();
    assert_eq!((geometry.capacity_bytes, geometry.logical_block_bytes), (1 << 20, 512));
    assert!(!geometry.read_only && geometry.discard && geometry.write_zeroes);
    assert_eq!(rig.disk.queue_count(), 3);
    assert_eq!(
        rig.disk.extents(512..4096).unwrap(),
        Extent { offset_bytes: 512, length_bytes: 3584, kind: ExtentKind::Data }
    );
    assert!(rig.disk.extents(0..(1 << 20) + 1).is_err());
}

#[test]
fn what_is_written_is_in_the_image_and_read_back() {
    for options in all_ways() {
        let rig = Rig::new(&vec![0; 16 << 20], 1, &options);
        let mut client = Client::new(&rig.disk, 4);
        let contents = pattern(6 << 20, 1);
        client.write(1 << 20, &contents);
        client.perform(Operation::Flush, 0, &[]).unwrap();
        assert!(rig.contents()[1 << 20..7 << 20] == contents);
        assert!(client.read((1 << 20) + 512, 3 << 20) == contents[512..512 + (3 << 20)]);
        let durable = Operation::Write { force_unit_access: true };
        client.poke(0, &[7; 8192]);
        let segments = client.segments(0, 8192);
        client.perform(durable, 0, &segments).unwrap();
        assert_eq!(rig.contents()[..8192], [7; 8192]);
    }
}

/// Its memory is no file, so its data go through the queue's own.
#[test]
fn memory_of_this_process_alone_is_read_into_and_written_from() {
    let contents = pattern(1 << 20, 3);
    let rig = Rig::new(&contents, 1, &SessionOptions::default());
    let layout = [(0, REGION_BYTES), (REGION_BYTES as u64, REGION_BYTES)];
    let memory = MemoryMap::allocate_private(&layout).unwrap();
    assert!(memory.shared_regions().is_none());
    let queue = rig.disk.open_queue(&memory, 4).unwrap();
    let mut client = Client { memory, queue };
    assert!(client.read(0, 1 << 20) == contents);
    client.write(0, &contents[4096..]);
    assert!(rig.contents()[..contents.len() - 4096] == contents[4096..]);
}

#[test]
fn segments_of_any_length_make_up_a_request() {
    for options in all_ways() {
        let contents = pattern(1 << 20, 2);
        let rig = Rig::new(&contents, 1, &options);
        let mut client = Client::new(&rig.disk, 4);
        // More than the server takes in one request, and each less than a block; some empty.
        let segments: Vec<_> = (0..4096)
            .map(|n| Segment {
                region: n % 2,
                length_bytes: if n % 4 == 3 { 0 } else { 4 },
                offset_bytes: u64::from(n) * 8,
            })
            .collect();
        client.perform(Operation::Read, 4096, &segments).unwrap();
        let mut read = Vec::new();
        for segment in &segments {
            let address = u64::from(segment.region) * REGION_BYTES as u64 + segment.offset_bytes;
            read.extend(client.peek(address, segment.length_bytes as usize));
        }
        assert!(read == contents[4096..4096 + read.len()]);
        client.perform(WRITE, 65536, &segments).unwrap();
        assert!(rig.contents()[65536..65536 + read.len()] == read);
    }
}

#[test]
fn zeros_and_discards_reach_the_image() {
    let contents = pattern(64 << 20, 3);
    let rig = Rig::new(&contents, 1, &SessionOptions::default());
    let mut client = Client::new(&rig.disk, 4);
    // More than the server takes at once, which is 16 MiB.
    let zeroes = |length_bytes, may_unmap| Operation::WriteZeroes { length_bytes, may_unmap };
    client.perform(zeroes(33 << 20, true), 4096, &[]).unwrap();
    client.perform(zeroes(8192, false), 40 << 20, &[]).unwrap();
    client.perform(Operation::Discard { length_bytes: 20 << 20 }, 44 << 20, &[]).unwrap();
    client.perform(Operation::Flush, 0, &[]).unwrap();
    let after = rig.contents();
    assert!(after[..4096] == contents[..4096]);
    assert!(after[4096..4096 + (33 << 20)].iter().all(|&byte| byte == 0));
    assert!(after[4096 + (33 << 20)..40 << 20] == contents[4096 + (33 << 20)..40 << 20]);
    assert!(after[40 << 20..(40 << 20) + 8192].iter().all(|&byte| byte == 0));
    assert!(after[(40 << 20) + 8192..44 << 20] == contents[(40 << 20) + 8192..44 << 20]);
}

#[test]
fn requests_that_are_wrong_end_with_their_error_and_harm_no_other() {
    let contents = pattern(1 << 20, 4);
    let rig = Rig::new(&contents, 1, &SessionOptions::default());
    let mut client = Client::new(&rig.disk, 8);
    let good = Segment { region: 0, length_bytes: 512, offset_bytes: 0 };
    let outside = [
        Segment { region: 2, ..good },
        Segment { offset_bytes: REGION_BYTES as u64 - 511, ..good },
        Segment { offset_bytes: u64::MAX, ..good },
    ];
    for segment in outside {
        assert_eq!(client.perform(Operation::Read, 0, &[good, segment]), Err(RequestError::BadSegment));
    }
    assert_eq!(client.perform(Operation::Read, 1 << 20, &[good]), Err(RequestError::OutOfRange));
    assert_eq!(client.perform(Operation::Read, 100, &[good]), Err(RequestError::Os(libc::EINVAL)));
    let half = Segment { length_bytes: 100, ..good };
    assert_eq!(client.perform(Operation::Read, 0, &[half]), Err(RequestError::Os(libc::EINVAL)));
    assert_eq!(client.perform(Operation::Read, 0, &[]), Ok(()));
    for token in 0..8 {
        client.push(Operation::Read, if token % 2 == 0 { 512 } else { u64::MAX }, &[good], token);
    }
    assert_eq!(
        client.queue.push(&Request { operation: WRITE, offset_bytes: 0, segments: &[], token: 9 }),
        Err(QueueError::Full)
    );
    // What is wrong is no sooner known than the rest.
    let mut completions = Vec::new();
    client.queue.wait(&[], Some(Duration::from_millis(1))).unwrap();
    client.queue.reap(&mut completions);
    assert_eq!(completions, []);
    completions = client.drain();
    completions.sort_by_key(|completion| completion.token);
    for (token, completion) in (0..8).zip(&completions) {
        let result = if token % 2 == 0 { Ok(()) } else { Err(RequestError::OutOfRange) };
        assert_eq!(*completion, Completion { token, result });
    }
}

/// Writes and reads of all sizes at random places, many at once, on several queues, against a model of the disk.
#[test]
fn many_requests_in_flight_on_several_queues_do_what_a_vector_does() {
    const DISK: usize = 24 << 20;
    const QUEUES: usize = 3;
    for (round, options) in all_ways().into_iter().enumerate() {
        let rig = Rig::new(&vec![0; DISK], QUEUES as u16, &options);
        let shares = std::thread::scope(|scope| {
            let disk = &rig.disk;
            let threads: Vec<_> = (0..QUEUES)
                .map(|queue| {
                    scope.spawn(move || random_requests(disk, queue * DISK / QUEUES, DISK / QUEUES, round as u64))
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        });
        assert!(rig.contents() == shares.concat());
    }
}

/// Uses a part of the disk for itself. What it must contain afterwards.
pub(crate) fn random_requests(disk: &dyn Disk, start: usize, length: usize, seed: u64) -> Vec<u8> {
    const DEPTH: usize = 32;
    /// Each request in flight has a piece of the memory and of the disk.
    const MEMORY: usize = REGION_BYTES / DEPTH;
    let share = length / DEPTH;
    let memory = crate::rig::memory();
    let queue = disk.open_queue(&memory, DEPTH).unwrap();
    let mut client = Client { memory, queue };
    let mut random = Random(seed << 20 | start as u64 | 1);
    let mut model = vec![0; length];
    let mut expected: Vec<Option<(usize, usize)>> = vec![None; DEPTH];
    let mut idle: Vec<usize> = (0..DEPTH).collect();
    let mut completions = Vec::with_capacity(DEPTH);
    let (mut begun, mut finished) = (0, 0);
    while finished < 1500 {
        while begun < 1500
            && let Some(slot) = idle.pop()
        {
            let most = [1, 8, 64, 400][random.below(4) as usize];
            let blocks = 1 + random.below(most) as usize;
            let bytes = (blocks * 512).min(share).min(MEMORY);
            let offset = slot * share + 512 * random.below((share - bytes) as u64 / 512 + 1) as usize;
            let address = (slot * MEMORY) as u64 + REGION_BYTES as u64 / 2;
            let segments = client.segments(address, bytes);
            if random.below(2) == 0 {
                let data = pattern(bytes, random.next());
                client.poke(address, &data);
                model[offset..offset + bytes].copy_from_slice(&data);
                expected[slot] = None;
                client.push(WRITE, (start + offset) as u64, &segments, slot as u64);
            } else {
                expected[slot] = Some((offset, bytes));
                client.push(Operation::Read, (start + offset) as u64, &segments, slot as u64);
            }
            begun += 1;
        }
        client.queue.submit().unwrap();
        client.queue.wait(&[], None).unwrap();
        client.queue.reap(&mut completions);
        for completion in completions.drain(..) {
            completion.result.unwrap();
            let slot = completion.token as usize;
            if let Some((offset, bytes)) = expected[slot].take() {
                let address = (slot * MEMORY) as u64 + REGION_BYTES as u64 / 2;
                assert!(client.peek(address, bytes) == model[offset..offset + bytes], "read at {offset}");
            }
            idle.push(slot);
            finished += 1;
        }
    }
    client.perform(Operation::Flush, 0, &[]).unwrap();
    model
}

#[test]
fn a_queue_gives_its_virtqueue_back() {
    let rig = Rig::new(&pattern(1 << 20, 5), 2, &SessionOptions::default());
    let memory = crate::rig::memory();
    let _kept = rig.disk.open_queue(&memory, 8).unwrap();
    for _ in 0..40 {
        // More often than the server has memory slots.
        let mut client = Client::new(&rig.disk, 8);
        let error = rig.disk.open_queue(&memory, 8).err().unwrap().to_string();
        assert!(error.contains("2 virtqueues and all are in use"), "{error}");
        assert!(client.read(512, 4096) == rig.contents()[512..4608]);
    }
}

#[test]
fn dropping_a_queue_completes_what_was_pushed() {
    let rig = Rig::new(&vec![0; 4 << 20], 1, &SessionOptions::default());
    let contents = pattern(4 << 20, 6);
    for submitted in [true, false] {
        let mut client = Client::new(&rig.disk, 64);
        client.poke(0, &contents);
        for token in 0..64_u64 {
            let segments = client.segments(token << 16, 1 << 16);
            client.push(WRITE, token << 16, &segments, token);
        }
        if submitted {
            client.queue.submit().unwrap();
        }
        drop(client);
        assert!(rig.contents() == contents);
        std::fs::write(&rig.image, vec![0; 4 << 20]).unwrap();
    }
}

fn is_readable(fd: impl AsFd) -> bool {
    let mut fds = [PollFd::new(&fd, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() == 1
}

/// An owner that never calls `wait`: it polls the event, taken anew each time or once for all.
#[test]
fn the_completion_event_wakes_an_owner_that_polls_it() {
    let contents = pattern(1 << 20, 7);
    for (is_passed_on, taken_once) in [(false, false), (false, true), (true, false), (true, true)] {
        let rig = Rig::new(&contents, 1, &SessionOptions { is_passed_on, ..SessionOptions::default() });
        let mut client = Client::new(&rig.disk, 64);
        let held = taken_once.then(|| client.queue.completion_event().unwrap().try_clone_to_owned().unwrap());
        for round in 0..300_u64 {
            let in_batch = 1 + round % 64;
            for token in 0..in_batch {
                let segments = client.segments(token * 4096, 4096);
                client.push(Operation::Read, token * 4096, &segments, token);
            }
            client.queue.submit().unwrap();
            let mut completions = Vec::new();
            while completions.len() < in_batch as usize {
                let before = completions.len();
                client.queue.reap(&mut completions);
                // Held, it may be polled after a reap that found nothing only.
                if completions.len() == before {
                    let mut fds = match &held {
                        Some(held) => [PollFd::new(held, PollFlags::IN)],
                        None => [PollFd::from_borrowed_fd(client.queue.completion_event().unwrap(), PollFlags::IN)],
                    };
                    poll(&mut fds, Some(&Timespec { tv_sec: 10, tv_nsec: 0 })).unwrap();
                    assert!(!fds[0].revents().is_empty(), "woken within 10 s");
                }
            }
            assert!(completions.iter().all(|completion| completion.result.is_ok()));
        }
        let bytes = 64 * 4096;
        assert!(client.peek(0, bytes) == contents[..bytes]);
        // The server may yet ring for what was found without it: a wake-up that brings nothing, and is the last.
        let deadline = std::time::Instant::now() + Duration::from_secs(20);
        std::thread::sleep(Duration::from_millis(20));
        while is_readable(client.queue.completion_event().unwrap()) {
            assert!(std::time::Instant::now() < deadline, "nothing is in flight");
            client.queue.reap(&mut Vec::new());
        }
    }
}

#[test]
fn a_wait_ends_at_its_timeout_and_at_the_callers_events() {
    let rig = Rig::new(&[0; 4096], 1, &SessionOptions::default());
    let mut client = Client::new(&rig.disk, 4);
    let start = std::time::Instant::now();
    client.queue.wait(&[], Some(Duration::from_millis(20))).unwrap();
    assert!(start.elapsed() >= Duration::from_millis(20));
    client.queue.wait(&[], Some(Duration::ZERO)).unwrap();
    let event = blockyard_block::EventFd::new().unwrap();
    event.ring();
    let quiet = blockyard_block::EventFd::new().unwrap();
    let events: Vec<_> = std::iter::repeat_n(quiet.as_fd(), 40).chain([event.as_fd()]).collect();
    client.queue.wait(&events, None).unwrap();
    client.queue.wait(&events[38..], None).unwrap();
}
