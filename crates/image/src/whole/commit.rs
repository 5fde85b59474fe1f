//! Folding an image into the one that it is based on.

use super::Told;
use crate::Watch;
use crate::error::{Context, Result};
use blockyard_block::{AllowedDirectories, ChainKeys, OpenedFile, Qcow2Commit};
use std::path::{Path, PathBuf};

/// A commit, with all its files open and locked.
pub struct Commit {
    name: String,
    commit: Qcow2Commit,
}

/// What a commit has done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    /// The file that the image was folded into.
    pub base: PathBuf,
    /// Images between the two, which hold nothing any more that counts.
    pub between: usize,
}

impl Commit {
    /// Of the qcow2 image called `name`, which is open for writing and locked, into its backing file, or the one of its
    /// chain that `base` names. They lie in `allow_dirs`; `keys` open those that are encrypted.
    ///
    /// # Errors
    /// When there is no such backing file, or one of the files cannot be had.
    pub fn open(
        name: &str,
        image: OpenedFile,
        base: Option<&Path>,
        allow_dirs: &[PathBuf],
        keys: ChainKeys,
    ) -> Result<Self> {
        let allowed = AllowedDirectories::new(allow_dirs)?.with_keys(keys);
        let commit = Qcow2Commit::open(image, base, &allowed).with_context(|| cannot_commit(name))?;
        Ok(Self { name: name.to_owned(), commit })
    }

    /// Writes what the image holds to its base; `empties`: and empties it, for which the base must be its backing file.
    /// The image shows the same at any time.
    ///
    /// # Errors
    /// When one of them cannot be written, or `watch` ends it: then it can be done again.
    pub fn run(self, empties: bool, watch: &dyn Watch) -> Result<Committed> {
        let Self { name, commit } = self;
        let told = Told { watch, length_bytes: commit.capacity_bytes() };
        let folded = commit.fold(&mut |at, data| told.goes_on(at, data));
        folded.map_err(|error| told.why(error, cannot_commit(&name)))?;
        let committed = Committed { base: commit.base_path().to_owned(), between: commit.between() };
        if empties {
            commit.empty().with_context(|| cannot_commit(&name))?;
        }
        Ok(committed)
    }
}

fn cannot_commit(name: &str) -> String {
    format!("cannot commit {name}")
}
