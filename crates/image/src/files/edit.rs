//! Editing a file of an image: as a copy on the host, which goes back when it was changed.

use super::file_type::is_regular;
use crate::error::{Context, Result, refuse};
use crate::guest::{OpenImage, image_path, path_of, read_in};
use blockyard_block::shown;
use blockyard_protocol::appliance::{Operation, Store};
use blockyard_protocol::pattern::escaped;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Permissions of a file that was removed while it was edited.
const MODE: u32 = 0o644;
/// Letters of a file's name that its copy keeps.
const NAME_LETTERS_MAX: usize = 64;

/// A file of an image, and a copy of it on the host.
#[derive(Debug)]
pub struct EditedFile {
    path: PathBuf,
    copy: PathBuf,
    before: Vec<u8>,
}

impl EditedFile {
    /// The file's path in the image, from its root.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The copy.
    pub fn copy(&self) -> &Path {
        &self.copy
    }

    /// Whether the copy holds something else than the file did.
    ///
    /// # Errors
    /// When the copy cannot be read.
    pub fn is_changed(&self) -> Result<bool> {
        Ok(fs::read(&self.copy).context("reading what was edited")? != self.before)
    }
}

impl OpenImage {
    /// Copies a regular file of the image into a directory of the host, so that it can be edited there. The copy's name
    /// ends as the file's does and has no letters that a shell would take for something else.
    ///
    /// # Errors
    /// When there is no such file, or no copy can be made.
    pub fn copy_to_edit(&mut self, path: &Path, directory: &Path) -> Result<EditedFile> {
        let path = path_of(image_path(path));
        let Some(entry) = self.entry(&path, true)? else { refuse!("{}: no such file in the image", shown(&path)) };
        if !is_regular(entry.mode) {
            refuse!("{}: it is not a regular file", shown(&path));
        }
        // With its own ending, by which editors know what it is.
        let copy = directory.join(name_for_host(&path));
        let file = File::create_new(&copy).context("making a copy")?;
        let literal = path_of(escaped(path.as_os_str().as_bytes()));
        self.read([literal], file)?.sync_all().context("making a copy")?;
        let before = fs::read(&copy).context("reading the copy")?;
        Ok(EditedFile { path, copy, before })
    }

    /// Puts the copy's contents into the file. Its owner, permissions and extended attributes stay.
    ///
    /// # Errors
    /// When the copy cannot be read, or the file not be written: it is as it was then.
    pub fn write_back(&mut self, file: &EditedFile) -> Result<()> {
        let edited = File::open(&file.copy).context("reading what was edited")?;
        let path = file.path.as_os_str().as_bytes().to_vec();
        let store = Store { path, stream: true, keep: true, mode: MODE, ..Store::default() };
        read_in(self, Operation::Store(store), edited).map(drop)
    }
}

/// The last part of the path, without what a shell or an editor could take for something else.
fn name_for_host(path: &Path) -> OsString {
    let name = path.file_name().unwrap_or(OsStr::new("file")).to_string_lossy();
    let harmless = |letter: char| if letter.is_ascii_alphanumeric() || "._".contains(letter) { letter } else { '_' };
    let name: String = name.chars().map(harmless).take(NAME_LETTERS_MAX).collect();
    format!("image_{name}").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_an_image_are_harmless_on_the_host() {
        assert_eq!(name_for_host(Path::new("/etc/fstab")), "image_fstab");
        assert_eq!(name_for_host(Path::new("/a/-x $(id)\n.conf")), "image__x___id__.conf");
        assert_eq!(name_for_host(Path::new("/")), "image_file");
    }
}
