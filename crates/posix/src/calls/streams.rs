//! Streams of stdio, whose own reads and writes no library sees: one on a disk has functions of this library's.

use crate::calls::names::{disk_named, opened};
use crate::errno::Errno;
use crate::next::calls;
use crate::table;
use libc::{FILE, c_char, c_int, c_void};
use std::ffi::CStr;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

/// `cookie_io_functions_t` (stdio.h).
#[repr(C)]
struct Functions {
    read: unsafe extern "C" fn(*mut c_void, *mut c_char, usize) -> isize,
    write: unsafe extern "C" fn(*mut c_void, *const c_char, usize) -> isize,
    seek: unsafe extern "C" fn(*mut c_void, *mut i64, c_int) -> c_int,
    close: unsafe extern "C" fn(*mut c_void) -> c_int,
}

unsafe extern "C" {
    static mut stdin: *mut FILE;
    static mut stdout: *mut FILE;
    static mut stderr: *mut FILE;
    fn fopencookie(cookie: *mut c_void, mode: *const c_char, functions: Functions) -> *mut FILE;
}

/// Where a stream has its descriptor's number, which fileno(3) tells (glibc, bits/types/struct_FILE.h).
const NUMBER_AT: usize = 112;

unsafe extern "C" fn read(cookie: *mut c_void, buffer: *mut c_char, length: usize) -> isize {
    // SAFETY: the stream's buffer.
    unsafe { libc::read(cookie as c_int, buffer.cast(), length) }
}

unsafe extern "C" fn write(cookie: *mut c_void, buffer: *const c_char, length: usize) -> isize {
    // SAFETY: the stream's buffer.
    unsafe { libc::write(cookie as c_int, buffer.cast(), length) }
}

unsafe extern "C" fn seek(cookie: *mut c_void, place: *mut i64, whence: c_int) -> c_int {
    // SAFETY: the stream's place.
    let to = unsafe { libc::lseek(cookie as c_int, *place, whence) };
    if to < 0 {
        return -1;
    }
    // SAFETY: the stream's place.
    unsafe { *place = to };
    0
}

unsafe extern "C" fn close(cookie: *mut c_void) -> c_int {
    // SAFETY: the stream's descriptor.
    unsafe { libc::close(cookie as c_int) }
}

/// A stream on a descriptor that is open on a disk.
fn stream(descriptor: c_int, mode: &CStr) -> *mut FILE {
    let functions = Functions { read, write, seek, close };
    // SAFETY: the functions take a number for a cookie.
    let stream = unsafe { fopencookie(descriptor as usize as *mut c_void, mode.as_ptr(), functions) };
    if !stream.is_null() {
        // SAFETY: streams of glibc's have it there.
        unsafe { stream.cast::<u8>().add(NUMBER_AT).cast::<c_int>().write(descriptor) };
    }
    stream
}

/// The streams that a program begins with, where they are not on disks.
static STANDARD: [AtomicPtr<FILE>; 3] = [const { AtomicPtr::new(null_mut()) }; 3];

/// Where libc has a standard stream.
fn standard(descriptor: c_int) -> Option<(*mut *mut FILE, &'static AtomicPtr<FILE>)> {
    let place = match descriptor {
        libc::STDIN_FILENO => &raw mut stdin,
        libc::STDOUT_FILENO => &raw mut stdout,
        libc::STDERR_FILENO => &raw mut stderr,
        _ => return None,
    };
    Some((place, &STANDARD[descriptor as usize]))
}

/// Once something else is open on a descriptor: the standard stream of it is one on that.
pub(crate) fn follow(descriptor: c_int) {
    let Some((place, original)) = standard(descriptor) else { return };
    // SAFETY: a pointer that libc has, which it only reads.
    let current = unsafe { *place };
    let replaced = original.load(Ordering::Relaxed);
    let new = match table::find(descriptor) {
        Some(open) => {
            let description = open.mapped();
            let mode = if description.get().may_read() { c"r+" } else { c"w" };
            stream(descriptor, mode)
        }
        None => replaced,
    };
    if new.is_null() {
        return;
    }
    if replaced.is_null() {
        original.store(current, Ordering::Relaxed);
    } else {
        // SAFETY: the stream of the disk that was there, with what was not written of it.
        unsafe { libc::fflush(current) };
    }
    // SAFETY: as above.
    unsafe { *place = new };
}

