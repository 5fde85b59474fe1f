//! What happens in a running machine that whoever started it should know.

use blockyard_block::explain;
use blockyard_devices::IoQueueFailure;
use blockyard_devices::virtio::DeviceFailure;
use blockyard_hypervisor as hypervisor;
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
    #[error("the guest shut down: it met a fault while handling a fault")]
    Shutdown,
    /// It did something impossible: a sentence.
    #[error("the guest crashed: {0}")]
    Crashed(String),
    /// The hypervisor failed.
    #[error("the hypervisor failed")]
    Failed(#[source] hypervisor::Error),
    /// [`crate::machine::RunningMachine::stop`] asked it to.
    #[error("the virtual machine was stopped")]
    Stopped,
}

/// Where [`MachineEvent`]s go. Called from the machine's threads.
pub type EventSink = Arc<dyn Fn(MachineEvent) + Send + Sync>;
