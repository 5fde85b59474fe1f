//! One virtqueue of virtio-blk, turned into block requests by the thread that owns it.

use super::block_request::{Command, Defect, Frame, Rules, SERIAL_BYTES, Status, copy_to_segments, counters};
use super::descriptor_chain::DescriptorChain;
use super::queue_control::GoneWhenDropped;
use super::{DeviceFailure, FailureCause, QueueControl, QueueNotifier, QueueStatistics};
use crate::EventFd;
use blockyard_block::{Completion, Disk, MemoryMap, Operation, Queue, Request, RequestError, Segment};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use virtio_bindings::virtio_ring::{VIRTIO_RING_F_INDIRECT_DESC, VRING_AVAIL_F_NO_INTERRUPT};
use virtio_queue::{Queue as Ring, QueueOwnedT, QueueT};
use vm_memory::{Bytes, GuestAddress};

/// What a [`BlockQueue`] is made of.
pub struct BlockQueueParts {
    /// The device's name, for messages.
    pub device: Arc<str>,
    /// The queue's index, for messages.
    pub index: u16,
    /// The device's side of the rings, checked ([`super::QueueConfig::ring`]).
    pub ring: Ring,
    /// The driver's memory.
    pub memory: MemoryMap,
    /// The disk.
    pub disk: Arc<dyn Disk>,
    /// Features negotiated, bit n for feature n.
    pub features: u64,
    /// What GET_ID answers, padded with zeros.
    pub serial: [u8; SERIAL_BYTES],
    /// Becomes readable when the driver rings the queue.
    pub doorbell: Arc<EventFd>,
    /// How the queue reaches the driver.
    pub notifier: Arc<dyn QueueNotifier>,
    /// Where the queue counts.
    pub statistics: Arc<QueueStatistics>,
}

/// A virtqueue of virtio-blk on a queue of a disk. Owned by one thread, which calls [`BlockQueue::process`] until there is no
/// more progress, then [`BlockQueue::arm`], then [`BlockQueue::wait_any`]:
///
/// ```
/// # use blockyard_devices::virtio::BlockQueue;
/// fn serve(mut queues: Vec<BlockQueue>) -> Result<(), Box<dyn std::error::Error>> {
///     while !queues.is_empty() {
///         let mut busy = false;
///         for queue in &mut queues {
///             busy |= queue.process()?;
///         }
///         queues.retain(|queue| !queue.is_stopping());
///         for queue in &mut queues {
///             busy = busy || queue.arm()?;
///         }
///         if !busy {
///             BlockQueue::wait_any(&mut queues, &[], None)?;
///         }
///     }
///     Ok(())
/// }
/// ```
///
/// Nothing is allocated per request. Dropping a queue completes what is in flight first.
pub struct BlockQueue {
    device: Arc<str>,
    index: u16,
    ring: Ring,
    memory: MemoryMap,
    disk: Arc<dyn Disk>,
    disk_generation: u64,
    rules: Rules,
    serial: [u8; SERIAL_BYTES],
    backend: Box<dyn Queue>,
    /// Requests the backend has, by token; `free` are the tokens it does not.
    slots: Vec<Slot>,
    free: Vec<u32>,
    segments: Vec<Segment>,
    completions: Vec<Completion>,
    notifier: Arc<dyn QueueNotifier>,
    statistics: Arc<QueueStatistics>,
    /// The driver rings the doorbell when it makes something available.
    armed: bool,
    /// Chains were used since the driver was last notified, or found not to want it.
    unsignalled: bool,
    failed: bool,
    /// Last, so that all the rest is gone when it says so.
    control: GoneWhenDropped,
}

#[derive(Clone, Copy)]
struct Slot {
    in_flight: bool,
    head: u16,
    operation: Operation,
    status_address: u64,
    length_bytes: u64,
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
        used_bytes: [0; 2],
    };
}

