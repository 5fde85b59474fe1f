//! `blockyard image commit`: what an image holds goes into the one that it is based on.

use super::qemu_flags::{WriteFlags, rate};
use super::shut_in::shut_in;
use anyhow::Result;
use blockyard_block::specification::Format;
use blockyard_block::{printable, shown};
use blockyard_command_line::disk;
use blockyard_command_line::image::at_terminal::AtTerminal;
use blockyard_command_line::image::named_image::{self, ImageFile};
use blockyard_command_line::terminal::print;
use blockyard_image::whole::commit::{Commit, Committed};
use blockyard_image::{Progress, Watch};
use blockyard_session::open::open_to_change;
use clap::Args;
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Write what an image holds into its backing file, and empty it.
///
/// The image shows the same at any time, so that a commit that was stopped can be done again. A backing file that is
/// smaller is made larger. Other images over that backing file are of no more use afterwards.
#[derive(Args)]
pub struct CommitArgs {
    /// Image: a qcow2 file with a backing file, or a VMDK that is a difference from another.
    image: String,
    /// Format of the image.
    #[arg(short, value_name = "FORMAT", value_parser = named_image::formats())]
    format: Option<Format>,
    /// Commit into this file of the chain of backing files [default: the nearest]. The image is not emptied then, and
    /// images between the two are of no more use.
    #[arg(short, long, value_name = "FILE")]
    base: Option<PathBuf>,
    /// Do not empty the image: it is of no more use.
    #[arg(short = 'd')]
    drop: bool,
    /// Show progress.
    #[arg(short)]
    progress: bool,
    /// Directory in which its backing files may lie; may be given more than once.
    #[arg(long, value_name = "DIR")]
    allow_dir: Vec<PathBuf>,
    /// Say nothing.
    #[arg(short, long)]
    quiet: bool,
    /// Write no more than so many bytes a second.
    #[arg(short = 'r', value_name = "SIZE", value_parser = rate)]
    rate: Option<NonZeroU64>,
    #[command(flatten)]
    flags: WriteFlags,
}

/// Runs the command.
///
/// # Errors
/// When the image has no backing file, or one of the two cannot be written.
pub fn run(args: &CommitArgs) -> Result<()> {
    let ImageFile { named, format, .. } = named_image::parse_committed(&args.image, args.format)?;
    let file = open_to_change(&named, &disk::to_write(&args.allow_dir))?.file;
    let commit = Commit::open(&args.image, (file, format), args.base.as_deref(), &args.allow_dir, named.keys())?;
    let watch = AtTerminal::watching(args.progress && !args.quiet)?;
    let paced = Paced { watch: &watch, rate: args.rate, started: Instant::now() };
    disk::keep_unreadable();
    shut_in(&[&named], Vec::new(), 1)?;
    let empties = !args.drop && args.base.is_none();
    let Committed { base, between } = commit.run(empties, &paced)?;
    watch.done();
    if args.quiet {
        return Ok(());
    }
    let image = printable(&args.image);
    let rest = match (empties, between) {
        (true, _) => String::new(),
        (false, 0) => format!("\n{image} is of no more use."),
        (false, between) => format!("\n{image} and {between} more between the two are of no more use."),
    };
    print(&format!("Image committed into {}.{rest}", shown(&base)))
}

/// Whoever watches, and keeps who tells it waiting until so many bytes a second are due.
struct Paced<'a> {
    watch: &'a AtTerminal,
    rate: Option<NonZeroU64>,
    started: Instant,
}

impl Watch for Paced<'_> {
    fn ends(&self) -> Option<String> {
        self.watch.ends()
    }

    fn progress(&self, progress: &Progress) {
        const LOOK: Duration = Duration::from_millis(100);
        self.watch.progress(progress);
        let Some(rate) = self.rate else { return };
        let due = Duration::from_secs_f64(progress.data_bytes as f64 / rate.get() as f64);
        while let Some(left) = due.checked_sub(self.started.elapsed()).filter(|left| !left.is_zero()) {
            if self.ends().is_some() {
                return;
            }
            std::thread::sleep(left.min(LOOK));
        }
    }
}
