//! A port's registers: the driver's side of them, and what the thread that serves the port looks at and changes.
//!
//! All of them are behind one lock, which is held for a few instructions: twice for a batch of commands on the side of
//! the queue, so that what it shows (commands done, interrupt status, task file) changes at once, and never after the
//! driver stopped the port.

use super::ata::Status;
use super::registers::{self as bits, port};
use crate::Interrupt;
use blockyard_block::EventFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// PxSIG of an ATA disk.
const ATA_SIGNATURE: u32 = 0x0000_0101;
/// PxSIG and PxTFD before a disk has sent its first frame.
const NO_SIGNATURE: u32 = 0xffff_ffff;
const NO_TASK_FILE: u32 = 0x7f;

/// Of generic host control, what changes: IS, GHC.IE and GHC.HR.
#[derive(Debug, Default)]
pub(super) struct HostState {
    pub(super) interrupt_status: AtomicU32,
    pub(super) interrupts_enabled: AtomicBool,
    pub(super) is_resetting: AtomicBool,
}

/// A port. Its driver reads and writes, its queue looks and shows.
pub(super) struct Port {
    index: u8,
    registers: Mutex<Registers>,
    doorbell: Arc<EventFd>,
    host: Arc<HostState>,
    interrupt: Arc<dyn Interrupt>,
}

#[derive(Debug)]
struct Registers {
    command_list: u64,
    received_fis: u64,
    interrupt_status: u32,
    interrupt_enable: u32,
    /// PxCMD.ST and FRE.
    is_started: bool,
    receives_frames: bool,
    current_slot: u8,
    task_file: u32,
    signature: u32,
    sata_control: u32,
    sata_error: u32,
    active: u32,
    issued: u32,
    /// The disk has been reset, and its first frame has not come.
    signature_is_due: bool,
    /// A command has failed: no other is begun until the driver stops the port.
    is_halted: bool,
    /// The driver stopped the port, and the queue has not let go of all commands.
    is_draining: bool,
    /// The queue's thread waits for the doorbell.
    is_armed: bool,
    /// Then, the queue has no commands either.
    is_quiet: bool,
    /// There is no queue any more.
    is_gone: bool,
}

/// A port as its queue finds it.
#[derive(Clone, Copy, Debug)]
pub(super) struct View {
    pub(super) command_list: u64,
    /// Where frames go, if they are received.
    pub(super) received_fis: Option<u64>,
    /// Slots with commands that are not done.
    pub(super) issued: u32,
    /// Commands may be begun.
    pub(super) is_running: bool,
    pub(super) is_draining: bool,
    /// The disk is to send its first frame.
    pub(super) sends_signature: bool,
}

/// What a queue has done.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Change {
    /// Slots whose commands are done, or, if queued, accepted.
    pub(super) cleared: u32,
    /// Slots whose queued commands are done.
    pub(super) deactivated: u32,
    pub(super) interrupts: u32,
    pub(super) task_file: Option<Status>,
    /// The slot of the last command that was not queued.
    pub(super) current_slot: Option<u8>,
    pub(super) halts: bool,
}

/// A queue that has done what it could.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    /// Slots whose commands it has.
    pub(super) begun: u32,
    /// It could begin others.
    pub(super) can_begin: bool,
    /// It knows that the driver stopped the port.
    pub(super) is_draining: bool,
}

/// Whether a change of registers is something for the queue to look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    No,
    Yes,
}

impl Port {
    pub(super) fn new(index: u8, doorbell: Arc<EventFd>, host: Arc<HostState>, interrupt: Arc<dyn Interrupt>) -> Self {
        Self { index, registers: Mutex::new(Registers::at_power_on()), doorbell, host, interrupt }
    }

    pub(super) fn index(&self) -> u8 {
        self.index
    }

    /// The driver reads the register at `offset`.
    pub(super) fn read(&self, offset: u64) -> u32 {
        self.lock().read(offset)
    }

    /// The driver writes the register at `offset`.
    pub(super) fn write(&self, offset: u64, value: u32) {
        self.change(|registers| registers.write(offset, value));
    }

    /// The whole controller is reset.
    pub(super) fn reset(&self) {
        self.change(|registers| {
            let work = registers.stop();
            registers.reset();
            work
        });
    }

    /// Whether the port was stopped and something of its commands is still under way.
    pub(super) fn is_draining(&self) -> bool {
        self.lock().is_draining
    }

    /// The driver has acknowledged the port's interrupt, or lets interrupts through.
    pub(super) fn interrupt_again(&self) {
        if self.lock().pending() != 0 {
            self.interrupt();
        }
    }

    /// The queue begins to process.
    pub(super) fn look(&self) -> View {
        let mut registers = self.lock();
        registers.is_armed = false;
        registers.is_quiet = false;
        registers.view()
    }

    /// The queue shows what it has done. False, and nothing shown, if the driver has stopped the port meanwhile.
    pub(super) fn show(&self, change: &Change) -> bool {
        let mut shown = false;
        self.change(|registers| {
            shown = !registers.is_draining;
            if shown {
                registers.show(change);
            }
            Work::No
        });
        shown
    }

