//! The copy itself: one loop over two devices.
//!
//! There are as many data buffers as requests may be in flight, and each is in one of four places: free, being filled
//! by the input, being written by the output, or being made zero there. Buffer i goes through virtqueue i modulo their
//! number on both devices: whichever host thread serves that virtqueue reads and writes the buffer on one core, while
//! it is warm there.

use crate::failure::Failure;
use crate::settings::Settings;
use blockyard_guest_runtime::block::{BlockDevice, ControlBlock, Operation, SECTOR_BYTES, STATUS_OK};
use blockyard_guest_runtime::text::text;
use blockyard_guest_runtime::virtio_mmio::status::NEEDS_RESET;
use blockyard_guest_runtime::{serial, vcpu};
use blockyard_protocol::layout::QUEUE_DEPTH_MAX;
use blockyard_protocol::messages::{Extent, Extents, GuestMessage, GuestOperation, Progress, Vec};
use blockyard_protocol::plan::{Piece, PieceKind, PlanError, PlanLimits, Planner};
use blockyard_protocol::progress::ProgressSteps;
use blockyard_virtqueue::{Buffer, DeviceError, Used};
use core::hint;
use core::ptr::with_exposed_provenance_mut;
use core::slice;

/// How often to look for a completion before waiting for one. More costs time: the host needs the core.
const POLL_PAUSES: u32 = 100;
/// Waits in a row that nothing came of, after which to ask whether a device has given up. One or two are ordinary: an
/// interrupt may be for what was seen while polling.
const EMPTY_WAITS: u32 = 8;
/// Zeros are looked for in parts of this size, or a sector if that is larger: what file systems keep files in.
const ZERO_PART_BYTES: u64 = 4096;

/// One of the two devices, as far as it matters which.
#[derive(Clone, Copy)]
enum Side {
    Input,
    Output,
}

/// What a buffer is used for.
#[derive(Clone, Copy)]
struct Slot {
    piece: Piece,
    /// What the request in flight does.
    operation: Operation,
    /// Offset in the piece of the request in flight, and its bytes.
    offset: u64,
    bytes: u64,
}

const UNUSED: Slot = Slot {
    piece: Piece { kind: PieceKind::Zero, start: 0, copied_bytes: 0, input_bytes: 0, output_bytes: 0 },
    operation: Operation::Flush,
    offset: 0,
    bytes: 0,
};

pub(crate) struct Copy<'settings> {
    settings: &'settings Settings,
    input: BlockDevice,
    output: BlockDevice,
    planner: Planner,
    extents: ExtentFrames,
    progress: ProgressSteps,
    slots: [Slot; QUEUE_DEPTH_MAX],
    free: Vec<u16, QUEUE_DEPTH_MAX>,
    copied_bytes: u64,
    requests: u64,
    /// Most bytes that one request may make zero; 0 when the output knows no such request.
    zero_bytes_max: u64,
}

impl<'settings> Copy<'settings> {
    pub(crate) fn new(settings: &'settings Settings, input: BlockDevice, output: BlockDevice) -> Result<Self, Failure> {
        let (input_sector_bytes, output_sector_bytes) = (settings.input.sector_bytes, settings.output.sector_bytes);
        // Zeros go in whole blocks of both devices and zero parts: a device that takes less at once takes none.
        let step = u64::from(input_sector_bytes.max(output_sector_bytes)).max(ZERO_PART_BYTES);
        // The request counts in sectors with 32 bits, which the device's limit has too.
        let zero_bytes_max = output.zero_bytes_max - output.zero_bytes_max % step;
        let data_bytes_max = u64::from(settings.request_bytes);
        let limits = PlanLimits {
            length: settings.length,
            input_sector_bytes,
            output_sector_bytes,
            data_bytes_max,
            zero_bytes_max: match (settings.output.zeroed, zero_bytes_max) {
                (true, _) => u64::MAX,
                (false, 0) => data_bytes_max,
                (false, bytes) => bytes,
            },
        };
        let planner = Planner::new(limits).ok_or(Failure::config(format_args!("no plan fits the configuration")))?;
        let progress = ProgressSteps::new(settings.length, settings.progress_percent, input_sector_bytes)
            .ok_or(Failure::config(format_args!("progress_percent is over 100")))?;
        Ok(Self {
            settings,
            input,
            output,
            planner,
            extents: ExtentFrames::new(),
            progress,
            slots: [UNUSED; QUEUE_DEPTH_MAX],
            // The last one goes first.
            free: (0..settings.queue_depth).rev().collect(),
            copied_bytes: 0,
            requests: 0,
            zero_bytes_max,
        })
    }

