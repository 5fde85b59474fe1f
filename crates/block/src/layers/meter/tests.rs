use super::*;
use crate::layers::tests::manual_clock::ManualClock;
use crate::layers::tests::rig::{AskedDisk, Rig, WRITE, segment, threads_disk, tokens};
use crate::{Operation, RequestError};
use bolero::TypeGenerator;
use std::time::Duration;

const CAPACITY: u64 = 1 << 20;

fn metered() -> (MeteredDisk, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::default());
    let meter = Arc::new(Meter::with_clock(Arc::clone(&clock) as Arc<dyn Clock>));
    (MeteredDisk::with_meter(Arc::new(AskedDisk::new(CAPACITY)), meter), clock)
}

#[test]
fn each_operation_counts_by_itself() {
    let (disk, _) = metered();
    let mut rig = Rig::new(&disk, 8);
    rig.read(0, 4096).unwrap();
    rig.write(0, &[1; 512]).unwrap();
    rig.write(512, &[1; 512]).unwrap();
    assert_eq!(rig.write(CAPACITY, &[1; 512]), Err(RequestError::OutOfRange));
    rig.perform(Operation::Flush, 0, &[]).unwrap();
    rig.perform(Operation::Discard { length_bytes: 8192 }, 0, &[]).unwrap();
    rig.perform(Operation::WriteZeroes { length_bytes: 16384, may_unmap: false }, 0, &[]).unwrap();
    let snapshot = disk.meter().snapshot();
    let counts = OperationKind::ALL.map(|kind| {
        let operation = snapshot.operation(kind);
        (operation.requests(), operation.bytes, operation.errors)
    });
    assert_eq!(counts, [(1, 4096, 0), (3, 1024, 1), (1, 0, 0), (1, 8192, 0), (1, 16384, 0)]);
    assert_eq!(snapshot.requests(), 7);
}

#[test]
fn latency_runs_from_submit_to_reap() {
    let (disk, clock) = metered();
    let mut rig = Rig::new(&disk, 8);
    for ns in [1000, 2000, 3000, 1_000_000] {
        rig.push(Operation::Read, 0, &[segment(0, 512)], 0).unwrap();
        clock.advance(777);
        rig.queue.submit().unwrap();
        clock.advance(ns);
        assert_eq!(rig.reap().len(), 1);
    }
    let snapshot = disk.meter().snapshot();
    let latency = &snapshot.operation(OperationKind::Read).latency;
    assert_eq!(latency.max(), Some(Duration::from_millis(1)));
    assert_eq!(latency.mean(), Some(Duration::from_nanos(251_500)));
    assert_eq!(latency.sum(), Duration::from_nanos(1_006_000));
    let median = latency.quantile(0.5).unwrap().as_nanos();
    assert!((2000..2063).contains(&median), "{median}");
    assert_eq!(latency.quantile(1.0), latency.max());
    assert_eq!(latency.buckets().map(|(_, count)| count).collect::<Vec<_>>(), [1, 1, 1, 1]);
    let writes = &snapshot.operation(OperationKind::Write).latency;
    assert_eq!((writes.quantile(0.5), writes.max(), writes.mean()), (None, None, None));
}

#[test]
fn the_mean_depth_is_weighted_by_time() {
    let (disk, clock) = metered();
    let mut rig = Rig::new(&disk, 8);
    let (ms, segments) = (1_000_000, [segment(0, 512)]);
    for token in 0..4 {
        rig.push(Operation::Read, 0, &segments, token).unwrap();
    }
    // What was not submitted is not on its way.
    clock.advance(10 * ms);
    rig.queue.submit().unwrap();
    clock.advance(10 * ms);
    let during = disk.meter().snapshot();
    assert_eq!((during.depth, during.depth_max), (4, 4));
    assert!((during.depth_mean() - 2.0).abs() < 0.001, "{}", during.depth_mean());
    assert_eq!(rig.reap().len(), 4);
    clock.advance(20 * ms);
    let after = disk.meter().snapshot();
    assert_eq!((after.depth, after.depth_max), (0, 4));
    assert!((after.depth_mean() - 1.0).abs() < 0.001, "{}", after.depth_mean());
    assert!(after.since(&during).depth_mean() < 0.001);
}

#[test]
fn the_depth_is_that_of_all_queues_together() {
    let (disk, _) = metered();
    let mut rigs = [Rig::new(&disk, 4), Rig::new(&disk, 4)];
    for rig in &mut rigs {
        for token in 0..3 {
            rig.push(Operation::Flush, 0, &[], token).unwrap();
        }
        rig.queue.submit().unwrap();
    }
    assert_eq!(disk.meter().snapshot().depth, 6);
    let [one, mut other] = rigs;
    drop(one);
    assert_eq!(disk.meter().snapshot().depth, 3);
    assert_eq!(other.reap().len(), 3);
    let snapshot = disk.meter().snapshot();
    assert_eq!((snapshot.depth, snapshot.depth_max, snapshot.requests()), (0, 6, 3));
}

