//! One virtqueue of virtio-blk, turned into block requests. How its driver rings and is reached is others' business.

use super::block_request::{Command, Defect, Frame, Rules, SERIAL_BYTES, Status, copy_to_segments, counters};
use super::descriptor_chain::DescriptorChain;
use super::{DeviceFailure, FailureCause, InFlightRecord, QueueNotifier, QueueStatistics, SplitRing};
use blockyard_block::limits::{IN_FLIGHT_BYTES_MAX, SHARED_BYTES_MIN};
use blockyard_block::{Completion, Disk, MemoryMap, Operation, Queue, Request, RequestError, Segment};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;
use virtio_bindings::virtio_ring::VIRTIO_RING_F_INDIRECT_DESC;

/// What a request without bytes, or with few, counts as: finding and answering it costs about as much as moving this.
pub const REQUEST_COST_BYTES_MIN: u64 = 4096;

/// What a [`BlockVirtqueue`] is made of.
pub struct BlockVirtqueueParts {
    /// The device's name, for messages.
    pub device: Arc<str>,
    /// The queue's index, for messages.
    pub index: u16,
    /// The device's side of the rings, checked ([`super::QueueConfig::ring`]).
    pub ring: SplitRing,
    /// The driver's memory.
    pub memory: MemoryMap,
    /// The disk.
    pub disk: Arc<dyn Disk>,
    /// Features negotiated, bit n for feature n.
    pub features: u64,
    /// What GET_ID answers, padded with zeros.
    pub serial: [u8; SERIAL_BYTES],
    /// How the queue reaches the driver.
    pub notifier: Arc<dyn QueueNotifier>,
    /// Where the queue counts.
    pub statistics: Arc<QueueStatistics>,
    /// Where the driver keeps what is in flight, for whoever comes after us.
    pub in_flight: Option<InFlightRecord>,
}

/// How much of a driver's work [`BlockVirtqueue::pass`] takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Requests at most.
    pub requests: u16,
    /// Bytes, counting at least [`REQUEST_COST_BYTES_MIN`] for each request: none is begun once they are used up, and
    /// the last one may exceed them.
    pub cost_bytes: u64,
    /// Whether one more is begun after a first that is [`SHARED_BYTES_MIN`] long, whatever is used up: the disk may do
    /// both at a time. Not after one of [`IN_FLIGHT_BYTES_MAX`], which is more than enough to wait for.
    pub pairs: bool,
}

/// What [`BlockVirtqueue::pass`] has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pass {
    /// Requests taken from the driver.
    pub taken: u16,
    /// What they cost, counted as in [`Limit::cost_bytes`].
    pub cost_bytes: u64,
    /// Requests of the disk's that were answered.
    pub completed: usize,
    /// The limit, and nothing else, kept it from taking more.
    pub limited: bool,
}

impl Pass {
    /// Whether anything was done: if so, there may be more.
    pub fn progress(&self) -> bool {
        self.taken > 0 || self.completed > 0
    }
}

/// A virtqueue of virtio-blk on a queue of a disk. Owned by one thread, which calls [`BlockVirtqueue::pass`] and
/// [`BlockVirtqueue::notify`] as it sees fit, and [`BlockVirtqueue::arm`] before it waits.
///
/// Nothing is allocated per request. Dropping a queue completes what is in flight first.
pub struct BlockVirtqueue {
    device: Arc<str>,
    index: u16,
    ring: SplitRing,
    memory: MemoryMap,
    disk: Arc<dyn Disk>,
    disk_generation: u64,
    rules: Rules,
    serial: [u8; SERIAL_BYTES],
    backend: Box<dyn Queue>,
    in_flight_record: Option<InFlightRecord>,
    /// Chains that were taken by whoever was here before and not answered, the next one last.
    resubmitted: Vec<u16>,
    /// Requests the backend has, by token; `free` are the tokens it does not.
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// What times are since.
    opened: Instant,
    /// What the requests in flight cost.
    in_flight_cost_bytes: u64,
    recent_latency_ns: u64,
    segments: Vec<Segment>,
    completions: Vec<Completion>,
    notifier: Arc<dyn QueueNotifier>,
    statistics: Arc<QueueStatistics>,
    /// The driver rings the doorbell when it makes something available.
    armed: bool,
    /// Chains were put into the used ring since it was last published.
    unpublished: bool,
    /// Chains used since the driver was last notified, or found not to want it.
    unsignalled: u32,
    failed: bool,
}

