//! The number (CID) by which those that are differences from a disk know that it is what it was.

use super::content_id as place_of;
use crate::ImageError;
use crate::formats::WritableFile;
use crate::formats::block_map::image_file::ImageFile;
use crate::formats::vmdk::descriptor::NO_PARENT;
use crate::random_bytes::random_bytes;
use std::io;
use std::sync::Arc;

/// Of a disk that is written to.
pub(in crate::formats::block_map) struct ContentId {
    file: Arc<WritableFile>,
    at: u64,
    digits: u32,
    id: u32,
    /// What it becomes, once that is drawn.
    next: Option<u32>,
}

impl ContentId {
    /// `read` and `file` are of the file with the descriptor.
    pub(in crate::formats::block_map) fn of(read: &ImageFile, file: Arc<WritableFile>) -> Result<Self, ImageError> {
        let ((at, digits), id) = place_of(read)?;
        Ok(Self { file, at, digits, id, next: None })
    }

    /// Makes it another one of as many digits, which is stable before anything else changes. After a failure the same
    /// one again.
    pub(in crate::formats::block_map) fn change(&mut self) -> io::Result<()> {
        // NO_PARENT is no disk's.
        let end = 1_u32.checked_shl(4 * self.digits).unwrap_or(NO_PARENT);
        let id = match self.next {
            Some(id) => id,
            None => {
                let random = u32::from_le_bytes(random_bytes::<4>()?) % end;
                if random == self.id { (random + 1) % end } else { random }
            }
        };
        self.next = Some(id);
        self.file.write_stable(format!("{id:0digits$x}", digits = self.digits as usize).as_bytes(), self.at)
    }
}
