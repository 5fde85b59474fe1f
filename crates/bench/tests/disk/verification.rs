//! What is written is what is read, or the report says where not.

use crate::scripted_disk::{Fault, ScriptedDisk};
use crate::{KIB, report, try_run};
use blockyard_bench::disk::{AccessOrder, Operations, Report, Start, Workload};
use std::time::Duration;

const CAPACITY: u64 = 256 * KIB;

fn writing(access: AccessOrder) -> Workload {
    Workload { access, operations: Operations::Write, verify: true, batch: 8, ..Workload::default() }
}

#[track_caller]
fn first_mismatch(report: &Report) -> String {
    assert!(!report.verified && report.mismatches > 0, "{report:?}");
    report.first_mismatches[0].to_string()
}

#[test]
fn a_good_disk_passes_whatever_the_workload() {
    let mixed = Operations::Mixed { reads_percent: 50 };
    for operations in [Operations::Write, mixed] {
        for access in [AccessOrder::Sequential, AccessOrder::Random, AccessOrder::PingPong] {
            for (jobs, batch) in [(1, 1), (1, 32), (3, 32)] {
                let disk = ScriptedDisk::new(CAPACITY);
                let workload = Workload {
                    operations,
                    jobs,
                    batch,
                    size_bytes: Some(3 * 512),
                    length_bytes: Some(CAPACITY - 4096),
                    start: Start::FromStart(1024),
                    total_bytes: Some(4 * CAPACITY),
                    ..writing(access.clone())
                };
                let report = report(&disk, &workload);
                assert!(report.verified && report.mismatches == 0, "{workload:?}: {report:?}");
                assert!(report.verified_bytes > CAPACITY / 2);
                // Nobody could say which of two writes to one place is the later one.
                assert!(!disk.touched(), "{workload:?}");
            }
        }
    }
}

#[test]
fn what_was_written_is_flushed_and_read_back_once() {
    let disk = ScriptedDisk::new(CAPACITY);
    let report =
        report(&disk, &Workload { length_bytes: Some(16 * KIB), batch: 1, ..writing(AccessOrder::Sequential) });
    let what: String = disk.take_seen().iter().map(|seen| seen.what).collect();
    assert_eq!(what, "wwwwfrrrr");
    // Reading back is no part of what was measured.
    assert_eq!((report.requests, report.reads, report.verified_bytes), (4, 0, 16 * KIB));
}

#[test]
fn nothing_is_written_any_more_once_time_is_up() {
    for _ in 0..20 {
        let disk = ScriptedDisk::new(CAPACITY);
        // Eight requests for three places: now and then one waits for its place when the time is up.
        let workload = Workload {
            length_bytes: Some(12 * KIB),
            runtime: Some(Duration::from_millis(2)),
            ..writing(AccessOrder::Random)
        };
        assert!(report(&disk, &workload).verified);
        let what: String = disk.take_seen().iter().map(|seen| seen.what).collect();
        let (_, read_back) = what.rsplit_once('f').unwrap();
        assert!(read_back.chars().all(|what| what == 'r') && read_back.len() <= 3, "{read_back}");
    }
}

#[test]
fn a_flipped_bit_is_found() {
    let disk = ScriptedDisk::new(CAPACITY).with_fault(10, Fault::Corrupt);
    let report = report(&disk, &writing(AccessOrder::Sequential));
    let sentence = first_mismatch(&report);
    assert!(sentence.contains("at offset 40960") && sentence.contains("checksum is wrong"), "{sentence}");
    assert_eq!(report.mismatches, 1);
}

#[test]
fn a_lost_first_write_leaves_zeros_and_a_lost_later_one_an_older_generation() {
    let disk = ScriptedDisk::new(CAPACITY).with_fault(10, Fault::Lose);
    let sentence = first_mismatch(&report(&disk, &writing(AccessOrder::Sequential)));
    assert!(sentence.contains("at offset 40960") && sentence.contains("hold zeros"), "{sentence}");

    let units = (CAPACITY / 4096) as usize;
    let disk = ScriptedDisk::new(CAPACITY).with_fault(2 * units + 3, Fault::Lose);
    let three_times = Workload { total_bytes: Some(3 * CAPACITY), ..writing(AccessOrder::Sequential) };
    let sentence = first_mismatch(&report(&disk, &three_times));
    assert!(sentence.contains("at offset 12288"), "{sentence}");
    assert!(sentence.contains("(generation 3)") && sentence.ends_with("hold generation 2"), "{sentence}");
}