    /// Bytes copied so far, holes included.
    pub(crate) const fn copied_bytes(&self) -> u64 {
        self.copied_bytes
    }

    /// Requests made so far, of both devices.
    pub(crate) const fn requests(&self) -> u64 {
        self.requests
    }

    /// Copies everything.
    pub(crate) fn run(&mut self) -> Result<(), Failure> {
        loop {
            let mut any = false;
            for queue in 0..self.settings.queues {
                while let Some(used) = pop(&mut self.output, queue, self.settings.output.name)? {
                    self.written(used)?;
                    any = true;
                }
                while let Some(used) = pop(&mut self.input, queue, self.settings.input.name)? {
                    self.read(used)?;
                    any = true;
                }
            }
            self.fill()?;
            self.input.publish();
            self.output.publish();
            if self.free.len() == usize::from(self.settings.queue_depth) {
                // Nothing is in flight, and nothing was left to begin.
                return Ok(());
            }
            if !any {
                self.wait()?;
            }
        }
    }

    /// Makes what was written durable, if the device keeps it otherwise.
    pub(crate) fn flush(&mut self) -> Result<(), Failure> {
        if !self.output.flushes {
            return Ok(());
        }
        let block = ControlBlock::new(0);
        self.requests += 1;
        self.output.add(0, 0, block.prepare(Operation::Flush, 0, None));
        self.output.publish();
        loop {
            if pop(&mut self.output, 0, self.settings.output.name)?.is_some() {
                self.slots[0].operation = Operation::Flush;
                return self.check(0, Side::Output);
            }
            self.wait()?;
        }
    }

    /// Begins as much as there are free buffers for.
    fn fill(&mut self) -> Result<(), Failure> {
        while let Some(&index) = self.free.last() {
            let Some(piece) = self.planner.next(|| self.extents.next()).map_err(plan_failure)? else { return Ok(()) };
            if piece.kind == PieceKind::Zero && self.settings.output.zeroed {
                self.copied(piece);
                continue;
            }
            self.free.pop();
            self.slots[usize::from(index)].piece = piece;
            match piece.kind {
                PieceKind::Data => self.submit_data(index, Side::Input, 0, piece.input_bytes),
                PieceKind::Zero if self.zero_bytes_max > 0 => self.submit_zeroes(index, 0, piece.output_bytes),
                PieceKind::Zero => {
                    self.buffer(index, piece.output_bytes).fill(0);
                    self.submit_data(index, Side::Output, 0, piece.output_bytes);
                }
            }
        }
        Ok(())
    }

    /// The input is done with a request.
    fn read(&mut self, used: Used<u16>) -> Result<(), Failure> {
        let index = used.token;
        self.check(index, Side::Input)?;
        let piece = self.slots[usize::from(index)].piece;
        // Its buffer and the status byte.
        if u64::from(used.length) != piece.input_bytes + 1 {
            let detail = text(format_args!("it wrote {} bytes, not {} and a status", used.length, piece.input_bytes));
            return Err(Failure::new(GuestOperation::Read, self.settings.input.name, detail)
                .at(piece.start / u64::from(self.settings.input.sector_bytes), STATUS_OK));
        }
        if piece.output_bytes > piece.input_bytes {
            self.buffer(index, piece.output_bytes)[piece.input_bytes as usize..].fill(0);
        }
        self.write(index, 0);
        Ok(())
    }

    /// The output is done with a request.
    fn written(&mut self, used: Used<u16>) -> Result<(), Failure> {
        let index = used.token;
        self.check(index, Side::Output)?;
        let slot = self.slots[usize::from(index)];
        self.write(index, slot.offset + slot.bytes);
        Ok(())
    }

    /// Writes the next part of a buffer, from `offset` on; when there is none, the buffer is free.
    fn write(&mut self, index: u16, mut offset: u64) {
        let piece = self.slots[usize::from(index)].piece;
        while offset < piece.output_bytes {
            let (bytes, zero) = self.next_part(index, offset);
            match zero {
                false => return self.submit_data(index, Side::Output, offset, bytes),
                true if !self.settings.output.zeroed => return self.submit_zeroes(index, offset, bytes),
                true => offset += bytes,
            }
        }
        // Each buffer is in the list once, so there is room.
        _ = self.free.push(index);
        self.copied(piece);
    }

