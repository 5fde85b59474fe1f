//! `blockyard bench`: measures the block path.
//!
//! [`copy`] measures whole copies, [`disk`] any disk, [`layers`] every layer a request can go through; [`upload`],
//! [`startup`] and [`api`] what `blockyard image` does, beside guestfish; [`kbuild`] builds a kernel in machines of
//! `run`; [`posix`] runs dd and fio on a disk. [`yard`] is a disk to measure on.

mod api;
mod backend;
pub mod comparison;
mod contents;
mod copy;
mod disk;
mod kbuild;
mod layers;
mod posix;
mod startup;
mod upload;
pub mod yard;

use anyhow::Result;
use clap::{Args, Subcommand};

/// Measure the block path and compare it with other programs.
#[derive(Args)]
pub struct BenchArgs {
    #[command(subcommand)]
    bench: Bench,
}

#[derive(Subcommand)]
#[command(defer = true)]
enum Bench {
    Copy(copy::CopyBenchArgs),
    Disk(disk::DiskBenchArgs),
    Layers(layers::LayersBenchArgs),
    Upload(upload::UploadBenchArgs),
    Startup(startup::StartupBenchArgs),
    Api(api::ApiBenchArgs),
    Kbuild(kbuild::KbuildBenchArgs),
    Posix(posix::PosixBenchArgs),
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
        Bench::Upload(args) => upload::run(args),
        Bench::Startup(args) => startup::run(args),
        Bench::Api(args) => api::run(args),
        Bench::Kbuild(args) => kbuild::run(args),
        Bench::Posix(args) => posix::run(args),
    }
}
