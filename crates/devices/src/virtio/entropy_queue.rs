//! The entropy device's queue, run by the thread that owns it.

use super::descriptor_chain::DescriptorChain;
use super::{ActivationQueue, ChainFault, DeviceFailure, FailureCause, QueueNotifier, SplitRing};
use crate::queue_control::GoneWhenDropped;
use crate::segments::copy_to_segments;
use crate::{IoQueue, IoQueueFailure, Limit, QueueControl};
use blockyard_block::{EventFd, MemoryMap, Segment};
use rustix::rand::{GetRandomFlags, getrandom};
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};
use rustix::time::{timerfd_create, timerfd_settime};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};
use virtio_bindings::virtio_ring::{VIRTIO_RING_F_EVENT_IDX, VIRTIO_RING_F_INDIRECT_DESC};

/// Bytes that a request is given at most, however much it has room for.
const REQUEST_BYTES_MAX: usize = 256;
/// What a request costs besides its bytes, and each of its descriptors.
const REQUEST_COST_BYTES: u64 = 64;
const DESCRIPTOR_COST_BYTES: u64 = 16;
/// What a guest may have in a period, counted so. A request begun before that is used up is carried out.
const PERIOD_COST_BYTES: u64 = 64 << 10;
const PERIOD: Duration = Duration::from_millis(100);

/// A virtqueue that is filled with random bytes: some at a time, and then no more until a period is over, so that a
/// guest that always wants more has the thread for a small part of its time.
pub struct EntropyQueue {
    device: Arc<str>,
    index: u16,
    ring: SplitRing,
    memory: MemoryMap,
    indirect: bool,
    notifier: Arc<dyn QueueNotifier>,
    allowance: Allowance,
    /// Becomes readable when there is something to be had again.
    timer: OwnedFd,
    is_waiting: bool,
    segments: Vec<Segment>,
    /// Last, so that all the rest is gone when it says so.
    control: GoneWhenDropped,
}

impl EntropyQueue {
    pub(super) fn open(
        device: &Arc<str>,
        queue: &ActivationQueue,
        features: u64,
        size_max: u16,
        memory: &MemoryMap,
    ) -> Result<Self, FailureCause> {
        let has = |feature: u32| features & 1 << feature != 0;
        let ring = queue.config.ring(size_max, memory, has(VIRTIO_RING_F_EVENT_IDX))?;
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC);
        Ok(Self {
            device: device.clone(),
            index: queue.index,
            ring,
            memory: memory.clone(),
            indirect: has(VIRTIO_RING_F_INDIRECT_DESC),
            notifier: queue.notifier.clone(),
            allowance: Allowance::new(Instant::now()),
            timer: timer.map_err(|errno| FailureCause::Backend(errno.into()))?,
            is_waiting: false,
            segments: Vec::new(),
            control: GoneWhenDropped(QueueControl::new(queue.doorbell.clone())),
        })
    }

    /// How another thread takes the queue back.
    pub fn control(&self) -> &Arc<QueueControl> {
        &self.control.0
    }

    /// Answers what the driver made available, up to `requests` of it and what is allowed now; how many.
    fn answer(&mut self, requests: u16) -> Result<u16, FailureCause> {
        let available = self.ring.available()?.min(requests);
        let mut answered = 0;
        self.ring.disable_notification();
        while answered < available && self.allowance.is_some(Instant::now()) {
            let head = self.ring.take();
            let bytes = self.fill(head)?;
            self.ring.push_used(head, bytes);
            answered += 1;
        }
        if answered > 0 {
            self.ring.publish();
            if self.ring.driver_wants_notification() {
                self.notifier.notify_used();
            }
        }
        if answered < available {
            self.wait_for_allowance()?;
        }
        Ok(answered)
    }

    /// Fills a chain's buffers; how many bytes. What the driver does not let the device write is passed over.
    fn fill(&mut self, head: u16) -> Result<u32, FailureCause> {
        self.segments.clear();
        let mut wanted = 0;
        let mut cost_bytes = REQUEST_COST_BYTES;
        let mut chain = DescriptorChain::new(&self.memory, self.ring.descriptors(), head, self.indirect);
        while let Some(descriptor) = chain.next().map_err(FailureCause::Chain)? {
            cost_bytes += DESCRIPTOR_COST_BYTES;
            let length = (REQUEST_BYTES_MAX - wanted).min(descriptor.length_bytes as usize);
            if length == 0 || !descriptor.is_write_only() {
                continue;
            }
            let address = descriptor.address;
            if !self.memory.find(address, length as u32, &mut self.segments) {
                return Err(FailureCause::Chain(ChainFault::Outside { address }));
            }
            wanted += length;
        }
        let mut bytes = [0; REQUEST_BYTES_MAX];
        let filled = getrandom(&mut bytes[..wanted], GetRandomFlags::empty());
        let filled = filled.map_err(|errno| FailureCause::Backend(errno.into()))?;
        // They were found in memory, which does not go away.
        let _ = copy_to_segments(&self.memory, &self.segments, &bytes[..filled]);
        self.allowance.take(cost_bytes + filled as u64);
        Ok(filled as u32)
    }

    fn wait_for_allowance(&mut self) -> Result<(), FailureCause> {
        if !self.is_waiting {
            let nanoseconds = PERIOD.as_nanos() as i64;
            let once = Itimerspec {
                it_interval: Timespec { tv_sec: 0, tv_nsec: 0 },
                it_value: Timespec { tv_sec: 0, tv_nsec: nanoseconds },
            };
            timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once)
                .map_err(|errno| FailureCause::Backend(errno.into()))?;
            self.is_waiting = true;
        }
        Ok(())
    }

    /// No longer waits, if the time is over.
    fn look_at_timer(&mut self) {
        if self.is_waiting && rustix::io::read(&self.timer, &mut [0; 8]).is_ok() {
            self.is_waiting = false;
        }
    }
}