#[test]
fn a_new_queue_goes_on_counting_where_a_closed_one_stopped() {
    let (disk, _) = metered();
    for round in 1..=3 {
        Rig::new(&disk, 4).read(0, 512).unwrap();
        assert_eq!(disk.meter().snapshot().requests(), round);
    }
    assert_eq!(disk.meter().queues().len(), 1);
}

#[test]
fn a_difference_has_only_what_came_between() {
    let (disk, clock) = metered();
    let mut rig = Rig::new(&disk, 4);
    let mut request_of_ns = |ns| {
        rig.push(Operation::Read, 0, &[segment(0, 512)], 0).unwrap();
        rig.queue.submit().unwrap();
        clock.advance(ns);
        assert_eq!(rig.reap().len(), 1);
    };
    request_of_ns(1_000_000);
    let before = disk.meter().snapshot();
    request_of_ns(1000);
    request_of_ns(1000);
    let between = disk.meter().snapshot().since(&before);
    let reads = between.operation(OperationKind::Read);
    assert_eq!((reads.requests(), reads.bytes, between.taken_at_ns), (2, 1024, 2000));
    let (max, mean) = (reads.latency.max().unwrap().as_nanos(), reads.latency.mean().unwrap().as_nanos());
    assert!((1000..1032).contains(&max) && mean == 1000, "{max} {mean}");
}

#[test]
fn another_thread_reads_while_requests_run() {
    let disk = MeteredDisk::new(threads_disk(CAPACITY));
    let meter = Arc::clone(disk.meter());
    let reader = std::thread::spawn(move || {
        let mut last = 0;
        while last < 2000 {
            let snapshot = meter.snapshot();
            assert!(snapshot.requests() >= last && snapshot.depth <= 8 && snapshot.depth_max <= 8);
            last = snapshot.requests();
            std::thread::yield_now();
        }
    });
    let mut rig = Rig::new(&disk, 8);
    for _ in 0..250 {
        for token in 0..8 {
            rig.push(WRITE, token * 512, &[segment(0, 512)], token).unwrap();
        }
        assert_eq!(tokens(&rig.drain()), [0, 1, 2, 3, 4, 5, 6, 7]);
    }
    reader.join().unwrap();
    assert_eq!(disk.meter().snapshot().depth, 0);
}

#[derive(Clone, Debug, TypeGenerator)]
enum Step {
    Push { operation: u8, block: u8, blocks: u8, token: u8 },
    Submit,
    Reap,
    Advance(u32),
}

#[test]
fn fuzz_the_meter_counts_what_was_done() {
    blockyard_fuzz::check!(1000).with_type::<Vec<Step>>().for_each(|steps| {
        let (disk, clock) = metered();
        let mut rig = Rig::new(&disk, 8);
        let (mut pushed, mut completed) = (Vec::new(), Vec::new());
        let mut bytes = 0;
        for step in steps {
            match *step {
                Step::Push { operation, block, blocks, token } => {
                    let (offset, length) = (u64::from(block) * 8192, usize::from(blocks) * 512);
                    let operation = [Operation::Read, WRITE][usize::from(operation % 2)];
                    if rig.push(operation, offset, &[segment(0, length)], token.into()).is_ok() {
                        pushed.push(u64::from(token));
                        bytes += if offset + length as u64 <= CAPACITY { length as u64 } else { 0 };
                    }
                }
                Step::Submit => rig.queue.submit().unwrap(),
                Step::Reap => completed.extend(rig.reap()),
                Step::Advance(ns) => clock.advance(ns.into()),
            }
            let snapshot = disk.meter().snapshot();
            assert_eq!(snapshot.requests(), completed.len() as u64);
            assert!(snapshot.depth <= (pushed.len() - completed.len()) as u64 && snapshot.depth_max <= 8);
            assert!(snapshot.depth_mean() <= 8.0);
        }
        completed.extend(rig.drain());
        pushed.sort_unstable();
        assert_eq!(tokens(&completed), pushed);
        let snapshot = disk.meter().snapshot();
        let errors = completed.iter().filter(|completion| completion.result.is_err()).count() as u64;
        assert_eq!(snapshot.operations.iter().map(|operation| operation.errors).sum::<u64>(), errors);
        assert_eq!(snapshot.operations.iter().map(|operation| operation.bytes).sum::<u64>(), bytes);
    });
}
