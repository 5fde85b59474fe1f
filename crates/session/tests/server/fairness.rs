//! Clients that share a thread and a disk. What is looked at is what the disk is asked for, in which order: no times.

use crate::client::*;
use crate::slow_disk::SlowDisk;
use blockyard_session::server::EndReason;
use blockyard_virtqueue::{Buffer, Chain};
use std::sync::Arc;
use std::time::Duration;

const MIB: u64 = 1 << 20;
/// Where each client reads, so that the disk's log tells them apart.
const FIRST: u64 = 0;
const SECOND: u64 = 512 * MIB;

/// Requests, and how many bytes each reads.
struct Flood {
    requests: u32,
    bytes: u32,
    place: u64,
}

impl Flood {
    fn publish(&self, driver: &mut Driver<'_>) {
        (0..self.requests).for_each(|slot| driver.add(slot, IN, self.place / 512, 0x80_0000, self.bytes));
        driver.publish();
    }
}

/// Makes available so many reads of 128 MiB each, of what is in the first client's place.
fn publish_very_large(driver: &mut Driver<'_>, requests: u32) {
    const PART: u32 = 8 << 20;
    for slot in 0..requests {
        let control = control_offset(driver.index, slot);
        driver.client.fill(control, &words(&[u64::from(IN), FIRST / 512, 0xee]));
        let part = Buffer { address: GUEST + 0x80_0000, length: PART, writable: true };
        let mut buffers = vec![part; (VERY_LARGE / u64::from(PART)) as usize];
        buffers.insert(0, Buffer { address: GUEST + control, length: 16, writable: false });
        buffers.push(Buffer { address: GUEST + control + 16, length: 1, writable: true });
        driver.queue.add(slot, &Chain::Direct(&buffers)).unwrap();
    }
    driver.publish();
}

const VERY_LARGE: u64 = 128 * MIB;

/// What the disk was asked for after its first `from` requests: whether it was the second client's, and bytes.
fn asked(disk: &SlowDisk, from: usize) -> Vec<(bool, u64)> {
    disk.log()[from..].iter().map(|(_, offset_bytes, bytes)| (*offset_bytes >= SECOND, *bytes)).collect()
}

/// A disk that answers nothing for now, and two clients that were busy a moment ago, the second the heavier one.
fn on_a_held_disk<T>(heavier: u32, act: impl FnOnce(&SlowDisk, &mut Driver<'_>, &mut Driver<'_>) -> T) -> T {
    let server = server(Duration::from_micros(200));
    let disk = SlowDisk::new(0);
    let (first, _first_session) = Client::start(&server, export(Arc::new(disk.clone()), 1, 1));
    let (second, _second_session) = Client::start(&server, export(Arc::new(disk.clone()), 1, heavier));
    let (mut first, mut second) = (first.driver(0), second.driver(0));
    for (driver, place) in [(&mut first, FIRST), (&mut second, SECOND)] {
        assert_eq!(driver.run(IN, place / 512, 0x80_0000, 512), 0);
    }
    disk.hold(true);
    let result = act(&disk, &mut first, &mut second);
    disk.hold(false);
    result
}

/// A client counts as busy for a tenth of a second, and a test may be stopped for longer: then it is tried again.
fn in_time<T>(attempt: impl Fn() -> Result<T, String>) {
    let failures: Vec<_> = (0..5).map_while(|_| attempt().err()).collect();
    assert!(failures.len() < 5, "{failures:?}");
}

