//! No hypervisor at all: the guest is a deprivileged process of its own.
//!
//! A flat 64-bit guest mostly computes, and any process can do that. What it cannot do (`in`, `out`, `hlt`, an access
//! to an address where it has no memory) raises a signal in its process, and there the *stub* (`guests/stub`) takes it:
//! an exec'd freestanding program with nothing of the VMM's memory, which holds the guest's memory at the guest's own
//! addresses, the handler's stack, and a control area that it shares with the VMM. It puts the registers there, wakes
//! the VMM and waits. The VMM copies them once, reads the instruction out of guest memory once, decodes and judges it,
//! and answers.
//!
//! Stores to doorbells ring without the VMM: when the VMM has decoded one for the first time it publishes where the
//! instruction is and what it stores, and from then on the stub writes to the eventfd itself. Doorbells registered
//! after the vCPU was created (and those over 64) are rung too, but by the thread in [`Vcpu::run`](crate::Vcpu::run):
//! the process holds only the eventfds it was started with.
//!
//! # What confines a guest
//! The stub and the guest are one process, so the guest may overwrite everything writable there, forge traps, and go on
//! running while the VMM looks. It still reaches nothing: its address space holds its memory, the stub and the control
//! area; its descriptors are the trap pipe and its doorbells' eventfds; its seccomp filter leaves the handler's own
//! calls with the handler's own arguments (`filter.rs`); it dies with the VMM. The VMM believes nothing: one snapshot,
//! checked against the guest's memory map; every wait ends when the guest's process does, or when the vCPU is kicked.
//!
//! # Limits
//! One vCPU, no ring 0, no page tables, no interrupts; memory from [`Capabilities::lowest_address`] up and below 16
//! TiB; device registers are accessed by `mov`, `movzx`, `movsx` and `movsxd`.

mod control;
mod decode;
mod doorbells;
mod filter;
mod kick;
#[path = "../../../guests/stub/src/layout.rs"]
#[allow(dead_code, unreachable_pub, reason = "shared with the stub, which uses the rest")]
mod layout;
mod memory;
mod probe;
mod process;
mod registers;
mod vcpu;
mod vm;

use crate::{Capabilities, Error, Hypervisor, Vm};
pub use probe::availability;

/// The `user` backend.
#[derive(Clone, Copy, Debug, Default)]
pub struct UserHypervisor;

/// Guests are linked for this address and up, whatever the machine allows.
const LOWEST_ADDRESS: u64 = 0x10000;

/// The lowest address a process may map here.
fn lowest_address() -> u64 {
    let allowed = std::fs::read_to_string("/proc/sys/vm/mmap_min_addr").ok().and_then(|text| text.trim().parse().ok());
    LOWEST_ADDRESS.max(allowed.unwrap_or(0)).next_multiple_of(4096)
}

impl Hypervisor for UserHypervisor {
    fn name(&self) -> &'static str {
        "user"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            kernels: false,
            vcpus_max: 1,
            memory_slots_max: layout::SLOTS_MAX as u32,
            lowest_address: lowest_address(),
        }
    }

    fn create_vm(&self) -> Result<Box<dyn Vm>, Error> {
        Ok(Box::new(vm::UserVm::new(lowest_address())))
    }
}