/// How open(2) opens what fopen(3) opens with this mode.
fn flags(mode: &CStr) -> Result<c_int, Errno> {
    let mode = mode.to_bytes();
    let both = mode.contains(&b'+');
    let access = |one| if both { libc::O_RDWR } else { one };
    let flags = match mode.first() {
        Some(b'r') => access(libc::O_RDONLY),
        Some(b'w') => access(libc::O_WRONLY) | libc::O_CREAT | libc::O_TRUNC,
        Some(b'a') => access(libc::O_WRONLY) | libc::O_CREAT | libc::O_APPEND,
        _ => return Err(Errno(libc::EINVAL)),
    };
    let closes = if mode.contains(&b'e') { libc::O_CLOEXEC } else { 0 };
    let is_new = if mode.contains(&b'x') { libc::O_EXCL } else { 0 };
    Ok(flags | closes | is_new)
}

/// Opens a disk with a mode of fopen(3): its descriptor.
fn opened_with(number: usize, mode: &CStr) -> Result<c_int, Errno> {
    opened(number, flags(mode)?)
}

/// The stream, or null with the error in `errno`.
fn answer_stream(stream: Result<*mut FILE, Errno>) -> *mut FILE {
    stream.unwrap_or_else(|error| {
        error.set();
        null_mut()
    })
}

/// As freopen(3), where the file is a disk.
///
/// # Safety
/// As that call's.
unsafe fn reopened(number: usize, mode: *const c_char, of: *mut FILE) -> Result<*mut FILE, Errno> {
    // SAFETY: the caller's.
    let (descriptor, mode) = unsafe { (libc::fileno(of), CStr::from_ptr(mode)) };
    let opened = opened_with(number, mode)?;
    let Some((place, _)) = standard(descriptor) else {
        // SAFETY: the caller has given the stream up.
        unsafe { libc::fclose(of) };
        return Ok(stream(opened, mode));
    };
    // SAFETY: two descriptors of this process, and a pointer that libc has.
    unsafe {
        libc::fflush(of);
        libc::dup2(opened, descriptor);
        libc::close(opened);
        Ok(*place)
    }
}

/// As freopen(3), from a disk to another file. libc's takes no stream with functions of its own.
///
/// # Safety
/// As that call's.
unsafe fn moved(path: *const c_char, mode: *const c_char, of: *mut FILE) -> Result<*mut FILE, Errno> {
    // SAFETY: the caller's.
    let (descriptor, new) = unsafe { (libc::fileno(of), libc::fopen(path, mode)) };
    let failure = Errno::last();
    if let Some((place, _)) = standard(descriptor).filter(|_| !new.is_null()) {
        // SAFETY: two descriptors of this process, and a pointer that libc has.
        return unsafe {
            libc::fflush(of);
            libc::dup2(libc::fileno(new), descriptor);
            libc::fclose(new);
            Ok(*place)
        };
    }
    // SAFETY: the caller has given the stream up.
    unsafe { libc::fclose(of) };
    if new.is_null() { Err(failure) } else { Ok(new) }
}

calls! {
    fn [fopen, fopen64](path: *const c_char, mode: *const c_char) -> *mut FILE |own| {
        disk_named(path).map_or_else(own, |number| {
            // SAFETY: the caller's.
            let mode = unsafe { CStr::from_ptr(mode) };
            answer_stream(opened_with(number, mode).map(|descriptor| stream(descriptor, mode)))
        })
    }
    fn [freopen, freopen64](path: *const c_char, mode: *const c_char, of: *mut FILE) -> *mut FILE |own| {
        // SAFETY: the caller's.
        let is_on = table::find(unsafe { libc::fileno(of) }).map(|open| open.disk());
        match if path.is_null() { is_on } else { disk_named(path) } {
            // SAFETY: the caller's.
            Some(number) => answer_stream(unsafe { reopened(number, mode, of) }),
            // SAFETY: the caller's.
            None if is_on.is_some() => answer_stream(unsafe { moved(path, mode, of) }),
            None => own(),
        }
    }
    fn [fdopen](descriptor: c_int, mode: *const c_char) -> *mut FILE |own| {
        // SAFETY: the caller's.
        table::find(descriptor).map_or_else(own, |_| stream(descriptor, unsafe { CStr::from_ptr(mode) }))
    }
}