impl BlockQueue {
    /// Opens a queue of the disk for the virtqueue, as deep as the virtqueue is long, and tells the driver not to ring.
    ///
    /// # Errors
    /// When the disk opens no queue.
    pub fn open(parts: BlockQueueParts) -> io::Result<Self> {
        let BlockQueueParts { device, index, ring, memory, disk, features, serial, doorbell, notifier, statistics } =
            parts;
        let disk_generation = disk.generation();
        let rules = Rules { geometry: disk.geometry(), features };
        let backend = disk.open_queue(&memory, ring.size().into())?;
        let depth = backend.depth().clamp(1, ring.size().into());
        Ok(Self {
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
            slots: vec![Slot::FREE; depth],
            free: (0..depth as u32).rev().collect(),
            notifier,
            statistics,
            armed: true,
            unsignalled: false,
            failed: false,
            control: GoneWhenDropped(QueueControl::new(doorbell)),
        })
    }

    /// Which of its device's queues this is.
    pub fn index(&self) -> u16 {
        self.index
    }

    /// The descriptor that becomes readable when the driver, or [`QueueControl::stop`], rings.
    pub fn doorbell(&self) -> &Arc<EventFd> {
        self.control.0.doorbell()
    }

    /// The descriptor that becomes readable when the disk may have completed something; `None` for a disk that completes
    /// everything within [`BlockQueue::process`].
    pub fn completion_event(&self) -> Option<BorrowedFd<'_>> {
        self.backend.completion_event()
    }

    /// How another thread takes the queue back.
    pub fn control(&self) -> &Arc<QueueControl> {
        &self.control.0
    }

    /// Whether the owner shall drop the queue.
    pub fn is_stopping(&self) -> bool {
        self.control.0.is_stopping()
    }

    /// Requests that the disk has.
    pub fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Where the device is in the available ring: the base that a vhost-user session reports.
    pub fn next_available(&self) -> u16 {
        self.ring.next_avail()
    }

    /// Does what can be done without waiting: completes what the disk has done, hands it what the driver made available,
    /// and notifies the driver if it wants that. Whether it did anything: if so, there may be more.
    ///
    /// A disk that carries one request at a time has each request completed, and the driver notified, before the next.
    ///
    /// # Errors
    /// When the ring or the disk is broken. The driver has been told (DEVICE_NEEDS_RESET); the queue takes no more
    /// requests and is best dropped.
    pub fn process(&mut self) -> Result<bool, DeviceFailure> {
        self.process_up_to(self.ring.size())
    }

    /// As [`BlockQueue::process`], but takes at most `budget` requests from the driver: for a thread that serves several
    /// queues in turn.
    ///
    /// # Errors
    /// As [`BlockQueue::process`].
    pub fn process_up_to(&mut self, mut budget: u16) -> Result<bool, DeviceFailure> {
        self.follow_disk();
        self.disarm()?;
        let mut progress = false;
        loop {
            let completed = self.complete()?;
            let popped = if self.failed || self.is_stopping() { 0 } else { self.pop(budget)? };
            // Also when nothing was popped: what could not be submitted before, a request's second half say, is tried again.
            if self.backend.in_flight() > 0 {
                self.backend.submit().map_err(|error| self.fail(FailureCause::Backend(error)))?;
            }
            self.signal()?;
            if completed == 0 && popped == 0 {
                return Ok(progress);
            }
            progress = true;
            budget -= popped;
        }
    }

    /// Makes the driver ring the doorbell for what it makes available from now on, after [`BlockQueue::process`] found nothing
    /// more. Whether to process again instead of waiting: something came in between, or the queue shall stop.
    ///
    /// # Errors
    /// As [`BlockQueue::process`].
    pub fn arm(&mut self) -> Result<bool, DeviceFailure> {
        if self.failed {
            return Ok(false);
        }
        // First, so that a ring after this is seen, and one before it is answered by looking at the ring below.
        self.take_doorbell();
        if self.is_stopping() {
            return Ok(true);
        }
        let more = self.ring.enable_notification(self.memory.guest_memory());
        self.armed = true;
        let more = more.map_err(|error| self.fail(FailureCause::Ring(error)))?;
        // What waits for a free slot is taken when a completion comes, not before.
        Ok(more && !self.free.is_empty())
    }

    /// Waits until one of `queues` may have something to do, one of `events` is readable, or `timeout` has passed. All have been armed.
    /// Returns at once if there is no queue.
    ///
    /// # Errors
    /// When the wait itself fails.
    pub fn wait_any(queues: &mut [Self], events: &[BorrowedFd<'_>], timeout: Option<Duration>) -> io::Result<()> {
        /// Beyond these, a wait allocates.
        const EVENTS: usize = 32;
        let Some((first, others)) = queues.split_first_mut() else { return Ok(()) };
        let doorbell = first.doorbell().clone();
        let doorbell = doorbell.as_fd();
        let others = others.iter().flat_map(|queue| [Some(queue.doorbell().as_fd()), queue.completion_event()]);
        let all = others.flatten().chain(events.iter().copied());
        let mut on_stack = [doorbell; EVENTS];
        let mut count = 1;
        for event in all.clone() {
            if count == EVENTS {
                let all: Vec<_> = std::iter::once(doorbell).chain(all).collect();
                return first.backend.wait(&all, timeout);
            }
            on_stack[count] = event;
            count += 1;
        }
        first.backend.wait(&on_stack[..count], timeout)
    }

    /// Waits until the disk has nothing of this queue any more, and completes it all. Takes no new requests.
    ///
    /// # Errors
    /// As [`BlockQueue::process`].
    pub fn drain(&mut self) -> Result<(), DeviceFailure> {
        self.completions.clear();
        let drained = self.backend.drain(&mut self.completions);
        self.complete_reaped()?;
        self.signal()?;
        drained.map_err(|error| self.fail(FailureCause::Backend(error)))
    }

    fn follow_disk(&mut self) {
        let generation = self.disk.generation();
        if generation != self.disk_generation {
            self.disk_generation = generation;
            self.rules.geometry = self.disk.geometry();
        }
    }

    fn take_doorbell(&self) {
        let rung = self.doorbell().take();
        if rung > 0 {
            self.statistics.doorbells.add(rung);
        }
    }

    fn disarm(&mut self) -> Result<(), DeviceFailure> {
        if !std::mem::replace(&mut self.armed, false) {
            return Ok(());
        }
        let disabled = self.ring.disable_notification(self.memory.guest_memory());
        disabled.map_err(|error| self.fail(FailureCause::Ring(error)))
    }

    /// Takes up to `budget` available chains while there are slots for them. How many.
    fn pop(&mut self, budget: u16) -> Result<u16, DeviceFailure> {
        for popped in 0..budget {
            let Some(&token) = self.free.last() else { return Ok(popped) };
            let head = match self.ring.iter(self.memory.guest_memory()) {
                Ok(mut chains) => chains.next().map(|chain| chain.head_index()),
                Err(error) => {
                    let cause = self.available_fault(error);
                    return Err(self.fail(cause));
                }
            };
            let Some(head) = head else { return Ok(popped) };
            self.start(head, token)?;
        }
        Ok(budget)
    }

    fn available_fault(&self, error: virtio_queue::Error) -> FailureCause {
        match (error, self.ring.avail_idx(self.memory.guest_memory(), Ordering::Relaxed)) {
            (virtio_queue::Error::InvalidAvailRingIndex, Ok(index)) => FailureCause::AvailableIndex {
                moved: index.0.wrapping_sub(self.ring.next_avail()),
                size: self.ring.size(),
            },
            (error, _) => FailureCause::Ring(error),
        }
    }

    /// Starts the request of the chain at `head`, or answers it at once.
    fn start(&mut self, head: u16, token: u32) -> Result<(), DeviceFailure> {
        self.segments.clear();
        let indirect = self.rules.has(VIRTIO_RING_F_INDIRECT_DESC);
        let (table, size) = (self.ring.desc_table(), self.ring.size());
        let mut chain = DescriptorChain::new(self.memory.guest_memory(), table, size, head, indirect);
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
                    self.add_used(head, 0)
                }
            };
        };
        match frame.command(&self.rules, &self.memory, &self.segments) {
            Ok(Command::Disk { operation, offset_bytes, segments }) => {
                let segments = &self.segments[segments];
                let request = Request { operation, offset_bytes, segments, token: token.into() };
                if self.backend.push(&request).is_err() {
                    // Not before `depth` requests are in flight, and there are no more slots than that.
                    return self.answer(head, status_address, Status::IoError, frame.used_bytes(0));
                }
                let read = matches!(operation, Operation::Read);
                let data_written_bytes = if read { frame.writable_bytes } else { 0 };
                self.slots[token as usize] = Slot {
                    in_flight: true,
                    head,
                    operation,
                    status_address,
                    length_bytes: request.length_bytes(),
                    used_bytes: [frame.used_bytes(data_written_bytes), frame.used_bytes(0)],
                };
                self.free.pop();
                counters(&self.statistics, operation).0.add(1);
                Ok(())
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
    }

    /// Completes what the disk has done. How much.
    fn complete(&mut self) -> Result<usize, DeviceFailure> {
        self.completions.clear();
        self.backend.reap(&mut self.completions);
        self.complete_reaped()
    }

    fn complete_reaped(&mut self) -> Result<usize, DeviceFailure> {
        for index in 0..self.completions.len() {
            let Completion { token, result } = self.completions[index];
            // A token that is not in flight cannot come from a disk that keeps its word; it must not free a slot twice.
            let Some(slot) = self.slots.get_mut(token as usize).filter(|slot| slot.in_flight) else { continue };
            slot.in_flight = false;
            let slot = *slot;
            self.free.push(token as u32);
            let [used_if_done, used_if_failed] = slot.used_bytes;
            let (status, used_bytes) = match result {
                Ok(()) => (Status::Ok, used_if_done),
                Err(RequestError::Unsupported) => (Status::Unsupported, used_if_failed),
                Err(_) => (Status::IoError, used_if_failed),
            };
            if let (Status::Ok, Some(bytes)) = (status, counters(&self.statistics, slot.operation).1) {
                bytes.add(slot.length_bytes);
            }
            self.answer(slot.head, slot.status_address, status, used_bytes)?;
        }
        Ok(self.completions.len())
    }

    fn answer(&mut self, head: u16, status_address: u64, status: Status, used_bytes: u32) -> Result<(), DeviceFailure> {
        if status != Status::Ok {
            self.statistics.errors.add(1);
        }
        // It was found in memory when the chain was read, and memory does not go away.
        let _ = self.memory.guest_memory().write_obj(status as u8, GuestAddress(status_address));
        self.add_used(head, used_bytes)
    }

    fn add_used(&mut self, head: u16, used_bytes: u32) -> Result<(), DeviceFailure> {
        self.unsignalled = true;
        let added = self.ring.add_used(self.memory.guest_memory(), head, used_bytes);
        added.map_err(|error| self.fail(FailureCause::Ring(error)))
    }

    /// Notifies the driver of what was used, if it wants to know.
    fn signal(&mut self) -> Result<(), DeviceFailure> {
        if !std::mem::replace(&mut self.unsignalled, false) {
            return Ok(());
        }
        match self.driver_wants_to_know() {
            Ok(true) => {
                self.statistics.interrupts.add(1);
                self.notifier.notify_used();
                Ok(())
            }
            Ok(false) => Ok(()),
            Err(error) => Err(self.fail(FailureCause::Ring(error))),
        }
    }

    fn driver_wants_to_know(&mut self) -> Result<bool, virtio_queue::Error> {
        let memory = self.memory.guest_memory();
        let wanted = self.ring.needs_notification(memory)?;
        if self.ring.event_idx_enabled() {
            return Ok(wanted);
        }
        // virtio-queue does not look at this flag (§2.7.7), but it has put a fence before us.
        let flags = memory.load::<u16>(GuestAddress(self.ring.avail_ring()), Ordering::Relaxed);
        let flags = u16::from_le(flags.map_err(virtio_queue::Error::GuestMemory)?);
        Ok(u32::from(flags) & VRING_AVAIL_F_NO_INTERRUPT == 0)
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

impl Drop for BlockQueue {
    fn drop(&mut self) {
        // A backend that cannot even drain lets go of the memory when it is dropped itself; there is nobody to tell.
        let _ = self.drain();
    }
}
