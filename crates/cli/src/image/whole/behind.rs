//! What is to be behind an image.

use anyhow::{Context, Result, bail};
use blockyard_block::specification::Format;
use blockyard_block::{Disk, KeyFile, LocalName, LuksDisk, Qcow2Backing, Qcow2Disk, Qcow2Info, directory_of};
use blockyard_command_line::disk;
use blockyard_command_line::usage_error::{UsageError, UsageLines};
use blockyard_image::whole::{self, backing_path};
use blockyard_session::open::{open_disk, open_file};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// These directories, and the one that the backing file of an image at `image` is in: who names it allows it.
pub fn allowed(image: &Path, backing: Option<&Qcow2Backing>, allow_dirs: &[PathBuf]) -> Vec<PathBuf> {
    let own = backing.map(|backing| directory_of(&backing_path(image, &backing.name)).to_owned());
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
    check_name(backing)?;
    let named = whole::behind(image, backing).map_err(UsageLines::from)?.with_key_file(key_file.map(KeyFile::new));
    Ok(open_disk(&named, &disk::to_read(allow_dirs).streaming()).context("cannot open the backing file")?.disk)
}

/// How large its disk is; and the disk, which is in use as long as it is open, with all that is behind it. Of one that
/// is encrypted that takes no key: nothing of it is read, and there is none.
///
/// # Errors
/// As [`open`].
pub fn look_at(
    image: &Path,
    backing: &Qcow2Backing,
    allow_dirs: &[PathBuf],
    key_file: Option<&Path>,
) -> Result<(u64, Option<Arc<dyn Disk>>)> {
    check_name(backing)?;
    let named = whole::behind(image, backing).map_err(UsageLines::from)?.read_only();
    if key_file.is_none() && matches!(named.format(), Some(Format::Qcow2 | Format::Luks)) {
        let file = open_file(&named, &disk::to_read(allow_dirs)).context("cannot open the backing file")?.file;
        if named.format() == Some(Format::Luks) {
            let place = LuksDisk::place_in(&file)?;
            return Ok((place.end - place.start, None));
        }
        if Qcow2Info::of_opened(&file)?.encryption.is_some() {
            return Ok((Qcow2Disk::size_bytes_of(&file)?, None));
        }
    }
    let disk = open(image, backing, allow_dirs, key_file)?;
    Ok((disk.geometry().capacity_bytes, Some(disk)))
}

/// Whether the name says a plain file, and no other format.
fn check_name(Qcow2Backing { name, format }: &Qcow2Backing) -> Result<()> {
    let local = LocalName::of(name).map_err(|problem| UsageError(format!("{name}: {problem}")))?;
    match local.format.filter(|said| said != format) {
        Some(said) => bail!(UsageError(format!("{name} says that it is {said}, and not {format}: say -F {said}"))),
        None => Ok(()),
    }
}
