//! The number (CID) by which those that are differences from a disk know that it is what it was.

use super::Numbers;
use crate::ImageError;
use crate::formats::WritableFile;
use crate::formats::block_map::image_file::ImageFile;
use crate::formats::vmdk::descriptor::NO_PARENT;
use crate::random_bytes::random_bytes;
use sha2::{Digest, Sha256};
use std::io;
use std::path::PathBuf;
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

/// A number as a file says it, which may become another one.
#[derive(Clone)]
pub(in crate::formats::block_map) struct Number {
    file: Arc<WritableFile>,
    at: u64,
    digits: u32,
}

impl Number {
    pub(in crate::formats::block_map) fn new(file: Arc<WritableFile>, (at, digits): Place) -> Self {
        Self { file, at, digits }
    }

    /// Makes it another one of as many digits, on stable storage.
    pub(in crate::formats::block_map) fn write(&self, id: u32) -> io::Result<()> {
        self.file.write_stable(format!("{id:0digits$x}", digits = self.digits as usize).as_bytes(), self.at)
    }

    /// How many there are of as many digits. `NO_PARENT` is no disk's.
    fn end(&self) -> u32 {
        1_u32.checked_shl(4 * self.digits).unwrap_or(NO_PARENT)
    }
}

/// Of a disk that is written to.
pub(in crate::formats::block_map) struct ContentId {
    number: Option<Number>,
    id: u32,
    /// What it becomes, once that is drawn.
    next: Option<u32>,
    /// What its parent's is to be before.
    parent: Option<(Number, u32)>,
    /// Where it says that.
    parent_number: Option<Number>,
    path: PathBuf,
}

impl ContentId {
    /// `read` and `file` are of the file with the descriptor. Where it has to say it, as others may be differences from
    /// the disk, `advice` is what helps if it does not.
    pub(in crate::formats::block_map) fn of(
        read: &ImageFile,
        file: Arc<WritableFile>,
        advice: Option<&str>,
    ) -> Result<Self, ImageError> {
        let Numbers { id_at, id, parent_id_at } = Numbers::of(read, advice)?;
        let number = id_at.map(|place| Number::new(Arc::clone(&file), place));
        let parent_number = parent_id_at.map(|place| Number::new(file, place));
        Ok(Self { number, id, next: None, parent: None, parent_number, path: read.path().to_owned() })
    }

    /// When it is made another one, it is to be this.
    pub(in crate::formats::block_map) fn becomes(&mut self, id: u32) {
        self.next = Some(id);
    }

    /// A commit of the disk to its parent was begun and stopped: it says what the parent's number, which is `id` still,
    /// was to become, and only by its own anybody knows that. So it says `id` again before its own is made another one.
    ///
    /// # Errors
    /// When it cannot.
    pub(in crate::formats::block_map) fn undoes_commit(&mut self, id: u32) -> Result<(), ImageError> {
        let number = self.parent_number.clone().filter(|number| id < number.end());
        let number = number.ok_or_else(|| ImageError::Unusable {
            path: self.path.clone(),
            problem:
                "is a difference whose commit was stopped, and does not say its parent's CID once, as a number, so \
                      it is only read: add ,ro, or make one image of it with `blockyard image convert`"
                    .to_owned(),
        })?;
        self.parent = Some((number, id));
        Ok(())
    }

    /// What [`ContentId::undoes_commit`] has it say of its parent before its own number changes.
    pub(in crate::formats::block_map) fn parent(&self) -> Option<(Number, u32)> {
        self.parent.clone()
    }

    /// Makes it another one of as many digits, which is stable before anything else changes. After a failure the same
    /// one again.
    pub(in crate::formats::block_map) fn change(&mut self) -> io::Result<()> {
        if let Some((number, id)) = &self.parent {
            number.write(*id)?;
        }
        let Some(number) = &self.number else { return Ok(()) };
        let id = match self.next {
            Some(id) => id,
            None => {
                let random = u32::from_le_bytes(random_bytes::<4>()?) % number.end();
                if random == self.id { (random + 1) % number.end() } else { random }
            }
        };
        self.next = Some(id);
        number.write(id)
    }
}
