//! What is to be behind an image.

use anyhow::{Context, Result, bail};
use blockyard_block::specification::Format;
use blockyard_block::{
    AllowedDirectories, Disk, FileOptions, KeyFile, LocalName, LuksDisk, Qcow2Backing, Qcow2Held, directory_of,
};
use blockyard_command_line::disk;
use blockyard_command_line::usage_error::{UsageError, UsageLines};
use blockyard_image::whole::{self, backing_path};
use blockyard_session::open::{open_disk, open_file};
use std::any::Any;
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

/// How large its disk is; and what holds it, which is in use as long as that is there, with all that is behind it. What
/// of these is encrypted takes no key: nothing of it is read.
///
/// # Errors
/// As [`open`].
pub fn look_at(
    image: &Path,
    backing: &Qcow2Backing,
    allow_dirs: &[PathBuf],
    key_file: Option<&Path>,
) -> Result<(u64, Box<dyn Any>)> {
    check_name(backing)?;
    let named = whole::behind(image, backing).map_err(UsageLines::from)?.read_only();
    let what = "cannot open the backing file";
    match named.format().filter(|_| key_file.is_none()) {
        Some(Format::Luks) => {
            let file = open_file(&named, &disk::to_read(allow_dirs)).context(what)?.file;
            file.lock(&FileOptions { read_only: true, ..FileOptions::default() }).context(what)?;
            let place = LuksDisk::place_in(&file).context(what)?;
            Ok((place.end - place.start, Box::new(file)))
        }
        Some(Format::Qcow2) => {
            let file = open_file(&named, &disk::to_read(allow_dirs)).context(what)?.file;
            let held = Qcow2Held::of(&file, &AllowedDirectories::new(allow_dirs)?).context(what)?;
            Ok((held.size_bytes(), Box::new(held)))
        }
        _ => {
            let disk = open(image, backing, allow_dirs, key_file)?;
            Ok((disk.geometry().capacity_bytes, Box::new(disk)))
        }
    }
}

/// Whether the name says a plain file, and no other format.
fn check_name(Qcow2Backing { name, format }: &Qcow2Backing) -> Result<()> {
    let local = LocalName::of(name).map_err(|problem| UsageError(format!("{name}: {problem}")))?;
    match local.format.filter(|said| said != format) {
        Some(said) => bail!(UsageError(format!("{name} says that it is {said}, and not {format}: say -F {said}"))),
        None => Ok(()),
    }
}
