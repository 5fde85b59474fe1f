//! The commands of a port, carried out by the thread that owns this.

use super::ata::{AtaCommand, Blocks, Protocol, Status, TaskFile};
use super::command::{DataFault, FrameKind, SlotCommand, set_moved_bytes};
use super::frames::{Ending, ReceivedFrames};
use super::identity::{Identity, Page, TRIM_PAYLOAD_BLOCKS_MAX};
use super::port::{Change, Port, View, Waiting};
use super::registers::{self as bits, SLOTS};
use crate::queue_control::GoneWhenDropped;
use crate::requests::DiskRequests;
use crate::segments::{copy_from_segments, copy_to_segments};
use crate::{IoQueue, IoQueueFailure, Limit, QueueControl, QueueStatistics, REQUEST_COST_BYTES_MIN};
use blockyard_block::limits::IN_FLIGHT_BYTES_MAX;
use blockyard_block::{Disk, EventFd, Geometry, MemoryMap, Operation, RequestError, Segment};
use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// What each segment of a command counts as at least: so does finding it, and moving what little it names.
const SEGMENT_COST_BYTES: u64 = 256;
/// Ranges of a TRIM's payload.
const TRIM_RANGES: usize = 64 * TRIM_PAYLOAD_BLOCKS_MAX as usize;

/// The disk of a port cannot be served: not the driver's fault. Prints as the port and the disk; the reason is its
/// source.
#[derive(Debug, thiserror::Error)]
#[error("port {port} of the AHCI controller, disk {disk}, cannot be served")]
pub struct PortFailure {
    /// The port.
    pub port: u8,
    /// The disk's name, as the VMM gave it.
    pub disk: Arc<str>,
    /// How the disk failed.
    #[source]
    pub source: io::Error,
}

/// What a [`PortQueue`] is made of.
pub(super) struct PortQueueParts {
    pub(super) name: Arc<str>,
    pub(super) serial: String,
    pub(super) disk: Arc<dyn Disk>,
    pub(super) memory: MemoryMap,
    pub(super) port: Arc<Port>,
    pub(super) doorbell: Arc<EventFd>,
    pub(super) statistics: Arc<QueueStatistics>,
}

/// The commands of an AHCI port on a queue of a disk. Owned by one thread, which serves it as an [`IoQueue`].
///
/// A read or write that is longer than [`PIECE_BYTES_MAX`](blockyard_block::limits::PIECE_BYTES_MAX) is given to the
/// disk piece by piece. Nothing is allocated per command. Dropping the queue completes what is in flight first, and
/// unplugs the disk.
pub struct PortQueue {
    name: Arc<str>,
    identity: Identity,
    memory: MemoryMap,
    geometry: Geometry,
    disk: DiskRequests<PendingCommand>,
    /// The port as it was found last.
    view: View,
    /// Slots whose commands were begun, and of which the driver was not shown that they are done.
    begun: u32,
    /// The one of them that is not queued: then there is no other.
    alone: Option<u8>,
    /// A command that is not queued waits for those that are.
    is_held: bool,
    /// The slot that is looked at first.
    next_slot: u8,
    /// Those of a TRIM.
    ranges: Vec<Range<u64>>,
    /// A command has failed, or the driver stopped the port: of what is under way, nothing is shown.
    is_silent: bool,
    /// The driver has set SRST in the device control register.
    is_in_reset: bool,
    unshown: Unshown,
    segments: Vec<Segment>,
    /// What times are since.
    opened: Instant,
    statistics: Arc<QueueStatistics>,
    port: PluggedIn,
    /// Last, so that all the rest is gone when it says so.
    control: GoneWhenDropped,
}

/// What it takes to say that a command is done.
#[derive(Clone, Copy)]
struct PendingCommand {
    slot: u8,
    task_file: TaskFile,
    operation: Operation,
    protocol: Protocol,
    /// Bytes of data that the driver gets or gives.
    data_bytes: u64,
    /// Bytes of the disk.
    length_bytes: u64,
    moved_address: u64,
    taken_ns: u64,
}

