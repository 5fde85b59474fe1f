//! Whether the `user` backend works on this machine.

use super::{LOWEST_ADDRESS, UserHypervisor, lowest_address};
use crate::{Entry, Error, Exit, Hypervisor};
use blockyard_block::{MemoryMap, explain};
use std::time::Instant;
use vm_memory::{Bytes, GuestAddress};

const HLT: u8 = 0xf4;
const MEMORY_BYTES: usize = 4096;

/// Runs a guest of one instruction, and says in a sentence how that went: what the backend offers here, or else why it
/// does not work and what would help.
///
/// # Errors
/// The sentence on why not.
pub fn availability() -> Result<String, String> {
    let lowest = lowest_address();
    let begin = Instant::now();
    match run_one_instruction(lowest) {
        Ok(true) if lowest > LOWEST_ADDRESS => Err(format!(
            "vm.mmap_min_addr is {lowest}, but guests begin at {LOWEST_ADDRESS}: `sysctl vm.mmap_min_addr={LOWEST_ADDRESS}`"
        )),
        Ok(true) => {
            let microseconds = begin.elapsed().as_micros();
            Ok(format!("guest memory from {lowest:#x}; a guest process starts, halts and ends in {microseconds} µs"))
        }
        Ok(false) => Err("a guest process starts, but `hlt` does not trap as it should".to_owned()),
        Err(error) => Err(format!("{}{}", explain(&error), advice(&error))),
    }
}

fn run_one_instruction(address: u64) -> Result<bool, Error> {
    let no_memory = |error: &(dyn std::error::Error + 'static)| Error::Refused(explain(error));
    let memory = MemoryMap::allocate(&[(address, MEMORY_BYTES)]).map_err(|error| no_memory(&error))?;
    memory.guest_memory().write_obj(HLT, GuestAddress(address)).map_err(|error| no_memory(&error))?;
    let mut vm = UserHypervisor.create_vm()?;
    vm.map_memory(0, &memory, 0)?;
    let stack_top = address + MEMORY_BYTES as u64;
    let mut vcpu = vm.create_vcpu(0, &Entry::Flat64 { entry: address, stack_top, gdt: 0, page_tables: 0 })?;
    Ok(vcpu.run()? == Exit::Halt)
}

/// What would help, where that is known.
fn advice(error: &Error) -> &'static str {
    let Error::Os { what, source } = error else { return "" };
    match source.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) if what.contains("memfd") => {
            "; executable memfds are forbidden here: `sysctl vm.memfd_noexec=1` (or 0) allows them, unless a security module \
             (SELinux, AppArmor, IMA) is what forbids them"
        }
        Some(libc::EACCES | libc::EPERM) if what.contains("guest's memory") => {
            "; memory that is writable and executable is forbidden here, or low addresses are: look at vm.mmap_min_addr \
             and at the security module (SELinux's `execmem`)"
        }
        Some(libc::ENOSYS | libc::EINVAL) if what.contains("seccomp") => {
            "; the kernel has no seccomp filters (CONFIG_SECCOMP_FILTER)"
        }
        Some(libc::ENOSYS) if what.contains("close descriptors") => "; close_range needs Linux 5.9",
        Some(libc::ENOSYS) if what.contains("pidfd") => "; pidfds need Linux 5.4",
        Some(libc::EAGAIN | libc::ENOMEM) => "; the limit on processes or memory is reached (ulimit -u, cgroup)",
        _ => "",
    }
}
