//! `blockyard testvm`: a minimal Linux that is booted afresh for each step of a script.

mod build;
mod measured;
mod run;
mod shown;
mod summary;
mod variant;

use anyhow::Result;
use clap::{Args, Subcommand};

/// Boot a minimal Linux afresh for each step of a test.
#[derive(Args)]
pub struct TestvmArgs {
    #[command(subcommand)]
    command: TestvmCommand,
}

#[derive(Subcommand)]
#[command(defer = true)]
enum TestvmCommand {
    Build(build::BuildArgs),
    Run(Box<run::TestvmRunArgs>),
}

/// Runs the command.
///
/// # Errors
/// When something is missing, or a step failed.
pub fn run(args: &TestvmArgs) -> Result<()> {
    match &args.command {
        TestvmCommand::Build(args) => args.build(),
        TestvmCommand::Run(args) => args.run(),
    }
}
