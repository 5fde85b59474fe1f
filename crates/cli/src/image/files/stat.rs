//! `blockyard image stat`.

use super::file_json::Files;
use anyhow::Result;
use blockyard_command_line::image::file_command::FileCommand;
use blockyard_command_line::image::listing::{Names, mode_text, owner, time_text, type_name};
use blockyard_image::Access;
use blockyard_image::files::Entry;
use blockyard_image::files::file_type::is_link;
use blockyard_image::files::listing::{Place, Visitor, WalkOptions};
use blockyard_image::guest::OpenImage;
use clap::Args;
use std::io;
use std::path::PathBuf;

/// Say what is known of files of an image; times are UTC.
#[derive(Args)]
pub struct Stat {
    /// The files.
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
    /// Of links, what they lead to.
    #[arg(short = 'L', long)]
    dereference: bool,
    /// Print a list of JSON objects on stdout.
    #[arg(long)]
    json: bool,
}

impl FileCommand for Stat {
    fn access(&self) -> Access {
        Access::Read
    }

    fn run(&self, image: &mut OpenImage) -> Result<()> {
        let options = WalkOptions { details: true, follow: self.dereference, ..WalkOptions::default() };
        if self.json {
            return Ok(image.walk(&self.paths, &options, Files::new(|_: &Entry| true))?);
        }
        Ok(image.walk(&self.paths, &options, Printer(Names::to_stdout()))?)
    }
}

struct Printer(Names);

impl Visitor for Printer {
    type Output = ();

    fn file(&mut self, _: &Place, entry: Entry) -> io::Result<()> {
        let Self(names) = self;
        names.text("  File: ")?;
        names.name(&entry.name)?;
        if is_link(entry.mode) {
            names.text(" -> ")?;
            names.name(&entry.target)?;
        }
        names.text(&facts(&entry))
    }

    fn finish(self) -> io::Result<()> {
        self.0.finish()
    }
}

/// As stat(1) arranges them.
fn facts(entry: &Entry) -> String {
    let (user, group) = (owner(&entry.user, entry.user_id), owner(&entry.group, entry.group_id));
    let device = match (entry.major, entry.minor) {
        (0, 0) => String::new(),
        (major, minor) => format!("\tDevice type: {major},{minor}"),
    };
    format!(
        "\n  Size: {}\tBlocks: {}\t{}\n Inode: {}\tLinks: {}{device}\nAccess: ({:04o}/{})\tUid: ({}/{user})\tGid: ({}/{group})\n\
         Access: {}\nModify: {}\nChange: {}\n",
        entry.size,
        entry.blocks,
        type_name(entry.mode),
        entry.inode,
        entry.links,
        entry.mode & 0o7777,
        mode_text(entry.mode),
        entry.user_id,
        entry.group_id,
        time_text(entry.accessed, true),
        time_text(entry.modified, true),
        time_text(entry.changed, true),
    )
}
