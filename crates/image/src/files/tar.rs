//! Tar archives of an image's files. The guest reads and writes them: this process passes bytes on.

use crate::error::{Context, Result};
use crate::guest::{OpenImage, image_path, read_in, write_out_into};
use blockyard_block::ReplacementFile;
use blockyard_protocol::appliance::{Operation, TarIn, TarOut};
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::path::Path;

/// How an archive is compressed.
pub use blockyard_protocol::appliance::Compression;

/// How an archive is unpacked.
#[derive(Clone, Copy, Debug, Default)]
pub struct TarInOptions {
    /// Everything belongs to root.
    pub root_owned: bool,
}

/// How an archive is packed.
#[derive(Clone, Debug, Default)]
pub struct TarOutOptions {
    /// How it is compressed.
    pub compression: Compression,
    /// Patterns of what is left out, as GNU tar has them: a name, or the end of a path.
    pub excludes: Vec<Vec<u8>>,
}

impl TarOutOptions {
    /// Bytes that all patterns may have together: they fit in a request.
    pub const EXCLUDES_BYTES_MAX: usize = 16 << 10;
}

/// How an archive is compressed that has this name.
pub fn compression_of(archive: &Path) -> Compression {
    match archive.extension().and_then(|extension| extension.to_str()) {
        Some("gz" | "tgz") => Compression::Gzip,
        Some("zst" | "tzst") => Compression::Zstd,
        _ => Compression::None,
    }
}

impl OpenImage {
    /// Unpacks a tar archive, plain, gzip or zstd, into a directory of the image, which is made if it is not there.
    /// Owners, permissions, access control lists, times, extended attributes, hard links, holes and devices are kept.
    ///
    /// # Errors
    /// When it is no archive, cannot be read, or something in it cannot be made: what was unpacked before stays, and of
    /// what was nothing there is no directory either.
    pub fn tar_in(
        &mut self,
        archive: impl Read + Send + 'static,
        directory: &Path,
        options: &TarInOptions,
    ) -> Result<()> {
        let request = TarIn { directory: image_path(directory), own: !options.root_owned, ..TarIn::default() };
        read_in(self, Operation::TarIn(request), archive).map(drop)
    }

    /// Packs what is in a directory of the image as a tar archive, which goes to a file or a pipe: names in it are
    /// relative to the directory. It has all that [`OpenImage::tar_in`] keeps. Sockets are left out.
    ///
    /// # Errors
    /// When something cannot be packed: the archive has all the rest. When the output takes no more.
    pub fn tar_out<W: Write + AsFd + Send + 'static>(
        &mut self,
        directory: &Path,
        output: W,
        options: &TarOutOptions,
    ) -> Result<W> {
        let TarOutOptions { compression, excludes } = options.clone();
        let request = TarOut { directory: image_path(directory), compression, excludes, ..TarOut::default() };
        write_out_into(self, Operation::TarOut(request), output)
    }

    /// The same to a file of the host, which has its name when the archive is complete.
    ///
    /// # Errors
    /// When something cannot be packed, or the file not be made: there is none then, or the one that was there before.
    pub fn tar_out_to(&mut self, directory: &Path, archive: &Path, options: &TarOutOptions) -> Result<()> {
        let new = ReplacementFile::create(archive)?;
        let output = new.file().try_clone().context("cannot write the archive")?;
        self.tar_out(directory, output, options).map_err(|error| error.or_no_space(archive))?;
        Ok(new.commit(self.is_durable())?)
    }
}
