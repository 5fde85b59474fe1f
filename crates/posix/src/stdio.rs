//! Streams of libc's own (`FILE`), the standard ones included, on descriptors that are open on disks.
//!
//! What stdio does on a descriptor, it does inside of libc, where no library sees it. But it goes through tables of
//! functions there, to five of them: read, write, seek, close and stat. These are replaced, in the table of streams and
//! in that of streams of wide characters, by such as look whether the descriptor is on a disk. In all else, a stream is
//! libc's: whatever its descriptor is open on by now, and whoever has kept its address.
//!
//! The tables stay where glibc demands that they are, and are read-only before and after. They are changed only if they
//! have what glibc exports by name; with any other libc, there are no streams on disks.

use crate::guarded::{get, put};
use crate::next::own;
use crate::{stderr, table};
use libc::{FILE, c_int, c_void};
use std::ffi::CStr;
use std::mem::offset_of;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The beginning of a stream (`struct _IO_FILE`, bits/types/struct_FILE.h of glibc).
#[repr(C)]
struct Stream {
    flags: c_int,
    _places: [*mut c_void; 13],
    descriptor: c_int,
    _flags: c_int,
    _former_offset: i64,
    _column: u16,
    _bytes: [u8; 2],
    _lock: *mut c_void,
    /// Where the descriptor stands; -1 where that is not known.
    offset: i64,
}

const _: () = assert!(offset_of!(Stream, descriptor) == 112 && offset_of!(Stream, offset) == 144);

/// A write has failed (`_IO_ERR_SEEN`).
const HAS_FAILED: c_int = 0x20;
/// Where a table has the first of the five (`struct _IO_jump_t`, libio/libioP.h of glibc).
const FIRST: usize = 14;
const PAGE: usize = 4096;

static IS_READY: AtomicBool = AtomicBool::new(false);

/// Whether there are streams on disks.
pub(crate) fn is_ready() -> bool {
    IS_READY.load(Ordering::Relaxed)
}

/// From now on, streams look for disks.
pub(crate) fn watch() {
    let names = [c"_IO_file_read", c"_IO_file_write", c"_IO_file_seek", c"_IO_file_close", c"_IO_file_stat"];
    let ours = [read as *const (), write as *const (), seek as *const (), close as *const (), stat as *const ()];
    let ours = ours.map(|function| function as usize);
    let theirs = names.map(symbol);
    let places = [c"_IO_file_jumps", c"_IO_wfile_jumps"].map(|name| {
        let first = (symbol(name) as *const [usize; 5]).cast::<usize>().wrapping_add(FIRST);
        first.cast_mut().cast::<[usize; 5]>()
    });
    if places.iter().any(|&place| get(place) != Ok(theirs)) || !places.iter().all(|&place| replace(place, ours)) {
        stderr::tell("this libc's streams are unknown: fopen and its kin fail on disks");
        return;
    }
    IS_READY.store(true, Ordering::Relaxed);
}

/// Where libc has something; 0: nowhere.
fn symbol(name: &CStr) -> usize {
    // SAFETY: the name is a string.
    unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) as usize }
}

/// Puts other functions into a table: whether that was possible.
fn replace(place: *mut [usize; 5], new: [usize; 5]) -> bool {
    let start = place.addr() & !(PAGE - 1);
    let length = place.addr() + size_of::<[usize; 5]>() - start;
    // SAFETY: pages of libc's that have its tables, which it reads only.
    let protect = |protection| unsafe { libc::mprotect(start as *mut c_void, length, protection) == 0 };
    // What is there is put there again where that is possible.
    let is_read_only = get(place).and_then(|functions| put(place, functions)).is_err();
    if is_read_only && !protect(libc::PROT_READ | libc::PROT_WRITE) {
        return false;
    }
    // SAFETY: they may be written now. Other threads call one or the other.
    let functions = unsafe { &*place.cast::<[AtomicUsize; 5]>() };
    functions.iter().zip(new).for_each(|(function, new)| function.store(new, Ordering::Release));
    if is_read_only {
        protect(libc::PROT_READ);
    }
    true
}

/// The descriptor of a stream, if that is on a disk.
///
/// # Safety
/// It is one of libc's.
#[inline]
unsafe fn on_a_disk(stream: *const FILE) -> Option<c_int> {
    // SAFETY: the caller's.
    let descriptor = unsafe { (*stream.cast::<Stream>()).descriptor };
    table::has(descriptor).then_some(descriptor)
}

/// Has a stream be on another descriptor: the one that it was on.
///
/// # Safety
/// It is one of libc's, and nobody else has it.
pub(crate) unsafe fn set_descriptor(stream: *mut FILE, descriptor: c_int) -> c_int {
    // SAFETY: the caller's.
    std::mem::replace(unsafe { &mut (*stream.cast::<Stream>()).descriptor }, descriptor)
}

unsafe extern "C" fn read(stream: *mut FILE, buffer: *mut c_void, length: isize) -> isize {
    // SAFETY: libc's stream.
    match unsafe { on_a_disk(stream) } {
        // SAFETY: libc's buffer.
        Some(descriptor) => unsafe { libc::read(descriptor, buffer, length as usize) },
        None => own!(_IO_file_read(stream: *mut FILE, buffer: *mut c_void, length: isize) -> isize),
    }
}

/// As libc's: how much was written, and whether that failed is said in the stream.
unsafe extern "C" fn write(stream: *mut FILE, buffer: *const c_void, length: isize) -> isize {
    // SAFETY: libc's stream.
    let Some(descriptor) = (unsafe { on_a_disk(stream) }) else {
        return own!(_IO_file_write(stream: *mut FILE, buffer: *const c_void, length: isize) -> isize);
    };
    let mut written = 0;
    while written < length {
        // SAFETY: libc's buffer.
        match unsafe { libc::write(descriptor, buffer.byte_offset(written), (length - written) as usize) } {
            count @ 1.. => written += count,
            _ => {
                // SAFETY: libc's stream, which is this thread's for now.
                unsafe { (*stream.cast::<Stream>()).flags |= HAS_FAILED };
                break;
            }
        }
    }
    // SAFETY: as above.
    let offset = unsafe { &mut (*stream.cast::<Stream>()).offset };
    if *offset >= 0 {
        *offset += written as i64;
    }
    written
}

unsafe extern "C" fn seek(stream: *mut FILE, offset: i64, whence: c_int) -> i64 {
    // SAFETY: libc's stream.
    match unsafe { on_a_disk(stream) } {
        // SAFETY: numbers.
        Some(descriptor) => unsafe { libc::lseek(descriptor, offset, whence) },
        None => own!(_IO_file_seek(stream: *mut FILE, offset: i64, whence: c_int) -> i64),
    }
}

unsafe extern "C" fn close(stream: *mut FILE) -> c_int {
    // SAFETY: libc's stream.
    match unsafe { on_a_disk(stream) } {
        // SAFETY: libc gives it up.
        Some(descriptor) => unsafe { libc::close(descriptor) },
        None => own!(_IO_file_close(stream: *mut FILE) -> c_int),
    }
}

unsafe extern "C" fn stat(stream: *mut FILE, found: *mut libc::stat) -> c_int {
    // SAFETY: libc's stream.
    match unsafe { on_a_disk(stream) } {
        // SAFETY: libc's room.
        Some(descriptor) => unsafe { libc::fstat(descriptor, found) },
        None => own!(_IO_file_stat(stream: *mut FILE, found: *mut libc::stat) -> c_int),
    }
}
