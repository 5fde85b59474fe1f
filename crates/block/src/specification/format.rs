//! What a file's bytes are.

use crate::FileFormat;
use std::path::Path;
use std::str::FromStr;

/// What a file's bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// The disk's own.
    Raw,
    /// An image in QEMU's format.
    Qcow2,
    /// An image in VMware's format, flat, which is only read.
    Vmdk,
}

impl Format {
    /// Every format.
    pub const ALL: [Self; 3] = [Self::Raw, Self::Qcow2, Self::Vmdk];

    /// Its word: `raw`, `qcow2` or `vmdk`.
    pub fn word(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Qcow2 => "qcow2",
            Self::Vmdk => "vmdk",
        }
    }

    /// The one among those that are supported.
    pub(super) fn of(format: &FileFormat) -> Option<Self> {
        Self::ALL.into_iter().find(|supported| supported.word() == format.word)
    }

    /// What a file of this name is unless somebody says otherwise. What is not supported is refused when it is opened.
    pub(super) fn of_name(path: &Path) -> Self {
        FileFormat::of_name(path).and_then(Self::of).unwrap_or(Self::Raw)
    }
}

impl FromStr for Format {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|format| format.word() == word);
        found.ok_or_else(|| format!("there is no '{word}', only raw, qcow2 and vmdk"))
    }
}
