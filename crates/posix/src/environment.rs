//! What a program that is executed has to be told, so that it has the disks: the variables that this one was started
//! with, whatever environment it is given (`env -i`).
//!
//! execve(2) may be called by a signal handler, and in a child of a program with threads: nothing is allocated here.

use crate::guarded::{Text, get};
use crate::names::{AIO_MAX, LOOKS, VARIABLE};
use libc::{c_char, c_void};
use std::ffi::{CStr, CString};
use std::mem::zeroed;
use std::ptr::{null_mut, slice_from_raw_parts};
use std::sync::atomic::{AtomicPtr, Ordering};

/// Strings, of which null is the last.
pub(crate) type Strings = *const *const c_char;

unsafe extern "C" {
    static mut environ: Strings;
}

const PRELOAD: &CStr = c"LD_PRELOAD";
/// The first is how this library is loaded.
const NAMES: [&CStr; 4] = [PRELOAD, VARIABLE, LOOKS, AIO_MAX];
/// `NAME=value` of each that there is.
static KEPT: [AtomicPtr<c_char>; NAMES.len()] = [const { AtomicPtr::new(null_mut()) }; NAMES.len()];
/// This library's path, if it was loaded by it.
static LIBRARY: AtomicPtr<c_char> = AtomicPtr::new(null_mut());
/// Of an environment, what is looked at.
const STRINGS_MAX: usize = 1 << 20;
const BYTES_MAX: usize = 1 << 17;

/// Remembers what is there of each, as `variable` has it, if this library was loaded by such a variable.
pub(crate) fn keep(variable: impl Fn(&CStr) -> Option<&'static CStr>) {
    let Some(library) = path_of_library() else { return };
    let preload = variable(PRELOAD).map_or(&[][..], CStr::to_bytes);
    let is_named = |name: &[u8]| name == library.to_bytes();
    if !preload.split(|byte| matches!(byte, b' ' | b':')).any(is_named) {
        return;
    }
    for (place, name) in KEPT.iter().zip(NAMES) {
        let text =
            variable(name).and_then(|value| CString::new([name.to_bytes(), b"=", value.to_bytes()].concat()).ok());
        place.store(text.map_or(null_mut(), CString::into_raw), Ordering::Release);
    }
    LIBRARY.store(library.to_owned().into_raw(), Ordering::Release);
}

fn path_of_library() -> Option<&'static CStr> {
    // SAFETY: all of it is numbers and addresses.
    let mut found: libc::Dl_info = unsafe { zeroed() };
    // SAFETY: there is room for it.
    let is_found = unsafe { libc::dladdr((&raw const KEPT).cast::<c_void>(), &raw mut found) } != 0;
    // SAFETY: it is a string of the loader's, for as long as the library is loaded.
    (is_found && !found.dli_fname.is_null()).then(|| unsafe { CStr::from_ptr(found.dli_fname) })
}

/// One of those that were remembered.
fn text(place: &AtomicPtr<c_char>) -> Option<&'static CStr> {
    let text = place.load(Ordering::Acquire);
    // SAFETY: it was leaked for ever.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) })
}

/// The program's strings: `None` where something is not there, which is for the kernel to say.
fn strings(environment: Strings) -> Option<&'static [*const c_char]> {
    let mut count = 0;
    if !environment.is_null() {
        while !get(environment.wrapping_add(count)).ok().filter(|_| count < STRINGS_MAX)?.is_null() {
            count += 1;
        }
    }
    // SAFETY: so many are there, which the program does not change meanwhile, as of execve(2).
    Some(if count == 0 { &[] } else { unsafe { &*slice_from_raw_parts(environment, count) } })
}

/// The rest of a string that begins so.
fn behind(string: *const c_char, beginning: &[u8]) -> Option<*const u8> {
    let text = Text::at(string);
    let is_so = |(index, &byte): (usize, &u8)| text.byte(index) == Ok(byte);
    beginning.iter().enumerate().all(is_so).then(|| string.cast::<u8>().wrapping_add(beginning.len()))
}

