//! `blockyard image tar-in` and `tar-out`.

use anyhow::{Context, Result};
use blockyard_block::shown;
use blockyard_command_line::image::file_command::FileCommand;
use blockyard_command_line::progress::ReadFile;
use blockyard_command_line::stdin::{self, Stdin};
use blockyard_command_line::terminal::OutputError;
use blockyard_command_line::usage_error::UsageError;
use blockyard_image::Access;
use blockyard_image::files::tar::{Compression, TarInOptions, TarOutOptions, compression_of};
use blockyard_image::guest::OpenImage;
use clap::{Args, ValueEnum};
use std::cell::Cell;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Unpack a tar archive into an image: plain, gzip or zstd, whatever it is called.
///
/// Owners, permissions, access control lists, times, extended attributes, hard links, holes and devices are kept.
#[derive(Args)]
pub struct TarIn {
    /// The archive; - for stdin.
    archive: PathBuf,
    /// Where to in the image; made if it is not there.
    #[arg(default_value = "/")]
    directory: PathBuf,
    /// Everything belongs to root.
    #[arg(long)]
    root_owned: bool,
    /// The archive, once it is open.
    #[arg(skip)]
    opened: Cell<Option<File>>,
}

impl TarIn {
    fn is_standard(&self) -> bool {
        self.archive == Path::new("-")
    }

    /// Whether the directory looks like the archive.
    fn is_swapped(&self) -> bool {
        self.directory.is_file()
    }

    fn open(&self) -> Result<File> {
        File::open(&self.archive).with_context(|| shown(&self.archive).to_string())
    }

    fn input(&self, stdin: Stdin) -> Result<Box<dyn io::Read + Send>> {
        Ok(match (self.is_standard(), self.opened.take()) {
            (true, _) => Box::new(stdin),
            (false, Some(archive)) => Box::new(ReadFile::new(archive)),
            (false, None) => Box::new(ReadFile::new(self.open()?)),
        })
    }
}

impl FileCommand for TarIn {
    fn access(&self) -> Access {
        Access::Write
    }

    /// Opens the archive, once: what is written into a FIFO goes to those who have it open.
    fn check(&self) -> Result<()> {
        if self.is_standard() {
            return Ok(());
        }
        let archive = self.open().map_err(|error| match self.is_swapped() {
            true => {
                error.context(format!("ARCHIVE comes before DIRECTORY, and {} is a file here", shown(&self.directory)))
            }
            false => error,
        })?;
        if archive.metadata().is_ok_and(|metadata| metadata.is_dir()) {
            let swapped = if self.is_swapped() { ": ARCHIVE comes before DIRECTORY" } else { "" };
            return Err(UsageError(format!("{} is a directory, and no archive{swapped}", shown(&self.archive))).into());
        }
        self.opened.set(Some(archive));
        Ok(())
    }

    fn run(&self, image: &mut OpenImage) -> Result<()> {
        if self.is_standard() {
            stdin::claim()?;
        }
        let options = TarInOptions { root_owned: self.root_owned };
        stdin::lent(|stdin| Ok(image.tar_in(self.input(stdin)?, &self.directory, &options)?))
    }
}

/// Pack files of an image as a tar archive.
///
/// With all that tar-in keeps, as GNU tar does with --acls --selinux --xattrs. Sockets are left out.
#[derive(Args)]
pub struct TarOut {
    /// What to pack: names in the archive are relative to it.
    directory: PathBuf,
    /// The archive; - for stdout.
    #[arg(default_value = "-")]
    archive: PathBuf,
    /// How to compress [default: as the archive's name ends].
    #[arg(long, value_enum)]
    compress: Option<Compress>,
    /// Leave out what matches, as GNU tar does: a name, or the end of a path; may be repeated.
    #[arg(long, value_name = "PATTERN")]
    exclude: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Compress {
    None,
    Gzip,
    Zstd,
}

impl Compress {
    fn message(self) -> Compression {
        match self {
            Self::None => Compression::None,
            Self::Gzip => Compression::Gzip,
            Self::Zstd => Compression::Zstd,
        }
    }
}

impl TarOut {
    fn is_standard(&self) -> bool {
        self.archive == Path::new("-")
    }
}

impl FileCommand for TarOut {
    fn access(&self) -> Access {
        Access::Read
    }

    fn check(&self) -> Result<()> {
        if self.is_standard() && io::IsTerminal::is_terminal(&io::stdout()) {
            return Err(UsageError("an archive is nothing for a terminal: name a file".to_owned()).into());
        }
        if self.exclude.iter().map(|pattern| pattern.len()).sum::<usize>() > TarOutOptions::EXCLUDES_BYTES_MAX {
            let problem =
                format!("--exclude: the patterns have more than {} KiB", TarOutOptions::EXCLUDES_BYTES_MAX >> 10);
            return Err(UsageError(problem).into());
        }
        Ok(())
    }

    /// When something could not be packed, there is no archive.
    fn run(&self, image: &mut OpenImage) -> Result<()> {
        let options = TarOutOptions {
            compression: self.compress.map_or_else(|| compression_of(&self.archive), Compress::message),
            excludes: self.exclude.iter().map(|pattern| pattern.as_bytes().to_vec()).collect(),
        };
        if self.is_standard() {
            let mut output = image.tar_out(&self.directory, io::stdout(), &options)?;
            return Ok(output.flush().map_err(OutputError)?);
        }
        Ok(image.tar_out_to(&self.directory, &self.archive, &options)?)
    }
}
