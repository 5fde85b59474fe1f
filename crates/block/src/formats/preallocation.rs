//! What a new image has storage for before anything is written to it.

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

/// What an image has from the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Preallocation {
    /// Nothing: clusters and blocks are allocated when they are written.
    #[default]
    Off,
    /// A place for every cluster or block; the file is sparse.
    Metadata,
    /// The same, with storage reserved (`fallocate`).
    Falloc,
    /// The same, with zeros written.
    Full,
}

/// Fails, as something that was interrupted, where it is not to go on.
pub(super) fn check(goes_on: &dyn Fn() -> bool) -> io::Result<()> {
    if goes_on() { Ok(()) } else { Err(io::ErrorKind::Interrupted.into()) }
}

/// Reserves storage for a range of a file that was never written, as `preallocation` says, as long as `goes_on`.
pub(super) fn reserve(
    file: impl AsFd,
    offset: u64,
    length: u64,
    preallocation: Preallocation,
    goes_on: &dyn Fn() -> bool,
) -> io::Result<()> {
    static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
    match preallocation {
        Preallocation::Off | Preallocation::Metadata => Ok(()),
        Preallocation::Falloc => loop {
            check(goes_on)?;
            match fallocate(&file, FallocateFlags::empty(), offset, length) {
                Err(Errno::INTR) => {}
                done => return Ok(done?),
            }
        },
        Preallocation::Full => {
            let file = File::from(file.as_fd().try_clone_to_owned()?);
            (0..length).step_by(ZEROS.len()).try_for_each(|at| {
                check(goes_on)?;
                let piece = (length - at).min(ZEROS.len() as u64) as usize;
                file.write_all_at(&ZEROS[..piece], offset + at)
            })
        }
    }
}
