//! A virtual CPU on KVM.

use super::emulates_guests;
use super::kick::{KvmKick, RunState};
use super::run_area::{Left, RunArea};
use super::{os, registers};
use crate::{Error, Exit, Kick, Registers, Vcpu};
use blockyard_block::MemoryMap;
use kvm_bindings::{
    KVM_EXIT_INTR, KVM_EXIT_IRQ_WINDOW_OPEN, KVM_EXIT_MEMORY_FAULT, KVM_EXIT_SET_TPR, KVM_INTERNAL_ERROR_DELIVERY_EV,
    KVM_INTERNAL_ERROR_EMULATION, KVM_INTERNAL_ERROR_SIMUL_EX, KVM_SYSTEM_EVENT_RESET, KVM_SYSTEM_EVENT_SHUTDOWN,
};
use kvm_ioctls::VcpuFd;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;

#[derive(Debug)]
pub(super) struct KvmVcpu {
    fd: VcpuFd,
    state: Arc<RunState>,
    /// The kernel accesses guest memory by its address here for as long as the vCPU runs.
    _memory: Vec<MemoryMap>,
}

impl KvmVcpu {
    pub(super) fn new(fd: VcpuFd, run_area_bytes: usize, memory: Vec<MemoryMap>) -> Result<Self, Error> {
        // SAFETY: open as long as `fd` is, which outlives this borrow.
        let borrowed = unsafe { BorrowedFd::borrow_raw(fd.as_raw_fd()) };
        let area = RunArea::map(borrowed, run_area_bytes)
            .map_err(|source| Error::Os { what: "mapping the area a vCPU shares with KVM", source })?;
        Ok(Self { fd, state: RunState::new(area)?, _memory: memory })
    }

    /// KVM_RUN until there is something to tell: true after an exit, false after a kick.
    fn run_until_exit(&mut self) -> Result<bool, Error> {
        loop {
            self.state.enter();
            // What kvm-ioctls makes of the exit lacks the item size of port I/O: `RunArea::left` has all of it.
            let result = self.fd.run().map(drop);
            self.state.leave();
            match result {
                Ok(()) => return Ok(true),
                Err(error) if matches!(error.errno(), libc::EINTR | libc::EAGAIN) => {
                    // Otherwise it was somebody else's signal.
                    if self.state.take_kick() {
                        return Ok(false);
                    }
                }
                Err(error) => return Err(os("running a vCPU")(error)),
            }
        }
    }

    /// Whether the exit that just happened is none of the VMM's business.
    fn is_spurious(&mut self) -> bool {
        // KVM_EXIT_SET_TPR: a guest without an interrupt controller in the kernel lowered its task priority (CR8).
        // The others belong to an interrupt window nobody asks for.
        const SPURIOUS: [u32; 3] = [KVM_EXIT_SET_TPR, KVM_EXIT_IRQ_WINDOW_OPEN, KVM_EXIT_INTR];
        SPURIOUS.contains(&self.fd.get_kvm_run().exit_reason)
    }

    /// Where the guest is, for messages.
    fn instruction_pointer(&self) -> String {
        self.fd.get_regs().map_or_else(|_| "an unknown address".to_owned(), |registers| format!("{:#x}", registers.rip))
    }
}

impl Vcpu for KvmVcpu {
    fn run(&mut self) -> Result<Exit<'_>, Error> {
        loop {
            if !self.run_until_exit()? {
                return Ok(Exit::Kicked);
            }
            if !self.is_spurious() {
                break;
            }
        }
        // SAFETY: this is the vCPU, held exclusively as long as the exit lives, and not in KVM_RUN.
        let left = unsafe { self.state.left() };
        Ok(match left {
            Left::Port { port, size, input: true, data } => Exit::PortIn { port, size, data },
            Left::Port { port, size, input: false, data } => Exit::PortOut { port, size, data },
            Left::Mmio { address, write: false, data } => Exit::MmioRead { address, data },
            Left::Mmio { address, write: true, data } => Exit::MmioWrite { address, data },
            Left::Halt => Exit::Halt,
            Left::Shutdown | Left::SystemEvent(KVM_SYSTEM_EVENT_SHUTDOWN | KVM_SYSTEM_EVENT_RESET) => Exit::Shutdown,
            failure => Exit::Crashed(crash_sentence(&failure, &self.instruction_pointer())),
        })
    }

    fn kicker(&self) -> Arc<dyn Kick> {
        Arc::new(KvmKick(Arc::downgrade(&self.state)))
    }

    fn registers(&self) -> Option<Registers> {
        Some(registers::registers(&self.fd.get_regs().ok()?, &self.fd.get_sregs().ok()?))
    }
}

/// What the guest did, where KVM cannot go on.
fn crash_sentence(left: &Left<'_>, at: &str) -> String {
    match left {
        Left::InternalError { suberror: KVM_INTERNAL_ERROR_EMULATION, instruction } => {
            let bytes: Vec<_> = instruction.iter().flatten().map(|byte| format!("{byte:02x}")).collect();
            let bytes = if bytes.is_empty() { String::new() } else { format!(" (bytes {})", bytes.join(" ")) };
            let why = match emulates_guests() {
                true => {
                    "it is PVM here, which has to emulate each instruction, and not all can be; another backend \
                     executes them"
                }
                false => "no memory there, or an unusual instruction on a device address",
            };
            format!("the guest executed something at {at}{bytes} that KVM cannot emulate: {why}")
        }
        Left::InternalError { suberror: KVM_INTERNAL_ERROR_SIMUL_EX, .. } => {
            format!("the guest raised two exceptions at once at {at}")
        }
        Left::InternalError { suberror: KVM_INTERNAL_ERROR_DELIVERY_EV, .. } => {
            format!("the guest took an exception at {at} whose handler cannot be reached")
        }
        Left::InternalError { suberror, .. } => format!("KVM gave up on the guest at {at} (internal error {suberror})"),
        Left::FailEntry { reason } => {
            format!("the guest put its processor into an impossible state at {at} (hardware reason {reason:#x})")
        }
        Left::SystemEvent(event) => format!("the guest raised system event {event} at {at}"),
        Left::Other(KVM_EXIT_MEMORY_FAULT) => format!("the guest at {at} needs memory that the host cannot provide"),
        Left::Other(reason) => format!("the guest left KVM at {at} in a way it was never allowed to (exit {reason})"),
        Left::Port { .. } | Left::Mmio { .. } | Left::Halt | Left::Shutdown => format!("the guest stopped at {at}"),
    }
}