#[derive(Clone, Copy)]
struct Slot {
    in_flight: bool,
    head: u16,
    operation: Operation,
    status_address: u64,
    length_bytes: u64,
    taken_ns: u64,
    /// What the used ring says when the request succeeds, and when it fails.
    used_bytes: [u32; 2],
}

impl Slot {
    const FREE: Self = Self {
        in_flight: false,
        head: 0,
        operation: Operation::Flush,
        status_address: 0,
        length_bytes: 0,
        taken_ns: 0,
        used_bytes: [0; 2],
    };

    fn cost_bytes(&self) -> u64 {
        self.length_bytes.max(REQUEST_COST_BYTES_MIN)
    }
}

impl BlockVirtqueue {
    /// Opens a queue of the disk for the virtqueue, as deep as the virtqueue is long, and tells the driver not to ring.
    /// With a record of requests in flight it goes on where that ends: what was taken and not answered is done again,
    /// first.
    ///
    /// # Errors
    /// [`FailureCause::Backend`] when the disk opens no queue, [`FailureCause::InFlightRecord`] when the record is
    /// none.
    pub fn open(parts: BlockVirtqueueParts) -> Result<Self, FailureCause> {
        let BlockVirtqueueParts {
            device,
            index,
            ring,
            memory,
            disk,
            features,
            serial,
            notifier,
            statistics,
            in_flight,
        } = parts;
        let disk_generation = disk.generation();
        let rules = Rules { geometry: disk.geometry(), features };
        let backend = disk.open_queue(&memory, ring.size().into()).map_err(FailureCause::Backend)?;
        let depth = backend.depth().clamp(1, ring.size().into());
        let mut queue = Self {
            device,
            index,
            segments: Vec::with_capacity(ring.size() as usize + 1),
            ring,
            memory,
            disk,
            disk_generation,
            rules,
            serial,
            completions: Vec::with_capacity(backend.depth()),
            backend,
            in_flight_record: in_flight,
            resubmitted: Vec::new(),
            slots: vec![Slot::FREE; depth],
            free: (0..depth as u32).rev().collect(),
            opened: Instant::now(),
            in_flight_cost_bytes: 0,
            recent_latency_ns: 0,
            notifier,
            statistics,
            armed: true,
            unpublished: false,
            unsignalled: 0,
            failed: false,
        };
        queue.recover()?;
        Ok(queue)
    }

    /// What the record of requests in flight says is to be done again.
    fn recover(&mut self) -> Result<(), FailureCause> {
        let Some(record) = &mut self.in_flight_record else { return Ok(()) };
        let recovered = record.recover(self.ring.used_index())?;
        if !recovered.used_before {
            return Ok(());
        }
        // What was taken is what was answered and what is in flight, whatever the driver believes.
        self.ring.resume(self.ring.used_index().wrapping_add(recovered.heads.len() as u16));
        self.resubmitted = recovered.heads;
        self.resubmitted.reverse();
        // Nobody may have told the driver of the last requests.
        self.unsignalled = 1;
        Ok(())
    }

    /// Which of its device's queues this is.
    pub fn index(&self) -> u16 {
        self.index
    }

