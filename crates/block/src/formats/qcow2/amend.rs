//! Changing what an image's header says of it: its version, and whether refcounts may be behind.

use super::chain::{header_to_change, image_file};
use super::header_change::FirstCluster;
use super::snapshots;
use crate::OpenedFile;
use crate::formats::ImageError;
use std::io;

/// What an image's header is to say from now on; `None`: what it says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Qcow2Amendment {
    /// Version 3, which version 2 becomes.
    pub version: Option<u32>,
    /// Refcounts may be written late by whoever writes to it: the dirty mark says so then.
    pub has_lazy_refcounts: Option<bool>,
}

impl Qcow2Amendment {
    /// Changes the header of an image that is open for writing, and locked: all of it, by one sector, or nothing. What
    /// is marked dirty is repaired before.
    ///
    /// # Errors
    /// When the image is damaged or cannot be written, when there is no such image, or no room in its header.
    pub fn apply(&self, image: &OpenedFile) -> Result<(), ImageError> {
        let header = header_to_change(image.file(), image.path())?;
        let failed = |source: io::Error| ImageError::System {
            action: "change the header of",
            path: image.path().to_owned(),
            source,
        };
        let refused = |problem: &str| ImageError::Unusable { path: image.path().to_owned(), problem: problem.into() };
        let file = image_file(image.file()).map_err(failed)?;
        let mut first = FirstCluster::read(&file, &header).map_err(failed)?;
        match self.version.unwrap_or(header.version) {
            version if version < header.version => {
                return Err(refused(
                    "is of version 3 (compat=1.1), and does not become one of version 2, which would lose what only \
                     the newer one can say: convert it (image convert -o compat=0.10)",
                ));
            }
            version if version > header.version => {
                let found = snapshots::found(&file, &header).map_err(failed)?;
                if found.iter().any(|snapshot| snapshot.own_size_bytes.is_none()) {
                    return Err(refused(
                        "has snapshots that do not say which size they have, as those of version 3 must: remove them \
                         first (image snapshot -d)",
                    ));
                }
                first.become_version_3();
            }
            _ => {}
        }
        if let Some(is_lazy) = self.has_lazy_refcounts {
            first.set_lazy_refcounts(is_lazy).map_err(refused)?;
        }
        first.write(&file).map_err(failed)
    }
}
