//! `blockyard image read-in`: what `blockyard bench upload` calls upload-no-write.

use anyhow::Result;
use blockyard_block::{FileDisk, FileOptions};
use blockyard_command_line::image::file_command::FileCommand;
use blockyard_image::Access;
use blockyard_image::guest::OpenImage;
use blockyard_protocol::appliance::{Discard, Operation};
use clap::Args;
use std::path::PathBuf;
use std::sync::Arc;

/// Have the appliance read a file of the host's, for nothing.
#[derive(Args)]
#[command(hide = true)]
pub struct ReadIn {
    /// The file.
    file: PathBuf,
}

impl FileCommand for ReadIn {
    fn access(&self) -> Access {
        // As for what writes, so that only the writing is missing.
        Access::Write
    }

    fn run(&self, image: &mut OpenImage) -> Result<()> {
        let disk = FileDisk::open(&self.file, &FileOptions { read_only: true, ..FileOptions::default() })?;
        let size = blockyard_block::Disk::geometry(&disk).capacity_bytes;
        Ok(image.call_with_source(Arc::new(disk), Operation::Discard(Discard { size })).map(drop)?)
    }
}
