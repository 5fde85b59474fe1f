//! What a command's options say of a disk besides its specification: said as one more key would say it, and refused as
//! it would be.

use super::kinds::{Backend, FileSpecification, OfSize, io_buffer};
use super::{Delta, DiskSpecification, Format, SaidFormat, SessionSpecification, SpecificationError, settings};
use crate::{ChainKeys, KeyFile};
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};

impl DiskSpecification {
    /// The disk that is all of a file or block device, of which nothing more is said.
    pub fn of_file(path: impl Into<PathBuf>) -> Self {
        Self::of_backend(Backend::File(FileSpecification::of(path.into())))
    }

    /// The disk that is served at this socket, of which nothing more is said.
    pub fn of_session(socket: impl Into<PathBuf>) -> Self {
        Self::of_backend(Backend::Session(SessionSpecification { path: socket.into(), io_buffer_bytes: None }))
    }

    /// A disk of this size that holds nothing, of which nothing more is said.
    pub fn of_nothing(capacity_bytes: u64) -> Self {
        Self::of_backend(Backend::Null(OfSize::new(capacity_bytes)))
    }

    /// The file or block device, if nothing more is said of it than its format and its key.
    pub fn file_alone(&self) -> Option<&Path> {
        let Backend::File(file) = &self.backend else { return None };
        let mut alone = Self::of_file(&file.path);
        if let Backend::File(bare) = &mut alone.backend {
            (bare.format, bare.compression, bare.lock) = (file.format, None, file.lock);
            bare.keys.clone_from(&file.keys);
        }
        (*self == alone).then_some(&*file.path)
    }

    /// The socket of the session that it is, if nothing more is said of it.
    pub fn session_alone(&self) -> Option<&Path> {
        let Backend::Session(SessionSpecification { path, .. }) = &self.backend else { return None };
        (*self == Self::of_session(path)).then_some(&**path)
    }

    /// The same disk by another name of its file, device or socket, if it is in one.
    #[must_use]
    pub fn with_path(mut self, path: impl Into<PathBuf>) -> Self {
        match &mut self.backend {
            Backend::File(file) => file.path = path.into(),
            Backend::Session(session) => session.path = path.into(),
            _ => {}
        }
        self
    }

    /// What opens its image, if that is encrypted.
    pub fn key_file(&self) -> Option<&KeyFile> {
        match &self.backend {
            Backend::File(file) => file.keys.own(),
            _ => None,
        }
    }

    /// The same, and what opens those behind it.
    pub fn keys(&self) -> ChainKeys {
        match &self.backend {
            Backend::File(file) => file.keys.clone(),
            _ => ChainKeys::default(),
        }
    }

    /// The same disk, opened by this key.
    #[must_use]
    pub fn with_key_file(mut self, key: Option<KeyFile>) -> Self {
        if let Backend::File(file) = &mut self.backend {
            file.keys = ChainKeys::new(key, file.keys.behind().clone());
        }
        self
    }

    /// The same disk, in this format.
    ///
    /// # Errors
    /// When it says a format already, even the same, or is in no file.
    pub fn with_format(mut self, format: impl Into<SaidFormat>) -> Result<Self, SpecificationError> {
        let said = format.into();
        match &mut self.backend {
            Backend::File(FileSpecification { format: format @ None, compression, .. }) => {
                (*format, *compression) = (Some(said.format), said.compression);
            }
            _ => return Err(self.refused("format", Some(&said.to_string()), None)),
        }
        Ok(self)
    }

    /// The same disk, in the format of this word.
    ///
    /// # Errors
    /// When there is no such format; as [`DiskSpecification::with_format`].
    pub fn with_format_named(self, word: &str) -> Result<Self, SpecificationError> {
        match word.parse::<Format>() {
            Ok(format) => self.with_format(format),
            Err(problem) => Err(self.refused("format", Some(word), Some(problem))),
        }
    }

