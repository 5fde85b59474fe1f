use super::*;
use crate::layers::tests::manual_clock::ManualClock;
use crate::layers::tests::rig::{AskedDisk, Rig, WRITE, becomes_readable, segment, threads_disk, tokens};
use crate::{MemoryDisk, Operation};
use bolero::TypeGenerator;

const CAPACITY: u64 = 1 << 20;

fn faults(text: &str) -> Faults {
    text.parse().unwrap()
}

/// A disk in memory with faults, and the same without.
fn faulty_memory(text: &str) -> (Rig, Rig) {
    let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::new(CAPACITY, 512).unwrap());
    (Rig::new(&FaultyDisk::new(Arc::clone(&disk), &faults(text)), 1), Rig::new(&*disk, 1))
}

/// Which of `count` reads fail.
fn failing_reads(text: &str, count: u64) -> Vec<u64> {
    let mut rig = Rig::new(&FaultyDisk::new(Arc::new(AskedDisk::new(CAPACITY)), &faults(text)), 64);
    (0..count).filter(|n| rig.read(n % 1024 * 512, 512).is_err()).collect()
}

#[test]
fn what_is_written_reads_back_the_same() {
    for text in [
        "error:1",
        "read-error:0.01+latency:5ms+seed:7",
        "write-error:100th+flush-error:1st+discard-error:2nd+zero-error:3rd",
        "error:11th+error:111th+error:21st+error:0",
        "torn-write:0.000000001+silent-torn-write:0.5+lost-write:1M-2M",
        "write-latency:100us-1ms+full:10M",
    ] {
        assert_eq!(faults(text).to_string(), text);
    }
    let same = [("error:1.0", "error:1"), ("seed:5+error:0.10", "error:0.1+seed:5"), ("full:1024K", "full:1M")];
    for (text, shortest) in same {
        assert_eq!(faults(text).to_string(), shortest);
    }
}

#[test]
fn what_makes_no_sense_is_refused_where_it_stands() {
    for (text, part, word) in [
        ("", "", "is not a fault"),
        ("seed:7", "seed:7", "no fault beside the seed"),
        ("error", "error", "a colon and a value"),
        ("error:1+", "", "is not a fault"),
        ("reed-error:1", "reed-error:1", "'reed-error' is not a fault"),
        ("error:1+write-eror:1", "write-eror:1", "'write-eror' is not a fault"),
        ("error:2", "error:2", "probability from 0 to 1"),
        ("error:-0.1", "error:-0.1", "not a size"),
        ("error:0.0000000001", "error:0.0000000001", "nine decimals"),
        ("error:0th", "error:0th", "from 1st"),
        ("error:2M-1M", "error:2M-1M", "empty range"),
        ("latency:5", "latency:5", "not a time"),
        ("latency:5ms-1ms", "latency:5ms-1ms", "ends before"),
        ("latency:3601s", "latency:3601s", "longer than 3600s"),
        ("full:x", "full:x", "not a size"),
        ("error:1+seed:x", "seed:x", "not a seed"),
        ("error:1+seed:1+seed:1", "seed:1", "second seed"),
    ] {
        let error = text.parse::<Faults>().unwrap_err();
        assert_eq!(&text[error.span.clone()], part, "{text}");
        assert!(error.message.contains(word), "{text}: {error}");
    }
    let many = vec!["error:1"; 65].join("+");
    assert!(many.parse::<Faults>().unwrap_err().message.contains("too many"));
}

#[test]
fn a_rate_is_kept_and_the_same_seed_fails_the_same_requests() {
    let failing = failing_reads("read-error:0.1+seed:1", 10_000);
    assert!((900..1100).contains(&failing.len()), "{}", failing.len());
    assert_eq!(failing, failing_reads("read-error:0.1+seed:1", 10_000));
    assert_ne!(failing, failing_reads("read-error:0.1+seed:2", 10_000));
    assert_eq!(failing_reads("read-error:0", 100), [0; 0]);
    assert_eq!(failing_reads("read-error:1", 100).len(), 100);
}

