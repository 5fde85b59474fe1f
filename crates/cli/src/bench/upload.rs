//! `blockyard bench upload`.

use super::backend::{AppliancesArgs, with_notes};
use super::comparison::{ComparisonArgs, Progress, this_program};
use anyhow::Result;
use blockyard_bench::upload::{self, UploadBench};
use blockyard_block::size;
use blockyard_command_line::terminal;
use blockyard_command_line::usage_error::UsageError;
use clap::Args;

/// Put data into images of every kind, beside guestfish.
///
/// For each format, file system and way: a fresh image, RUNS times over, of which the last COUNT are averaged. Ours is
/// timed from start to end, boot and flush included, by the appliance on each backend; guestfish the same way, and
/// without its boot. The first row copies the data to a file of the host's.
#[derive(Args)]
pub struct UploadBenchArgs {
    /// Data to put: a multiple of 512.
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    size: Option<u64>,
    /// Runs of each.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: Option<u32>,
    /// Runs that count: the last ones.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    count: Option<u32>,
    /// A few cases, 64 MiB, 2 runs of which 1 counts; else all cases, 500 MiB, 5 runs of which 3 count.
    #[arg(long)]
    quick: bool,
    /// Put zeros instead of random data.
    #[arg(long)]
    zeros: bool,
    /// Only cases whose name has this in it, such as "ext4, upload".
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
    #[command(flatten)]
    appliances: AppliancesArgs,
    #[command(flatten)]
    comparison: ComparisonArgs,
}

/// Runs the command.
///
/// # Errors
/// When something cannot be measured, or a signal came.
pub fn run(args: &UploadBenchArgs) -> Result<()> {
    let (size, runs, count) = if args.quick { (64 << 20, 2, 1) } else { (500 << 20, 5, 3) };
    let (bytes, runs, counted) = (args.size.unwrap_or(size), args.runs.unwrap_or(runs), args.count.unwrap_or(count));
    if bytes == 0 || bytes % 512 != 0 {
        return Err(UsageError(format!("--size {bytes}: it is a multiple of 512")).into());
    }
    if counted > runs {
        return Err(UsageError(format!("--count {counted}: there are {runs} runs")).into());
    }
    let bench = UploadBench {
        blockyard: this_program()?,
        directory: args.comparison.directory.clone(),
        bytes,
        zeros: args.zeros,
        runs,
        counted,
        quick: args.quick,
        filter: args.only.clone(),
        appliances: args.appliances.appliances(),
        guestfish: args.comparison.guestfish(),
    };
    let mut progress = Progress::start()?;
    let results = upload::run(&bench, |done, count, next| progress.show(done, count, next))?;
    let text = if args.comparison.json {
        terminal::json(&results)?
    } else {
        with_notes(results.table().render_within(terminal::output_columns()), results.notes())
    };
    progress.finish(&text)
}