    /// The descriptor that becomes readable when the disk may have completed something; `None` for a disk that
    /// completes everything within [`BlockVirtqueue::pass`].
    pub fn completion_event(&self) -> Option<BorrowedFd<'_>> {
        self.backend.completion_event()
    }

    /// The disk's queue, to wait on.
    pub(crate) fn backend(&mut self) -> &mut dyn Queue {
        &mut *self.backend
    }

    /// Where the queue counts.
    pub fn statistics(&self) -> &Arc<QueueStatistics> {
        &self.statistics
    }

    /// Requests that the disk has.
    pub fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// What they cost, counted as in [`Limit::cost_bytes`].
    pub fn in_flight_cost_bytes(&self) -> u64 {
        self.in_flight_cost_bytes
    }

    /// Requests answered that the driver was not notified of, nor found not to want to be.
    pub fn unsignalled(&self) -> u32 {
        self.unsignalled
    }

    /// How long requests took lately, on average.
    pub fn recent_latency_ns(&self) -> u64 {
        self.recent_latency_ns
    }

    /// Whether the driver has made something available that there is room for.
    pub fn has_more(&self) -> bool {
        !self.failed && !self.free.is_empty() && (self.ring.has_available() || !self.resubmitted.is_empty())
    }

    /// Where the device is in the available ring: the base that a vhost-user session reports.
    pub fn next_available(&self) -> u16 {
        self.ring.next_available()
    }

    /// Whether the driver's memory is what it was ([`MemoryMap::is_intact`]).
    pub fn memory_is_intact(&self) -> bool {
        self.memory.is_intact()
    }

    /// Does what can be done without waiting: hands the disk what the driver made available, up to `limit`, and shows
    /// the driver what the disk has done. Does not notify it.
    ///
    /// # Errors
    /// When the ring or the disk is broken. The driver has been told (DEVICE_NEEDS_RESET); the queue takes no more
    /// requests and is best dropped.
    pub fn pass(&mut self, limit: Limit) -> Result<Pass, DeviceFailure> {
        let mut pass = Pass::default();
        let taken = match limit.requests {
            0 => Ok(()),
            _ if self.failed => Ok(()),
            _ => self.take(limit, &mut pass),
        };
        // What was taken before a fault is done all the same; what could not be submitted before is tried again.
        if self.backend.in_flight() > 0 {
            let submitted = self.backend.submit();
            pass.completed = self.complete();
            self.publish();
            submitted.map_err(|error| self.fail(FailureCause::Backend(error)))?;
        } else {
            self.publish();
        }
        taken.map(|()| pass)
    }

    /// Notifies the driver of what was used, if it wants to know.
    pub fn notify(&mut self) {
        self.unsignalled = 0;
        if self.ring.driver_wants_notification() {
            self.statistics.interrupts.add(1);
            self.notifier.notify_used();
        }
    }

    /// Makes the driver ring the doorbell for what it makes available from now on, after [`BlockVirtqueue::pass`] found
    /// nothing more. Whether to go on instead of waiting, because something came in between.
    pub fn arm(&mut self) -> bool {
        if self.failed {
            return false;
        }
        self.armed = true;
        // What the disk could not take is not to wait for something to happen.
        if self.backend.in_flight() > 0 {
            let _ = self.backend.submit();
        }
        let more = self.ring.enable_notification() || !self.resubmitted.is_empty();
        // What waits for a free slot is taken when a completion comes, not before.
        more && !self.free.is_empty()
    }

    /// The driver has rung so often since the last time.
    pub fn count_doorbells(&self, rung: u64) {
        if rung > 0 {
            self.statistics.doorbells.add(rung);
        }
    }

    /// Waits until the disk has nothing of this queue any more, and completes it all. Takes no new requests.
    ///
    /// # Errors
    /// As [`BlockVirtqueue::pass`].
    pub fn drain(&mut self) -> Result<(), DeviceFailure> {
        self.completions.clear();
        let drained = self.backend.drain(&mut self.completions);
        self.answer_completions();
        self.publish();
        if self.unsignalled > 0 {
            self.notify();
        }
        drained.map_err(|error| self.fail(FailureCause::Backend(error)))
    }

    fn now_ns(&self) -> u64 {
        self.opened.elapsed().as_nanos() as u64
    }

    fn follow_disk(&mut self) {
        let generation = self.disk.generation();
        if generation != self.disk_generation {
            self.disk_generation = generation;
            self.rules.geometry = self.disk.geometry();
        }
    }

    /// Takes chains within `limit` while there are slots for them.
    fn take(&mut self, limit: Limit, pass: &mut Pass) -> Result<(), DeviceFailure> {
        if self.resubmitted.is_empty() && !self.ring.has_available() {
            return Ok(());
        }
        self.follow_disk();
        if std::mem::replace(&mut self.armed, false) {
            self.ring.disable_notification();
        } else {
            self.statistics.polls.add(1);
        }
        let now_ns = self.now_ns();
        let mut available = self.ring.available().map_err(|cause| self.fail(cause))?;
        while !self.free.is_empty() && (available > 0 || !self.resubmitted.is_empty()) {
            let long = (SHARED_BYTES_MIN..IN_FLIGHT_BYTES_MAX).contains(&pass.cost_bytes);
            let paired = limit.pairs && pass.taken == 1 && long;
            if pass.taken == limit.requests || pass.cost_bytes >= limit.cost_bytes && !paired {
                pass.limited = true;
                return Ok(());
            }
            let again = self.resubmitted.pop();
            let head = again.unwrap_or_else(|| {
                available -= 1;
                self.ring.take()
            });
            if let Some(record) = &mut self.in_flight_record {
                record.take(head);
            }
            let cost_bytes = self.start(head, now_ns)?;
            pass.taken += 1;
            pass.cost_bytes = pass.cost_bytes.saturating_add(cost_bytes);
        }
        Ok(())
    }

    /// Starts the request of the chain at `head`, or answers it at once. What it costs.
    fn start(&mut self, head: u16, now_ns: u64) -> Result<u64, DeviceFailure> {
        self.segments.clear();
        let indirect = self.rules.has(VIRTIO_RING_F_INDIRECT_DESC);
        let mut chain = DescriptorChain::new(&self.memory, self.ring.descriptors(), head, indirect);
        let segments_max = self.rules.geometry.segments_max;
        let frame = Frame::read(&mut chain, &self.memory, segments_max, &mut self.segments);
        if let Some(defect) = frame.defect {
            self.statistics
                .record_fault(&format_args!("virtio device {}, queue {}: {defect}", self.device, self.index));
        }
        let Some(status_address) = frame.status_address else {
            return match frame.defect {
                // No use of a head that is no descriptor: the used ring could not even name it.
                Some(Defect::Chain(fault)) => Err(self.fail(FailureCause::Chain(fault))),
                _ => {
                    self.statistics.errors.add(1);
                    self.push_used(head, 0);
                    Ok(REQUEST_COST_BYTES_MIN)
                }
            };
        };
        match frame.command(&self.rules, &self.memory, &self.segments) {
            Ok(Command::Disk { operation, offset_bytes, segments }) => {
                let [used_if_failed, used_if_done] = [0, frame.writable_bytes].map(|bytes| frame.used_bytes(bytes));
                let read = matches!(operation, Operation::Read);
                let slot = Slot {
                    in_flight: true,
                    head,
                    operation,
                    status_address,
                    length_bytes: 0,
                    taken_ns: now_ns,
                    used_bytes: [if read { used_if_done } else { used_if_failed }, used_if_failed],
                };
                return Ok(self.push(slot, offset_bytes, segments));
            }
            Ok(Command::Nothing) => self.answer(head, status_address, Status::Ok, frame.used_bytes(0)),
            Ok(Command::Identify { segments }) => {
                self.statistics.get_ids.add(1);
                let copied = copy_to_segments(&self.memory, &self.segments[segments], &self.serial);
                match copied {
                    Some(()) => self.answer(head, status_address, Status::Ok, frame.used_bytes(SERIAL_BYTES as u32)),
                    None => self.answer(head, status_address, Status::IoError, frame.used_bytes(0)),
                }
            }
            Err(status) => self.answer(head, status_address, status, frame.used_bytes(0)),
        }
        Ok(REQUEST_COST_BYTES_MIN)
    }

    /// Gives the disk the request of a slot that is not among the slots yet. What it costs.
    fn push(&mut self, mut slot: Slot, offset_bytes: u64, segments: std::ops::Range<usize>) -> u64 {
        let Some(token) = self.free.pop() else {
            self.answer(slot.head, slot.status_address, Status::IoError, slot.used_bytes[1]);
            return REQUEST_COST_BYTES_MIN;
        };
        let segments = &self.segments[segments];
        let request = Request { operation: slot.operation, offset_bytes, segments, token: token.into() };
        slot.length_bytes = request.length_bytes();
        if self.backend.push(&request).is_err() {
            // Not before `depth` requests are in flight, and there are no more slots than that.
            self.free.push(token);
            self.answer(slot.head, slot.status_address, Status::IoError, slot.used_bytes[1]);
            return REQUEST_COST_BYTES_MIN;
        }
        counters(&self.statistics, slot.operation).0.add(1);
        self.slots[token as usize] = slot;
        self.in_flight_cost_bytes += slot.cost_bytes();
        slot.cost_bytes()
    }

    /// Completes what the disk has done. How much.
    fn complete(&mut self) -> usize {
        self.completions.clear();
        self.backend.reap(&mut self.completions);
        self.answer_completions();
        self.completions.len()
    }

    fn answer_completions(&mut self) {
        if self.completions.is_empty() {
            return;
        }
        let now_ns = self.now_ns();
        for index in 0..self.completions.len() {
            let Completion { token, result } = self.completions[index];
            // A token that is not in flight cannot come from a disk that keeps its word; it must not free a slot twice.
            let Some(slot) = self.slots.get_mut(token as usize).filter(|slot| slot.in_flight) else { continue };
            slot.in_flight = false;
            let slot = *slot;
            self.free.push(token as u32);
            self.in_flight_cost_bytes -= slot.cost_bytes();
            let [used_if_done, used_if_failed] = slot.used_bytes;
            let (status, used_bytes) = match result {
                Ok(()) => (Status::Ok, used_if_done),
                Err(RequestError::Unsupported) => (Status::Unsupported, used_if_failed),
                Err(_) => (Status::IoError, used_if_failed),
            };
            if let (Status::Ok, Some(bytes)) = (status, counters(&self.statistics, slot.operation).1) {
                bytes.add(slot.length_bytes);
            }
            let latency_ns = now_ns.saturating_sub(slot.taken_ns);
            self.statistics.latencies(slot.operation.into()).record(latency_ns);
            self.recent_latency_ns += latency_ns / 8;
            self.recent_latency_ns -= self.recent_latency_ns / 8;
            self.answer(slot.head, slot.status_address, status, used_bytes);
        }
    }

    fn answer(&mut self, head: u16, status_address: u64, status: Status, used_bytes: u32) {
        if status != Status::Ok {
            self.statistics.errors.add(1);
        }
        // It was found in memory when the chain was read, and memory does not go away.
        self.memory.write_byte(status_address, status as u8);
        self.push_used(head, used_bytes);
    }

    fn push_used(&mut self, head: u16, used_bytes: u32) {
        self.unpublished = true;
        self.unsignalled = self.unsignalled.saturating_add(1);
        self.ring.push_used(head, used_bytes);
        if let Some(record) = &mut self.in_flight_record {
            record.answer(head);
        }
    }

    /// Shows the driver what was used.
    fn publish(&mut self) {
        self.statistics.in_flight.store(self.in_flight() as u64, Ordering::Relaxed);
        if std::mem::replace(&mut self.unpublished, false) {
            self.ring.publish();
            if let Some(record) = &mut self.in_flight_record {
                record.publish(self.ring.used_index());
            }
        }
    }

    /// Stops the queue and tells the driver.
    fn fail(&mut self, cause: FailureCause) -> DeviceFailure {
        let failure = DeviceFailure { device: self.device.clone(), queue: Some(self.index), cause };
        if !std::mem::replace(&mut self.failed, true) {
            self.statistics.record_fault(&failure);
            self.notifier.needs_reset();
        }
        failure
    }
}

impl Drop for BlockVirtqueue {
    fn drop(&mut self) {
        // A backend that cannot even drain lets go of the memory when it is dropped itself; there is nobody to tell.
        let _ = self.drain();
    }
}