/// What the driver has not been shown yet.
#[derive(Clone, Copy, Default)]
struct Unshown {
    /// Slots whose queued commands the disk has accepted.
    accepted: u32,
    /// Slots whose queued commands are done.
    done: u32,
    /// The command that was not queued, and is done.
    ended: Option<Ended>,
    /// The first command that failed.
    failed: Option<Failed>,
}

#[derive(Clone, Copy)]
struct Ended {
    slot: u8,
    ending: Ending,
    answer: Answer,
    moved: Option<(u64, u32)>,
}

/// Which frame says that a command is done.
#[derive(Clone, Copy)]
enum Answer {
    Registers,
    PioSetup {
        block_bytes: u16,
    },
    /// After a software reset: as after power-on.
    Signature,
    /// None.
    Silence,
}

#[derive(Clone, Copy)]
struct Failed {
    slot: u8,
    is_queued: bool,
    ending: Ending,
    /// Interrupt causes beside the task file's error.
    causes: u32,
}

/// Why a command is not begun.
enum Refusal {
    /// Its task file says so.
    Status(Status),
    /// Its memory is not there.
    HostBus,
    /// Its memory is too short.
    Overflow,
}

impl From<Status> for Refusal {
    fn from(status: Status) -> Self {
        Self::Status(status)
    }
}

impl From<DataFault> for Refusal {
    fn from(fault: DataFault) -> Self {
        match fault {
            DataFault::OutsideMemory => Self::HostBus,
            DataFault::TooShort => Self::Overflow,
            DataFault::TooManySegments => Self::Status(Status::ABORTED),
        }
    }
}

/// A port with a disk; unplugged when this is gone.
struct PluggedIn(Arc<Port>);

impl Drop for PluggedIn {
    fn drop(&mut self) {
        self.0.unplug();
    }
}

/// A command as it was found in a slot.
#[derive(Clone, Copy)]
struct Found {
    slot: u8,
    command: SlotCommand,
    task_file: TaskFile,
    now_ns: u64,
}

/// What was done in a pass.
#[derive(Clone, Copy, Default)]
struct Pass {
    begun: u16,
    cost_bytes: u64,
    progress: bool,
}

impl PortQueue {
    pub(super) fn open(parts: PortQueueParts) -> io::Result<Self> {
        let PortQueueParts { name, serial, disk, memory, port, doorbell, statistics } = parts;
        let geometry = disk.geometry();
        let disk = DiskRequests::open(disk, &memory, SLOTS.into())?;
        Ok(Self {
            name,
            identity: Identity::new(serial),
            memory,
            geometry,
            disk,
            view: port.look(),
            begun: 0,
            alone: None,
            is_held: false,
            next_slot: 0,
            ranges: Vec::with_capacity(TRIM_RANGES),
            is_silent: false,
            is_in_reset: false,
            unshown: Unshown::default(),
            segments: Vec::with_capacity(256),
            opened: Instant::now(),
            statistics,
            port: PluggedIn(port),
            control: GoneWhenDropped(QueueControl::new(doorbell)),
        })
    }

    /// How another thread takes the queue back.
    pub fn control(&self) -> &Arc<QueueControl> {
        &self.control.0
    }

    /// Does what can be done without waiting, once.
    fn pass(&mut self, limit: Limit) -> io::Result<Pass> {
        let mut pass = Pass::default();
        self.view = self.port.0.look();
        if self.view.is_draining {
            self.silence();
        }
        if self.view.sends_signature {
            self.send_signature();
            pass.progress = true;
        } else if self.view.is_running && !self.is_silent {
            self.take(limit, &mut pass);
        }
        if self.disk.in_flight() > 0 {
            self.disk.submit()?;
            pass.progress |= self.complete() > 0;
        }
        pass.progress |= self.show() || pass.begun > 0;
        if self.view.is_draining && self.disk.in_flight() == 0 {
            self.begin_anew();
            pass.progress = true;
        }
        self.statistics.in_flight.store(self.disk.in_flight() as u64, Ordering::Relaxed);
        Ok(pass)
    }

