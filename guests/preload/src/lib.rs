//! A shared library that User-Mode Linux is started with (`LD_PRELOAD`). It takes the place of three functions of
//! libc's, and does what they do, but for one case each.
//!
//! [`syscall`]: it executes by descriptor with a path that cannot name anything. `execveat(fd, "", …, AT_EMPTY_PATH)`
//! executes the open file `fd`, unless there is something at the address of `""`: then that names a file. No filter of
//! system calls can look there. But at the last byte of a process's address space there is room for the end of a string
//! and nothing else: whatever the process writes there, the kernel finds an empty path or fails. So that is the only
//! address that the appliance's filter lets through (`crates/session/src/program_filter.rs`), and this library puts it
//! in.
//!
//! [`ptrace()`]: it sets all vector registers of a process, where only the first ones are given. User-Mode Linux up to
//! 6.12 keeps 2,696 bytes of them for each of its processes, all that there was with AVX-512. Processors with AMX have
//! 11,008, and there the host's kernel takes all or none (EFAULT): no process of the guest would run.
//!
//! [`ioctl`]: it says how large somebody's terminal is, which [`CONSOLE_SIZE`] says. User-Mode Linux asks that of what
//! is behind a console each time that the guest opens it, and there is a socket.

#![no_std]

use core::arch::asm;
use core::arch::x86_64::__cpuid_count;
use core::ffi::{CStr, c_char};
use core::panic::PanicInfo;
use core::ptr::{addr_of_mut, copy_nonoverlapping};
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

const SYS_MMAP: usize = 9;
const SYS_IOCTL: usize = 16;
const SYS_PTRACE: usize = 101;
const SYS_EXECVEAT: usize = 322;
const AT_EMPTY_PATH: usize = 0x1000;
const PROT_READ: usize = 1;
/// `MAP_PRIVATE`, `MAP_ANONYMOUS`, `MAP_FIXED_NOREPLACE`.
const NEW_PAGE_THERE: usize = 0x2 | 0x20 | 0x10_0000;
const PAGE_BYTES: usize = 4096;
const EEXIST: isize = -17;
const EFAULT: isize = -14;
/// Requests that libc answers with the word that they read: `PTRACE_PEEKTEXT`, `PTRACE_PEEKDATA` and `PTRACE_PEEKUSER`.
const PEEKS: core::ops::RangeInclusive<u32> = 1..=3;
const PTRACE_GETREGSET: u32 = 0x4204;
const PTRACE_SETREGSET: u32 = 0x4205;
const NT_X86_XSTATE: usize = 0x202;
/// More than any processor has of registers that XSAVE stores.
const REGISTER_BYTES_MAX: usize = 16 << 10;
/// Where in what XSAVE stores is said which components are there, and where those begin that have no place of their own
/// before (Intel SDM 1, 13.4).
const COMPONENTS_AT: usize = 512;
const EXTENDED_AT: usize = 576;
/// Where address spaces end: with five levels of page tables, and with four. The page before it is never there (Linux,
/// arch/x86/include/asm/page_64.h, `TASK_SIZE_MAX`).
const ENDS: [usize; 2] = [1 << 56, 1 << 47];

const TIOCGWINSZ: usize = 0x5413;
/// A variable of the environment: lines and letters in a line, as two numbers with a space between.
const CONSOLE_SIZE: &CStr = c"BLOCKYARD_CONSOLE_SIZE";

unsafe extern "C" {
    fn __errno_location() -> *mut i32;
    fn getenv(name: *const c_char) -> *const c_char;
}

/// syscall(2), but that `execveat` of an empty path has it at the end of the address space.
///
/// # Safety
/// As that call's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syscall(
    number: usize,
    a: usize,
    mut b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> isize {
    // SAFETY: the caller's path is a string.
    if number == SYS_EXECVEAT && e == AT_EMPTY_PATH && unsafe { *(b as *const u8) } == 0 {
        b = last_byte().unwrap_or(b);
    }
    // SAFETY: the caller's.
    let result = unsafe { call(number, [a, b, c, d, e, f]) };
    if !(-4095..0).contains(&result) {
        return result;
    }
    // SAFETY: libc's own, of this thread.
    unsafe { *__errno_location() = -result as i32 };
    -1
}

/// ioctl(2), but that every console has the size that somebody's terminal has, if that is known.
///
/// # Safety
/// As that call's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ioctl(descriptor: i32, request: usize, argument: usize) -> i32 {
    if request == TIOCGWINSZ
        && let Some([rows, columns]) = console_size()
    {
        // SAFETY: the caller has room for a `struct winsize` there, which ends with two numbers of pixels.
        unsafe { (argument as *mut [u16; 4]).write([rows, columns, 0, 0]) };
        return 0;
    }
    // SAFETY: the caller's.
    let result = unsafe { call(SYS_IOCTL, [descriptor as usize, request, argument, 0, 0, 0]) };
    if result >= 0 {
        return result as i32;
    }
    // SAFETY: libc's own, of this thread.
    unsafe { *__errno_location() = -result as i32 };
    -1
}

fn console_size() -> Option<[u16; 2]> {
    // SAFETY: nothing changes the environment while that is looked at: the kernel has one thread that does.
    let text = unsafe {
        let text = getenv(CONSOLE_SIZE.as_ptr());
        (!text.is_null()).then(|| CStr::from_ptr(text))
    };
    let (rows, columns) = text?.to_str().ok()?.split_once(' ')?;
    Some([rows.parse().ok()?, columns.parse().ok()?])
}

/// What ptrace(2) takes for a set of registers.
#[repr(C)]
struct Piece {
    base: *mut u8,
    bytes: usize,
}

