use super::*;
use crate::RequestError;
use crate::layers::tests::manual_clock::ManualClock;
use crate::layers::tests::rig::{AskedDisk, Rig, WRITE, becomes_readable, segment, threads_disk, tokens};
use bolero::TypeGenerator;
use std::ops::Range;

const CAPACITY: u64 = 1 << 30;
const MS: u64 = 1_000_000;

struct Throttled {
    rig: Rig,
    clock: Arc<ManualClock>,
    disk: AskedDisk,
    throttled: ThrottledDisk,
}

fn limits(iops: u64, bytes_per_second: u64, burst_ms: u64) -> ThrottleLimits {
    ThrottleLimits {
        iops: NonZeroU64::new(iops),
        bytes_per_second: NonZeroU64::new(bytes_per_second),
        burst: Duration::from_millis(burst_ms),
    }
}

fn throttled(limits: &ThrottleLimits) -> Throttled {
    let disk = AskedDisk::new(CAPACITY);
    let clock = Arc::new(ManualClock::default());
    let throttled = ThrottledDisk::with_clock(Arc::new(disk.clone()), limits, Arc::clone(&clock) as Arc<dyn Clock>);
    Throttled { rig: Rig::new(&throttled, 64), clock, disk, throttled }
}

impl Throttled {
    fn push_reads(&mut self, tokens: Range<u64>, bytes: usize) {
        for token in tokens {
            self.rig.push(Operation::Read, 0, &[segment(0, bytes)], token).unwrap();
        }
    }

    /// Tokens of what completes once the clock has moved on.
    fn after(&mut self, ms: u64) -> Vec<u64> {
        self.clock.advance(ms * MS);
        tokens(&self.rig.reap())
    }
}

#[test]
fn requests_go_at_the_rate_of_the_iops_limit() {
    let mut throttled = throttled(&limits(1000, 0, 0));
    throttled.push_reads(0..5, 512);
    assert_eq!(tokens(&throttled.rig.submit_and_reap()), [0]);
    assert_eq!(throttled.rig.queue.in_flight(), 4);
    assert_eq!(throttled.after(0), [0; 0]);
    assert_eq!(throttled.after(1), [1]);
    assert_eq!(throttled.after(2), [2, 3]);
    assert_eq!(throttled.after(1), [4]);
    assert_eq!(throttled.rig.queue.in_flight(), 0);
}

#[test]
fn bytes_go_at_the_rate_of_the_byte_limit_whatever_the_requests_length() {
    let mut throttled = throttled(&limits(0, 4096 * 1000, 0));
    throttled.push_reads(0..1, 40960);
    throttled.push_reads(1..3, 4096);
    assert_eq!(tokens(&throttled.rig.submit_and_reap()), [0]);
    assert_eq!(throttled.after(9), [0; 0]);
    assert_eq!(throttled.after(1), [1]);
    assert_eq!(throttled.after(1), [2]);
}

#[test]
fn the_tighter_limit_holds() {
    let mut throttled = throttled(&limits(1000, 512 * 100, 0));
    throttled.push_reads(0..2, 512);
    assert_eq!(tokens(&throttled.rig.submit_and_reap()), [0]);
    assert_eq!(throttled.after(9), [0; 0]);
    assert_eq!(throttled.after(1), [1]);
}

#[test]
fn an_idle_disk_saves_up_a_burst() {
    let mut throttled = throttled(&limits(1000, 0, 10));
    throttled.push_reads(0..20, 512);
    assert_eq!(throttled.rig.submit_and_reap().len(), 11);
    assert_eq!(throttled.after(9).len(), 9);
    throttled.clock.advance(1_000_000 * MS);
    throttled.push_reads(0..20, 512);
    assert_eq!(throttled.rig.submit_and_reap().len(), 11);
}

