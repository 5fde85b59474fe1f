//! Each workload touches what it should, in the order it should.

use crate::scripted_disk::{Fault, ScriptedDisk, Seen};
use crate::{KIB, refused, report, try_run};
use blockyard_bench::disk::{AccessOrder, Operations, Start, Workload, replay, run};
use std::num::NonZeroU64;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

const CAPACITY: u64 = 1024 * KIB;

fn workload(access: AccessOrder) -> Workload {
    Workload { access, ..Workload::default() }
}

/// Offsets and lengths in KiB.
fn places(seen: &[Seen]) -> Vec<(u64, u64)> {
    seen.iter().map(|one| (one.offset / KIB, one.length / KIB)).collect()
}

fn replayed(text: &str) -> AccessOrder {
    AccessOrder::Replay(replay::parse(text.as_bytes()).unwrap().into())
}

#[test]
fn sequential_covers_the_region_once_and_ends_with_its_rest() {
    let disk = ScriptedDisk::new(CAPACITY);
    let region = Workload {
        start: Start::FromStart(100 * KIB),
        length_bytes: Some(18 * KIB),
        size_bytes: Some(8 * KIB),
        ..workload(AccessOrder::Sequential)
    };
    let report = report(&disk, &region);
    assert_eq!(places(&disk.take_seen()), [(100, 8), (108, 8), (116, 2)]);
    assert_eq!((report.requests, report.reads, report.read_bytes), (3, 3, 18 * KIB));
    assert!(report.iops > 0.0 && report.mib_per_s > 0.0 && !report.verified && !report.interrupted);
}

#[test]
fn without_settings_the_whole_disk_is_read_in_pages() {
    let disk = ScriptedDisk::new(CAPACITY);
    let report = report(&disk, &Workload::default());
    assert_eq!((report.requests, report.read_bytes, report.capacity_bytes), (256, CAPACITY, CAPACITY));
    assert!(disk.take_seen().iter().all(|seen| (seen.what, seen.length) == ('r', 4096)));
}

#[test]
fn jobs_share_the_region_and_none_is_without_work() {
    let disk = ScriptedDisk::new(CAPACITY);
    for (jobs, length, used) in [(3, 40, 3), (8, 12, 3), (256, 4, 1)] {
        let region = Workload { jobs, length_bytes: Some(length * KIB), ..workload(AccessOrder::Sequential) };
        let report = report(&disk, &region);
        let mut seen = disk.take_seen();
        assert_eq!(report.jobs, used, "{jobs} jobs");
        // Each job's part is one piece, the pieces follow each other, and together they are the region.
        seen.sort_by_key(|one| (one.queue, one.offset));
        let offsets: Vec<_> = seen.iter().map(|one| one.offset / KIB).collect();
        assert_eq!(offsets, (0..length).step_by(4).collect::<Vec<_>>(), "{jobs} jobs");
    }
}

#[test]
fn a_total_goes_round_or_stops_early() {
    let disk = ScriptedDisk::new(CAPACITY);
    let of = |total| Workload {
        total_bytes: Some(total * KIB),
        length_bytes: Some(12 * KIB),
        ..workload(AccessOrder::Sequential)
    };
    report(&disk, &of(20));
    assert_eq!(places(&disk.take_seen()), [(0, 4), (4, 4), (8, 4), (0, 4), (4, 4)]);
    report(&disk, &of(5));
    assert_eq!(places(&disk.take_seen()), [(0, 4), (4, 4)]);
}

#[test]
fn random_touches_whole_units_of_the_region_only_and_all_of_them() {
    let disk = ScriptedDisk::new(CAPACITY);
    let region = Workload {
        start: Start::FromStart(64 * KIB),
        length_bytes: Some(42 * KIB),
        total_bytes: Some(400 * KIB),
        jobs: 3,
        ..workload(AccessOrder::Random)
    };
    let report = report(&disk, &region);
    let seen = disk.take_seen();
    assert_eq!((report.requests, seen.len()), (100, 100));
    let mut units: Vec<_> = places(&seen);
    units.sort_unstable();
    units.dedup();
    // Ten whole units fit; the last two KiB are left out.
    assert_eq!(units, (0..10).map(|unit| (64 + 4 * unit, 4)).collect::<Vec<_>>());
}