    /// The disk has sent its first frame.
    pub(super) fn show_signature(&self) {
        self.change(|registers| {
            if registers.signature_is_due && registers.link_is_up() {
                registers.signature_is_due = false;
                registers.task_file = Status::PASSED.register();
                registers.signature = ATA_SIGNATURE;
            }
            Work::No
        });
    }

    /// The queue has let go of all commands.
    pub(super) fn end_drain(&self) {
        self.lock().end_drain();
    }

    /// The queue's thread is about to wait for the doorbell. False if there is something to do for a queue that is as
    /// `queue` says.
    pub(super) fn arm(&self, queue: &Waiting) -> bool {
        let mut registers = self.lock();
        let view = registers.view();
        let has_commands = view.is_running && view.issued & !queue.begun != 0;
        let has_work =
            view.is_draining && !queue.is_draining || view.sends_signature || has_commands && queue.can_begin;
        registers.is_armed = !has_work;
        registers.is_quiet = !has_work && queue.begun == 0;
        !has_work
    }

    /// There is no queue any more: the disk is unplugged.
    pub(super) fn unplug(&self) {
        self.change(|registers| {
            registers.is_gone = true;
            registers.sata_error |= bits::PHY_READY_CHANGED;
            registers.end_drain();
            Work::No
        });
    }

    fn lock(&self) -> MutexGuard<'_, Registers> {
        // They are registers, whatever the thread that panicked was about to do.
        self.registers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes registers, wakes the queue if there is work for it, and interrupts if there is a new reason to.
    fn change(&self, change: impl FnOnce(&mut Registers) -> Work) {
        let (wakes, interrupts) = {
            let mut registers = self.lock();
            let before = registers.pending();
            let work = change(&mut registers);
            let wakes = matches!(work, Work::Yes) && std::mem::take(&mut registers.is_armed);
            if wakes {
                registers.is_quiet = false;
            }
            (wakes, registers.pending() & !before != 0)
        };
        if wakes {
            self.doorbell.ring();
        }
        if interrupts {
            self.interrupt();
        }
    }

    fn interrupt(&self) {
        self.host.interrupt_status.fetch_or(1 << self.index, Ordering::SeqCst);
        if self.host.interrupts_enabled.load(Ordering::SeqCst) {
            self.interrupt.signal();
        }
    }
}

impl Registers {
    fn at_power_on() -> Self {
        Self {
            command_list: 0,
            received_fis: 0,
            interrupt_status: 0,
            interrupt_enable: 0,
            is_started: false,
            receives_frames: false,
            current_slot: 0,
            task_file: NO_TASK_FILE,
            signature: NO_SIGNATURE,
            sata_control: 0,
            sata_error: 0,
            active: 0,
            issued: 0,
            signature_is_due: true,
            is_halted: false,
            is_draining: false,
            is_armed: false,
            is_quiet: false,
            is_gone: false,
        }
    }

    /// As after power-on, but for what the queue and the driver have said of memory (§10.4.3).
    fn reset(&mut self) {
        let Self { command_list, received_fis, is_halted, is_draining, is_armed, is_quiet, is_gone, .. } = *self;
        let kept = Self { command_list, received_fis, ..Self::at_power_on() };
        *self = Self { is_halted, is_draining, is_armed, is_quiet, is_gone, ..kept };
    }

    fn read(&self, offset: u64) -> u32 {
        match offset {
            port::COMMAND_LIST => self.command_list as u32,
            port::COMMAND_LIST_UPPER => (self.command_list >> 32) as u32,
            port::RECEIVED_FIS => self.received_fis as u32,
            port::RECEIVED_FIS_UPPER => (self.received_fis >> 32) as u32,
            port::INTERRUPT_STATUS => self.causes(),
            port::INTERRUPT_ENABLE => self.interrupt_enable,
            port::COMMAND => self.command(),
            port::TASK_FILE => self.task_file,
            port::SIGNATURE => self.signature,
            port::SATA_STATUS => self.sata_status(),
            port::SATA_CONTROL => self.sata_control,
            port::SATA_ERROR => self.sata_error,
            port::SATA_ACTIVE => self.active,
            port::COMMAND_ISSUE => self.issued,
            _ => 0,
        }
    }

    fn write(&mut self, offset: u64, value: u32) -> Work {
        match offset {
            port::COMMAND_LIST => set_lower(&mut self.command_list, value & !0x3ff),
            port::COMMAND_LIST_UPPER => set_upper(&mut self.command_list, value),
            port::RECEIVED_FIS => set_lower(&mut self.received_fis, value & !0xff),
            port::RECEIVED_FIS_UPPER => set_upper(&mut self.received_fis, value),
            port::INTERRUPT_STATUS => self.interrupt_status &= !value,
            port::INTERRUPT_ENABLE => self.interrupt_enable = value & bits::INTERRUPTS,
            port::COMMAND => return self.write_command(value),
            port::SATA_CONTROL => return self.write_sata_control(value),
            port::SATA_ERROR => self.sata_error &= !value,
            // Both are written with ones, and only while the port is started (§3.3.13, §3.3.14).
            port::SATA_ACTIVE if self.is_started => self.active |= value,
            port::COMMAND_ISSUE if self.is_started => {
                self.issued |= value;
                self.note_busy();
                return Work::Yes;
            }
            _ => {}
        }
        Work::No
    }

