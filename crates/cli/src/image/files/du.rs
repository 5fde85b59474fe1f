//! `blockyard image du`.

use super::file_json::{JsonList, Name};
use anyhow::Result;
use blockyard_command_line::image::file_command::FileCommand;
use blockyard_command_line::image::listing::{Names, human_size};
use blockyard_image::Access;
use blockyard_image::files::disk_usage::{DiskUsage, DiskUsageOptions};
use blockyard_image::guest::OpenImage;
use clap::Args;
use serde::Serialize;
use std::io;
use std::path::PathBuf;

/// Say how much space files of an image take, in KiB: directories with all below them. What has several names counts
/// once.
#[derive(Args)]
#[command(disable_help_flag = true)]
pub struct Du {
    /// What to look at.
    #[arg(value_name = "PATH", default_value = "/")]
    paths: Vec<PathBuf>,
    /// Only what was named.
    #[arg(short = 's', long)]
    summarize: bool,
    /// Sizes like 1.5K.
    #[arg(short = 'h', short_alias = 'H', long = "human-readable")]
    human: bool,
    /// Stay on the file systems that the paths are on.
    #[arg(short = 'x', long)]
    one_file_system: bool,
    /// Print a list of JSON objects on stdout: paths and bytes.
    #[arg(long)]
    json: bool,
    /// Say how this command is used.
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
}

impl FileCommand for Du {
    fn access(&self) -> Access {
        Access::Read
    }

    fn run(&self, image: &mut OpenImage) -> Result<()> {
        let options = DiskUsageOptions { summarize: self.summarize, one_file_system: self.one_file_system };
        let printer = Printer { names: Names::to_stdout(), list: self.json.then(JsonList::new), human: self.human };
        Ok(image.disk_usage(&self.paths, &options, printer)?)
    }
}

#[derive(Serialize)]
struct Usage<'path> {
    #[serde(flatten)]
    path: Name<'path>,
    bytes: u64,
}

struct Printer {
    names: Names,
    /// For JSON.
    list: Option<JsonList>,
    human: bool,
}

impl DiskUsage for Printer {
    type Output = ();

    fn takes(&mut self, path: &[u8], bytes: u64) -> io::Result<()> {
        if let Some(list) = &mut self.list {
            return list.push(&Usage { path: path.into(), bytes });
        }
        let size = if self.human { human_size(bytes) } else { bytes.div_ceil(1024).to_string() };
        self.names.text(&format!("{size}\t"))?;
        self.names.name(path)?;
        self.names.text("\n")
    }

    fn finish(self) -> io::Result<()> {
        match self.list {
            Some(list) => list.finish(),
            None => self.names.finish(),
        }
    }
}
