//! Clients that share a thread and a disk.

use crate::client::*;
use crate::slow_disk::SlowDisk;
use blockyard_block::{Disk, NullDisk};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Keeps `depth` reads of `length` bytes outstanding until told to stop.
fn flood(client: &Client, depth: u32, length: u32, stop: &AtomicBool) {
    let mut driver = client.driver(0);
    (0..depth).for_each(|slot| driver.add(slot, IN, 0, 0x80_0000, length));
    driver.publish();
    while !stop.load(Ordering::Relaxed) {
        let Some(slot) = driver.next(Duration::from_millis(100)) else { continue };
        driver.add(slot, IN, 0, 0x80_0000, length);
        while let Some(used) = driver.queue.pop_used().unwrap() {
            driver.add(used.token, IN, 0, 0x80_0000, length);
        }
        driver.publish();
    }
}

/// The disk does all in the order in which it is asked: whoever comes second waits for what is there already. That is bounded.
#[test]
fn a_flood_does_not_starve_a_client_of_depth_one() {
    let server = server(Duration::from_micros(200));
    // 1 GiB/s: the flood's 20 requests of 1 MiB would be 20 ms of work ahead of everybody else.
    let disk: Arc<dyn Disk> = Arc::new(SlowDisk::new(1000));
    let (flooding, flooded) = Client::start(&server, export(disk.clone(), 1, 1));
    let (shallow, _session) = Client::start(&server, export(disk, 1, 1));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| flood(&flooding, 20, 1 << 20, &stop));
        let mut driver = shallow.driver(0);
        // The first may find everything in flight already.
        assert_eq!(driver.run(IN, 0, 0x80_0000, 4096), 0);
        let mut times: Vec<_> = (0..40)
            .map(|_| {
                let start = Instant::now();
                assert_eq!(driver.run(IN, 0, 0x80_0000, 4096), 0);
                start.elapsed()
            })
            .collect();
        stop.store(true, Ordering::Relaxed);
        times.sort_unstable();
        assert!(times[20] < Duration::from_millis(8), "a median of {:?} behind a flood", times[20]);
    });
    assert!(flooded.statistics().counts.bytes_read > 20 << 20, "it does not starve either");
}

/// Two floods on one thread and a disk that costs only the thread.
#[test]
fn a_thread_is_shared_by_bytes_and_weight() {
    let server = server(Duration::from_micros(200));
    let disk: Arc<dyn Disk> = Arc::new(NullDisk::new(1 << 30, 512).unwrap());
    let (light, first) = Client::start(&server, export(disk.clone(), 1, 1));
    let (heavy, second) = Client::start(&server, export(disk, 1, 3));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Large and few against small and many.
        scope.spawn(|| flood(&light, 8, 1 << 20, &stop));
        scope.spawn(|| flood(&heavy, 20, 256 << 10, &stop));
        std::thread::sleep(Duration::from_millis(600));
        stop.store(true, Ordering::Relaxed);
    });
    let bytes = [first, second].map(|session| session.statistics().counts.bytes_read as f64);
    let ratio = bytes[1] / bytes[0];
    assert!((1.2..6.0).contains(&ratio), "{ratio} times as much for three times the weight: {bytes:?}");
}
