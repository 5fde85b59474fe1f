//! `blockyard bench posix`.

use super::backend::with_notes;
use super::comparison::{Progress, this_program};
use anyhow::Result;
use blockyard_bench::posix::{self, LENGTH_MULTIPLE_BYTES, Place, PosixBench};
use blockyard_block::{duration, size};
use blockyard_command_line::terminal;
use blockyard_command_line::usage_error::UsageError;
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;

/// Run dd and fio on disks by `attach`, beside a file of the host's.
///
/// dd reads, writes (another file's data) and copies (one half to the other) with blocks from 4 KiB to 8 MiB, through
/// the page cache and past it, and what it has written is stable in the end. fio's random and sequential requests of
/// 4 KiB are one at a time (psync) or 64, beside what only the host's file can have (libaio, io_uring). Medians of
/// interleaved rounds, their ratios, and each CPU's idle time. All of it takes ten minutes.
#[derive(Args)]
pub struct PosixBenchArgs {
    /// What to run them on.
    #[arg(
        long,
        value_enum,
        value_name = "PLACES",
        value_delimiter = ',',
        default_value = "host,own,direct,mediated,copying"
    )]
    over: Vec<OverArg>,
    /// Directory for the files, of which there are three.
    #[arg(long, value_name = "DIR", default_value = ".")]
    directory: PathBuf,
    /// Bytes of each.
    #[arg(long, value_name = "SIZE", value_parser = size::parse, default_value = "256M")]
    size: u64,
    /// Times each is run.
    #[arg(long, value_name = "N", default_value = "3", value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// How long fio goes on each time.
    #[arg(long, value_name = "TIME", value_parser = duration::parse, default_value = "1s")]
    runtime: Duration,
    /// Only what has this in its name, such as "dd read" or "fio randread posixaio".
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
    /// Print one JSON object, every measurement in it, instead of tables.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum OverArg {
    /// A file of the host's, without `attach`.
    Host,
    /// A disk that `attach` opens itself.
    Own,
    /// A session of `serve`, of the whole disk.
    Direct,
    /// A session of a partition, straight with the driver.
    Mediated,
    /// A session of a partition, by a process that copies every block.
    Copying,
}

/// Runs the command.
///
/// # Errors
/// When something cannot be measured, or a signal came.
pub fn run(args: &PosixBenchArgs) -> Result<()> {
    if args.size == 0 || !args.size.is_multiple_of(LENGTH_MULTIPLE_BYTES) {
        let multiple = size::exact(LENGTH_MULTIPLE_BYTES);
        return Err(UsageError(format!("--size {}: it is a multiple of {multiple}", args.size)).into());
    }
    let place = |over: &OverArg| match over {
        OverArg::Host => Place::Host,
        OverArg::Own => Place::Own,
        OverArg::Direct => Place::Direct,
        OverArg::Mediated => Place::Mediated,
        OverArg::Copying => Place::Copying,
    };
    let bench = PosixBench {
        blockyard: this_program()?,
        directory: args.directory.clone(),
        bytes: args.size,
        over: args.over.iter().map(place).collect(),
        rounds: args.rounds,
        runtime: args.runtime,
        filter: args.only.clone(),
    };
    let mut progress = Progress::start()?;
    let results = posix::run(&bench, |done, count, next| progress.show(done, count, next))?;
    let text = if args.json {
        terminal::json(&results)?
    } else {
        with_notes(results.text(terminal::output_columns()), results.notes())
    };
    progress.finish(&text)
}
