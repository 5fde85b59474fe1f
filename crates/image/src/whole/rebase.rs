//! Putting another backing file behind an image.

use super::Told;
use crate::Watch;
use crate::error::{Context, Result};
use blockyard_block::{
    AllowedDirectories, ChainKeys, Disk, OpenedFile, Qcow2Backing, Qcow2Rebase, Qcow2Shown, printable,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A qcow2 image that gets another backing file, or none.
pub struct Rebase {
    name: String,
    path: PathBuf,
    rebase: Qcow2Rebase,
}

impl Rebase {
    /// Of the image called `name`, which is open for writing and locked.
    ///
    /// # Errors
    /// When it cannot be used.
    pub fn open(name: &str, image: OpenedFile) -> Result<Self> {
        let path = image.path().to_owned();
        let rebase = Qcow2Rebase::open(image).with_context(|| cannot_rebase(name))?;
        Ok(Self { name: name.to_owned(), path, rebase })
    }

    /// Its file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What has to be written to the image so that it shows the same with `behind` as the disk that is behind it. What
    /// is behind it now lies in `allow_dirs`; `keys` open what is encrypted of these. `None`: nothing, as there is
    /// nothing behind it before or after.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn keeping(
        &self,
        behind: Option<Arc<dyn Disk>>,
        allow_dirs: &[PathBuf],
        keys: ChainKeys,
    ) -> Result<Option<Keeping<'_>>> {
        let allowed = AllowedDirectories::new(allow_dirs)?.with_keys(keys);
        let shown = self.rebase.shown(&allowed).with_context(|| cannot_rebase(&self.name))?;
        Ok((behind.is_some() || shown.has_backing()).then_some(Keeping { name: &self.name, shown, behind }))
    }

    /// Names another backing file, or none, which is behind the image from now on; nothing is compared.
    ///
    /// # Errors
    /// When the image cannot be written.
    pub fn name_backing(&self, backing: Option<&Qcow2Backing>) -> Result<()> {
        self.rebase.name_backing(backing).with_context(|| cannot_rebase(&self.name))
    }
}

/// What an image shows, which is to be kept.
pub struct Keeping<'a> {
    name: &'a str,
    shown: Qcow2Shown,
    behind: Option<Arc<dyn Disk>>,
}

impl Keeping<'_> {
    /// Writes to the image what it would not show any more.
    ///
    /// # Errors
    /// When a disk fails, `watch` ends it, or a snapshot would show something else.
    pub fn run(&self, watch: &dyn Watch) -> Result<()> {
        let Self { name, shown, behind } = self;
        let told = Told { watch, length_bytes: shown.capacity_bytes() };
        let written = shown.keep(behind.as_deref(), &mut |at, data| told.goes_on(at, data));
        let has_written = written.map_err(|error| told.why(error, cannot_rebase(name)))?;
        let who = match shown.is_wider_than_behind() {
            _ if !has_written => return Ok(()),
            (true, true) => "go",
            (true, false) => "g",
            (false, true) => "o",
            (false, false) => return Ok(()),
        };
        let name = printable(name);
        let why = "fewer may read what it was based on than may read it, and it has data of that now";
        watch.note(&format!("{name}: {why}: `chmod {who}-r` it if these are secret"));
        Ok(())
    }
}

fn cannot_rebase(name: &str) -> String {
    format!("cannot rebase {name}")
}
