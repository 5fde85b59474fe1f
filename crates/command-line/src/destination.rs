//! How a disk that somebody names as a destination is written.

use crate::failures;
use anyhow::{Result, anyhow, bail};
use blockyard_block::specification::DiskSpecification;
use blockyard_block::{ReplacementError, same_file, shown};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

/// The one place where it is decided: the file that is replaced as a whole, or appears; `None` for a disk that is there
/// and is written in place, as `in_place` asks for. The file's format is another matter, as long as it is one that can
/// be made.
///
/// # Errors
/// When the file's name says a format that is not supported.
pub fn replaced_file(output: &DiskSpecification, in_place: bool) -> Result<Option<&Path>> {
    let is_block_device = |path: &Path| path.metadata().is_ok_and(|metadata| metadata.file_type().is_block_device());
    let file = output.image_file().filter(|path| !in_place && !is_block_device(path));
    if file.is_some() {
        output.check_new_name()?;
    }
    Ok(file)
}

/// An error of a command with -n: says that a mount point can be written in place.
pub fn suggest_in_place(error: impl Into<anyhow::Error>) -> anyhow::Error {
    let error = error.into();
    match failures::replacement(&error) {
        Some(ReplacementError::MountPoint(_)) => anyhow!("{error}, or write into it as it is, with -n"),
        _ => error,
    }
}

/// As far as it can be told from names. Locks tell of images that have a file in common.
///
/// # Errors
/// When they are the same.
pub fn refuse_same_disk(input: &DiskSpecification, output: &DiskSpecification) -> Result<()> {
    let (Some(source), Some(destination)) = (input.path(), output.path()) else { return Ok(()) };
    if !same_file(source, destination).unwrap_or(false) {
        return Ok(());
    }
    let names = match source == destination {
        true => shown(source).to_string(),
        false => format!("{} and {}", shown(source), shown(destination)),
    };
    if input.partition() != output.partition() {
        bail!(
            "{names}: SRC and DST are on the same disk: serve its partitions (blockyard serve --partition) and copy from \
             session to session"
        );
    }
    bail!("{names}: SRC and DST are the same disk");
}