#[test]
fn flush_and_discard_move_no_bytes() {
    let mut throttled = throttled(&limits(0, 512, 0));
    throttled.push_reads(0..1, 512);
    throttled.rig.push(Operation::Flush, 0, &[], 1).unwrap();
    throttled.rig.push(Operation::Discard { length_bytes: CAPACITY }, 0, &[], 2).unwrap();
    throttled.rig.push(Operation::WriteZeroes { length_bytes: CAPACITY, may_unmap: true }, 0, &[], 3).unwrap();
    assert_eq!(tokens(&throttled.rig.submit_and_reap()), [0, 1, 2, 3]);
}

#[test]
fn zeroing_moves_bytes_where_the_disk_has_to_write_them() {
    let disk = AskedDisk::new(CAPACITY);
    disk.geometry.lock().unwrap().write_zeroes = false;
    let clock = Arc::new(ManualClock::default());
    let throttled = ThrottledDisk::with_clock(Arc::new(disk), &limits(0, 512, 0), Arc::clone(&clock) as Arc<dyn Clock>);
    let mut rig = Rig::new(&throttled, 8);
    for token in 0..2 {
        rig.push(Operation::WriteZeroes { length_bytes: 1024, may_unmap: true }, 0, &[], token).unwrap();
    }
    assert_eq!(tokens(&rig.submit_and_reap()), [0]);
    clock.advance(1999 * MS);
    assert_eq!(rig.reap(), []);
    clock.advance(MS);
    assert_eq!(tokens(&rig.reap()), [1]);
}

#[test]
fn what_the_disk_refuses_costs_nothing() {
    let mut throttled = throttled(&limits(1, 1, 0));
    let huge = Operation::WriteZeroes { length_bytes: u64::MAX, may_unmap: false };
    for token in 0..3 {
        throttled.rig.push(huge, 4096, &[], token).unwrap();
    }
    throttled.push_reads(3..4, 512);
    let completions = throttled.rig.submit_and_reap();
    assert_eq!(tokens(&completions), [0, 1, 2, 3]);
    assert_eq!(completions.iter().filter(|done| done.result == Err(RequestError::OutOfRange)).count(), 3);
}

#[test]
fn what_comes_later_does_not_overtake() {
    let mut throttled = throttled(&limits(0, 512, 0));
    throttled.push_reads(0..2, 512);
    // It would be free to go, but for the order.
    throttled.rig.push(Operation::Flush, 0, &[], 2).unwrap();
    assert_eq!(tokens(&throttled.rig.submit_and_reap()), [0]);
    assert_eq!(throttled.after(1000), [1, 2]);
    let operations: Vec<_> = throttled.disk.take_asked().iter().map(|asked| asked.operation).collect();
    assert_eq!(operations, [Operation::Read, Operation::Read, Operation::Flush]);
}

#[test]
fn all_queues_share_the_limits() {
    let mut throttled = throttled(&limits(1000, 0, 0));
    let mut other = Rig::new(&throttled.throttled, 64);
    for token in 0..3 {
        throttled.push_reads(token..token + 1, 512);
        other.push(Operation::Read, 0, &[segment(0, 512)], token).unwrap();
    }
    assert_eq!(tokens(&throttled.rig.submit_and_reap()), [0]);
    assert_eq!(other.submit_and_reap(), []);
    throttled.clock.advance(MS);
    assert_eq!((throttled.after(0), tokens(&other.reap())), (vec![], vec![0]));
    throttled.clock.advance(4 * MS);
    assert_eq!((throttled.after(0), tokens(&other.reap())), (vec![1, 2], vec![1, 2]));
}

#[test]
fn huge_requests_of_one_queue_do_not_hold_up_another() {
    let mut throttled = throttled(&limits(0, 1 << 20, 0));
    let mut other = Rig::new(&throttled.throttled, 64);
    throttled.push_reads(0..64, 1 << 20);
    assert_eq!(tokens(&throttled.rig.submit_and_reap()), [0]);
    for token in 0..2 {
        other.push(Operation::Read, 0, &[segment(0, 4096)], token).unwrap();
    }
    assert_eq!(other.submit_and_reap(), []);
    // Its first waits for the two that were begun or reserved before, its second for one more.
    assert_eq!((throttled.after(1000), other.reap()), (vec![1], vec![]));
    assert_eq!((throttled.after(1000), tokens(&other.reap())), (vec![], vec![0]));
    throttled.clock.advance(4 * MS);
    assert_eq!((throttled.after(0), other.reap()), (vec![2], vec![]));
    assert_eq!((throttled.after(1000), tokens(&other.reap())), (vec![], vec![1]));
}