#[test]
fn the_seed_decides_and_nothing_else() {
    let disk = ScriptedDisk::new(CAPACITY);
    let places_of = |seed, jobs| {
        let mixed = Operations::Mixed { reads_percent: 50 };
        let region = Workload { seed, jobs, operations: mixed, ..workload(AccessOrder::Random) };
        report(&disk, &region);
        let mut seen = disk.take_seen();
        // Which thread comes first is not the seed's business.
        seen.sort_by_key(|one| one.queue);
        seen
    };
    assert_eq!(places_of(1, 1), places_of(1, 1));
    assert_eq!(places_of(1, 2), places_of(1, 2));
    assert_ne!(places_of(1, 1), places_of(2, 1));
    let both = places_of(1, 2);
    let (first, second) = both.split_at(both.iter().filter(|one| one.queue == 0).count());
    assert_ne!(places(first), places(second));
}

#[test]
fn ping_pong_comes_from_both_ends() {
    let disk = ScriptedDisk::new(CAPACITY);
    let region = |jobs| Workload {
        start: Start::FromStart(4 * KIB),
        length_bytes: Some(18 * KIB),
        jobs,
        ..workload(AccessOrder::PingPong)
    };
    report(&disk, &region(1));
    assert_eq!(places(&disk.take_seen()), [(4, 4), (20, 2), (8, 4), (16, 4), (12, 4)]);
    report(&disk, &region(2));
    let mut seen = disk.take_seen();
    seen.sort_by_key(|one| one.queue);
    assert_eq!(places(&seen), [(4, 4), (8, 4), (12, 4), (20, 2), (16, 4)]);
}

#[test]
fn a_start_may_count_from_the_end() {
    let disk = ScriptedDisk::new(CAPACITY);
    let region = Workload { start: Start::FromEnd(10 * KIB), ..workload(AccessOrder::Sequential) };
    report(&disk, &region);
    assert_eq!(places(&disk.take_seen()), [(1014, 4), (1018, 4), (1022, 2)]);
    let region = Workload { length_bytes: Some(4 * KIB), ..region };
    report(&disk, &region);
    assert_eq!(places(&disk.take_seen()), [(1014, 4)]);
    let too_far = Workload { start: Start::FromEnd(CAPACITY + 512), ..region };
    assert_eq!(refused(&disk, &too_far).setting, "start");
}

#[test]
fn a_replay_does_what_its_lines_say() {
    let disk = ScriptedDisk::new(CAPACITY);
    let text = "read 1024 512\nwrite 0 1048576\nflush\ndiscard 512 4096\nzero 0 1048576\nread 1048064 512\n";
    let replay = Workload { operations: Operations::Write, ..workload(replayed(text)) };
    let report = report(&disk, &replay);
    let seen: Vec<_> = disk.take_seen().iter().map(|one| (one.what, one.offset, one.length)).collect();
    let (whole, last) = (CAPACITY, CAPACITY - 512);
    let expected =
        [('r', 1024, 512), ('w', 0, whole), ('f', 0, 0), ('d', 512, 4096), ('z', 0, whole), ('r', last, 512)];
    assert_eq!(seen, expected);
    assert_eq!((report.requests, report.reads, report.writes, report.flushes), (5, 2, 1, 1));
    assert_eq!((report.discards, report.write_zeroes, report.written_bytes), (1, 1, CAPACITY));
}

#[test]
fn a_replay_is_checked_against_the_disk_before_it_begins() {
    let disk = ScriptedDisk::new(CAPACITY);
    for (text, words) in [
        ("read 0 512\n# then\nread 1048576 512", ["line 3", "past the end"]),
        ("read 18446744073709551104 1024", ["line 1", "past the end"]),
        ("read 100 512", ["line 1", "whole blocks"]),
        ("read 0 100", ["line 1", "whole blocks"]),
        ("write 0 512", ["line 1", "--write"]),
        ("zero 0 512", ["line 1", "--write"]),
        ("discard 0 512", ["line 1", "--write"]),
    ] {
        let error = refused(&disk, &workload(replayed(text)));
        assert_eq!(error.setting, "replay", "{text}");
        assert!(words.iter().all(|word| error.problem.contains(word)), "{text}: {error}");
    }
    assert_eq!(disk.take_seen(), []);
}

