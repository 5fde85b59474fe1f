//! What this library has for programs that are linked to it, besides libc's calls (blockyard_posix.h).

use crate::errno::{Errno, answer_int};
use crate::guarded::get;
use crate::names::Named;
use crate::setup;
use libc::{c_char, c_int};
use std::ffi::CStr;

/// From now on, what this process opens by this name is a disk.
///
/// # Safety
/// Both are strings.
#[unsafe(no_mangle)]
unsafe extern "C" fn blockyard_attach(disk: *const c_char, name: *const c_char) -> c_int {
    let attach = || {
        for text in [disk, name] {
            get(text)?;
        }
        // SAFETY: the caller's, and something is there.
        let (disk, name) = unsafe { (CStr::from_ptr(disk).to_bytes(), CStr::from_ptr(name).to_bytes()) };
        let named = Named::new(disk, name).filter(Named::can_be_opened).ok_or(Errno(libc::EINVAL))?;
        setup::add(named).map(|()| 0)
    };
    answer_int(attach())
}
