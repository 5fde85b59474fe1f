//! `blockyard image tar-in` and `tar-out`. The appliance reads and writes the archives: this process passes bytes on.

use super::copying::{read_in, write_out};
use super::open_image::{Access, ImageArgs, OpenImage, image_path};
use crate::UsageError;
use anyhow::{Context, Result};
use blockyard_block::ReplacementFile;
use blockyard_protocol::appliance::{Compression, Operation, TarIn, TarOut};
use clap::{Args, ValueEnum};
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Unpack a tar archive into an image: plain, gzip or zstd, whatever it is called.
///
/// Owners, permissions, times, extended attributes, hard links, holes and devices are kept.
#[derive(Args)]
pub struct TarInArgs {
    #[command(flatten)]
    image: ImageArgs,
    /// The archive; - for stdin.
    archive: PathBuf,
    /// Where to in the image; made if it is not there.
    #[arg(default_value = "/")]
    directory: PathBuf,
    /// Everything belongs to root.
    #[arg(long)]
    root_owned: bool,
}

/// Runs `tar-in`.
///
/// # Errors
/// When something could not be unpacked: the rest is.
pub fn unpack(args: &TarInArgs) -> Result<()> {
    let input: Box<dyn io::Read + Send> = match args.archive.to_str() {
        Some("-") => Box::new(io::stdin()),
        _ => Box::new(File::open(&args.archive).with_context(|| args.archive.display().to_string())?),
    };
    let mut image = OpenImage::open(&args.image, Access::Write)?;
    let request = TarIn { directory: image_path(&args.directory), into: false, own: !args.root_owned };
    let unpacked = read_in(&mut image, Operation::TarIn(request), input).map(drop);
    let closed = image.close();
    unpacked.and(closed)
}

/// Pack files of an image as a tar archive.
#[derive(Args)]
pub struct TarOutArgs {
    #[command(flatten)]
    image: ImageArgs,
    /// What to pack: names in the archive are relative to it.
    directory: PathBuf,
    /// The archive; - for stdout.
    #[arg(default_value = "-")]
    archive: PathBuf,
    /// How to compress [default: as the archive's name ends].
    #[arg(long, value_enum)]
    compress: Option<Compress>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Compress {
    None,
    Gzip,
    Zstd,
}

impl Compress {
    /// As a name says.
    fn of(path: &Path) -> Self {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("gz" | "tgz") => Self::Gzip,
            Some("zst" | "tzst") => Self::Zstd,
            _ => Self::None,
        }
    }

    fn message(self) -> Compression {
        match self {
            Self::None => Compression::None,
            Self::Gzip => Compression::Gzip,
            Self::Zstd => Compression::Zstd,
        }
    }
}

/// Runs `tar-out`.
///
/// # Errors
/// When something could not be packed: then there is no archive.
pub fn pack(args: &TarOutArgs) -> Result<()> {
    let standard = args.archive == Path::new("-");
    if standard && io::IsTerminal::is_terminal(&io::stdout()) {
        return Err(UsageError("an archive is nothing for a terminal: name a file".to_owned()).into());
    }
    let compression = args.compress.unwrap_or_else(|| Compress::of(&args.archive)).message();
    let request = TarOut { directory: image_path(&args.directory), paths: Vec::new(), compression };
    let mut image = OpenImage::open(&args.image, Access::Read)?;
    if standard {
        write_out(&mut image, Operation::TarOut(request), io::stdout())?.flush().context("cannot write to stdout")?;
        return image.close();
    }
    let new = ReplacementFile::create(&args.archive)?;
    let output = new.file().try_clone().context("cannot write the archive")?;
    write_out(&mut image, Operation::TarOut(request), output)?;
    new.commit(false)?;
    image.close()
}
