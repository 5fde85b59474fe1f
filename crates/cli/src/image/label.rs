//! `blockyard image label`.

use super::file_commands::{Access, FileCommand};
use super::file_system_kind::FileSystemKind;
use super::open_image::OpenImage;
use crate::print;
use anyhow::{Context, Result, bail};
use blockyard_block::printable;
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
        let volume = image.volume_in_layers(Some(&self.part))?;
        let Some(label) = &self.label else { return print(&printable(&volume.label)) };
        let device = printable(&volume.device);
        let Some(kind) = FileSystemKind::of(&volume.r#type) else {
            bail!("{}: {device} has no file system that can be labelled", image.name());
        };
        kind.check_label(label)?;
        if let Some(missing) = image.missing_disks(&volume)? {
            bail!("{}: cannot label {device}: {missing}", image.name());
        }
        let (tool, call) = kind.label(&volume.device, label);
        let done = image.run_tool_well(tool, call);
        done.with_context(|| format!("{}: cannot label {device}", image.name())).map(drop)
    }
}
