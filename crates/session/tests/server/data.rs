//! Requests through a session.

use crate::client::*;
use blockyard_block::layers::OperationKind;
use blockyard_block::{MemoryDisk, NullDisk};
use blockyard_session::server::EndReason;
use std::sync::Arc;
use std::time::Duration;

#[test]
fn what_was_written_is_read() {
    let server = server(Duration::from_micros(200));
    let (client, session) = Client::start(&server, export(Arc::new(MemoryDisk::new(1 << 20, 512).unwrap()), 2, 1));
    let data: Vec<u8> = (0..8192u32).map(|at| (at * 7 / 8) as u8).collect();
    client.fill(0x80_0000, &data);
    for index in 0..2 {
        let mut driver = client.driver(index);
        assert_eq!(driver.run(OUT, 8, 0x80_0000, 8192), 0);
        client.fill(0x90_0000, &[0; 8192]);
        assert_eq!(driver.run(IN, 8, 0x90_0000, 8192), 0);
        assert_eq!(client.bytes(0x90_0000, 8192), data);
        assert_eq!(driver.run(4, 0, 0x90_0000, 0), 0, "flush");
        assert_eq!(driver.run(IN, 2048, 0x90_0000, 512), 1, "past the end");
        assert_eq!(driver.run(8, 0, 0x90_0000, 20), 1, "the serial has nowhere to go");
    }
    let statistics = session.statistics();
    assert_eq!((statistics.counts.reads, statistics.counts.writes, statistics.counts.flushes), (2, 2, 2));
    let timed = |kind: OperationKind| statistics.latencies[kind.index()].count();
    assert_eq!((timed(OperationKind::Read), timed(OperationKind::Flush), statistics.in_flight), (2, 2, 0));
    // How often either side was rung depends on who was faster.
    let found = statistics.counts.doorbells + statistics.counts.polls;
    assert!(statistics.counts.errors == 4 && found > 0 && statistics.counts.interrupts <= 10, "{statistics:?}");
    drop(client);
    assert_eq!(end(&session), EndReason::Disconnected);
}

#[test]
fn many_at_once_each_answered_once() {
    let server = server(Duration::from_micros(200));
    let (client, _session) = Client::start(&server, export(Arc::new(NullDisk::new(1 << 30, 512).unwrap()), 1, 1));
    let mut driver = client.driver(0);
    let (mut added, mut answered) = (0u64, 0u64);
    let mut free: Vec<u32> = (0..20).collect();
    while answered < 20_000 {
        while let Some(slot) = free.pop() {
            driver.add(slot, IN, added % 1000, 0x80_0000 + 4096 * u64::from(slot), 4096);
            added += 1;
        }
        driver.publish();
        free.push(driver.next(TIMEOUT).expect("an answer"));
        while let Some(used) = driver.queue.pop_used().unwrap() {
            free.push(used.token);
        }
        answered = added - u64::from(driver.queue.in_flight());
    }
}

/// Without EVENT_IDX, and with a driver that never asks to be told.
#[test]
fn a_driver_may_poll() {
    let server = server(Duration::ZERO);
    let (mut client, session) = Client::connect(&server, export(Arc::new(NullDisk::new(1 << 20, 512).unwrap()), 1, 1));
    client.features &= !EVENT_IDX;
    client.negotiate();
    client.share_memory();
    client.start_queue(0, 0);
    client.synchronize();
    let mut driver = client.driver(0);
    for _ in 0..100 {
        driver.add(3, OUT, 0, 0x80_0000, 512);
        driver.publish();
        while driver.queue.pop_used().unwrap().is_none() {
            std::thread::yield_now();
        }
        assert_eq!(driver.status(3), 0);
    }
    assert_eq!(session.statistics().counts.interrupts, 0);
}

#[test]
fn an_idle_session_costs_nothing() {
    let server = server(Duration::from_micros(200));
    let (client, session) = Client::start(&server, export(Arc::new(NullDisk::new(1 << 20, 512).unwrap()), 1, 1));
    let mut driver = client.driver(0);
    (0..10).for_each(|_| assert_eq!(driver.run(IN, 0, 0x80_0000, 512), 0));
    // When it comes to rest is the machine's affair; that it does, and stays there, is ours.
    let deadline = std::time::Instant::now() + TIMEOUT;
    loop {
        let before = (server.waits(), session.statistics());
        std::thread::sleep(Duration::from_millis(300));
        if (server.waits(), session.statistics()) == before {
            break;
        }
        assert!(std::time::Instant::now() < deadline, "it never comes to rest");
    }
}
