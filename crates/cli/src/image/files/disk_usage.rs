//! `blockyard image du`.

use super::file_json::{JsonList, Name};
use super::listing::{Names, human_size};
use crate::image::file_commands::FileCommand;
use anyhow::Result;
use blockyard_image::Access;
use blockyard_image::files::file_type::is_directory;
use blockyard_image::guest::{OpenImage, RecordTaker, image_paths};
use blockyard_protocol::appliance::{Entry, Operation, Record, Walk};
use clap::Args;
use serde::Serialize;
use std::collections::{HashMap, HashSet};
use std::io;
use std::path::PathBuf;

/// Say how much space files of an image take, in KiB: directories with all below them. What has several names counts once.
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
        let walk = Walk {
            paths: image_paths(&self.paths),
            depth: u32::MAX,
            one_file_system: self.one_file_system,
            ..Walk::default()
        };
        let sums = Sums {
            names: Names::new(),
            list: self.json.then(JsonList::new),
            summarize: self.summarize,
            human: self.human,
            open: Vec::new(),
            named: None,
            ahead: HashMap::new(),
            ahead_bytes: 0,
            seen: HashSet::new(),
        };
        Ok(image.records(Operation::Walk(walk), sums)?)
    }
}

/// Files with several names that are remembered; more than these count as often as they are met.
const SEEN_MAX: usize = 1 << 20;
/// Bytes of the paths of directories that are remembered until they are looked into; the blocks of others count for those that they are in.
const AHEAD_BYTES_MAX: usize = 16 << 20;
/// Directories that one can be in: a path has no more.
const DEPTH_MAX: usize = 4096;

#[derive(Serialize)]
struct Usage<'path> {
    #[serde(flatten)]
    path: Name<'path>,
    bytes: u64,
}

struct Sums {
    names: Names,
    /// For JSON.
    list: Option<JsonList>,
    summarize: bool,
    human: bool,
    /// The directories that the walk is in, outermost first: path, depth, blocks of 512 bytes of all below so far.
    open: Vec<(Vec<u8>, u32, u64)>,
    /// What was named last: its path, and its own blocks.
    named: Option<(Vec<u8>, u64)>,
    /// Directories that were met and not yet looked into, with their own blocks.
    ahead: HashMap<Vec<u8>, u64>,
    /// Bytes of their paths.
    ahead_bytes: usize,
    seen: HashSet<(u64, u64)>,
}

impl Sums {
    /// Ends the directories that are at `depth` or deeper.
    fn leave(&mut self, depth: u32) -> io::Result<()> {
        while let Some((path, at, blocks)) = self.open.pop_if(|(_, at, _)| *at >= depth) {
            match self.open.last_mut() {
                Some((_, _, above)) => *above = above.saturating_add(blocks),
                None => {
                    let own = self.named.take().map_or(0, |(_, blocks)| blocks);
                    self.print(&path, blocks.saturating_add(own))?;
                    continue;
                }
            }
            if !self.summarize && at > 0 {
                self.print(&path, blocks)?;
            }
        }
        Ok(())
    }

    /// Ends what was named.
    fn leave_all(&mut self) -> io::Result<()> {
        self.leave(0)?;
        match self.named.take() {
            Some((path, blocks)) => self.print(&path, blocks),
            None => Ok(()),
        }
    }

    fn print(&mut self, path: &[u8], blocks: u64) -> io::Result<()> {
        let bytes = blocks.saturating_mul(512);
        if let Some(list) = &mut self.list {
            return list.push(&Usage { path: path.into(), bytes });
        }
        let size = if self.human { human_size(bytes) } else { bytes.div_ceil(1024).to_string() };
        self.names.text(&format!("{size}\t"))?;
        self.names.name(path)?;
        self.names.text("\n")
    }

    /// Blocks that count for a file: none when it was met under another name.
    fn counted(&mut self, entry: &Entry) -> u64 {
        let several = entry.links > 1 && !is_directory(entry.mode);
        if several && self.seen.len() < SEEN_MAX && !self.seen.insert((entry.device, entry.inode)) {
            return 0;
        }
        entry.blocks
    }
}

impl RecordTaker for Sums {
    type Output = ();

    fn take(&mut self, record: Record) -> io::Result<()> {
        match record {
            Record::Directory(directory) => {
                self.leave(directory.depth)?;
                let own = match self.ahead.remove(&directory.path) {
                    Some(own) => {
                        self.ahead_bytes -= directory.path.len();
                        own
                    }
                    None => 0,
                };
                if self.open.len() == DEPTH_MAX {
                    return Err(io::Error::other("the appliance lists directories deeper than there can be"));
                }
                self.open.push((directory.path, directory.depth, own));
            }
            Record::Entry(entry) if entry.name.contains(&b'/') => {
                self.leave_all()?;
                let blocks = self.counted(&entry);
                self.named = Some((entry.name, blocks));
            }
            Record::Entry(entry) => {
                let blocks = self.counted(&entry);
                let Some((path, _, sum)) = self.open.last_mut() else { return Ok(()) };
                if is_directory(entry.mode) && self.ahead_bytes < AHEAD_BYTES_MAX {
                    let slash: &[u8] = if path.ends_with(b"/") { b"" } else { b"/" };
                    let below = [path, slash, &entry.name].concat();
                    let length = below.len();
                    if self.ahead.insert(below, blocks).is_none() {
                        self.ahead_bytes += length;
                    }
                } else {
                    *sum = sum.saturating_add(blocks);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn finish(mut self) -> io::Result<()> {
        self.leave_all()?;
        match self.list {
            Some(list) => list.finish(),
            None => self.names.finish(),
        }
    }
}
