//! `blockyard image filesystems`.

use anyhow::Result;
use blockyard_appliance::tools::ToolError;
use blockyard_bench::table::Table;
use blockyard_block::{printable, size};
use blockyard_command_line::image::file_command::FileCommand;
use blockyard_command_line::terminal::output_columns;
use blockyard_command_line::terminal::print;
use blockyard_image::Access;
use blockyard_image::Error;
use blockyard_image::guest::OpenImage;
use blockyard_image::volumes::stacks::Asking;
use clap::Args;

/// List what is on an image's partitions, or on its disk if it has none: file systems with their labels, swap space,
/// and other things.
///
/// What lies in volume groups and arrays is listed too, and what lies in encrypted volumes whose keys are given.
#[derive(Args)]
pub struct Filesystems {}

impl FileCommand for Filesystems {
    fn access(&self) -> Access {
        Access::Read
    }

    fn mounts(&self) -> bool {
        false
    }

    fn run(&self, image: &mut OpenImage) -> Result<()> {
        if let Err(error) = image.open_stacks(Asking::Nobody) {
            // What there is besides can be told all the same.
            match error.cause() {
                Error::Tool(ToolError::Missing { .. }) => image.note(&error.to_string()),
                _ => return Err(error.context(image.name()).into()),
            }
        }
        let mut table = Table::new(&["device", "type", "size", "label", "uuid"]);
        for volume in image.volumes()? {
            let kind = if volume.r#type.is_empty() { "unknown" } else { &volume.r#type };
            table.row(vec![
                printable(&volume.device),
                printable(kind),
                size::human(volume.size),
                printable(&volume.label),
                printable(&volume.uuid),
            ]);
        }
        print(&table.render_within(output_columns()))
    }
}
