//! What a file's bytes are.

use crate::{BlockMapFormat, Compression, FileFormat};
use std::fmt;
use std::path::Path;
use std::str::FromStr;

/// What a file's bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// The disk's own.
    Raw,
    /// An image in QEMU's format.
    Qcow2,
    /// A LUKS 1 volume.
    Luks,
    /// An image in another hypervisor's format: read, and some are made; of these, VMDKs are written in place.
    BlockMap(BlockMapFormat),
    /// A machine's archive, of which disks are only read.
    Ova,
}

impl Format {
    /// Every format.
    pub const ALL: [Self; 10] = [
        Self::Raw,
        Self::Qcow2,
        Self::Luks,
        Self::BlockMap(BlockMapFormat::Vmdk),
        Self::BlockMap(BlockMapFormat::Vdi),
        Self::BlockMap(BlockMapFormat::Vhd),
        Self::BlockMap(BlockMapFormat::Vhdx),
        Self::BlockMap(BlockMapFormat::Qed),
        Self::BlockMap(BlockMapFormat::Parallels),
        Self::Ova,
    ];

    /// Its word: qemu-img's. VHD has what everybody else calls it, `vhd`, besides.
    pub fn word(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Qcow2 => "qcow2",
            Self::Luks => "luks",
            Self::BlockMap(format) => format.word(),
            Self::Ova => "ova",
        }
    }

    /// What people call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Raw | Self::Qcow2 => self.word(),
            Self::Luks => "LUKS",
            Self::BlockMap(format) => format.name(),
            Self::Ova => "OVA",
        }
    }

    /// Whether images can be made in it, and not only read.
    pub fn is_made(self) -> bool {
        use BlockMapFormat::{Vdi, Vhd, Vhdx, Vmdk};
        matches!(self, Self::Raw | Self::Qcow2 | Self::Luks | Self::BlockMap(Vmdk | Vdi | Vhd | Vhdx))
    }

    /// The one among those that are supported.
    pub(crate) fn of(format: &FileFormat) -> Option<Self> {
        Self::ALL.into_iter().find(|supported| supported.word() == format.word)
    }

    /// What a file of this name is unless somebody says otherwise. What is not supported is refused when it is opened.
    pub(super) fn of_name(path: &Path) -> Self {
        let path = Compression::of_name(path).map_or(path, |(_, content)| content);
        FileFormat::of_name(path).and_then(Self::of).unwrap_or(Self::Raw)
    }
}

/// A format as somebody says it of a file: `qcow2`, or of what is in a compressed one: `qcow2.xz`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SaidFormat {
    /// Of the file, or of what is in it.
    pub format: Format,
    /// How the file is compressed, if it is.
    pub compression: Option<Compression>,
}

impl From<Format> for SaidFormat {
    fn from(format: Format) -> Self {
        Self { format, compression: None }
    }
}

impl fmt::Display for SaidFormat {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.format.word())?;
        self.compression.map_or(Ok(()), |compression| write!(formatter, ".{}", compression.word()))
    }
}

impl FromStr for SaidFormat {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let compressed =
            word.rsplit_once('.').and_then(|(format, ending)| Some((format, Compression::of_word(ending)?)));
        match compressed {
            Some((format, compression)) => Ok(Self { format: format.parse()?, compression: Some(compression) }),
            None => word.parse().map(|format: Format| format.into()),
        }
    }
}

impl FromStr for Format {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let word = if word == "vhd" { "vpc" } else { word };
        let found = Self::ALL.into_iter().find(|format| format.word() == word);
        found.ok_or_else(|| {
            let words = Self::ALL.map(Self::word);
            let (last, others) = words.split_last().unwrap_or((&"", &[]));
            format!("there is no '{word}', only {} and {last}", others.join(", "))
        })
    }
}
