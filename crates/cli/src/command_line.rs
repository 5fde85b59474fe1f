//! The commands that there are.

use crate::{attach, bench, copy, decompress, doctor, image, partitions, run, serve, serve_share, testvm};
use blockyard_command_line::unpacker;
use clap::{CommandFactory, Parser, Subcommand};

/// Move, serve, fill and measure virtual-machine disks.
#[derive(Parser)]
#[command(name = "blockyard", version, about, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
#[command(defer = true)]
pub enum Command {
    Attach(attach::AttachArgs),
    Copy(copy::args::CopyArgs),
    Bench(bench::BenchArgs),
    Doctor(doctor::DoctorArgs),
    Image(image::ImageCommandArgs),
    Partitions(partitions::PartitionsArgs),
    Run(run::args::RunArgs),
    Serve(serve::args::ServeArgs),
    Testvm(testvm::TestvmArgs),
    #[command(hide = true)]
    ApplianceKernel(image::KernelArgs),
    #[command(hide = true, name = unpacker::COMMAND)]
    Decompress(decompress::DecompressArgs),
    #[command(hide = true)]
    ServePartitions(serve::ChildArgs),
    #[command(hide = true, name = blockyard_share::COMMAND)]
    ServeShare(serve_share::ServeShareArgs),
}

/// All commands with all their options. A command line is read without those of the commands that it does not name.
pub fn every_command() -> clap::Command {
    let mut all = Cli::command();
    all.build();
    all
}
