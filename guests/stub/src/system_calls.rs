//! The system calls the stub makes. Those after the filter is installed are [`wake_vmm`], [`ring`], [`wait_while`] and
//! the return from a signal; see `filter.rs` in the `user` backend, which leaves exactly these.

use crate::layout::{CONTROL_BASE, STUB_BASE, TRAP_FD};
use core::arch::asm;

const WRITE: u64 = 1;
const CLOSE: u64 = 3;
const MMAP: u64 = 9;
const MUNMAP: u64 = 11;
const RT_SIGACTION: u64 = 13;
const RT_SIGPROCMASK: u64 = 14;
const SIGALTSTACK: u64 = 131;
const PRCTL: u64 = 157;
const FUTEX: u64 = 202;
const EXIT_GROUP: u64 = 231;
const SECCOMP: u64 = 317;
const CLOSE_RANGE: u64 = 436;

const PROT_READ_WRITE: u64 = 3;
const PROT_ALL: u64 = 7;
const MAP_SHARED_FIXED_NOREPLACE: u64 = 0x10_0001;
const SIG_SETMASK: u64 = 2;
const SECCOMP_SET_MODE_FILTER: u64 = 1;
const FUTEX_WAIT: u64 = 0;

/// What the stub sets with `prctl`: Linux's `PR_SET_…`.
#[derive(Clone, Copy)]
#[repr(u64)]
pub enum Attribute {
    Dumpable = 4,
    Name = 15,
    NoNewPrivileges = 38,
}

/// Linux's `struct sigaction`.
#[repr(C)]
pub struct Action {
    pub handler: u64,
    pub flags: u64,
    pub restorer: u64,
    pub mask: u64,
}

/// Linux's `stack_t`.
#[repr(C)]
pub struct SignalStack {
    pub start: u64,
    pub flags: u64,
    pub length: u64,
}

/// Linux's `struct sock_fprog`.
#[repr(C)]
pub struct Filter {
    pub length: u64,
    pub instructions: u64,
}

/// An errno.
pub type Errno = u64;

