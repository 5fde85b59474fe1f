//! What an exit of a `user` guest costs: `cargo run --release -p blockyard-hypervisor --example exit_cost`.

use blockyard_block::MemoryMap;
use blockyard_hypervisor::user::UserHypervisor;
use blockyard_hypervisor::{Entry, Exit, Hypervisor, Vcpu};
use iced_x86::code_asm::{CodeAssembler, dword_ptr, eax, ecx, rbx};
use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::AsFd;
use std::time::Instant;
use vm_memory::{Bytes, GuestAddress};

const CODE: u64 = 0x10000;
const DEVICE: u64 = 0xd000_0000;
const ROUNDS: u32 = 200_000;
const STARTS: u32 = 50;
const REPETITIONS: usize = 9;

type Failure = Box<dyn std::error::Error>;

fn guest(instruction: fn(&mut CodeAssembler) -> Result<(), iced_x86::IcedError>) -> Result<Box<dyn Vcpu>, Failure> {
    let mut assembler = CodeAssembler::new(64)?;
    let mut again = assembler.create_label();
    assembler.mov(rbx, DEVICE)?;
    assembler.mov(ecx, ROUNDS)?;
    assembler.set_label(&mut again)?;
    instruction(&mut assembler)?;
    assembler.dec(ecx)?;
    assembler.jnz(again)?;
    assembler.hlt()?;
    let memory = MemoryMap::allocate(&[(0, 1 << 20)])?;
    memory.guest_memory().write_slice(&assembler.assemble(CODE)?, GuestAddress(CODE))?;
    let mut vm = UserHypervisor.create_vm()?;
    vm.map_memory(0, &memory, 0)?;
    let event = eventfd(0, EventfdFlags::CLOEXEC)?;
    vm.register_doorbell(DEVICE + 0x50, 0, event.as_fd())?;
    Ok(vm.create_vcpu(0, &Entry::Flat64 { entry: CODE, stack_top: 0x80000, gdt: 0x1000, page_tables: 0x2000 })?)
}

fn run_to_halt(vcpu: &mut dyn Vcpu) -> Result<(), Failure> {
    loop {
        match vcpu.run()? {
            Exit::Halt => return Ok(()),
            Exit::Crashed(sentence) => return Err(sentence.into()),
            _ => {}
        }
    }
}

/// Median of several measurements of `action`, divided by `count`, in microseconds.
fn measure(name: &str, count: u32, mut action: impl FnMut() -> Result<f64, Failure>) -> Result<(), Failure> {
    let mut seconds = (0..REPETITIONS).map(|_| action()).collect::<Result<Vec<_>, _>>()?;
    seconds.sort_unstable_by(f64::total_cmp);
    println!("{name:32} {:8.2} µs", seconds[REPETITIONS / 2] / f64::from(count) * 1e6);
    Ok(())
}

fn measure_loop(
    name: &str,
    instruction: fn(&mut CodeAssembler) -> Result<(), iced_x86::IcedError>,
) -> Result<(), Failure> {
    measure(name, ROUNDS, || {
        let mut vcpu = guest(instruction)?;
        let begin = Instant::now();
        run_to_halt(&mut *vcpu)?;
        Ok(begin.elapsed().as_secs_f64())
    })
}

fn main() -> Result<(), Failure> {
    measure_loop("nothing", |a| a.nop())?;
    measure_loop("doorbell", |a| a.mov(dword_ptr(rbx + 0x50), 0))?;
    measure_loop("out", |a| a.out(0x21, eax))?;
    measure_loop("device read", |a| a.mov(eax, dword_ptr(rbx)))?;
    measure("start, halt, end", STARTS, || {
        let begin = Instant::now();
        for _ in 0..STARTS {
            let mut vcpu = guest(|a| a.hlt())?;
            run_to_halt(&mut *vcpu)?;
        }
        Ok(begin.elapsed().as_secs_f64())
    })
}
