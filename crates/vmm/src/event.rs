//! What happens in a running machine that whoever started it should know.

use blockyard_block::explain;
use blockyard_devices::IoQueueFailure;
use blockyard_devices::virtio::DeviceFailure;
use blockyard_hypervisor::{self as hypervisor, Registers};
use std::fmt;
use std::sync::Arc;

/// One thing that happened.
#[derive(Debug)]
pub enum MachineEvent {
    /// A vCPU has stopped for good.
    VcpuEnded(VcpuEnd),
    /// A driver broke the rules so badly that its device wants a reset: a sentence.
    DriverError(String),
    /// An I/O thread cannot go on: a sentence.
    IoFailed(String),
}

impl MachineEvent {
    fn of_failure(failure: &(dyn std::error::Error + 'static), is_drivers_fault: bool) -> Self {
        let sentence = explain(failure);
        if is_drivers_fault { Self::DriverError(sentence) } else { Self::IoFailed(sentence) }
    }
}

impl From<&DeviceFailure> for MachineEvent {
    fn from(failure: &DeviceFailure) -> Self {
        Self::of_failure(failure, failure.is_drivers_fault())
    }
}

impl From<&IoQueueFailure> for MachineEvent {
    fn from(failure: &IoQueueFailure) -> Self {
        Self::of_failure(failure, failure.is_drivers_fault())
    }
}

/// How a vCPU ended: as an error it says so to whoever did not want that.
#[derive(Debug, thiserror::Error)]
pub enum VcpuEnd {
    /// `hlt`: nothing here wakes it.
    #[error("the guest halted")]
    Halted,
    /// It shut down or triple-faulted.
    #[error("the guest shut down: it met a fault while handling a fault{0}")]
    Shutdown(LastState),
    /// It did something impossible: a sentence.
    #[error("the guest crashed: {0}{1}")]
    Crashed(String, LastState),
    /// The hypervisor failed.
    #[error("the hypervisor failed")]
    Failed(#[source] hypervisor::Error),
    /// [`crate::machine::RunningMachine::stop`] asked it to.
    #[error("the virtual machine was stopped")]
    Stopped,
}

/// What is known of a vCPU that has died: in words, lines below a sentence, or nothing.
#[derive(Debug, Default)]
pub struct LastState {
    /// Which vCPU.
    pub vcpu: usize,
    /// What it had in its registers.
    pub registers: Option<Box<Registers>>,
}

impl fmt::Display for LastState {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(registers) = &self.registers else { return Ok(()) };
        // kvm_amd resets a processor that shuts down (Linux, arch/x86/kvm/svm/svm.c, shutdown_interception).
        let reset = match registers.are_as_after_a_reset() {
            true => ", which has been reset since, so that what it had before is lost",
            false => "",
        };
        write!(formatter, "\nregisters of vCPU {}{reset}:\n{registers}", self.vcpu)
    }
}

/// Where [`MachineEvent`]s go. Called from the machine's threads.
pub type EventSink = Arc<dyn Fn(MachineEvent) + Send + Sync>;

#[cfg(test)]
mod tests {
    use super::*;
    use blockyard_hypervisor::SegmentRegister;

    #[test]
    fn a_vcpu_that_died_is_told_with_its_registers() {
        let mut registers = Registers { rip: 0xfff0, ..Registers::default() };
        let told = |registers: &Registers| {
            let state = LastState { vcpu: 1, registers: Some(Box::new(registers.clone())) };
            explain(&VcpuEnd::Crashed("it went astray".into(), state))
        };
        let said = told(&registers);
        assert!(said.starts_with("the guest crashed: it went astray\nregisters of vCPU 1:\n  rip"), "{said}");
        registers.segments[0] = SegmentRegister { selector: 0xf000, base: 0xffff_0000 };
        let said = told(&registers);
        assert!(said.contains("vCPU 1, which has been reset since, so that what it had before is lost:\n"), "{said}");
        let said = explain(&VcpuEnd::Shutdown(LastState::default()));
        assert_eq!(said, "the guest shut down: it met a fault while handling a fault");
    }
}
