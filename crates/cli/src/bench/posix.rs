//! `blockyard bench posix`.

use super::backend::with_notes;
use super::comparison::{Progress, this_program};
use anyhow::Result;
use blockyard_bench::posix::{self, PosixBench};
use blockyard_block::{duration, size};
use blockyard_command_line::terminal;
use blockyard_command_line::usage_error::UsageError;
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;

/// Run dd and fio on a disk by `attach`, beside the host's file.
///
/// dd with blocks from 4 KiB to 8 MiB, reading and writing, through the page cache and past it; fio's random and
/// sequential requests of 4 KiB, one at a time and 64, beside what only the host's file can have (libaio, io_uring).
/// Medians of interleaved rounds, with each CPU's idle time.
#[derive(Args)]
pub struct PosixBenchArgs {
    /// Directory for the files, of which there are three.
    #[arg(long, value_name = "DIR", default_value = ".")]
    directory: PathBuf,
    /// Bytes of each.
    #[arg(long, value_name = "SIZE", value_parser = size::parse, default_value = "512M")]
    size: u64,
    /// Times each is run.
    #[arg(long, value_name = "N", default_value = "3", value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// How long fio goes on each time.
    #[arg(long, value_name = "TIME", value_parser = duration::parse, default_value = "2s")]
    runtime: Duration,
    /// Only what has this in its name, such as "dd, read".
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
    /// Print one JSON object, every measurement in it, instead of a table.
    #[arg(long)]
    json: bool,
}

/// Runs the command.
///
/// # Errors
/// When something cannot be measured, or a signal came.
pub fn run(args: &PosixBenchArgs) -> Result<()> {
    if args.size == 0 || !args.size.is_multiple_of(8 << 20) {
        return Err(UsageError(format!("--size {}: it is a multiple of 8M", args.size)).into());
    }
    let bench = PosixBench {
        blockyard: this_program()?,
        directory: args.directory.clone(),
        bytes: args.size,
        rounds: args.rounds,
        runtime: args.runtime,
        filter: args.only.clone(),
    };
    let mut progress = Progress::start()?;
    let results = posix::run(&bench, |done, count, next| progress.show(done, count, next))?;
    let text = if args.json {
        terminal::json(&results)?
    } else {
        with_notes(results.table().render_within(terminal::output_columns()), results.notes())
    };
    progress.finish(&text)
}