    /// How much of a buffer from `offset` on is to be written in one request, and whether as zeros.
    fn next_part(&mut self, index: u16, offset: u64) -> (u64, bool) {
        let piece = self.slots[usize::from(index)].piece;
        let left = piece.output_bytes - offset;
        let pays = self.settings.output.zeroed || self.zero_bytes_max > 0;
        if !self.settings.detect_zeroes || !pays || piece.kind == PieceKind::Zero {
            return (left, false);
        }
        let zero_bytes_max = if self.settings.output.zeroed { left } else { left.min(self.zero_bytes_max) };
        let part_bytes = u64::from(self.settings.output.sector_bytes).max(ZERO_PART_BYTES) as usize;
        let data = &self.buffer(index, piece.output_bytes)[offset as usize..];
        let mut parts = data.chunks(part_bytes);
        let zero = parts.next().is_some_and(is_zero);
        let same = parts.take_while(|part| is_zero(part) == zero).count();
        let bytes = (((1 + same) * part_bytes) as u64).min(left);
        (if zero { bytes.min(zero_bytes_max) } else { bytes }, zero)
    }

    /// A piece is where it belongs.
    fn copied(&mut self, piece: Piece) {
        self.copied_bytes += piece.copied_bytes;
        if self.progress.crossed(self.copied_bytes) {
            serial::send(&GuestMessage::Progress(Progress { bytes: self.copied_bytes, total: self.settings.length }));
        }
    }

    /// Reads or writes a part of a buffer.
    fn submit_data(&mut self, index: u16, side: Side, offset: u64, bytes: u64) {
        let operation = match side {
            Side::Input => Operation::Read,
            Side::Output => Operation::Write,
        };
        let sector = self.set_out(index, operation, offset, bytes);
        let data = Buffer {
            address: self.buffer_address(index) + offset,
            // No more than a request's 32 bits.
            length: bytes as u32,
            writable: operation == Operation::Read,
        };
        let table = ControlBlock::new(index).prepare(operation, sector, Some(data));
        let queue = usize::from(index) % self.settings.queues;
        match side {
            Side::Input => self.input.add(queue, index, table),
            Side::Output => self.output.add(queue, index, table),
        }
    }

    /// Makes a part of a piece read as zeros.
    fn submit_zeroes(&mut self, index: u16, offset: u64, bytes: u64) {
        let sector = self.set_out(index, Operation::WriteZeroes, offset, bytes);
        let table = ControlBlock::new(index).prepare_write_zeroes(sector, (bytes / SECTOR_BYTES) as u32);
        self.output.add(usize::from(index) % self.settings.queues, index, table);
    }

    /// Remembers the request that is about to be made, and returns its sector as virtio counts them.
    fn set_out(&mut self, index: u16, operation: Operation, offset: u64, bytes: u64) -> u64 {
        self.requests += 1;
        let slot = &mut self.slots[usize::from(index)];
        *slot = Slot { operation, offset, bytes, ..*slot };
        (slot.piece.start + offset) / SECTOR_BYTES
    }

    /// Whether the request of a buffer went well.
    fn check(&self, index: u16, side: Side) -> Result<(), Failure> {
        let status = ControlBlock::new(index).status();
        if status == STATUS_OK {
            return Ok(());
        }
        let slot = &self.slots[usize::from(index)];
        let disk = match side {
            Side::Input => &self.settings.input,
            Side::Output => &self.settings.output,
        };
        let (operation, what) = match slot.operation {
            Operation::Read => (GuestOperation::Read, "reading"),
            Operation::Write => (GuestOperation::Write, "writing"),
            Operation::WriteZeroes => (GuestOperation::WriteZeroes, "writing zeros"),
            Operation::Flush => (GuestOperation::Flush, "flushing"),
        };
        let detail = match slot.operation {
            Operation::Flush => text(format_args!("{what} failed")),
            _ => {
                let start = slot.piece.start + slot.offset;
                text(format_args!("{what} {} bytes at byte {start} failed", slot.bytes))
            }
        };
        let sector = match slot.operation {
            Operation::Flush => 0,
            _ => (slot.piece.start + slot.offset) / u64::from(disk.sector_bytes),
        };
        Err(Failure::new(operation, disk.name, detail).at(sector, status))
    }

