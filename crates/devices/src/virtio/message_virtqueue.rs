//! A virtqueue whose requests are messages that are answered at once: what a device has that is no disk.

use super::descriptor_chain::DescriptorChain;
use super::{ChainFault, DeviceFailure, FailureCause, Pass, QueueNotifier, ServedQueue, SplitRing};
use crate::{Limit, QueueStatistics, REQUEST_COST_BYTES_MIN};
use blockyard_block::{MemoryMap, SEGMENTS_MAX, Segment, explain};
use std::sync::Arc;
use virtio_bindings::virtio_ring::VIRTIO_RING_F_INDIRECT_DESC;

/// A message of the driver's: bytes to be read, and room for an answer, both in the driver's memory as they lie. The
/// driver may change them at any time, so what is judged is a copy.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// What the segments point into.
    pub memory: &'a MemoryMap,
    /// What the driver says.
    pub readable: &'a [Segment],
    /// Where the answer goes.
    pub writable: &'a [Segment],
}

impl<'a> Message<'a> {
    /// What the driver says from `offset_bytes` on.
    pub fn readable_from(&self, offset_bytes: u64) -> impl Iterator<Item = Segment> + use<'a> {
        parts(self.readable, offset_bytes)
    }

    /// Where the answer goes from `offset_bytes` on.
    pub fn writable_from(&self, offset_bytes: u64) -> impl Iterator<Item = Segment> + use<'a> {
        parts(self.writable, offset_bytes)
    }

    /// Copies what the driver says from `offset_bytes` on, as much as there is and `into` has room for. How much.
    pub fn read(&self, offset_bytes: u64, into: &mut [u8]) -> usize {
        let mut filled = 0;
        for segment in self.readable_from(offset_bytes) {
            let count = (segment.length_bytes as usize).min(into.len() - filled);
            let Some(slice) = self.memory.slice(Segment { length_bytes: count as u32, ..segment }) else { break };
            slice.copy_to(&mut into[filled..filled + count]);
            filled += count;
            if filled == into.len() {
                break;
            }
        }
        filled
    }

    /// Writes `bytes` to the answer at `offset_bytes`, as far as there is room. How much.
    pub fn write(&self, offset_bytes: u64, bytes: &[u8]) -> usize {
        let mut written = 0;
        for segment in self.writable_from(offset_bytes) {
            let count = (segment.length_bytes as usize).min(bytes.len() - written);
            let Some(slice) = self.memory.slice(Segment { length_bytes: count as u32, ..segment }) else { break };
            slice.copy_from(&bytes[written..written + count]);
            written += count;
            if written == bytes.len() {
                break;
            }
        }
        written
    }

    /// Bytes of what the driver says.
    pub fn readable_bytes(&self) -> u64 {
        length_bytes(self.readable)
    }

    /// Bytes that the answer may have.
    pub fn writable_bytes(&self) -> u64 {
        length_bytes(self.writable)
    }
}

fn length_bytes(segments: &[Segment]) -> u64 {
    segments.iter().map(|segment| u64::from(segment.length_bytes)).sum()
}

fn parts(segments: &[Segment], offset_bytes: u64) -> impl Iterator<Item = Segment> {
    let mut skipped = offset_bytes;
    segments.iter().filter_map(move |&Segment { region, length_bytes, offset_bytes }| {
        let skip = skipped.min(length_bytes.into());
        skipped -= skip;
        let rest = Segment { region, length_bytes: length_bytes - skip as u32, offset_bytes: offset_bytes + skip };
        (rest.length_bytes > 0).then_some(rest)
    })
}

/// Answers the messages of a [`MessageVirtqueue`].
pub trait MessageHandler: Send {
    /// Does what the message asks for and writes the answer. Bytes of the answer, from its start.
    fn handle(&mut self, message: &Message<'_>) -> u32;
}

/// What a [`MessageVirtqueue`] is made of.
pub struct MessageVirtqueueParts {
    /// The device's name, for messages to people.
    pub device: Arc<str>,
    /// The queue's index, for messages to people.
    pub index: u16,
    /// The device's side of the rings, checked ([`super::QueueConfig::ring`]).
    pub ring: SplitRing,
    /// The driver's memory.
    pub memory: MemoryMap,
    /// Features negotiated, bit n for feature n.
    pub features: u64,
    /// How the queue reaches the driver.
    pub notifier: Arc<dyn QueueNotifier>,
    /// Where the queue counts doorbells, polls and interrupts.
    pub statistics: Arc<QueueStatistics>,
}

/// A virtqueue of messages, each answered before the next one is taken. Nothing is allocated per message.
pub struct MessageVirtqueue<H> {
    parts: MessageVirtqueueParts,
    handler: H,
    /// The readable ones, then the writable ones.
    segments: Vec<Segment>,
    /// The driver rings the doorbell when it makes something available.
    armed: bool,
    closed: bool,
    failed: bool,
    unsignalled: u32,
}

impl<H: MessageHandler> MessageVirtqueue<H> {
    /// A queue whose messages `handler` answers.
    pub fn new(parts: MessageVirtqueueParts, handler: H) -> Self {
        let segments = Vec::with_capacity(usize::from(parts.ring.size()));
        Self { parts, handler, segments, armed: true, closed: false, failed: false, unsignalled: 0 }
    }