    fn command(&self) -> u32 {
        let bit = |is_set: bool, bit: u32| if is_set { bit } else { 0 };
        let is_running = self.is_started || self.is_draining;
        bits::SPUN_UP_AND_POWERED
            | bit(self.is_started, bits::START)
            | bit(self.receives_frames, bits::FIS_RECEIVE_ENABLE)
            | bit(self.receives_frames || is_running, bits::FIS_RECEIVE_RUNNING)
            | bit(is_running, bits::COMMAND_LIST_RUNNING)
            | u32::from(self.current_slot) << bits::CURRENT_SLOT_SHIFT
    }

    fn write_command(&mut self, value: u32) -> Work {
        if value & bits::COMMAND_LIST_OVERRIDE != 0 {
            self.task_file &= !u32::from(Status::BUSY | Status::DATA_REQUEST);
        }
        self.receives_frames = value & bits::FIS_RECEIVE_ENABLE != 0;
        match (self.is_started, value & bits::START != 0) {
            (true, false) => self.stop(),
            (_, starts) => {
                self.is_started = starts;
                Work::Yes
            }
        }
    }

    /// A disk's detection and its first frame follow a reset of the link (§10.4.2).
    fn write_sata_control(&mut self, value: u32) -> Work {
        let was_up = self.link_is_up();
        self.sata_control = value & 0xfff;
        match (was_up, self.link_is_up()) {
            (true, false) => {
                let work = self.stop();
                (self.task_file, self.signature) = (NO_TASK_FILE, NO_SIGNATURE);
                self.signature_is_due = false;
                work
            }
            (false, true) => {
                self.sata_error |= bits::EXCHANGED;
                self.task_file = u32::from(Status::BUSY);
                self.signature_is_due = true;
                Work::Yes
            }
            _ => Work::No,
        }
    }

    fn link_is_up(&self) -> bool {
        self.sata_control & bits::DETECTION == 0 && !self.is_gone
    }

    fn sata_status(&self) -> u32 {
        match self.sata_control & bits::DETECTION {
            _ if self.is_gone => 0,
            0 => bits::LINK_UP,
            bits::LINK_OFFLINE => bits::LINK_OFFLINE,
            _ => 0,
        }
    }

    /// The port takes no more commands and forgets those it has: at once if its queue has none.
    fn stop(&mut self) -> Work {
        self.is_started = false;
        (self.issued, self.active) = (0, 0);
        if self.is_gone || self.is_quiet {
            self.end_drain();
            return Work::No;
        }
        self.is_draining = true;
        Work::Yes
    }

    fn end_drain(&mut self) {
        (self.is_draining, self.is_halted) = (false, false);
        if self.task_file & u32::from(Status::BUSY) != 0 && self.link_is_up() && !self.signature_is_due {
            self.task_file = Status::DONE.register();
        }
    }

    /// PxIS: two causes are what PxSERR says.
    fn causes(&self) -> u32 {
        let cause = |error: u32, cause: u32| if self.sata_error & error != 0 { cause } else { 0 };
        self.interrupt_status
            | cause(bits::EXCHANGED, bits::CONNECT_CHANGE)
            | cause(bits::PHY_READY_CHANGED, bits::PHY_READY_CHANGE)
    }

    fn pending(&self) -> u32 {
        self.causes() & self.interrupt_enable
    }

    fn view(&self) -> View {
        let is_up = self.link_is_up();
        View {
            command_list: self.command_list,
            received_fis: self.receives_frames.then_some(self.received_fis),
            issued: self.issued,
            is_running: self.is_started && is_up && !self.is_halted && !self.is_draining && !self.signature_is_due,
            is_draining: self.is_draining,
            sends_signature: self.signature_is_due && is_up && self.receives_frames && !self.is_draining,
        }
    }

    fn show(&mut self, change: &Change) {
        self.issued &= !change.cleared;
        self.active &= !change.deactivated;
        self.interrupt_status |= change.interrupts;
        self.is_halted |= change.halts;
        if let Some(status) = change.task_file {
            self.task_file = status.register();
        }
        if let Some(slot) = change.current_slot {
            self.current_slot = slot;
        }
        self.note_busy();
    }

    /// A disk that has a command which is not queued is busy.
    fn note_busy(&mut self) {
        if self.issued & !self.active != 0 && !self.is_halted {
            self.task_file |= u32::from(Status::BUSY);
        }
    }
}

fn set_lower(address: &mut u64, value: u32) {
    *address = *address >> 32 << 32 | u64::from(value);
}

fn set_upper(address: &mut u64, value: u32) {
    *address = *address & 0xffff_ffff | u64::from(value) << 32;
}
