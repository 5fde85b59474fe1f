//! Folding an image into the one that it is based on.

use super::{Told, stopped};
use crate::Watch;
use crate::error::{Context, Error, Result};
use blockyard_block::specification::Format;
use blockyard_block::{AllowedDirectories, ChainKeys, FoldError, OpenedFile, Qcow2Commit, VmdkCommit, shown};
use std::path::{Path, PathBuf};

/// A commit, with all its files open and locked.
pub struct Commit {
    name: String,
    commit: Kind,
}

enum Kind {
    Qcow2(Qcow2Commit),
    Vmdk(Box<VmdkCommit>),
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
    /// chain that `base` names; or of a VMDK, into its parent. They lie in `allow_dirs`; `keys` open those that are
    /// encrypted.
    ///
    /// # Errors
    /// When there is no such backing file, or one of the files cannot be had.
    pub fn open(
        name: &str,
        (image, format): (OpenedFile, Format),
        base: Option<&Path>,
        allow_dirs: &[PathBuf],
        keys: ChainKeys,
    ) -> Result<Self> {
        let allowed = AllowedDirectories::new(allow_dirs)?.with_keys(keys);
        let commit = match format {
            Format::BlockMap(_) => VmdkCommit::open(image, base, &allowed).map(|commit| Kind::Vmdk(Box::new(commit))),
            _ => Qcow2Commit::open(image, base, &allowed).map(Kind::Qcow2),
        };
        let commit = commit.with_context(|| cannot_commit(name))?;
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
        let committed = commit.committed();
        folded.map_err(|error| match error {
            FoldError::Stopped => stopped(watch),
            FoldError::Top(error) => Error::from(error).context(cannot_commit(&name)),
            FoldError::Base(error) => {
                let error = Error::from(error).context(format!("cannot write to {}", shown(&committed.base)));
                error.context(cannot_commit(&name))
            }
        })?;
        if empties {
            let emptied = match commit {
                Kind::Qcow2(commit) => commit.empty(),
                Kind::Vmdk(commit) => commit.empty(),
            };
            emptied.with_context(|| {
                format!("{} has all of {name}, which may not be empty now: commit it again", shown(&committed.base))
            })?;
        }
        Ok(committed)
    }
}

impl Kind {
    fn capacity_bytes(&self) -> u64 {
        match self {
            Self::Qcow2(commit) => commit.capacity_bytes(),
            Self::Vmdk(commit) => commit.capacity_bytes(),
        }
    }

    fn fold(&self, goes_on: &mut dyn FnMut(u64, u64) -> bool) -> Result<u64, FoldError> {
        match self {
            Self::Qcow2(commit) => commit.fold(goes_on),
            Self::Vmdk(commit) => commit.fold(goes_on),
        }
    }

    fn committed(&self) -> Committed {
        let (base, between) = match self {
            Self::Qcow2(commit) => (commit.base_path(), commit.between()),
            Self::Vmdk(commit) => (commit.base_path(), 0),
        };
        Committed { base: base.to_owned(), between }
    }
}

fn cannot_commit(name: &str) -> String {
    format!("cannot commit {name}")
}
