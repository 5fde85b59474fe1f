//! Names that lead to what a descriptor of this process is open on: `/dev/stdin`, `/dev/fd/3`, `/proc/self/fd/3`. The
//! kernel would open the page of a disk's description by them, and not the disk.

use crate::guarded::Text;
use crate::table;
use libc::{c_char, c_int};

/// The longest is shorter.
const NAME_BYTES: usize = 48;

/// What they begin with.
pub(crate) const BEGINNINGS: [[u8; 2]; 2] = [*b"/d", *b"/p"];

/// The disk that a path leads to by a descriptor.
pub(super) fn disk_of(path: *const c_char) -> Option<usize> {
    if !table::is_used() {
        return None;
    }
    let text = Text::at(path);
    let byte = |at: usize| text.byte(at).ok();
    // Most names are left alone here.
    if !BEGINNINGS.contains(&[byte(0)?, byte(1)?]) {
        return None;
    }
    let mut name = [0; NAME_BYTES];
    let mut length = 0;
    loop {
        match byte(length)? {
            0 => break,
            other => *name.get_mut(length)? = other,
        }
        length += 1;
    }
    let descriptor = descriptor(name.get(..length)?)?;
    Some(table::find(descriptor)?.disk())
}

fn descriptor(name: &[u8]) -> Option<c_int> {
    let number = |digits: &[u8]| -> Option<c_int> {
        // As the kernel has them.
        let is_number = digits.iter().all(u8::is_ascii_digit) && (digits == b"0" || !digits.starts_with(b"0"));
        str::from_utf8(digits).ok().filter(|_| is_number)?.parse().ok()
    };
    match name {
        b"/dev/stdin" => return Some(0),
        b"/dev/stdout" => return Some(1),
        b"/dev/stderr" => return Some(2),
        _ => {}
    }
    if let Some(digits) = name.strip_prefix(b"/dev/fd/") {
        return number(digits);
    }
    let mut parts = name.strip_prefix(b"/proc/")?.splitn(2, |&byte| byte == b'/');
    let process = parts.next()?;
    let digits = parts.next()?.strip_prefix(b"fd/")?;
    // SAFETY: it only answers.
    let is_ours = || number(process) == Some(unsafe { libc::getpid() });
    (process == b"self" || process == b"thread-self" || is_ours()).then(|| number(digits))?
}
