//! The `user` backend's trap stub: the only program in a guest's process besides the guest.
//!
//! It maps the guest's memory where the guest expects it, gives up every right it does not need, and from then on is a
//! signal handler: whatever the guest cannot do by itself (port I/O, `hlt`, an access to an address without memory)
//! raises a signal, the handler hands the registers to the VMM through the control area ([`layout`]), waits for its
//! answer and goes on with the registers found there. Stores to doorbells that the VMM has published it rings itself.
//!
//! No libc, no data of its own, no allocation, no decoding. The guest may overwrite everything writable here; so
//! nothing here is for security but the filter and the absence of anything worth having.
//!
//! The image is linked above the 2 GiB that compilers assume for fixed addresses, so it refers to its own symbols
//! through `lea` only, and panics nowhere (a panic's message has an address): the linker refuses anything else.
#![no_std]
#![no_main]

#[allow(dead_code, reason = "the VMM uses the rest")]
mod layout;
mod system_calls;

use core::arch::{asm, global_asm};
use core::ptr;
use layout::{
    ANSWER_WORDS, CONTROL_BASE, CONTROL_BYTES, CONTROL_FD, Control, DOORBELLS_MAX, EVENT_FD_FIRST, FRAME_ADDRESS,
    FRAME_ERROR, FRAME_RIP, FRAME_TRAP, FRAME_WORDS, NO_REGISTER, PAGE_FAULT_WRITE, STUB_BASE, STUB_END, Step,
    TRAP_PAGE_FAULT, TURN_VMM,
};
use system_calls::{Action, Attribute, Errno, Filter, SignalStack};

const CONTROL: *mut Control = CONTROL_BASE as *mut Control;
const STACK_BYTES: u64 = 0x1_0000;
const USER_SPACE_END: u64 = 0x7fff_ffff_f000;

const SIGILL: u64 = 4;
const SIGTRAP: u64 = 5;
const SIGBUS: u64 = 7;
const SIGFPE: u64 = 8;
const SIGUSR1: u64 = 10;
const SIGSEGV: u64 = 11;

const SA_SIGINFO: u64 = 4;
const SA_RESTORER: u64 = 0x0400_0000;
const SA_ONSTACK: u64 = 0x0800_0000;

// The kernel's stack goes with everything else that is unmapped, so the stub starts on the one that its handlers will
// use. The restorer is how a handler returns: system call 15, rt_sigreturn.
global_asm!(
    ".section .one,\"a\"",
    ".quad 1",
    ".section .stack,\"aw\",@nobits",
    "stack: .space {bytes}",
    "stack_top:",
    ".section .text.entry,\"ax\"",
    ".globl _start",
    "_start: lea rsp, [rip + stack_top]",
    "xor ebp, ebp",
    "call {start}",
    "ud2",
    "restore: mov eax, 15",
    "syscall",
    "ud2",
    bytes = const STACK_BYTES,
    start = sym start,
);

/// Linux's `ucontext_t`, as far as it is used.
#[repr(C)]
struct Context {
    flags_and_link: [u64; 2],
    stack: [u64; 3],
    frame: [u64; FRAME_WORDS],
}

extern "C" fn start() -> ! {
    match set_up() {
        Ok(()) => enter(),
        Err((step, errno)) => {
            if step != Step::MapControl {
                // SAFETY: the control area is mapped.
                unsafe { (&raw mut (*CONTROL).failure).write_volatile([step as u64, errno]) };
            }
            system_calls::exit()
        }
    }
}