/// A disk that is broken: its queues take nothing.
struct BrokenDisk(Arc<dyn Disk>);

struct BrokenQueue(Box<dyn Queue>);

impl layer::DiskLayer for BrokenDisk {
    fn below(&self) -> &dyn Disk {
        &*self.0
    }

    fn open_queue(&self, memory: &MemoryMap, depth: usize) -> io::Result<Box<dyn Queue>> {
        Ok(Box::new(BrokenQueue(self.0.open_queue(memory, depth)?)))
    }
}

impl layer::QueueLayer for BrokenQueue {
    fn below(&self) -> &dyn Queue {
        &*self.0
    }

    fn below_mut(&mut self) -> &mut dyn Queue {
        &mut *self.0
    }

    fn push(&mut self, _: &Request<'_>) -> Result<(), QueueError> {
        Err(QueueError::Full)
    }
}

#[test]
fn dropping_what_a_broken_queue_does_not_take_ends() {
    let mut rig =
        Rig::new(&ThrottledDisk::new(Arc::new(BrokenDisk(Arc::new(AskedDisk::new(CAPACITY)))), &limits(1, 0, 0)), 4);
    for token in 0..3 {
        rig.push(WRITE, 0, &[segment(0, 512)], token).unwrap();
    }
    drop(rig);
}

#[test]
fn a_held_request_keeps_its_segments_and_its_data() {
    let disk = crate::MemoryDisk::new(1 << 20, 512).unwrap();
    let disk = ThrottledDisk::new(Arc::new(disk), &limits(200, 0, 0));
    let mut rig = Rig::new(&disk, 1);
    for value in 1..4 {
        rig.write(u64::from(value) * 512, &[value; 512]).unwrap();
    }
    for value in 1..4 {
        assert_eq!(rig.read(u64::from(value) * 512, 512).unwrap(), [value; 512]);
    }
}

#[test]
fn the_completion_event_and_the_wait_both_tell_when_a_held_request_may_go() {
    let silent: Arc<dyn Disk> = Arc::new(AskedDisk::new(CAPACITY));
    for disk in [silent, threads_disk(CAPACITY)] {
        let mut rig = Rig::new(&ThrottledDisk::new(disk, &limits(1000, 0, 0)), 4);
        let mut done = 0;
        for token in 0..4 {
            // With the synchronous disk of depth one below, they come in fours all the same.
            rig.push(Operation::Read, 0, &[segment(0, 512)], token).unwrap();
        }
        rig.queue.submit().unwrap();
        for round in 0.. {
            match round % 2 {
                0 => assert!(becomes_readable(&*rig.queue)),
                _ => rig.queue.wait(&[], None).unwrap(),
            }
            done += rig.reap().len();
            if rig.queue.in_flight() == 0 {
                break;
            }
        }
        assert_eq!(done, 4);
    }
}

#[test]
fn a_wait_ends_early_for_the_callers_own_reasons() {
    // The second may go in some minutes.
    let mut rig = Rig::new(&ThrottledDisk::new(Arc::new(AskedDisk::new(CAPACITY)), &limits(0, 1, 0)), 4);
    for token in 0..2 {
        rig.push(Operation::Read, 0, &[segment(0, 512)], token).unwrap();
    }
    assert_eq!(tokens(&rig.submit_and_reap()), [0]);
    let start = std::time::Instant::now();
    rig.queue.wait(&[], Some(Duration::from_millis(1))).unwrap();
    let event = rustix::event::eventfd(1, rustix::event::EventfdFlags::empty()).unwrap();
    rig.queue.wait(&[event.as_fd()], None).unwrap();
    assert!(start.elapsed() < Duration::from_secs(300));
    assert_eq!(rig.reap(), []);
}