    /// Goes on with a long command, and begins others, within `limit` while there are tokens for them.
    fn take(&mut self, limit: Limit, pass: &mut Pass) {
        let now_ns = self.opened.elapsed().as_nanos() as u64;
        self.is_held = false;
        while self.can_begin() && pass.begun < limit.requests && pass.cost_bytes < limit.cost_bytes {
            let cost_bytes = if !self.disk.has_rest() {
                let Some(slot) = self.next_slot() else { break };
                match self.start(slot, now_ns) {
                    Some(cost_bytes) => cost_bytes,
                    None => break,
                }
            } else {
                self.disk.go_on()
            };
            pass.begun += 1;
            pass.cost_bytes = pass.cost_bytes.saturating_add(cost_bytes);
        }
    }

    /// Whether the rest of a command, or another command, can be given to the disk.
    fn can_begin(&self) -> bool {
        if self.is_silent || self.disk.in_flight_cost_bytes() >= IN_FLIGHT_BYTES_MAX {
            return false;
        }
        self.disk.has_room() && (self.disk.has_rest() || self.alone.is_none() && !self.is_held)
    }

    /// The next slot with a command that was not begun, in the order in which drivers fill them.
    fn next_slot(&self) -> Option<u8> {
        let ready = self.view.issued & !self.begun;
        let from_next = ready.rotate_right(self.next_slot.into());
        (ready != 0).then(|| (self.next_slot + from_next.trailing_zeros() as u8) % SLOTS)
    }

    /// Begins the command in a slot, or ends it at once. What it costs; `None` when it has to wait for others.
    fn start(&mut self, slot: u8, now_ns: u64) -> Option<u64> {
        self.follow_disk();
        let read = SlotCommand::read(&self.memory, self.view.command_list, slot);
        let frame = read.map(|command| (command, command.frame()));
        let ata = match frame {
            Some((_, FrameKind::Command(task_file))) => Some(AtaCommand::decode(&task_file)),
            _ => None,
        };
        let is_queued = ata.is_some_and(|ata| ata.is_queued());
        if !is_queued && self.begun != 0 {
            self.is_held = true;
            return None;
        }
        self.next_slot = (slot + 1) % SLOTS;
        self.begun |= 1 << slot;
        if is_queued {
            self.unshown.accepted |= 1 << slot;
        } else {
            self.alone = Some(slot);
        }
        let mut task_file = TaskFile::default();
        let started = match (frame, ata) {
            (Some((command, FrameKind::Command(registers))), Some(ata)) => {
                task_file = registers;
                self.carry_out(ata, Found { slot, command, task_file, now_ns })
            }
            (Some((_, FrameKind::Control { reset })), _) => {
                self.set_reset(slot, reset);
                Ok(REQUEST_COST_BYTES_MIN)
            }
            (Some(_), _) => Err(Status::ABORTED.into()),
            (None, _) => Err(Refusal::HostBus),
        };
        Some(started.unwrap_or_else(|refusal| {
            self.refuse(slot, is_queued, task_file, &refusal);
            REQUEST_COST_BYTES_MIN
        }))
    }

    fn follow_disk(&mut self) {
        if let Some(geometry) = self.disk.changed_geometry() {
            self.geometry = geometry;
        }
    }

