//! Directories of an archive, which are finished at its end: their times change with what is put into them, their
//! permissions may forbid it, and what they give to new files is not for those of the archive.

use super::bounds::Bounds;
use super::metadata::{Lists, Metadata, finish_directory};
use crate::failures::Failures;
use rustix::fs::{Mode, Timestamps};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// Those that have come.
#[derive(Default)]
pub(super) struct Directories(HashMap<PathBuf, Directory>);

struct Directory {
    /// How many came before it.
    number: usize,
    mode: Mode,
    lists: Lists,
    modified: Timestamps,
}

impl Directories {
    /// Takes note of one. The last of those with one path counts.
    pub(super) fn add(&mut self, path: &Path, metadata: Metadata) {
        let (number, mode) = (self.0.len(), metadata.mode());
        let Metadata { lists, modified, .. } = metadata;
        self.0.insert(path.to_owned(), Directory { number, mode, lists, modified });
    }

    /// Something else is there now.
    pub(super) fn forget(&mut self, path: &Path) {
        self.0.remove(path);
    }

    /// Finishes all of them, in the order that they came in: two paths may lead to one.
    pub(super) fn finish(self, bounds: &Bounds, failures: &mut Failures) {
        let mut all: Vec<_> = self.0.into_iter().collect();
        all.sort_unstable_by_key(|(_, directory)| directory.number);
        for (path, Directory { mode, lists, modified, .. }) in all {
            // Something else may have taken its place, or that of another on the way.
            let done = bounds.check(&path).and_then(|()| finish_directory(&path, mode, &lists, &modified));
            failures.note(&path, "cannot set the attributes of", done);
        }
    }
}
