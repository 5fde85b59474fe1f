//! Small guests, assembled here.

use blockyard_block::MemoryMap;
use blockyard_hypervisor::user::UserHypervisor;
use blockyard_hypervisor::{Entry, Exit, Hypervisor, Vcpu, Vm};
use iced_x86::code_asm::CodeAssembler;
use std::path::Path;
use std::sync::mpsc;
use std::time::{Duration, Instant};
use vm_memory::{Bytes, GuestAddress};

pub(crate) const CODE: u64 = 0x10000;
pub(crate) const STACK_TOP: u64 = 0x80000;
pub(crate) const MEMORY_BYTES: usize = 0x100000;
/// An address with no memory.
pub(crate) const DEVICE: u64 = 0xd000_0000;
pub(crate) const ENTRY: Entry = Entry::Flat64 { entry: CODE, stack_top: STACK_TOP, gdt: 0x1000, page_tables: 0x2000 };

pub(crate) struct Guest {
    pub(crate) memory: MemoryMap,
    pub(crate) vm: Box<dyn Vm>,
}

impl Guest {
    /// A VM with 1 MiB at 0 and this program at [`CODE`].
    pub(crate) fn new(program: impl FnOnce(&mut CodeAssembler) -> Result<(), iced_x86::IcedError>) -> Self {
        Self::with_layout(&[(0, MEMORY_BYTES)], program)
    }

    pub(crate) fn with_layout(
        layout: &[(u64, usize)],
        program: impl FnOnce(&mut CodeAssembler) -> Result<(), iced_x86::IcedError>,
    ) -> Self {
        let memory = MemoryMap::allocate(layout).unwrap();
        memory.guest_memory().write_slice(&assemble(program), GuestAddress(CODE)).unwrap();
        let mut vm = UserHypervisor.create_vm().unwrap();
        for region in 0..layout.len() {
            vm.map_memory(region as u32, &memory, region).unwrap();
        }
        Self { memory, vm }
    }

    pub(crate) fn vcpu(&mut self) -> Box<dyn Vcpu> {
        self.vm.create_vcpu(0, &ENTRY).unwrap()
    }

    pub(crate) fn write(&self, address: u64, data: &[u8]) {
        self.memory.guest_memory().write_slice(data, GuestAddress(address)).unwrap();
    }

    pub(crate) fn read(&self, address: u64, length: usize) -> Vec<u8> {
        let mut data = vec![0; length];
        self.memory.guest_memory().read_slice(&mut data, GuestAddress(address)).unwrap();
        data
    }
}

pub(crate) fn assemble(program: impl FnOnce(&mut CodeAssembler) -> Result<(), iced_x86::IcedError>) -> Vec<u8> {
    let mut assembler = CodeAssembler::new(64).unwrap();
    program(&mut assembler).unwrap();
    assembler.assemble(CODE).unwrap()
}

/// Runs `test` in a thread of its own: a hang is a failure.
pub(crate) fn bounded(test: impl FnOnce() + Send + 'static) {
    let (done, wait) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        test();
        let _ = done.send(());
    });
    if let Err(mpsc::RecvTimeoutError::Timeout) = wait.recv_timeout(Duration::from_secs(60)) {
        panic!("still running after a minute");
    }
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

/// Runs the guest to its end, whatever it asks for on the way, and returns the sentence.
pub(crate) fn crash(vcpu: &mut dyn Vcpu) -> String {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        match vcpu.run().unwrap() {
            Exit::Crashed(sentence) => return sentence,
            exit => assert!(Instant::now() < deadline, "still going on with {exit:?}"),
        }
    }
}

/// Whether there is such a process, alive or as a zombie.
pub(crate) fn exists(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}