/// Everything up to the filter.
fn set_up() -> Result<(), (Step, Errno)> {
    // SAFETY: this code and its stack lie between; nothing else is used from here on.
    unsafe {
        system_calls::unmap(0, STUB_BASE);
        system_calls::unmap(STUB_END, USER_SPACE_END);
    }
    system_calls::map_control(CONTROL_BYTES as u64, CONTROL_FD).map_err(|errno| (Step::MapControl, errno))?;
    // SAFETY: the control area has just been mapped, the VMM has filled it, and nobody writes to this part any more.
    let start = unsafe { &(*CONTROL).start };
    let slot_fd_first = EVENT_FD_FIRST.wrapping_add(start.events);
    for (slot, index) in start.slot.iter().zip(0..start.slots) {
        let descriptor = slot_fd_first.wrapping_add(index);
        system_calls::map_guest(slot.address, slot.length, descriptor, slot.offset)
            .map_err(|errno| (Step::MapSlot, errno))?;
    }
    system_calls::close(CONTROL_FD);
    system_calls::close_from(slot_fd_first);
    become_undumpable().map_err(|errno| (Step::Dumpable, errno))?;
    set_up_signals()?;
    let filter =
        Filter { length: u64::from(start.filter_length), instructions: CONTROL_BASE.wrapping_add(filter_offset()) };
    // SAFETY: an attribute without a pointer; the filter is as long as the VMM says, which is not hostile.
    unsafe {
        system_calls::set_attribute(Attribute::NoNewPrivileges, 1).map_err(|errno| (Step::NoNewPrivileges, errno))?;
        system_calls::install_filter(&filter).map_err(|errno| (Step::Filter, errno))
    }
}

const fn filter_offset() -> u64 {
    (core::mem::offset_of!(Control, start) + core::mem::offset_of!(layout::Start, filter)) as u64
}

/// Nobody attaches to this process and it leaves no core; people see its name.
fn become_undumpable() -> Result<(), Errno> {
    // "blockyard-guest" and a zero, as numbers: a string would need an address.
    let name = [u64::from_le_bytes(*b"blockyar"), u64::from_le_bytes(*b"d-guest\0")];
    // SAFETY: the name is 16 bytes and ends in a zero.
    unsafe {
        system_calls::set_attribute(Attribute::Name, &raw const name as u64)?;
        system_calls::set_attribute(Attribute::Dumpable, 0)
    }
}

fn set_up_signals() -> Result<(), (Step, Errno)> {
    let (handler, restorer, stack): (u64, u64, u64);
    // SAFETY: takes addresses only.
    unsafe {
        asm!("lea {}, [rip + {handle}]", "lea {}, [rip + restore]", "lea {}, [rip + stack]",
            out(reg) handler, out(reg) restorer, out(reg) stack, handle = sym handle, options(nostack, nomem));
    }
    let stack = SignalStack { start: stack, flags: 0, length: STACK_BYTES };
    // SAFETY: what is on that stack now is not used after `enter`, which raises the first signal.
    unsafe { system_calls::set_signal_stack(&stack) }.map_err(|errno| (Step::SignalStack, errno))?;
    let action = Action { handler, flags: SA_SIGINFO | SA_ONSTACK | SA_RESTORER, restorer, mask: u64::MAX };
    for signal in [SIGILL, SIGTRAP, SIGBUS, SIGFPE, SIGUSR1, SIGSEGV] {
        // SAFETY: the handler is one.
        unsafe { system_calls::set_action(signal, &action) }.map_err(|errno| (Step::SignalHandler, errno))?;
    }
    system_calls::set_mask(0).map_err(|errno| (Step::SignalMask, errno))
}

/// The first trap tells the VMM that all is set up; the answer to it is the guest's first registers.
fn enter() -> ! {
    // SAFETY: does not return: the answer has another rip. The vector registers are the only ones that the answer does
    // not set, and this program uses no others of them than these.
    unsafe {
        asm!(
            "pxor xmm0, xmm0",
            "pxor xmm1, xmm1",
            "pxor xmm2, xmm2",
            "pxor xmm3, xmm3",
            "pxor xmm4, xmm4",
            "pxor xmm5, xmm5",
            "pxor xmm6, xmm6",
            "pxor xmm7, xmm7",
            "pxor xmm8, xmm8",
            "pxor xmm9, xmm9",
            "pxor xmm10, xmm10",
            "pxor xmm11, xmm11",
            "pxor xmm12, xmm12",
            "pxor xmm13, xmm13",
            "pxor xmm14, xmm14",
            "pxor xmm15, xmm15",
            "ud2",
            options(noreturn)
        )
    }
}

