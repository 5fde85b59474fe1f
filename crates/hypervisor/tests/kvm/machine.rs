//! A VM with two slots of memory and a small guest in it.

use blockyard_block::MemoryMap;
use blockyard_hypervisor::kvm::KvmHypervisor;
use blockyard_hypervisor::{Entry, Exit, Hypervisor, Vcpu, Vm};
use iced_x86::IcedError;
use iced_x86::code_asm::*;
use vm_memory::{Bytes, GuestAddress};

pub(crate) const CODE: u64 = 0x1_0000;
pub(crate) const DATA: u64 = 0x2_0000;
pub(crate) const STACK_TOP: u64 = 0x8_0000;
pub(crate) const LOW_MEMORY_BYTES: usize = 0x10_0000;
pub(crate) const HIGH_MEMORY: u64 = 0x1000_0000;
pub(crate) const HIGH_MEMORY_BYTES: usize = 0x1_0000;
/// No memory here.
pub(crate) const DEVICE: u64 = 0x2000_0000;
pub(crate) const ENTRY: Entry = Entry::Flat64 { entry: CODE, stack_top: STACK_TOP, gdt: 0x1000, page_tables: 0x2000 };

/// The hypervisor, or `None` where these tests have no business.
pub(crate) fn hypervisor() -> Option<KvmHypervisor> {
    if std::env::var_os("BLOCKYARD_TEST_KVM").is_none_or(|value| value != "1") {
        eprintln!("runs in the lab: cargo xtask lab");
        return None;
    }
    Some(KvmHypervisor::open().expect("BLOCKYARD_TEST_KVM=1 promises a usable /dev/kvm"))
}

/// A VM with two memory slots and code in it, not yet with a vCPU.
pub(crate) struct Machine {
    pub(crate) vm: Box<dyn Vm>,
    pub(crate) memory: MemoryMap,
}

impl Machine {
    pub(crate) fn new(hypervisor: &KvmHypervisor, code: &[u8]) -> Self {
        let memory = MemoryMap::allocate(&[(0, LOW_MEMORY_BYTES), (HIGH_MEMORY, HIGH_MEMORY_BYTES)]).unwrap();
        memory.guest_memory().write_slice(code, GuestAddress(CODE)).unwrap();
        let mut vm = hypervisor.create_vm().unwrap();
        vm.map_memory(0, &memory, 0).unwrap();
        vm.map_memory(1, &memory, 1).unwrap();
        Self { vm, memory }
    }

    pub(crate) fn vcpu(&mut self) -> Box<dyn Vcpu> {
        self.vm.create_vcpu(0, &ENTRY).unwrap()
    }

    pub(crate) fn bytes(&self, address: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.memory.guest_memory().read_slice(&mut bytes, GuestAddress(address)).unwrap();
        bytes
    }
}

pub(crate) type Program = fn(&mut CodeAssembler) -> Result<(), IcedError>;

pub(crate) fn assemble(program: Program) -> Vec<u8> {
    let mut assembler = CodeAssembler::new(64).unwrap();
    program(&mut assembler).unwrap();
    assembler.assemble(CODE).unwrap()
}

pub(crate) fn machine(program: Program) -> Option<Machine> {
    Some(Machine::new(&hypervisor()?, &assemble(program)))
}

pub(crate) fn expect_out(vcpu: &mut dyn Vcpu, expected_port: u16, expected_size: u8, expected: &[u8]) {
    match vcpu.run().unwrap() {
        Exit::PortOut { port, size, data } => {
            assert_eq!((port, size, data), (expected_port, expected_size, expected));
        }
        other => panic!("expected output at port {expected_port:#x}, got {other:?}"),
    }
}
