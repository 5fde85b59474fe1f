//! `blockyard image compare`: whether two disks hold the same.

use super::qemu_flags::{ReadFlags, SourceCache};
use super::shut_in::shut_in;
use anyhow::Result;
use blockyard_block::specification::{DiskSpecification, Format};
use blockyard_command_line::disk;
use blockyard_command_line::image::at_terminal::AtTerminal;
use blockyard_command_line::image::named_image;
use blockyard_command_line::terminal::print;
use blockyard_command_line::verdict::Verdict;
use blockyard_image::whole::compare::{Compared, Comparison};
use blockyard_session::open::open_disk;
use clap::Args;
use std::path::PathBuf;

/// Compare two disks.
///
/// Of disks of different size, the longer one must go on with zeros. Exit status: 0 when they hold the same, 1 when
/// they do not, 2 on wrong usage and when they cannot be compared.
#[derive(Args)]
pub struct CompareArgs {
    /// A disk: [KIND:]PATH[,KEY=VALUE...]
    first: String,
    /// The other one.
    second: String,
    /// Format of the first.
    #[arg(short, value_name = "FORMAT", value_parser = named_image::formats())]
    format: Option<Format>,
    /// Format of the second.
    #[arg(short = 'F', value_name = "FORMAT", value_parser = named_image::formats())]
    second_format: Option<Format>,
    /// Sizes must be the same too, and what has storage and what has none.
    #[arg(short)]
    strict: bool,
    /// Show progress.
    #[arg(short)]
    progress: bool,
    /// Say nothing: the exit status says it.
    #[arg(short, long)]
    quiet: bool,
    /// Directory whose files an image may refer to; may be given more than once.
    #[arg(long, value_name = "DIR")]
    allow_dir: Vec<PathBuf>,
    #[command(flatten)]
    cache: SourceCache,
    #[command(flatten)]
    flags: ReadFlags,
}

impl CompareArgs {
    fn named(&self, text: &str, format: Option<Format>) -> Result<DiskSpecification> {
        self.cache.applied(self.flags.applied(named_image::parse(text, format)?.read_only()))
    }
}

/// The disks differ.
const DIFFER: u8 = 1;

/// They cannot be compared: exit status 2, as 1 means that they differ.
#[derive(Debug, thiserror::Error)]
#[error("{0:#}")]
pub struct NotComparable(anyhow::Error);

/// Runs the command.
///
/// # Errors
/// [`Verdict`] when they differ, [`NotComparable`] when there is no telling.
pub fn run(args: &CompareArgs) -> Result<()> {
    let text = compare(args).map_err(NotComparable)?;
    let is_same = text.is_ok();
    let (Ok(sentence) | Err(sentence)) = text;
    if !args.quiet {
        print(&sentence).map_err(NotComparable)?;
    }
    if is_same { Ok(()) } else { Err(Verdict(DIFFER).into()) }
}

/// What to say: that they are the same, or else that they are not.
fn compare(args: &CompareArgs) -> Result<Result<String, String>> {
    let named = [args.named(&args.first, args.format)?, args.named(&args.second, args.second_format)?];
    let access = disk::to_read(&args.allow_dir).streaming();
    let disks = [open_disk(&named[0], &access)?.into(), open_disk(&named[1], &access)?.into()];
    let comparison = Comparison::new([&args.first, &args.second], disks, args.strict);
    let watch = AtTerminal::watching(args.progress && !args.quiet)?;
    disk::keep_unreadable();
    shut_in(&[&named[0], &named[1]], Vec::new(), comparison.threads())?;
    let [first, second] = comparison.sizes();
    let warning = if first == second { "" } else { "Warning: Image size mismatch!\n" };
    let compared = comparison.run(&watch)?;
    match compared {
        Compared::Same => watch.done(),
        _ => drop(watch),
    }
    Ok(match compared {
        Compared::Same => Ok(format!("{warning}Images are identical.")),
        Compared::Sizes => Err(format!("Strict mode: Image size mismatch! ({first} and {second} bytes)")),
        Compared::Contents(offset) => Err(format!("{warning}Content mismatch at offset {offset}!")),
        Compared::Allocation(offset) => Err(format!("Strict mode: Offset {offset} block status mismatch!")),
    })
}
