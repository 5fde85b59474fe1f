//! `blockyard image rebase`: another backing file behind an image.

use super::behind;
use super::image_options::unsaid_format;
use super::qemu_flags::{CachedFlags, WriteFlags};
use super::shut_in::shut_in;
use anyhow::{Result, bail};
use blockyard_block::specification::Format;
use blockyard_block::{Qcow2Backing, printable};
use blockyard_command_line::disk;
use blockyard_command_line::image::at_terminal::AtTerminal;
use blockyard_command_line::image::named_image;
use blockyard_command_line::terminal::print;
use blockyard_command_line::usage_error::UsageError;
use blockyard_image::whole::rebase::Rebase;
use blockyard_image::whole::refuse_itself;
use blockyard_session::open::open_to_change;
use clap::Args;
use std::path::PathBuf;

/// Put another backing file behind an image, or none.
///
/// The image shows the same afterwards: what the new backing file has not is written to it. With -u, only the name is
/// changed, and what shows through is the new file's; that is for a backing file that was moved, or has got another
/// format.
#[derive(Args)]
pub struct RebaseArgs {
    /// Image: a qcow2 file.
    image: String,
    /// Format of the image.
    #[arg(short, value_name = "FORMAT", value_parser = named_image::formats())]
    format: Option<Format>,
    /// The new backing file; a name that is not absolute starts from the directory of the image's name. An empty name:
    /// none, so that the image depends on nothing.
    #[arg(short, long, value_name = "FILE")]
    backing: String,
    /// Format of the new backing file.
    #[arg(short = 'F', long, value_parser = named_image::backing_formats())]
    backing_format: Option<Format>,
    /// Change the name only. Neither the old backing file nor the new one is looked at.
    #[arg(short)]
    unsafe_: bool,
    /// Show progress.
    #[arg(short)]
    progress: bool,
    /// File with the passphrase of the new backing file, if that is encrypted.
    #[arg(long, value_name = "FILE")]
    backing_key_file: Option<PathBuf>,
    /// Directory in which its backing files may lie; may be given more than once.
    #[arg(long, value_name = "DIR")]
    allow_dir: Vec<PathBuf>,
    /// Say nothing.
    #[arg(short, long)]
    quiet: bool,
    #[command(flatten)]
    cache: CachedFlags,
    #[command(flatten)]
    flags: WriteFlags,
}

/// Runs the command.
///
/// # Errors
/// When one of the files cannot be had, or the image cannot be written.
pub fn run(args: &RebaseArgs) -> Result<()> {
    let backing = args.new_backing()?;
    let named = named_image::parse_based(&args.image, args.format)?.named;
    let file = open_to_change(&named, &disk::to_write(&args.allow_dir))?.file;
    let rebase = Rebase::open(&args.image, file)?;
    let watch = AtTerminal::watching(args.progress && !args.quiet)?;
    if let Some(backing) = &backing {
        refuse_itself(&args.image, rebase.path(), backing)?;
    }
    if !args.unsafe_ {
        let allow_dirs = behind::allowed(rebase.path(), backing.as_ref(), &args.allow_dir);
        let key_file = args.backing_key_file.as_deref();
        let behind =
            backing.as_ref().map(|backing| behind::open(rebase.path(), backing, &allow_dirs, key_file)).transpose()?;
        if let Some(keeping) = rebase.keeping(behind, &args.allow_dir, named.keys())? {
            disk::keep_unreadable();
            shut_in(&[&named], Vec::new(), 1)?;
            keeping.run(&watch)?;
        }
    }
    rebase.name_backing(backing.as_ref())?;
    watch.done();
    if args.quiet {
        return Ok(());
    }
    let image = printable(&args.image);
    print(&match backing {
        Some(Qcow2Backing { name, format }) => format!("{image}: over {} ({format})", printable(&name)),
        None => format!("{image}: depends on no other file"),
    })
}

const OVA_BEHIND: &str = "an OVA has several disks and cannot be behind an image: convert its disk first";

impl RebaseArgs {
    fn new_backing(&self) -> Result<Option<Qcow2Backing>> {
        let name = self.backing.clone();
        match (name.is_empty(), self.backing_format) {
            (true, _) => Ok(None),
            (false, Some(Format::Ova)) => bail!(UsageError(OVA_BEHIND.to_owned())),
            (false, Some(format)) if name.len() <= 1023 => {
                Ok(Some(Qcow2Backing { name, format: format.word().to_owned() }))
            }
            (false, Some(_)) => bail!(UsageError("the name of a backing file has at most 1023 bytes".to_owned())),
            (false, None) => Err(unsaid_format(&name).into()),
        }
    }
}
