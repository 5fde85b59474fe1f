//! Writers that know what the disk must hold, on a disk whose server is killed now and then.

use crate::rig::{Client, Random, WRITE, pattern};
use crate::server::{Running, Server};
use blockyard_block::Operation;
use blockyard_session::client::{SessionDisk, SessionOptions};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Kills the server `restarts` times, each after some more requests of writers that verify, and starts it again. The
/// writers share its virtqueues where there are fewer.
pub(crate) fn survive_restarts(
    server: &dyn Server,
    writers: usize,
    queues: u16,
    restarts: u32,
    io_buffer_bytes: Option<u64>,
) {
    const SHARE: usize = 2 << 20;
    let directory = tempfile::tempdir().unwrap();
    let (image, socket) = (directory.path().join("disk.img"), directory.path().join("disk.sock"));
    std::fs::write(&image, vec![0; SHARE * writers]).unwrap();
    let mut running = Running::start(server, &image, &socket, queues);
    let (reconnect, is_passed_on) = (Duration::from_secs(30), writers > usize::from(queues));
    let options = SessionOptions { reconnect, io_buffer_bytes, is_passed_on, ..SessionOptions::default() };
    let disk = running.connect(&options);
    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
    let models = std::thread::scope(|scope| {
        let (disk, stop, done) = (&disk, &stop, &done);
        let writers: Vec<_> =
            (0..writers).map(|index| scope.spawn(move || verify(disk, index * SHARE, SHARE, stop, done))).collect();
        let mut random = Random(restarts.into());
        for _ in 0..restarts {
            let wanted = done.load(Ordering::Relaxed) + 20 + random.below(300);
            let patience = Instant::now() + Duration::from_secs(30);
            while done.load(Ordering::Relaxed) < wanted && !writers.iter().any(|writer| writer.is_finished()) {
                assert!(Instant::now() < patience, "no request completes any more: {:?}", disk.failure());
                std::thread::sleep(Duration::from_micros(200));
            }
            running.kill();
            running = Running::start(server, &image, &socket, queues);
        }
        stop.store(true, Ordering::Relaxed);
        writers.into_iter().map(|writer| writer.join().unwrap()).collect::<Vec<_>>()
    });
    drop(disk);
    drop(running);
    assert!(std::fs::read(&image).unwrap() == models.concat(), "what was flushed is there");
}

/// Writes and reads a share of the disk, several requests at once, until told to stop. Every request completes once,
/// and what is read is what was written last. What the share must contain in the end.
pub(crate) fn verify(disk: &SessionDisk, start: usize, length: usize, stop: &AtomicBool, done: &AtomicU64) -> Vec<u8> {
    const DEPTH: usize = 16;
    const BYTES: usize = 16384;
    let mut client = Client::new(disk, DEPTH);
    let share = length / DEPTH;
    let mut model = vec![0; length];
    let mut expected: Vec<Option<usize>> = vec![None; DEPTH];
    let mut in_flight = [false; DEPTH];
    let mut random = Random(start as u64 + 1);
    let mut completions = Vec::with_capacity(DEPTH);
    while !stop.load(Ordering::Relaxed) || in_flight.contains(&true) {
        for slot in 0..DEPTH {
            if in_flight[slot] || stop.load(Ordering::Relaxed) {
                continue;
            }
            let offset = slot * share + 512 * random.below((share - BYTES) as u64 / 512) as usize;
            let address = (slot * BYTES) as u64;
            let segments = client.segments(address, BYTES);
            let at = (start + offset) as u64;
            match random.below(8) {
                0 => client.push(Operation::Flush, 0, &[], slot as u64),
                1..5 => {
                    let data = pattern(BYTES, random.next());
                    client.poke(address, &data);
                    model[offset..offset + BYTES].copy_from_slice(&data);
                    client.push(WRITE, at, &segments, slot as u64);
                }
                _ => {
                    expected[slot] = Some(offset);
                    client.poke(address, &[0xee; BYTES]);
                    client.push(Operation::Read, at, &segments, slot as u64);
                }
            }
            in_flight[slot] = true;
        }
        client.queue.submit().unwrap();
        client.queue.wait(&[], Some(Duration::from_secs(40))).unwrap();
        client.queue.reap(&mut completions);
        for completion in completions.drain(..) {
            let slot = completion.token as usize;
            assert!(std::mem::take(&mut in_flight[slot]), "completed once");
            assert_eq!(completion.result, Ok(()), "{:?}", disk.failure());
            if let Some(offset) = expected[slot].take() {
                assert!(client.peek((slot * BYTES) as u64, BYTES) == model[offset..offset + BYTES], "read at {offset}");
            }
            done.fetch_add(1, Ordering::Relaxed);
        }
    }
    client.perform(Operation::Flush, 0, &[]).unwrap();
    model
}
