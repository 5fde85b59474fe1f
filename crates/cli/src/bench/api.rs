//! `blockyard bench api`.

use super::comparison::{ComparisonArgs, Progress, this_program};
use anyhow::Result;
use blockyard_bench::api::{self, ApiBench};
use blockyard_command_line::terminal;
use clap::Args;

/// Many small operations on one image, one boot, beside guestfish.
///
/// The same script for both: directories and small files are made, listed, read, changed and removed.
#[derive(Args)]
pub struct ApiBenchArgs {
    /// Rounds of 12 operations.
    #[arg(long, value_name = "N", default_value = "25", value_parser = clap::value_parser!(u32).range(1..=10000))]
    rounds: u32,
    /// Counted runs of each.
    #[arg(long, value_name = "N", default_value = "3", value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: u32,
    #[command(flatten)]
    comparison: ComparisonArgs,
}

/// Runs the command.
///
/// # Errors
/// When something cannot be measured, or a signal came.
pub fn run(args: &ApiBenchArgs) -> Result<()> {
    let bench = ApiBench {
        blockyard: this_program()?,
        directory: args.comparison.directory.clone(),
        rounds: args.rounds,
        runs: args.runs,
        guestfish: args.comparison.guestfish(),
    };
    let mut progress = Progress::start()?;
    let results = api::run(&bench, |done, count, next| progress.show(done, count, next))?;
    let text = if args.comparison.json {
        terminal::json(&results)?
    } else {
        results.table().render_within(terminal::output_columns())
    };
    progress.finish(&text)
}
