//! `blockyard image cp`, `touch` and `fill`: files that are made of others, or of nothing.

use anyhow::Result;
use blockyard_block::size;
use blockyard_command_line::image::file_command::{FileCommand, sources_and_destination};
use blockyard_command_line::usage_error::UsageError;
use blockyard_image::Access;
use blockyard_image::guest::{OpenImage, image_path, image_paths};
use blockyard_protocol::appliance::{CopyFiles, Fill as FillRequest, Operation, Touch as TouchRequest};
use clap::Args;
use std::path::PathBuf;

/// Copy files within an image.
///
/// As with cp: into DST if that is a directory, else to that name.
#[derive(Args)]
pub struct Cp {
    /// What to copy; the last is DST: where to.
    #[arg(value_name = "SRC", required = true)]
    paths: Vec<PathBuf>,
    /// Directories too, with all below them; links themselves.
    #[arg(short = 'r', visible_short_alias = 'R', long)]
    recursive: bool,
    /// Recursively, and with owners, permissions, times, extended attributes and hard links.
    #[arg(short = 'a', long)]
    archive: bool,
}

impl FileCommand for Cp {
    fn synopsis() -> Option<&'static str> {
        Some("<SRC>... <DST>")
    }

    fn access(&self) -> Access {
        Access::Write
    }

    fn check(&self) -> Result<()> {
        Ok(sources_and_destination(&self.paths, "in the image").map(drop)?)
    }

    fn run(&self, image: &mut OpenImage) -> Result<()> {
        let (sources, target) = sources_and_destination(&self.paths, "in the image")?;
        let copy = CopyFiles {
            sources: image_paths(sources),
            target: image_path(target),
            recursive: self.recursive || self.archive,
            archive: self.archive,
            ..CopyFiles::default()
        };
        Ok(image.call(Operation::CopyFiles(copy)).map(drop)?)
    }
}

/// Set the times of files of an image to now; make those that are not there.
#[derive(Args)]
pub struct Touch {
    /// The files.
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
    /// Make none.
    #[arg(short = 'c', long)]
    no_create: bool,
}

impl FileCommand for Touch {
    fn access(&self) -> Access {
        Access::Write
    }

    fn run(&self, image: &mut OpenImage) -> Result<()> {
        let touch =
            TouchRequest { paths: image_paths(&self.paths), no_create: self.no_create, ..TouchRequest::default() };
        Ok(image.call(Operation::Touch(touch)).map(drop)?)
    }
}

/// Make a file of an image of one byte, repeated.
#[derive(Args)]
pub struct Fill {
    /// The byte: 0 to 255, or 0x00 to 0xff.
    #[arg(value_name = "BYTE", value_parser = byte)]
    value: u8,
    /// How many, such as 500M.
    #[arg(value_parser = size::parse)]
    size: u64,
    /// The file.
    path: PathBuf,
}

fn byte(text: &str) -> Result<u8, String> {
    let parsed = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => u8::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| format!("{text} is no byte: a number from 0 to 255"))
}

impl FileCommand for Fill {
    fn access(&self) -> Access {
        Access::Write
    }

    fn check(&self) -> Result<()> {
        if self.size > i64::MAX as u64 {
            return Err(UsageError(format!("{} bytes are more than a file can have", self.size)).into());
        }
        Ok(())
    }

    fn run(&self, image: &mut OpenImage) -> Result<()> {
        let fill = FillRequest { path: image_path(&self.path), pattern: vec![self.value], size: self.size };
        Ok(image.call(Operation::Fill(fill)).map(drop)?)
    }
}
