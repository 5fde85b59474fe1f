//! `blockyard image rm`, `mkdir`, `mv`, `ln`, `chmod` and `chown`: one request each, then unmounting.

use super::file_mode;
use super::open_image::{Access, ImageArgs, OpenImage, image_path, image_paths};
use crate::UsageError;
use anyhow::Result;
use blockyard_protocol::appliance::{ChangeMode, ChangeOwner, Link, MakeDirectory, Operation, Remove, Rename};
use clap::Args;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Does one thing to an image. What was done before a failure stays done, and durable.
fn change(image: &ImageArgs, operation: Operation) -> Result<()> {
    let mut image = OpenImage::open(image, Access::Write)?;
    let done = image.call(operation);
    let closed = image.close();
    done.and(closed)
}

/// Remove files of an image.
#[derive(Args)]
pub struct RmArgs {
    #[command(flatten)]
    image: ImageArgs,
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

/// Runs `rm`.
///
/// # Errors
/// When something could not be removed.
pub fn remove(args: &RmArgs) -> Result<()> {
    let paths = image_paths(&args.paths);
    change(
        &args.image,
        Operation::Remove(Remove { paths, recursive: args.recursive, force: args.force, directory: args.dir }),
    )
}

/// Make directories in an image.
#[derive(Args)]
pub struct MkdirArgs {
    #[command(flatten)]
    image: ImageArgs,
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

/// Runs `mkdir`.
///
/// # Errors
/// When one could not be made.
pub fn make_directories(args: &MkdirArgs) -> Result<()> {
    let mode = file_mode::octal(&args.mode).ok_or_else(|| UsageError(format!("{} is no octal mode", args.mode)))?;
    let paths = image_paths(&args.paths);
    change(&args.image, Operation::MakeDirectory(MakeDirectory { paths, parents: args.parents, mode }))
}

/// Move files within an image.
#[derive(Args)]
pub struct MvArgs {
    #[command(flatten)]
    image: ImageArgs,
    /// The files, then the directory they go to, or one file and its new name.
    #[arg(value_name = "PATH", num_args = 2.., required = true)]
    paths: Vec<PathBuf>,
    /// Leave what is there already.
    #[arg(short = 'n', long)]
    no_clobber: bool,
}

/// Runs `mv`.
///
/// # Errors
/// When one could not be moved.
pub fn rename(args: &MvArgs) -> Result<()> {
    let Some((target, sources)) = args.paths.split_last() else { return Ok(()) };
    let (sources, target) = (image_paths(sources), image_path(target));
    change(&args.image, Operation::Rename(Rename { sources, target, no_clobber: args.no_clobber }))
}

/// Link to a file of an image.
#[derive(Args)]
pub struct LnArgs {
    #[command(flatten)]
    image: ImageArgs,
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

/// Runs `ln`.
///
/// # Errors
/// When it could not be made.
pub fn link(args: &LnArgs) -> Result<()> {
    let as_written = |path: &Path| path.as_os_str().as_bytes().to_vec();
    let target = if args.symbolic { as_written(&args.target) } else { image_path(&args.target) };
    let path = image_path(&args.path);
    change(&args.image, Operation::Link(Link { target, path, symbolic: args.symbolic, force: args.force }))
}

/// Change permissions of files of an image.
#[derive(Args)]
pub struct ChmodArgs {
    #[command(flatten)]
    image: ImageArgs,
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

/// Runs `chmod`.
///
/// # Errors
/// When one could not be changed.
pub fn change_mode(args: &ChmodArgs) -> Result<()> {
    let clauses = file_mode::parse(&args.mode).map_err(UsageError)?;
    let paths = image_paths(&args.paths);
    change(&args.image, Operation::ChangeMode(ChangeMode { paths, clauses, recursive: args.recursive }))
}

/// Change owners of files of an image. Names are the image's.
#[derive(Args)]
pub struct ChownArgs {
    #[command(flatten)]
    image: ImageArgs,
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

/// Runs `chown`.
///
/// # Errors
/// When one could not be changed.
pub fn change_owner(args: &ChownArgs) -> Result<()> {
    let (user, group) = args.owner.split_once(':').unwrap_or((&args.owner, ""));
    if user.is_empty() && group.is_empty() {
        return Err(UsageError("name a user, a group or both: USER, USER:GROUP or :GROUP".to_owned()).into());
    }
    let change_owner = ChangeOwner {
        paths: image_paths(&args.paths),
        user: user.to_owned(),
        group: group.to_owned(),
        recursive: args.recursive,
        no_dereference: args.no_dereference,
    };
    change(&args.image, Operation::ChangeOwner(change_owner))
}
