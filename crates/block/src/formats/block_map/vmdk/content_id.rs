//! The number (CID) by which those that are differences from a disk know that it is what it was.

use super::content_id as place_of;
use crate::ImageError;
use crate::formats::WritableFile;
use crate::formats::block_map::image_file::ImageFile;
use crate::formats::vmdk::descriptor::NO_PARENT;
use crate::random_bytes::random_bytes;
use sha2::{Digest, Sha256};
use std::io;
use std::sync::Arc;

/// Where a number is said, and in how many digits.
pub(in crate::formats::block_map) type Place = (u64, u32);

/// What the number of a disk becomes to which a difference from it is committed that has a number of its own: another
/// one, of six digits at most.
pub(in crate::formats::block_map) fn successor(id: u32, of_difference: u32) -> u32 {
    let numbers = [id.to_le_bytes(), of_difference.to_le_bytes()].concat();
    let hash = Sha256::digest([b"committed".as_slice(), &numbers].concat());
    let next = u32::from_le_bytes([hash[0], hash[1], hash[2], 0]);
    if next == id { (next + 1) % (1 << 24) } else { next }
}

/// Of a disk that is written to.
pub(in crate::formats::block_map) struct ContentId {
    file: Arc<WritableFile>,
    /// Where it is said, and in how many digits.
    place: Option<Place>,
    id: u32,
    /// What it becomes, once that is drawn.
    next: Option<u32>,
}

impl ContentId {
    /// `read` and `file` are of the file with the descriptor. Where it has to say it, as others may be differences from
    /// the disk, `advice` is what helps if it does not.
    pub(in crate::formats::block_map) fn of(
        read: &ImageFile,
        file: Arc<WritableFile>,
        advice: Option<&str>,
    ) -> Result<Self, ImageError> {
        let (place, id) = place_of(read, advice)?;
        Ok(Self { file, place, id, next: None })
    }

    /// When it is made another one, it is to be this.
    pub(in crate::formats::block_map) fn becomes(&mut self, id: u32) {
        self.next = Some(id);
    }

    /// Makes it another one of as many digits, which is stable before anything else changes. After a failure the same
    /// one again.
    pub(in crate::formats::block_map) fn change(&mut self) -> io::Result<()> {
        let Some((at, digits)) = self.place else { return Ok(()) };
        // NO_PARENT is no disk's.
        let end = 1_u32.checked_shl(4 * digits).unwrap_or(NO_PARENT);
        let id = match self.next {
            Some(id) => id,
            None => {
                let random = u32::from_le_bytes(random_bytes::<4>()?) % end;
                if random == self.id { (random + 1) % end } else { random }
            }
        };
        self.next = Some(id);
        self.file.write_stable(format!("{id:0digits$x}", digits = digits as usize).as_bytes(), at)
    }
}
