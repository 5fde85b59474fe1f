//! `blockyard image label`.

use anyhow::Result;
use blockyard_block::printable;
use blockyard_command_line::image::file_command::FileCommand;
use blockyard_command_line::terminal::print;
use blockyard_image::Access;
use blockyard_image::guest::OpenImage;
use clap::Args;

/// Print the label of a file system of an image, or change it.
#[derive(Args)]
pub struct Label {
    /// The partition, such as sda1, vda1 or 1; vda for a disk without any.
    part: String,
    /// The new label; an empty one removes it.
    label: Option<String>,
}

impl FileCommand for Label {
    fn access(&self) -> Access {
        if self.label.is_some() { Access::Write } else { Access::Read }
    }

    fn mounts(&self) -> bool {
        false
    }

    fn run(&self, image: &mut OpenImage) -> Result<()> {
        let volume = image.volume_in_stacks(Some(&self.part))?;
        let Some(label) = &self.label else { return print(&printable(&volume.label)) };
        Ok(image.label_file_system(&volume, label)?)
    }
}
