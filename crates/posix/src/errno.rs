//! How calls of libc's end.

use libc::{c_int, c_long};

/// An error's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) c_int);

impl Errno {
    /// The one of this thread's last call.
    pub(crate) fn last() -> Self {
        // SAFETY: every thread has one.
        Self(unsafe { *libc::__errno_location() })
    }

    pub(crate) fn set(self) {
        // SAFETY: every thread has one.
        unsafe { *libc::__errno_location() = self.0 };
    }
}

/// What a call returns: its result, or -1 with the error in `errno`.
pub(crate) fn answer<T: TryInto<c_long>>(result: Result<T, Errno>) -> c_long {
    match result.map(TryInto::try_into) {
        Ok(Ok(value)) => value,
        Ok(Err(_)) => answer::<c_long>(Err(Errno(libc::EOVERFLOW))),
        Err(error) => {
            error.set();
            -1
        }
    }
}

/// The same, of a call that returns an `int`.
pub(crate) fn answer_int<T: TryInto<c_long>>(result: Result<T, Errno>) -> c_int {
    answer(result) as c_int
}