#[test]
fn two_faults_of_one_rate_befall_different_requests() {
    let one = failing_reads("read-error:0.1", 1000).len();
    let two = failing_reads("read-error:0.1+read-error:0.1", 1000).len();
    assert!(two > one * 3 / 2, "{one} {two}");
}

#[test]
fn the_nth_request_fails_and_no_other() {
    assert_eq!(failing_reads("read-error:3rd", 100), [2]);
    assert_eq!(failing_reads("error:2nd+error:5th", 100), [1, 4]);
}

#[test]
fn requests_that_touch_the_range_fail() {
    let (mut rig, _) = faulty_memory("error:4096-8192");
    let results = [(0, 4096), (0, 4097), (8191, 512), (8192, 512), (4096, 0)]
        .map(|(offset, length)| rig.read(offset, length).is_err());
    assert_eq!(results, [false, true, true, false, false]);
    rig.perform(Operation::Flush, 0, &[]).unwrap();
}

#[test]
fn an_error_is_eio_of_its_operation_and_nothing_is_done() {
    let (mut rig, mut plain) = faulty_memory("write-error:1+flush-error:1");
    plain.write(0, &[1; 512]).unwrap();
    assert_eq!(rig.write(0, &[2; 512]), Err(EIO));
    assert_eq!(rig.perform(Operation::Flush, 0, &[]), Err(EIO));
    assert_eq!(rig.read(0, 512).unwrap(), [1; 512]);
    rig.perform(Operation::WriteZeroes { length_bytes: 512, may_unmap: false }, 0, &[]).unwrap();
    assert_eq!(plain.read(0, 512).unwrap(), [0; 512]);
}

#[test]
fn a_lost_write_succeeds_and_changes_nothing() {
    let (mut rig, mut plain) = faulty_memory("lost-write:2nd");
    for value in 1..=3 {
        rig.write(u64::from(value) * 512, &[value; 512]).unwrap();
    }
    assert_eq!(plain.read(512, 1536).unwrap(), [[1; 512], [0; 512], [3; 512]].concat());
}

#[test]
fn a_torn_write_leaves_one_run_of_its_blocks() {
    let mut runs = std::collections::BTreeSet::new();
    for seed in 0..200 {
        let reported = seed % 2 == 0;
        let name = if reported { "torn-write" } else { "silent-torn-write" };
        let (mut rig, mut plain) = faulty_memory(&format!("{name}:1+seed:{seed}"));
        let bytes: Vec<u8> = (0..4 * 512u32).map(|n| (n / 7 + 1) as u8).collect();
        rig.poke(0, &bytes);
        // In pieces that do not end where blocks do.
        let segments = [segment(0, 700), segment(700, 100), segment(800, 1248)];
        assert_eq!(rig.perform(WRITE, 8192, &segments), if reported { Err(EIO) } else { Ok(()) });
        let found = plain.read(8192, 4 * 512).unwrap();
        let written: Vec<_> = (0..4).filter(|n| found[n * 512..][..512] == bytes[n * 512..][..512]).collect();
        let zeros = (0..4).filter(|n| found[n * 512..][..512] == [0; 512]).count();
        assert!(written.len() < 4 && written.len() + zeros == 4, "{written:?}");
        assert!(written.windows(2).all(|pair| pair[1] == pair[0] + 1), "{written:?}");
        assert!(plain.read(0, 8192).unwrap().iter().chain(&plain.read(10240, 8192).unwrap()).all(|&byte| byte == 0));
        runs.insert(written);
    }
    // None of them, and every run of one to three out of four.
    assert_eq!(runs.len(), 1 + 4 + 3 + 2);
}

