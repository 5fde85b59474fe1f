//! `blockyard image fstrim` and `zero-free`.

use anyhow::Result;
use blockyard_block::{printable, size};
use blockyard_command_line::image::file_command::FileCommand;
use blockyard_command_line::terminal::print;
use blockyard_image::Access;
use blockyard_image::guest::OpenImage;
use blockyard_protocol::appliance::Trimmed;
use clap::Args;

/// Give the free blocks of an image's file systems back to the host: they become holes in the image's file.
///
/// All file systems are worked on, whatever is mounted where; with -m, those.
#[derive(Args)]
pub struct Fstrim {}

impl FileCommand for Fstrim {
    fn access(&self) -> Access {
        Access::Write
    }

    fn mounts(&self) -> bool {
        false
    }

    fn run(&self, image: &mut OpenImage) -> Result<()> {
        told(&image.trim()?)
    }
}

/// Make zeros of the free blocks of an image's file systems, so that it converts and compresses to less.
///
/// Nothing is written where the image's file can have holes. All file systems are worked on; with -m, those.
#[derive(Args)]
pub struct ZeroFree {}

impl FileCommand for ZeroFree {
    fn access(&self) -> Access {
        Access::Write
    }

    fn mounts(&self) -> bool {
        false
    }

    fn run(&self, image: &mut OpenImage) -> Result<()> {
        told(&image.zero_free()?)
    }
}

fn told(trimmed: &[Trimmed]) -> Result<()> {
    let line = |trimmed: &Trimmed| format!("{}: {} free", printable(&trimmed.device), size::human(trimmed.bytes));
    print(&trimmed.iter().map(line).collect::<Vec<_>>().join("\n"))
}
