//! `blockyard image df`.

use super::file_json::JsonList;
use anyhow::Result;
use blockyard_bench::table::Table;
use blockyard_block::printable;
use blockyard_command_line::image::file_command::FileCommand;
use blockyard_command_line::image::listing::human_size;
use blockyard_command_line::terminal::print;
use blockyard_command_line::terminal::{OutputError, output_columns};
use blockyard_image::Access;
use blockyard_image::files::FileSystem;
use blockyard_image::guest::OpenImage;
use clap::Args;

/// Say how full an image's file systems are, in KiB.
#[derive(Args)]
#[command(disable_help_flag = true)]
pub struct Df {
    /// Sizes like 1.5K.
    #[arg(short = 'h', short_alias = 'H', long = "human-readable")]
    human: bool,
    /// Inodes instead of space.
    #[arg(short = 'i', long)]
    inodes: bool,
    /// Print a list of JSON objects on stdout: sizes in bytes, and inodes.
    #[arg(long)]
    json: bool,
    /// Say how this command is used.
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
}

impl FileCommand for Df {
    fn access(&self) -> Access {
        Access::Read
    }

    fn run(&self, image: &mut OpenImage) -> Result<()> {
        let systems = image.mounted()?;
        if self.json {
            let mut list = JsonList::new();
            let printed = systems.iter().try_for_each(|system| list.push(&object(system)));
            return Ok(printed.and_then(|()| list.finish()).map_err(OutputError)?);
        }
        let what = if self.inodes { "inodes" } else { "size" };
        let mut table = Table::new(&["device", "type", what, "used", "available", "use", "mounted on"]);
        for system in &systems {
            table.row(row(system, self));
        }
        print(&table.render_within(output_columns()))
    }
}

fn object(system: &FileSystem) -> serde_json::Value {
    let bytes = |blocks: u64| blocks.saturating_mul(system.block_size);
    serde_json::json!({
        "device": system.device,
        "type": system.r#type,
        "directory": String::from_utf8_lossy(&system.directory),
        "size": bytes(system.blocks),
        "used": bytes(system.blocks.saturating_sub(system.free)),
        "available": bytes(system.available),
        "inodes": system.files,
        "inodes_used": system.files.saturating_sub(system.free_files),
    })
}

fn row(system: &FileSystem, args: &Df) -> Vec<String> {
    let (all, free, available, unit) = match args.inodes {
        true => (system.files, system.free_files, system.free_files, None),
        false => (system.blocks, system.free, system.available, Some(system.block_size)),
    };
    let used = all.saturating_sub(free);
    let percent = (u128::from(used) * 100).checked_div(u128::from(used) + u128::from(available));
    let size = |count: u64| match unit {
        None => count.to_string(),
        Some(unit) if args.human => human_size(count.saturating_mul(unit)),
        Some(unit) => count.saturating_mul(unit).div_ceil(1024).to_string(),
    };
    vec![
        printable(&system.device),
        printable(&system.r#type),
        size(all),
        size(used),
        size(available),
        percent.map_or_else(|| "-".to_owned(), |percent| format!("{percent}%")),
        printable(&String::from_utf8_lossy(&system.directory)),
    ]
}
