//! Queues: depth, batches, events, draining and dropping.

use crate::on_every_engine;
use crate::rig::{Rig, WRITE, options, pattern, request};
use blockyard_block::{Engine, Operation, QueueError};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

on_every_engine!(
    a_full_queue_says_so,
    nothing_completes_before_it_is_submitted,
    drain_completes_everything,
    dropping_a_queue_completes_its_writes,
    the_completion_event_follows_the_completions,
    a_bad_request_raises_the_completion_event,
    wait_ends_after_its_timeout,
    wait_ends_at_the_callers_events,
    many_events_can_be_waited_for,
    queues_move_between_threads,
    queues_share_a_disk,
);

fn depth(engine: Engine) -> usize {
    if engine == Engine::Sync { 1 } else { 64 }
}

fn deep(engine: Engine, contents: &[u8]) -> Rig {
    let rig = Rig::with(contents, &options(engine), 64);
    assert_eq!(rig.queue.depth(), depth(engine));
    rig
}

fn a_full_queue_says_so(engine: Engine) {
    let mut rig = deep(engine, &[0; 4096]);
    let segments = rig.segments(0, 512);
    for token in 0..depth(engine) as u64 {
        assert_eq!(rig.queue.in_flight() as u64, token);
        rig.queue.push(&request(Operation::Read, 0, &segments, token)).unwrap();
    }
    let one_more = request(Operation::Read, 0, &segments, 1000);
    assert_eq!(rig.queue.push(&one_more), Err(QueueError::Full));
    assert_eq!(rig.drain().len(), depth(engine));
    rig.queue.push(&one_more).unwrap();
    assert_eq!(rig.drain().len(), 1);
}

fn nothing_completes_before_it_is_submitted(engine: Engine) {
    let mut rig = deep(engine, &[0; 4096]);
    let segments = rig.segments(0, 512);
    rig.queue.push(&request(Operation::Read, 1 << 30, &segments, 0)).unwrap();
    let mut completions = Vec::new();
    rig.queue.wait(&[], Some(Duration::from_millis(1))).unwrap();
    rig.queue.reap(&mut completions);
    assert!(completions.is_empty());
    assert_eq!(rig.drain().len(), 1);
}

fn drain_completes_everything(engine: Engine) {
    let contents = pattern(64 * 4096, 1);
    let mut rig = deep(engine, &contents);
    let mut tokens: Vec<u64> = (0..depth(engine) as u64).collect();
    for &token in &tokens {
        let segments = rig.segments(token * 4096, 4096);
        rig.queue.push(&request(Operation::Read, token * 4096, &segments, token)).unwrap();
    }
    let mut completions = rig.drain();
    completions.sort_by_key(|completion| completion.token);
    assert!(completions.iter().all(|completion| completion.result.is_ok()));
    assert_eq!(completions.iter().map(|completion| completion.token).collect::<Vec<_>>(), tokens);
    assert!(rig.peek(0, 4096 * tokens.len()) == contents[..4096 * tokens.len()]);
    tokens.clear();
    assert!(rig.drain().is_empty());
}

fn dropping_a_queue_completes_its_writes(engine: Engine) {
    for submit in [true, false] {
        let contents = pattern(64 * 16384, 2);
        let mut rig = deep(engine, &vec![0; contents.len()]);
        let bytes = depth(engine) * 16384;
        rig.poke(0, &contents[..bytes]);
        for token in 0..depth(engine) as u64 {
            let segments = rig.segments(token * 16384, 16384);
            rig.queue.push(&request(WRITE, token * 16384, &segments, token)).unwrap();
        }
        if submit {
            rig.queue.submit().unwrap();
        }
        let disk_and_memory = (rig.disk.open_queue(&rig.memory, 1).unwrap(), ());
        drop(std::mem::replace(&mut rig.queue, disk_and_memory.0));
        assert!(rig.contents()[..bytes] == contents[..bytes]);
    }
}