#[test]
fn a_full_disk_takes_no_more_than_it_has_room_for() {
    let (mut rig, _) = faulty_memory("full:2K");
    rig.write(0, &[1; 1024]).unwrap();
    assert_eq!(rig.write(0, &[1; 2048]), Err(ENOSPC));
    let zeroes = |may_unmap| Operation::WriteZeroes { length_bytes: 1024, may_unmap };
    rig.perform(zeroes(true), 0, &[]).unwrap();
    rig.perform(zeroes(false), 0, &[]).unwrap();
    assert_eq!((rig.write(0, &[1; 512]), rig.perform(zeroes(false), 0, &[])), (Err(ENOSPC), Err(ENOSPC)));
    assert_eq!(rig.read(0, 512).unwrap(), [0; 512]);
}

#[test]
fn latency_holds_completions_back() {
    let clock = Arc::new(ManualClock::default());
    let disk = Arc::new(AskedDisk::new(CAPACITY));
    let text = faults("latency:1ms+read-latency:2ms+flush-error:1");
    let mut rig = Rig::new(&FaultyDisk::with_clock(disk, &text, Arc::clone(&clock) as Arc<dyn Clock>), 8);
    rig.push(Operation::Read, 0, &[segment(0, 512)], 1).unwrap();
    rig.push(WRITE, 0, &[segment(0, 512)], 2).unwrap();
    rig.push(Operation::Flush, 0, &[], 3).unwrap();
    assert_eq!((rig.submit_and_reap(), rig.queue.in_flight()), (vec![], 3));
    clock.advance(1_000_000);
    assert_eq!(tokens(&rig.reap()), [2, 3]);
    clock.advance(1_999_999);
    assert_eq!(rig.reap(), []);
    clock.advance(1);
    assert_eq!((tokens(&rig.reap()), rig.queue.in_flight()), (vec![1], 0));
}

#[test]
fn latency_is_drawn_from_between_its_bounds() {
    let schedule = Schedule::new(&faults("latency:1ms-3ms"));
    let read = Request { operation: Operation::Read, offset_bytes: 0, segments: &[], token: 0 };
    let times: Vec<_> = (0..1000).map(|_| schedule.judge(&read).1).collect();
    assert!(times.iter().all(|ns| (1_000_000..=3_000_000).contains(ns)));
    let (low, high) = (times.iter().min().unwrap(), times.iter().max().unwrap());
    assert!(*low < 1_100_000 && *high > 2_900_000, "{low} {high}");
}

#[test]
fn the_completion_event_and_the_wait_both_tell_of_what_the_disk_below_does_not_know() {
    let silent: Arc<dyn Disk> = Arc::new(AskedDisk::new(CAPACITY));
    for disk in [silent, threads_disk(CAPACITY)] {
        for text in ["latency:1ms", "error:1", "error:0", "lost-write:1"] {
            let mut rig = Rig::new(&FaultyDisk::new(Arc::clone(&disk), &faults(text)), 4);
            for round in 0..4 {
                rig.push(WRITE, 0, &[segment(0, 512)], round).unwrap();
                rig.queue.submit().unwrap();
                while rig.queue.in_flight() > 0 {
                    match round % 2 {
                        0 => assert!(becomes_readable(&*rig.queue)),
                        _ => rig.queue.wait(&[], None).unwrap(),
                    }
                    rig.reap();
                }
            }
        }
    }
}

#[derive(Clone, Debug, TypeGenerator)]
enum Step {
    Read { block: u16, blocks: u8, token: u8 },
    Write { block: u16, blocks: u8, token: u8 },
    Zero { block: u16, blocks: u8, token: u8 },
    Flush { token: u8 },
    Submit,
    Reap,
    Advance { us: u16 },
}

const MENU: [&str; 12] = [
    "error:0.2",
    "read-error:3rd",
    "write-error:64K-128K",
    "flush-error:0.5",
    "zero-error:0.3",
    "latency:1ms",
    "write-latency:0s-5ms",
    "torn-write:0.3",
    "silent-torn-write:0.3",
    "lost-write:0.2",
    "full:1M",
    "error:0",
];

