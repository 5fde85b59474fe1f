//! `blockyard image cat`, `put` and `get`: data of files, between an image and the host.

use anyhow::Result;
use blockyard_command_line::image::file_command::{FileCommand, sources_and_destination};
use blockyard_command_line::stdin::{self, Stdin};
use blockyard_image::guest::OpenImage;
use blockyard_image::{Access, Error, GetOptions, PutOptions, PutSource};
use clap::Args;
use std::io;
use std::path::{Path, PathBuf};

/// What stands for stdin and stdout.
const STANDARD: &str = "-";

fn is_standard(path: &Path) -> bool {
    path == Path::new(STANDARD)
}

/// Print files of an image.
#[derive(Args)]
pub struct Cat {
    /// The files.
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
}

impl FileCommand for Cat {
    fn access(&self) -> Access {
        Access::Read
    }

    fn run(&self, image: &mut OpenImage) -> Result<()> {
        Ok(image.read_into(&self.paths, io::stdout()).map(drop)?)
    }
}

/// Copy files and trees of the host into an image.
///
/// As with cp: into DST if that is a directory, else to that name, in a directory that is there. Owners, permissions,
/// access control lists, times, extended attributes, hard links within a tree, holes, devices and sockets are kept.
#[derive(Args)]
pub struct Put {
    /// What to copy (- for stdin); the last is DST: where to in the image.
    #[arg(value_name = "SRC", required = true)]
    paths: Vec<PathBuf>,
    /// In the image everything belongs to root.
    #[arg(long)]
    root_owned: bool,
    /// Copy the regular files that links lead to, and nothing else.
    #[arg(short = 'L', long)]
    dereference: bool,
}

impl Put {
    fn options(&self) -> PutOptions {
        PutOptions { root_owned: self.root_owned, dereference: self.dereference }
    }
}

impl FileCommand for Put {
    fn synopsis() -> Option<&'static str> {
        Some("<SRC>... <DST>")
    }

    fn access(&self) -> Access {
        Access::Write
    }

    fn check(&self) -> Result<()> {
        let (sources, _) = sources_and_destination(&self.paths, "in the image")?;
        Ok(self.options().check(sources.iter().filter(|path| !is_standard(path)))?)
    }

    fn run(&self, image: &mut OpenImage) -> Result<()> {
        let (sources, target) = sources_and_destination(&self.paths, "in the image")?;
        stdin::lent(|stdin| {
            let sources = sources.iter().map(|path| match is_standard(path) {
                true => from_stdin(stdin.clone()),
                false => path.into(),
            });
            Ok(image.put(sources, target, &self.options())?)
        })
    }
}

/// Stdin, which nobody else may want when its turn comes.
fn from_stdin(stdin: Stdin) -> PutSource<'static> {
    let open = move || {
        stdin::claim().map_err(Error::other)?;
        Ok(Box::new(stdin) as Box<dyn io::Read + Send>)
    };
    PutSource::Stream { name: "stdin", open: Box::new(open) }
}

/// Copy files and trees of an image to the host.
///
/// As with cp: into DST if that is a directory, else to that name; - writes one file to stdout. A file has its name
/// when it is complete, and success means that it is on stable storage (but with --cache unsafe, as after cp).
/// Permissions without set-ID bits, times, `user.` attributes (where the host's file system has any), hard links and
/// holes are kept; what is copied belongs to whoever copies it. Access control lists are not kept, and nobody gets more
/// than they gave.
///
/// Devices, fifos and sockets are left out, each is named, and the exit status is 1 then, though all else is there: so
/// do cp -a and tar -x for who may not make devices. tar-out keeps devices and fifos.
#[derive(Args)]
pub struct Get {
    /// Copy the regular files that links lead to, and nothing else.
    #[arg(short = 'L', long)]
    dereference: bool,
    /// What to copy; the last is DST: where to on the host.
    #[arg(value_name = "SRC", required = true)]
    paths: Vec<PathBuf>,
}

impl Get {
    fn options(&self) -> GetOptions {
        GetOptions { dereference: self.dereference }
    }
}

impl FileCommand for Get {
    fn synopsis() -> Option<&'static str> {
        Some("<SRC>... <DST>")
    }

    fn access(&self) -> Access {
        Access::Read
    }

    fn check(&self) -> Result<()> {
        let (sources, target) = sources_and_destination(&self.paths, "on the host")?;
        Ok(self.options().check(sources.len(), target)?)
    }

    fn run(&self, image: &mut OpenImage) -> Result<()> {
        let (sources, target) = sources_and_destination(&self.paths, "on the host")?;
        match is_standard(target) {
            true => Ok(image.read_into(sources, io::stdout()).map(drop)?),
            false => Ok(image.get(sources, target, &self.options())?),
        }
    }
}
