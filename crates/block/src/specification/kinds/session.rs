//! A disk served by another process.

use super::{About, BehindKind, DiskKind};
use crate::size;
use crate::specification::error::SpecificationError;
use crate::specification::keys::KeysTaken;
use crate::specification::opening::{OnBackend, OpenContext, OpenError, SessionSpecification};
use crate::specification::settings::Settings;
use crate::specification::written::{escaped, key};
use std::fmt;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

const WORD: &str = "session";
const IO_BUFFER_BYTES: RangeInclusive<u64> = 4 << 10..=1 << 30;

/// The value of `io-buffer`.
///
/// # Errors
/// What is wrong with it.
pub(in crate::specification) fn io_buffer(text: &str) -> Result<u64, String> {
    let bytes = size::parse(text)?;
    IO_BUFFER_BYTES.contains(&bytes).then_some(bytes).ok_or_else(|| format!("'{text}' is not from 4K to 1G"))
}

impl DiskKind for SessionSpecification {
    fn about() -> About {
        let own = &["io-buffer", "partition", "table", "overlay", "snapshot"];
        let keys = KeysTaken { taker: "a session: disk", own };
        About { word: WORD, needs: "the path of a socket after 'session:'", keys }
    }

    fn read(behind: &BehindKind, settings: &Settings<'_>) -> Result<Self, SpecificationError> {
        let io_buffer_bytes = settings.value("io-buffer", io_buffer)?;
        Ok(Self { path: PathBuf::from(&behind.text), io_buffer_bytes })
    }

    fn write_start(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{WORD}:{}", escaped(&self.path))
    }

    fn write_keys(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        key(f, "io-buffer", self.io_buffer_bytes.map(size::exact))
    }

    fn path(&self) -> Option<&Path> {
        Some(&self.path)
    }

    fn has_logical_block(&self) -> bool {
        false
    }

    fn open(&self, read_only: bool, context: &OpenContext<'_>) -> Result<OnBackend, OpenError> {
        Ok(OnBackend::in_no_file((context.connect)(self)?, read_only))
    }
}
