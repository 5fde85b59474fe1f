//! Compressed files that hold a disk or an image: gzip, xz and Zstandard.
//!
//! One is read from its first byte to its last, once, as [`UnpackedDisk`], or unpacked into a file first. What
//! decompresses ([`Compression::decoder`]) runs in a process that can do nothing else; here only its output is read,
//! and of the file what says how long that becomes ([`Compression::declared_bytes`]).
//!
//! What follows what: gzip's members, xz's streams and Zstandard's frames that stand one behind the other are one disk,
//! as their programs have it. Zeros may follow gzip's last member, and, in fours, xz's streams; anything else is an
//! error, and so is an end before the end.

mod declared_bytes;
mod gzip_members;
#[cfg(test)]
mod tests;
mod unpacked_disk;

use crate::FileFormat;
use gzip_members::GzipMembers;
use liblzma::read::XzDecoder;
use liblzma::stream::{CONCATENATED, Stream, TELL_UNSUPPORTED_CHECK};
use std::fs::File;
use std::io::{self, BufReader, ErrorKind, Read};
use std::path::Path;
pub(crate) use unpacked_disk::TOLD_BYTES;
pub use unpacked_disk::{StartUnpacker, UnpackedDisk, Unpacker};

/// The largest window that is taken, in bits: 128 MiB. Beyond that, memory would be the file's to choose.
const WINDOW_BITS_MAX: u32 = 27;

/// What xz may take: such a window, and what its decoder has besides.
const XZ_MEMORY_MAX: u64 = (1 << WINDOW_BITS_MAX) + (16 << 20);

/// What zstd and liblzma say of a window that is larger than it may be, and where there is no memory.
const WINDOW_TOO_LARGE: [&str; 2] = ["Frame requires too much memory", "memory limit reached"];
const NO_MEMORY: [&str; 2] = ["not enough memory", "can't allocate memory"];

/// Bytes of the file that are read at once.
const INPUT_BYTES: usize = 256 << 10;

/// How a file is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// RFC 1952.
    Gzip,
    /// The .xz File Format 1.2.1.
    Xz,
    /// RFC 8878.
    Zstd,
}

impl Compression {
    /// Every one.
    pub const ALL: [Self; 3] = [Self::Gzip, Self::Xz, Self::Zstd];

    /// Its word, which is how names end.
    pub fn word(self) -> &'static str {
        match self {
            Self::Gzip => "gz",
            Self::Xz => "xz",
            Self::Zstd => "zst",
        }
    }

    /// The one that is called so.
    pub fn of_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|compression| compression.word() == word)
    }

    /// How a file of this name is compressed, in whatever case, and the name of what is in it.
    pub fn of_name(path: &Path) -> Option<(Self, &Path)> {
        let ending = path.extension()?.to_str()?;
        let found = Self::ALL.into_iter().find(|compression| ending.eq_ignore_ascii_case(compression.word()))?;
        path.file_stem().map(|stem| (found, Path::new(stem)))
    }

    /// The one that is a format of files.
    pub(crate) fn of(format: &FileFormat) -> Option<Self> {
        Self::of_word(format.word)
    }

    /// What a file of this kind decompresses to. Reading gives an error where the file is damaged or ends too early;
    /// an end without one is the end.
    ///
    /// # Errors
    /// When there is no memory for it.
    pub fn decoder(self, file: impl Read + 'static) -> io::Result<Box<dyn Read>> {
        let input = BufReader::with_capacity(INPUT_BYTES, file);
        let decoder: Box<dyn Read> = match self {
            Self::Gzip => Box::new(GzipMembers::new(input)),
            Self::Xz => {
                let stream = Stream::new_stream_decoder(XZ_MEMORY_MAX, CONCATENATED | TELL_UNSUPPORTED_CHECK)?;
                Box::new(XzDecoder::new_stream(input, stream))
            }
            Self::Zstd => {
                let mut decoder = zstd::Decoder::with_buffer(input)?;
                decoder.window_log_max(WINDOW_BITS_MAX)?;
                Box::new(decoder)
            }
        };
        Ok(Box::new(Explained { decoder, compression: self, done_bytes: 0 }))
    }

    /// How many bytes a file of this kind decompresses to, by what it says of itself; `None` when it does not say. What
    /// is damaged says nothing: whoever decompresses it finds out.
    pub fn declared_bytes(self, file: &File) -> Option<u64> {
        match self {
            // Only modulo 2^32, and of the last member.
            Self::Gzip => None,
            Self::Xz => declared_bytes::of_xz(file),
            Self::Zstd => declared_bytes::of_zstd(file),
        }
    }
}

/// A decoder whose errors are sentences on the file.
struct Explained {
    decoder: Box<dyn Read>,
    compression: Compression,
    /// What came out of it so far.
    done_bytes: u64,
}

impl Read for Explained {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let done_bytes = self.done_bytes;
        let read = self.decoder.read(bytes).map_err(|error| {
            let said = error.to_string();
            let problem = match error.kind() {
                ErrorKind::Interrupted | ErrorKind::BrokenPipe => return error,
                // With a few bytes behind its end, xz waits for those that would make a stream of them.
                ErrorKind::UnexpectedEof if self.compression == Compression::Xz => {
                    "it ends too early: it was cut off, or something follows that is not xz".to_owned()
                }
                ErrorKind::UnexpectedEof => "it ends too early: it was cut off".to_owned(),
                // What the libraries say where the window is larger than they may take.
                _ if WINDOW_TOO_LARGE.iter().any(|words| said.contains(words)) => {
                    let most = 1 << (WINDOW_BITS_MAX - 20);
                    format!("it needs a window of more than {most} MiB: compress it again with a smaller one")
                }
                _ if NO_MEMORY.iter().any(|words| said.contains(words)) => {
                    "there is too little memory here to decompress it (ulimit -v)".to_owned()
                }
                _ if error.raw_os_error().is_some() => format!("it cannot be read: {said}"),
                _ => format!("it is damaged, or something follows that is not {}: {said}", self.compression.word()),
            };
            io::Error::new(ErrorKind::InvalidData, format!("after {done_bytes} bytes of its contents, {problem}"))
        })?;
        self.done_bytes = done_bytes.saturating_add(read as u64);
        Ok(read)
    }
}
