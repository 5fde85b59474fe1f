//! What is to be behind an image.

use anyhow::{Context, Result};
use blockyard_block::{Disk, KeyFile, Qcow2Backing, directory_of};
use blockyard_command_line::disk;
use blockyard_command_line::usage_error::UsageLines;
use blockyard_image::whole::{self, named_from};
use blockyard_session::open::open_disk;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// These directories, and the one that the backing file of an image at `image` is in: who names it allows it.
pub fn allowed(image: &Path, backing: Option<&Qcow2Backing>, allow_dirs: &[PathBuf]) -> Vec<PathBuf> {
    let own = backing.map(|backing| directory_of(&named_from(image, &backing.name)).to_owned());
    allow_dirs.iter().cloned().chain(own).collect()
}

/// Opens it, for reading: it must be there, and be what it is said to be. `key_file`: its passphrase, if it is
/// encrypted.
///
/// # Errors
/// When it is not.
pub fn open(
    image: &Path,
    backing: &Qcow2Backing,
    allow_dirs: &[PathBuf],
    key_file: Option<&Path>,
) -> Result<Arc<dyn Disk>> {
    let named = whole::behind(image, backing).map_err(UsageLines::from)?.with_key_file(key_file.map(KeyFile::new));
    Ok(open_disk(&named, &disk::to_read(allow_dirs).streaming()).context("cannot open the backing file")?.disk)
}
