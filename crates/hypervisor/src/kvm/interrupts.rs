//! A PC's interrupt controllers, in the kernel.

use super::os;
use crate::{Error, INTERRUPT_LINES};
use kvm_bindings::KVM_APIC_REG_SIZE;
use kvm_ioctls::{VcpuFd, VmFd};

/// Offsets and values in a local APIC's registers (AMD64 volume 2, 16.4).
const LINT0: usize = 0x350;
const LINT1: usize = 0x360;
const DELIVER_EXTERNAL: u32 = 7 << 8;
const DELIVER_NMI: u32 = 4 << 8;

/// What a VM has of them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Interrupts {
    pub(super) vcpus: u32,
    pub(super) tsc_deadline: bool,
}

impl Interrupts {
    pub(super) fn create(fd: &VmFd, vcpus: u32) -> Result<Self, Error> {
        fd.create_irq_chip().map_err(os("creating the VM's interrupt controllers"))?;
        Ok(Self { vcpus, tsc_deadline: fd.check_extension(kvm_ioctls::Cap::TscDeadlineTimer) })
    }

    /// Wires a new vCPU's APIC as a PC's firmware leaves it.
    pub(super) fn wire(&self, vcpu: &VcpuFd) -> Result<(), Error> {
        let mut apic = vcpu.get_lapic().map_err(os("reading a vCPU's APIC"))?;
        for (register, delivery) in [(LINT0, DELIVER_EXTERNAL), (LINT1, DELIVER_NMI)] {
            const { assert!(LINT1 + 4 <= KVM_APIC_REG_SIZE as usize) };
            apic.regs[register..register + 4]
                .iter_mut()
                .zip(delivery.to_le_bytes())
                .for_each(|(place, byte)| *place = byte as _);
        }
        vcpu.set_lapic(&apic).map_err(os("setting a vCPU's APIC"))
    }
}

/// Whether there is such a line.
pub(super) fn check_line(line: u32) -> Result<(), Error> {
    if line < INTERRUPT_LINES {
        Ok(())
    } else {
        Err(Error::Refused(format!("interrupt line {line}: there are {INTERRUPT_LINES}")))
    }
}
