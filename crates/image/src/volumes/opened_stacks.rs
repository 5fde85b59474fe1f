//! What of an image's stacks is open, for whoever holds the image.

use std::collections::BTreeSet;

/// What was opened, in that order, and what was tried.
#[derive(Debug, Default)]
pub(crate) struct Stacks {
    pub(super) opened: Vec<StackedDevice>,
    /// Volumes whose opening was tried.
    pub(super) tried: BTreeSet<String>,
    /// What is to be said of it.
    pub(super) notes: Vec<String>,
}

/// Something that was opened.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum StackedDevice {
    /// Its path.
    Array(String),
    /// Its name in /dev/mapper.
    Encrypted(String),
    /// A volume group.
    Group(String),
}
