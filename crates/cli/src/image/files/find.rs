//! `blockyard image find`.

use super::file_json::{File, JsonList, path_within};
use super::find_expression::{Found, Search};
use super::listing::Names;
use crate::image::file_commands::FileCommand;
use anyhow::{Result, bail};
use blockyard_block::shown;
use blockyard_image::Access;
use blockyard_image::guest::{OpenImage, RecordTaker, path_of};
use blockyard_protocol::appliance::{Operation, Record, Walk};
use clap::Args;
use std::ffi::OsString;
use std::io;
use std::time::SystemTime;

/// Find files of an image: paths, then tests and actions as find(1) has them. Options of the image come first.
///
/// Tests: -name PATTERN, -path PATTERN, -type f|d|l|b|c|p|s, -size [+-]N[ckMG], -perm [-/]MODE, -user NAME|ID, -group NAME|ID, -newer
/// FILE (of the image), -mtime, -atime, -ctime [+-]DAYS, -mmin, -amin, -cmin [+-]MINUTES, -empty, -links [+-]N; between them ! -a -o ( ).
/// Actions: -print, -print0, -ls, -printf FORMAT (times are UTC). Also -mindepth N, -maxdepth N, -xdev.
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
    fn search(&self) -> Result<Search> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Ok(Search::parse(&self.rest, self.json, now.as_secs().try_into().unwrap_or(i64::MAX))?)
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
        let mut search = self.search()?;
        for (path, time) in &mut search.newer {
            let path = path_of(path.clone());
            match image.entry(&path, false)? {
                Some(entry) => *time = (entry.modified, entry.modified_ns),
                None => bail!("-newer {}: there is no such file in the image", shown(&path)),
            }
        }
        let walk = Walk {
            paths: search.paths.clone(),
            depth: search.depth_max,
            one_file_system: search.one_file_system,
            details: search.needs_details,
            emptiness: search.needs_emptiness,
            ..Walk::default()
        };
        let list = search.is_json.then(JsonList::new);
        let finder = Finder { search, names: Names::new(), list, start: Vec::new(), directory: Vec::new(), depth: 0 };
        Ok(image.records(Operation::Walk(walk), finder)?)
    }
}

struct Finder {
    search: Search,
    names: Names,
    /// For JSON.
    list: Option<JsonList>,
    /// What was named, and the walk is below.
    start: Vec<u8>,
    directory: Vec<u8>,
    depth: u32,
}

impl RecordTaker for Finder {
    type Output = ();

    fn take(&mut self, record: Record) -> io::Result<()> {
        match record {
            Record::Directory(directory) => (self.directory, self.depth) = (directory.path, directory.depth),
            Record::Entry(entry) => {
                if entry.name.contains(&b'/') {
                    (self.start, self.depth) = (entry.name.clone(), 0);
                }
                let path = path_within(&self.directory, &entry);
                if self.depth < self.search.depth_min {
                    return Ok(());
                }
                let found = Found { path: &path, start: &self.start, depth: self.depth, entry: &entry };
                let holds = self.search.judge(&found, &mut self.names)?;
                if let Some(list) = self.list.as_mut().filter(|_| holds) {
                    list.push(&File::new(&path, &entry))?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn finish(self) -> io::Result<()> {
        self.list.map_or(Ok(()), JsonList::finish)?;
        self.names.finish()
    }
}
