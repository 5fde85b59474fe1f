//! A VM that exists as long as the lab does.
//!
//! Linux patches its own scheduler whenever the first VM is created and the last one goes (the static keys
//! `preempt_notifier_key` and `kvm_has_noapic_vcpu`). QEMU 7.2 with a thread a CPU now and then goes on executing a
//! breakpoint that such a patch puts in its way for a moment: that CPU takes #BP for ever, with interrupts off, and the
//! lab stands still. With one VM always there, nothing is patched while tests run.

use anyhow::Context;
use kvm_ioctls::Kvm;
use std::convert::Infallible;
use std::{fs, thread};

/// How init calls for it, as xtask's only argument.
pub(crate) const COMMAND: &str = "lab-anchor";
/// Appears when the VM is there.
pub(super) const READY: &str = "/run/lab-anchor";

/// Creates a VM with a vCPU, says so, and stays.
///
/// # Errors
/// When there is no KVM.
pub(crate) fn hold() -> anyhow::Result<Infallible> {
    let vm = Kvm::new().and_then(|kvm| kvm.create_vm()).context("cannot create a VM")?;
    let _vcpu = vm.create_vcpu(0).context("cannot create a vCPU")?;
    fs::write(READY, "").context("cannot say that the VM is there")?;
    loop {
        thread::park();
    }
}