/// # Safety
/// What the call does must not break what the compiler believes about memory.
unsafe fn call(number: u64, arguments: [u64; 6]) -> Result<u64, Errno> {
    let result: u64;
    let [a, b, c, d, e, f] = arguments;
    // SAFETY: the system call instruction clobbers rcx and r11 only; the rest is the caller's promise.
    unsafe {
        asm!("syscall", inlateout("rax") number => result, in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d,
            in("r8") e, in("r9") f, lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    if result > 0u64.wrapping_sub(4096) { Err(0u64.wrapping_sub(result)) } else { Ok(result) }
}

/// Maps `length` bytes of `descriptor`, shared, at exactly `address`, where nothing may be.
fn map(address: u64, length: u64, protection: u64, descriptor: u32, offset: u64) -> Result<(), Errno> {
    let arguments = [address, length, protection, MAP_SHARED_FIXED_NOREPLACE, u64::from(descriptor), offset];
    // SAFETY: only ever adds a mapping where there was none.
    let mapped = unsafe { call(MMAP, arguments) }?;
    if mapped == address { Ok(()) } else { Err(17) }
}

/// Maps the control area.
pub fn map_control(length: u64, descriptor: u32) -> Result<(), Errno> {
    map(CONTROL_BASE, length, PROT_READ_WRITE, descriptor, 0)
}

/// Maps guest memory.
pub fn map_guest(address: u64, length: u64, descriptor: u32, offset: u64) -> Result<(), Errno> {
    map(address, length, PROT_ALL, descriptor, offset)
}

/// Unmaps what is between two page-aligned addresses, except what the kernel has sealed (with
/// `CONFIG_MSEAL_SYSTEM_MAPPINGS` the vDSO is, and a call that touches any of it does nothing): halves the range until
/// the sealed pages are alone.
///
/// # Safety
/// Nothing there may be used any more.
pub unsafe fn unmap(start: u64, end: u64) {
    let length = end.wrapping_sub(start);
    // SAFETY: the caller's promise.
    if unsafe { call(MUNMAP, [start, length, 0, 0, 0, 0]) }.is_err() && length > 4096 {
        let middle = start.wrapping_add((length >> 1) & !4095);
        let middle = if middle == start { start.wrapping_add(4096) } else { middle };
        // SAFETY: as above, parts of the same range.
        unsafe {
            unmap(start, middle);
            unmap(middle, end);
        }
    }
}

/// Closes a descriptor.
pub fn close(descriptor: u32) {
    // SAFETY: touches no memory.
    let _ = unsafe { call(CLOSE, [u64::from(descriptor), 0, 0, 0, 0, 0]) };
}

/// Closes all descriptors from `first`.
pub fn close_from(first: u32) {
    // SAFETY: touches no memory.
    let _ = unsafe { call(CLOSE_RANGE, [u64::from(first), u64::from(u32::MAX), 0, 0, 0, 0]) };
}

/// Sets an attribute of the process.
///
/// # Safety
/// A value that is a pointer must point to what the attribute wants.
pub unsafe fn set_attribute(attribute: Attribute, value: u64) -> Result<(), Errno> {
    // SAFETY: the caller's promise; none of the attributes makes the kernel write to memory.
    unsafe { call(PRCTL, [attribute as u64, value, 0, 0, 0, 0]) }.map(drop)
}

/// Sets a signal's action.
///
/// # Safety
/// The handler must be one.
pub unsafe fn set_action(signal: u64, action: &Action) -> Result<(), Errno> {
    // SAFETY: the caller's promise.
    unsafe { call(RT_SIGACTION, [signal, &raw const *action as u64, 0, 8, 0, 0]) }.map(drop)
}

/// Blocks exactly the signals whose bits are set.
pub fn set_mask(mask: u64) -> Result<(), Errno> {
    // SAFETY: reads the mask only.
    unsafe { call(RT_SIGPROCMASK, [SIG_SETMASK, &raw const mask as u64, 0, 8, 0, 0]) }.map(drop)
}

/// Sets the stack that handlers run on.
///
/// # Safety
/// It must be memory that nothing else uses while a handler runs.
pub unsafe fn set_signal_stack(stack: &SignalStack) -> Result<(), Errno> {
    // SAFETY: the caller's promise.
    unsafe { call(SIGALTSTACK, [&raw const *stack as u64, 0, 0, 0, 0, 0]) }.map(drop)
}

/// Installs a seccomp filter.
///
/// # Safety
/// It must point to so many instructions.
pub unsafe fn install_filter(filter: &Filter) -> Result<(), Errno> {
    // SAFETY: the caller's promise.
    unsafe { call(SECCOMP, [SECCOMP_SET_MODE_FILTER, 0, &raw const *filter as u64, 0, 0, 0]) }.map(drop)
}

/// One byte into the trap pipe.
pub fn wake_vmm() -> Result<(), Errno> {
    // SAFETY: reads the constant at the beginning of the image.
    unsafe { call(WRITE, [u64::from(TRAP_FD), STUB_BASE, 1, 0, 0, 0]) }.map(drop)
}

/// One is added to an eventfd. Nothing to do when it is full: then it is rung anyway.
pub fn ring(event: u32) {
    // SAFETY: reads the constant at the beginning of the image.
    let _ = unsafe { call(WRITE, [u64::from(event), STUB_BASE, 8, 0, 0, 0]) };
}

/// Waits while the futex holds `value`; may return early.
pub fn wait_while(futex: *const u32, value: u32) {
    // SAFETY: the kernel reads the word, or says that it cannot.
    let _ = unsafe { call(FUTEX, [futex as u64, FUTEX_WAIT, u64::from(value), 0, 0, 0]) };
}

/// Ends the process.
pub fn exit() -> ! {
    loop {
        // SAFETY: does not return.
        let _ = unsafe { call(EXIT_GROUP, [1, 0, 0, 0, 0, 0]) };
    }
}