#[test]
fn a_queue_that_is_dropped_does_what_it_held_back_at_once() {
    let mut throttled = throttled(&limits(1, 0, 0));
    for token in 0..64 {
        throttled.rig.push(WRITE, token * 512, &[segment(0, 512)], token).unwrap();
    }
    assert!(throttled.rig.push(WRITE, 0, &[segment(0, 512)], 64).is_err());
    throttled.rig.queue.submit().unwrap();
    let Throttled { rig, disk, .. } = throttled;
    drop(rig);
    assert_eq!(disk.take_asked().len(), 64);
}

#[derive(Clone, Debug, TypeGenerator)]
enum Step {
    Push { queue: bool, blocks: u8 },
    Flush { queue: bool },
    Submit { queue: bool },
    Reap { queue: bool },
    Advance { us: u16 },
}

/// Whatever the order of events: every request completes once, and none goes before the limits allow it.
#[test]
fn fuzz_every_request_goes_once_and_not_too_early() {
    let input = blockyard_fuzz::check!(2500).with_type::<(u16, u16, u8, Vec<Step>)>();
    input.for_each(|(iops, kilobytes, burst_ms, steps)| {
        let limits = limits(u64::from(*iops) + 1, u64::from(*kilobytes) * 1024 + 512, (*burst_ms).into());
        let mut throttled = throttled(&limits);
        let other = Rig::new(&throttled.throttled, 64);
        let rig = std::mem::replace(&mut throttled.rig, Rig::new(&throttled.throttled, 1));
        let mut rigs = [rig, other];
        let mut went = Vec::new();
        let (mut pushed, mut completed) = (0, 0);
        for step in steps {
            match *step {
                Step::Push { queue, blocks } => {
                    let segments = [segment(0, usize::from(blocks) * 512)];
                    pushed += u64::from(rigs[usize::from(queue)].push(WRITE, 0, &segments, 0).is_ok());
                }
                Step::Flush { queue } => {
                    pushed += u64::from(rigs[usize::from(queue)].push(Operation::Flush, 0, &[], 0).is_ok());
                }
                Step::Submit { queue } => rigs[usize::from(queue)].queue.submit().unwrap(),
                Step::Reap { queue } => completed += rigs[usize::from(queue)].reap().len(),
                Step::Advance { us } => throttled.clock.advance(u64::from(us) * 1000),
            }
            let now_ns = throttled.clock.now_ns();
            went.extend(throttled.disk.take_asked().iter().map(|asked| (now_ns, asked.length_bytes)));
        }
        check_rate(&went, &limits);
        while rigs.iter().any(|rig| rig.queue.in_flight() > 0) {
            throttled.clock.advance(1_000_000 * MS);
            completed += rigs.iter_mut().map(|rig| rig.submit_and_reap().len()).sum::<usize>();
        }
        assert_eq!(completed as u64, pushed);
    });
}

/// At any time no more went than the burst and the rate allow, but for one, which may be as large as it likes.
fn check_rate(went: &[(u64, u64)], limits: &ThrottleLimits) {
    let (mut requests, mut bytes, mut largest) = (0, 0, 0);
    for &(now_ns, length_bytes) in went {
        let length_bytes = u128::from(length_bytes);
        (requests, bytes, largest) = (requests + 1, bytes + length_bytes, length_bytes.max(largest));
        let allowed =
            |rate: Option<NonZeroU64>| (u128::from(now_ns) + limits.burst.as_nanos()) * u128::from(rate.unwrap().get());
        assert!((requests - 1) * 1_000_000_000 <= allowed(limits.iops), "{requests} requests after {now_ns} ns");
        let but_one = (bytes - largest) * 1_000_000_000;
        assert!(but_one <= allowed(limits.bytes_per_second), "{bytes} bytes after {now_ns} ns");
    }
}
