//! `blockyard image rebase`: another backing file behind an image.

use super::named_image::{self, ImageFile, directory_of};
use super::new_image::{backing_path, open_backing};
use super::shut_in::shut_in;
use super::watch::Watch;
use crate::disk::{self, Access};
use crate::{UsageError, print};
use anyhow::{Context, Result, bail};
use blockyard_block::specification::Format;
use blockyard_block::{AllowedDirectories, Disk, Qcow2Backing, Qcow2Rebase, same_file, write_differences};
use clap::Args;
use std::path::{Path, PathBuf};

/// Put another backing file behind an image, or none.
///
/// The image shows the same afterwards: what the new backing file has not is written to it. With -u, only the name is changed, and what shows
/// through is the new file's; that is for a backing file that was moved, or has got another format.
#[derive(Args)]
pub struct RebaseArgs {
    /// Image: a qcow2 file.
    image: String,
    /// Format of the image.
    #[arg(short, value_name = "FORMAT", value_parser = named_image::formats())]
    format: Option<Format>,
    /// The new backing file; a name that is not absolute starts from the image's directory. An empty name: none, so that the image
    /// depends on nothing.
    #[arg(short, long, value_name = "FILE")]
    backing: String,
    /// Format of the new backing file.
    #[arg(short = 'F', long, value_parser = named_image::formats())]
    backing_format: Option<Format>,
    /// Change the name only. Neither the old backing file nor the new one is looked at.
    #[arg(short)]
    unsafe_: bool,
    /// Show progress.
    #[arg(short)]
    progress: bool,
    /// Directory in which its backing files may lie; may be given more than once.
    #[arg(long, value_name = "DIR")]
    allow_dir: Vec<PathBuf>,
    /// Say nothing.
    #[arg(short, long)]
    quiet: bool,
}

/// Runs the command.
///
/// # Errors
/// When one of the files cannot be had, or the image cannot be written.
pub fn run(args: &RebaseArgs) -> Result<()> {
    let backing = args.new_backing()?;
    let ImageFile { named, path, .. } = named_image::parse_based(&args.image, args.format)?;
    let access = Access { allow_dirs: &args.allow_dir, ..Access::default() };
    let file = disk::open_file(&named, &access)?.file;
    let failed = || format!("cannot rebase {}", args.image);
    let rebase = Qcow2Rebase::open(file).with_context(failed)?;
    if !args.unsafe_ {
        args.keep_contents(&rebase, &path, backing.as_ref(), || shut_in(&[&named], Vec::new(), 1))?;
    }
    rebase.name_backing(backing.as_ref()).with_context(failed)?;
    if args.quiet {
        return Ok(());
    }
    print(&match backing {
        Some(Qcow2Backing { name, format }) => format!("{}: over {name} ({format})", args.image),
        None => format!("{}: depends on no other file", args.image),
    })
}

impl RebaseArgs {
    fn new_backing(&self) -> Result<Option<Qcow2Backing>> {
        let name = self.backing.clone();
        match (name.is_empty(), self.backing_format) {
            (true, _) => Ok(None),
            (false, Some(Format::Vmdk)) => {
                bail!(UsageError("a backing file is raw or qcow2: VMDK images cannot be behind others".to_owned()))
            }
            (false, Some(format)) if name.len() <= 1023 => {
                Ok(Some(Qcow2Backing { name, format: format.word().to_owned() }))
            }
            (false, Some(_)) => bail!(UsageError("the name of a backing file has at most 1023 bytes".to_owned())),
            (false, None) => bail!(UsageError(format!(
                "in which format is {name}? Add -F raw or -F qcow2: guessing would let whoever writes to it decide"
            ))),
        }
    }

    /// Writes to the image what it would not show any more.
    fn keep_contents(
        &self,
        rebase: &Qcow2Rebase,
        path: &Path,
        backing: Option<&Qcow2Backing>,
        confine: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let failed = || format!("cannot rebase {}", self.image);
        let behind = match backing {
            None => None,
            Some(backing) => {
                let new_path = backing_path(path, &backing.name);
                if same_file(path, &new_path).unwrap_or(false) {
                    bail!("{} cannot be behind itself", self.image);
                }
                // Who names it allows it.
                let allow_dirs = [&self.allow_dir[..], &[directory_of(&new_path)]].concat();
                Some(open_backing(path, backing, &allow_dirs)?)
            }
        };
        let top = rebase.disk(&AllowedDirectories::new(&self.allow_dir)?).with_context(failed)?;
        if behind.is_none() && !top.has_backing() {
            return Ok(());
        }
        let watch = Watch::new(self.progress && !self.quiet, top.geometry().capacity_bytes)?;
        confine()?;
        let written = write_differences(&top, &top, behind.as_deref(), &mut |at, data| watch.goes_on(at, data));
        written.map_err(|error| watch.why(error, failed()))
    }
}