    fn carry_out(&mut self, ata: AtaCommand, found: Found) -> Result<u64, Refusal> {
        match ata {
            AtaCommand::Read { blocks, protocol } => return self.transfer(&found, Operation::Read, blocks, protocol),
            AtaCommand::Write { blocks, protocol, force_unit_access } => {
                let force_unit_access = force_unit_access || !self.identity.write_cache;
                return self.transfer(&found, Operation::Write { force_unit_access }, blocks, protocol);
            }
            AtaCommand::Flush => return self.begin(&found, Operation::Flush, 0..0, Protocol::Dma),
            AtaCommand::Trim { payload_blocks } => return self.trim(&found, payload_blocks),
            AtaCommand::Verify { blocks } => {
                self.places(blocks)?;
                self.end(&found, found.task_file, Answer::Registers);
            }
            AtaCommand::Identify => {
                self.statistics.get_ids.add(1);
                let page = self.identity.identify(&self.geometry);
                self.send_page(&found, &page, Protocol::Pio)?;
            }
            AtaCommand::ReadLog { address, page, pages: 1, protocol } => {
                let page = self.identity.log_page(address, page).ok_or(Status::ABORTED)?;
                self.send_page(&found, &page, protocol)?;
            }
            AtaCommand::SetWriteCache { enabled } => {
                self.identity.write_cache = enabled;
                // What was written before is stable from now on, too.
                return match enabled {
                    true => self.end_now(&found),
                    false => self.begin(&found, Operation::Flush, 0..0, Protocol::Dma),
                };
            }
            AtaCommand::CheckPowerMode => {
                // Active or idle.
                self.end(&found, TaskFile { count: 0xff, ..found.task_file }, Answer::Registers);
            }
            AtaCommand::Diagnose => self.end(&found, TaskFile::default(), Answer::Signature),
            AtaCommand::Nothing => return self.end_now(&found),
            AtaCommand::ReadLog { .. } | AtaCommand::Unknown => return Err(Status::ABORTED.into()),
        }
        Ok(REQUEST_COST_BYTES_MIN)
    }

    fn end_now(&mut self, found: &Found) -> Result<u64, Refusal> {
        self.end(found, found.task_file, Answer::Registers);
        Ok(REQUEST_COST_BYTES_MIN)
    }

    /// Where blocks lie on the disk, in bytes.
    fn places(&self, blocks: Blocks) -> Result<Range<u64>, Status> {
        let block_bytes = u64::from(self.geometry.logical_block_bytes);
        let from = blocks.first.checked_mul(block_bytes).ok_or(Status::NOT_FOUND)?;
        let until = from.checked_add(u64::from(blocks.count) * block_bytes).ok_or(Status::NOT_FOUND)?;
        if until > self.geometry.capacity_bytes { Err(Status::NOT_FOUND) } else { Ok(from..until) }
    }

    fn transfer(
        &mut self,
        found: &Found,
        operation: Operation,
        blocks: Blocks,
        protocol: Protocol,
    ) -> Result<u64, Refusal> {
        if let Protocol::Queued { tag } = protocol
            && tag != found.slot
        {
            return Err(Status::ABORTED.into());
        }
        if self.geometry.read_only && operation != Operation::Read {
            return Err(Status::ABORTED.into());
        }
        let places = self.places(blocks)?;
        self.find_data(found, places.end - places.start)?;
        self.begin(found, operation, places, protocol)
    }

    /// Puts the memory of a command's data into `segments`.
    fn find_data(&mut self, found: &Found, length_bytes: u64) -> Result<(), DataFault> {
        self.segments.clear();
        found.command.data(&self.memory, length_bytes, self.geometry.segments_max, &mut self.segments)
    }

    /// Gives the disk a request for these places, or as much of it as it is given at once. What that costs.
    fn begin(
        &mut self,
        found: &Found,
        operation: Operation,
        places: Range<u64>,
        protocol: Protocol,
    ) -> Result<u64, Refusal> {
        let length_bytes = places.end - places.start;
        let moves_data = matches!(operation, Operation::Read | Operation::Write { .. });
        if !moves_data {
            // Those of a command before it.
            self.segments.clear();
        }
        let segments = self.segments.len();
        let pending = PendingCommand {
            data_bytes: if moves_data { length_bytes } else { 0 },
            length_bytes,
            ..self.pending(found, operation, protocol)
        };
        let begun = self.disk.begin(pending, operation, places, &mut self.segments, 0..segments);
        let cost_bytes = begun.ok_or(Status::ABORTED)?;
        self.statistics.of(operation).0.add(1);
        Ok(cost_bytes.max(SEGMENT_COST_BYTES * segments as u64))
    }

