//! `blockyard bench`: measures the block path.
//!
//! [`copy`] measures whole copies, [`disk`] any disk, [`layers`] every layer a request can go through.

mod copy;
mod disk;
mod layers;

use anyhow::Result;
use clap::{Args, Subcommand};

/// Measure the block path and compare it with other programs.
#[derive(Args)]
pub struct BenchArgs {
    #[command(subcommand)]
    bench: Bench,
}

#[derive(Subcommand)]
enum Bench {
    Copy(copy::CopyBenchArgs),
    Disk(disk::DiskBenchArgs),
    Layers(layers::LayersBenchArgs),
}

/// Runs the command.
///
/// # Errors
/// When something cannot be measured.
pub fn run(args: &BenchArgs) -> Result<()> {
    match &args.bench {
        Bench::Copy(args) => copy::run(args),
        Bench::Disk(args) => disk::run(args),
        Bench::Layers(args) => layers::run(args),
    }
}
