//! `blockyard image ls`.

use super::file_json::Files;
use anyhow::Result;
use blockyard_command_line::image::file_command::FileCommand;
use blockyard_command_line::image::listing::{Names, mode_text, owner, size_text, time_text};
use blockyard_image::Access;
use blockyard_image::files::Entry;
use blockyard_image::files::file_type::{is_directory, is_link};
use blockyard_image::files::listing::{Place, Visitor, WalkOptions, is_named};
use blockyard_image::guest::OpenImage;
use blockyard_image::guest::records::entry_bytes;
use blockyard_protocol::pattern::is_pattern;
use clap::Args;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Lines that are kept to make their columns equally wide: a damaged or hostile directory may have any number.
const LINES_MAX: usize = 1 << 16;
/// And bytes: owners may have names of any length.
const LINE_BYTES_MAX: usize = 64 << 20;

/// List files of an image, one a line, in order of name; times are UTC.
#[derive(Args)]
#[command(disable_help_flag = true)]
pub struct Ls {
    /// What to list.
    #[arg(value_name = "PATH", default_value = "/")]
    paths: Vec<PathBuf>,
    /// Mode, links, owner, group, size and time too.
    #[arg(short = 'l')]
    long: bool,
    /// Directories' contents, all the way down.
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Names that begin with a dot too.
    #[arg(short = 'a', short_alias = 'A', long)]
    all: bool,
    /// Directories themselves, not what is in them.
    #[arg(short = 'd', long)]
    directory: bool,
    /// With -l, sizes like 1.5K.
    #[arg(short = 'h', short_alias = 'H', long = "human-readable")]
    human: bool,
    /// Print a list of JSON objects on stdout, with all that is known of each file.
    #[arg(long)]
    json: bool,
    /// Say how this command is used.
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
}

impl FileCommand for Ls {
    fn access(&self) -> Access {
        Access::Read
    }

    fn run(&self, image: &mut OpenImage) -> Result<()> {
        let depth = match (self.directory, self.recursive) {
            (true, _) => 0,
            (_, true) => u32::MAX,
            _ => 1,
        };
        let options = WalkOptions {
            depth,
            details: self.long || self.json,
            follow: !self.long && !self.directory,
            ..WalkOptions::default()
        };
        if self.json {
            let (all, looks_in) = (self.all, depth > 0);
            let is_wanted = move |entry: &Entry| match is_named(entry) {
                true => !(looks_in && is_directory(entry.mode)),
                false => all || !entry.name.starts_with(b"."),
            };
            return Ok(image.walk(&self.paths, &options, Files::new(is_wanted))?);
        }
        let lister = Lister {
            names: Names::to_stdout(),
            long: self.long,
            all: self.all,
            human: self.human,
            looks_in: depth > 0,
            headings: self.recursive || may_be_several(&self.paths),
            begun: false,
            within: false,
            lines: Vec::new(),
            line_bytes: 0,
        };
        Ok(image.walk(&self.paths, &options, lister)?)
    }
}

fn may_be_several(paths: &[PathBuf]) -> bool {
    paths.len() > 1 || paths.iter().any(|path| is_pattern(path.as_os_str().as_bytes()))
}

struct Lister {
    names: Names,
    long: bool,
    all: bool,
    human: bool,
    /// Directories that are named are looked into.
    looks_in: bool,
    /// A directory's name comes before what is in it.
    headings: bool,
    begun: bool,
    /// The lines are of a directory's entries.
    within: bool,
    lines: Vec<Line>,
    /// What they take.
    line_bytes: usize,
}

/// A file, with the columns of `-l`.
struct Line {
    columns: Option<Columns>,
    name: Vec<u8>,
    target: Vec<u8>,
}

struct Columns {
    mode: String,
    links: String,
    user: String,
    group: String,
    size: String,
    time: String,
    blocks: u64,
}

impl Line {
    fn new(entry: Entry, long: bool, human: bool) -> Self {
        let columns = long.then(|| Columns {
            mode: mode_text(entry.mode),
            links: entry.links.to_string(),
            user: owner(&entry.user, entry.user_id),
            group: owner(&entry.group, entry.group_id),
            size: size_text(&entry, human),
            time: time_text(entry.modified, false),
            blocks: entry.blocks,
        });
        let target = if is_link(entry.mode) { entry.target } else { Vec::new() };
        Self { columns, name: entry.name, target }
    }
}

impl Lister {
    /// Prints the lines that belong together.
    fn flush(&mut self) -> io::Result<()> {
        let lines = std::mem::take(&mut self.lines);
        self.line_bytes = 0;
        let columns = || lines.iter().filter_map(|line| line.columns.as_ref());
        if self.long && self.within {
            let blocks = columns().fold(0u64, |sum, columns| sum.saturating_add(columns.blocks));
            self.names.text(&format!("total {}\n", blocks / 2))?;
        }
        let width = |of: fn(&Columns) -> &String| columns().map(|columns| of(columns).len()).max().unwrap_or(0);
        let (links, user) = (width(|columns| &columns.links), width(|columns| &columns.user));
        let (group, size) = (width(|columns| &columns.group), width(|columns| &columns.size));
        for line in &lines {
            if let Some(Columns { mode, links: l, user: u, group: g, size: s, time, .. }) = &line.columns {
                self.names.text(&format!("{mode} {l:>links$} {u:<user$} {g:<group$} {s:>size$} {time} "))?;
            }
            self.names.name(&line.name)?;
            if line.columns.is_some() && !line.target.is_empty() {
                self.names.text(" -> ")?;
                self.names.name(&line.target)?;
            }
            self.names.text("\n")?;
        }
        Ok(())
    }
}

impl Visitor for Lister {
    type Output = ();

    fn directory(&mut self, path: &[u8], _: u32) -> io::Result<()> {
        self.flush()?;
        if self.headings {
            self.names.text(if self.begun { "\n" } else { "" })?;
            self.names.name(path)?;
            self.names.text(":\n")?;
        }
        (self.begun, self.within) = (true, true);
        Ok(())
    }

    fn file(&mut self, _: &Place, entry: Entry) -> io::Result<()> {
        if is_named(&entry) {
            self.flush()?;
            self.within = false;
            if !(self.looks_in && is_directory(entry.mode)) {
                self.begun = true;
                self.lines.push(Line::new(entry, self.long, self.human));
            }
        } else if self.all || !entry.name.starts_with(b".") {
            self.line_bytes += entry_bytes(&entry);
            self.lines.push(Line::new(entry, self.long, self.human));
            if self.lines.len() == LINES_MAX || self.line_bytes >= LINE_BYTES_MAX {
                self.flush()?;
                self.within = false;
            }
        }
        Ok(())
    }

    fn finish(mut self) -> io::Result<()> {
        self.flush()?;
        self.names.finish()
    }
}