    fn pending(&self, found: &Found, operation: Operation, protocol: Protocol) -> PendingCommand {
        let &Found { slot, command, task_file, now_ns } = found;
        let moved_address = command.moved_address();
        PendingCommand {
            slot,
            task_file,
            operation,
            protocol,
            data_bytes: 0,
            length_bytes: 0,
            moved_address,
            taken_ns: now_ns,
        }
    }

    /// Begins a TRIM: its ranges, joined where one goes on where the other ends, are given to the disk one by one.
    fn trim(&mut self, found: &Found, payload_blocks: u16) -> Result<u64, Refusal> {
        if !self.geometry.discard || self.geometry.read_only || payload_blocks != TRIM_PAYLOAD_BLOCKS_MAX {
            return Err(Status::ABORTED.into());
        }
        let mut payload: Page = [0; 512];
        self.find_data(found, payload.len() as u64)?;
        copy_from_segments(&self.memory, &self.segments, &mut payload).ok_or(Refusal::HostBus)?;
        self.ranges.clear();
        for entry in payload.as_chunks::<8>().0.iter().map(|entry| u64::from_le_bytes(*entry)) {
            let blocks = Blocks { first: entry & ((1 << 48) - 1), count: (entry >> 48) as u32 };
            if blocks.count == 0 {
                continue;
            }
            let range = self.places(blocks)?;
            match self.ranges.last_mut() {
                Some(last) if last.end == range.start => last.end = range.end,
                _ => self.ranges.push(range),
            }
        }
        let length_bytes = self.ranges.iter().map(|range| range.end - range.start).sum();
        let operation = Operation::Discard { length_bytes };
        self.ranges.reverse();
        if self.ranges.is_empty() {
            return self.end_now(found);
        }
        let pending = PendingCommand {
            data_bytes: payload.len() as u64,
            length_bytes,
            ..self.pending(found, operation, Protocol::Dma)
        };
        let cost_bytes = self.disk.begin_discards(pending, &mut self.ranges).ok_or(Status::ABORTED)?;
        self.statistics.of(operation).0.add(1);
        Ok(cost_bytes)
    }

    /// Ends what the disk has done. How much that was.
    fn complete(&mut self) -> usize {
        let completed = self.disk.reap();
        if completed > 0 {
            let now_ns = self.opened.elapsed().as_nanos() as u64;
            while let Some((pending, failure)) = self.disk.next_finished() {
                self.finish(pending, failure, now_ns);
            }
        }
        completed
    }

    /// The disk has done with a command.
    fn finish(&mut self, pending: PendingCommand, failure: Option<RequestError>, now_ns: u64) {
        if self.is_silent {
            return;
        }
        let PendingCommand { slot, task_file, operation, protocol, data_bytes, moved_address, .. } = pending;
        let is_queued = matches!(protocol, Protocol::Queued { .. });
        self.statistics.latencies(operation.into()).record(now_ns.saturating_sub(pending.taken_ns));
        if let Some(error) = failure {
            self.statistics.record_error(operation, error);
            let status = Status::of_error(error, operation == Operation::Read);
            return self.refuse(slot, is_queued, task_file, &status.into());
        }
        if let Some(bytes) = self.statistics.of(operation).1 {
            bytes.add(pending.length_bytes);
        }
        if is_queued {
            self.unshown.done |= 1 << slot;
            return;
        }
        let answer = match (protocol, operation) {
            (Protocol::Pio, Operation::Read) => {
                Answer::PioSetup { block_bytes: self.geometry.logical_block_bytes.min(1 << 15) as u16 }
            }
            _ => Answer::Registers,
        };
        let moved = Some((moved_address, data_bytes as u32));
        self.unshown.ended = Some(Ended { slot, ending: Ending { status: Status::DONE, task_file }, answer, moved });
    }

