//! `blockyard image rm`, `mkdir`, `mv`, `ln`, `chmod` and `chown`: one request each.

use super::file_mode;
use anyhow::Result;
use blockyard_command_line::image::file_command::{FileCommand, sources_and_destination};
use blockyard_command_line::usage_error::UsageError;
use blockyard_image::Access;
use blockyard_image::guest::{OpenImage, image_path, image_paths};
use blockyard_protocol::appliance::{ChangeMode, ChangeOwner, Link, MakeDirectory, Operation, Remove, Rename};
use clap::Args;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A command that is one request. What was done before a failure stays done, and durable.
trait Change {
    /// As [`FileCommand::synopsis`].
    fn synopsis() -> Option<&'static str> {
        None
    }

    /// The request.
    ///
    /// # Errors
    /// When what was asked for makes no sense.
    fn operation(&self) -> Result<Operation>;
}

macro_rules! file_commands {
    ($($change:ty),+) => {$(
        impl FileCommand for $change {
            fn synopsis() -> Option<&'static str> {
                <$change as Change>::synopsis()
            }

            fn access(&self) -> Access {
                Access::Write
            }

            fn check(&self) -> Result<()> {
                self.operation().map(drop)
            }

            fn run(&self, image: &mut OpenImage) -> Result<()> {
                Ok(image.call(self.operation()?).map(drop)?)
            }
        }
    )+};
}

file_commands!(Rm, Mkdir, Mv, Ln, Chmod, Chown);

/// Remove files of an image.
#[derive(Args)]
pub struct Rm {
    /// The files.
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
    /// Directories, with all below them.
    #[arg(short = 'r', visible_short_alias = 'R', long)]
    recursive: bool,
    /// What is not there is fine.
    #[arg(short = 'f', long)]
    force: bool,
    /// Empty directories too.
    #[arg(short = 'd', long)]
    dir: bool,
}

impl Change for Rm {
    fn operation(&self) -> Result<Operation> {
        let (paths, recursive) = (image_paths(&self.paths), self.recursive);
        Ok(Operation::Remove(Remove { paths, recursive, force: self.force, directory: self.dir }))
    }
}

/// Make directories in an image.
#[derive(Args)]
pub struct Mkdir {
    /// The directories.
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
    /// Those above them too, and those that are there are fine.
    #[arg(short = 'p', long)]
    parents: bool,
    /// Permissions, in octal.
    #[arg(long, value_name = "MODE", default_value = "755")]
    mode: String,
}

impl Change for Mkdir {
    fn operation(&self) -> Result<Operation> {
        let mode = file_mode::octal(&self.mode).ok_or_else(|| UsageError(format!("{} is no octal mode", self.mode)))?;
        let paths = image_paths(&self.paths);
        Ok(Operation::MakeDirectory(MakeDirectory { paths, parents: self.parents, mode }))
    }
}

/// Move files within an image.
#[derive(Args)]
pub struct Mv {
    /// The files; the last is DST: the directory they go to, or one file's new name.
    #[arg(value_name = "SRC", required = true)]
    paths: Vec<PathBuf>,
    /// Leave what is there already.
    #[arg(short = 'n', long)]
    no_clobber: bool,
}

impl Change for Mv {
    fn synopsis() -> Option<&'static str> {
        Some("<SRC>... <DST>")
    }

    fn operation(&self) -> Result<Operation> {
        let (sources, target) = sources_and_destination(&self.paths, "in the image")?;
        let (sources, target) = (image_paths(sources), image_path(target));
        Ok(Operation::Rename(Rename { sources, target, no_clobber: self.no_clobber, ..Rename::default() }))
    }
}

/// Link to a file of an image.
#[derive(Args)]
pub struct Ln {
    /// What it leads to; with -s, as it is written.
    target: PathBuf,
    /// The link, or a directory that it goes into.
    path: PathBuf,
    /// A symbolic link.
    #[arg(short = 's', long)]
    symbolic: bool,
    /// Replace what is there.
    #[arg(short = 'f', long)]
    force: bool,
}

impl Change for Ln {
    fn operation(&self) -> Result<Operation> {
        let as_written = |path: &Path| path.as_os_str().as_bytes().to_vec();
        let target = if self.symbolic { as_written(&self.target) } else { image_path(&self.target) };
        let path = image_path(&self.path);
        Ok(Operation::Link(Link { target, path, symbolic: self.symbolic, force: self.force }))
    }
}

/// Change permissions of files of an image.
#[derive(Args)]
pub struct Chmod {
    /// Like 644 or u+x,go-w.
    #[arg(allow_hyphen_values = true)]
    mode: String,
    /// The files.
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
    /// All below them too.
    #[arg(short = 'R', long)]
    recursive: bool,
}

impl Change for Chmod {
    fn operation(&self) -> Result<Operation> {
        let clauses = file_mode::parse(&self.mode).map_err(UsageError)?;
        let paths = image_paths(&self.paths);
        Ok(Operation::ChangeMode(ChangeMode { paths, clauses, recursive: self.recursive }))
    }
}

/// Change owners of files of an image. Names are the image's.
#[derive(Args)]
pub struct Chown {
    /// USER, USER:GROUP or :GROUP, by name or number.
    owner: String,
    /// The files.
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
    /// All below them too; links themselves.
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Links themselves, not what they lead to.
    #[arg(long = "no-dereference")]
    no_dereference: bool,
}

impl Change for Chown {
    fn operation(&self) -> Result<Operation> {
        let (user, group) = self.owner.split_once(':').unwrap_or((&self.owner, ""));
        if user.is_empty() && group.is_empty() {
            return Err(UsageError("name a user, a group or both: USER, USER:GROUP or :GROUP".to_owned()).into());
        }
        Ok(Operation::ChangeOwner(ChangeOwner {
            paths: image_paths(&self.paths),
            user: user.to_owned(),
            group: group.to_owned(),
            recursive: self.recursive,
            no_dereference: self.no_dereference,
        }))
    }
}
