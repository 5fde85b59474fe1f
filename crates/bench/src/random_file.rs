//! Files to measure with.

use crate::random::Random;
use std::fs::OpenOptions;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::Path;

/// Writes `length_bytes` of data that neither compress nor repeat, so that nothing can take a short cut, from
/// `offset_bytes` on. The file is made if need be.
///
/// # Errors
/// When it cannot be written.
pub fn write(path: &Path, offset_bytes: u64, length_bytes: u64) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
    file.seek(SeekFrom::Start(offset_bytes))?;
    let mut random = Random::new(0, 0);
    let mut block = vec![0_u8; 1 << 20];
    let mut left = length_bytes;
    while left > 0 {
        random.fill(&mut block);
        let length = left.min(block.len() as u64) as usize;
        file.write_all(&block[..length])?;
        left -= length as u64;
    }
    // Written back now, so that it does not happen during the first measurements.
    file.sync_all()
}