    /// A command that is not queued is done without the disk.
    fn end(&mut self, found: &Found, task_file: TaskFile, answer: Answer) {
        let status = match answer {
            Answer::Signature => Status::PASSED,
            _ => Status::DONE,
        };
        let ending = Ending { status, task_file };
        self.unshown.ended = Some(Ended { slot: found.slot, ending, answer, moved: None });
    }

    /// Gives the driver a page, and ends the command.
    fn send_page(&mut self, found: &Found, page: &Page, protocol: Protocol) -> Result<(), Refusal> {
        self.find_data(found, page.len() as u64)?;
        copy_to_segments(&self.memory, &self.segments, page).ok_or(Refusal::HostBus)?;
        let answer = match protocol {
            Protocol::Pio => Answer::PioSetup { block_bytes: page.len() as u16 },
            _ => Answer::Registers,
        };
        let ending = Ending { status: Status::DONE, task_file: found.task_file };
        let moved = Some((found.command.moved_address(), page.len() as u32));
        self.unshown.ended = Some(Ended { slot: found.slot, ending, answer, moved });
        Ok(())
    }

    /// The driver writes the device control register. A reset ends when its bit is taken back (§10.4.1).
    fn set_reset(&mut self, slot: u8, reset: bool) {
        let ends = std::mem::replace(&mut self.is_in_reset, reset) && !reset;
        if ends {
            self.identity.reset();
        }
        let answer = if ends { Answer::Signature } else { Answer::Silence };
        let ending = Ending { status: Status::PASSED, task_file: TaskFile::default() };
        self.unshown.ended = Some(Ended { slot, ending, answer, moved: None });
    }

    /// A command fails, and with it, the port: nothing of the others is shown until the driver has stopped it.
    fn refuse(&mut self, slot: u8, is_queued: bool, task_file: TaskFile, refusal: &Refusal) {
        self.statistics.errors.add(1);
        let (status, causes) = match refusal {
            Refusal::Status(status) => (*status, 0),
            Refusal::HostBus => (Status::ABORTED, bits::HOST_BUS_FATAL),
            Refusal::Overflow => (Status::ABORTED, bits::OVERFLOW),
        };
        if is_queued {
            self.identity.log_queued_error(slot, status, &task_file);
        }
        let ending = Ending { status, task_file };
        self.unshown.failed = Some(Failed { slot, is_queued, ending, causes });
        self.silence();
    }

    /// Nothing more is given to the disk, and nothing of what it has is shown.
    fn silence(&mut self) {
        self.is_silent = true;
        self.disk.abandon_rest();
    }

    /// The disk has nothing of what was begun before the driver stopped the port.
    fn begin_anew(&mut self) {
        (self.begun, self.alone, self.is_held, self.is_silent) = (0, None, false, false);
        self.unshown = Unshown::default();
        self.next_slot = 0;
        self.port.0.end_drain();
    }

    /// The first frame after power-on, and after a reset of the link.
    fn send_signature(&mut self) {
        self.identity.reset();
        self.is_in_reset = false;
        if let Some(frames) = self.frames() {
            frames.registers(&signature(), false);
        }
        self.port.0.show_signature();
    }

