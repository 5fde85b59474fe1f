//! Identities and keys.

use rustix::rand::{GetRandomFlags, getrandom};
use std::io;

/// Bytes that nobody can guess.
pub(crate) fn random_bytes<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    let count = getrandom(&mut bytes, GetRandomFlags::empty())?;
    if count < N { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(bytes) }
}
