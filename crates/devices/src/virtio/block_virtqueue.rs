//! One virtqueue of virtio-blk, turned into block requests. How its driver rings and is reached is others' business.

use super::block_request::{Command, Defect, Frame, Rules, SERIAL_BYTES, Status};
use super::descriptor_chain::DescriptorChain;
use super::{DeviceFailure, FailureCause, InFlightRecord, QueueNotifier, SplitRing};
use crate::requests::DiskRequests;
use crate::segments::copy_to_segments;
use crate::{Limit, QueueStatistics, REQUEST_COST_BYTES_MIN};
use blockyard_block::limits::SHARED_BYTES_MIN;
use blockyard_block::{Disk, MemoryMap, Operation, Request, RequestError, Segment, explain};
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::time::Instant;
use virtio_bindings::virtio_ring::VIRTIO_RING_F_INDIRECT_DESC;

/// What each descriptor of a request counts as at least: so does following it, and moving what little it names.
const DESCRIPTOR_COST_BYTES: u64 = 256;

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

/// What [`BlockVirtqueue::pass`] has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pass {
    /// Requests taken from the driver.
    pub taken: u16,
    /// These, and further pieces of long ones.
    pub begun: u16,
    /// What those cost, counted as in [`Limit::cost_bytes`].
    pub cost_bytes: u64,
    /// Requests of the disk's that were answered.
    pub completed: usize,
    /// The limit, and nothing else, kept it from taking more.
    pub limited: bool,
}

impl Pass {
    /// Whether anything was done: if so, there may be more.
    pub fn progress(&self) -> bool {
        self.begun > 0 || self.completed > 0
    }
}

/// A virtqueue of virtio-blk on a queue of a disk. Owned by one thread, which calls [`BlockVirtqueue::pass`] and
/// [`BlockVirtqueue::notify`] as it sees fit, and [`BlockVirtqueue::arm`] before it waits.
///
/// A read or write that is longer than [`PIECE_BYTES_MAX`](blockyard_block::limits::PIECE_BYTES_MAX) is given to the
/// disk piece by piece, so that nobody waits for all of it: not who shares the thread or the disk, nor who stops the
/// queue.
///
/// Nothing is allocated per request. Dropping a queue completes what is in flight first; a long request of which the
/// disk has not been given all is not answered then.
pub struct BlockVirtqueue {
    device: Arc<str>,
    index: u16,
    ring: SplitRing,
    memory: MemoryMap,
    rules: Rules,
    serial: [u8; SERIAL_BYTES],
    disk: DiskRequests<PendingRequest>,
    in_flight_record: Option<InFlightRecord>,
    /// Chains that were taken by whoever was here before and not answered, the next one last.
    resubmitted: Vec<u16>,
    /// How many requests it still takes, once it is to take no more than those.
    left: Option<u16>,
    /// What times are since.
    opened: Instant,
    recent_latency_ns: u64,
    segments: Vec<Segment>,
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

/// What a driver asked for, as far as it takes to answer it.
#[derive(Clone, Copy)]
struct PendingRequest {
    head: u16,
    operation: Operation,
    status_address: u64,
    length_bytes: u64,
    taken_ns: u64,
    /// What the used ring says when the request succeeds, and when it fails.
    used_bytes: [u32; 2],
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
        let geometry = disk.geometry();
        let disk = DiskRequests::open(disk, &memory, ring.size().into()).map_err(FailureCause::Backend)?;
        let mut queue = Self {
            device,
            index,
            segments: Vec::with_capacity(ring.size() as usize + 1),
            ring,
            memory,
            rules: Rules { geometry, features },
            serial,
            disk,
            in_flight_record: in_flight,
            resubmitted: Vec::new(),
            left: None,
            opened: Instant::now(),
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
        self.disk.queue().completion_event()
    }

    /// Where the queue counts.
    pub fn statistics(&self) -> &Arc<QueueStatistics> {
        &self.statistics
    }

    /// Requests, and pieces of long ones, that the disk has.
    pub fn in_flight(&self) -> usize {
        self.disk.in_flight()
    }

    /// What they cost, counted as in [`Limit::cost_bytes`].
    pub fn in_flight_cost_bytes(&self) -> u64 {
        self.disk.in_flight_cost_bytes()
    }

