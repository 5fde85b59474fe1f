//! Commands on images as a whole: the command line of what [`blockyard_image::whole`] does, which this process does
//! itself, shut in ([`shut_in`]).

mod amend;
mod behind;
mod bench;
mod bitmap;
mod block_map_report;
mod check;
mod commit;
mod compare;
mod convert;
pub mod create;
pub mod dd;
mod image_options;
pub mod info;
mod luks_report;
mod map;
mod measure;
mod new_partitions;
mod option_table;
mod qcow2_report;
mod qemu_flags;
mod rebase;
mod resize;
mod shut_in;
mod snapshot;
mod vmdk_report;

use anyhow::{Result, anyhow};
use blockyard_image::is_storage_full;
use clap::Subcommand;
pub use compare::NotComparable;

/// A command on an image as a whole.
#[derive(Subcommand)]
pub enum WholeCommand {
    Create(create::CreateArgs),
    Info(info::InfoArgs),
    Check(check::CheckArgs),
    Convert(convert::ConvertArgs),
    Commit(commit::CommitArgs),
    Rebase(rebase::RebaseArgs),
    Amend(amend::AmendArgs),
    Resize(resize::ResizeArgs),
    Snapshot(snapshot::SnapshotArgs),
    Bitmap(bitmap::BitmapArgs),
    Map(map::MapArgs),
    Measure(measure::MeasureArgs),
    Compare(compare::CompareArgs),
    #[command(hide = true, name = dd::COMMAND)]
    Dd(dd::DdArgs),
    Bench(bench::BenchArgs),
}

impl WholeCommand {
    /// Runs it.
    ///
    /// # Errors
    /// When the image cannot be had, or something failed.
    pub fn run(&self) -> Result<()> {
        let done = match self {
            Self::Create(args) => create::run(args),
            Self::Info(args) => info::run(args),
            Self::Check(args) => check::run(args),
            Self::Convert(args) => convert::run(args),
            Self::Commit(args) => commit::run(args),
            Self::Rebase(args) => rebase::run(args),
            Self::Amend(args) => amend::run(args),
            Self::Resize(args) => resize::run(args),
            Self::Snapshot(args) => snapshot::run(args),
            Self::Bitmap(args) => bitmap::run(args),
            Self::Map(args) => map::run(args),
            Self::Measure(args) => measure::run(args),
            Self::Compare(args) => compare::run(args),
            Self::Dd(args) => dd::run(args),
            Self::Bench(args) => bench::run(args),
        };
        // What is changed in place is as it was, or goes on, or begins again.
        done.map_err(|error| match is_storage_full(error.as_ref()) {
            true => anyhow!("{error:#}: make room there, and run this again"),
            false => error,
        })
    }
}
