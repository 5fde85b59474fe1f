//! `blockyard image compare`: whether two disks hold the same.

use super::named_image;
use super::shut_in::shut_in;
use super::verdict::Verdict;
use super::watch::Watch;
use crate::disk::{self, Access};
use crate::print;
use anyhow::{Result, anyhow};
use blockyard_block::comparison::{Comparing, Comparison, ComparisonError};
use blockyard_block::specification::Format;
use clap::Args;
use std::path::PathBuf;

/// Compare two disks.
///
/// Of disks of different size, the longer one must go on with zeros. Exit status: 0 when they hold the same, 1 when they do not, 2 on
/// wrong usage and when they cannot be compared.
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
    const THREADS: usize = 4;
    let named = [
        named_image::parse(&args.first, args.format)?.read_only(),
        named_image::parse(&args.second, args.second_format)?.read_only(),
    ];
    let access = Access::to_read_once(&args.allow_dir);
    let opened = [disk::open(&named[0], &access)?, disk::open(&named[1], &access)?];
    let queues_max = opened[0].queues_max().min(opened[1].queues_max());
    let disks = opened.map(|opened| opened.disk);
    let sizes = [disks[0].geometry().capacity_bytes, disks[1].geometry().capacity_bytes];
    let is_same_size = sizes[0] == sizes[1];
    if args.strict && !is_same_size {
        return Ok(Err(format!("Strict mode: Image size mismatch! ({} and {} bytes)", sizes[0], sizes[1])));
    }
    let watch = Watch::new(args.progress && !args.quiet, sizes[0].max(sizes[1]))?;
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(THREADS).min(queues_max);
    shut_in(&[&named[0], &named[1]], Vec::new(), threads)?;
    let comparing = Comparing::new(&*disks[0], &*disks[1], args.strict);
    let found = comparing.run(threads, |done| watch.goes_on(done, comparing.data_bytes()));
    let found = found.map_err(|error| match error {
        ComparisonError::Stopped => watch.check().err().unwrap_or_else(|| anyhow!("stopped")),
        error => anyhow::Error::from(error).context(format!("cannot compare {} with {}", args.first, args.second)),
    })?;
    let warning = if is_same_size { "" } else { "Warning: Image size mismatch!\n" };
    Ok(match found {
        Comparison::Same => Ok(format!("{warning}Images are identical.")),
        Comparison::Contents { offset_bytes } => Err(format!("{warning}Content mismatch at offset {offset_bytes}!")),
        Comparison::Allocation { offset_bytes } => {
            Err(format!("Strict mode: Offset {offset_bytes} block status mismatch!"))
        }
    })
}
