//! Questions about files that are answered with little.

use crate::failures::failure;
use crate::interruption;
use crate::mounts::path_of;
use blockyard_protocol::appliance::{Compare, Failure, ResolvePath};
use rustix::fs::OFlags;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Bytes of each file that are compared at once.
const PIECE_BYTES: usize = 256 << 10;

/// realpath(1).
pub(crate) fn resolve(request: &ResolvePath) -> Result<Vec<u8>, Failure> {
    let path = path_of(&request.path);
    let resolved = fs::canonicalize(path).map_err(|error| failure(path, "cannot resolve", &error))?;
    Ok(resolved.into_os_string().into_vec())
}

/// cmp(1): whether two files hold the same bytes.
pub(crate) fn compare(request: &Compare) -> Result<bool, Failure> {
    let (one, other) = (path_of(&request.one), path_of(&request.other));
    let mut readers = [open(one)?, open(other)?];
    let mut pieces = [vec![0; PIECE_BYTES], vec![0; PIECE_BYTES]];
    loop {
        let mut lengths = [0; 2];
        for (index, path) in [one, other].into_iter().enumerate() {
            let read = interruption::check().and_then(|()| fill(&mut readers[index], &mut pieces[index]));
            lengths[index] = read.map_err(|error| failure(path, "cannot read", &error))?;
        }
        if pieces[0][..lengths[0]] != pieces[1][..lengths[1]] {
            return Ok(false);
        }
        if lengths[0] < PIECE_BYTES {
            return Ok(true);
        }
    }
}

/// A regular file: a fifo would make us wait.
fn open(path: &Path) -> Result<File, Failure> {
    let bad = |error: io::Error| failure(path, "cannot open", &error);
    let file = File::options().read(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(path).map_err(bad)?;
    match file.metadata().map_err(bad)?.is_file() {
        true => Ok(file),
        false => Err(bad(io::Error::other("it is not a regular file"))),
    }
}

/// Reads until `piece` is full or the file ends.
fn fill(file: &mut File, piece: &mut [u8]) -> io::Result<usize> {
    let mut at = 0;
    while at < piece.len() {
        match file.read(&mut piece[at..]) {
            Ok(0) => break,
            Ok(bytes) => at += bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(at)
}
