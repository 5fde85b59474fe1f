//! `blockyard image tar-in` and `tar-out`. The appliance reads and writes the archives: this process passes bytes on.

use crate::UsageError;
use crate::destination::or_no_space;
use crate::image::file_commands::FileCommand;
use crate::image::stdin::{self, Stdin};
use crate::terminal::OutputError;
use anyhow::{Context, Result};
use blockyard_block::{ReplacementFile, shown};
use blockyard_image::Access;
use blockyard_image::guest::{OpenImage, image_path};
use blockyard_image::guest::{read_in, write_out_into};
use blockyard_protocol::appliance::{self, Compression, Operation};
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

    fn open(&self) -> Result<File> {
        File::open(&self.archive).with_context(|| shown(&self.archive).to_string())
    }

    fn input(&self, stdin: Stdin) -> Result<Box<dyn io::Read + Send>> {
        Ok(match (self.is_standard(), self.opened.take()) {
            (true, _) => Box::new(stdin),
            (false, Some(archive)) => Box::new(archive),
            (false, None) => Box::new(self.open()?),
        })
    }
}

impl FileCommand for TarIn {
    fn access(&self) -> Access {
        Access::Write
    }

    /// Opens the archive, once: what is written into a FIFO goes to those who have it open.
    fn check(&self) -> Result<()> {
        if !self.is_standard() {
            self.opened.set(Some(self.open()?));
        }
        Ok(())
    }

    fn run(&self, image: &mut OpenImage) -> Result<()> {
        if self.is_standard() {
            stdin::claim()?;
        }
        let directory = image_path(&self.directory);
        let request = appliance::TarIn { directory, own: !self.root_owned, ..Default::default() };
        stdin::lent(|stdin| Ok(read_in(image, Operation::TarIn(request), self.input(stdin)?)?)).map(drop)
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

/// Bytes of patterns: they fit in a request.
const EXCLUDES_BYTES_MAX: usize = 16 << 10;

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
        if self.exclude.iter().map(|pattern| pattern.len()).sum::<usize>() > EXCLUDES_BYTES_MAX {
            let problem = format!("--exclude: the patterns have more than {} KiB", EXCLUDES_BYTES_MAX >> 10);
            return Err(UsageError(problem).into());
        }
        Ok(())
    }

    /// When something could not be packed, there is no archive.
    fn run(&self, image: &mut OpenImage) -> Result<()> {
        let compression = self.compress.unwrap_or_else(|| Compress::of(&self.archive)).message();
        let excludes: Vec<_> = self.exclude.iter().map(|pattern| pattern.as_bytes().to_vec()).collect();
        let directory = image_path(&self.directory);
        let request = appliance::TarOut { directory, compression, excludes, ..Default::default() };
        if self.is_standard() {
            let mut output = write_out_into(image, Operation::TarOut(request), io::stdout())?;
            return Ok(output.flush().map_err(OutputError)?);
        }
        let new = ReplacementFile::create(&self.archive)?;
        let output = new.file().try_clone().context("cannot write the archive")?;
        let written = write_out_into(image, Operation::TarOut(request), output);
        written.map_err(|error| or_no_space(error.into(), &self.archive))?;
        Ok(new.commit(image.is_durable())?)
    }
}
