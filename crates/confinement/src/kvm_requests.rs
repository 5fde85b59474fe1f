//! What is asked of /dev/kvm by ioctl(2), by what it is for (`linux/kvm.h`).

/// To make a vCPU and to run it. The one that is made most often comes first, as each is looked for in turn.
pub(crate) const VCPUS: [u64; 9] = [
    KVM_RUN,
    KVM_CREATE_VCPU,
    KVM_SET_CPUID2,
    KVM_GET_LAPIC,
    KVM_SET_LAPIC,
    KVM_GET_SREGS,
    KVM_SET_SREGS,
    KVM_GET_REGS,
    KVM_SET_REGS,
];

/// To run a vCPU, to say where it was when it died, and to change the events of its devices, which a guest moves.
pub(crate) const RUNNING: [u64; 6] =
    [KVM_RUN, KVM_IRQFD, KVM_SET_GSI_ROUTING, KVM_IOEVENTFD, KVM_GET_REGS, KVM_GET_SREGS];

/// To let go of the events of a device.
pub(crate) const EVENTS: [u64; 2] = [KVM_IRQFD, KVM_IOEVENTFD];

/// To make a virtual machine: beside [`VCPUS`], [`EVENTS`] and what [`RUNNING`] has.
pub(crate) const MACHINES: [u64; 8] = [
    KVM_CREATE_VM,
    KVM_CHECK_EXTENSION,
    KVM_GET_VCPU_MMAP_SIZE,
    KVM_SET_USER_MEMORY_REGION,
    KVM_SET_TSS_ADDR,
    KVM_SET_IDENTITY_MAP_ADDR,
    KVM_CREATE_IRQCHIP,
    KVM_SET_GSI_ROUTING,
];

const KVM_CREATE_VM: u64 = 0xae01;
const KVM_CHECK_EXTENSION: u64 = 0xae03;
const KVM_GET_VCPU_MMAP_SIZE: u64 = 0xae04;
const KVM_CREATE_VCPU: u64 = 0xae41;
const KVM_SET_TSS_ADDR: u64 = 0xae47;
const KVM_CREATE_IRQCHIP: u64 = 0xae60;
const KVM_RUN: u64 = 0xae80;
const KVM_SET_USER_MEMORY_REGION: u64 = 0x4020_ae46;
const KVM_SET_IDENTITY_MAP_ADDR: u64 = 0x4008_ae48;
const KVM_SET_GSI_ROUTING: u64 = 0x4008_ae6a;
const KVM_IRQFD: u64 = 0x4020_ae76;
const KVM_IOEVENTFD: u64 = 0x4040_ae79;
const KVM_GET_REGS: u64 = 0x8090_ae81;
const KVM_SET_REGS: u64 = 0x4090_ae82;
const KVM_GET_SREGS: u64 = 0x8138_ae83;
const KVM_SET_SREGS: u64 = 0x4138_ae84;
const KVM_GET_LAPIC: u64 = 0x8400_ae8e;
const KVM_SET_LAPIC: u64 = 0x4400_ae8f;
const KVM_SET_CPUID2: u64 = 0x4008_ae90;
