//! Watching the guest work: its messages, its end, and whether it gets on.

use crate::conversation::Device;
use crate::plan::{Audience, CopyPlan};
use anyhow::{Result, anyhow, bail};
use blockyard_block::Remedy;
use blockyard_block::layers::Work;
use blockyard_protocol::frame::FrameError;
use blockyard_protocol::messages::{self, Complete, GuestMessage, GuestOperation, Stage};
use blockyard_vmm::event::{MachineEvent, VcpuEnd};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// What reaches the thread that watches.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "few wait at a time, and messages are the usual ones")]
pub(crate) enum Event {
    /// The guest sent a message, or something that is none.
    Guest(Result<GuestMessage, FrameError>),
    /// A line of debug text.
    Debug(String),
    /// The machine says something.
    Machine(MachineEvent),
}

/// How far the copy has come, and how much longer without progress is too long.
pub(crate) struct Watch<'a> {
    plan: &'a CopyPlan,
    events: Receiver<Event>,
    audience: &'a dyn Audience,
    length_bytes: u64,
    /// Bytes in a sector of each device.
    sector_bytes: [u32; 2],
    complete: Option<Complete>,
    /// Messages so far.
    pub(crate) frames: u64,
    /// The furthest the guest says it has come: a stage, and bytes. Saying the same again is no sign of life.
    reported: (i32, u64),
    /// When the guest began to copy, and to flush.
    pub(crate) copying: Option<Instant>,
    /// See `copying`.
    pub(crate) flushing: Option<Instant>,
}

/// How often to look whether a disk is slow.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(100);
/// What an honest guest may ask a disk for beyond the copy itself: padding, mostly.
const BYTES_SLACK: u64 = 1 << 20;

impl<'a> Watch<'a> {
    /// Watches a guest that is to copy `length_bytes` from one device to the other, in sectors of `sector_bytes`.
    pub(crate) fn new(
        plan: &'a CopyPlan,
        events: Receiver<Event>,
        audience: &'a dyn Audience,
        length_bytes: u64,
        sector_bytes: [u32; 2],
    ) -> Self {
        Self {
            plan,
            events,
            audience,
            length_bytes,
            sector_bytes,
            complete: None,
            frames: 0,
            reported: (-1, 0),
            copying: None,
            flushing: None,
        }
    }

    /// Waits until the guest has copied everything and halted. `life` counts what the guest has got done: a number that
    /// only grows, and not for ever; nor does what the guest reports: so no guest goes on without end. `data_bytes` is
    /// how much has been read, `work` what the disks have been given to do, `disk_error` where in a request that failed
    /// a disk does, and why.
    ///
    /// # Errors
    /// A sentence on what went wrong instead.
    pub(crate) fn until_done(
        &mut self,
        life: impl Fn() -> u64,
        data_bytes: impl Fn() -> u64,
        work: impl Fn() -> [Work; 2],
        disk_error: impl Fn(Device, u64) -> Option<(u64, String)>,
    ) -> Result<Complete> {
        let (mut last_life, mut last_sign) = (None, Instant::now());
        let (mut last_work, mut last_sample) = (work(), Instant::now());
        loop {
            let event = match self.events.recv_timeout(Duration::from_millis(100)) {
                Ok(event) => Some(event),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => bail!("the virtual machine is gone"),
            };
            if let Some(signal) = self.audience.asks_to_end() {
                bail!("stopped by {signal}");
            }
            if let Some(event) = event
                && let Some(complete) = self.take(event, &disk_error)?
            {
                self.audience.is_done();
                return Ok(complete);
            }
            self.audience.progress(self.reported.1, self.length_bytes, data_bytes());
            let now = Some((self.reported, life()));
            // A disk that has work and gets none of it done for a while is slow; that is not the guest's fault. But an
            // honest guest does not ask for much more than there is: whoever does has no excuse.
            let mut disk_is_slow = false;
            if last_sample.elapsed() >= SAMPLE_INTERVAL {
                let now_work = work();
                disk_is_slow = now_work.iter().zip(last_work).any(|(now, before)| {
                    now.is_stuck_since(before) && now.bytes_taken <= self.length_bytes.saturating_mul(2) + BYTES_SLACK
                });
                (last_work, last_sample) = (now_work, Instant::now());
            }
            if now != last_life || disk_is_slow {
                (last_life, last_sign) = (now, Instant::now());
            }
            if let Some(timeout) = self.plan.timeout
                && last_sign.elapsed() >= timeout
            {
                bail!("the guest has shown no progress for {} s: {}", timeout.as_secs_f64(), Remedy::LongerTimeout);
            }
        }
    }