/// As many bytes as the host's kernel wants.
#[repr(align(64))]
#[expect(dead_code, reason = "it is reached by its address")]
struct Registers([u8; REGISTER_BYTES_MAX]);

/// Zeros behind the bytes that are given. The kernels that need this are for one processor: one thread of theirs
/// traces.
static mut ALL_REGISTERS: Registers = Registers([0; REGISTER_BYTES_MAX]);
/// How many bytes the host's kernel wants, once it is known; the components that have room in so many as are given, and
/// those bytes.
static WANTED_BYTES: AtomicUsize = AtomicUsize::new(0);
static GIVEN_BYTES: AtomicUsize = AtomicUsize::new(0);
static GIVEN_COMPONENTS: AtomicU64 = AtomicU64::new(0);

/// ptrace(2), but that vector registers may be given in part: the others are then as in a new process.
///
/// # Safety
/// As that call's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ptrace(request: u32, process: i32, address: usize, data: usize) -> isize {
    let mut word = 0isize;
    let peeks = PEEKS.contains(&request);
    let place = if peeks { addr_of_mut!(word) as usize } else { data };
    let plain = [request as usize, process as usize, address, place, 0, 0];
    let sets_vectors = request == PTRACE_SETREGSET && address == NT_X86_XSTATE;
    let mut result = EFAULT;
    if !sets_vectors || WANTED_BYTES.load(Ordering::Relaxed) == 0 {
        // SAFETY: the caller's.
        result = unsafe { call(SYS_PTRACE, plain) };
    }
    if sets_vectors && result == EFAULT {
        // SAFETY: the caller's registers are where it says.
        result = unsafe { set_all(process, &*(data as *const Piece)) };
    }
    // SAFETY: libc's own, of this thread.
    let errno = unsafe { &mut *__errno_location() };
    match (result, peeks) {
        (-4095..0, _) => {
            *errno = -result as i32;
            -1
        }
        (_, true) => {
            *errno = 0;
            word
        }
        (result, false) => result,
    }
}

/// Sets all vector registers of a process, of which the first ones are given.
///
/// # Safety
/// The registers that are given are there, and no other thread does the same.
unsafe fn set_all(process: i32, given: &Piece) -> isize {
    let all = addr_of_mut!(ALL_REGISTERS).cast::<u8>();
    let regset = |request: u32, bytes: usize| {
        let mut piece = Piece { base: all, bytes };
        let arguments = [request as usize, process as usize, NT_X86_XSTATE, addr_of_mut!(piece) as usize, 0, 0];
        // SAFETY: there is room for as many.
        (unsafe { call(SYS_PTRACE, arguments) }, piece.bytes)
    };
    if WANTED_BYTES.load(Ordering::Relaxed) == 0 {
        let (result, wanted) = regset(PTRACE_GETREGSET, REGISTER_BYTES_MAX);
        // SAFETY: nobody else looks there.
        unsafe { all.write_bytes(0, REGISTER_BYTES_MAX) };
        if result < 0 || wanted >= REGISTER_BYTES_MAX {
            return EFAULT;
        }
        WANTED_BYTES.store(wanted, Ordering::Relaxed);
    }
    let wanted = WANTED_BYTES.load(Ordering::Relaxed);
    if given.bytes < EXTENDED_AT || given.bytes > wanted {
        return EFAULT;
    }
    if GIVEN_BYTES.swap(given.bytes, Ordering::Relaxed) != given.bytes {
        GIVEN_COMPONENTS.store(components_within(given.bytes), Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { all.write_bytes(0, REGISTER_BYTES_MAX) };
    }
    // SAFETY: there is room, and the word is aligned and within what was copied.
    unsafe {
        copy_nonoverlapping(given.base, all, given.bytes);
        *all.add(COMPONENTS_AT).cast::<u64>() &= GIVEN_COMPONENTS.load(Ordering::Relaxed);
    }
    regset(PTRACE_SETREGSET, wanted).0
}

/// The components of the processor's registers that lie in the first `bytes` of what XSAVE stores of them.
fn components_within(bytes: usize) -> u64 {
    // The first two have places of their own: x87 and SSE.
    (2..63)
        .filter(|&component| {
            let leaf = __cpuid_count(0xd, component);
            let (length, offset) = (leaf.eax as usize, leaf.ebx as usize);
            length > 0 && offset + length <= bytes
        })
        .fold(0b11, |components, component| components | 1 << component)
}

/// Address of the last byte of the address space, which is there when this returns; what else it may hold but zero is
/// the caller's affair.
fn last_byte() -> Option<usize> {
    let page_is_there = |page| {
        // SAFETY: nothing that is there is replaced.
        let mapped = unsafe { call(SYS_MMAP, [page, PAGE_BYTES, PROT_READ, NEW_PAGE_THERE, usize::MAX, 0]) };
        // The stack ends there, with zeros, if addresses are not random.
        mapped == page as isize || mapped == EEXIST
    };
    let last_pages = ENDS.map(|end| end - 2 * PAGE_BYTES);
    last_pages.into_iter().find(|&page| page_is_there(page)).map(|page| page + PAGE_BYTES - 1)
}

/// # Safety
/// As that of the system call.
unsafe fn call(number: usize, arguments: [usize; 6]) -> isize {
    let [a, b, c, d, e, f] = arguments;
    let result;
    // SAFETY: the caller's; the kernel changes these registers.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e, in("r9") f,
            lateout("rcx") _, lateout("r11") _,
            options(nostack)
        );
    }
    result
}

#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    loop {}
}