#[test]
fn mixed_keeps_its_share_and_flushes_come_when_asked() {
    let disk = ScriptedDisk::new(CAPACITY);
    let mixed = |reads_percent| Workload {
        operations: Operations::Mixed { reads_percent },
        total_bytes: Some(8 * CAPACITY),
        ..workload(AccessOrder::Random)
    };
    let seventy = report(&disk, &mixed(70));
    assert!((1330..1540).contains(&seventy.reads) && seventy.reads + seventy.writes == 2048, "{seventy:?}");
    assert_eq!(report(&disk, &mixed(0)).reads, 0);
    assert_eq!(report(&disk, &mixed(100)).writes, 0);
    disk.take_seen();
    let flushed = Workload {
        operations: Operations::Write,
        flush_every: NonZeroU64::new(3),
        length_bytes: Some(28 * KIB),
        start: Start::FromStart(4 * KIB),
        ..workload(AccessOrder::Sequential)
    };
    let report = report(&disk, &flushed);
    let what: String = disk.take_seen().iter().map(|one| one.what).collect();
    assert_eq!(what, "wwwfwwwfw");
    assert_eq!((report.requests, report.flushes), (7, 2));
    assert!(report.flush_latency_ns.max > 0);
}

#[test]
fn no_more_is_in_flight_than_was_asked_for_or_fits() {
    for (batch, buffer_bytes, depth, expected) in
        [(1, None, 64, 1), (16, None, 64, 16), (16, Some(40 * KIB), 64, 10), (16, None, 7, 7)]
    {
        let disk = ScriptedDisk::new(CAPACITY).with_depth(depth);
        let report = report(&disk, &Workload { batch, buffer_bytes, ..workload(AccessOrder::Sequential) });
        assert_eq!((disk.deepest(), report.batch), (expected, expected), "{batch} {buffer_bytes:?} {depth}");
        assert_eq!(report.requests, 256);
        // This disk answers three at a time, and nobody ever has to wait for it.
        let submits = 1 + (256 - expected).div_ceil(expected.min(3)) as u64;
        assert_eq!((report.submits, report.waits), (submits, 0), "{report:?}");
    }
}

#[test]
fn time_ends_a_run_and_so_does_whoever_watches() {
    let disk = ScriptedDisk::new(CAPACITY);
    let timed = Workload { runtime: Some(Duration::from_millis(300)), jobs: 2, ..workload(AccessOrder::Random) };
    let report = report(&disk, &timed);
    assert!(report.seconds >= 0.3 && report.requests > 0 && !report.interrupted, "{report:?}");

    let for_ever = Workload { runtime: Some(Duration::from_secs(1000)), jobs: 2, ..workload(AccessOrder::Sequential) };
    let (started, mut calls) = (Instant::now(), 0);
    let stopped = run(&disk, &for_ever, |progress| {
        calls += 1;
        assert!(progress.total_bytes.is_none() && !progress.reading_back);
        if progress.done_bytes > 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    let stopped = stopped.unwrap();
    assert!(stopped.interrupted && stopped.requests > 0 && calls > 0 && started.elapsed() < Duration::from_secs(60));
}

#[test]
fn a_request_that_fails_ends_the_run_and_is_named() {
    let disk = ScriptedDisk::new(CAPACITY).with_fault(5, Fault::Fail);
    let write = Workload { operations: Operations::Write, batch: 4, ..workload(AccessOrder::Sequential) };
    let error = try_run(&disk, &write).unwrap_err().to_string();
    assert!(error.contains("write of 4096 bytes at offset 20480") && error.contains("Input/output error"), "{error}");
    assert!(disk.take_seen().len() < 20);
}

#[test]
fn an_answer_to_no_request_ends_the_run() {
    let disk = ScriptedDisk::new(CAPACITY).with_fault(5, Fault::Stray);
    let write = Workload { operations: Operations::Write, batch: 4, ..workload(AccessOrder::Sequential) };
    let error = try_run(&disk, &write).unwrap_err().to_string();
    assert!(error.contains("nobody made"), "{error}");
}
