//! Guests on /dev/kvm.
//!
//! [`KvmHypervisor`] opens the device and checks it; [`probe()`] says whether and how well it would work, for
//! `--backend auto`, and [`examine()`] for `blockyard doctor`, whose guest tries more. A doorbell is an ioeventfd.
//! Leaving [`Vcpu::run`](crate::Vcpu::run) from another thread sets `immediate_exit` and sends the vCPU's thread a
//! real-time signal.
//!
//! Interrupt controllers, where a VM has them, are the kernel's, and an interrupt an irqfd. A VM that is not given them
//! runs guests that take no interrupts and whose `hlt` is an exit ([`Entry::Flat64`](crate::Entry::Flat64)).

mod cpuid;
mod event_routes;
mod interrupts;
mod kick;
mod long_mode;
mod probe;
mod protected_mode;
mod registers;
mod run_area;
mod segments;
mod start;
mod vcpu;
mod vm;

pub use probe::{Probe, emulates_guests, examine, is_native, nanoseconds_per_instruction, probe};

use crate::{Capabilities, Error, Hypervisor, Vm};
use kvm_bindings::{CpuId, KVM_API_VERSION, KVM_MAX_CPUID_ENTRIES};
use kvm_ioctls::{Cap, Kvm};
use rustix::io::Errno;
use std::io;

/// What this module calls without asking again.
const REQUIRED: [(Cap, &str); 6] = [
    (Cap::UserMemory, "KVM_CAP_USER_MEMORY"),
    (Cap::Ioeventfd, "KVM_CAP_IOEVENTFD"),
    (Cap::ImmediateExit, "KVM_CAP_IMMEDIATE_EXIT"),
    (Cap::ExtCpuid, "KVM_CAP_EXT_CPUID"),
    (Cap::SetTssAddr, "KVM_CAP_SET_TSS_ADDR"),
    (Cap::SetIdentityMapAddr, "KVM_CAP_SET_IDENTITY_MAP_ADDR"),
];

/// /dev/kvm, opened and checked.
#[derive(Debug)]
pub struct KvmHypervisor {
    kvm: Kvm,
    cpuid: CpuId,
    run_area_bytes: usize,
}

impl KvmHypervisor {
    /// Opens /dev/kvm and checks that it can do what guests here need.
    ///
    /// # Errors
    /// When the device is absent, not permitted or too old: a sentence that says what to do about it.
    pub fn open() -> Result<Self, Error> {
        let kvm = Kvm::new().map_err(|error| {
            let closed = probe::closed(Errno::from_raw_os_error(error.errno()));
            Error::Refused(closed.in_words())
        })?;
        let version = kvm.get_api_version();
        if version != KVM_API_VERSION as i32 {
            return Err(Error::Refused(format!("/dev/kvm speaks API version {version}, not {KVM_API_VERSION}")));
        }
        demand(&REQUIRED, |capability| kvm.check_extension(capability))?;
        let cpuid = kvm.get_supported_cpuid(KVM_MAX_CPUID_ENTRIES).map_err(os("asking KVM for its CPUID"))?;
        let run_area_bytes = kvm.get_vcpu_mmap_size().map_err(os("asking KVM for the size of a vCPU's shared area"))?;
        Ok(Self { kvm, cpuid, run_area_bytes })
    }
}

impl Hypervisor for KvmHypervisor {
    fn name(&self) -> &'static str {
        "kvm"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            kernels: true,
            vcpus_max: self.vcpus_max(),
            memory_slots_max: self.memory_slots_max(),
            lowest_address: 0,
        }
    }

    fn create_vm(&self) -> Result<Box<dyn Vm>, Error> {
        Ok(Box::new(vm::KvmVm::new(self)?))
    }
}

impl KvmHypervisor {
    fn vcpus_max(&self) -> u32 {
        u32::try_from(self.kvm.get_max_vcpus()).unwrap_or(u32::MAX)
    }

    fn memory_slots_max(&self) -> u32 {
        u32::try_from(self.kvm.get_nr_memslots()).unwrap_or(u32::MAX)
    }
}

/// Checks that KVM has these capabilities.
fn demand(required: &[(Cap, &str)], has: impl Fn(Cap) -> bool) -> Result<(), Error> {
    let missing: Vec<_> = required.iter().filter(|(capability, _)| !has(*capability)).map(|(_, name)| *name).collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(Error::Refused(format!(
        "KVM here lacks {}, which Linux has had since 4.11: boot a newer kernel on this host",
        missing.join(", ")
    )))
}

/// Makes an [`Error`] of what kvm-ioctls returns.
fn os(what: &'static str) -> impl Fn(kvm_ioctls::Error) -> Error {
    move |error| Error::Os { what, source: io::Error::from_raw_os_error(error.errno()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_kvm_lacks_is_named_with_a_remedy() {
        assert!(demand(&REQUIRED, |_| true).is_ok());
        let said = demand(&REQUIRED, |capability| !matches!(capability, Cap::Ioeventfd | Cap::ExtCpuid)).unwrap_err();
        assert_eq!(
            said.to_string(),
            "KVM here lacks KVM_CAP_IOEVENTFD, KVM_CAP_EXT_CPUID, which Linux has had since 4.11: boot a newer kernel \
             on this host"
        );
    }
}
