//! What happens in a running machine that whoever started it should know.

use blockyard_devices::virtio::DeviceFailure;
use blockyard_hypervisor as hypervisor;
use std::sync::Arc;

/// One thing that happened.
#[derive(Debug)]
pub enum MachineEvent {
    /// The vCPU has stopped for good.
    VcpuEnded(VcpuEnd),
    /// A driver broke the rules so badly that its device wants a reset: a sentence.
    DriverError(String),
    /// An I/O thread cannot go on: a sentence.
    IoFailed(String),
}

impl From<&DeviceFailure> for MachineEvent {
    fn from(failure: &DeviceFailure) -> Self {
        let sentence = failure.to_string();
        if failure.is_drivers_fault() { Self::DriverError(sentence) } else { Self::IoFailed(sentence) }
    }
}

/// How a vCPU ended.
#[derive(Debug)]
pub enum VcpuEnd {
    /// `hlt`: nothing here wakes it.
    Halted,
    /// It shut down or triple-faulted.
    Shutdown,
    /// It did something impossible: a sentence.
    Crashed(String),
    /// The hypervisor failed.
    Failed(hypervisor::Error),
    /// [`crate::machine::RunningMachine::stop`] asked it to.
    Stopped,
}

/// Where [`MachineEvent`]s go. Called from the machine's threads.
pub type EventSink = Arc<dyn Fn(MachineEvent) + Send + Sync>;