/// Handles every signal, with all signals blocked.
unsafe extern "C" fn handle(signal: u64, _information: u64, context: *mut Context) {
    // SAFETY: the kernel wrote the context onto the handler's stack, and nothing else refers to it.
    let frame = unsafe { &mut (*context).frame };
    if signal == SIGSEGV && rings_doorbell(frame) {
        return;
    }
    // SAFETY: the control area is mapped; the VMM reads and writes it too, so every access is volatile, and `turn`
    // orders them.
    unsafe {
        (&raw mut (*CONTROL).trap.signal).write_volatile(signal);
        copy_words(frame.as_ptr(), (&raw mut (*CONTROL).trap.frame).cast(), FRAME_WORDS);
    }
    ask_vmm();
    // SAFETY: as above.
    unsafe { copy_words((&raw const (*CONTROL).answer).cast(), frame.as_mut_ptr(), ANSWER_WORDS) };
}

/// Hands the turn to the VMM and waits to get it back.
fn ask_vmm() {
    // SAFETY: the control area is mapped, and `turn` is an aligned word that both sides use atomically.
    let turn = unsafe { core::sync::atomic::AtomicU32::from_ptr(&raw mut (*CONTROL).turn) };
    turn.store(TURN_VMM, core::sync::atomic::Ordering::Release);
    if system_calls::wake_vmm().is_err() {
        die();
    }
    while turn.load(core::sync::atomic::Ordering::Acquire) == TURN_VMM {
        system_calls::wait_while(turn.as_ptr(), TURN_VMM);
    }
}

/// Whether the trap was a store to a published doorbell; then it is rung and the instruction skipped.
fn rings_doorbell(frame: &mut [u64; FRAME_WORDS]) -> bool {
    if frame[FRAME_TRAP] != TRAP_PAGE_FAULT || frame[FRAME_ERROR] & PAGE_FAULT_WRITE == 0 {
        return false;
    }
    // SAFETY: the control area is mapped, and the index stays below the table's length.
    let entries = unsafe { (&raw const (*CONTROL).doorbell_entries).read_volatile() } as usize;
    for index in 0..entries.min(DOORBELLS_MAX) {
        // SAFETY: as above. The VMM fills entries only while this process waits for it, and clears `rip` first at any
        // time.
        let entry = unsafe {
            let entry = (&raw const (*CONTROL).doorbells).cast::<layout::Doorbell>().wrapping_add(index);
            if (&raw const (*entry).rip).read_volatile() != frame[FRAME_RIP] {
                continue;
            }
            entry.read_volatile()
        };
        let stored = match frame.get(entry.register as usize) {
            Some(value) => *value as u32,
            None if entry.register == NO_REGISTER => entry.value,
            None => continue,
        };
        if entry.address == frame[FRAME_ADDRESS] && entry.value == stored {
            system_calls::ring(entry.event);
            frame[FRAME_RIP] = frame[FRAME_RIP].wrapping_add(u64::from(entry.length));
            return true;
        }
    }
    false
}

/// # Safety
/// Both must be valid for `count` words; one of them may be shared with the VMM.
unsafe fn copy_words(from: *const u64, to: *mut u64, count: usize) {
    for index in 0..count {
        // SAFETY: the caller's promise.
        unsafe { ptr::write_volatile(to.wrapping_add(index), ptr::read_volatile(from.wrapping_add(index))) };
    }
}

/// The VMM is gone. With all signals blocked this ends the process, without a system call.
fn die() -> ! {
    // SAFETY: does not return.
    unsafe { asm!("ud2", options(noreturn)) }
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    die()
}
