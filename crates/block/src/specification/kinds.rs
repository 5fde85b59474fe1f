//! The kinds of disks: the one table of them.
//!
//! A new kind is a module that implements [`DiskKind`], and its line in the table below.

mod file;
mod of_size;
mod session;

use super::error::SpecificationError;
use super::keys::KeysTaken;
use super::opening::{OnBackend, OpenContext, OpenError, SessionSpecification};
use super::settings::Settings;
use crate::{FileOptions, Qcow2Backing, size};
pub(super) use file::{FileSpecification, Taken};
pub(super) use of_size::{Memory, Nothing, OfSize};
pub(super) use session::io_buffer;
use std::fmt;
use std::ops::Range;
use std::path::Path;

/// The logical block where nobody says another.
pub(super) const LOGICAL_BLOCK_BYTES: u32 = 512;

/// A file's length is at most 2^63 - 1; rounding it up to the largest block must not pass that.
const CAPACITY_BYTES_MAX: u64 = i64::MAX as u64 - 65535;

/// What a kind is known by.
pub(super) struct About {
    /// What stands before the colon.
    word: &'static str,
    /// What stands behind it.
    needs: &'static str,
    keys: KeysTaken,
}

/// What a kind of disk has to know of itself.
pub(super) trait DiskKind {
    fn about() -> About
    where
        Self: Sized;

    /// # Errors
    /// When there can be no such disk.
    fn read(behind: &BehindKind, settings: &Settings<'_>) -> Result<Self, SpecificationError>
    where
        Self: Sized;

    /// Writes it up to where the keys begin.
    fn write_start(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result;

    /// Writes its keys in their order: those that stand before `ro`, then the others.
    fn write_first_keys(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ok(())
    }

    fn write_keys(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result;

    /// The file, device or socket, if it is in one.
    fn path(&self) -> Option<&Path> {
        None
    }

    /// The logical block that it says.
    fn logical_block_bytes(&self) -> Option<u32> {
        None
    }

    /// Whether it has this logical block, or 512 bytes, whatever is below it: otherwise its own.
    fn has_logical_block(&self) -> bool {
        true
    }

    /// How to open a file for it, or of changes to it.
    fn file_options(&self, read_only: bool) -> FileOptions {
        FileOptions { read_only, ..FileOptions::default() }
    }

    /// As the header of an image on top of this one names it; `None`: it does not.
    ///
    /// # Errors
    /// When it cannot be found out.
    fn as_backing(&self) -> Result<Option<Qcow2Backing>, OpenError> {
        Ok(None)
    }

    /// Opens the disk, for reading only if it says so or that is asked for.
    ///
    /// # Errors
    /// When it cannot be had.
    fn open(&self, read_only: bool, context: &OpenContext<'_>) -> Result<OnBackend, OpenError>;
}

/// Which kinds there are.
macro_rules! kinds {
    ($($(#[$documentation:meta])* $kind:ident($specification:ty)),+ $(,)?) => {
        /// The words that may stand before the first colon.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Kind {
            $($(#[$documentation])* $kind),+
        }

        /// What the blocks are in.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub(super) enum Backend {
            $($kind($specification)),+
        }

        impl Kind {
            /// Every kind.
            pub const ALL: [Self; [$(Self::$kind),+].len()] = [$(Self::$kind),+];

            fn about(self) -> About {
                match self {
                    $(Self::$kind => <$specification>::about()),+
                }
            }
        }

        impl Backend {
            pub(super) fn kind(&self) -> Kind {
                match self {
                    $(Self::$kind(_) => Kind::$kind),+
                }
            }

            pub(super) fn get(&self) -> &dyn DiskKind {
                match self {
                    $(Self::$kind(specification) => specification),+
                }
            }

            pub(super) fn read(
                kind: Kind,
                behind: &BehindKind,
                settings: &Settings<'_>,
            ) -> Result<Self, SpecificationError> {
                Ok(match kind {
                    $(Kind::$kind => Self::$kind(<$specification>::read(behind, settings)?)),+
                })
            }
        }
    };
}

kinds! {
    /// A file or a block device.
    File(FileSpecification),
    /// A disk served by another process.
    Session(SessionSpecification),
    /// A disk in memory.
    Memory(OfSize<Memory>),
    /// A disk that holds nothing.
    Null(OfSize<Nothing>),
}

impl Kind {
    /// Its word: `file`, `session`, `mem` or `null`.
    pub fn word(self) -> &'static str {
        self.about().word
    }

    /// What has to stand behind the colon.
    pub(super) fn needs(self) -> &'static str {
        self.about().needs
    }

    pub(super) fn keys(self) -> KeysTaken {
        self.about().keys
    }

    /// All words, as a sentence has them.
    pub(super) fn list() -> String {
        let words: Vec<_> = Self::ALL.into_iter().map(Self::word).collect();
        match words.split_last() {
            Some((last, others)) => format!("{} and {last}", others.join(", ")),
            None => String::new(),
        }
    }
}

/// What stands behind a kind's colon.
pub(super) struct BehindKind {
    pub(super) span: Range<usize>,
    pub(super) text: String,
}

impl BehindKind {
    /// As the size of a disk of the kind that is called `word`.
    fn capacity(&self, word: &str, settings: &Settings<'_>) -> Result<u64, SpecificationError> {
        let wrong = |problem| settings.wrong(self.span.clone(), format!("{word}: {problem}"));
        let bytes = size::parse(&self.text).map_err(wrong)?;
        if (1..=CAPACITY_BYTES_MAX).contains(&bytes) {
            return Ok(bytes);
        }
        Err(wrong(format!("'{}' is no size of a disk: at least 1 byte, less than 8388608T", self.text)))
    }
}

/// The value of `block-size`.
fn logical_block(settings: &Settings<'_>) -> Result<Option<u32>, SpecificationError> {
    settings.value("block-size", |text| {
        let bytes = u32::try_from(size::parse(text)?).ok();
        let bytes = bytes.filter(|&bytes| crate::file::check_logical_block(bytes).is_ok());
        bytes.ok_or_else(|| format!("'{text}' is no block size: a power of two from 512 to 65536"))
    })
}
