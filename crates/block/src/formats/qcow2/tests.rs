//! Tests of images as a whole: what they cost, and what is left of them by power cuts, damage, and people who mean ill.

mod bounded;
mod cost;
mod crashes;
mod cut_files;
mod cut_short;
mod failures;
mod fuzz;
mod power_cut;
pub(super) mod recorded_file;

use crate::{FileOptions, OpenedFile};
use std::path::Path;

/// Opens an image to change it, as `DiskSpecification::open_image` does.
pub(super) fn open_to_change(path: &Path) -> OpenedFile {
    let image = OpenedFile::open(path, false).unwrap();
    image.lock(&FileOptions::default()).unwrap();
    image
}