/// What the disk is asked for by a client that has published as much as it likes, ahead of one small request of the
/// second's, is half of 2 MiB, and what one request, or one piece of one, may exceed it by.
fn leaves_room(publish: impl Fn(&mut Driver<'_>)) {
    in_time(|| {
        on_a_held_disk(1, |disk, first, second| {
            publish(first);
            // As much as it gets: it is not answered, so that is all.
            std::thread::sleep(Duration::from_millis(20));
            second.add(0, IN, SECOND / 512, 0x80_0000, 4096);
            second.publish();
            wait_for(|| asked(disk, 2).contains(&(true, 4096)));
            let ahead: u64 = asked(disk, 2).iter().take_while(|(second, _)| !second).map(|(_, bytes)| bytes).sum();
            if (1..=2 * MIB).contains(&ahead) { Ok(()) } else { Err(format!("{ahead} bytes ahead of everybody else")) }
        })
    });
}

/// A disk does what it is asked in order, or as good as: what is there already is what everybody else waits for.
#[test]
fn a_flood_leaves_room_at_the_disk() {
    leaves_room(|first| Flood { requests: 20, bytes: MIB as u32, place: FIRST }.publish(first));
}

/// However much each of them asks for.
#[test]
fn so_does_a_flood_of_very_large_requests() {
    leaves_room(|first| publish_very_large(first, 3));
}

/// Where nobody else has anything to do there is a bound, too: whoever comes next waits for what is there. And nobody
/// waits for what a session that is over would still have had done.
#[test]
fn very_large_requests_are_not_gone_on_with_when_their_session_is_over() {
    in_time(|| {
        let server = server(Duration::from_micros(200));
        let disk = SlowDisk::new(0);
        let (client, session) = Client::start(&server, export(Arc::new(disk.clone()), 1, 1));
        disk.hold(true);
        let in_flight = || asked(&disk, 0).iter().map(|(_, bytes)| bytes).sum::<u64>();
        publish_very_large(&mut client.driver(0), 3);
        wait_for(|| in_flight() >= 64 * MIB);
        session.revoke();
        // Nothing tells when that was heard; until then the disk must do nothing.
        std::thread::sleep(Duration::from_millis(20));
        disk.hold(false);
        assert_eq!(end(&session), EndReason::Revoked);
        if in_flight() > 68 * MIB {
            return Err(format!("{} bytes", in_flight()));
        }
        assert_eq!(client.bytes(control_offset(0, 0) + 16, 1), [0xee], "it was not done");
        Ok(())
    });
}

/// A client that takes its queue back has what the queue has begun: it asked for all of it.
#[test]
fn a_queue_that_stops_ends_what_it_has_begun() {
    let server = server(Duration::from_micros(200));
    let disk = SlowDisk::new(0);
    let (client, _session) = Client::start(&server, export(Arc::new(disk.clone()), 1, 1));
    // The thread waits in the disk for the first piece, while the client asks.
    disk.stop_in_next_push();
    disk.answer_at_once();
    publish_very_large(&mut client.driver(0), 1);
    wait_for(|| disk.is_stopped());
    // GET_VRING_BASE
    client.send(11, &halves(&[0, 0]), &[]);
    std::thread::sleep(Duration::from_millis(20));
    disk.go_on();
    let (base, _) = client.receive(11).unwrap();
    assert_eq!(base, halves(&[0, 1]));
    assert_eq!(asked(&disk, 0).iter().map(|(_, bytes)| bytes).sum::<u64>(), VERY_LARGE);
    assert_eq!(client.bytes(control_offset(0, 0) + 16, 1), [0], "it was done");
}

/// Small requests are bounded in number: a disk that seeks takes long for each.
#[test]
fn so_does_a_flood_of_small_requests() {
    in_time(|| {
        on_a_held_disk(7, |disk, first, second| {
            Flood { requests: 21, bytes: 512, place: FIRST }.publish(first);
            std::thread::sleep(Duration::from_millis(20));
            second.add(0, IN, SECOND / 512, 0x80_0000, 512);
            second.publish();
            wait_for(|| asked(disk, 2).contains(&(true, 512)));
            let ahead = asked(disk, 2).iter().take_while(|(second, _)| !second).count();
            // An eighth of 128.
            if (1..=17).contains(&ahead) { Ok(()) } else { Err(format!("{ahead} requests ahead of everybody else")) }
        })
    });
}

#[test]
fn a_client_alone_is_not_limited() {
    let server = server(Duration::from_micros(200));
    let disk = SlowDisk::new(0);
    let (client, _session) = Client::start(&server, export(Arc::new(disk.clone()), 1, 1));
    let (_idle, _idle_session) = Client::start(&server, export(Arc::new(disk.clone()), 1, 1));
    disk.hold(true);
    Flood { requests: 20, bytes: MIB as u32, place: FIRST }.publish(&mut client.driver(0));
    wait_for(|| disk.log().len() == 20);
    disk.hold(false);
}

/// The thread's own time: on a disk that answers at once, both have much to do at the same moment.
#[test]
fn a_thread_is_shared_by_bytes_and_weight() {
    in_time(|| {
        on_a_held_disk(3, |disk, first, second| {
            // The thread itself waits in the disk for the first request, while the rest is made available.
            disk.stop_in_next_push();
            first.add(0, IN, FIRST / 512, 0x80_0000, 512);
            first.publish();
            wait_for(|| disk.is_stopped());
            disk.answer_at_once();
            let light = Flood { requests: 19, bytes: MIB as u32, place: FIRST };
            (1..=light.requests).for_each(|slot| first.add(slot, IN, FIRST / 512, 0x80_0000, light.bytes));
            first.publish();
            Flood { requests: 20, bytes: 256 << 10, place: SECOND }.publish(second);
            disk.go_on();
            wait_for(|| disk.log().len() == 2 + 1 + 19 + 20);
            let order = asked(disk, 3);
            let last = order.iter().rposition(|(second, _)| *second).unwrap_or_default();
            let light: u64 = order[..last].iter().filter(|(second, _)| !second).map(|(_, bytes)| bytes).sum();
            // A third of the 5 MiB that the heavy one had, within one request.
            let fair = (MIB..=2 * MIB).contains(&light);
            if fair { Ok(()) } else { Err(format!("{light} bytes of the light one before 5 MiB of the heavy one")) }
        })
    });
}

/// What is in the page cache is copied while it is submitted: a driver is not kept from large requests that are done by
/// others that are not. A disk may do two of the largest at a time, so they come in twos. Small ones are submitted
/// together.
#[test]
fn large_requests_of_one_client_are_submitted_one_by_one_or_two_by_two_and_small_ones_together() {
    for (requests, bytes, batches) in [
        (4, 1 << 20, vec![2; 2]),
        (4, 512 << 10, vec![2; 2]),
        (4, 256 << 10, vec![1; 4]),
        (8, 64 << 10, vec![4; 2]),
        (16, 4096, vec![16]),
    ] {
        let server = server(Duration::ZERO);
        let disk = SlowDisk::new(0);
        disk.answer_at_once();
        let (client, _session) = Client::start(&server, export(Arc::new(disk.clone()), 1, 1));
        let mut driver = client.driver(0);
        Flood { requests, bytes, place: FIRST }.publish(&mut driver);
        (0..requests).for_each(|_| assert!(driver.next(TIMEOUT).is_some()));
        assert_eq!(disk.batches(), batches, "{requests} of {bytes} bytes");
    }
}
