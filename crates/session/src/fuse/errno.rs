//! A disk's errors as programs know them.

use blockyard_block::RequestError;
use rustix::io::Errno;

/// The largest that the kernel takes from a FUSE server.
const ERRNO_MAX: i32 = 511;

/// What the program that asked gets to see.
pub(super) fn errno_of(error: RequestError) -> Errno {
    match error {
        RequestError::Os(errno @ 1..=ERRNO_MAX) => Errno::from_raw_os_error(errno),
        RequestError::Unsupported => Errno::OPNOTSUPP,
        RequestError::ReadOnly => Errno::ROFS,
        RequestError::OutOfRange => Errno::NOSPC,
        RequestError::Os(_) | RequestError::Truncated | RequestError::Unaligned | RequestError::BadSegment => Errno::IO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_errno_that_the_kernel_would_refuse() {
        assert_eq!(errno_of(RequestError::Os(libc::ENOSPC)), Errno::NOSPC);
        for errno in [i32::MIN, -5, 0, 512, i32::MAX] {
            assert_eq!(errno_of(RequestError::Os(errno)), Errno::IO);
        }
    }
}