/// The value of a variable's in these strings.
fn value(strings: &[*const c_char], name: &CStr) -> Option<(usize, *const u8)> {
    let value = |string| behind(string, name.to_bytes()).and_then(|rest| behind(rest.cast(), b"="));
    strings.iter().enumerate().find_map(|(index, &string)| Some((index, value(string)?)))
}

fn bytes(string: *const u8) -> &'static [u8] {
    let text = Text::at(string.cast());
    let count = (0..BYTES_MAX).take_while(|&at| text.byte(at).is_ok_and(|byte| byte != 0)).count();
    // SAFETY: so many are there, which the program does not change meanwhile.
    if count == 0 { &[] } else { unsafe { &*slice_from_raw_parts(string, count) } }
}

/// Memory of the system's, for as long as it is there.
struct Memory {
    start: *mut c_void,
    bytes: usize,
}

impl Memory {
    fn new(bytes: usize) -> Option<Self> {
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping where there is none.
        let start = unsafe { libc::syscall(libc::SYS_mmap, 0, bytes, access, kind, -1, 0) };
        (start > 0).then_some(Self { start: start as *mut c_void, bytes })
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: it was mapped here, and nobody has it any more.
        unsafe { libc::syscall(libc::SYS_munmap, self.start, self.bytes) };
    }
}

/// An environment with what is missing in one; `None`: nothing is, or nothing can be done about it.
fn completed(environment: Strings) -> Option<Memory> {
    let library = text(&LIBRARY)?.to_bytes();
    let strings = strings(environment)?;
    let preload = value(strings, PRELOAD);
    // In most environments, it is the first.
    let is_loaded = |value: *const u8| {
        behind(value.cast(), library).is_some()
            || bytes(value).split(|byte| matches!(byte, b' ' | b':')).any(|name| name == library)
    };
    let other = preload.filter(|&(_, value)| !is_loaded(value));
    let is_missing =
        |(place, name): &(&AtomicPtr<c_char>, &CStr)| text(place).is_some() && value(strings, name).is_none();
    let missing = || KEPT.iter().zip(NAMES).filter(is_missing);
    if other.is_none() && missing().next().is_none() {
        return None;
    }
    let others = other.map_or(&[][..], |(_, value)| bytes(value));
    let preloads = [PRELOAD.to_bytes(), b"=", library, b":", others, b"\0"];
    let (count, text_bytes) = (strings.len() + NAMES.len() + 1, preloads.iter().map(|part| part.len()).sum::<usize>());
    let memory = Memory::new(count * size_of::<*const c_char>() + text_bytes)?;
    let all = memory.start.cast::<*const c_char>();
    let joined = all.wrapping_add(count).cast::<u8>();
    // SAFETY: there is room for so many addresses, of which the last stay null, and for the text behind them.
    unsafe {
        all.copy_from_nonoverlapping(strings.as_ptr(), strings.len());
        for (index, (place, _)) in missing().enumerate() {
            all.add(strings.len() + index).write(place.load(Ordering::Acquire));
        }
        if let Some((index, _)) = other {
            let mut at = joined;
            for part in preloads {
                at.copy_from_nonoverlapping(part.as_ptr(), part.len());
                at = at.add(part.len());
            }
            all.add(index).write(joined.cast());
        }
    }
    Some(memory)
}

/// Has `execute` execute something with an environment, and what is missing in that.
pub(crate) fn with<T>(environment: Strings, execute: impl FnOnce(Strings) -> T) -> T {
    let completed = completed(environment);
    execute(completed.as_ref().map_or(environment, |memory| memory.start.cast()))
}

/// The same with this process's environment.
pub(crate) fn with_own<T>(execute: impl FnOnce(Strings) -> T) -> T {
    // SAFETY: libc's, which whoever changes it does not do while another thread executes something.
    with(unsafe { environ }, execute)
}

/// The same where libc takes this process's: nothing is missing in that any more.
pub(crate) fn complete_own() {
    // SAFETY: as above.
    if let Some(memory) = completed(unsafe { environ }) {
        // SAFETY: as above; it stays there.
        unsafe { environ = memory.start.cast() };
        std::mem::forget(memory);
    }
}