impl IoQueue for EntropyQueue {
    fn index(&self) -> u16 {
        self.index
    }

    fn is_stopping(&self) -> bool {
        self.control.0.is_stopping()
    }

    fn process_up_to(&mut self, limit: Limit) -> Result<u32, IoQueueFailure> {
        self.look_at_timer();
        if self.is_stopping() || self.is_waiting {
            return Ok(0);
        }
        let answered = self.answer(limit.requests).map_err(|cause| {
            self.notifier.needs_reset();
            DeviceFailure { device: self.device.clone(), queue: Some(self.index), cause }
        })?;
        Ok(answered.into())
    }

    fn arm(&mut self) -> bool {
        // Meanwhile the timer says when to go on, and no doorbell sooner.
        self.is_stopping() || !self.is_waiting && self.ring.enable_notification()
    }

    fn doorbell(&self) -> &Arc<EventFd> {
        self.control.0.doorbell()
    }

    fn completion_event(&self) -> Option<BorrowedFd<'_>> {
        Some(self.timer.as_fd())
    }

    fn count_doorbell(&self) {}
}

/// What may still be had in this period.
#[derive(Debug)]
struct Allowance {
    left_bytes: u64,
    since: Instant,
}

impl Allowance {
    fn new(now: Instant) -> Self {
        Self { left_bytes: PERIOD_COST_BYTES, since: now }
    }

    /// Whether there is anything left; a period that is over is followed by another.
    fn is_some(&mut self, now: Instant) -> bool {
        if now.saturating_duration_since(self.since) >= PERIOD {
            *self = Self::new(now);
        }
        self.left_bytes > 0
    }

    fn take(&mut self, bytes: u64) {
        self.left_bytes = self.left_bytes.saturating_sub(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_allowance_is_used_up_until_the_period_is_over() {
        let begin = Instant::now();
        let mut allowance = Allowance::new(begin);
        allowance.take(PERIOD_COST_BYTES - 1);
        assert!(allowance.is_some(begin));
        allowance.take(u64::MAX);
        assert!(!allowance.is_some(begin) && !allowance.is_some(begin + PERIOD - Duration::from_nanos(1)));
        assert!(allowance.is_some(begin + PERIOD));
        assert_eq!(allowance.left_bytes, PERIOD_COST_BYTES, "what nobody took is not saved up");
        assert!(allowance.is_some(begin + 9 * PERIOD));
        assert_eq!(allowance.left_bytes, PERIOD_COST_BYTES);
    }
}