    /// Requests answered that the driver was not notified of, nor found not to want to be.
    pub fn unsignalled(&self) -> u32 {
        self.unsignalled
    }

    /// How long requests took lately, on average.
    pub fn recent_latency_ns(&self) -> u64 {
        self.recent_latency_ns
    }

    /// Whether there is something to begin that there is room for: what the driver has made available, or the rest of
    /// a long request.
    pub fn has_more(&self) -> bool {
        !self.failed && self.disk.has_room() && self.has_work()
    }

    /// Takes no more requests; of the last one, the rest is still given to the disk.
    pub fn close(&mut self) {
        self.left = Some(0);
    }

    /// Takes what the driver has made available until now, and no more requests.
    pub fn close_behind_available(&mut self) {
        // Whoever has this done has told the driver before.
        fence(Ordering::SeqCst);
        let resubmitted = self.resubmitted.len() as u16;
        // A ring that lies is refused where it is looked at next.
        self.left = Some(self.ring.available().map_or(1, |available| available.saturating_add(resubmitted)));
    }

    /// Gives the disk no more of a long request that it has a part of, and does not answer it: where there is a record
    /// of what is in flight, whoever comes next begins it again.
    pub fn abandon_rest(&mut self) {
        self.disk.abandon_rest();
    }

    /// Whether every request that was taken, or is still to be, is answered or abandoned, and the disk has nothing of
    /// this queue.
    pub fn is_drained(&self) -> bool {
        self.in_flight() == 0 && !self.disk.has_rest() && (self.failed || self.left.is_none_or(|left| left == 0))
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
        if self.in_flight() > 0 {
            let submitted = self.disk.submit();
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
        if self.in_flight() > 0 {
            // What the disk could not take is not to wait for something to happen.
            let _ = self.disk.submit();
        } else {
            // Its event may be readable for nothing, and nobody would sleep.
            self.disk.reap();
        }
        let more = self.ring.enable_notification() && self.takes_more() || self.has_work();
        // What waits for a token is taken when a completion comes, not before.
        more && self.disk.has_room()
    }

    /// Whether there is something to begin.
    fn has_work(&self) -> bool {
        self.has_work_at_hand() || self.takes_more() && self.ring.has_available()
    }

    /// As [`BlockVirtqueue::has_work`], but for what the driver has made available.
    fn has_work_at_hand(&self) -> bool {
        self.disk.has_rest() || self.takes_more() && !self.resubmitted.is_empty()
    }

    fn takes_more(&self) -> bool {
        self.left != Some(0)
    }

    /// The driver has rung.
    pub fn count_doorbell(&self) {
        self.statistics.doorbells.add(1);
    }

    /// Waits until the disk has nothing of this queue any more, and completes it all. Takes no new requests.
    ///
    /// # Errors
    /// As [`BlockVirtqueue::pass`].
    pub fn drain(&mut self) -> Result<(), DeviceFailure> {
        let drained = self.disk.drain();
        self.answer_finished();
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
        if let Some(geometry) = self.disk.changed_geometry() {
            self.rules.geometry = geometry;
        }
    }

    /// Goes on with a long request, and takes chains, within `limit` while there are tokens for them.
    fn take(&mut self, limit: Limit, pass: &mut Pass) -> Result<(), DeviceFailure> {
        if !self.has_work() {
            return Ok(());
        }
        self.follow_disk();
        if std::mem::replace(&mut self.armed, false) {
            self.ring.disable_notification();
        } else {
            self.statistics.polls.add(1);
        }
        let now_ns = self.now_ns();
        let mut available = match self.left {
            Some(0) => 0,
            _ => self.ring.available().map_err(|cause| self.fail(cause))?,
        };
        while self.disk.has_room() && (available > 0 && self.takes_more() || self.has_work_at_hand()) {
            let paired = limit.pairs && pass.begun == 1 && pass.cost_bytes >= SHARED_BYTES_MIN;
            if pass.begun == limit.requests || pass.cost_bytes >= limit.cost_bytes && !paired {
                pass.limited = true;
                return Ok(());
            }
            let cost_bytes = if !self.disk.has_rest() {
                let again = self.resubmitted.pop();
                let head = again.unwrap_or_else(|| {
                    available -= 1;
                    self.ring.take()
                });
                if let Some(record) = &mut self.in_flight_record {
                    record.take(head);
                }
                self.left.iter_mut().for_each(|left| *left -= 1);
                pass.taken += 1;
                self.start(head, now_ns)?
            } else {
                self.disk.go_on()
            };
            pass.begun += 1;
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
        let cost_bytes_min = REQUEST_COST_BYTES_MIN.max(DESCRIPTOR_COST_BYTES * u64::from(frame.descriptors));
        let Some(status_address) = frame.status_address else {
            return match frame.defect {
                // No use of a head that is no descriptor: the used ring could not even name it.
                Some(Defect::Chain(fault)) => Err(self.fail(FailureCause::Chain(fault))),
                _ => {
                    self.statistics.errors.add(1);
                    self.push_used(head, 0);
                    Ok(cost_bytes_min)
                }
            };
        };
        match frame.command(&self.rules, &self.memory, &self.segments) {
            Ok(Command::Disk { operation, offset_bytes, segments }) => {
                let [used_if_failed, used_if_done] = [0, frame.writable_bytes].map(|bytes| frame.used_bytes(bytes));
                let read = matches!(operation, Operation::Read);
                let pending = PendingRequest {
                    head,
                    operation,
                    status_address,
                    length_bytes: 0,
                    taken_ns: now_ns,
                    used_bytes: [if read { used_if_done } else { used_if_failed }, used_if_failed],
                };
                return Ok(self.begin(pending, offset_bytes, segments).max(cost_bytes_min));
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
        Ok(cost_bytes_min)
    }

    /// Gives the disk a request, or as much of it as it is given at once. What that costs.
    fn begin(&mut self, mut pending: PendingRequest, offset_bytes: u64, segments: Range<usize>) -> u64 {
        let operation = pending.operation;
        let request = Request { operation, offset_bytes, segments: &self.segments[segments.clone()], token: 0 };
        pending.length_bytes = request.length_bytes();
        let places = offset_bytes..offset_bytes + pending.length_bytes;
        let Some(cost_bytes) = self.disk.begin(pending, operation, places, &mut self.segments, segments) else {
            self.answer(pending.head, pending.status_address, Status::IoError, pending.used_bytes[1]);
            return REQUEST_COST_BYTES_MIN;
        };
        self.statistics.of(operation).0.add(1);
        cost_bytes
    }

    /// Answers what the disk has done. How much that was.
    fn complete(&mut self) -> usize {
        let completed = self.disk.reap();
        if completed > 0 {
            self.answer_finished();
        }
        completed
    }

    fn answer_finished(&mut self) {
        let now_ns = self.now_ns();
        while let Some((pending, failure)) = self.disk.next_finished() {
            self.answer_pending(&pending, failure, now_ns);
        }
    }

    #[inline]
    fn answer_pending(&mut self, pending: &PendingRequest, failure: Option<RequestError>, now_ns: u64) {
        let [used_if_done, used_if_failed] = pending.used_bytes;
        if let Some(error) = failure {
            self.statistics.record_error(pending.operation, error);
        }
        let (status, used_bytes) = match failure {
            None => (Status::Ok, used_if_done),
            Some(RequestError::Unsupported) => (Status::Unsupported, used_if_failed),
            Some(_) => (Status::IoError, used_if_failed),
        };
        if let (Status::Ok, Some(bytes)) = (status, self.statistics.of(pending.operation).1) {
            bytes.add(pending.length_bytes);
        }
        let latency_ns = now_ns.saturating_sub(pending.taken_ns);
        self.statistics.latencies(pending.operation.into()).record(latency_ns);
        self.recent_latency_ns += latency_ns / 8;
        self.recent_latency_ns -= self.recent_latency_ns / 8;
        self.answer(pending.head, pending.status_address, status, used_bytes);
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
        self.abandon_rest();
        let failure = DeviceFailure { device: self.device.clone(), queue: Some(self.index), cause };
        if !std::mem::replace(&mut self.failed, true) {
            self.statistics.record_fault(&explain(&failure));
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
