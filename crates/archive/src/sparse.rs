//! Files with holes.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};

/// What is zeros becomes a hole in blocks of this size.
const BLOCK_BYTES: usize = 4096;

/// Writes data where the file is, but moves on over blocks of zeros: holes, in a new file. Whoever ends with one sets the length.
///
/// # Errors
/// When the file cannot be written.
pub fn write_sparse(file: &mut File, data: &[u8]) -> io::Result<()> {
    for block in data.chunks(BLOCK_BYTES) {
        if block.iter().all(|&byte| byte == 0) {
            file.seek(SeekFrom::Current(block.len() as i64))?;
        } else {
            file.write_all(block)?;
        }
    }
    Ok(())
}
