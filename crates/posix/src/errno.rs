//! How calls of libc's end.

use blockyard_block::RequestError;
use blockyard_session::client::SESSION_ENDED;
use libc::{c_int, c_long};
use std::io;

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

impl From<io::Error> for Errno {
    fn from(error: io::Error) -> Self {
        Self(error.raw_os_error().unwrap_or(libc::EIO))
    }
}

impl From<rustix::io::Errno> for Errno {
    fn from(errno: rustix::io::Errno) -> Self {
        Self(errno.raw_os_error())
    }
}

/// That of a request that failed.
impl From<RequestError> for Errno {
    fn from(error: RequestError) -> Self {
        Self(match error {
            // The server is gone for good.
            SESSION_ENDED => libc::EIO,
            RequestError::Os(errno) => errno,
            RequestError::ReadOnly => libc::EROFS,
            RequestError::Unsupported => libc::EOPNOTSUPP,
            RequestError::OutOfRange => libc::ENOSPC,
            _ => libc::EIO,
        })
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
