//! `blockyard bench startup`.

use super::backend::{AppliancesArgs, with_notes};
use super::comparison::{ComparisonArgs, Progress, this_program};
use anyhow::Result;
use blockyard_bench::startup::{self, StartupBench};
use blockyard_command_line::terminal;
use clap::Args;

/// How long until something can be done with an image, beside guestfish.
///
/// A look into an ext4 image, by the appliance on each backend, in turn with guestfish's boot alone and its boot, mount
/// and look.
#[derive(Args)]
pub struct StartupBenchArgs {
    /// Counted runs of each.
    #[arg(long, value_name = "N", default_value = "5", value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: u32,
    #[command(flatten)]
    appliances: AppliancesArgs,
    #[command(flatten)]
    comparison: ComparisonArgs,
}

/// Runs the command.
///
/// # Errors
/// When something cannot be measured, or a signal came.
pub fn run(args: &StartupBenchArgs) -> Result<()> {
    let bench = StartupBench {
        blockyard: this_program()?,
        directory: args.comparison.directory.clone(),
        runs: args.runs,
        appliances: args.appliances.appliances(),
        guestfish: args.comparison.guestfish(),
    };
    let mut progress = Progress::start()?;
    let results = startup::run(&bench, |done, count, next| progress.show(done, count, next))?;
    let text = if args.comparison.json {
        terminal::json(&results)?
    } else {
        with_notes(results.table().render_within(terminal::output_columns()), results.notes())
    };
    progress.finish(&text)
}
