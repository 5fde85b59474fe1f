//! Deflated data that become one block.

use flate2::{Decompress, FlushDecompress, Status};

/// Inflates `packed` into `whole`, from the beginning on: how many bytes there are then, and whether the data ended
/// with them. Anything that is wrong ends it where it is; what follows the data does not matter.
pub(super) fn inflate(inflate: &mut Decompress, packed: &[u8], whole: &mut [u8]) -> (usize, bool) {
    loop {
        // Neither is longer than what it counts in.
        let (read, written) = (inflate.total_in() as usize, inflate.total_out() as usize);
        let input = packed.get(read..).unwrap_or_default();
        let output = whole.get_mut(written..).unwrap_or_default();
        let status = inflate.decompress(input, output, FlushDecompress::Finish);
        let total = inflate.total_out() as usize;
        match status {
            Ok(Status::StreamEnd) => return (total, true),
            Ok(_) if (inflate.total_in() as usize, total) != (read, written) => {}
            _ => return (total, false),
        }
    }
}
