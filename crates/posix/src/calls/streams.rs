//! Streams of stdio that a program opens on disks: libc's, on descriptors that this library opens (`stdio`).

use crate::calls::names::{disk_followed, opened};
use crate::description::Description;
use crate::errno::Errno;
use crate::next::{calls, own};
use crate::signals::Busy;
use crate::{stdio, table};
use libc::{FILE, c_char, c_int};
use std::ffi::{CStr, CString};
use std::ptr::null_mut;

/// What libc opens itself for a stream, before that is on a disk.
const NOTHING: &CStr = c"/dev/null";

type Text = *const c_char;

calls! {
    fn [fopen, fopen64](path: Text, mode: Text) -> *mut FILE |own| {
        // SAFETY: the caller's.
        let opened = |number| answer_stream(opened_stream(number, unsafe { CStr::from_ptr(mode) }));
        disk_followed(libc::AT_FDCWD, path).map_or_else(own, opened)
    }
    fn [freopen, freopen64](path: Text, mode: Text, of: *mut FILE) -> *mut FILE |own| {
        // SAFETY: the caller's.
        let before = unsafe { libc::fileno(of) };
        let is_on = table::find(before).map(|open| open.disk());
        let number = if path.is_null() { is_on } else { disk_followed(libc::AT_FDCWD, path) };
        if is_on.is_some() {
            // SAFETY: the caller's. From now on, what libc does on the descriptor, the kernel does.
            unsafe { libc::fflush(of) };
            let _busy = Busy::enter();
            table::remove(before);
        }
        match number {
            // SAFETY: the caller's.
            Some(number) => answer_stream(unsafe { reopened(number, CStr::from_ptr(mode), of) }),
            None => own(),
        }
    }
    fn [fdopen](descriptor: c_int, mode: Text) -> *mut FILE |own| {
        match table::find(descriptor) {
            // SAFETY: the caller's.
            Some(open) => answer_stream(stream_on(descriptor, open.mapped().get(), unsafe { CStr::from_ptr(mode) })),
            None => own(),
        }
    }
}

/// The stream, or null with the error in `errno`.
fn answer_stream(stream: Result<*mut FILE, Errno>) -> *mut FILE {
    stream.unwrap_or_else(|error| {
        error.set();
        null_mut()
    })
}

/// A mode of fopen(3).
struct Mode {
    /// What libc is told: it is not to look whether a file is new, nor to have it in memory.
    text: CString,
    /// How open(2) opens what it opens.
    flags: c_int,
}

impl Mode {
    fn new(mode: &CStr) -> Result<Self, Errno> {
        let mode = mode.to_bytes();
        // Behind a comma, it says which characters there are.
        let (letters, characters) = mode.split_at(mode.iter().position(|&byte| byte == b',').unwrap_or(mode.len()));
        let has = |letter| letters.contains(&letter);
        let access = |one| if has(b'+') { libc::O_RDWR } else { one };
        let flags = match letters.first() {
            Some(b'r') => access(libc::O_RDONLY),
            Some(b'w') => access(libc::O_WRONLY) | libc::O_CREAT | libc::O_TRUNC,
            Some(b'a') => access(libc::O_WRONLY) | libc::O_CREAT | libc::O_APPEND,
            _ => return Err(Errno(libc::EINVAL)),
        };
        let closes = if has(b'e') { libc::O_CLOEXEC } else { 0 };
        let is_new = if has(b'x') { libc::O_EXCL } else { 0 };
        let letters = letters.iter().filter(|letter| !b"xm".contains(letter));
        let text = CString::new(letters.chain(characters).copied().collect::<Vec<_>>());
        Ok(Self { text: text.map_err(|_| Errno(libc::EINVAL))?, flags: flags | closes | is_new })
    }

    /// As libc does where it only appends.
    fn seek(&self, descriptor: c_int) {
        if self.flags & (libc::O_APPEND | libc::O_ACCMODE) == libc::O_APPEND | libc::O_WRONLY {
            // SAFETY: numbers.
            unsafe { libc::lseek(descriptor, 0, libc::SEEK_END) };
        }
    }
}

/// A stream of libc's on a descriptor that is open on a disk.
fn stream(descriptor: c_int, mode: &Mode) -> Result<*mut FILE, Errno> {
    if !stdio::is_ready() {
        return Err(Errno(libc::EOPNOTSUPP));
    }
    let (path, text) = (NOTHING.as_ptr(), mode.text.as_ptr());
    let stream = own!(fopen(path: Text, text: Text) -> *mut FILE);
    if stream.is_null() {
        return Err(Errno::last());
    }
    // SAFETY: it was made above; what libc had opened is nobody's.
    unsafe { libc::close(stdio::set_descriptor(stream, descriptor)) };
    mode.seek(descriptor);
    Ok(stream)
}

/// As fopen(3), of a disk.
fn opened_stream(number: usize, mode: &CStr) -> Result<*mut FILE, Errno> {
    let mode = Mode::new(mode)?;
    let descriptor = opened(number, mode.flags)?;
    // SAFETY: it was opened above.
    stream(descriptor, &mode).inspect_err(|_| _ = unsafe { libc::close(descriptor) })
}

/// As fdopen(3), of a disk's.
fn stream_on(descriptor: c_int, description: &Description, mode: &CStr) -> Result<*mut FILE, Errno> {
    let mode = Mode::new(mode)?;
    let access = mode.flags & libc::O_ACCMODE;
    if access != libc::O_WRONLY && !description.may_read() || access != libc::O_RDONLY && !description.may_write() {
        return Err(Errno(libc::EINVAL));
    }
    description.set_flags(description.flags() | mode.flags & libc::O_APPEND);
    stream(descriptor, &mode)
}

/// As freopen(3), where the file is a disk, and the stream is on none.
///
/// # Safety
/// As that call's.
unsafe fn reopened(number: usize, mode: &CStr, of: *mut FILE) -> Result<*mut FILE, Errno> {
    let libcs = |path: Text, mode: Text| own!(freopen(path: Text, mode: Text, of: *mut FILE) -> *mut FILE);
    // Where it fails, it closes the stream: libc does, if there is no such file.
    let failed = |error| {
        libcs(c"".as_ptr(), c"r".as_ptr());
        error
    };
    if !stdio::is_ready() {
        return Err(failed(Errno(libc::EOPNOTSUPP)));
    }
    let mode = Mode::new(mode).map_err(failed)?;
    let descriptor = opened(number, mode.flags).map_err(failed)?;
    let stream = libcs(NOTHING.as_ptr(), mode.text.as_ptr());
    let mut error = Errno::last();
    // SAFETY: two descriptors, one of which nobody else has, and the other is the stream's.
    unsafe {
        let placed = !stream.is_null() && {
            let placed = libc::dup3(descriptor, libc::fileno(stream), mode.flags & libc::O_CLOEXEC);
            error = Errno::last();
            mode.seek(placed);
            placed >= 0
        };
        libc::close(descriptor);
        if placed { Ok(stream) } else { Err(failed(error)) }
    }
}