#[test]
fn a_lost_write_over_an_earlier_runs_is_found() {
    let disk = ScriptedDisk::new(CAPACITY);
    assert!(report(&disk, &writing(AccessOrder::Sequential)).verified);
    disk.take_seen();
    let disk = disk.with_fault(10, Fault::Lose);
    let sentence = first_mismatch(&report(&disk, &writing(AccessOrder::Sequential)));
    assert!(sentence.contains("at offset 40960") && sentence.contains("another run"), "{sentence}");
}

#[test]
fn a_torn_write_is_found() {
    let disk = ScriptedDisk::new(CAPACITY).with_fault(10, Fault::Tear);
    let report = report(&disk, &writing(AccessOrder::Sequential));
    let sentence = first_mismatch(&report);
    assert!(sentence.contains("at offset 43008") && sentence.contains("hold zeros"), "{sentence}");
    assert_eq!(report.mismatches, 4);
}

#[test]
fn a_misplaced_write_is_found_where_it_went_and_where_it_should_have_gone() {
    // The last write goes half a unit too far: over what another write put there.
    let disk = ScriptedDisk::new(CAPACITY).with_fault((CAPACITY / 4096) as usize - 1, Fault::Misplace(2048));
    let ping_pong = Workload { batch: 1, ..writing(AccessOrder::PingPong) };
    let report = report(&disk, &ping_pong);
    let sentences: Vec<_> = report.first_mismatches.iter().map(ToString::to_string).collect();
    let last = CAPACITY / 2;
    let all = sentences.join("\n");
    assert!(all.contains(&format!("at offset {last} ")) && all.contains("zeros"), "{all}");
    assert!(all.contains(&format!("at offset {} ", last + 4096)) && all.contains("was written to offset"), "{all}");
}

#[test]
fn a_mixed_run_finds_it_while_it_runs() {
    let disk = ScriptedDisk::new(CAPACITY).with_fault(0, Fault::Corrupt);
    let workload = Workload {
        operations: Operations::Mixed { reads_percent: 50 },
        total_bytes: Some(20 * CAPACITY),
        length_bytes: Some(8 * KIB),
        batch: 1,
        ..writing(AccessOrder::Random)
    };
    // Written over before the end, so that only a read in between can have seen it.
    assert!(report(&disk, &workload).mismatches > 0);
}

#[test]
fn reading_alone_checks_what_an_earlier_run_wrote() {
    let disk = ScriptedDisk::new(CAPACITY);
    assert!(report(&disk, &writing(AccessOrder::Random)).verified);
    assert!(report(&disk, &writing(AccessOrder::Sequential)).verified);
    for access in [AccessOrder::Sequential, AccessOrder::Random] {
        let reading = Workload { operations: Operations::Read, ..writing(access) };
        let whole = report(&disk, &reading);
        assert!(whole.verified && whole.verified_bytes == CAPACITY, "{whole:?}");
    }
    let reading = Workload { operations: Operations::Read, ..writing(AccessOrder::Sequential) };
    let sentence = first_mismatch(&report(&disk, &Workload { seed: 7, ..reading.clone() }));
    assert!(sentence.contains("seed 7") && sentence.contains("seed 42"), "{sentence}");
    disk.flip_bit(5000);
    assert!(first_mismatch(&report(&disk, &reading)).contains("at offset 4608"));
}

#[test]
fn many_mismatches_are_counted_and_few_are_kept() {
    let disk = ScriptedDisk::new(CAPACITY);
    let reading = Workload { operations: Operations::Read, jobs: 3, ..writing(AccessOrder::Sequential) };
    let report = report(&disk, &reading);
    assert_eq!((report.mismatches, report.first_mismatches.len()), (CAPACITY / 512, 16));
    assert!(report.first_mismatches.is_sorted_by_key(|mismatch| mismatch.offset_bytes));
}

#[test]
fn a_disk_that_fails_is_an_error_and_no_mismatch() {
    let disk = ScriptedDisk::new(CAPACITY).with_fault(10, Fault::Fail);
    assert!(try_run(&disk, &writing(AccessOrder::Random)).unwrap_err().to_string().contains("failed"));
}
