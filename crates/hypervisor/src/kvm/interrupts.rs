//! A PC's interrupt controllers, in the kernel.

use super::{demand, os};
use crate::{Error, INTERRUPT_LINES};
use kvm_bindings::{
    KVM_APIC_REG_SIZE, KVM_IRQ_ROUTING_IRQCHIP, KVM_IRQCHIP_IOAPIC, KVM_IRQCHIP_PIC_MASTER, KVM_IRQCHIP_PIC_SLAVE,
    kvm_irq_routing_entry, kvm_irq_routing_entry__bindgen_ty_1 as Route, kvm_irq_routing_irqchip,
};
use kvm_ioctls::{Cap, VcpuFd, VmFd};

/// What is called without asking again.
const REQUIRED: [(Cap, &str); 2] = [(Cap::Irqchip, "KVM_CAP_IRQCHIP"), (Cap::Irqfd, "KVM_CAP_IRQFD")];

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
        demand(&REQUIRED, |capability| fd.check_extension(capability))?;
        fd.create_irq_chip().map_err(os("creating the VM's interrupt controllers"))?;
        Ok(Self { vcpus, tsc_deadline: fd.check_extension(Cap::TscDeadlineTimer) })
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

/// Where the lines of the interrupt controllers lead, as KVM has them from the start: each to the I/O APIC's pin of its
/// number, and the first 16 to the two old controllers as well.
pub(super) fn line_routes() -> Vec<kvm_irq_routing_entry> {
    const OLD_PINS: u32 = 8;
    let route = |line, irqchip, pin| kvm_irq_routing_entry {
        gsi: line,
        type_: KVM_IRQ_ROUTING_IRQCHIP,
        u: Route { irqchip: kvm_irq_routing_irqchip { irqchip, pin } },
        ..Default::default()
    };
    let old = [KVM_IRQCHIP_PIC_MASTER, KVM_IRQCHIP_PIC_SLAVE];
    let old = (0..).zip(old).flat_map(|(nth, chip)| (0..OLD_PINS).map(move |pin| (nth * OLD_PINS + pin, chip, pin)));
    let new = (0..INTERRUPT_LINES).map(|line| (line, KVM_IRQCHIP_IOAPIC, line));
    old.chain(new).map(|(line, chip, pin)| route(line, chip, pin)).collect()
}

/// Whether there is such a line.
pub(super) fn check_line(line: u32) -> Result<(), Error> {
    if line < INTERRUPT_LINES {
        Ok(())
    } else {
        Err(Error::Refused(format!("interrupt line {line}: there are {INTERRUPT_LINES}")))
    }
}
