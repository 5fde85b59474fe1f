//! Doing what the log of an image holds, whose writer has not closed it.
//!
//! At any time the image is as it was, or whole: the log counts until all that it holds is stable where it belongs, and
//! can be done any number of times. Of the two headers, the one that does not count is written, and counts when it is
//! there: first with another id of the file's contents, as whoever changes them has to, then without a log.

use super::header::{HEADER_BYTES, HEADER_OFFSETS, Header, set_checksum};
use crate::formats::WritableFile;
use crate::formats::block_map::changes::{Zeroing, zero_in_place};
use crate::formats::block_map::image_file::ImageFile;
use crate::random_bytes::random_bytes;
use crate::{ImageError, OpenedFile};
use rustix::io::Errno;
use std::io;

/// Longest file that a log may ask for: the largest disk, 64 TiB, and tables.
const FILE_MAX_BYTES: u64 = 65 << 40;

/// Does what the log of an image holds, which is open for writing and locked; whether it held anything.
///
/// # Errors
/// When the image or its log is damaged, and nothing was written; when it cannot be written, and it can be done again.
pub(in crate::formats::block_map) fn replay_log(image: &OpenedFile) -> Result<bool, ImageError> {
    let mut file = ImageFile::of(image.file(), image.path())?;
    // All of it is judged before anything is written.
    super::read(&mut file)?;
    let Some(logged) = file.logged() else { return Ok(false) };
    let failed = |source| ImageError::System { action: "replay the log of", path: image.path().to_owned(), source };
    let is_growing = image.file().metadata().map_err(failed)?.is_file();
    let end_bytes = logged.end_bytes();
    if end_bytes > FILE_MAX_BYTES || (end_bytes > file.length_bytes() && !is_growing) {
        return Err(file.unusable(format!("is to have {end_bytes} bytes by its log, for which there is no room here")));
    }
    let header = Header::find(&file)?;
    let to = WritableFile::new(image.file().try_clone().map_err(failed)?, file.length_bytes(), is_growing, false);
    let mut headers = Headers::of(&file, &header, &to)?;
    let id = random_bytes::<16>().map_err(failed)?;
    headers.write(|bytes| bytes[16..32].copy_from_slice(&id)).map_err(failed)?;
    let done = to.reach(end_bytes).and_then(|()| {
        logged.changes().try_for_each(|(range, page)| match page {
            Some(page) => to.write(page, range.start),
            // What is new is zeros.
            None => zero_in_place(&to, range.start, range.end - range.start, Zeroing::Unmap),
        })
    });
    done.and_then(|()| to.barrier()).map_err(failed)?;
    // One is enough; the other is then no older state that somebody could fall back to.
    for _ in HEADER_OFFSETS {
        headers.write(|bytes| bytes[48..64].fill(0)).map_err(failed)?;
    }
    Ok(true)
}

/// The two headers.
struct Headers<'a> {
    to: &'a WritableFile,
    sequence: u64,
    /// The one that counts.
    bytes: Vec<u8>,
    /// The place of the other one.
    next: usize,
}

impl<'a> Headers<'a> {
    /// Of a file whose current header this is.
    fn of(file: &ImageFile, header: &Header, to: &'a WritableFile) -> Result<Self, ImageError> {
        for (place, offset) in HEADER_OFFSETS.into_iter().enumerate() {
            let bytes = file.read_up_to(offset, HEADER_BYTES)?;
            if matches!(Header::parse(&bytes), Some(Ok(found)) if found == *header) {
                return Ok(Self { to, sequence: header.sequence, bytes, next: 1 - place });
            }
        }
        Err(file.unusable("is being changed by somebody else"))
    }

    /// Makes a header with a change the one that counts, on stable storage.
    fn write(&mut self, change: impl FnOnce(&mut [u8])) -> io::Result<()> {
        let sequence = self.sequence.checked_add(1).ok_or(Errno::OVERFLOW)?;
        let mut bytes = self.bytes.clone();
        change(&mut bytes);
        bytes[8..16].copy_from_slice(&sequence.to_le_bytes());
        bytes[4..8].fill(0);
        set_checksum(&mut bytes);
        self.to.write(&bytes, HEADER_OFFSETS[self.next])?;
        self.to.barrier()?;
        (self.sequence, self.bytes, self.next) = (sequence, bytes, 1 - self.next);
        Ok(())
    }
}