    fn frames(&self) -> Option<ReceivedFrames<'_>> {
        self.view.received_fis.map(|address| ReceivedFrames { memory: &self.memory, address })
    }

    /// Shows the driver what is done: frames first, then all registers at once. Whether there was anything.
    fn show(&mut self) -> bool {
        let Unshown { accepted, done, ended, failed } = std::mem::take(&mut self.unshown);
        if accepted | done == 0 && ended.is_none() && failed.is_none() {
            return false;
        }
        let mut change = Change { cleared: accepted, deactivated: done, ..Change::default() };
        if done != 0 || failed.is_some_and(|failed| failed.is_queued) {
            self.show_queued(done, failed.as_ref(), &mut change);
        }
        if let Some(ended) = &ended {
            self.show_ended(ended, &mut change);
        }
        if let Some(failed) = failed.filter(|failed| !failed.is_queued) {
            if let Some(frames) = self.frames() {
                frames.registers(&failed.ending, true);
            }
            change.interrupts |= bits::REGISTERS_FRAME;
            change.task_file = Some(failed.ending.status);
            change.current_slot = Some(failed.slot);
        }
        if let Some(failed) = failed {
            change.interrupts |= bits::TASK_FILE_ERROR | failed.causes;
            change.halts = true;
        }
        self.begun &= !done;
        if change.interrupts != 0 {
            self.statistics.interrupts.add(1);
        }
        // Else the driver has stopped the port, which the next pass sees.
        self.port.0.show(&change)
    }

    fn show_queued(&self, done: u32, failed: Option<&Failed>, change: &mut Change) {
        let status = failed.map_or(Status::DONE, |failed| failed.ending.status);
        if let Some(frames) = self.frames() {
            frames.device_bits(status, done);
        }
        change.interrupts |= bits::DEVICE_BITS_FRAME;
        change.task_file = Some(status);
    }

    fn show_ended(&mut self, ended: &Ended, change: &mut Change) {
        let Ended { slot, ending, answer, moved } = *ended;
        if let Some((address, bytes)) = moved {
            set_moved_bytes(&self.memory, address, bytes);
        }
        change.interrupts |= match (answer, self.frames()) {
            (Answer::Silence, _) => 0,
            (Answer::PioSetup { block_bytes }, frames) => {
                frames.inspect(|frames| frames.pio_setup(&ending, block_bytes));
                bits::PIO_SETUP_FRAME
            }
            (Answer::Registers, frames) => {
                frames.inspect(|frames| frames.registers(&ending, true));
                bits::REGISTERS_FRAME
            }
            (Answer::Signature, frames) => {
                frames.inspect(|frames| frames.registers(&signature(), true));
                bits::REGISTERS_FRAME
            }
        };
        change.cleared |= 1 << slot;
        change.task_file = Some(ending.status);
        change.current_slot = Some(slot);
        self.begun &= !(1 << slot);
        self.alone = None;
    }
}

/// What an ATA disk's first frame says.
fn signature() -> Ending {
    Ending { status: Status::PASSED, task_file: TaskFile { lba: 1, count: 1, ..TaskFile::default() } }
}

impl IoQueue for PortQueue {
    fn index(&self) -> u16 {
        self.port.0.index().into()
    }

    fn is_stopping(&self) -> bool {
        self.control.0.is_stopping()
    }

    fn process_up_to(&mut self, mut limit: Limit) -> Result<u32, IoQueueFailure> {
        let mut done = 0;
        loop {
            if self.is_stopping() {
                limit.requests = 0;
            }
            let pass = self.pass(limit).map_err(|source| PortFailure {
                port: self.port.0.index(),
                disk: Arc::clone(&self.name),
                source,
            })?;
            if !pass.progress {
                return Ok(done);
            }
            done += u32::from(pass.begun).max(1);
            limit.requests -= pass.begun;
            limit.cost_bytes = limit.cost_bytes.saturating_sub(pass.cost_bytes);
        }
    }

    fn arm(&mut self) -> bool {
        if self.disk.in_flight() > 0 {
            // What the disk could not take is not to wait for something to happen.
            let _ = self.disk.submit();
        } else {
            // Its event may be readable for nothing, and nobody would sleep.
            self.disk.reap();
        }
        let can_begin = self.can_begin();
        if self.is_stopping() || can_begin && self.disk.has_rest() {
            return true;
        }
        let waiting = Waiting { begun: self.begun, can_begin, is_draining: self.view.is_draining };
        !self.port.0.arm(&waiting)
    }

    fn doorbell(&self) -> &Arc<EventFd> {
        self.control.0.doorbell()
    }

    fn completion_event(&self) -> Option<BorrowedFd<'_>> {
        self.disk.queue().completion_event()
    }

    fn count_doorbell(&self) {
        self.statistics.doorbells.add(1);
    }
}
