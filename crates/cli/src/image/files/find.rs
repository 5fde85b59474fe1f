//! `blockyard image find`.

use super::file_json::{File, JsonList};
use super::find_arguments::{Action, parse};
use anyhow::Result;
use blockyard_command_line::image::file_command::FileCommand;
use blockyard_command_line::image::listing::Names;
use blockyard_image::Access;
use blockyard_image::files::find::{Actions, Found, Search};
use blockyard_image::guest::OpenImage;
use clap::Args;
use std::ffi::OsString;
use std::io;
use std::time::SystemTime;

/// Find files of an image: paths, then tests and actions as find(1) has them. Options of the image come first.
///
/// Tests: -name PATTERN, -path PATTERN, -type f|d|l|b|c|p|s, -size [+-]N[ckMG], -perm [-/]MODE, -user NAME|ID, -group
/// NAME|ID, -newer FILE (of the image), -mtime, -atime, -ctime [+-]DAYS, -mmin, -amin, -cmin [+-]MINUTES, -empty,
/// -links [+-]N; between them ! -a -o ( ). Actions: -print, -print0, -ls, -printf FORMAT (times are UTC). Also
/// -mindepth N, -maxdepth N, -xdev.
#[derive(Args)]
pub struct Find {
    /// Print a list of JSON objects on stdout.
    #[arg(long)]
    json: bool,
    /// Where to look, and what for.
    #[arg(value_name = "PATH|TEST", trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<OsString>,
}

impl Find {
    /// What is looked for, and whether it is for a list of JSON objects.
    fn search(&self) -> Result<(Search<Action>, bool)> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Ok(parse(&self.rest, self.json, now.as_secs().try_into().unwrap_or(i64::MAX))?)
    }
}

impl FileCommand for Find {
    fn synopsis() -> Option<&'static str> {
        Some("[PATH]... [TEST]...")
    }

    fn access(&self) -> Access {
        Access::Read
    }

    fn check(&self) -> Result<()> {
        self.search().map(drop)
    }

    fn run(&self, image: &mut OpenImage) -> Result<()> {
        let (search, is_json) = self.search()?;
        let printer = Printer { names: Names::to_stdout(), list: is_json.then(JsonList::new) };
        Ok(image.find(search, printer)?)
    }
}

struct Printer {
    names: Names,
    /// For JSON.
    list: Option<JsonList>,
}

impl Actions<Action> for Printer {
    type Output = ();

    fn perform(&mut self, action: &Action, found: &Found<'_>) -> io::Result<()> {
        action.perform(found, &mut self.names)
    }

    fn found(&mut self, found: &Found<'_>) -> io::Result<()> {
        self.list.as_mut().map_or(Ok(()), |list| list.push(&File::new(found.path, found.entry)))
    }

    fn finish(self) -> io::Result<()> {
        self.list.map_or(Ok(()), JsonList::finish)?;
        self.names.finish()
    }
}