    fn take(
        &mut self,
        event: Event,
        disk_error: &impl Fn(Device, u64) -> Option<(u64, String)>,
    ) -> Result<Option<Complete>> {
        match event {
            Event::Guest(message) => {
                let message = message.map_err(|error| anyhow!("the guest sent {error}"))?;
                self.frames += 1;
                self.debug(|| format!("guest: {message:?}"));
                self.message(message, disk_error)?;
            }
            Event::Debug(line) => self.debug(|| format!("debug: {line}")),
            Event::Machine(MachineEvent::VcpuEnded(end)) => return self.ended(end).map(Some),
            Event::Machine(MachineEvent::DriverError(sentence)) => {
                bail!("the guest's driver broke the rules: {sentence}")
            }
            Event::Machine(MachineEvent::IoFailed(sentence)) => bail!("{sentence}"),
        }
        Ok(None)
    }

    fn message(
        &mut self,
        message: GuestMessage,
        disk_error: &impl Fn(Device, u64) -> Option<(u64, String)>,
    ) -> Result<()> {
        if self.complete.is_some() {
            bail!("the guest went on after it reported Complete");
        }
        match message {
            GuestMessage::Init(init) => {
                let stage = init.stage.0.min(Stage::Flushing.0);
                self.reported.0 = self.reported.0.max(stage);
                match init.stage {
                    Stage::Copying => self.copying = self.copying.or(Some(Instant::now())),
                    Stage::Flushing => self.flushing = self.flushing.or(Some(Instant::now())),
                    _ => {}
                }
            }
            GuestMessage::Capacity(_) | GuestMessage::None => {}
            GuestMessage::Progress(progress) => {
                let bytes = progress.bytes.min(self.length_bytes);
                self.reported.1 = self.reported.1.max(bytes);
            }
            GuestMessage::Error(error) => return Err(self.guest_error(&error, disk_error)),
            GuestMessage::Complete(complete) if complete.bytes == self.length_bytes => self.complete = Some(complete),
            GuestMessage::Complete(complete) => {
                bail!("the guest reported Complete after {} of {} bytes", complete.bytes, self.length_bytes)
            }
        }
        Ok(())
    }

    fn ended(&mut self, end: VcpuEnd) -> Result<Complete> {
        match (end, self.complete.take()) {
            (VcpuEnd::Halted, Some(complete)) => Ok(complete),
            (VcpuEnd::Halted, None) => bail!("the guest halted before it reported Complete"),
            (end, _) => Err(end.into()),
        }
    }

    /// The guest says where, the disk says why.
    fn guest_error(
        &self,
        error: &messages::Error,
        disk_error: &impl Fn(Device, u64) -> Option<(u64, String)>,
    ) -> anyhow::Error {
        let device = if error.device.as_str() == Device::Output.name() { Device::Output } else { Device::Input };
        let disk = match device {
            Device::Input => &self.plan.input.named,
            Device::Output => &self.plan.output.named,
        };
        let sector_bytes = self.sector_bytes[device as usize];
        let verb = match error.operation {
            GuestOperation::Read => "read",
            GuestOperation::Write | GuestOperation::WriteZeroes => "write",
            GuestOperation::Flush => "flush",
            _ => {
                let device = if error.device.is_empty() {
                    String::new()
                } else {
                    format!(" (device {})", printable(&error.device))
                };
                let detail = printable(&error.detail);
                return anyhow!("the guest gave up during {}{device}: {detail}", operation_name(error.operation));
            }
        };
        let offset = error.sector.saturating_mul(u64::from(sector_bytes));
        let place = |offset| if verb == "flush" { String::new() } else { format!(" at byte {offset}") };
        match disk_error(device, offset) {
            Some((offset, why)) => anyhow!("cannot {verb} {disk}{}: {why}", place(offset)),
            None => anyhow!(
                "the guest could not {verb} {disk}{}: virtio-blk status {}{}",
                place(offset),
                error.status,
                if error.detail.is_empty() { String::new() } else { format!(", {}", printable(&error.detail)) },
            ),
        }
    }

    fn debug(&self, line: impl FnOnce() -> String) {
        if self.plan.debug {
            self.audience.debug(&line());
        }
    }
}

fn operation_name(operation: GuestOperation) -> &'static str {
    match operation {
        GuestOperation::Config => "configuration",
        GuestOperation::Probe => "device set-up",
        GuestOperation::Panic => "a panic",
        _ => "an operation of its own",
    }
}

/// A guest's text without anything that a terminal would obey.
fn printable(text: &str) -> String {
    text.escape_debug().collect()
}