fn is_readable(fd: impl AsFd) -> bool {
    let mut fds = [PollFd::new(&fd, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() == 1
}

fn the_completion_event_follows_the_completions(engine: Engine) {
    let mut rig = deep(engine, &pattern(1 << 20, 3));
    assert_eq!(rig.queue.completion_event().is_none(), engine == Engine::Sync);
    for _ in 0..100 {
        let in_batch = depth(engine).min(8);
        for token in 0..in_batch as u64 {
            let segments = rig.segments(token * 4096, 4096);
            rig.queue.push(&request(Operation::Read, token * 4096, &segments, token)).unwrap();
        }
        assert!(!rig.queue.completion_event().is_some_and(is_readable));
        rig.queue.submit().unwrap();
        let mut completions = Vec::new();
        while completions.len() < in_batch {
            if let Some(event) = rig.queue.completion_event() {
                poll(&mut [PollFd::new(&event, PollFlags::IN)], None).unwrap();
            }
            rig.queue.reap(&mut completions);
        }
        assert!(!rig.queue.completion_event().is_some_and(is_readable));
    }
}

fn a_bad_request_raises_the_completion_event(engine: Engine) {
    let mut rig = deep(engine, &[0; 4096]);
    let segments = rig.segments(0, 512);
    rig.queue.push(&request(Operation::Read, 1 << 30, &segments, 0)).unwrap();
    rig.queue.submit().unwrap();
    if let Some(event) = rig.queue.completion_event() {
        poll(&mut [PollFd::new(&event, PollFlags::IN)], None).unwrap();
    }
    let mut completions = Vec::new();
    rig.queue.reap(&mut completions);
    assert_eq!(completions.len(), 1);
}

fn wait_ends_after_its_timeout(engine: Engine) {
    let mut rig = deep(engine, &[0; 4096]);
    let start = Instant::now();
    rig.queue.wait(&[], Some(Duration::from_millis(20))).unwrap();
    assert!(start.elapsed() >= Duration::from_millis(20));
    rig.queue.wait(&[], Some(Duration::ZERO)).unwrap();
}

fn wait_ends_at_the_callers_events(engine: Engine) {
    let mut rig = deep(engine, &[0; 4096]);
    let (quiet, rung) = (event(), event());
    rustix::io::write(&rung, &1u64.to_ne_bytes()).unwrap();
    rig.queue.wait(&[quiet.as_fd(), rung.as_fd()], None).unwrap();
    let segments = rig.segments(0, 512);
    rig.queue.push(&request(Operation::Read, 0, &segments, 0)).unwrap();
    rig.queue.submit().unwrap();
    rig.queue.wait(&[quiet.as_fd()], None).unwrap();
}

fn many_events_can_be_waited_for(engine: Engine) {
    let mut rig = deep(engine, &[0; 4096]);
    let events: Vec<_> = (0..40).map(|_| event()).collect();
    rustix::io::write(&events[39], &1u64.to_ne_bytes()).unwrap();
    let borrowed: Vec<_> = events.iter().map(AsFd::as_fd).collect();
    for count in [15, 16, 17] {
        rig.queue.wait(&borrowed[40 - count..], None).unwrap();
        rig.queue.wait(&borrowed[..count], Some(Duration::from_millis(1))).unwrap();
    }
}

fn event() -> std::os::fd::OwnedFd {
    eventfd(0, EventfdFlags::CLOEXEC).unwrap()
}

fn queues_move_between_threads(engine: Engine) {
    let contents = pattern(1 << 20, 4);
    let mut rig = deep(engine, &contents);
    let in_batch = depth(engine).min(16) as u64;
    for token in 0..in_batch {
        let segments = rig.segments(token * 65536, 65536);
        rig.queue.push(&request(Operation::Read, token * 65536, &segments, token)).unwrap();
    }
    // The thread that submits them has ended before they are reaped.
    let mut rig = std::thread::spawn(move || {
        rig.queue.submit().unwrap();
        rig
    })
    .join()
    .unwrap();
    let completions = rig.drain();
    assert_eq!(completions.len() as u64, in_batch);
    assert!(completions.iter().all(|completion| completion.result.is_ok()), "{completions:?}");
    let bytes = in_batch as usize * 65536;
    assert!(rig.peek(0, bytes) == contents[..bytes]);
}

fn queues_share_a_disk(engine: Engine) {
    let rig = deep(engine, &vec![0; 4 << 20]);
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let (disk, memory) = (&rig.disk, &rig.memory);
            scope.spawn(move || {
                let mut queue = disk.open_queue(memory, 4).unwrap();
                let mut completions = Vec::new();
                for n in 0..64 {
                    let offset = (thread * 64 + n) * 16384;
                    let segment = blockyard_block::Segment { region: 0, length_bytes: 512, offset_bytes: thread * 512 };
                    while queue.push(&request(WRITE, offset, &[segment], n)).is_err() {
                        queue.drain(&mut completions).unwrap();
                    }
                    let extent = disk.extents(offset..4 << 20).unwrap();
                    assert!(extent.offset_bytes == offset && extent.length_bytes > 0);
                }
                queue.drain(&mut completions).unwrap();
                assert_eq!(completions.len(), 64);
                assert!(completions.iter().all(|completion| completion.result.is_ok()));
            });
        }
    });
}