#[test]
fn fuzz_with_any_faults_every_request_completes_once_and_stays_on_the_disk() {
    let input = blockyard_fuzz::check!(2000).with_type::<(u64, Vec<u8>, Vec<Step>)>();
    input.for_each(|(seed, choices, steps)| {
        let chosen: Vec<_> = choices.iter().map(|&choice| MENU[usize::from(choice) % MENU.len()]).collect();
        let mut faults = if chosen.is_empty() { Faults::default() } else { faults(&chosen.join("+")) };
        faults.seed = *seed;
        let clock = Arc::new(ManualClock::default());
        let disk = AskedDisk::new(CAPACITY);
        let faulty = FaultyDisk::with_clock(Arc::new(disk.clone()), &faults, Arc::clone(&clock) as Arc<dyn Clock>);
        let mut rig = Rig::new(&faulty, 8);
        let (mut pushed, mut completions) = (Vec::new(), Vec::new());
        for step in steps {
            let (operation, block, blocks, token) = match *step {
                Step::Read { block, blocks, token } => (Operation::Read, block, blocks, token),
                Step::Write { block, blocks, token } => (WRITE, block, blocks, token),
                Step::Zero { block, blocks, token } => {
                    let length_bytes = u64::from(blocks) * 512;
                    (Operation::WriteZeroes { length_bytes, may_unmap: false }, block, 0, token)
                }
                Step::Flush { token } => (Operation::Flush, 0, 0, token),
                Step::Submit => {
                    rig.queue.submit().unwrap();
                    continue;
                }
                Step::Reap => {
                    completions.extend(rig.reap());
                    continue;
                }
                Step::Advance { us } => {
                    clock.advance(u64::from(us) * 1000);
                    continue;
                }
            };
            let segments = [segment(0, usize::from(blocks) * 512)];
            let segments = if matches!(operation, Operation::Read | WRITE) { &segments[..] } else { &[] };
            // Some reach past the end.
            let offset_bytes = u64::from(block) % 2100 * 512;
            match rig.push(operation, offset_bytes, segments, token.into()) {
                Ok(()) => pushed.push(u64::from(token)),
                Err(QueueError::Full) => assert_eq!(rig.queue.in_flight(), rig.queue.depth()),
            }
        }
        while rig.queue.in_flight() > 0 {
            clock.advance(1 << 40);
            completions.extend(rig.submit_and_reap());
        }
        pushed.sort_unstable();
        assert_eq!(tokens(&completions), pushed);
        // What is torn is a part of what was asked.
        let geometry = disk.geometry();
        for asked in disk.take_asked() {
            let segments_bytes: u64 = asked.segments.iter().map(|segment| u64::from(segment.length_bytes)).sum();
            assert!(segments_bytes <= 255 * 512 && asked.offset_bytes <= geometry.capacity_bytes + 2100 * 512);
        }
    });
}

#[test]
fn a_delayed_request_ends_a_wait_though_another_is_not_submitted() {
    let faults: Faults = "write-latency:5ms".parse().unwrap();
    let mut rig = Rig::new(&FaultyDisk::new(Arc::new(AskedDisk::new(1 << 20)), &faults), 4);
    rig.push(WRITE, 0, &[segment(0, 512)], 1).unwrap();
    assert_eq!(rig.submit_and_reap(), []);
    rig.push(Operation::Read, 0, &[segment(0, 512)], 2).unwrap();
    let start = std::time::Instant::now();
    rig.queue.wait(&[], Some(Duration::from_secs(300))).unwrap();
    assert!(start.elapsed() < Duration::from_secs(200));
    assert_eq!(tokens(&rig.reap()), [1]);
    assert_eq!(tokens(&rig.drain()), [2]);
}