    /// Answers the message of the chain at `head`. What that costs.
    fn answer(&mut self, head: u16) -> Result<u64, FailureCause> {
        let readable = self.follow(head)?;
        let (readable, writable) = self.segments.split_at(readable);
        let bytes = self.handler.handle(&Message { memory: &self.parts.memory, readable, writable });
        self.parts.ring.push_used(head, bytes);
        self.unsignalled = self.unsignalled.saturating_add(1);
        Ok(REQUEST_COST_BYTES_MIN.max(length_bytes(readable)).max(bytes.into()))
    }

    /// Collects the segments of the chain at `head`: how many of them are the driver's to say.
    fn follow(&mut self, head: u16) -> Result<usize, FailureCause> {
        self.segments.clear();
        let MessageVirtqueueParts { memory, ring, features, .. } = &self.parts;
        let indirect = features & 1 << VIRTIO_RING_F_INDIRECT_DESC != 0;
        let mut chain = DescriptorChain::new(memory, ring.descriptors(), head, indirect);
        let mut readable = None;
        while let Some(descriptor) = chain.next().map_err(FailureCause::Chain)? {
            if descriptor.is_write_only() {
                readable.get_or_insert(self.segments.len());
            } else if readable.is_some() {
                return Err(FailureCause::Chain(ChainFault::ReadableAfterWritable));
            }
            let (address, length_bytes) = (descriptor.address, descriptor.length_bytes);
            if !memory.find(address, length_bytes, &mut self.segments) || self.segments.len() > SEGMENTS_MAX as usize {
                return Err(FailureCause::BufferOutsideMemory { address, length_bytes });
            }
        }
        Ok(readable.unwrap_or(self.segments.len()))
    }

    fn take(&mut self, limit: Limit, pass: &mut Pass) -> Result<(), FailureCause> {
        if !self.parts.ring.has_available() {
            return Ok(());
        }
        if std::mem::replace(&mut self.armed, false) {
            self.parts.ring.disable_notification();
        } else {
            self.parts.statistics.polls.add(1);
        }
        for _ in 0..self.parts.ring.available()? {
            if pass.taken == limit.requests || pass.cost_bytes >= limit.cost_bytes {
                pass.limited = true;
                break;
            }
            let head = self.parts.ring.take();
            pass.taken += 1;
            pass.cost_bytes = pass.cost_bytes.saturating_add(self.answer(head)?);
        }
        Ok(())
    }

    fn fail(&mut self, cause: FailureCause) -> DeviceFailure {
        let MessageVirtqueueParts { device, index, statistics, notifier, .. } = &self.parts;
        let failure = DeviceFailure { device: Arc::clone(device), queue: Some(*index), cause };
        if !std::mem::replace(&mut self.failed, true) {
            statistics.record_fault(&explain(&failure));
            notifier.needs_reset();
        }
        failure
    }
}

impl<H: MessageHandler> ServedQueue for MessageVirtqueue<H> {
    fn pass(&mut self, limit: Limit) -> Result<Pass, DeviceFailure> {
        let mut pass = Pass::default();
        let taken = if self.failed || self.closed { Ok(()) } else { self.take(limit, &mut pass) };
        if pass.taken > 0 {
            self.parts.ring.publish();
        }
        pass.begun = pass.taken;
        pass.completed = pass.taken.into();
        taken.map(|()| pass).map_err(|cause| self.fail(cause))
    }

    fn notify(&mut self) {
        self.unsignalled = 0;
        if self.parts.ring.driver_wants_notification() {
            self.parts.statistics.interrupts.add(1);
            self.parts.notifier.notify_used();
        }
    }

    fn arm(&mut self) -> bool {
        if self.failed {
            return false;
        }
        self.armed = true;
        self.parts.ring.enable_notification() && !self.closed
    }

    fn unsignalled(&self) -> u32 {
        self.unsignalled
    }

    /// Whoever has sent a message mostly waits for its answer before the next.
    fn may_hold_notifications(&self) -> bool {
        false
    }

    fn has_more(&self) -> bool {
        !self.failed && !self.closed && self.parts.ring.has_available()
    }

    fn close(&mut self) {
        self.closed = true;
    }

    fn next_available(&self) -> u16 {
        self.parts.ring.next_available()
    }

    fn memory_is_intact(&self) -> bool {
        self.parts.memory.is_intact()
    }

    fn count_doorbell(&self) {
        self.parts.statistics.doorbells.add(1);
    }
}