    /// The same disk, past the page cache.
    ///
    /// # Errors
    /// When it says so already, or is in no file.
    pub fn with_direct(mut self) -> Result<Self, SpecificationError> {
        match &mut self.backend {
            Backend::File(FileSpecification { direct: said @ false, .. }) => *said = true,
            _ => return Err(self.refused("direct", None, None)),
        }
        Ok(self)
    }

    /// The same disk as it was when a snapshot was made of it, inside of its image: the one with this id, or else this
    /// name; with `snapshot.id=` or `snapshot.name=` before it, with that alone, and with both where a comma is
    /// between.
    ///
    /// # Errors
    /// When it says one already, or is in no file.
    pub fn with_snapshot_name(mut self, which: &str) -> Result<Self, SpecificationError> {
        match &mut self.backend {
            Backend::File(FileSpecification { snapshot_name: said @ None, .. }) => *said = Some(which.to_owned()),
            _ => return Err(self.refused("snapshot-name", Some(which), None)),
        }
        Ok(self)
    }

    /// The same disk, with at most so many bytes a second.
    ///
    /// # Errors
    /// When it says a limit already.
    pub fn with_bytes_per_second(mut self, bytes: NonZeroU64) -> Result<Self, SpecificationError> {
        match self.hindrances.limit(bytes) {
            true => Ok(self),
            false => Err(self.refused("bps", Some(&bytes.to_string()), None)),
        }
    }

    /// The same disk, answering flushes without flushing.
    ///
    /// # Errors
    /// When it says so already, or is in no file.
    pub fn with_cache_unsafe(mut self) -> Result<Self, SpecificationError> {
        match &mut self.backend {
            Backend::File(FileSpecification { cache_unsafe: said @ false, .. }) => *said = true,
            _ => return Err(self.refused("cache", Some("unsafe"), None)),
        }
        Ok(self)
    }

    /// The same disk, with changes that go nowhere lasting: as it is where none would last anyway.
    ///
    /// # Errors
    /// When its changes go to an overlay.
    pub fn or_snapshot(mut self) -> Result<Self, SpecificationError> {
        if matches!(self.delta, Some(Delta::Overlay(_))) {
            let text = format!("{self},snapshot");
            let span = text.len() - "snapshot".len()..text.len();
            let message = settings::contradiction("overlay", "snapshot", settings::OVERLAY_OR_SNAPSHOT);
            return Err(SpecificationError::new(&text, span, message));
        }
        // What a disk of no file holds goes with the process anyway.
        if !self.read_only && self.kind().keys().find("snapshot").is_some() {
            self.delta = Some(Delta::Snapshot);
        }
        Ok(self)
    }

    /// The same disk, copied through an I/O buffer of this size.
    ///
    /// # Errors
    /// When it says a size already, is no session, or the size is not from 4 KiB to 1 GiB.
    pub fn with_io_buffer(mut self, bytes: u64) -> Result<Self, SpecificationError> {
        let word = bytes.to_string();
        match &mut self.backend {
            Backend::Session(session) if session.io_buffer_bytes.is_none() => match io_buffer(&word) {
                Ok(bytes) => session.io_buffer_bytes = Some(bytes),
                Err(problem) => return Err(self.refused("io-buffer", Some(&word), Some(problem))),
            },
            _ => return Err(self.refused("io-buffer", Some(&word), None)),
        }
        Ok(self)
    }

    /// Why one more key is too much: as if it stood behind the others. `problem`: what is wrong with its value, if not
    /// the key itself.
    fn refused(&self, key: &str, value: Option<&str>, problem: Option<String>) -> SpecificationError {
        let before = format!("{self},");
        let value = value.map_or(String::new(), |value| format!("={}", value.replace(',', ",,")));
        let text = format!("{before}{key}{value}");
        let key_end = before.len() + key.len();
        match problem {
            Some(problem) => {
                let span = key_end + 1..text.len();
                SpecificationError::new(&text, span, format!("{key}: {problem}"))
            }
            None => {
                let message = self.kind().keys().refused(key);
                SpecificationError::new(&text, before.len()..key_end, message)
            }
        }
    }
}