    /// Returns when a request is done, or may be: after polling briefly, at the cost of an exit.
    fn wait(&mut self) -> Result<(), Failure> {
        let mut waits = 0;
        while !self.poll() {
            // Both, whatever the first says.
            let used = self.input.enable_interrupts() | self.output.enable_interrupts();
            if !used {
                vcpu::wait();
                waits += 1;
            }
            self.input.disable_interrupts();
            self.output.disable_interrupts();
            if used || self.input.has_used() || self.output.has_used() {
                return Ok(());
            }
            if waits % EMPTY_WAITS == 0 {
                self.check_devices()?;
            }
        }
        Ok(())
    }

    /// Whether a request is done, looked at for a moment.
    fn poll(&self) -> bool {
        (0..POLL_PAUSES).any(|_| {
            hint::spin_loop();
            self.input.has_used() || self.output.has_used()
        })
    }

    /// Whether a device has given up.
    fn check_devices(&self) -> Result<(), Failure> {
        let devices = [(&self.input, self.settings.input.name), (&self.output, self.settings.output.name)];
        for (device, name) in devices {
            if device.registers().status() & NEEDS_RESET != 0 {
                return Err(Failure::new(GuestOperation::Probe, name, text(format_args!("it needs a reset"))));
            }
        }
        Ok(())
    }

    fn buffer_address(&self, index: u16) -> u64 {
        self.settings.buffers + u64::from(index) * u64::from(self.settings.request_bytes)
    }

    /// The first `bytes` of a buffer. None of its requests may be in flight.
    fn buffer(&mut self, index: u16, bytes: u64) -> &mut [u8] {
        let length = bytes.min(u64::from(self.settings.request_bytes)) as usize;
        // SAFETY: `data_buffers` put this many buffers of this length into memory that nothing else of this program
        // lies in; `self` is borrowed for as long as this slice lives, and no device has been told to write there
        // meanwhile. A device that writes nevertheless changes bytes of which any value is valid.
        unsafe { slice::from_raw_parts_mut(with_exposed_provenance_mut(self.buffer_address(index) as usize), length) }
    }
}

/// Whether all bytes are zero.
fn is_zero(bytes: &[u8]) -> bool {
    // Of a block all bytes are looked at, in vectors: faster than stopping at the first that is not zero.
    let (blocks, rest) = bytes.as_chunks::<128>();
    let none_set = |bytes: &[u8]| bytes.iter().fold(0, |any, byte| any | byte) == 0;
    blocks.iter().all(|block| none_set(block)) && none_set(rest)
}

/// Takes back a request that a device is done with.
fn pop(device: &mut BlockDevice, queue: usize, name: &'static str) -> Result<Option<Used<u16>>, Failure> {
    device.pop_used(queue).map_err(|error: DeviceError| {
        Failure::new(GuestOperation::Probe, name, text(format_args!("{error}, in virtqueue {queue}")))
    })
}

fn plan_failure(error: PlanError<Failure>) -> Failure {
    match error {
        PlanError::Source(failure) => failure,
        PlanError::EndsEarly { end } => Failure::config(format_args!("the input's extents end at byte {end}")),
        PlanError::EmptyExtent { start } => Failure::config(format_args!("the extent at byte {start} is empty")),
    }
}

/// The extents that the VMM sends, frame by frame as they are needed.
struct ExtentFrames {
    frame: Extents,
    next: usize,
}

impl ExtentFrames {
    fn new() -> Self {
        Self { frame: Extents::default(), next: 0 }
    }

    fn next(&mut self) -> Result<Option<Extent>, Failure> {
        if self.next == self.frame.extents.len() {
            if self.frame.last {
                return Ok(None);
            }
            self.frame = Extents::default();
            self.next = 0;
            serial::receive(&mut self.frame).map_err(|error| Failure::config(format_args!("{error}")))?;
        }
        let extent = self.frame.extents.get(self.next).copied();
        self.next += 1;
        match extent {
            None => Err(Failure::config(format_args!("the VMM sent a frame of no extents"))),
            some => Ok(some),
        }
    }
}
